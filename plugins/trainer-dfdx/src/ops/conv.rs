//! Two-dimensional convolution.
//!
//! Images are laid out on a grid on which every tap of the kernel is a *shift*: rows follow one another with the padding
//! between them (the zeros that end one row begin the next), and a stride of `s` splits the grid into `s x s` phases, of
//! which a tap reads one. Then output, input gradient and weight gradient are sums and dot products of shifted rows, see
//! [`crate::simd`]. Columns of the grid that are no output are computed and dropped: 1/(width + 1) of the work for a
//! padded 3x3 kernel.

use crate::simd::{Packed, Rows, at_least, round_up, shifted_dots, shifted_sums, vectorised};
use crate::tape::{Record, Value, Weights};
use std::ops::Range;
use std::sync::Arc;

/// Numbers of one group of samples that the weight gradient works on: half of a small second-level cache.
const GROUP: usize = 64 * 1024;

/// The shape of a convolution: `channels x height x width` in, `out` channels of `kernel x kernel` taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels in.
    pub channels: usize,
    /// Rows in.
    pub height: usize,
    /// Columns in.
    pub width: usize,
    /// Channels out.
    pub out: usize,
    /// Rows and columns of the kernel.
    pub kernel: usize,
    /// Rows and columns from one output to the next.
    pub stride: usize,
    /// Rows and columns of zeros around the input; less than `kernel`.
    pub pad: usize,
}

impl Shape {
    /// Rows out.
    pub fn out_height(&self) -> usize {
        (self.height + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Columns out.
    pub fn out_width(&self) -> usize {
        (self.width + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Weights of one output channel.
    pub fn taps(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }
}

/// `relu?(conv(x, weight) + bias)`; `weight` is `out x channels x kernel x kernel`, as in PyTorch.
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
    let (size_in, size_out) = (x.width(), shape.out * shape.out_height() * shape.out_width());
    let w = &weights.data[weight.clone()];
    let packed = Packed::new(shape.out, shape.taps(), |o, tap| w[o * shape.taps() + tap]);
    let offsets = grid.offsets();
    let (mut plane, mut sums) = (vec![0.0; grid.input_len()], vec![0.0; shape.out * grid.run()]);
    let mut data = Vec::with_capacity(x.rows * size_out);
    for sample in x.data.chunks_exact(size_in) {
        grid.place_input(sample, &mut plane);
        shifted_sums(&packed, &plane, &offsets, grid.outputs(), &mut sums, grid.run());
        for o in 0..shape.out {
            let b = bias.as_ref().map_or(0.0, |b| weights.data[b.start + o]);
            let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
            vectorised(|| grid.crop(&sums[o * grid.run()..], |row| data.extend(row.iter().map(|v| at_least(v + b, floor)))));
        }
    }
    let data = Arc::new(data);

    let (wanted, x, weights, out) = (x.key.is_some() || weights.key.is_some(), x.clone(), weights.clone(), data.clone());
    let rows = x.rows;
    let key = record.note(wanted, move |mut slope, grads| {
        if relu {
            super::relu_back(&mut slope, &out);
        }
        let mut back = Back::new(&grid, &x, &weights.data[weight.clone()]);
        let want_weights = weights.key.is_some();
        let group = if want_weights { (GROUP / (grid.input_len() + grid.slope_len())).clamp(1, rows.max(1)) } else { 1 };
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
                super::channel_sums(&slope, shape.out, size_out / shape.out, &mut all[bias.clone()]);
            }
        }
        match &x.key {
            Some(key) => grads.give(key, back.input_slope),
            None => Ok(()),
        }
    });
    Value { data, rows, shape: vec![shape.out, shape.out_height(), shape.out_width()], key }
}

/// Where things stand on the grid.
#[derive(Clone, Copy, Debug)]
struct Grid {
    shape: Shape,
    /// Phases in each direction.
    phases: usize,
    /// The largest shift of a tap within a phase, in rows and columns.
    reach: usize,
    /// From one row to the next.
    ld: usize,
}

impl Grid {
    fn new(shape: &Shape) -> Self {
        let reach = (shape.kernel - 1) / shape.stride;
        let ld = if shape.stride == 1 { shape.width + shape.pad } else { shape.out_width() + reach };
        Self { shape: *shape, phases: shape.stride.min(shape.kernel), reach, ld }
    }

