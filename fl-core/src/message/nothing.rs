//! Nothing to say.

use super::{Facts, Message, Named, Outline, Parcel};
use crate::Result;
use serde::{Deserialize, Serialize};

/// Nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing;

impl Message for Nothing {
    const KIND: &'static str = "nothing";
    const DOC: &'static str = "Nothing to say.";
    fn expected(_: &Facts) -> Option<u64> {
        Some(0)
    }
    fn tensors(&self) -> Named<'_> {
        Vec::new()
    }
    fn from_tensors(_: Parcel) -> Result<Self> {
        Ok(Self)
    }
    fn sample(_: &mut Outline<'_>) -> Option<Self> {
        Some(Self)
    }
}
