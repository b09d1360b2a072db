//! Every operation against a plain loop, and its derivative against finite differences.
//!
//! Derivatives are checked through `sum(c * op(x))` with fixed `c`, by central differences in the
//! inputs and weights. The operations are f32, so the step is large (1e-2) and exact only for
//! functions that are linear over the step. Convolutions, linear layers and pools are, unless a
//! relu has its kink or a pool changes its winner in between. So their inputs are spaced multiples
//! of 0.1 in a scrambled order, more than two steps apart, and inputs of relus are at least 0.05
//! away from 0. Curved functions (tanh, sigmoid, batch norm) get a tolerance for the third
//! derivative.

mod conv;
mod recurrent;
mod words;

use super::*;
use crate::tape::{Key, Record, Value, Weights};
use fl_core::Stream;
use std::sync::Arc;

fn value(data: Vec<f32>, shape: &[usize]) -> Value {
    let rows = data.len() / shape.iter().product::<usize>();
    Value {
        data: Arc::new(data.into()),
        rows,
        shape: shape.to_vec(),
        key: Some(Key::new()),
    }
}

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut draws = Stream::root(seed).draws();
    (0..n)
        .map(|_| (draws.uniform() * 2.0 - 1.0) as f32)
        .collect()
}

/// Returns different multiples of 0.1 around 0, none of them 0, in a random order.
fn spaced(n: usize, seed: u64) -> Vec<f32> {
    let order = Stream::root(seed).draws().permutation(n);
    order
        .into_iter()
        .map(|i| (i as f32 - (n / 2) as f32) * 0.1 + 0.05)
        .collect()
}

/// Compares the derivatives of `sum(c * f(x, w))` by `x` and `w` with central differences.
fn check(
    name: &str,
    x: &Value,
    w: Vec<f32>,
    tolerance: f32,
    f: impl Fn(&mut Record, &Value, &Weights) -> Value,
) {
    let weights = |data: Vec<f32>| Weights {
        data: Arc::new(data),
        key: Some(Key::new()),
    };
    let all = weights(w.clone());
    let size = f(&mut Record::off(), x, &all).data.len();
    let c = random(size, 99);
    let score = |x: &Value, w: &Weights| -> f64 {
        let y = f(&mut Record::off(), x, w);
        y.data
            .iter()
            .zip(&c)
            .map(|(y, c)| f64::from(*y) * f64::from(*c))
            .sum()
    };
    let step = 1e-2;
    let compare = |what: &str, exact: &[f32], numeric: &dyn Fn(usize, f32) -> f64| {
        for (i, e) in exact.iter().enumerate() {
            let n = ((numeric(i, step) - numeric(i, -step)) / f64::from(2.0 * step)) as f32;
            assert!(
                (n - e).abs() <= tolerance * (1.0 + n.abs()),
                "{name}: d/d{what}[{i}] is {e}, by differences {n}"
            );
        }
    };
    let mut record = Record::on();
    let y = f(
        &mut record,
        x,
        &Weights {
            key: None,
            ..all.clone()
        },
    );
    let by_x = record
        .backward(&y, c.clone(), x.key.as_ref().unwrap(), Vec::new())
        .unwrap();
    compare("x", &by_x, &|i, d| {
        let mut moved = x.data.to_vec();
        moved[i] += d;
        score(
            &Value {
                data: Arc::new(moved.into()),
                ..x.clone()
            },
            &all,
        )
    });
    if !w.is_empty() {
        let mut record = Record::on();
        let y = f(
            &mut record,
            &Value {
                key: None,
                ..x.clone()
            },
            &all,
        );
        let by_w = record
            .backward(&y, c.clone(), all.key.as_ref().unwrap(), vec![7.0; w.len()])
            .unwrap();
        compare("w", &by_w, &|i, d| {
            let mut moved = w.clone();
            moved[i] += d;
            score(x, &weights(moved))
        });
    }
}

