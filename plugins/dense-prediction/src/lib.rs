#![doc = include_str!("../README.md")]

pub mod images;
pub mod masks;
pub mod objects;
