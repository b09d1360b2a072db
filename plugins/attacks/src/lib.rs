#![doc = include_str!("../README.md")]

mod labels;
mod parameters;

pub use labels::{Flip, LabelFlip, Pair, ScoreFlip, SoftLabelFlip};
pub use parameters::{
    Attacker, Forge, Gaussian, InnerProduct, LittleIsEnough, Replacement, SignFlip,
};

#[cfg(test)]
mod tests;
