//! Texts as sequences: rows of learnt numbers for their words, a convolution along them, the
//! largest number over them.
//!
//! A sample is `positions x channels`, word after word. A window of neighbouring words is therefore
//! one slice, and a convolution along the words is one matrix product for each text, over rows that
//! overlap. Values beyond a text's end are 0, are not computed, and have no gradient: `counts`
//! gives the number of positions of each sample that count.

use super::channel_sums;
use super::matrix::matrix;
use super::product::product;
use crate::buffer::Buffer;
use crate::tape::{Record, Value, Weights};
use anyhow::bail;
use fl_core::{Problem, Result};
use std::ops::Range;
use std::sync::Arc;

/// Checks that all of these are word numbers, `words` per sample.
///
/// # Errors
/// Names the first that is not a whole number from 0 to the vocabulary.
pub fn check_words(x: &[f32], words: usize, vocabulary: usize) -> Result<()> {
    let known = |n: &f32| n.fract() == 0.0 && (0.0..=vocabulary as f32).contains(n);
    let Some(at) = x.iter().position(|n| !known(n)) else {
        return Ok(());
    };
    let (place, n) = (
        format!("word {} of sample {}", at % words, at / words),
        x[at],
    );
    bail!(Problem::Shape(format!(
        "embedding: {place} of the batch is {n}; it must be a whole number from 0 (no word) to {vocabulary}"
    )))
}

/// Looks up for each word number `n` of `x` row `n - 1` of `table`, `vocabulary x width`; 0 is no
/// word and becomes zeros.
///
/// # Errors
/// If `x` holds anything but whole numbers from 0 to the vocabulary; names the first such position.
pub fn embedding(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    table: Range<usize>,
    width: usize,
) -> Result<Value> {
    let vocabulary = table.len() / width;
    let words = x.width();
    let mut data = Buffer::filled(x.data.len() * width, 0.0);
    let entries = &weights.data[table.clone()];
    check_words(&x.data, words, vocabulary)?;
    for (out, n) in data.chunks_exact_mut(width).zip(x.data.iter()) {
        if let Some(entry) = (*n as usize).checked_sub(1) {
            out.copy_from_slice(&entries[entry * width..][..width]);
        }
    }
    let (x, rows, to) = (x.data.clone(), x.rows, weights.key.clone());
    let key = record.note(to.is_some(), move |slope, grads| {
        let Some(key) = to else { return Ok(()) };
        let add = |sums: &mut [f32], x: &[f32], slope: &[f32]| {
            for (n, slope) in x.iter().zip(slope.chunks_exact(width)) {
                if let Some(entry) = (*n as usize).checked_sub(1) {
                    let sums = &mut sums[entry * width..][..width];
                    sums.iter_mut().zip(slope).for_each(|(s, g)| *s += g);
                }
            }
        };
        if let Some(mut examples) = grads.examples() {
            examples.add_each([table], |row, [sums]| {
                let slope = &slope[row * words * width..][..words * width];
                add(sums, &x[row * words..][..words], slope);
            });
            return Ok(());
        }
        let sums = &mut grads.weights(&key)?[table];
        sums.fill(0.0);
        add(sums, &x, &slope);
        Ok(())
    });
    Ok(Value {
        data: Arc::new(data),
        rows,
        shape: vec![words, width],
        key,
    })
}

