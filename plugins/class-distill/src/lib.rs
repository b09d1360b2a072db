#![doc = include_str!("../README.md")]

mod means;
mod protocol;

pub use means::{MeanOfClasses, Which, agrees, mean_of_classes};
pub use protocol::ClassDistill;

fl_core::export_plugins!();
