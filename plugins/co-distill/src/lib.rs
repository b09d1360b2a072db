#![doc = include_str!("../README.md")]

mod exchanges;
mod filter;
mod filter_metrics;
mod label_metrics;
mod labels;
mod local_schedule;
mod mean;
mod noise;
mod protocol;
mod robust;
mod rows;
mod sampling;
mod settings;
mod slots;

pub use mean::{EntropyReduction, MeanLabels};
pub use noise::{GaussianLabels, LaplaceLabels, RandomisedResponse};
pub use robust::{RobustLabels, Rule, median, spectral, trimmed};
pub use rows::RowSums;
pub use sampling::SampleExamples;
pub use settings::{CoDistill, FilterOn, Labels, Order, Reply, ScoreLoss, Scores, Teacher};

fl_core::export_plugins!();
