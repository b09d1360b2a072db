//! The trainer through its public face: what it promises, and what it learns.

mod common;
mod contract;
mod learning;
mod pixels;
mod words;
