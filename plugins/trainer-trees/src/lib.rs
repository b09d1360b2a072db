#![doc = include_str!("../README.md")]

mod bins;
mod bits;
mod boosting;
mod criterion;
mod forest;
mod grow;
mod model;
mod numbers;
mod predict;
mod scored;
mod settings;
mod targets;
#[cfg(test)]
mod tests;
mod trainer;

pub use settings::{Boosting, ClassWeights, Features, Forest, Purity, Tree};
pub use trainer::Trees;

use fl_core::plugin;

plugin!(trainer "tree" => Tree as Trees,
    papers: ["Breiman et al. 1984"]);
plugin!(trainer "forest" => Forest as Trees,
    papers: ["Breiman 2001"]);
plugin!(trainer "boosting" => Boosting as Trees,
    papers: ["Chen, Guestrin 2016"]);