    /// Numbers from the first to the last output, dropped columns included.
    fn outputs(&self) -> usize {
        (self.shape.out_height() - 1) * self.ld + self.shape.out_width()
    }

    /// Room for one channel of output.
    fn run(&self) -> usize {
        round_up(self.outputs())
    }

    fn shift(&self, y: usize, x: usize) -> usize {
        (y / self.shape.stride) * self.ld + x / self.shape.stride
    }

    /// Room for one phase of one channel of input.
    fn plane(&self) -> usize {
        round_up(self.reach * self.ld + self.reach + self.run())
    }

    /// Room for one input sample: phase by phase, channel by channel.
    fn input_len(&self) -> usize {
        self.phases * self.phases * self.shape.channels * self.plane()
    }

    fn phase(&self, y: usize, x: usize) -> usize {
        (y % self.shape.stride) * self.phases + x % self.shape.stride
    }

    /// Where each tap starts to read an input sample: channel by channel, kernel row by kernel row.
    fn offsets(&self) -> Vec<usize> {
        let Shape { channels, kernel, .. } = self.shape;
        let one = |c: usize, tap: usize| {
            let (y, x) = (tap / kernel, tap % kernel);
            (self.phase(y, x) * channels + c) * self.plane() + self.shift(y, x)
        };
        (0..channels).flat_map(|c| (0..kernel * kernel).map(move |tap| one(c, tap))).collect()
    }

    /// Visits the stretches of input rows that any output depends on, with the phase, the place on its plane and the step:
    /// `f(phase, place, start in the sample's channel, how many, step)`.
    fn stretches(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        let Shape { height, width, stride, pad, .. } = self.shape;
        let (y_end, x_end) = (self.shape.out_height() + self.reach, self.shape.out_width() + self.reach);
        for y in (0..height).filter(|y| (y + pad) % stride < self.phases && (y + pad) / stride < y_end) {
            for first in (0..stride.min(width)).filter(|x| (x + pad) % stride < self.phases) {
                let count = (width - first).div_ceil(stride).min(x_end.saturating_sub((first + pad) / stride));
                let place = self.shift(y + pad, first + pad);
                f(self.phase(y + pad, first + pad), place, y * width + first, count);
            }
        }
    }

    /// Lays out one sample. The padding is not touched: it is 0 from the start.
    fn place_input(&self, sample: &[f32], out: &mut [f32]) {
        let Shape { channels, height, width, stride, .. } = self.shape;
        let plane = self.plane();
        self.stretches(|phase, place, start, count| {
            for c in 0..channels {
                let to = &mut out[(phase * channels + c) * plane + place..][..count];
                let from = &sample[c * height * width + start..];
                if stride == 1 {
                    to.copy_from_slice(&from[..count]);
                } else {
                    to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(t, f)| *t = *f);
                }
            }
        });
    }

    /// The rows of one channel of output, without the dropped columns.
    #[inline(always)]
    fn crop<'a>(&self, run: &'a [f32], mut f: impl FnMut(&'a [f32])) {
        for y in 0..self.shape.out_height() {
            f(&run[y * self.ld..][..self.shape.out_width()]);
        }
    }

    /// Zeros before the first number of an output gradient.
    fn lead(&self) -> usize {
        self.reach * self.ld + self.reach
    }

    /// The first place of a plane that an input gradient can stand at, and how many follow.
    fn input_span(&self) -> (usize, usize) {
        let Shape { height, width, stride, pad, .. } = self.shape;
        let first = self.shift(pad, pad);
        let last_y = ((height + pad - 1) / stride).min(self.shape.out_height() + self.reach - 1);
        let last_x = ((width + pad - 1) / stride).min(self.shape.out_width() + self.reach - 1);
        (first, last_y * self.ld + last_x + 1 - first)
    }

    /// Room for one channel of output gradient with the zeros around it.
    fn slope_plane(&self) -> usize {
        let (first, count) = self.input_span();
        round_up(self.lead() + self.run().max(first + round_up(count)))
    }

    fn slope_len(&self) -> usize {
        self.shape.out * self.slope_plane()
    }
}

