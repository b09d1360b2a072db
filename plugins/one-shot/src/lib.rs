#![doc = include_str!("../README.md")]

mod co_boosting;
mod dense;
mod ensemble;
mod generator_loss;
mod one_shot;
mod pool;

pub use co_boosting::CoBoosting;
pub use dense::Dense;
pub use ensemble::{Ensemble, weighted};
pub use generator_loss::{Emphasis, GeneratorLoss, Seen, generator_loss};
pub use one_shot::{OneShot, OneShotRule, OneShotSettings, Shared};
pub use pool::Pool;

fl_core::export_plugins!();
