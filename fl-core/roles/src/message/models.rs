//! [`Models`]: whole models.

use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, SampleShape, Tensor, TensorMap, View,
};
use crate::Result;
use serde::{Deserialize, Serialize};

/// Whole models, each in its trainer's own format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Models(pub Vec<Vec<u8>>);

impl Message for Models {
    const KIND: &'static str = "models";
    const DOC: &'static str =
        "Whole models, each in its trainer's own format, in the order of their names.";
    const COLUMNS: &'static [Column] = &[Column::new(
        "*",
        Dtype::U8,
        "any",
        "one model; names are `000000`, `000001`, ..",
    )];
    /// Returns the size of one model.
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        facts.model
    }
    fn tensors(&self) -> NamedTensors<'_> {
        // six digits, so that names sort like the models
        let named = self.0.iter().enumerate();
        named
            .map(|(i, model)| (format!("{i:06}").into(), View::U8(model.as_slice().into())))
            .collect()
    }
    fn from_tensors(parcel: TensorMap) -> Result<Self> {
        let model = |(name, tensor)| match tensor {
            Tensor::U8(bytes) => Ok(bytes),
            _ => anyhow::bail!("model `{name}` is not bytes"),
        };
        parcel
            .rest()
            .into_iter()
            .map(model)
            .collect::<Result<_>>()
            .map(Self)
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let mut model = |n| (0..n).map(|_| outline.draws.below(256) as u8).collect();
        Some(Self(vec![model(20), model(0), model(7)]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{bytes, decode, digest, encode};
    use super::*;

    #[test]
    fn exact_models_keep_their_order_and_cost_their_bytes() {
        let models = Models((0..12).map(|i| vec![i; usize::from(i)]).collect());
        assert_eq!(decode::<Models>(&encode(&models)).unwrap(), models);
        assert_eq!(bytes(&models, None).total(), 66);
        let mut swapped = models.clone();
        swapped.0.swap(3, 4);
        assert_ne!(digest(&models), digest(&swapped));
    }
}
