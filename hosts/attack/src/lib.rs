#![doc = include_str!("../README.md")]

mod gradient;
mod likeness;
mod membership;
mod shadows;

pub use gradient::{Found, Search, Seen, read_off, search};
pub use likeness::{Likeness, class_means, likeness, ranges};
pub use membership::{Strength, bound, lira, losses, margins, strength};
pub use shadows::Halves;
