#![doc = include_str!("../README.md")]

mod adversary;
mod asyn_dgan;
mod ensemble;
mod maker;
mod measure;
mod messages;
mod objective;
mod painter;
mod protocol;
mod report;
mod settings;
mod terms;

pub use adversary::{by_patch, odds};
pub use asyn_dgan::AsynDgan;
pub use ensemble::{Ensemble, importance, shares};
pub use measure::{Inception, frechet};
pub use messages::{Answers, ClassCounts, InputValues, LabelMaps, MadeOfMaps, SlopesWanted};
pub use objective::{Objective, Outcome, Said};
pub use painter::{aim, channels};
pub use protocol::{ANSWER, SLOPES, TRAIN};
pub use settings::*;
pub use terms::{
    balance, confidence, entropy, gan, generated, jensen_shannon, mimic, mixture, published, unique,
};
