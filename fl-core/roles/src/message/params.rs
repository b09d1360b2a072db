//! [`Params`]: model parameters.

use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, SampleShape, Tensor, TensorMap, View,
    alike, alike_to,
};
use crate::{Problem, Result};
use anyhow::{Context, bail};
use ndarray::ArrayD;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Named model parameters, or a difference of two such sets.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Params(pub BTreeMap<String, ArrayD<f32>>);

impl Message for Params {
    const KIND: &'static str = "params";
    const DOC: &'static str = "Named model parameters, or a difference of two such sets.";
    const COLUMNS: &'static [Column] =
        &[Column::new("*", Dtype::F32, "any", "one parameter tensor")];
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * facts.params as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        self.0
            .iter()
            .map(|(k, v)| (Cow::from(k.as_str()), View::F32(v.view())))
            .collect()
    }
    fn from_tensors(parcel: TensorMap) -> Result<Self> {
        let mut all = BTreeMap::new();
        for (name, tensor) in parcel.rest() {
            match tensor {
                Tensor::F32(a) => all.insert(name, a),
                _ => bail!("parameter `{name}` is not f32"),
            };
        }
        Ok(Self(all))
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let outlines: [&[(&str, &[usize])]; 5] = [
            &[("w", &[1])],
            &[("bias", &[3]), ("weight", &[2, 3])],
            &[
                ("conv.weight", &[2, 1, 3, 3]),
                ("norm.running_mean", &[2]),
                ("scale", &[]),
            ],
            &[("none", &[0]), ("w", &[4, 0, 2]), ("x", &[5, 1])],
            &[("a", &[7]), ("b", &[1, 1, 1]), ("c", &[13])],
        ];
        let tensors = outlines[outline.variant(outlines.len())].iter();
        let tensors = tensors.map(|(name, shape)| {
            let tensor = ArrayD::from_shape_simple_fn(*shape, || outline.number());
            (name.to_string(), tensor)
        });
        Some(tensors.collect())
    }
}

/// Collecting into the map itself would compile a map's long code for every iterator.
impl FromIterator<(String, ArrayD<f32>)> for Params {
    fn from_iter<I: IntoIterator<Item = (String, ArrayD<f32>)>>(tensors: I) -> Self {
        Self::named(tensors.into_iter().collect())
    }
}

impl Params {
    fn named(tensors: Vec<(String, ArrayD<f32>)>) -> Self {
        Self(tensors.into_iter().collect())
    }

    /// Returns the number of parameters.
    pub fn count(&self) -> usize {
        self.0.values().map(ArrayD::len).sum()
    }

    /// Iterates over every number, tensor by tensor in name order.
    pub fn iter(&self) -> impl Iterator<Item = &f32> {
        self.0.values().flatten()
    }

    /// Returns zeros with the same names and shapes.
    pub fn zeros_like(&self) -> Self {
        let zeros = |(name, a): (&String, &ArrayD<f32>)| (name.clone(), ArrayD::zeros(a.raw_dim()));
        self.0.iter().map(zeros).collect()
    }

    /// Multiplies every number by `factor`, in `f64`, rounded once.
    pub fn scale(&mut self, factor: f64) {
        let scaled = |x: f32| (factor * f64::from(x)) as f32;
        self.0.values_mut().for_each(|a| a.mapv_inplace(scaled));
    }

    /// Adds `factor` times `other` (BLAS's axpy): `x + factor * y`, in `f64`, rounded once.
    ///
    /// ```
    /// use fl_core::message::Params;
    /// let w = |numbers: [f32; 2]| {
    ///     Params([("w".to_string(), ndarray::arr1(&numbers).into_dyn())].into())
    /// };
    /// let mut x = w([1.0, 2.0]);
    /// x.add_scaled(-0.5, &w([2.0, 2.0])).unwrap();
    /// assert_eq!(x, w([0.0, 1.0]));
    /// assert_eq!((x.dot(&x).unwrap(), x.norm(), x.flat()), (1.0, 1.0, vec![0.0, 1.0]));
    /// ```
    ///
    /// # Errors
    /// If names or shapes differ; nothing is added then.
    pub fn add_scaled(&mut self, factor: f64, other: &Self) -> Result<()> {
        alike_to(self, other, "the parameters that they are added to")
            .context("parameters to add")?;
        for (a, b) in self.0.values_mut().zip(other.0.values()) {
            a.zip_mut_with(b, |x, y| {
                *x = (f64::from(*x) + factor * f64::from(*y)) as f32;
            });
        }
        Ok(())
    }

