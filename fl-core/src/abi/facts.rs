//! What is said in JSON beside the tensors of a call, by both sides.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The facts of a round, as they cross.
#[derive(Serialize, Deserialize)]
pub(super) struct RoundText<'a> {
    pub number: usize,
    pub last: bool,
    pub name: Cow<'a, str>,
}

/// The facts of a [`crate::Pass`], as they cross.
#[derive(Serialize, Deserialize)]
pub(super) struct PassText {
    pub length: crate::Length,
    pub batch: usize,
    pub loss: crate::Loss,
    pub fresh: bool,
    pub pull: Option<f64>,
    pub drift: bool,
    pub clip: Option<f64>,
    pub target: String,
}
