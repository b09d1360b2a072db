#![doc = include_str!("../README.md")]

mod agnostic;
mod loss_weighted;
mod q_fair;

pub use agnostic::{Afl, AgnosticMean};
pub use loss_weighted::LossWeightedMean;
pub use q_fair::QFairMean;

#[cfg(test)]
mod tests;
