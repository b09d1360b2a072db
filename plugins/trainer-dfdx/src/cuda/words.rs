//! Texts on a card: kernels/words.cu, as [`fl_nets::ops`] has them in `words.rs`.

use super::driver::{Argument, Buffer, Position, Queue, int};
use super::linear::{Matrix, Texts, order_words, product};
use super::tape::{Record, Value, Weights};
use fl_core::Result;
use fl_nets::ops::{check_words, order};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Looks up rows of a table for words; `words` are the numbers of `x`, on the host.
///
/// # Errors
/// If `words` holds anything but whole numbers from 0 to the vocabulary, or the card fails.
pub fn embedding(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    words: &[f32],
    weights: &Weights,
    table: Range<usize>,
    width: usize,
) -> Result<Value> {
    check_words(words, x.width(), table.len() / width)?;
    let n = words.len() * width;
    let out = queue.room(n)?;
    let entries = Position(&weights.data, table.start);
    let arguments = arguments![n, width, &*x.data, entries, &out];
    queue.each("embedding", n, &arguments)?;
    let to = weights.gradient.clone();
    let places = to.is_some().then(|| places(words));
    let held = queue.clone();
    let key = record.note(to.is_some(), move |slope: Buffer, _| {
        let (Some(gradient), Some([rows, starts, places])) = (to, places) else {
            return Ok(());
        };
        let queue = held;
        queue.clear(&gradient, table.start, table.len())?;
        let n = rows.len() * width;
        let upload = |list: &[i32]| queue.upload_ints(list);
        let (rows, starts, places) = (upload(&rows)?, upload(&starts)?, upload(&places)?);
        let arguments = arguments![
            n,
            width,
            &rows,
            &starts,
            &places,
            &slope,
            Position(&gradient, table.start)
        ];
        queue.each("embedding_back", n, &arguments)
    });
    Ok(Value {
        data: Arc::new(out),
        rows: x.rows,
        shape: vec![x.width(), width],
        key,
    })
}

/// Returns the rows of the table that occur, the start of each row's positions, and the positions,
/// in their order.
fn places(words: &[f32]) -> [Vec<i32>; 3] {
    let mut all = BTreeMap::<i32, Vec<i32>>::new();
    for (at, word) in (0..).zip(words) {
        if *word > 0.0 {
            all.entry(*word as i32 - 1).or_default().push(at);
        }
    }
    let mut starts = vec![0];
    for list in all.values() {
        starts.push(starts[starts.len() - 1] + list.len() as i32);
    }
    let rows = all.keys().copied().collect();
    [rows, starts, all.into_values().flatten().collect()]
}

/// Returns the orders of products of `counts` rows, in the form of the kernels; `size` returns m, k
/// and n of a count.
fn orders(
    queue: &Queue,
    counts: &[usize],
    size: impl Fn(usize) -> [usize; 3],
    [a, b]: [[usize; 2]; 2],
) -> Result<Buffer> {
    let words = counts.iter().map(|n| order_words(order(size(*n), a, b)));
    let words: Vec<[i32; 2]> = words.collect::<Result<_>>()?;
    queue.upload_ints(words.as_flattened())
}

fn ints(counts: &[usize]) -> Result<Vec<i32>> {
    counts.iter().map(|n| int(*n)).collect()
}

/// Convolves windows of neighbouring positions, as [`fl_nets::ops::conv1d`].
///
/// # Errors
/// If the card fails, or a size is too large for it.
pub fn conv1d(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    [weight, bias]: [Range<usize>; 2],
    kernel: usize,
    counts: Vec<usize>,
) -> Result<Value> {
    let (rows, positions, channels, out) = (x.rows, x.shape[0], x.shape[1], bias.len());
    let windows = positions + 1 - kernel;
    let (size_in, size_out, taps) = (x.width(), windows * out, kernel * channels);
    let counted = Arc::new(queue.upload_ints(&ints(&counts)?)?);
    let made = queue.room(rows * size_out)?;
    let w = Matrix::new(Position(&weights.data, weight.start), taps).transposed();
    let all = Matrix::new(Position(&x.data, 0), channels);
    let steps = [all.steps(), w.steps()];
    let orders_there = orders(queue, &counts, |n| [n, taps, out], steps)?;
    let texts = Texts {
        items: rows,
        a_ld: size_in,
        counts: &counted,
        orders: &orders_there,
        zeros: true,
    };
    let (size, to) = ([windows, taps, out], Position(&made, 0));
    let start = Some(Position(&weights.data, bias.start));
    product(queue, size, [all, w], start, false, to, Some(&texts))?;
    let shape: Argument<'static> = [
        int(positions)?,
        int(channels)?,
        int(windows)?,
        int(kernel)?,
        int(out)?,
    ]
    .into();
    let wanted = x.key.is_some() || weights.gradient.is_some();
    let (x, weights, queue) = (x.clone(), weights.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        if let Some(gradient) = &weights.gradient {
            let steps = [[1, out], [channels, 1]];
            let how = orders(&queue, &counts, |n| [out, n, taps], steps)?;
            queue.each(
                "conv1d_back_weight",
                weight.len(),
                &arguments![
                    rows,
                    shape,
                    &*counted,
                    &how,
                    &*x.data,
                    &slope,
                    Position(gradient, weight.start)
                ],
            )?;
            queue.each(
                "conv1d_back_bias",
                out,
                &arguments![
                    rows,
                    shape,
                    &*counted,
                    &slope,
                    Position(gradient, bias.start)
                ],
            )?;
        }
        let Some(key) = x.key else { return Ok(()) };
        let by_window = queue.room(rows * windows * taps)?;
        let (g, w) = (
            Matrix::new(Position(&slope, 0), out),
            Matrix::new(Position(&weights.data, weight.start), taps),
        );
        let how = orders(&queue, &counts, |n| [n, out, taps], [g.steps(), w.steps()])?;
        let texts = Texts {
            items: rows,
            a_ld: size_out,
            counts: &counted,
            orders: &how,
            zeros: false,
        };
        let (size, to) = ([windows, out, taps], Position(&by_window, 0));
        product(&queue, size, [g, w], None, false, to, Some(&texts))?;
        let n = x.data.len();
        let back = queue.room(n)?;
        let arguments = arguments![n, shape, &*counted, &by_window, &back];
        queue.each("conv1d_back_input", n, &arguments)?;
        grads.give(key, back)
    });
    Ok(Value {
        data: Arc::new(made),
        rows,
        shape: vec![windows, out],
        key,
    })
}

/// Computes the largest number of each channel over the counted positions, as
/// [`fl_nets::ops::max_over_time`].
///
/// # Errors
/// If the card fails.
pub fn max_over_time(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    counts: &[usize],
) -> Result<Value> {
    let (rows, positions, channels) = (x.rows, x.shape[0], x.shape[1]);
    let (n, len) = (rows * channels, x.data.len());
    let counts = queue.upload_ints(&ints(counts)?)?;
    let (out, from) = (queue.room(n)?, queue.room(n)?);
    let arguments = arguments![n, positions, channels, &counts, &*x.data, &out, &from];
    queue.each("max_over_time", n, &arguments)?;
    let queue = queue.clone();
    Ok(x.then(record, out, vec![channels], move |slope| {
        let back = queue.room(len)?;
        let arguments = arguments![len, positions, channels, &slope, &from, &back];
        queue.each("max_over_time_back", len, &arguments)?;
        Ok(back)
    }))
}
