//! Batch normalisation on a card: kernels/norm.cu, as [`fl_nets::ops::batch_norm`].

use super::driver::{Buffer, Position, Queue};
use super::pointwise::scale_columns;
use super::sums::{Term, plane_sums};
use super::tape::{Record, Value, Weights};
use fl_core::{Problem, Result};
use std::ops::Range;
use std::sync::Arc;

/// The positions of a layer's running statistics, and whether those of the batch are used and
/// update them.
#[derive(Clone, Copy)]
pub struct Statistics<'a> {
    /// All running statistics.
    pub buffers: &'a Buffer,
    /// Start of the means.
    pub mean: usize,
    /// Start of the variances.
    pub variance: usize,
    /// Whether to use statistics of the batch.
    pub of_batch: bool,
}

/// Computes `relu?((x - mean) / sqrt(variance + epsilon) * weight + bias)`, channel by channel.
///
/// # Errors
/// If a batch has a single number per channel, or the card fails.
pub fn batch_norm(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    affine: Option<[Range<usize>; 2]>,
    statistics: Statistics<'_>,
    relu: bool,
) -> Result<Value> {
    let (channels, rows, n) = (x.shape[0], x.rows, x.data.len());
    let run = x.width() / channels;
    let count = rows * run;
    let Statistics {
        buffers, of_batch, ..
    } = statistics;
    let (means, scales) = (queue.room(channels)?, queue.room(channels)?);
    let running = arguments![
        Position(buffers, statistics.mean),
        Position(buffers, statistics.variance)
    ];
    if of_batch {
        Problem::shape_unless(count > 1, || fl_nets::ops::one_number(&x.shape))?;
        let of_plane = (channels, run);
        let sums = plane_sums(queue, &x.data, of_plane, Term::Values)?;
        let arguments = arguments![rows, channels, run, &sums, &means];
        queue.each("norm_mean", channels, &arguments)?;
        let sums = plane_sums(queue, &x.data, of_plane, Term::Spread(&means))?;
        queue.each(
            "norm_batch",
            channels,
            &arguments![
                rows, channels, run, &sums, &means, running[0], running[1], &scales
            ],
        )?;
    } else {
        let arguments = arguments![channels, running[0], running[1], &means, &scales];
        queue.each("norm_running", channels, &arguments)?;
    }
    let out = queue.room(n)?;
    let of_layer = |at: usize| {
        let start = affine.as_ref().map_or(0, |a| a[at].start);
        Position(&weights.data, start)
    };
    queue.each(
        "norm_forward",
        n,
        &arguments![
            n,
            channels,
            run,
            relu,
            affine.is_some(),
            &*x.data,
            &means,
            &scales,
            of_layer(0),
            of_layer(1),
            &out
        ],
    )?;
    let data = Arc::new(out);
    let wanted = x.key.is_some() || (weights.gradient.is_some() && affine.is_some());
    let (out, shape) = (data.clone(), x.shape.clone());
    let (x, weights, queue) = (x.clone(), weights.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        let (by_weight, by_bias) = (queue.room(channels)?, queue.room(channels)?);
        let planes = rows * channels;
        let sums = queue.room(2 * planes)?;
        queue.planes(
            "norm_back_sums",
            planes,
            &arguments![
                planes, channels, run, relu, &*x.data, &means, &*out, &slope, &sums
            ],
        )?;
        let learns = weights.gradient.as_deref().zip(affine.as_ref());
        let [to_weight, to_bias] = match learns {
            Some((gradient, all)) => [0, 1].map(|at| Position(gradient, all[at].start)),
            None => [Position(&by_weight, 0), Position(&by_bias, 0)],
        };
        queue.each(
            "norm_back_channels",
            channels,
            &arguments![
                rows,
                channels,
                learns.is_some(),
                &sums,
                &scales,
                &by_weight,
                &by_bias,
                to_weight,
                to_bias
            ],
        )?;
        if x.key.is_some() {
            let count = if of_batch {
                count as f32
            } else {
                f32::INFINITY
            };
            let start = affine.as_ref().map_or(0, |a| a[0].start);
            queue.each(
                "norm_back",
                n,
                &arguments![
                    n,
                    channels,
                    run,
                    count,
                    affine.is_some(),
                    &*x.data,
                    &means,
                    &scales,
                    Position(&weights.data, start),
                    &by_weight,
                    &by_bias,
                    &slope
                ],
            )?;
        }
        x.key.map_or(Ok(()), |key| grads.give(key, slope))
    });
    Ok(Value {
        data,
        rows,
        shape,
        key,
    })
}

/// Normalises each group of a sample, as [`fl_nets::ops::sample_norm`].
///
/// # Errors
/// If a group is one number, or the card fails.
pub fn sample_norm(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    groups: usize,
    affine: [Range<usize>; 2],
) -> Result<Value> {
    let (rows, parts) = (x.rows, x.rows * groups);
    let samples = Value {
        rows: 1,
        shape: vec![parts, x.width() / groups],
        ..x.clone()
    };
    let buffers = &queue.zeros(2 * parts)?;
    let statistics = Statistics {
        buffers,
        mean: 0,
        variance: parts,
        of_batch: true,
    };
    let normed = batch_norm(queue, record, &samples, weights, None, statistics, false)?;
    let normed = Value {
        rows,
        shape: x.shape.clone(),
        ..normed
    };
    if affine[0].len() == x.width() {
        return scale_columns(queue, record, &normed, weights, affine);
    }
    // channels of mean 0 and variance 1 are scaled and shifted, and nothing else
    let channels = x.shape[0];
    let mut plain = vec![0.0; channels];
    plain.resize(2 * channels, 1.0 - fl_nets::ops::EPSILON);
    let statistics = Statistics {
        buffers: &queue.upload(&plain)?,
        mean: 0,
        variance: channels,
        of_batch: false,
    };
    let affine = Some(affine);
    batch_norm(queue, record, &normed, weights, affine, statistics, false)
}
