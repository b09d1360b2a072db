//! Two-dimensional convolution: sums and dot products of shifted rows on a [`Grid`].

use super::grid::{Grid, Shape};
use super::matrix::matrix;
use super::product::product;
use super::shifted::{Lines, Needed, Packed, Rows, Sink, needed_sums, shifted_dots, shifted_sums};
use super::{channel_sums, relu_back};
use crate::buffer::Buffer;
use crate::simd::{LANES, copy_rows, round_up, vectorised};
use crate::tape::{Record, Value, Weights};
use std::ops::Range;
use std::sync::Arc;

/// Numbers of one group of samples for the weight gradient: half of a small second-level cache.
const GROUP: usize = 64 * 1024;

/// Inputs of one sample, repeated for every tap, up to which the gradient of its weights is a
/// product of matrices: a dot product of few places spends its time on adding lanes. They fit a
/// small second-level cache.
const UNFOLDED: usize = 64 * 1024;

/// Computes `relu?(conv(x, weight) + bias)`; `weight` is `out x channels x kernel x kernel`, as in
/// PyTorch.
pub fn conv2d(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    shape: &Shape,
    weight: Range<usize>,
    bias: Option<Range<usize>>,
    relu: bool,
) -> Value {
    let (grid, shape) = (Grid::new(shape), *shape);
    let (size_in, size_out) = (
        x.width(),
        shape.out * shape.out_height() * shape.out_width(),
    );
    let w = &weights.data[weight.clone()];
    let packed = Packed::new(shape.out, shape.taps(), |o, tap| w[o * shape.taps() + tap]);
    let offsets = grid.offsets();
    let lines = grid.lines();
    let places = size_out / shape.out;
    let row = if lines.are_whole() { 0 } else { grid.run() };
    let (mut plane, mut sums) = (vec![0.0; grid.input_len()], vec![0.0; shape.out * row]);
    let zeros = vec![0.0; if bias.is_none() { shape.out } else { 0 }];
    let addends = bias
        .as_ref()
        .map_or(&zeros[..], |b| &weights.data[b.clone()]);
    let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
    let finish = Some((addends, floor));
    let mut data = Buffer::any(x.rows * size_out);
    let samples = x.data.chunks_exact(size_in);
    for (sample, out) in samples.zip(data.chunks_exact_mut(size_out)) {
        grid.place_input(sample, &mut plane);
        let (to, ld) = match row {
            0 => (&mut *out, places),
            ld => (&mut sums[..], ld),
        };
        let sink = Sink {
            out: to,
            ld,
            finish,
        };
        shifted_sums(&packed, &plane, &offsets, lines, sink);
        if row > 0 {
            let size = [shape.out_height(), shape.out_width(), 1];
            vectorised(
                #[inline(always)]
                || {
                    for (out, sums) in out.chunks_exact_mut(places).zip(sums.chunks_exact(row)) {
                        copy_rows(out, sums, size, [shape.out_width(), grid.ld]);
                    }
                },
            );
        }
    }
    let data = Arc::new(data);

    let (wanted, x, weights, out) = (
        x.key.is_some() || weights.key.is_some(),
        x.clone(),
        weights.clone(),
        data.clone(),
    );
    let rows = x.rows;
    let key = record.note(wanted, move |mut slope, grads| {
        if relu {
            relu_back(&mut slope, &out);
        }
        let mut back = Back::new(&grid, &x, &weights.data[weight.clone()]);
        let want_weights = weights.key.is_some();
        if let Some(mut examples) = grads.examples().filter(|_| want_weights) {
            let bias = bias.unwrap_or(weight.end..weight.end);
            let taps = shape.taps();
            let unfolds = places * taps <= UNFOLDED;
            let mut columns = vec![0.0; if unfolds { places * taps } else { 0 }];
            examples.add_each([weight, bias], |row, [by_weight, by_bias]| {
                if !unfolds || x.key.is_some() {
                    back.place(&slope, row..row + 1, !unfolds);
                }
                let slope = &slope[row * size_out..][..size_out];
                if unfolds {
                    unfold(&shape, &x.data[row * size_in..][..size_in], &mut columns);
                    let (slope, columns) = (matrix(slope, places), matrix(&columns, taps));
                    let size = [shape.out, places, taps];
                    product(size, &slope, &columns, by_weight, false);
                } else {
                    back.weight_slope.fill(0.0);
                    back.weights(1);
                    by_weight.copy_from_slice(&back.weight_slope);
                }
                if !by_bias.is_empty() {
                    channel_sums(slope, shape.out, places, by_bias);
                }
                if x.key.is_some() {
                    back.input(1);
                }
            });
            return match &x.key {
                Some(key) => grads.give(key, back.input_slope),
                None => Ok(()),
            };
        }
        let group = if want_weights {
            conv_group(&shape, rows)
        } else {
            1
        };
        for first in (0..rows).step_by(group) {
            let samples = first..(first + group).min(rows);
            back.place(&slope, samples.clone(), want_weights);
            if want_weights {
                back.weights(samples.len());
            }
            if x.key.is_some() {
                back.input(samples.len());
            }
        }
        if let Some(key) = &weights.key {
            let all = grads.weights(key)?;
            all[weight.clone()].copy_from_slice(&back.weight_slope);
            if let Some(bias) = &bias {
                channel_sums(&slope, shape.out, places, &mut all[bias.clone()]);
            }
        }
        match &x.key {
            Some(key) => grads.give(key, back.input_slope),
            None => Ok(()),
        }
    });
    Value {
        data,
        rows,
        shape: vec![shape.out, shape.out_height(), shape.out_width()],
        key,
    }
}

