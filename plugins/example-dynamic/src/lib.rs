#![doc = include_str!("../README.md")]

mod by_size;
mod clipped;
mod momentum;

pub use by_size::BySize;
pub use clipped::LaplaceParams;
pub use momentum::{Momentum, MomentumMean};

fl_core::export_plugins!();
