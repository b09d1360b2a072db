//! Clients teach each other: what models say about public samples, or about classes, is combined and learnt by all.
//!
//! One protocol, [`CoDistill`], hosts the family; a method is the parts that a spec names: FedMD takes the mean
//! of scores (`mean-logits`), Selective-FD [`MeanLabels`] with filters on both sides, DS-FL [`EntropyReduction`], Cronus [`RobustLabels`], FKD and PLS
//! [`MeanOfClasses`], FedED a student at the server that teaches in place of the ensemble.
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
