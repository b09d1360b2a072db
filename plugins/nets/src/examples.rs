//! [`ExampleSlopes`]: the gradients of single examples, clipped and summed (DP-SGD).
//!
//! One example more or less must move the sum by at most the bound, rounding included. So an
//! addend has the same bits whatever the other examples are. Passes over several examples use the
//! order of sums of [`ROWS`] rows, however many there are; and sums over examples are in 64 bits,
//! in the order of the examples.
//!
//! The gradient of a fully connected layer is the outer product of a slope and an input. Its norm is
//! the product of their norms (Goodfellow 2015), so it is never written down: one pass adds
//! `factor * slope * input` to the sum. For other layers, whose sums run over many positions, the
//! gradient of each example is computed, because a pass over all examples in 32 bits would make an
//! addend depend on the others.

use crate::buffer::Buffer;
use crate::simd::vectorised;
use std::ops::Range;
use std::sync::Arc;

/// Products over examples have the order of sums of a batch of this size.
pub const ROWS: usize = 64;

/// Gradients that one pass holds at most, in numbers.
const MOST: usize = 4 << 20;

/// Lengths stay this share below the bound. Norms are sums of at most 2^28 squares in 64 bits,
/// rounded by at most a 2^24th, and each addend by a 2^52nd. So no addend exceeds the bound.
const MARGIN: f64 = 1e-6;

/// Numbers of a sum that are computed together.
const WIDE: usize = 16;

/// Returns the number of examples of one pass, if `each` of their numbers are held.
pub fn at_once(each: usize, largest: usize) -> usize {
    (MOST / each.max(1)).clamp(1, ROWS.min(largest))
}

/// The gradients of a layer.
enum Layer {
    /// Outer products of `slopes` (`rows x outputs`) and `inputs` (`rows x inputs`).
    Outer {
        slopes: Buffer,
        inputs: Arc<Buffer>,
        weight: Range<usize>,
        bias: Option<Range<usize>>,
    },
    /// `rows x range`.
    Each { range: Range<usize>, of: Buffer },
}

/// The gradients of the examples of one pass.
pub struct ExampleSlopes {
    rows: usize,
    layers: Vec<Layer>,
}

impl ExampleSlopes {
    /// Returns those of no layer, for `rows` examples.
    pub fn new(rows: usize) -> Self {
        let layers = Vec::new();
        Self { rows, layers }
    }

    /// Takes the gradients of a fully connected layer.
    pub fn add_outer(
        &mut self,
        slopes: Buffer,
        inputs: Arc<Buffer>,
        weight: Range<usize>,
        bias: Option<Range<usize>>,
    ) {
        self.layers.push(Layer::Outer {
            slopes,
            inputs,
            weight,
            bias,
        });
    }

    /// Takes the gradients of the weights in these ranges: `of(example, room)` fills the room, zeros
    /// before, of one example.
    pub fn add_each<const N: usize>(
        &mut self,
        ranges: [Range<usize>; N],
        mut of: impl FnMut(usize, [&mut [f32]; N]),
    ) {
        let mut all = ranges.map(|range| {
            let of = Buffer::filled(self.rows * range.len(), 0.0);
            (range, of)
        });
        for row in 0..self.rows {
            let rooms = all.each_mut().map(|(range, of)| {
                let n = range.len();
                &mut of[row * n..][..n]
            });
            of(row, rooms);
        }
        let layers = all.into_iter().map(|(range, of)| Layer::Each { range, of });
        self.layers.extend(layers);
    }

    /// Returns the factor of each gradient that makes it no longer than `clip`; 0 if it is not
    /// finite.
    pub fn factors(&self, clip: f64) -> Vec<f64> {
        let most = clip * (1.0 - MARGIN);
        let factor = |row| match self.square(row).sqrt() {
            norm if !norm.is_finite() => 0.0,
            norm if norm > most => most / norm,
            _ => 1.0,
        };
        (0..self.rows).map(factor).collect()
    }

