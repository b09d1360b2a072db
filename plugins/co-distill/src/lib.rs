#![doc = include_str!("../README.md")]

mod classes;
mod mean;
mod noise;
mod protocol;
mod robust;
mod rows;
mod sampling;
mod taught;

pub use classes::{MeanOfClasses, Which, agrees};
pub use mean::{EntropyReduction, MeanLabels};
pub use noise::{GaussianLabels, LaplaceLabels, RandomisedResponse};
pub use protocol::{CoDistill, FilterOn, Labels, Order, Reply, ScoreLoss, Teacher};
pub use robust::{RobustLabels, Rule, median, spectral, trimmed};
pub use rows::RowSums;
pub use sampling::SampleExamples;
