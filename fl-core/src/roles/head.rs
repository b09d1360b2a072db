//! [`Head`]: a model's last layer by itself. [`AuxiliaryLoss`]: a loss added to that of a
//! mini-batch.

use crate::portable::product;
use crate::{Result, Stream, Target};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::fmt::Debug;

/// A model's last layer, if it is linear: `scores = features . weight^T + bias`. Its features are
/// those of [`Trainer::features`](crate::Trainer::features).
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// `outputs x features`.
    pub weight: Array2<f64>,
    /// One number for each output.
    pub bias: Array1<f64>,
}

impl Head {
    /// Returns the number of features per sample.
    pub fn features(&self) -> usize {
        self.weight.ncols()
    }

    /// Returns the number of scores per sample.
    pub fn outputs(&self) -> usize {
        self.weight.nrows()
    }

    /// Returns the scores (`samples x outputs`) of these features (`samples x features`).
    pub fn scores(&self, features: ArrayView2<'_, f64>) -> Array2<f64> {
        product(features, self.weight.t()) + &self.bias
    }

    /// Converts a loss's slope by each score to that by each feature.
    pub fn by_features(&self, slope: ArrayView2<'_, f64>) -> Array2<f64> {
        product(slope, self.weight.view())
    }

    /// Converts a loss's slope by each score of these features to that by weight and bias.
    pub fn by_weights(features: ArrayView2<'_, f64>, slope: ArrayView2<'_, f64>) -> Self {
        Self {
            weight: product(slope.t(), features),
            bias: slope.sum_axis(Axis(0)),
        }
    }
}

/// A loss that a method adds to that of each mini-batch
/// ([`FitOptions::auxiliary`](crate::FitOptions::auxiliary)). It may train the whole model through
/// the scores of the batch, and the last layer directly.
pub trait AuxiliaryLoss: Debug {
    /// Returns the term for a mini-batch with this `target`, for which the model gives these
    /// `scores`. `head` is the model's last layer before the step. Randomness comes from `stream`
    /// only.
    ///
    /// # Errors
    /// If there is no such loss for this target.
    fn of_batch(
        &self,
        head: &Head,
        target: Target<'_>,
        scores: ArrayView2<'_, f32>,
        stream: &Stream,
    ) -> Result<AuxiliaryTerm>;
}

/// The addends of an [`AuxiliaryLoss`] for one mini-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct AuxiliaryTerm {
    /// Addend to its loss.
    pub loss: f64,
    /// Addend to the slope by each score, `samples x outputs`.
    pub by_scores: Array2<f32>,
    /// Addend to the slope by weight and bias of the last layer.
    pub by_head: Head,
}

impl AuxiliaryTerm {
    /// Returns a term of zeros for a batch with these scores.
    pub fn nothing(head: &Head, scores: ArrayView2<'_, f32>) -> Self {
        Self {
            loss: 0.0,
            by_scores: Array2::zeros(scores.dim()),
            by_head: Head {
                weight: Array2::zeros(head.weight.dim()),
                bias: Array1::zeros(head.outputs()),
            },
        }
    }
}
