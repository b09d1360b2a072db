#![doc = include_str!("../README.md")]

mod ensemble;
mod noise;
mod protocol;
mod quantise;

pub use ensemble::{ClassWeighted, ZeroClass, class_weights, weighted_sum};
pub use noise::LaplaceLogits;
pub use protocol::OneShotDistill;
pub use quantise::{Quantise, Rule};

fl_core::export_plugins!();
