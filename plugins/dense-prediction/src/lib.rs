#![doc = include_str!("../README.md")]

pub mod images;
pub mod masks;
pub mod objects;
pub mod of_pixels;
