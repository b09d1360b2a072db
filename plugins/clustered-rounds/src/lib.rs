#![doc = include_str!("../README.md")]

mod centres;
pub mod clusters;
mod distance;
pub mod em;
mod fesem;
mod ifca;

pub use centres::Centres;
pub use clusters::{ClusterRule, ClusterSettings, Clusters, InRound, Shared};
pub use fesem::FeSem;
pub use ifca::Ifca;

fl_core::export_plugins!();
