//! Pooling.

use crate::buffer::Buffer;
use crate::simd::vectorised;
use crate::tape::{Record, Value};

/// Windows of `kernel x kernel` every `stride` rows and columns, only whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Channels.
    pub channels: usize,
    /// Rows in.
    pub height: usize,
    /// Columns in.
    pub width: usize,
    /// Rows and columns of a window.
    pub kernel: usize,
    /// Step in rows and columns between two windows.
    pub stride: usize,
}

impl PoolShape {
    /// Returns channels, rows and columns out.
    pub fn out(&self) -> [usize; 3] {
        let windows = |n: usize| (n - self.kernel) / self.stride + 1;
        [self.channels, windows(self.height), windows(self.width)]
    }

    /// Returns the first number of each window, in the order of the output, for `rows` samples.
    fn windows(&self, rows: usize) -> impl Iterator<Item = usize> + use<> {
        let Self {
            channels,
            height,
            width,
            stride,
            ..
        } = *self;
        let [_, out_height, out_width] = self.out();
        (0..rows * channels).flat_map(move |plane| {
            (0..out_height).flat_map(move |y| {
                (0..out_width).map(move |x| (plane * height + y * stride) * width + x * stride)
            })
        })
    }
}

/// Computes the largest number of each window; on a tie the first, row by row. A NaN is the
/// largest, so that the loss shows it.
pub fn max_pool(record: &mut Record, x: &Value, shape: &PoolShape) -> Value {
    let size = x.rows * shape.out().iter().product::<usize>();
    let (mut data, mut from) = (Buffer::any(size), vec![0; size]);
    vectorised(
        #[inline(always)]
        || match (shape.kernel, shape.stride) {
            (2, 2) => largest_of_four(&x.data, shape, &mut data, &mut from),
            (_, 1) => largest_nearby(&x.data, shape, &mut data, &mut from),
            _ => largest(&x.data, shape, &mut data, &mut from),
        },
    );
    let (len, windows) = (x.data.len(), *shape);
    x.then(record, data, shape.out().to_vec(), move |slope| {
        let [channels, height, width] = windows.out();
        let mut back = Buffer::any(len);
        let samples = from.chunks_exact(channels * height * width);
        let samples = samples.zip(slope.chunks_exact(channels * height * width));
        let size = channels * windows.height * windows.width;
        for (i, (back, (from, slope))) in back.chunks_exact_mut(size).zip(samples).enumerate() {
            back.fill(0.0);
            let first = (i * size) as u32;
            from.iter()
                .zip(slope)
                .for_each(|(at, g)| back[(at - first) as usize] += g);
        }
        back
    })
}

/// Finds the largest numbers and their positions, an output row at a time and without branches: a
/// processor cannot predict which is the largest.
#[inline(always)]
fn largest(x: &[f32], shape: &PoolShape, most: &mut [f32], from: &mut [u32]) {
    let [_, out_height, out_width] = shape.out();
    let rows = most
        .chunks_exact_mut(out_width)
        .zip(from.chunks_exact_mut(out_width));
    for (i, (most, from)) in rows.enumerate() {
        let top = (i / out_height * shape.height + i % out_height * shape.stride) * shape.width;
        from.iter_mut()
            .zip((top..).step_by(shape.stride))
            .for_each(|(at, start)| *at = start as u32);
        most.fill(f32::NEG_INFINITY);
        for tap in 0..shape.kernel * shape.kernel {
            let first = top + tap / shape.kernel * shape.width + tap % shape.kernel;
            let row = x[first..].iter().zip(first as u32..).step_by(shape.stride);
            for ((most, from), (v, at)) in most.iter_mut().zip(from.iter_mut()).zip(row) {
                (*most, *from) = larger((*most, *from), (*v, at));
            }
        }
    }
}

