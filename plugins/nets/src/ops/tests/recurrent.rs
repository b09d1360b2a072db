//! A memory over a sequence, and its last position.

use super::*;
use crate::examples::ExampleSlopes;
use std::cell::RefCell;
use std::rc::Rc;

const COUNTS: [usize; 3] = [5, 1, 3];

/// The outputs by the equations (PyTorch's `LSTM`), in 64 bits.
fn by_hand(x: &[f32], w: &[f32], channels: usize, units: usize) -> Vec<f64> {
    let (by_input, rest) = w.split_at(4 * units * channels);
    let (by_output, bias) = rest.split_at(4 * units * units);
    let sigmoid = |z: f64| 1.0 / (1.0 + libm::exp(-z));
    let dot =
        |w: &[f32], v: &[f64]| -> f64 { w.iter().zip(v).map(|(w, v)| f64::from(*w) * v).sum() };
    let (mut out, mut state, mut all) = (vec![0.0; units], vec![0.0; units], vec![]);
    for now in x.chunks_exact(channels) {
        let now: Vec<f64> = now.iter().map(|v| f64::from(*v)).collect();
        let gate = |at: usize| {
            let input = dot(&by_input[at * channels..][..channels], &now);
            input + dot(&by_output[at * units..][..units], &out) + f64::from(bias[at])
        };
        let gates: Vec<f64> = (0..4 * units).map(gate).collect();
        for u in 0..units {
            let [input, forget, open] = [0, 1, 3].map(|g| sigmoid(gates[g * units + u]));
            state[u] = forget * state[u] + input * libm::tanh(gates[2 * units + u]);
            out[u] = open * libm::tanh(state[u]);
        }
        all.extend(&out);
    }
    all
}

fn tensors(channels: usize, units: usize) -> [std::ops::Range<usize>; 3] {
    let (a, b) = (4 * units * channels, 4 * units * (channels + units));
    [0..a, a..b, b..b + 4 * units]
}

#[test]
fn an_lstm_is_its_equations_and_its_derivative_the_difference() {
    for [channels, units] in [[1, 1], [3, 2], [2, 5], [9, 3]] {
        let ranges = tensors(channels, units);
        let x = value(random(3 * 5 * channels, 1), &[5, channels]);
        let w = random(ranges[2].end, 2);
        let weights = Weights {
            data: Arc::new(w.clone()),
            key: None,
        };
        let run =
            |r: &mut Record, x: &Value, w: &Weights| lstm(r, x, w, ranges.clone(), COUNTS.to_vec());
        let y = run(&mut Record::off(), &x, &weights);
        assert_eq!((y.rows, &y.shape[..]), (3, &[5, units][..]));
        for (sample, n) in COUNTS.iter().enumerate() {
            let size = 5 * channels;
            let mut due = by_hand(&x.data[sample * size..][..size], &w, channels, units);
            due[n * units..].fill(0.0);
            let found = &y.data[sample * 5 * units..][..5 * units];
            for (at, (found, due)) in found.iter().zip(&due).enumerate() {
                let off = (f64::from(*found) - due).abs();
                assert!(
                    off < 1e-6,
                    "{sample}, {at}: {found}, the equations say {due}"
                );
            }
        }
        check(&format!("lstm of {units} units"), &x, w, 1e-3, run);
    }
}

/// The gradients of the examples add up to that of the batch, and none depends on the others.
#[test]
fn an_lstm_gives_the_gradients_of_single_examples() {
    let (channels, units) = (4, 6);
    let ranges = tensors(channels, units);
    let n = ranges[2].end;
    let weights = Weights {
        data: Arc::new(random(n, 2)),
        key: Some(Key::new()),
    };
    let x = Value {
        key: None,
        ..value(random(3 * 5 * channels, 1), &[5, channels])
    };
    let key = weights.key.as_ref().unwrap();
    let sum = |x: &Value, counts: &[usize]| {
        let examples = Rc::new(RefCell::new(ExampleSlopes::new(x.rows)));
        let mut record = Record::of_examples(&examples);
        let y = lstm(&mut record, x, &weights, ranges.clone(), counts.to_vec());
        let slope = vec![1.0; y.data.len()];
        record.backward(&y, slope, key, vec![0.0; n]).unwrap();
        let mut sums = vec![0.0; n];
        examples.borrow().add_to(&vec![1.0; x.rows], &mut sums);
        sums
    };
    let mut record = Record::on();
    let y = lstm(&mut record, &x, &weights, ranges.clone(), COUNTS.to_vec());
    let slope = vec![1.0; y.data.len()];
    let whole = record.backward(&y, slope, key, vec![7.0; n]).unwrap();
    let together = sum(&x, &COUNTS);
    for (whole, sum) in whole.iter().zip(&together) {
        assert!((f64::from(*whole) - sum).abs() < 1e-5, "{whole} {sum}");
    }
    let mut alone = vec![0.0; n];
    for (at, count) in COUNTS.iter().enumerate() {
        let size = 5 * channels;
        let one = value(x.data[at * size..][..size].to_vec(), &[5, channels]);
        let one = sum(&Value { key: None, ..one }, &[*count]);
        alone.iter_mut().zip(one).for_each(|(s, g)| *s += g);
    }
    assert_eq!(alone, together);
}

#[test]
fn the_last_position_is_the_last_that_counts() {
    let x = value(random(3 * 5 * 4, 1), &[5, 4]);
    let y = last(&mut Record::off(), &x, COUNTS.to_vec());
    assert_eq!((y.rows, &y.shape[..]), (3, &[4][..]));
    for (sample, n) in COUNTS.iter().enumerate() {
        let due = &x.data[(sample * 5 + n - 1) * 4..][..4];
        assert_eq!(&y.data[sample * 4..][..4], due);
    }
    check("last", &x, vec![], 2e-3, |r, x, _| {
        last(r, x, COUNTS.to_vec())
    });
}