/// Returns which taps of an input's gradient read more than the zeros around an output's gradient,
/// if many read only these: a kernel without padding that is large beside its image.
fn needed(grid: &Grid, offsets: &[usize]) -> Option<Needed> {
    let Shape {
        height,
        width,
        stride,
        ..
    } = grid.shape;
    if stride > 1 || grid.ld != width || !(height * width).is_multiple_of(LANES) {
        return None;
    }
    // the first and the last number of a plane that may be other than 0
    let (first, end) = (grid.lead(), grid.lead() + grid.outputs());
    Needed::new(height * width, offsets.len(), |tap, numbers| {
        let from = offsets[tap] % grid.slope_plane();
        from + numbers.end <= first || from + numbers.start >= end
    })
}

/// Writes the inputs of each place of a sample, `places x taps`.
fn unfold(shape: &Shape, sample: &[f32], columns: &mut [f32]) {
    let Shape {
        channels,
        height,
        width,
        kernel,
        stride,
        pad,
        ..
    } = *shape;
    let mut runs = columns.chunks_exact_mut(kernel);
    for y in 0..shape.out_height() {
        for x in 0..shape.out_width() {
            let left = x * stride;
            // columns of the kernel that lie within the image
            let inside = pad.saturating_sub(left)..kernel.min((width + pad).saturating_sub(left));
            let rows = (0..channels).flat_map(|c| (0..kernel).map(move |ky| (c, ky)));
            for ((c, ky), run) in rows.zip(&mut runs) {
                let row = y * stride + ky;
                if row < pad || row >= height + pad || inside.is_empty() {
                    run.fill(0.0);
                    continue;
                }
                let from = (c * height + row - pad) * width + left + inside.start - pad;
                run[..inside.start].fill(0.0);
                run[inside.end..].fill(0.0);
                run[inside.clone()].copy_from_slice(&sample[from..][..inside.len()]);
            }
        }
    }
}

/// Returns the layout of a convolution's numbers.
pub fn conv_grid(shape: &Shape) -> Grid {
    Grid::new(shape)
}

/// Returns the number of samples whose weight gradients are summed together.
pub fn conv_group(shape: &Shape, rows: usize) -> usize {
    let grid = Grid::new(shape);
    (GROUP / (grid.input_len() + grid.slope_len())).clamp(1, rows.max(1))
}

/// The backward pass, some samples at a time.
struct Back<'a> {
    grid: &'a Grid,
    x: &'a Value,
    offsets: Vec<usize>,
    /// For each phase: the weights of its taps with input channels as rows, and where they start to
    /// read a gradient.
    turned: Vec<(Packed, Vec<usize>)>,
    /// The taps that read no padding, if that spares work.
    needed: Option<Needed>,
    inputs: Vec<f32>,
    slopes: Vec<f32>,
    sums: Vec<f32>,
    weight_slope: Vec<f32>,
    input_slope: Buffer,
    /// Samples whose `input_slope` is there.
    done: usize,
}

impl<'a> Back<'a> {
    fn new(grid: &'a Grid, x: &'a Value, weight: &'a [f32]) -> Self {
        let turned = if x.key.is_some() {
            Self::turn(grid, weight)
        } else {
            Vec::new()
        };
        let input_slope = Buffer::any(if x.key.is_some() { x.data.len() } else { 0 });
        let (inputs, slopes, sums) = (Vec::new(), Vec::new(), Vec::new());
        let weight_slope = vec![0.0; weight.len()];
        Self {
            grid,
            x,
            offsets: grid.offsets(),
            needed: turned
                .first()
                .and_then(|(_, offsets)| needed(grid, offsets)),
            turned,
            inputs,
            slopes,
            sums,
            weight_slope,
            input_slope,
            done: 0,
        }
    }

