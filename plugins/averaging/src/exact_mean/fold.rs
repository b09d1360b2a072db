//! [`ExactMeanOfParams`]: the exact mean of answers that come one after another.

use super::{Share, Sums, Weights, parts};
use fl_core::Problem;
use fl_core::prelude::*;
use ndarray::{ArrayD, Dimension, IxDyn};
use std::collections::BTreeMap;

/// Answers that a fold buffers: its sums, too long for any cache, are loaded and stored once for
/// all of them.
const WAITING: usize = 8;

/// A fold that is an exact mean of parameters: it has the bits of
/// [`exact_mean`](super::exact_mean) in any order of the answers, and uses the
/// memory of 11 to 15 models for any number of them, more if their numbers spread over 60 powers of
/// two. Two folds of some of the answers can be merged.
#[derive(Default)]
pub struct ExactMeanOfParams {
    waiting: Vec<ClientMessage<Params>>,
    sums: BTreeMap<String, (IxDyn, Sums)>,
    weights: Weights,
}

impl ExactMeanOfParams {
    /// Checks that parameters have the names and shapes of the earlier ones.
    fn fit<'a>(&mut self, shapes: impl Iterator<Item = (&'a String, IxDyn)>) -> Result<()> {
        if self.sums.is_empty() {
            let sums = |(name, dim): (&String, IxDyn)| {
                let sums = Sums::new(dim.size());
                (name.clone(), (dim, sums))
            };
            self.sums = shapes.map(sums).collect();
            return Ok(());
        }
        let mut shapes = shapes;
        let due = |(name, (dim, _)): (&String, &(IxDyn, Sums))| {
            let shape = shapes.next();
            shape.is_some_and(|(other, of)| other == name && of == *dim)
        };
        let same = self.sums.iter().all(due);
        Problem::shape_unless(same && shapes.next().is_none(), || {
            "names or shapes of parameters differ from those of the messages before".into()
        })
    }

    /// Adds the buffered answers to the sums.
    fn flush(&mut self) -> Result<()> {
        for (name, (_, sums)) in &mut self.sums {
            let tensors = self
                .waiting
                .iter()
                .map(|m| m.body.0[name].as_standard_layout());
            let tensors: Vec<_> = tensors.collect();
            let mut shares: Vec<Share<'_>> = Vec::with_capacity(WAITING);
            for (mail, tensor) in self.waiting.iter().zip(&tensors) {
                let sent = tensor.as_slice().expect("standard layout");
                shares.extend(parts(mail.weight)?.map(|part| (sent, part)));
            }
            sums.add(&shares, 0);
        }
        self.waiting.clear();
        Ok(())
    }

    /// Adds the answers of `other`.
    ///
    /// # Errors
    /// If they have other names or shapes.
    pub fn merge(&mut self, mut other: Self) -> Result<()> {
        self.flush()?;
        other.flush()?;
        if other.weights.0.is_empty() {
            return Ok(());
        }
        self.fit(
            other
                .sums
                .iter()
                .map(|(name, (dim, _))| (name, dim.clone())),
        )?;
        self.weights.0.extend(other.weights.0);
        for ((_, mine), (_, theirs)) in self.sums.values_mut().zip(other.sums.into_values()) {
            mine.merge(theirs);
        }
        Ok(())
    }
}

impl Fold<Params, Params> for ExactMeanOfParams {
    fn add(&mut self, mail: ClientMessage<Params>) -> Result<()> {
        let parts = parts(mail.weight)?;
        self.fit(mail.body.0.iter().map(|(name, t)| (name, t.raw_dim())))?;
        self.weights.0.extend(parts);
        self.waiting.push(mail);
        match self.waiting.len() {
            WAITING => self.flush(),
            _ => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Params> {
        self.flush()?;
        let Self { sums, weights, .. } = *self;
        ensure!(!weights.0.is_empty(), Problem::NoAnswer(String::new()));
        let means = sums.into_iter().map(|(name, (dim, sums))| {
            let mut out = vec![0.0; sums.n];
            sums.divide(&weights, &mut out);
            Ok((name, ArrayD::from_shape_vec(dim, out)?))
        });
        means.collect()
    }
}
