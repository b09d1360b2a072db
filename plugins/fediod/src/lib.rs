#![doc = include_str!("../README.md")]

mod asyn_dgan;
mod discriminator;
mod ensemble;
mod frechet;
mod generator;
mod image_translator;
mod loss_terms;
mod messages;
mod objective;
mod protocol;
mod report;
mod settings;

pub use asyn_dgan::AsynDgan;
pub use discriminator::{by_patch, odds};
pub use ensemble::{Ensemble, importance, shares};
pub use frechet::{Inception, frechet};
pub use image_translator::{aim, channels};
pub use loss_terms::{
    balance, confidence, entropy, generated, jensen_shannon, mimic, mixture, published, unique,
};
pub use messages::{Answers, ClassCounts, ImagesOfMaps, InputValues, LabelMaps, SlopeRequest};
pub use objective::{ClientAnswers, Objective, Outcome};
pub use protocol::{ANSWER, SLOPES, TRAIN};
pub use settings::*;

fl_core::export_plugins!();