    /// Returns the squared norm of an example's gradient.
    fn square(&self, row: usize) -> f64 {
        let of_layer = |layer: &Layer| match layer {
            Layer::Outer {
                slopes,
                inputs,
                bias,
                ..
            } => {
                let by_inputs = square(line(inputs, row, self.rows));
                let more = if bias.is_some() { 1.0 } else { 0.0 };
                square(line(slopes, row, self.rows)) * (by_inputs + more)
            }
            Layer::Each { of, .. } => square(line(of, row, self.rows)),
        };
        self.layers.iter().map(of_layer).sum()
    }

    /// Adds the gradients, each times its factor, to `sums`, laid out as the weights. One with
    /// factor 0 is left out.
    pub fn add_to(&self, factors: &[f64], sums: &mut [f64]) {
        let kept: Vec<usize> = (0..self.rows).filter(|row| factors[*row] != 0.0).collect();
        for layer in &self.layers {
            match layer {
                Layer::Outer {
                    slopes,
                    inputs,
                    weight,
                    bias,
                } => {
                    let scaled = |row: &usize| {
                        let factor = factors[*row];
                        let slopes = line(slopes, *row, self.rows).iter();
                        slopes.map(move |slope| factor * f64::from(*slope))
                    };
                    let scaled: Vec<f64> = kept.iter().flat_map(scaled).collect();
                    let outputs = slopes.len() / self.rows;
                    if let Some(bias) = bias {
                        let sums = &mut sums[bias.clone()];
                        for slopes in scaled.chunks_exact(outputs) {
                            sums.iter_mut().zip(slopes).for_each(|(s, x)| *s += x);
                        }
                    }
                    let inputs: Vec<&[f32]> = kept
                        .iter()
                        .map(|row| line(inputs, *row, self.rows))
                        .collect();
                    add_outer(&mut sums[weight.clone()], &scaled, outputs, &inputs);
                }
                Layer::Each { range, of } => {
                    let factors: Vec<f64> = kept.iter().map(|row| factors[*row]).collect();
                    let of: Vec<&[f32]> =
                        kept.iter().map(|row| line(of, *row, self.rows)).collect();
                    // one output, whose slopes are the factors
                    add_outer(&mut sums[range.clone()], &factors, 1, &of);
                }
            }
        }
    }
}

/// Returns the numbers of one row.
fn line(of: &[f32], row: usize, rows: usize) -> &[f32] {
    let n = of.len() / rows;
    &of[row * n..][..n]
}

/// Returns the sum of squares, in eight lanes.
fn square(of: &[f32]) -> f64 {
    const LANES: usize = 8;
    vectorised(
        #[inline(always)]
        || {
            let mut sums = [0.0f64; LANES];
            let (eights, rest) = of.as_chunks::<LANES>();
            for eight in eights {
                for (sum, x) in sums.iter_mut().zip(eight) {
                    *sum += f64::from(*x) * f64::from(*x);
                }
            }
            let rest = rest.iter().map(|x| f64::from(*x) * f64::from(*x));
            sums.iter().sum::<f64>() + rest.sum::<f64>()
        },
    )
}

/// Computes `sums[o][i] += slopes[row][o] * inputs[row][i]` for all rows, one after another; `sums`
/// is `outputs x inputs`, and `slopes` `rows x outputs`.
fn add_outer(sums: &mut [f64], slopes: &[f64], outputs: usize, inputs: &[&[f32]]) {
    let width = sums.len() / outputs.max(1);
    let mut wide = vec![[0.0; WIDE]; inputs.len()];
    vectorised(
        #[inline(always)]
        || {
            for from in (0..width).step_by(WIDE) {
                let count = WIDE.min(width - from);
                for (wide, row) in wide.iter_mut().zip(inputs) {
                    let row = &row[from..from + count];
                    wide.iter_mut()
                        .zip(row)
                        .for_each(|(w, x)| *w = f64::from(*x));
                }
                for o in 0..outputs {
                    let sums = &mut sums[o * width + from..][..count];
                    let mut all = [0.0; WIDE];
                    all[..count].copy_from_slice(sums);
                    let slopes = slopes[o..].iter().step_by(outputs);
                    for (slope, wide) in slopes.zip(&wide) {
                        for at in 0..WIDE {
                            all[at] += slope * wide[at];
                        }
                    }
                    sums.copy_from_slice(&all[..count]);
                }
            }
        },
    );
}
