//! Training as settings and protocols speak of it.

mod training;

pub use training::*;
