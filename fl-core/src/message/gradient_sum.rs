//! What a step of DP-SGD sees of a client's examples.

use super::{Column, Dtype, Facts, Message, Named, Outline, Params, Parcel, Reach};
use crate::Result;

/// The gradient of one example, or the sum of several such, by every parameter (DP-SGD, Abadi et al. 2016).
#[derive(Clone, Debug, PartialEq)]
pub struct GradientSum {
    /// Named and shaped as the model's parameters.
    pub sum: Params,
}

impl Message for GradientSum {
    const KIND: &'static str = "gradient-sum";
    const DOC: &'static str =
        "The gradient of one example, or the sum of several such, by every parameter.";
    const COLUMNS: &'static [Column] =
        &[Column::new("*", Dtype::F32, "any", "one parameter tensor")];
    const REACH: Reach = Reach::Sum;
    fn expected(facts: &Facts) -> Option<u64> {
        Params::expected(facts)
    }
    fn tensors(&self) -> Named<'_> {
        self.sum.tensors()
    }
    fn from_tensors(parcel: Parcel) -> Result<Self> {
        let sum = Params::from_tensors(parcel)?;
        Ok(Self { sum })
    }
    fn check(&self) -> Result<()> {
        self.sum.check()
    }
    fn sample(outline: &mut Outline<'_>) -> Option<Self> {
        let sum = Params::sample(outline)?;
        Some(Self { sum })
    }
}
