#![doc = include_str!("../README.md")]

mod conversation;
mod filter;
mod judge;
mod labels;
mod mean;
mod noise;
mod order;
mod protocol;
mod robust;
mod rows;
mod sampling;
mod settings;

pub use mean::{EntropyReduction, MeanLabels};
pub use noise::{GaussianLabels, LaplaceLabels, RandomisedResponse};
pub use robust::{RobustLabels, Rule, median, spectral, trimmed};
pub use rows::RowSums;
pub use sampling::SampleExamples;
pub use settings::{CoDistill, FilterOn, Labels, Order, Reply, ScoreLoss, Scores, Teacher};
