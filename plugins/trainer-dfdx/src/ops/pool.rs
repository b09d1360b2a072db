//! Pooling.

use crate::simd::vectorised;
use crate::tape::{Record, Value};
use std::sync::Arc;

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
    /// Rows and columns from one window to the next.
    pub stride: usize,
}

impl PoolShape {
    /// Channels, rows and columns out.
    pub fn out(&self) -> [usize; 3] {
        let windows = |n: usize| (n - self.kernel) / self.stride + 1;
        [self.channels, windows(self.height), windows(self.width)]
    }

    /// The first number of each window, in the order of the output, for `rows` samples.
    fn windows(&self, rows: usize) -> impl Iterator<Item = usize> + use<> {
        let Self { channels, height, width, stride, .. } = *self;
        let [_, out_height, out_width] = self.out();
        (0..rows * channels).flat_map(move |plane| {
            (0..out_height).flat_map(move |y| (0..out_width).map(move |x| (plane * height + y * stride) * width + x * stride))
        })
    }
}

/// The largest number of each window; of equal ones the first, row by row. A NaN is the largest, so that the loss shows it.
pub fn max_pool(record: &mut Record, x: &Value, shape: &PoolShape) -> Value {
    let size = x.rows * shape.out().iter().product::<usize>();
    let (mut data, mut from) = (vec![f32::NEG_INFINITY; size], vec![0; size]);
    vectorised(|| match shape.stride {
        // a stride that the compiler knows becomes shuffles
        2 => largest(&x.data, shape, 2, &mut data, &mut from),
        stride => largest(&x.data, shape, stride, &mut data, &mut from),
    });
    let (to, len) = (x.key.clone(), x.data.len());
    let key = record.note(to.is_some(), move |slope, grads| {
        let mut back = vec![0.0; len];
        from.iter().zip(&slope).for_each(|(at, g)| back[*at as usize] += g);
        to.map_or(Ok(()), |to| grads.give(&to, back))
    });
    Value { data: Arc::new(data), rows: x.rows, shape: shape.out().to_vec(), key }
}

/// Largest numbers and where they stand, an output row at a time and without branches: which one is the largest is anybody's
/// guess, and a processor that guesses wrong waits.
#[inline(always)]
fn largest(x: &[f32], shape: &PoolShape, stride: usize, most: &mut [f32], from: &mut [u32]) {
    let [_, out_height, out_width] = shape.out();
    let rows = most.chunks_exact_mut(out_width).zip(from.chunks_exact_mut(out_width));
    for (i, (most, from)) in rows.enumerate() {
        let top = (i / out_height * shape.height + i % out_height * stride) * shape.width;
        from.iter_mut().enumerate().for_each(|(o, at)| *at = (top + o * stride) as u32);
        for tap in 0..shape.kernel * shape.kernel {
            let first = top + tap / shape.kernel * shape.width + tap % shape.kernel;
            let row = &x[first..first + (out_width - 1) * stride + 1];
            for o in 0..out_width {
                let v = row[o * stride];
                let better = (v > most[o]) | v.is_nan();
                most[o] = if better { v } else { most[o] };
                from[o] = if better { (first + o * stride) as u32 } else { from[o] };
            }
        }
    }
}

/// The mean of each window.
pub fn average_pool(record: &mut Record, x: &Value, shape: &PoolShape) -> Value {
    let (kernel, width) = (shape.kernel, shape.width);
    let share = 1.0 / (kernel * kernel) as f32;
    let window = move |start: usize| (0..kernel).map(move |y| start + y * width..start + y * width + kernel);
    let mean = |start| window(start).map(|row| x.data[row].iter().sum::<f32>()).sum::<f32>() * share;
    let data = shape.windows(x.rows).map(mean).collect::<Vec<f32>>();
    let (to, len, rows, windows) = (x.key.clone(), x.data.len(), x.rows, *shape);
    let key = record.note(to.is_some(), move |slope, grads| {
        let mut back = vec![0.0; len];
        for (start, g) in windows.windows(rows).zip(&slope) {
            window(start).for_each(|row| back[row].iter_mut().for_each(|b| *b += g * share));
        }
        to.map_or(Ok(()), |to| grads.give(&to, back))
    });
    Value { data: Arc::new(data), rows: x.rows, shape: shape.out().to_vec(), key }
}