    fn turn(grid: &Grid, weight: &[f32]) -> Vec<(Packed, Vec<usize>)> {
        let Shape {
            channels,
            out,
            kernel,
            stride,
            ..
        } = grid.shape;
        let (first, _) = grid.input_span();
        let phases = (0..grid.phases).flat_map(|y| (0..grid.phases).map(move |x| (y, x)));
        phases
            .map(|(py, px)| {
                let mine = |ky: &usize, kx: &usize| ky % stride == py && kx % stride == px;
                let kernel_taps: Vec<(usize, usize)> = (0..kernel)
                    .flat_map(|y| (0..kernel).map(move |x| (y, x)))
                    .filter(|(y, x)| mine(y, x))
                    .collect();
                let taps: Vec<(usize, usize, usize)> = (0..out)
                    .flat_map(|o| kernel_taps.iter().map(move |(y, x)| (o, *y, *x)))
                    .collect();
                let offsets = taps
                    .iter()
                    .map(|(o, y, x)| {
                        o * grid.slope_plane() + grid.lead() + first - grid.shift(*y, *x)
                    })
                    .collect();
                let packed = Packed::new(channels, taps.len(), |c, tap| {
                    let (o, y, x) = taps[tap];
                    weight[((o * channels + c) * kernel + y) * kernel + x]
                });
                (packed, offsets)
            })
            .collect()
    }

    fn place(&mut self, slope: &[f32], samples: Range<usize>, inputs_too: bool) {
        let (grid, shape) = (self.grid, &self.grid.shape);
        let (plane, size_in) = (grid.slope_plane(), self.x.width());
        let (height, width) = (shape.out_height(), shape.out_width());
        self.slopes.resize(samples.len() * grid.slope_len(), 0.0);
        self.inputs.resize(
            if inputs_too {
                samples.len() * grid.input_len()
            } else {
                0
            },
            0.0,
        );
        for (at, s) in samples.enumerate() {
            let from = &slope[s * shape.out * height * width..];
            let to = &mut self.slopes[at * grid.slope_len() + grid.lead()..];
            vectorised(
                #[inline(always)]
                || {
                    for o in 0..shape.out {
                        let (to, from) = (&mut to[o * plane..], &from[o * height * width..]);
                        copy_rows(to, from, [height, width, 1], [grid.ld, width]);
                    }
                },
            );
            if inputs_too {
                let sample = &self.x.data[s * size_in..][..size_in];
                grid.place_input(
                    sample,
                    &mut self.inputs[at * grid.input_len()..][..grid.input_len()],
                );
            }
        }
    }

    fn weights(&mut self, samples: usize) {
        let grid = self.grid;
        let slopes = Rows {
            values: &self.slopes[grid.lead()..],
            ld: grid.slope_plane(),
            sample: grid.slope_len(),
        };
        let inputs = Rows {
            values: &self.inputs,
            ld: 0,
            sample: grid.input_len(),
        };
        shifted_dots(
            &slopes,
            &inputs,
            samples,
            &self.offsets,
            grid.outputs(),
            &mut self.weight_slope,
        );
    }

    fn input(&mut self, samples: usize) {
        let (
            grid,
            Shape {
                channels,
                height,
                width,
                stride,
                ..
            },
        ) = (self.grid, self.grid.shape);
        let (first, count) = grid.input_span();
        let size = channels * height * width;
        let lines = Lines {
            count: height,
            width,
            step: grid.ld,
        };
        // without a stride all inputs lie on one plane, row by row
        if stride == 1 && lines.are_whole() {
            let [(packed, offsets)] = &self.turned[..] else {
                unreachable!("a stride of 1 has one phase");
            };
            for sample in self.slopes.chunks_exact(grid.slope_len()).take(samples) {
                let sink = Sink {
                    out: &mut self.input_slope[self.done * size..][..size],
                    ld: height * width,
                    finish: None,
                };
                match &self.needed {
                    Some(taps) => needed_sums(packed, sample, offsets, taps, lines, sink),
                    None => shifted_sums(packed, sample, offsets, lines, sink),
                }
                self.done += 1;
            }
            return;
        }
        let ld = round_up(count);
        let lines = Lines {
            count: 1,
            width: ld,
            step: ld,
        };
        self.sums.resize(self.turned.len() * channels * ld, 0.0);
        for sample in self.slopes.chunks_exact(grid.slope_len()).take(samples) {
            let phases = self.sums.chunks_exact_mut(channels * ld);
            for ((packed, offsets), out) in self.turned.iter().zip(phases) {
                let sink = Sink {
                    out,
                    ld,
                    finish: None,
                };
                shifted_sums(packed, sample, offsets, lines, sink);
            }
            let (out, sums) = (
                &mut self.input_slope[self.done * size..][..size],
                &self.sums,
            );
            self.done += 1;
            // inputs that no output depends on
            out.fill(0.0);
            for block in grid.blocks() {
                let [rows, columns, by] = block.size;
                let from = &sums[block.phase * channels * ld + block.place - first..];
                for (c, y) in (0..channels).flat_map(|c| (0..rows).map(move |y| (c, y))) {
                    let from = &from[c * ld + y * block.steps[0]..][..columns];
                    let to = &mut out[c * height * width + block.start + y * block.steps[1]..];
                    to.iter_mut()
                        .step_by(by)
                        .zip(from)
                        .for_each(|(t, f)| *t = *f);
                }
            }
        }
    }
}
