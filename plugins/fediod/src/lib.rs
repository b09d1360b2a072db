#![doc = include_str!("../README.md")]

mod adversary;
mod ensemble;
mod measure;
mod messages;
mod objective;
mod protocol;
mod report;
mod settings;
mod terms;

pub use adversary::{by_patch, odds};
pub use ensemble::{Ensemble, importance, shares};
pub use measure::{Inception, frechet};
pub use messages::{Answers, ClassCounts, InputValues, SlopesWanted};
pub use objective::{Objective, Outcome, Said};
pub use protocol::{ANSWER, SLOPES, TRAIN};
pub use settings::*;
pub use terms::{
    balance, confidence, entropy, gan, generated, jensen_shannon, mimic, mixture, published, unique,
};