#[test]
fn a_relu_on_the_way_out_is_a_relu_after() {
    let s = ConvShape {
        channels: 2,
        height: 6,
        width: 6,
        out: 3,
        kernel: 3,
        stride: 1,
        pad: 1,
    };
    let n = s.out * s.taps();
    let x = value(random(2 * 72, 1), &[2, 6, 6]);
    let w = Weights {
        data: Arc::new(random(n + 3, 2)),
        key: None,
    };
    let v = Weights {
        data: Arc::new(random(108 * 4 + 4, 3)),
        key: None,
    };
    let pass = |fused: bool| {
        let mut record = Record::on();
        let apart = |r: &mut Record, y: Value| {
            if fused {
                y
            } else {
                activate(r, &y, Activation::Relu)
            }
        };
        let h = conv2d(&mut record, &x, &w, &s, 0..n, Some(n..n + 3), fused);
        let h = apart(&mut record, h);
        let h = Value {
            shape: vec![h.width()],
            ..h
        };
        let y = linear(&mut record, &h, &v, 0..432, Some(432..436), fused);
        let y = apart(&mut record, y);
        let back = record.backward(&y, vec![1.0; 8], x.key.as_ref().unwrap(), Vec::new());
        (y.data.to_vec(), back.unwrap())
    };
    assert_eq!(pass(true), pass(false));
    assert!(pass(true).0.contains(&0.0) && pass(true).0.iter().any(|y| *y > 0.0));
}

#[test]
fn a_linear_layer_is_the_plain_loop_and_its_derivative_the_difference() {
    for (rows, inputs, outputs) in [(1, 1, 1), (3, 7, 5), (5, 33, 17)] {
        let n = inputs * outputs;
        let (x, w) = (
            value(random(rows * inputs, 1), &[inputs]),
            random(n + outputs, 2),
        );
        let run = |r: &mut Record, x: &Value, w: &Weights| {
            linear(r, x, w, 0..n, Some(n..n + outputs), false)
        };
        let y = run(
            &mut Record::off(),
            &x,
            &Weights {
                data: Arc::new(w.clone()),
                key: None,
            },
        );
        for r in 0..rows {
            for o in 0..outputs {
                let sum: f32 = (0..inputs)
                    .map(|i| x.data[r * inputs + i] * w[o * inputs + i])
                    .sum();
                assert!((y.data[r * outputs + o] - sum - w[n + o]).abs() < 1e-5);
            }
        }
        check("linear", &x, w, 2e-3, run);
    }
}

#[test]
fn pools_are_the_plain_loop_and_their_derivatives_the_difference() {
    for [height, width, kernel, stride] in [
        [4, 4, 2, 2],
        [5, 7, 2, 2],
        [7, 5, 3, 2],
        [6, 6, 3, 1],
        [4, 4, 4, 4],
    ] {
        let shape = PoolShape {
            channels: 2,
            height,
            width,
            kernel,
            stride,
        };
        let x = value(spaced(2 * 2 * height * width, 1), &[2, height, width]);
        let [_, out_height, out_width] = shape.out();
        let (most, mean) = (
            max_pool(&mut Record::off(), &x, &shape),
            average_pool(&mut Record::off(), &x, &shape),
        );
        for (i, (a, b)) in most.data.iter().zip(mean.data.iter()).enumerate() {
            let (plane, y, z) = (
                i / (out_height * out_width),
                i / out_width % out_height,
                i % out_width,
            );
            let window: Vec<f32> = (0..kernel * kernel)
                .map(|k| {
                    x.data[(plane * height + y * stride + k / kernel) * width
                        + z * stride
                        + k % kernel]
                })
                .collect();
            assert_eq!(*a, window.iter().copied().fold(f32::MIN, f32::max));
            assert!((b - window.iter().sum::<f32>() / window.len() as f32).abs() < 1e-5);
        }
        check("max pool", &x, vec![], 2e-3, |r, x, _| {
            max_pool(r, x, &shape)
        });
        check("average pool", &x, vec![], 2e-3, |r, x, _| {
            average_pool(r, x, &shape)
        });
    }
}

#[test]
fn of_equal_numbers_the_first_wins_and_alone_gets_the_gradient() {
    let shape = PoolShape {
        channels: 1,
        height: 2,
        width: 2,
        kernel: 2,
        stride: 2,
    };
    let x = value(vec![1.0, 3.0, 3.0, 3.0], &[1, 2, 2]);
    let mut record = Record::on();
    let y = max_pool(&mut record, &x, &shape);
    let back = record
        .backward(&y, vec![5.0], x.key.as_ref().unwrap(), Vec::new())
        .unwrap();
    assert_eq!((y.data[0], back), (3.0, vec![0.0, 5.0, 0.0, 0.0]));
}

