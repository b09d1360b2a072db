//! Operations on single numbers, and moves of numbers, on a card: kernels/pointwise.cu, as
//! [`fl_nets::ops`] has them in `pointwise.rs`.

use super::driver::{Argument, Buffer, Position, Queue};
use super::sums::column_sums;
use super::tape::{Record, Value, Weights};
use fl_core::{Draws, Result};
use fl_nets::ops::{self, Activation};
use std::ops::Range;
use std::sync::Arc;

impl Queue {
    /// Copies rows of numbers; `ld`: from one row to the next, of both.
    ///
    /// # Errors
    /// If the card fails.
    pub fn copy_rows(
        &self,
        [rows, width]: [usize; 2],
        ld: [usize; 2],
        from: Argument<'_>,
        to: Argument<'_>,
    ) -> Result<()> {
        let n = rows * width;
        let arguments = arguments![n, width, ld[0], ld[1], from, to];
        self.each("copy_rows", n, &arguments)
    }
}

/// Computes `out = values * factors`, one by one; `out` may be `values`.
fn times(queue: &Queue, values: &Buffer, factors: &Buffer, out: &Buffer) -> Result<()> {
    let n = values.len();
    let arguments = arguments![n, factors, values, out];
    queue.each("times", n, &arguments)
}

/// Computes `from * weight`, number by number of a sample of `width`, and adds the bias if `shifts`.
fn scaled(
    queue: &Queue,
    (width, shifts): (usize, bool),
    from: &Buffer,
    [weight, bias]: [Position<'_>; 2],
) -> Result<Buffer> {
    let n = from.len();
    let to = queue.room(n)?;
    let arguments = arguments![n, width, shifts, from, weight, bias, &to];
    queue.each("scale_columns", n, &arguments)?;
    Ok(to)
}

/// Returns two positions in a buffer.
fn both(of: &Buffer, starts: [usize; 2]) -> [Position<'_>; 2] {
    starts.map(|at| Position(of, at))
}

/// Computes `x * weight + bias`, number by number of a sample: the end of layer normalisation.
///
/// # Errors
/// If the card fails.
pub fn scale_columns(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    affine: [Range<usize>; 2],
) -> Result<Value> {
    let (rows, width, shape) = (x.rows, x.width(), x.shape.clone());
    let starts = [affine[0].start, affine[1].start];
    let out = scaled(queue, (width, true), &x.data, both(&weights.data, starts))?;
    let wanted = x.key.is_some() || weights.gradient.is_some();
    let (x, weights, queue) = (x.clone(), weights.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        if let Some(gradient) = &weights.gradient {
            let products = queue.room(slope.len())?;
            times(&queue, &slope, &x.data, &products)?;
            for (values, to) in [&products, &slope].into_iter().zip(both(gradient, starts)) {
                column_sums(&queue, values, [rows, width], None, to)?;
            }
        }
        let Some(key) = x.key else { return Ok(()) };
        let back = scaled(&queue, (width, false), &slope, both(&weights.data, starts))?;
        grads.give(key, back)
    });
    Ok(Value {
        data: Arc::new(out),
        rows,
        shape,
        key,
    })
}

/// Keeps the slope where the output of a relu is positive.
///
/// # Errors
/// If the card fails.
pub fn relu_back(queue: &Queue, slope: &Buffer, out: &Buffer) -> Result<()> {
    activate_back(queue, slope, out, Activation::Relu)
}

/// Returns the number of an activation in the kernels, and its slope.
fn number(f: Activation) -> [Argument<'static>; 2] {
    match f {
        Activation::Relu => [0.into(), 0.0.into()],
        Activation::LeakyRelu(a) => [1.into(), a.into()],
        Activation::Tanh => [2.into(), 0.0.into()],
        Activation::Sigmoid => [3.into(), 0.0.into()],
    }
}

fn activate_back(queue: &Queue, slope: &Buffer, out: &Buffer, f: Activation) -> Result<()> {
    let n = slope.len();
    let [what, a] = number(f);
    let arguments = arguments![n, what, a, out, slope];
    queue.each("activate_back", n, &arguments)
}

/// Applies `f` to every number.
///
/// # Errors
/// If the card fails.
pub fn activate(queue: &Queue, record: &mut Record, x: &Value, f: Activation) -> Result<Value> {
    let n = x.data.len();
    let out = queue.room(n)?;
    let [what, a] = number(f);
    let arguments = arguments![n, what, a, &*x.data, &out];
    queue.each("activate", n, &arguments)?;
    let data = Arc::new(out);
    let (out, queue) = (data.clone(), queue.clone());
    Ok(x.then(record, data, x.shape.clone(), move |slope| {
        activate_back(&queue, &slope, &out, f)?;
        Ok(slope)
    }))
}