/// The way back, some samples at a time.
struct Back<'a> {
    grid: &'a Grid,
    x: &'a Value,
    offsets: Vec<usize>,
    /// For each phase: the weights of its taps with channels in for rows, and where they start to read a gradient.
    turned: Vec<(Packed, Vec<usize>)>,
    inputs: Vec<f32>,
    slopes: Vec<f32>,
    sums: Vec<f32>,
    weight_slope: Vec<f32>,
    input_slope: Vec<f32>,
}

impl<'a> Back<'a> {
    fn new(grid: &'a Grid, x: &'a Value, weight: &'a [f32]) -> Self {
        let turned = if x.key.is_some() { Self::turn(grid, weight) } else { Vec::new() };
        let input_slope = Vec::with_capacity(if x.key.is_some() { x.data.len() } else { 0 });
        let (inputs, slopes, sums) = (Vec::new(), Vec::new(), Vec::new());
        let weight_slope = vec![0.0; weight.len()];
        Self { grid, x, offsets: grid.offsets(), turned, inputs, slopes, sums, weight_slope, input_slope }
    }

    fn turn(grid: &Grid, weight: &[f32]) -> Vec<(Packed, Vec<usize>)> {
        let Shape { channels, out, kernel, stride, .. } = grid.shape;
        let (first, _) = grid.input_span();
        let phases = (0..grid.phases).flat_map(|y| (0..grid.phases).map(move |x| (y, x)));
        phases
            .map(|(py, px)| {
                let mine = |ky: &usize, kx: &usize| ky % stride == py && kx % stride == px;
                let kernel_taps: Vec<(usize, usize)> =
                    (0..kernel).flat_map(|y| (0..kernel).map(move |x| (y, x))).filter(|(y, x)| mine(y, x)).collect();
                let taps: Vec<(usize, usize, usize)> =
                    (0..out).flat_map(|o| kernel_taps.iter().map(move |(y, x)| (o, *y, *x))).collect();
                let offsets =
                    taps.iter().map(|(o, y, x)| o * grid.slope_plane() + grid.lead() + first - grid.shift(*y, *x)).collect();
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
        self.inputs.resize(if inputs_too { samples.len() * grid.input_len() } else { 0 }, 0.0);
        for (at, s) in samples.enumerate() {
            for o in 0..shape.out {
                let from = &slope[(s * shape.out + o) * height * width..][..height * width];
                let to = &mut self.slopes[at * grid.slope_len() + o * plane + grid.lead()..];
                for (y, row) in from.chunks_exact(width).enumerate() {
                    to[y * grid.ld..][..width].copy_from_slice(row);
                }
            }
            if inputs_too {
                let sample = &self.x.data[s * size_in..][..size_in];
                grid.place_input(sample, &mut self.inputs[at * grid.input_len()..][..grid.input_len()]);
            }
        }
    }

    fn weights(&mut self, samples: usize) {
        let grid = self.grid;
        let slopes = Rows { values: &self.slopes[grid.lead()..], ld: grid.slope_plane(), sample: grid.slope_len() };
        let inputs = Rows { values: &self.inputs, ld: 0, sample: grid.input_len() };
        shifted_dots(&slopes, &inputs, samples, &self.offsets, grid.outputs(), &mut self.weight_slope);
    }

    fn input(&mut self, samples: usize) {
        let (grid, Shape { channels, height, width, stride, .. }) = (self.grid, self.grid.shape);
        let (first, count) = grid.input_span();
        let ld = round_up(count);
        self.sums.resize(self.turned.len() * channels * ld, 0.0);
        for sample in self.slopes.chunks_exact(grid.slope_len()).take(samples) {
            for ((packed, offsets), sums) in self.turned.iter().zip(self.sums.chunks_exact_mut(channels * ld)) {
                shifted_sums(packed, sample, offsets, count, sums, ld);
            }
            let start = self.input_slope.len();
            self.input_slope.resize(start + channels * height * width, 0.0);
            let (out, sums) = (&mut self.input_slope[start..], &self.sums);
            grid.stretches(|phase, place, at, count| {
                for c in 0..channels {
                    let from = &sums[(phase * channels + c) * ld + place - first..][..count];
                    let to = &mut out[c * height * width + at..];
                    if stride == 1 {
                        to[..count].copy_from_slice(from);
                    } else {
                        to.iter_mut().step_by(stride).zip(from).for_each(|(t, f)| *t = *f);
                    }
                }
            });
        }
    }
}
