//! Batch normalisation (Ioffe and Szegedy 2015), with PyTorch's constants.

use super::pointwise::{BLOCK, keep_positive};
use super::relu_back;
use crate::buffer::Buffer;
use crate::simd::{at_least, sum2, vectorised};
use crate::tape::{Record, Value, Weights};
use fl_core::{Problem, Result};
use std::ops::Range;
use std::sync::Arc;

/// Added to a variance before its root is taken (PyTorch's default).
pub const EPSILON: f32 = 1e-5;

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
    Problem::shape_unless(!from_batch || count > 1, || one_number(&x.shape))?;
    let (means, variances) = match statistics {
        Statistics::Running { mean, variance } => (mean.to_vec(), variance.to_vec()),
        Statistics::Batch { mean, variance } => {
            let found = moments(x, channels, run);
            for c in 0..channels {
                let unbiased = found.1[c] * count as f32 / (count - 1) as f32;
                mean[c] += MOMENTUM * (found.0[c] - mean[c]);
                variance[c] += MOMENTUM * (unbiased - variance[c]);
            }
            found
        }
    };
    let scales: Vec<f32> = variances
        .iter()
        .map(|v| 1.0 / (v + EPSILON).sqrt())
        .collect();
    let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
    let mut data = Buffer::any(x.data.len());
    vectorised(
        #[inline(always)]
        || {
            let planes = data.chunks_exact_mut(run).zip(x.data.chunks_exact(run));
            for ((to, from), c) in planes.zip((0..channels).cycle()) {
                let (weight, shift) = of_channel(&affine, weights, c);
                let (mean, factor) = (means[c], scales[c] * weight);
                to.iter_mut()
                    .zip(from)
                    .for_each(|(y, x)| *y = at_least((x - mean) * factor + shift, floor));
            }
        },
    );
    let data = Arc::new(data);

    let wanted = x.key.is_some() || (weights.key.is_some() && affine.is_some());
    let (out, rows, shape) = (data.clone(), x.rows, x.shape.clone());
    let (x, weights) = (x.clone(), weights.clone());
    let key = record.note(wanted, move |mut slope, grads| {
        // the rectifier's slope and the sums, plane by plane
        let floor = relu.then_some(&out[..]);
        let (mut by_weight, mut by_bias) = (vec![0.0; channels], vec![0.0; channels]);
        let examples = grads.examples();
        let single = examples.is_some();
        match (examples, &weights.key, &affine) {
            (Some(mut examples), Some(_), Some(affine)) => {
                let width = channels * run;
                examples.add_each(affine.clone(), |row, [by_weight, by_bias]| {
                    let of = row * width..(row + 1) * width;
                    let floor = floor.map(|out| &out[of.clone()]);
                    let slope = &mut slope[of.clone()];
                    let to = [by_weight, by_bias];
                    sums(slope, floor, &x.data[of], [&means, &scales], run, to);
                });
            }
            (Some(_), _, Some(_)) => {
                if let Some(out) = floor {
                    relu_back(&mut slope, out);
                }
            }
            // without weights the sums are those of the channels, which belong to one example each
            (_, _, None) | (None, ..) => {
                let to = [&mut by_weight[..], &mut by_bias];
                sums(&mut slope, floor, &x.data, [&means, &scales], run, to);
            }
        }
        if x.key.is_some() {
            // mean and variance of the batch depend on every number in it; running ones do not
            let n = if from_batch {
                count as f32
            } else {
                f32::INFINITY
            };
            vectorised(
                #[inline(always)]
                || {
                    let planes = slope.chunks_exact_mut(run).zip(x.data.chunks_exact(run));
                    for ((g, x), c) in planes.zip((0..channels).cycle()) {
                        let (weight, _) = of_channel(&affine, &weights, c);
                        let (mean, factor) = (means[c], scales[c] * weight);
                        let (level, tilt) = (by_bias[c] / n, by_weight[c] * scales[c] / n);
                        g.iter_mut()
                            .zip(x)
                            .for_each(|(g, x)| *g = factor * (*g - level - (x - mean) * tilt));
                    }
                },
            );
        }
        if single {
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
        "batch normalisation of a batch with one number per channel ({shape:?}), which has no variance"
    )
}

/// Returns weight and bias of a channel.
fn of_channel(affine: &Option<[Range<usize>; 2]>, weights: &Weights, c: usize) -> (f32, f32) {
    match affine {
        Some([weight, bias]) => (weights.data[weight.start + c], weights.data[bias.start + c]),
        None => (1.0, 0.0),
    }
}

/// Keeps the slope where `out` is above 0, and sets `to`, which is 0, to the sums over each channel
/// of `slope (x - mean) scale` and of `slope`.
fn sums(
    slope: &mut [f32],
    out: Option<&[f32]>,
    x: &[f32],
    [means, scales]: [&[f32]; 2],
    run: usize,
    [by_weight, by_bias]: [&mut [f32]; 2],
) {
    let mut block = [0.0; BLOCK];
    vectorised(
        #[inline(always)]
        || {
            let planes = slope.chunks_exact_mut(run).zip(x.chunks_exact(run));
            for (at, (slope, x)) in planes.enumerate() {
                let c = at % means.len();
                if let Some(out) = out {
                    keep_positive(slope, &out[at * run..][..run], &mut block);
                }
                by_weight[c] += sum2(slope, x, |g, x| g * (x - means[c]));
                by_bias[c] += sum2(slope, slope, |g, _| g);
            }
        },
    );
    by_weight.iter_mut().zip(scales).for_each(|(w, s)| *w *= s);
}

/// Returns means and biased variances of all channels. Two passes: the difference of two large sums
/// would cancel the variance.
fn moments(x: &Value, channels: usize, run: usize) -> (Vec<f32>, Vec<f32>) {
    let n = (x.rows * run) as f64;
    let mean_of = |term: &dyn Fn(&[f32], usize) -> f32| {
        let mut sums = vec![0.0; channels];
        for (plane, c) in x.data.chunks_exact(run).zip((0..channels).cycle()) {
            sums[c] += f64::from(term(plane, c));
        }
        sums.iter()
            .map(|sum| (sum / n) as f32)
            .collect::<Vec<f32>>()
    };
    let means = mean_of(&|plane, _| {
        vectorised(
            #[inline(always)]
            || sum2(plane, plane, |v, _| v),
        )
    });
    let variances = mean_of(&|plane, c| {
        let mean = means[c];
        vectorised(
            #[inline(always)]
            || sum2(plane, plane, |v, _| (v - mean) * (v - mean)),
        )
    });
    (means, variances)
}
