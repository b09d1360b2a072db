//! Batch normalisation (Ioffe and Szegedy 2015), with PyTorch's constants.

use super::relu_back;
use crate::buffer::Buffer;
use crate::simd::{at_least, sum2, vectorised};
use crate::tape::{Record, Value, Weights};
use anyhow::ensure;
use fl_core::{Problem, Result};
use std::ops::Range;
use std::sync::Arc;

/// Added to a variance before its root is taken (PyTorch's default).
const EPSILON: f32 = 1e-5;

/// Share of the newest batch in the running statistics (PyTorch's default).
const MOMENTUM: f32 = 0.1;

/// The statistics that normalise a channel.
pub enum Statistics<'a> {
    /// Those of the batch; its mean and unbiased variance update the running ones.
    Batch {
        /// Running mean of each channel.
        mean: &'a mut [f32],
        /// Running variance of each channel.
        variance: &'a mut [f32],
    },
    /// The running mean and variance of each channel.
    Running {
        /// Running mean of each channel.
        mean: &'a [f32],
        /// Running variance of each channel.
        variance: &'a [f32],
    },
}

/// Computes `relu?((x - mean) / sqrt(variance + epsilon) * weight + bias)`, channel by channel.
/// `affine` gives the positions of weight and bias; without it they are 1 and 0.
///
/// # Errors
/// If a batch has a single number per channel: it has no variance.
pub fn batch_norm(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    affine: Option<[Range<usize>; 2]>,
    statistics: Statistics<'_>,
    relu: bool,
) -> Result<Value> {
    let channels = x.shape[0];
    let run = x.width() / channels;
    let count = x.rows * run;
    let from_batch = matches!(statistics, Statistics::Batch { .. });
    let (means, scales): (Vec<f32>, Vec<f32>) = match statistics {
        Statistics::Running { mean, variance } => (
            mean.to_vec(),
            variance
                .iter()
                .map(|v| 1.0 / (v + EPSILON).sqrt())
                .collect(),
        ),
        Statistics::Batch { mean, variance } => {
            ensure!(count > 1, Problem::Shape(one_number(&x.shape)));
            let found: Vec<(f32, f32)> = (0..channels)
                .map(|c| moments(x, c, channels, run))
                .collect();
            for (c, (m, v)) in found.iter().enumerate() {
                let unbiased = v * count as f32 / (count - 1) as f32;
                mean[c] += MOMENTUM * (m - mean[c]);
                variance[c] += MOMENTUM * (unbiased - variance[c]);
            }
            found
                .into_iter()
                .map(|(m, v)| (m, 1.0 / (v + EPSILON).sqrt()))
                .unzip()
        }
    };
    let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
    let mut data = Buffer::filled(x.data.len(), 0.0);
    for (i, (to, from)) in data
        .chunks_exact_mut(run)
        .zip(x.data.chunks_exact(run))
        .enumerate()
    {
        let c = i % channels;
        let (weight, shift) = of_channel(&affine, weights, c);
        let (mean, factor) = (means[c], scales[c] * weight);
        vectorised(
            #[inline(always)]
            || {
                to.iter_mut()
                    .zip(from)
                    .for_each(|(y, x)| *y = at_least((x - mean) * factor + shift, floor))
            },
        );
    }
    let data = Arc::new(data);

    let wanted = x.key.is_some() || (weights.key.is_some() && affine.is_some());
    let (out, rows, shape) = (data.clone(), x.rows, x.shape.clone());
    let (x, weights) = (x.clone(), weights.clone());
    let key = record.note(wanted, move |mut slope, grads| {
        if relu {
            relu_back(&mut slope, &out);
        }
        let sums = |slope: &[f32], x: &[f32], by_weight: &mut [f32], by_bias: &mut [f32]| {
            for (i, (g, x)) in slope.chunks_exact(run).zip(x.chunks_exact(run)).enumerate() {
                let c = i % channels;
                let mean = means[c];
                vectorised(
                    #[inline(always)]
                    || {
                        by_bias[c] += sum2(g, g, |g, _| g);
                        by_weight[c] += sum2(g, x, |g, x| g * (x - mean));
                    },
                );
            }
            by_weight.iter_mut().zip(&scales).for_each(|(w, s)| *w *= s);
        };
        let (mut by_weight, mut by_bias) = (vec![0.0; channels], vec![0.0; channels]);
        let examples = grads.examples();
        if examples.is_none() {
            sums(&slope, &x.data, &mut by_weight, &mut by_bias);
        }
        if let (Some(mut examples), Some(_), Some(affine)) = (examples, &weights.key, &affine) {
            let width = channels * run;
            examples.add_each(affine.clone(), |row, [by_weight, by_bias]| {
                let of = row * width..(row + 1) * width;
                sums(&slope[of.clone()], &x.data[of], by_weight, by_bias);
            });
        }
        if x.key.is_some() {
            for (i, (g, x)) in slope
                .chunks_exact_mut(run)
                .zip(x.data.chunks_exact(run))
                .enumerate()
            {
                let c = i % channels;
                let (mean, factor) = (means[c], scales[c] * of_channel(&affine, &weights, c).0);
                // mean and variance of the batch depend on every number in it; running ones do not
                let n = if from_batch {
                    count as f32
                } else {
                    f32::INFINITY
                };
                let (level, tilt) = (by_bias[c] / n, by_weight[c] * scales[c] / n);
                vectorised(
                    #[inline(always)]
                    || {
                        g.iter_mut()
                            .zip(x)
                            .for_each(|(g, x)| *g = factor * (*g - level - (x - mean) * tilt))
                    },
                );
            }
        }
        if grads.examples().is_some() {
            return x.key.as_ref().map_or(Ok(()), |key| grads.give(key, slope));
        }
        if let (Some(key), Some([weight, bias])) = (&weights.key, affine) {
            let all = grads.weights(key)?;
            all[weight].copy_from_slice(&by_weight);
            all[bias].copy_from_slice(&by_bias);
        }
        x.key.as_ref().map_or(Ok(()), |key| grads.give(key, slope))
    });
    Ok(Value {
        data,
        rows,
        shape,
        key,
    })
}

/// Returns why a batch of samples of this shape cannot be normalised.
pub fn one_number(shape: &[usize]) -> String {
    format!(
        "batch normalisation of a batch with one number per channel ({shape:?}): use larger batches"
    )
}

/// Returns weight and bias of a channel.
fn of_channel(affine: &Option<[Range<usize>; 2]>, weights: &Weights, c: usize) -> (f32, f32) {
    match affine {
        Some([weight, bias]) => (weights.data[weight.start + c], weights.data[bias.start + c]),
        None => (1.0, 0.0),
    }
}

/// Returns mean and biased variance of one channel. Two passes: the difference of two large sums
/// would cancel the variance.
fn moments(x: &Value, channel: usize, channels: usize, run: usize) -> (f32, f32) {
    let runs = || x.data.chunks_exact(run).skip(channel).step_by(channels);
    let n = (x.rows * run) as f64;
    vectorised(
        #[inline(always)]
        || {
            let mean = (runs().map(|r| f64::from(sum2(r, r, |v, _| v))).sum::<f64>() / n) as f32;
            let spread = |r: &[f32]| f64::from(sum2(r, r, |v, _| (v - mean) * (v - mean)));
            (mean, (runs().map(spread).sum::<f64>() / n) as f32)
        },
    )
}
