//! [`ParamsList`]: a list of parameters with weights.

use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, Params, SampleShape, Tensor, TensorMap,
    alike,
};
use crate::Result;
use anyhow::{Context, ensure};
use ndarray::{Array1, ArrayD, Axis, stack};

const WEIGHTS: &str = "weights";
const PREFIX: &str = "params.";

/// A list of answers, at least one, each with a weight: the result of a step before an aggregator.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamsList {
    /// `weights`, and under `params.` each parameter of all answers, stacked along a first axis.
    stacked: Params,
}

impl Message for ParamsList {
    const KIND: &'static str = "params-list";
    const DOC: &'static str =
        "A list of parameters with weights, the result of a step before an aggregator.";
    const COLUMNS: &'static [Column] = &[Column::new(
        "*",
        Dtype::F32,
        "any",
        "`weights`: `answers`; `params.NAME`: the parameter `NAME` of all answers, `answers x ..`",
    )];
    fn expected(_: &ExchangeShape) -> Option<u64> {
        None
    }
    fn tensors(&self) -> NamedTensors<'_> {
        self.stacked.tensors()
    }
    fn from_tensors(parcel: TensorMap) -> Result<Self> {
        let mut all = parcel.rest();
        // a sender may list them in any order
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let named = |(name, tensor)| match tensor {
            Tensor::F32(tensor) => Ok((name, tensor)),
            _ => anyhow::bail!("tensor `{name}` is not f32"),
        };
        let stacked: Vec<(String, ArrayD<f32>)> =
            all.into_iter().map(named).collect::<Result<_>>()?;
        let stacked: Params = stacked.into_iter().collect();
        let weights = stacked.0.get(WEIGHTS);
        let weights = weights.context("a list of parameters has no `weights`")?;
        let n = weights.len();
        ensure!(
            weights.ndim() == 1 && n > 0,
            "`weights` has the shape {:?}: it must be a list with a number for each answer, at least one",
            weights.shape()
        );
        for (name, tensor) in &stacked.0 {
            ensure!(
                name == WEIGHTS || name.starts_with(PREFIX),
                "tensor `{name}` of a list of parameters must be `weights` or `params.NAME`"
            );
            ensure!(
                tensor.shape().first() == Some(&n),
                "tensor `{name}` has the shape {:?}: its first size must be the number of weights, {n}",
                tensor.shape()
            );
        }
        Ok(Self { stacked })
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let one = Params::sample(outline)?;
        Self::new(vec![(1.0, one.clone()), (2.0, one)]).ok()
    }
}

impl ParamsList {
    /// Makes a list of answers with their weights.
    ///
    /// # Errors
    /// If there is none, or names or shapes differ.
    pub fn new(answers: Vec<(f64, Params)>) -> Result<Self> {
        let first = answers.first().context("a list of parameters is empty")?;
        for (_, other) in &answers {
            alike(&first.1, other)?;
        }
        let weights: Array1<f32> = answers.iter().map(|(weight, _)| *weight as f32).collect();
        let stacked = |name: &String| -> Result<(String, ArrayD<f32>)> {
            let all: Vec<_> = answers.iter().map(|(_, one)| one.0[name].view()).collect();
            Ok((format!("{PREFIX}{name}"), stack(Axis(0), &all)?))
        };
        let names = first.1.0.keys();
        let mut stacked: Params = names
            .map(stacked)
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .collect();
        stacked.0.insert(WEIGHTS.into(), weights.into_dyn());
        Ok(Self { stacked })
    }

    /// Returns the answers with their weights.
    pub fn answers(&self) -> Vec<(f64, Params)> {
        let weights = self.stacked.0[WEIGHTS]
            .iter()
            .map(|weight| f64::from(*weight));
        let of = |at| {
            let named = self.stacked.0.iter().filter_map(|(name, all)| {
                let name = name.strip_prefix(PREFIX)?;
                Some((name.to_string(), all.index_axis(Axis(0), at).to_owned()))
            });
            named.collect()
        };
        weights
            .enumerate()
            .map(|(at, weight)| (weight, of(at)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;
    use ndarray::arr1;

    fn params(x: f32) -> Params {
        [("w", vec![x, 2.0 * x]), ("weights", vec![-x])]
            .into_iter()
            .map(|(name, numbers)| (name.to_string(), arr1(&numbers).into_dyn()))
            .collect()
    }

    #[test]
    fn exact_a_list_gives_back_its_answers() {
        let answers = vec![(3.0, params(1.0)), (0.5, params(-4.0))];
        let list = ParamsList::new(answers.clone()).unwrap();
        assert_eq!(decode::<ParamsList>(&encode(&list)).unwrap(), list);
        assert_eq!(list.answers(), answers);
    }

    #[test]
    fn a_list_whose_tensors_do_not_fit_names_the_tensor() {
        let list = |tensors: &[(&str, &[f32])]| {
            let tensors = tensors.iter();
            let tensors = tensors
                .map(|(name, numbers)| (name.to_string(), Tensor::F32(arr1(numbers).into_dyn())));
            let made = ParamsList::from_tensors(TensorMap::new(tensors.collect()));
            made.map(drop).unwrap_err().to_string()
        };
        assert!(list(&[("params.w", &[1.0])]).contains("no `weights`"));
        assert!(list(&[("weights", &[])]).contains("at least one"));
        assert!(list(&[("w", &[1.0]), ("weights", &[1.0])]).contains("`w`"));
        let long = list(&[("params.w", &[1.0, 2.0]), ("weights", &[1.0])]);
        assert!(long.contains("`params.w` has the shape [2]"), "{long}");
        assert!(ParamsList::new(Vec::new()).is_err());
    }
}
