//! [`Nothing`]: the empty message.

use super::{ExchangeShape, Message, NamedTensors, SampleShape, TensorMap};
use crate::Result;
use serde::{Deserialize, Serialize};

/// The empty message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing;

impl Message for Nothing {
    const KIND: &'static str = "nothing";
    const DOC: &'static str = "Nothing to say.";
    fn expected(_: &ExchangeShape) -> Option<u64> {
        Some(0)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        Vec::new()
    }
    fn from_tensors(_: TensorMap) -> Result<Self> {
        Ok(Self)
    }
    fn sample(_: &mut SampleShape<'_>) -> Option<Self> {
        Some(Self)
    }
}