/// [`largest`] for windows one pixel apart, a plane at a time. The windows of a plane follow one
/// another in memory, so vectors run over the ends of rows; those that cross one are dropped.
#[inline(always)]
fn largest_nearby(x: &[f32], shape: &PoolShape, most: &mut [f32], from: &mut [u32]) {
    let ([_, out_height, out_width], width) = (shape.out(), shape.width);
    let (plane, span) = (shape.height * width, (out_height - 1) * width + out_width);
    let (mut wide_most, mut wide_from) = (vec![0.0; span], vec![0; span]);
    let planes = most
        .chunks_exact_mut(out_height * out_width)
        .zip(from.chunks_exact_mut(out_height * out_width));
    for (i, (most, from)) in planes.enumerate() {
        let start = (i * plane) as u32;
        wide_most.fill(f32::NEG_INFINITY);
        wide_from
            .iter_mut()
            .zip(start..)
            .for_each(|(at, p)| *at = p);
        for tap in 0..shape.kernel * shape.kernel {
            let shift = tap / shape.kernel * width + tap % shape.kernel;
            let row = &x[i * plane + shift..][..span];
            let first = start + shift as u32;
            let both = wide_most.iter_mut().zip(&mut wide_from);
            for (p, ((most, from), v)) in both.zip(row).enumerate() {
                (*most, *from) = larger((*most, *from), (*v, first + p as u32));
            }
        }
        for y in 0..out_height {
            let (to, wide) = (y * out_width.., y * width..);
            most[to.clone()][..out_width].copy_from_slice(&wide_most[wide.clone()][..out_width]);
            from[to][..out_width].copy_from_slice(&wide_from[wide][..out_width]);
        }
    }
}

/// [`largest`] for the usual windows of 2x2, a plane at a time. Lays out the four numbers of the
/// windows side by side first, because a row of windows is seldom a whole number of vectors.
#[inline(always)]
fn largest_of_four(x: &[f32], shape: &PoolShape, most: &mut [f32], from: &mut [u32]) {
    let ([_, out_height, out_width], width) = (shape.out(), shape.width);
    let (plane, windows) = (shape.height * width, out_height * out_width);
    let starts: Vec<u32> = (0..out_height)
        .flat_map(|y| (0..out_width).map(move |x| (2 * (y * width + x)) as u32))
        .collect();
    let mut corners = vec![0.0; 4 * windows];
    let (upper, lower) = corners.split_at_mut(2 * windows);
    let (a, b) = upper.split_at_mut(windows);
    let (c, d) = lower.split_at_mut(windows);
    let planes = most
        .chunks_exact_mut(windows)
        .zip(from.chunks_exact_mut(windows));
    for (i, (most, from)) in planes.enumerate() {
        for y in 0..out_height {
            let (row, to) = (i * plane + 2 * y * width, y * out_width..);
            pairs(&x[row..][..width], &mut a[to.clone()], &mut b[to.clone()]);
            pairs(&x[row + width..][..width], &mut c[to.clone()], &mut d[to]);
        }
        let (base, below) = ((i * plane) as u32, width as u32);
        let four = a.iter().zip(&*b).zip(c.iter().zip(&*d));
        for (((most, from), start), ((a, b), (c, d))) in
            most.iter_mut().zip(from).zip(&starts).zip(four)
        {
            let above = larger((*a, 0), (*b, 1));
            let (largest, place) = larger(larger(above, (*c, below)), (*d, below + 1));
            (*most, *from) = (largest, base + start + place);
        }
    }
}

/// Splits pairs into their first and second numbers.
#[inline(always)]
fn pairs(row: &[f32], first: &mut [f32], second: &mut [f32]) {
    let both = first.iter_mut().zip(second);
    for ((first, second), [a, b]) in both.zip(row.as_chunks::<2>().0) {
        (*first, *second) = (*a, *b);
    }
}

/// Returns the larger of two numbers with their positions: the first on a tie, and NaN above all.
#[inline(always)]
fn larger(a: (f32, u32), b: (f32, u32)) -> (f32, u32) {
    let better = (b.0 > a.0) | b.0.is_nan();
    (
        if better { b.0 } else { a.0 },
        if better { b.1 } else { a.1 },
    )
}

/// Computes the mean of each window.
pub fn average_pool(record: &mut Record, x: &Value, shape: &PoolShape) -> Value {
    let (kernel, width) = (shape.kernel, shape.width);
    let share = 1.0 / (kernel * kernel) as f32;
    let window =
        move |start: usize| (0..kernel).map(move |y| start + y * width..start + y * width + kernel);
    let mean = |start| {
        window(start)
            .map(|row| x.data[row].iter().sum::<f32>())
            .sum::<f32>()
            * share
    };
    let data: Buffer = shape.windows(x.rows).map(mean).collect::<Vec<f32>>().into();
    let (len, rows, windows) = (x.data.len(), x.rows, *shape);
    x.then(record, data, shape.out().to_vec(), move |slope| {
        let mut back = Buffer::filled(len, 0.0);
        for (start, g) in windows.windows(rows).zip(slope.iter()) {
            window(start).for_each(|row| back[row].iter_mut().for_each(|b| *b += g * share));
        }
        back
    })
}
