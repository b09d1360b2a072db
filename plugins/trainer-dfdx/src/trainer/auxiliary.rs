//! The last layer by itself, and its gradient from an auxiliary loss.

use super::Dfdx;
use anyhow::Context;
use fl_core::{Head, Problem, Result};
use fl_nets::net::Net;
use ndarray::{Array1, Array2};

impl Dfdx {
    /// Returns the last layer.
    ///
    /// # Errors
    /// If it is not linear.
    pub(super) fn last_layer(&self) -> Result<Head> {
        let lacks = "the last layer is a convolution, and an auxiliary loss needs a linear one";
        let [weight, bias] = self
            .net
            .head()
            .with_context(|| Problem::Lacks(lacks.into()))?;
        let all = &self.numbers.of(&self.net).weights;
        self.head_of(&all[weight], &all[bias])
    }

    /// Returns the last layer with this weight and bias.
    pub(super) fn head_of(&self, weight: &[f32], bias: &[f32]) -> Result<Head> {
        let bias: Array1<f64> = bias.iter().copied().map(f64::from).collect();
        let weight = weight.iter().copied().map(f64::from).collect();
        let shape = (bias.len(), self.net.features_width());
        Ok(Head {
            weight: Array2::from_shape_vec(shape, weight)?,
            bias,
        })
    }
}

/// Adds an auxiliary loss's slope by the last layer to a gradient.
pub(super) fn add(net: &Net, slope: &Head, gradient: &mut [f32]) {
    let Some([weight, bias]) = net.head() else {
        return;
    };
    let both = slope
        .weight
        .iter()
        .zip(weight)
        .chain(slope.bias.iter().zip(bias));
    for (more, at) in both {
        gradient[at] += *more as f32;
    }
}
