//! Losses that a method adds to that of a mini-batch: [`AuxiliaryLoss`] on scores and last layer,
//! [`FeatureLoss`] on features.

use super::Head;
use crate::{Problem, Result, Stream, Target};
use ndarray::{Array1, Array2, ArrayView2};
use std::fmt::Debug;

/// A loss that a method adds to that of each mini-batch
/// ([`FitOptions::auxiliary`](crate::FitOptions::auxiliary)). It may train the whole model through
/// the scores of the batch, and the last layer directly. For a loss on features see
/// [`FeatureLoss`].
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

/// A loss that a method adds to that of each mini-batch
/// ([`FitOptions::feature_loss`](crate::FitOptions::feature_loss)). It trains the layers before the
/// last one through the features of the batch, and not the last layer. An example is FedProto's
/// distance to the class means of features (Tan et al. 2022).
///
/// A trainer calls it once for each mini-batch in which it takes a step, and says which samples
/// these are, whatever the order in which it takes them. A loss may compare each sample's features
/// with others of the same sample, as MOON's does (Li et al. 2021).
pub trait FeatureLoss: Debug {
    /// Returns the term for a mini-batch with this `target`, of which the model makes these
    /// `features` (`samples x features`) in training. `rows` are the positions of its samples
    /// among those that the model trains on. Randomness comes from `stream` only.
    ///
    /// # Errors
    /// If there is no such loss for this target, for these rows, or for this number of features.
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        rows: &[usize],
        stream: &Stream,
    ) -> Result<FeatureTerm>;
}

/// The addends of a [`FeatureLoss`] for one mini-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureTerm {
    /// Addend to its loss.
    pub loss: f64,
    /// Addend to the slope by each feature, `samples x features`.
    pub by_features: Array2<f32>,
}

impl FeatureTerm {
    /// Returns the term of `loss` for a mini-batch, as [`FeatureLoss::of_features`].
    ///
    /// # Errors
    /// Those of `loss`, if there are not as many rows and targets as features, and if the slopes do
    /// not have the shape of the features.
    pub fn of(
        loss: &dyn FeatureLoss,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        rows: &[usize],
        stream: &Stream,
    ) -> Result<Self> {
        let (samples, targets, named) = (features.nrows(), target.len(), rows.len());
        let text = || format!("features of {samples} samples, {targets} targets and {named} rows");
        Problem::shape_unless(samples == targets && samples == named, text)?;
        let term = loss.of_features(features, target, rows, stream)?;
        let (found, due) = (term.by_features.dim(), features.dim());
        let text =
            || format!("a loss on features gave slopes of shape {found:?}; expected {due:?}");
        Problem::shape_unless(found == due, text)?;
        Ok(term)
    }
}