#[test]
fn activations_have_the_derivatives_that_differences_say() {
    let x = value(spaced(20, 1), &[10]);
    for f in [
        Activation::Relu,
        Activation::LeakyRelu(0.2),
        Activation::Tanh,
        Activation::Sigmoid,
    ] {
        check(&format!("{f:?}"), &x, vec![], 2e-3, |r, x, _| {
            activate(r, x, f)
        });
    }
    assert_eq!(
        activate(
            &mut Record::off(),
            &value(vec![-2.0, 3.0], &[2]),
            Activation::LeakyRelu(0.5)
        )
        .data[..],
        [-1.0, 3.0]
    );
    let nan = activate(
        &mut Record::off(),
        &value(vec![f32::NAN], &[1]),
        Activation::Relu,
    );
    assert!(nan.data[0].is_nan(), "a relu must not hide a NaN");
}

#[test]
fn a_sum_sends_its_gradient_both_ways() {
    let x = value(spaced(12, 1), &[6]);
    check("add", &x, vec![], 2e-3, |r, x, _| {
        let double = add(r, x, x, false);
        add(r, &double, x, true)
    });
}

#[test]
fn channels_stand_side_by_side_and_their_gradients_part() {
    let x = value(random(2 * 2 * 6, 1), &[2, 2, 3]);
    let y = concat(&mut Record::off(), &x, &upsample(&mut Record::off(), &x, 1));
    assert_eq!(y.shape, [4, 2, 3]);
    assert_eq!(y.data[..12], x.data[..12]);
    assert_eq!(y.data[12..24], x.data[..12]);
    assert_eq!(y.data[24..36], x.data[12..]);
    check("concat", &x, vec![], 2e-3, |r, x, _| {
        let bent = activate(r, x, Activation::Tanh);
        concat(r, x, &bent)
    });
}

#[test]
fn nearest_upsampling_repeats_and_its_gradient_sums() {
    let x = value(random(2 * 2 * 6, 1), &[2, 2, 3]);
    let y = upsample(&mut Record::off(), &x, 2);
    assert_eq!(y.shape, [2, 4, 6]);
    assert_eq!(y.data[..6], [0, 0, 1, 1, 2, 2].map(|i| x.data[i]));
    assert_eq!(y.data[..6], y.data[6..12]);
    check("upsample", &x, vec![], 2e-3, |r, x, _| upsample(r, x, 2));
}

#[test]
fn dropout_keeps_the_mean_and_drops_the_same_gradient() {
    let stream = Stream::root(3);
    let x = value(vec![1.0; 20_000], &[100]);
    let run = |r: &mut Record, x: &Value| dropout(r, x, 0.25, &mut stream.draws());
    let y = run(&mut Record::off(), &x);
    assert!(
        y.data
            .iter()
            .all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6)
    );
    let mean = y.data.iter().sum::<f32>() / 20_000.0;
    assert!((mean - 1.0).abs() < 0.02, "{mean}");
    let small = value(random(30, 1), &[30]);
    check("dropout", &small, vec![], 2e-3, |r, x, _| run(r, x));
}

