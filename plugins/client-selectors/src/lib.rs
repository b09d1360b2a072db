#![doc = include_str!("../README.md")]

mod cyclic;
mod power;
mod random;

pub use cyclic::{Cyclic, CyclicSettings};
pub use power::{PowerOfChoice, PowerOfChoiceSettings};
pub use random::{Poisson, Uniform};
