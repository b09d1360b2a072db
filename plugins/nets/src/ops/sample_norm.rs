//! Layer normalisation (Ba, Kiros, Hinton 2016) and group normalisation (Wu, He 2018), with
//! PyTorch's constants.

use super::{EPSILON, Statistics, batch_norm, channel_sums};
use crate::buffer::Buffer;
use crate::simd::vectorised;
use crate::tape::{Record, Value, Weights};
use fl_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// Computes `(x - mean) / sqrt(variance + epsilon) * weight + bias`, with mean and variance of each
/// of `groups` equal parts of a sample, and a weight and a bias for each number (PyTorch's
/// `LayerNorm(shape)`, with one group) or each channel (`GroupNorm`), as many as `affine` has.
///
/// # Errors
/// If a group is one number, which has no variance.
pub fn sample_norm(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    groups: usize,
    affine: [Range<usize>; 2],
) -> Result<Value> {
    // each group of a sample is a channel of a batch of one
    let (rows, shape) = (x.rows, x.shape.clone());
    let parts = rows * groups;
    let samples = Value {
        rows: 1,
        shape: vec![parts, x.width() / groups],
        ..x.clone()
    };
    let (mean, variance) = (&mut vec![0.0; parts], &mut vec![0.0; parts]);
    let statistics = Statistics::Batch { mean, variance };
    let normed = batch_norm(record, &samples, weights, None, statistics, false)?;
    let normed = Value {
        rows,
        shape,
        ..normed
    };
    if affine[0].len() == x.width() {
        return Ok(scale_columns(record, &normed, weights, affine));
    }
    // channels of mean 0 and variance 1 are scaled and shifted, and nothing else
    let channels = x.shape[0];
    let statistics = Statistics::Running {
        mean: &vec![0.0; channels],
        variance: &vec![1.0 - EPSILON; channels],
    };
    batch_norm(record, &normed, weights, Some(affine), statistics, false)
}

/// Computes `x * weight + bias`, number by number of a sample.
fn scale_columns(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    [weight, bias]: [Range<usize>; 2],
) -> Value {
    let (rows, width, shape) = (x.rows, x.width(), x.shape.clone());
    let (w, b) = (&weights.data[weight.clone()], &weights.data[bias.clone()]);
    let mut data = Buffer::filled(x.data.len(), 0.0);
    for (to, from) in data.chunks_exact_mut(width).zip(x.data.chunks_exact(width)) {
        vectorised(
            #[inline(always)]
            || {
                let numbers = to.iter_mut().zip(from).zip(w.iter().zip(b));
                numbers.for_each(|((y, x), (w, b))| *y = x * w + b);
            },
        );
    }
    let wanted = x.key.is_some() || weights.key.is_some();
    let (x, weights) = (x.clone(), weights.clone());
    let key = record.note(wanted, move |mut slope, grads| {
        if let Some(key) = &weights.key {
            let products = slope.iter().zip(x.data.iter()).map(|(g, x)| g * x);
            let products: Vec<f32> = products.collect();
            if let Some(mut examples) = grads.examples() {
                examples.add_each([weight.clone(), bias], |row, [by_weight, by_bias]| {
                    let of = row * width..(row + 1) * width;
                    by_weight.copy_from_slice(&products[of.clone()]);
                    by_bias.copy_from_slice(&slope[of]);
                });
            } else {
                let all = grads.weights(key)?;
                channel_sums(&products, width, 1, &mut all[weight.clone()]);
                channel_sums(&slope, width, 1, &mut all[bias]);
            }
        }
        let Some(key) = &x.key else { return Ok(()) };
        let w = &weights.data[weight];
        for row in slope.chunks_exact_mut(width) {
            row.iter_mut().zip(w).for_each(|(g, w)| *g *= w);
        }
        grads.give(key, slope)
    });
    Value {
        data: Arc::new(data),
        rows,
        shape,
        key,
    }
}
