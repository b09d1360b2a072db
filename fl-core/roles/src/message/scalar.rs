//! [`Scalar`]: one number.

use super::{Column, Dtype, ExchangeShape, Message, NamedTensors, SampleShape, TensorMap, View};
use crate::{Problem, Result};
use ndarray::Array1;
use serde::{Deserialize, Serialize};

/// One number, such as the largest absolute score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalar(Array1<f32>);

impl Scalar {
    /// Wraps a number.
    pub fn new(value: f32) -> Self {
        Self(Array1::from_elem(1, value))
    }
    /// Returns the number.
    pub fn value(&self) -> f32 {
        self.0[0]
    }
}

impl Message for Scalar {
    const KIND: &'static str = "scalar";
    const DOC: &'static str = "One number, such as the largest absolute score.";
    const COLUMNS: &'static [Column] = &[Column::new("value", Dtype::F32, "1", "the number")];
    fn expected(_: &ExchangeShape) -> Option<u64> {
        Some(4)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![("value".into(), View::F32(self.0.view().into_dyn()))]
    }
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        let value: Array1<f32> = parcel.f32("value")?.into_dimensionality()?;
        Problem::shape_unless(value.len() == 1, || {
            format!("{} numbers where one was due", value.len())
        })?;
        Ok(Self(value))
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        Some(Self::new(outline.number()))
    }
}
