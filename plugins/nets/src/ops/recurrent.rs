//! Sequences with a memory: LSTM, and the last position of a sequence.
//!
//! A sample is `positions x channels`, as in [`super::words`], and `counts` gives the number of
//! positions of each sample that count. Values beyond them are 0 and have no gradient.

use super::channel_sums;
use super::matrix::{Matrix, matrix};
use super::product::{product, product_as};
use crate::buffer::Buffer;
use crate::curves::{Sigmoid, Tanh};
use crate::simd::{run, vectorised};
use crate::tape::{Record, Value, Weights};
use std::ops::Range;
use std::sync::Arc;

/// Returns position `at` of all samples as a matrix, for `samples x positions x width` numbers.
fn position(all: &[f32], positions: usize, width: usize, at: usize) -> Matrix<'_> {
    matrix(&all[at * width..], positions * width)
}

/// Sets the numbers beyond the end of each sample to 0.
fn end(all: &mut [f32], positions: usize, width: usize, counts: &[usize]) {
    for (sample, n) in all.chunks_exact_mut(positions * width).zip(counts) {
        sample[n * width..].fill(0.0);
    }
}

/// Computes the outputs of an LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et
/// al. 2000) at each position, from an output and a state of 0. `by_input` is `4 units x channels`,
/// `by_output` is `4 units x units`, and `bias` has `4 units` numbers; the gates come in PyTorch's
/// order: input, forget, candidate, output.
pub fn lstm(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    [by_input, by_output, bias]: [Range<usize>; 3],
    counts: Vec<usize>,
) -> Value {
    let (rows, positions, channels) = (x.rows, x.shape[0], x.shape[1]);
    let (gate_width, as_rows) = (bias.len(), record.rows(rows));
    let units = gate_width / 4;
    let all = positions * rows;
    // of a position: the gates, and the state after it; position after position
    let mut gates = Buffer::any(all * gate_width);
    let mut states = Buffer::filled((positions + 1) * rows * units, 0.0);
    let mut data = Buffer::any(all * units);
    let numbers = |range: &Range<usize>| &weights.data[range.clone()];
    let from_input = matrix(numbers(&by_input), channels).transposed();
    let from_output = matrix(numbers(&by_output), units).transposed();
    for (at, gates) in gates.chunks_exact_mut(rows * gate_width).enumerate() {
        let biased = gates.chunks_exact_mut(gate_width);
        biased.for_each(|row| row.copy_from_slice(numbers(&bias)));
        let now = position(&x.data, positions, channels, at);
        let size = [rows, channels, gate_width];
        product_as(as_rows, size, &now, &from_input, gates, true);
        if let Some(before) = at.checked_sub(1) {
            let before = position(&data, positions, units, before);
            let size = [rows, units, gate_width];
            product_as(as_rows, size, &before, &from_output, gates, true);
        }
        let (before, after) = states[at * rows * units..].split_at_mut(rows * units);
        let states = before
            .chunks_exact(units)
            .zip(after.chunks_exact_mut(units));
        for (row, (gates, (before, state))) in
            gates.chunks_exact_mut(gate_width).zip(states).enumerate()
        {
            run(Sigmoid(&mut gates[..2 * units]));
            run(Tanh(&mut gates[2 * units..3 * units]));
            run(Sigmoid(&mut gates[3 * units..]));
            let out = &mut data[(row * positions + at) * units..][..units];
            vectorised(
                #[inline(always)]
                || {
                    for (u, state) in state.iter_mut().enumerate() {
                        *state = gates[units + u] * before[u] + gates[u] * gates[2 * units + u];
                    }
                },
            );
            out.copy_from_slice(state);
            run(Tanh(out));
            out.iter_mut()
                .zip(&gates[3 * units..])
                .for_each(|(h, o)| *h *= o);
        }
    }
    end(&mut data, positions, units, &counts);
    let data = Arc::new(data);

    let wanted = x.key.is_some() || weights.key.is_some();
    let (x, weights, out) = (x.clone(), weights.clone(), data.clone());
    let key = record.note(wanted, move |mut slope, grads| {
        end(&mut slope, positions, units, &counts);
        // by the gates before their curves; sample after sample
        let mut by_gates = Buffer::any(all * gate_width);
        let mut by_state = vec![0.0; rows * units];
        let mut by_out = vec![0.0; rows * units];
        let mut reached = vec![0.0; units];
        let from_output = matrix(&weights.data[by_output.clone()], units);
        for at in (0..positions).rev() {
            let after = at + 1;
            if after < positions {
                let after = position(&by_gates, positions, gate_width, after);
                let size = [rows, gate_width, units];
                product_as(as_rows, size, &after, &from_output, &mut by_out, false);
            } else {
                by_out.fill(0.0)
            }
            for row in 0..rows {
                let place = row * positions + at;
                let of = |width: usize| (at * rows + row) * width;
                let gates = &gates[of(gate_width)..][..gate_width];
                let before = &states[of(units)..][..units];
                reached.copy_from_slice(&states[of(units) + rows * units..][..units]);
                run(Tanh(&mut reached));
                let slope = &slope[place * units..][..units];
                let back = &mut by_gates[place * gate_width..][..gate_width];
                let by_state = &mut by_state[row * units..][..units];
                let by_out = &by_out[row * units..][..units];
                for (u, reached) in reached.iter().enumerate() {
                    let [input, forget, new, open] =
                        [0, 1, 2, 3].map(|gate| gates[gate * units + u]);
                    let by_out = by_out[u] + slope[u];
                    let by_new_state = by_out * open * (1.0 - reached * reached) + by_state[u];
                    back[u] = by_new_state * new * input * (1.0 - input);
                    back[units + u] = by_new_state * before[u] * forget * (1.0 - forget);
                    back[2 * units + u] = by_new_state * input * (1.0 - new * new);
                    back[3 * units + u] = by_out * reached * open * (1.0 - open);
                    by_state[u] = by_new_state * forget;
                }
            }
        }
        if let Some(key) = &weights.key {
            // the outputs, one position later
            let mut earlier = Buffer::filled(all * units, 0.0);
            let size = positions * units;
            for (to, from) in earlier.chunks_exact_mut(size).zip(out.chunks_exact(size)) {
                to[units..].copy_from_slice(&from[..size - units]);
            }
            // of the positions of some samples
            let set = |from: usize, n: usize, to: [&mut [f32]; 3]| {
                let slopes = &by_gates[from * gate_width..][..n * gate_width];
                let turned = matrix(slopes, gate_width).transposed();
                let [to_input, to_output, to_bias] = to;
                let x = matrix(&x.data[from * channels..][..n * channels], channels);
                product([gate_width, n, channels], &turned, &x, to_input, false);
                let earlier = matrix(&earlier[from * units..][..n * units], units);
                product([gate_width, n, units], &turned, &earlier, to_output, false);
                channel_sums(slopes, gate_width, 1, to_bias);
            };
            let ranges = [by_input.clone(), by_output, bias];
            match grads.examples() {
                Some(mut examples) => {
                    examples.add_each(ranges, |row, to| set(row * positions, positions, to));
                }
                None => {
                    let to = grads.weights(key)?.get_disjoint_mut(ranges);
                    set(0, all, to.expect("tensors of a network do not overlap"));
                }
            }
        }
        let Some(key) = &x.key else { return Ok(()) };
        let mut back = Buffer::any(rows * x.width());
        let w = matrix(&weights.data[by_input], channels);
        let samples = back.chunks_exact_mut(positions * channels);
        for (back, slopes) in samples.zip(by_gates.chunks_exact(positions * gate_width)) {
            let size = [positions, gate_width, channels];
            product(size, &matrix(slopes, gate_width), &w, back, false);
        }
        grads.give(key, back)
    });
    Value {
        data,
        rows,
        shape: vec![positions, units],
        key,
    }
}

/// Returns the last of the first `counts` positions of each sample.
pub fn last(record: &mut Record, x: &Value, counts: Vec<usize>) -> Value {
    let (rows, size, channels) = (x.rows, x.width(), x.shape[1]);
    let mut data = Buffer::room(rows * channels);
    let ends = move |row: usize| row * size + (counts[row] - 1) * channels;
    for row in 0..rows {
        data.extend(x.data[ends(row)..][..channels].iter().copied());
    }
    let len = x.data.len();
    x.then(record, data, vec![channels], move |slope| {
        let mut back = Buffer::filled(len, 0.0);
        for (row, slope) in slope.chunks_exact(channels).enumerate() {
            back[ends(row)..][..channels].copy_from_slice(slope);
        }
        back
    })
}