#[test]
fn batch_norm_is_the_formula_and_its_derivative_the_difference() {
    for shape in [vec![2, 3, 4], vec![3, 1, 1]] {
        let (channels, width) = (shape[0], shape.iter().product::<usize>());
        let run = width / channels;
        let x = value(random(4 * width, 1), &shape);
        let w: Vec<f32> = random(2 * channels, 2).iter().map(|v| v + 1.5).collect();
        let weights = Weights {
            data: Arc::new(w.clone()),
            key: None,
        };
        let train =
            |r: &mut Record, x: &Value, w: &Weights, mean: &mut [f32], variance: &mut [f32]| {
                let statistics = Statistics::Batch { mean, variance };
                batch_norm(
                    r,
                    x,
                    w,
                    Some([0..channels, channels..2 * channels]),
                    statistics,
                    false,
                )
                .unwrap()
            };
        let (mut mean, mut variance) = (vec![0.0; channels], vec![1.0; channels]);
        let y = train(&mut Record::off(), &x, &weights, &mut mean, &mut variance);
        for c in 0..channels {
            let of = |data: &[f32]| -> Vec<f64> {
                data.chunks(run)
                    .skip(c)
                    .step_by(channels)
                    .flatten()
                    .map(|v| f64::from(*v))
                    .collect()
            };
            let (from, to) = (of(&x.data), of(&y.data));
            let n = from.len() as f64;
            let m = from.iter().sum::<f64>() / n;
            let v = from.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n;
            assert!(
                (f64::from(mean[c]) - 0.1 * m).abs() < 1e-6,
                "the running mean moves by a tenth"
            );
            assert!(
                (f64::from(variance[c]) - 0.9 - 0.1 * v * n / (n - 1.0)).abs() < 1e-6,
                "the running variance is unbiased"
            );
            for (x, y) in from.iter().zip(to) {
                let exact =
                    (x - m) / (v + 1e-5).sqrt() * f64::from(w[c]) + f64::from(w[channels + c]);
                assert!((y - exact).abs() < 1e-5, "{y} {exact}");
            }
        }
        // curved: differences over 1e-2 are off by a third derivative, about 1e-4 here
        check("batch norm", &x, w.clone(), 5e-3, |r, x, w| {
            train(r, x, w, &mut vec![0.0; channels], &mut vec![1.0; channels])
        });
        check("batch norm, running", &x, w, 2e-3, |r, x, w| {
            let statistics = Statistics::Running {
                mean: &mean,
                variance: &variance,
            };
            batch_norm(
                r,
                x,
                w,
                Some([0..channels, channels..2 * channels]),
                statistics,
                false,
            )
            .unwrap()
        });
    }
}

#[test]
fn batch_norm_refuses_a_single_number() {
    let weights = Weights {
        data: Arc::new(vec![1.0, 0.0]),
        key: None,
    };
    let statistics = Statistics::Batch {
        mean: &mut [0.0],
        variance: &mut [1.0],
    };
    let one = batch_norm(
        &mut Record::off(),
        &value(vec![3.0], &[1]),
        &weights,
        Some([0..1, 1..2]),
        statistics,
        false,
    );
    assert!(one.unwrap_err().to_string().contains("no variance"));
}

#[test]
fn sample_norm_is_the_formula_and_its_derivative_the_difference() {
    // one group with weights of each number is layer normalisation
    for (shape, groups, channels) in [
        (vec![2, 3, 4], 1, 24),
        (vec![5], 1, 5),
        (vec![4, 3, 2], 2, 4),
        (vec![3, 2, 2], 3, 3),
        (vec![6], 2, 6),
    ] {
        let width = shape.iter().product::<usize>();
        let x = value(random(4 * width, 1), &shape);
        let w: Vec<f32> = random(2 * channels, 2).iter().map(|v| v + 1.5).collect();
        let weights = Weights {
            data: Arc::new(w.clone()),
            key: None,
        };
        let norm = |r: &mut Record, x: &Value, w: &Weights| {
            sample_norm(r, x, w, groups, [0..channels, channels..2 * channels]).unwrap()
        };
        let y = norm(&mut Record::off(), &x, &weights);
        assert_eq!((y.rows, &y.shape), (4, &shape));
        let (size, run) = (width / groups, width / channels);
        for (at, (from, to)) in x.data.chunks(size).zip(y.data.chunks(size)).enumerate() {
            let from: Vec<f64> = from.iter().map(|v| f64::from(*v)).collect();
            let n = size as f64;
            let m = from.iter().sum::<f64>() / n;
            let v = from.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n;
            for (within, (x, y)) in from.iter().zip(to).enumerate() {
                let channel = (at % groups * size + within) / run;
                let (scale, shift) = (f64::from(w[channel]), f64::from(w[channels + channel]));
                let exact = (x - m) / (v + 1e-5).sqrt() * scale + shift;
                assert!((f64::from(*y) - exact).abs() < 1e-5, "{y} {exact}");
            }
        }
        check("sample norm", &x, w, 5e-3, norm);
    }
}
