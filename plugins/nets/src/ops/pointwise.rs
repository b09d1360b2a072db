//! Operations on single numbers, and moves of numbers.

use crate::buffer::Buffer;
use crate::curves;
use crate::simd::{self, at_least, vectorised};
use crate::tape::{Record, Value};
use fl_core::Draws;
use std::sync::Arc;

/// Activation functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x` above 0, `slope * x` below; the slope is positive.
    LeakyRelu(f32),
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// Applies `f` to every number. The derivatives are functions of the output.
pub fn activate(record: &mut Record, x: &Value, f: Activation) -> Value {
    let mut data = Buffer::collect(x.data.iter().copied());
    match f {
        Activation::Relu => vectorised(
            #[inline(always)]
            || data.iter_mut().for_each(|v| *v = at_least(*v, 0.0)),
        ),
        Activation::LeakyRelu(a) => vectorised(
            #[inline(always)]
            || {
                data.iter_mut()
                    .for_each(|v| *v *= if *v > 0.0 { 1.0 } else { a })
            },
        ),
        Activation::Tanh => simd::run(curves::Tanh(&mut data)),
        Activation::Sigmoid => simd::run(curves::Sigmoid(&mut data)),
    }
    let data = Arc::new(data);
    let out = data.clone();
    x.then(record, data, x.shape.clone(), move |mut slope| {
        let both = slope.iter_mut().zip(out.iter());
        match f {
            Activation::Relu => relu_back(&mut slope, &out),
            Activation::LeakyRelu(a) => vectorised(
                #[inline(always)]
                || both.for_each(|(g, y)| *g *= if *y > 0.0 { 1.0 } else { a }),
            ),
            Activation::Tanh => both.for_each(|(g, y)| *g *= 1.0 - y * y),
            Activation::Sigmoid => both.for_each(|(g, y)| *g *= y * (1.0 - y)),
        }
        slope
    })
}

/// Numbers that [`keep_positive`] writes at once.
pub(super) const BLOCK: usize = 256;

/// Keeps the gradient where the output of a relu is positive. Uses a separate block. If the choice
/// between a number and 0 overwrites the number, the compiler emits masked stores, which cost AMD's
/// processors ten times as much.
#[inline(always)]
pub(super) fn keep_positive(slope: &mut [f32], out: &[f32], block: &mut [f32; BLOCK]) {
    for (slope, out) in slope.chunks_mut(BLOCK).zip(out.chunks(BLOCK)) {
        let kept = &mut block[..slope.len()];
        for ((kept, g), y) in kept.iter_mut().zip(&*slope).zip(out) {
            *kept = if *y > 0.0 { *g } else { 0.0 };
        }
        slope.copy_from_slice(kept);
    }
}

/// [`keep_positive`] for a whole batch.
pub(super) fn relu_back(slope: &mut [f32], out: &[f32]) {
    let mut block = [0.0; BLOCK];
    vectorised(
        #[inline(always)]
        || keep_positive(slope, out, &mut block),
    );
}

/// Computes `relu?(a + b)`: the end of a residual block.
pub fn add(record: &mut Record, a: &Value, b: &Value, relu: bool) -> Value {
    let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
    let mut data = Buffer::any(a.data.len());
    vectorised(
        #[inline(always)]
        || {
            let both = a.data.iter().zip(b.data.iter());
            data.iter_mut()
                .zip(both)
                .for_each(|(sum, (x, y))| *sum = at_least(x + y, floor));
        },
    );
    let data = Arc::new(data);
    let (out, to) = (data.clone(), [a.key.clone(), b.key.clone()]);
    let key = record.note(
        a.key.is_some() || b.key.is_some(),
        move |mut slope, grads| {
            if relu {
                relu_back(&mut slope, &out);
            }
            match to {
                [Some(a), Some(b)] => {
                    grads.give(&a, Buffer::collect(slope.iter().copied()))?;
                    grads.give(&b, slope)
                }
                [Some(only), None] | [None, Some(only)] => grads.give(&only, slope),
                [None, None] => Ok(()),
            }
        },
    );
    Value {
        data,
        rows: a.rows,
        shape: a.shape.clone(),
        key,
    }
}