/// Computes `relu?(a + b)`: the end of a residual block.
///
/// # Errors
/// If the card fails.
pub fn add(queue: &Queue, record: &mut Record, a: &Value, b: &Value, relu: bool) -> Result<Value> {
    let n = a.data.len();
    let out = queue.room(n)?;
    let arguments = arguments![n, relu, &*a.data, &*b.data, &out];
    queue.each("add", n, &arguments)?;
    let data = Arc::new(out);
    let (to, out, queue) = ([a.key, b.key], data.clone(), queue.clone());
    let key = record.note(a.key.is_some() || b.key.is_some(), move |slope, grads| {
        if let [Some(a), Some(b)] = to {
            let copy = queue.room(n)?;
            let arguments = arguments![n, relu, &*out, &slope, &copy];
            queue.each("add_back", n, &arguments)?;
            grads.give(a, copy)?;
            return grads.give(b, slope);
        }
        if relu {
            relu_back(&queue, &slope, &out)?;
        }
        match to {
            [Some(a), Some(_)] => grads.give(a, slope),
            [Some(only), None] | [None, Some(only)] => grads.give(only, slope),
            [None, None] => Ok(()),
        }
    });
    Ok(Value {
        data,
        key,
        ..a.clone()
    })
}

/// Joins the channels of `a` and then those of `b`, sample by sample.
///
/// # Errors
/// If the card fails.
pub fn concat(queue: &Queue, record: &mut Record, a: &Value, b: &Value) -> Result<Value> {
    let (rows, widths) = (a.rows, [a.width(), b.width()]);
    let whole = widths[0] + widths[1];
    let out = queue.room(rows * whole)?;
    let starts = [0, widths[0]];
    for ((of, width), start) in [a, b].into_iter().zip(widths).zip(starts) {
        let to = Position(&out, start).into();
        queue.copy_rows([rows, width], [width, whole], (&*of.data).into(), to)?;
    }
    let (to, queue) = ([a.key, b.key], queue.clone());
    let key = record.note(a.key.is_some() || b.key.is_some(), move |slope, grads| {
        for ((to, width), start) in to.into_iter().zip(widths).zip(starts) {
            let Some(to) = to else { continue };
            let back = queue.room(rows * width)?;
            let from = Position(&slope, start).into();
            queue.copy_rows([rows, width], [whole, width], from, (&back).into())?;
            grads.give(to, back)?;
        }
        Ok(())
    });
    Ok(Value {
        data: Arc::new(out),
        rows,
        shape: [&[a.shape[0] + b.shape[0]], &a.shape[1..]].concat(),
        key,
    })
}

/// Applies inverted dropout; the host draws the mask, as [`ops::dropout`] does.
///
/// # Errors
/// If the card fails.
pub fn dropout(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    p: f32,
    draws: &mut Draws,
) -> Result<Value> {
    let mask = queue.upload(&ops::dropout_mask(x.data.len(), p, draws))?;
    let out = queue.room(x.data.len())?;
    times(queue, &x.data, &mask, &out)?;
    let queue = queue.clone();
    Ok(x.then(record, out, x.shape.clone(), move |slope| {
        times(&queue, &slope, &mask, &slope)?;
        Ok(slope)
    }))
}

/// Runs an operation that moves pixels of images: its kernels forward and backward, and the
/// resulting sides.
fn moved(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    [there, back]: [&'static str; 2],
    factor: usize,
    side: impl Fn(usize) -> usize,
) -> Result<Value> {
    let [channels, height, width] = [x.shape[0], x.shape[1], x.shape[2]];
    let shape = vec![channels, side(height), side(width)];
    let (n, len) = (x.rows * shape.iter().product::<usize>(), x.data.len());
    let out = queue.room(n)?;
    let arguments = arguments![n, height, width, factor, &*x.data, &out];
    queue.each(there, n, &arguments)?;
    let queue = queue.clone();
    Ok(x.then(record, out, shape, move |slope| {
        let sums = queue.room(len)?;
        let arguments = arguments![len, height, width, factor, &slope, &sums];
        queue.each(back, len, &arguments)?;
        Ok(sums)
    }))
}

/// Repeats every row and column `factor` times (nearest neighbour).
///
/// # Errors
/// If the card fails.
pub fn upsample(queue: &Queue, record: &mut Record, x: &Value, factor: usize) -> Result<Value> {
    let kernels = ["upsample", "upsample_back"];
    moved(queue, record, x, kernels, factor, |n| n * factor)
}

/// Puts `stride - 1` zeros between rows and between columns.
///
/// # Errors
/// If the card fails.
pub fn spread(queue: &Queue, record: &mut Record, x: &Value, stride: usize) -> Result<Value> {
    let kernels = ["spread", "spread_back"];
    moved(queue, record, x, kernels, stride, |n| (n - 1) * stride + 1)
}