/// Computes the sums of windows of `kernel` neighbouring positions, times `weight`, plus `bias`,
/// for the first `counts` windows of each sample; zeros for the others. `weight` is
/// `out x kernel x channels`.
pub fn conv1d(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    [weight, bias]: [Range<usize>; 2],
    kernel: usize,
    counts: Vec<usize>,
) -> Value {
    let (rows, channels, out) = (x.rows, x.shape[1], bias.len());
    let windows = x.shape[0] + 1 - kernel;
    let (size_in, size_out, taps) = (x.width(), windows * out, kernel * channels);
    // windows begin one position apart, and each spans several positions
    let w = matrix(&weights.data[weight.clone()], taps);
    let mut data = Buffer::filled(rows * size_out, 0.0);
    let samples = x.data.chunks_exact(size_in);
    for ((out_rows, x), n) in data.chunks_exact_mut(size_out).zip(samples).zip(&counts) {
        let out_rows = &mut out_rows[..n * out];
        for row in out_rows.chunks_exact_mut(out) {
            row.copy_from_slice(&weights.data[bias.clone()]);
        }
        let size = [*n, taps, out];
        product(size, &matrix(x, channels), &w.transposed(), out_rows, true);
    }
    let wanted = x.key.is_some() || weights.key.is_some();
    let (x, weights) = (x.clone(), weights.clone());
    let key = record.note(wanted, move |slope, grads| {
        let slopes = || slope.chunks_exact(size_out).zip(&counts);
        let mut of_one = vec![0.0; out];
        let mut add = |row: usize, by_weight: &mut [f32], by_bias: &mut [f32]| {
            let x = &x.data[row * size_in..][..size_in];
            let (slope, n) = (&slope[row * size_out..][..counts[row] * out], counts[row]);
            let (by_window, windows) = (matrix(slope, out), matrix(x, channels));
            let size = [out, n, taps];
            product(size, &by_window.transposed(), &windows, by_weight, true);
            channel_sums(slope, out, 1, &mut of_one);
            by_bias.iter_mut().zip(&of_one).for_each(|(s, g)| *s += g);
        };
        if let Some(key) = &weights.key {
            let ranges = [weight.clone(), bias];
            match grads.examples() {
                Some(mut examples) => examples.add_each(ranges, |row, [w, b]| add(row, w, b)),
                None => {
                    let all = grads.weights(key)?;
                    let [by_weight, by_bias] = all
                        .get_disjoint_mut(ranges)
                        .expect("tensors of a network do not overlap");
                    by_weight.fill(0.0);
                    by_bias.fill(0.0);
                    (0..rows).for_each(|row| add(row, by_weight, by_bias));
                }
            }
        }
        let Some(key) = &x.key else { return Ok(()) };
        let w = matrix(&weights.data[weight], taps);
        let mut back = Buffer::filled(rows * size_in, 0.0);
        let mut of_windows = vec![0.0; windows * taps];
        for (back, (slope, n)) in back.chunks_exact_mut(size_in).zip(slopes()) {
            let of_windows = &mut of_windows[..n * taps];
            let by_window = matrix(&slope[..n * out], out);
            product([*n, out, taps], &by_window, &w, of_windows, false);
            for (at, of_window) in of_windows.chunks_exact(taps).enumerate() {
                let back = &mut back[at * channels..][..taps];
                back.iter_mut().zip(of_window).for_each(|(b, g)| *b += g);
            }
        }
        grads.give(key, back)
    });
    Value {
        data: Arc::new(data),
        rows,
        shape: vec![windows, out],
        key,
    }
}

/// Computes the largest number of each channel over the first `counts` positions of each sample;
/// the first on a tie. A NaN is the largest, so that the loss shows it.
pub fn max_over_time(record: &mut Record, x: &Value, counts: &[usize]) -> Value {
    let (rows, channels, size) = (x.rows, x.shape[1], x.width());
    let (mut data, mut from) = (Buffer::room(rows * channels), vec![]);
    for ((sample, x), n) in x.data.chunks_exact(size).enumerate().zip(counts) {
        let (first, start) = (data.len(), sample * size);
        data.extend(x[..channels].iter().copied());
        from.extend(start..start + channels);
        for (at, row) in x[..n * channels].chunks_exact(channels).enumerate().skip(1) {
            let most = data[first..].iter_mut().zip(&mut from[first..]);
            for (c, ((most, from), v)) in most.zip(row).enumerate() {
                if v > most || v.is_nan() {
                    (*most, *from) = (*v, start + at * channels + c);
                }
            }
        }
    }
    let len = x.data.len();
    x.then(record, data, vec![channels], move |slope| {
        let mut back = Buffer::filled(len, 0.0);
        from.iter()
            .zip(slope.iter())
            .for_each(|(at, g)| back[*at] += g);
        back
    })
}
