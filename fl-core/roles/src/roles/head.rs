//! [`Head`]: a model's last layer by itself.

use crate::portable::product;
use ndarray::{Array1, Array2, ArrayView2, Axis};

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