    /// Returns the sum of the products of all numbers. Products and sum are in `f64`, tensor by
    /// tensor in name order and number by number in row order. The same parameters therefore give
    /// the same bits everywhere.
    ///
    /// # Errors
    /// If names or shapes differ.
    pub fn dot(&self, other: &Self) -> Result<f64> {
        alike_to(self, other, "the parameters that they are multiplied by")
            .context("parameters to multiply")?;
        let products = self.iter().zip(other.iter());
        Ok(products
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .fold(0.0, |sum, xy| sum + xy))
    }

    /// Returns the Euclidean norm of all numbers together, summed as in [`Params::dot`]. No `f32`
    /// overflows it.
    pub fn norm(&self) -> f64 {
        let squares = self.iter().map(|x| f64::from(*x) * f64::from(*x));
        squares.fold(0.0, |sum, xx| sum + xx).sqrt()
    }

    /// Returns every number in one list: tensor by tensor in name order, each in row order.
    pub fn flat(&self) -> Vec<f32> {
        let mut flat = Vec::with_capacity(self.count());
        for a in self.0.values() {
            match a.as_slice() {
                Some(slice) => flat.extend_from_slice(slice),
                None => flat.extend(a.iter()),
            }
        }
        flat
    }

    /// Inverts [`Params::flat`]: names and shapes of `like`, numbers of `flat`.
    ///
    /// # Errors
    /// If `flat` and `like` differ in length.
    pub fn from_flat(like: &Self, flat: &[f32]) -> Result<Self> {
        Problem::shape_unless(flat.len() == like.count(), || {
            format!("{} numbers for {} parameters", flat.len(), like.count())
        })?;
        let mut rest = flat;
        let mut tensors = BTreeMap::new();
        for (name, a) in &like.0 {
            let (own, after) = rest.split_at(a.len());
            rest = after;
            let own = ArrayD::from_shape_vec(a.raw_dim(), own.to_vec())?;
            tensors.insert(name.clone(), own);
        }
        Ok(Self(tensors))
    }

    /// Takes a step from these parameters, those sent to clients, by the clients' `mean`: each
    /// number becomes `step(sent, mean)`, in 64 bits, rounded once. A buffer is the mean as it is:
    /// a step could take a running variance below 0. Tensors come in name order, numbers in row
    /// order.
    ///
    /// ```
    /// use fl_core::message::Params;
    /// let of = |x: f32| {
    ///     let tensor = |name: &str| (name.to_string(), ndarray::arr1(&[x]).into_dyn());
    ///     Params([tensor("norm.running_var"), tensor("weight")].into())
    /// };
    /// let (buffers, twice) = (["norm.running_var".to_string()].into(), |sent, mean| 2.0 * mean - sent);
    /// let next = of(1.0).step(&of(0.25), &buffers, twice).unwrap();
    /// assert_eq!(next.flat(), [0.25, -0.5]);
    /// ```
    ///
    /// # Errors
    /// If names or shapes differ.
    pub fn step(
        &self,
        mean: &Self,
        buffers: &BTreeSet<String>,
        mut step: impl FnMut(f64, f64) -> f64,
    ) -> Result<Self> {
        alike(self, mean)?;
        let mut next = mean.clone();
        let both = next.0.iter_mut().zip(self.0.values());
        for ((_, next), sent) in both.filter(|((name, _), _)| !buffers.contains(*name)) {
            let numbers = next.iter_mut().zip(sent);
            numbers.for_each(|(next, sent)| *next = step((*sent).into(), (*next).into()) as f32);
        }
        Ok(next)
    }

