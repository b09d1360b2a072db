//! Which samples a question is about.

use super::{Facts, Message, Named, Parcel, tensors::list};
use crate::Result;
use serde::{Deserialize, Serialize};

/// Which public samples a question is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids(pub Vec<u32>);

impl Message for Ids {
    const KIND: &'static str = "ids";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(4 * facts.rows as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![("ids".into(), list(&self.0))]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        parcel.list("ids").map(Self)
    }
}
