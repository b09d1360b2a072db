#![doc = include_str!("../README.md")]

mod membership;
mod shadows;

pub use membership::{Strength, bound, lira, losses, margins, strength};
pub use shadows::Halves;