    /// Iterates over the tensors with these names, such as a model's buffers.
    pub fn named_mut<'a>(
        &'a mut self,
        names: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = &'a mut ArrayD<f32>> {
        let named = self.0.iter_mut().filter(|(name, _)| names.contains(*name));
        named.map(|(_, tensor)| tensor)
    }

    /// Returns the tensors with these names.
    pub fn only(&self, names: &BTreeSet<String>) -> Self {
        let named = self.0.iter().filter(|(name, _)| names.contains(*name));
        let owned = named.map(|(name, tensor)| (name.clone(), tensor.clone()));
        owned.collect()
    }

    /// Returns these parameters with the tensors of `other` in place of those with their names.
    ///
    /// ```
    /// use fl_core::message::Params;
    /// let one = |name: &str, x: f32| (name.to_string(), ndarray::arr1(&[x]).into_dyn());
    /// let model = Params([one("body", 1.0), one("head", 2.0)].into());
    /// let body = Params([one("body", 3.0)].into());
    /// let whole = model.with(&body).unwrap();
    /// assert_eq!(whole.flat(), [3.0, 2.0]);
    /// assert_eq!(whole.only(&["body".to_string()].into()), body);
    /// assert!(body.with(&model).is_err());
    /// ```
    ///
    /// # Errors
    /// If one of them has no namesake of its shape here.
    pub fn with(&self, other: &Self) -> Result<Self> {
        let names = other.0.keys().cloned().collect();
        alike_to(
            &self.only(&names),
            other,
            "the model that they are a part of",
        )?;
        let mut whole = self.clone();
        whole.0.extend(other.clone().0);
        Ok(whole)
    }

    /// Combines two sets number by number.
    ///
    /// # Errors
    /// If names or shapes differ.
    pub fn zip(&self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Result<Self> {
        alike(self, other)?;
        let both = self.0.iter().zip(other.0.values());
        let both = both.map(|((name, a), b)| {
            let each = ndarray::Zip::from(a).and(b).map_collect(|x, y| f(*x, *y));
            (name.clone(), each)
        });
        Ok(both.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::params;
    use super::*;
    use ndarray::IxDyn;

    #[test]
    fn exact_a_flat_list_goes_back_into_its_shapes() {
        let p = params();
        let flat = p.flat();
        assert_eq!(flat.len(), p.count());
        assert!(flat.iter().eq(p.iter()));
        assert_eq!(Params::from_flat(&p, &flat).unwrap(), p);
        let mut turned = p.clone();
        let w = turned.0["w"].clone().reversed_axes();
        turned.0.insert("w".into(), w);
        assert!(turned.flat().iter().eq(turned.iter()), "in row order");
        let error = Params::from_flat(&p, &flat[1..]).unwrap_err();
        assert_eq!(error.to_string(), "9 numbers for 10 parameters");
    }

    #[test]
    fn exact_sums_are_wide_and_in_name_order() {
        let one = |name: &str, x: f32| (name.to_string(), ArrayD::from_elem(IxDyn(&[1]), x));
        let big = Params([one("a", 1e30), one("b", 3.0), one("c", -1e30)].into());
        assert!(big.norm().is_finite() && big.norm() > 1.4e30);
        let ones = Params([one("a", 1.0), one("b", 1.0), one("c", 1.0)].into());
        // 1e30 + 3 - 1e30, from the left
        assert_eq!(
            big.dot(&ones).unwrap(),
            (f64::from(1e30f32) + 3.0) - f64::from(1e30f32)
        );
        assert_eq!(Params::default().norm(), 0.0);
    }

    #[test]
    fn exact_scaled_sums_round_once() {
        let (mut x, y) = (params(), params());
        x.scale(-2.0);
        x.add_scaled(2.0, &y).unwrap();
        assert_eq!(x, y.zeros_like());
        let (before, other) = (x.clone(), Params::default());
        let error = format!("{:#}", x.add_scaled(1.0, &other).unwrap_err());
        assert!(
            error.contains("`b`, `w` in the parameters that they are added to"),
            "{error}"
        );
        assert!(x.dot(&other).is_err());
        assert_eq!(x, before);
    }
}
