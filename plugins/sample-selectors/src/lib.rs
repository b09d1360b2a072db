#![doc = include_str!("../README.md")]

mod accept;
mod density_ratio;
mod exp;
mod kernel;
mod kulsif;
mod landmarks;
mod scores;
mod unambiguous;
mod width;

pub use accept::{accept, accept_any, quantile};
pub use density_ratio::{DensityRatio, DensityRatioSettings, Variant};
pub use kulsif::{Method, Ratios};
pub use scores::{Confidence, ConfidenceSettings, Energy, EnergySettings};
pub use unambiguous::{Unambiguous, ambiguity};
pub use width::Width;
