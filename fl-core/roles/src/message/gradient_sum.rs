//! [`GradientSum`]: the gradient that a step of DP-SGD computes from a client's examples.

use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, Params, SampleShape, SensitivityNorm,
    TensorMap,
};
use crate::Result;

/// The gradient of one example by every parameter, or the sum of several (DP-SGD, Abadi et al.
/// 2016).
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
    const REACH: SensitivityNorm = SensitivityNorm::Sum;
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Params::expected(facts)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        self.sum.tensors()
    }
    fn from_tensors(parcel: TensorMap) -> Result<Self> {
        let sum = Params::from_tensors(parcel)?;
        Ok(Self { sum })
    }
    fn check(&self) -> Result<()> {
        self.sum.check()
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let sum = Params::sample(outline)?;
        Some(Self { sum })
    }
}
