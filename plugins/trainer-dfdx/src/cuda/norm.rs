//! Batch normalisation on a card: kernels/norm.cu, as [`crate::ops::batch_norm`].

use super::driver::{Buffer, Position, Queue, int};
use super::pointwise::{relu_back, times};
use super::sums::{Term, column_sums, plane_sums};
use super::tape::{Record, Value, Weights};
use anyhow::ensure;
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
    let running = [
        Position(buffers, statistics.mean).into(),
        Position(buffers, statistics.variance).into(),
    ];
    let sizes = [int(rows)?, int(channels)?, int(run)?].map(Into::into);
    if of_batch {
        ensure!(count > 1, Problem::Shape(crate::ops::one_number(&x.shape)));
        let variances = queue.room(channels)?;
        for (term, to) in [(Term::Values, &means), (Term::Spread(&means), &variances)] {
            let sums = plane_sums(queue, &x.data, (channels, run), term)?;
            let arguments = [sizes[0], sizes[1], sizes[2], (&sums).into(), to.into()];
            queue.each("norm_mean", channels, &arguments)?;
        }
        queue.each(
            "norm_batch",
            channels,
            &[
                sizes[1],
                int(count)?.into(),
                (&means).into(),
                (&variances).into(),
                running[0],
                running[1],
                (&scales).into(),
            ],
        )?;
    } else {
        queue.copy_rows([1, channels], [0, 0], running[0], (&means).into())?;
        let arguments = [sizes[1], running[1], (&scales).into()];
        queue.each("norm_running", channels, &arguments)?;
    }
    let out = queue.room(n)?;
    let of_layer = |at: usize| {
        let start = affine.as_ref().map_or(0, |a| a[at].start);
        Position(&weights.data, start).into()
    };
    queue.each(
        "norm_forward",
        n,
        &[
            int(n)?.into(),
            sizes[1],
            sizes[2],
            relu.into(),
            affine.is_some().into(),
            (&*x.data).into(),
            (&means).into(),
            (&scales).into(),
            of_layer(0),
            of_layer(1),
            (&out).into(),
        ],
    )?;
    let data = Arc::new(out);
    let wanted = x.key.is_some() || (weights.gradient.is_some() && affine.is_some());
    let (out, shape) = (data.clone(), x.shape.clone());
    let (x, weights, queue) = (x.clone(), weights.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        if relu {
            relu_back(&queue, &slope, &out)?;
        }
        let (by_weight, by_bias) = (queue.room(channels)?, queue.room(channels)?);
        let tilt = Term::Tilt(&x.data, &means);
        for (term, to) in [(Term::Values, &by_bias), (tilt, &by_weight)] {
            let sums = plane_sums(&queue, &slope, (channels, run), term)?;
            column_sums(&queue, &sums, rows, channels, Position(to, 0))?;
        }
        times(&queue, &by_weight, &scales)?;
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
                &[
                    int(n)?.into(),
                    int(channels)?.into(),
                    int(run)?.into(),
                    count.into(),
                    affine.is_some().into(),
                    (&*x.data).into(),
                    (&means).into(),
                    (&scales).into(),
                    Position(&weights.data, start).into(),
                    (&by_weight).into(),
                    (&by_bias).into(),
                    (&slope).into(),
                ],
            )?;
        }
        if let (Some(gradient), Some(affine)) = (&weights.gradient, affine) {
            for (from, to) in [&by_weight, &by_bias].into_iter().zip(affine) {
                let to = Position(gradient, to.start).into();
                queue.copy_rows([1, channels], [0, 0], from.into(), to)?;
            }
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