/// Joins the channels of `a` and then those of `b`, sample by sample; all channels have one shape.
pub fn concat(record: &mut Record, a: &Value, b: &Value) -> Value {
    let (first, second) = (a.width(), b.width());
    let mut data = Buffer::filled(a.data.len() + b.data.len(), 0.0);
    let rows = data.chunks_exact_mut(first + second);
    let pairs = a.data.chunks_exact(first).zip(b.data.chunks_exact(second));
    for (out, (a, b)) in rows.zip(pairs) {
        out[..first].copy_from_slice(a);
        out[first..].copy_from_slice(b);
    }
    let (to, rows) = ([a.key.clone(), b.key.clone()], a.rows);
    let key = record.note(a.key.is_some() || b.key.is_some(), move |slope, grads| {
        for (to, range) in to.iter().zip([0..first, first..first + second]) {
            let Some(to) = to else { continue };
            let mut back = Buffer::filled(rows * range.len(), 0.0);
            let parts = back.chunks_exact_mut(range.len());
            for (part, whole) in parts.zip(slope.chunks_exact(first + second)) {
                part.copy_from_slice(&whole[range.clone()]);
            }
            grads.give(to, back)?;
        }
        Ok(())
    });
    Value {
        data: Arc::new(data),
        rows,
        shape: [&[a.shape[0] + b.shape[0]], &a.shape[1..]].concat(),
        key,
    }
}

/// Returns the factors of `n` numbers: 0 with probability `p`, else `1 / (1 - p)`.
pub fn dropout_mask(n: usize, p: f32, draws: &mut Draws) -> Vec<f32> {
    let keep = 1.0 / (1.0 - p);
    let mut one = || {
        if draws.uniform() < f64::from(p) {
            0.0
        } else {
            keep
        }
    };
    (0..n).map(|_| one()).collect()
}

/// Sets each number to 0 with probability `p` and divides the rest by `1 - p` (inverted dropout, as
/// in PyTorch).
pub fn dropout(record: &mut Record, x: &Value, p: f32, draws: &mut Draws) -> Value {
    let mask = dropout_mask(x.data.len(), p, draws);
    let data = Buffer::collect(x.data.iter().zip(&mask).map(|(v, m)| v * m));
    x.then(record, data, x.shape.clone(), move |mut slope| {
        slope.iter_mut().zip(&mask).for_each(|(g, m)| *g *= m);
        slope
    })
}

/// Repeats every row and column `factor` times (nearest neighbour).
pub fn upsample(record: &mut Record, x: &Value, factor: usize) -> Value {
    let (planes, height, width) = (x.rows * x.shape[0], x.shape[1], x.shape[2]);
    let (out_height, out_width) = (height * factor, width * factor);
    let from = move |i: usize| {
        let (plane, y, x) = (
            i / (out_height * out_width),
            i / out_width % out_height,
            i % out_width,
        );
        (plane * height + y / factor) * width + x / factor
    };
    let all = 0..planes * out_height * out_width;
    let data = Buffer::from(all.map(|i| x.data[from(i)]).collect::<Vec<f32>>());
    let len = x.data.len();
    x.then(
        record,
        data,
        vec![x.shape[0], out_height, out_width],
        move |slope| {
            let mut sums = Buffer::filled(len, 0.0);
            slope
                .iter()
                .enumerate()
                .for_each(|(i, g)| sums[from(i)] += g);
            sums
        },
    )
}

/// Puts `stride - 1` zeros between rows and between columns: the input of a transposed convolution.
pub fn spread(record: &mut Record, x: &Value, stride: usize) -> Value {
    let (planes, height, width) = (x.rows * x.shape[0], x.shape[1], x.shape[2]);
    let (out_height, out_width) = ((height - 1) * stride + 1, (width - 1) * stride + 1);
    // the start of row `row` of all planes together
    let to_row = move |row: usize| (row / height * out_height + row % height * stride) * out_width;
    let mut data = Buffer::filled(planes * out_height * out_width, 0.0);
    for (row, from) in x.data.chunks_exact(width).enumerate() {
        let to = data[to_row(row)..].iter_mut().step_by(stride);
        to.zip(from).for_each(|(t, f)| *t = *f);
    }
    let len = x.data.len();
    x.then(
        record,
        data,
        vec![x.shape[0], out_height, out_width],
        move |slope| {
            let mut back = Buffer::filled(len, 0.0);
            for (row, to) in back.chunks_exact_mut(width).enumerate() {
                let from = slope[to_row(row)..].iter().step_by(stride);
                to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
            }
            back
        },
    )
}
