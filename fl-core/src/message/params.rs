//! Model parameters.

use super::{Facts, Message, Named, Parcel, Tensor, View, alike};
use crate::Result;
use anyhow::bail;
use ndarray::ArrayD;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Named model parameters, or a difference of two such sets.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Params(pub BTreeMap<String, ArrayD<f32>>);

impl Message for Params {
    const KIND: &'static str = "params";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(4 * facts.params as u64)
    }
    fn tensors(&self) -> Named<'_> {
        self.0
            .iter()
            .map(|(k, v)| (Cow::from(k.as_str()), View::F32(v.view())))
            .collect()
    }
    fn from_tensors(parcel: Parcel) -> Result<Self> {
        let mut all = BTreeMap::new();
        for (name, tensor) in parcel.rest() {
            match tensor {
                Tensor::F32(a) => all.insert(name, a),
                _ => bail!("parameter `{name}` is not f32"),
            };
        }
        Ok(Self(all))
    }
}

impl Params {
    /// Number of parameters.
    pub fn count(&self) -> usize {
        self.0.values().map(ArrayD::len).sum()
    }

    /// Every number, tensor by tensor in name order.
    pub fn iter(&self) -> impl Iterator<Item = &f32> {
        self.0.values().flatten()
    }

    /// Combines two sets number by number.
    ///
    /// # Errors
    /// When names or shapes differ.
    pub fn zip(&self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Result<Self> {
        alike(self, other)?;
        let both = self.0.iter().zip(other.0.values());
        Ok(Self(
            both.map(|((k, a), b)| {
                (
                    k.clone(),
                    ndarray::Zip::from(a).and(b).map_collect(|x, y| f(*x, *y)),
                )
            })
            .collect(),
        ))
    }
}
