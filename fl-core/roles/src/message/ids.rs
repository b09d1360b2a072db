//! [`Ids`]: the samples of a request.

use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, SampleShape, TensorMap, tensors::list,
};
use crate::Result;
use serde::{Deserialize, Serialize};

/// The public samples that a request concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids(pub Vec<u32>);

impl Message for Ids {
    const KIND: &'static str = "ids";
    const DOC: &'static str =
        "Which samples a question is about, or which of its examples a client trains on.";
    const COLUMNS: &'static [Column] = &[Column::new("ids", Dtype::U32, "any", "ids or positions")];
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * facts.rows as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![("ids".into(), list(&self.0))]
    }
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        parcel.list("ids").map(Self)
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        Some(Self((0..1 + outline.draws.below(40) as u32).collect()))
    }
}
