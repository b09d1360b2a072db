//! Each operation over many shapes: its result, and its gradients by inputs and weights.

use super::{Case, NO_KERNEL, compare, differ, numbers, queue};
use crate::cuda::driver::{Position, Queue};
use crate::cuda::linear::{Matrix, product};
use crate::cuda::{self, conv, linear, norm, optim, pointwise, pool, words};
use fl_core::{Draws, Result, Stream};
use fl_nets::ops::{self, Activation, ConvShape, PoolShape};
use fl_nets::optim::{self as cpu_optim, AdamMove, Move};
use fl_nets::tape::{Record, Value, Weights};
use std::sync::Arc;

type OnCpu<'a> = &'a dyn Fn(&mut Record, &Value, &Weights) -> Value;
type OnCard<'a> =
    &'a dyn Fn(&Queue, &mut cuda::Record, &cuda::Value, &cuda::Weights) -> Result<cuda::Value>;

/// Runs an operation on both, forward and backward; `words`: the inputs have no slope.
fn same(name: &str, case: &Case, words: bool, cpu: OnCpu<'_>, card: OnCard<'_>) {
    let back = if words { NO_KERNEL } else { "to inputs" };
    let cpu = |r: &mut Record, x: &Value, w: &Weights| Ok(cpu(r, x, w));
    let compared = compare(&queue(), ["there", back, "to weights"], case, &cpu, card);
    compared.unwrap_or_else(|how| panic!("{name}: {how:#}"));
}

fn draws(seed: u64) -> Draws {
    Stream::root(seed).draws()
}

fn up_to(most: usize, draws: &mut Draws) -> usize {
    1 + draws.below(most)
}

#[test]
fn exact_convolutions_of_any_stride_and_padding() {
    let d = &mut draws(1);
    for at in 0..150 {
        let kernel = up_to(5, d);
        let s = ConvShape {
            channels: up_to(4, d),
            height: kernel + up_to(9, d) - 1,
            width: kernel + up_to(12, d) - 1,
            out: up_to(8, d),
            kernel,
            stride: up_to(4, d),
            pad: d.below(kernel),
        };
        let n = s.out * s.taps();
        let (biased, relu) = (at % 3 != 0, at % 2 == 0);
        let bias = biased.then_some(n..n + s.out);
        let case = Case::new(
            up_to(4, d),
            &[s.channels, s.height, s.width],
            n + if biased { s.out } else { 0 },
            d,
        );
        same(
            &format!("{s:?}"),
            &case,
            false,
            &|r, x, w| ops::conv2d(r, x, w, &s, 0..n, bias.clone(), relu),
            &|q, r, x, w| conv::conv2d(q, r, x, w, &s, (0..n, bias.clone()), relu),
        );
    }
    // several groups of samples
    let s = ConvShape {
        channels: 3,
        height: 30,
        width: 30,
        out: 2,
        kernel: 3,
        stride: 1,
        pad: 1,
    };
    let case = Case::new(23, &[3, 30, 30], s.out * s.taps(), d);
    assert!(ops::conv_group(&s, 23) < 23, "the case has one group only");
    let n = case.w.len();
    same(
        "groups",
        &case,
        false,
        &|r, x, w| ops::conv2d(r, x, w, &s, 0..n, None, false),
        &|q, r, x, w| conv::conv2d(q, r, x, w, &s, (0..n, None), false),
    );
}

#[test]
fn exact_linear_layers_of_every_order_of_sums() {
    let d = &mut draws(2);
    let mut sizes = vec![
        (1, 700, 300),
        (1, 40, 300),
        (300, 90, 1),
        (300, 1, 1),
        (300, 1, 5),
        (1, 1, 1),
        (2, 5, 300),
        (1, 5, 300),
        (16, 1400, 10),
        (3, 1300, 70),
        (70, 600, 90),
        (100, 1100, 2),
        (65, 513, 65),
        (130, 40, 70),
        (64, 17, 129),
        (2, 2, 200),
        (20, 3, 20),
    ];
    for _ in 0..120 {
        sizes.push((up_to(40, d), up_to(150, d), up_to(60, d)));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (rows, inputs, outputs) in sizes {
        let n = inputs * outputs;
        let case = Case::new(rows, &[inputs], n + outputs, d);
        let both = [0..n, n..n + outputs];
        let relu = rows % 2 == 0;
        for (size, a, b) in [
            ([rows, inputs, outputs], [inputs, 1], [1, inputs]),
            ([outputs, rows, inputs], [1, outputs], [inputs, 1]),
            ([rows, outputs, inputs], [outputs, 1], [inputs, 1]),
        ] {
            let order = format!("{:?}", ops::order(size, a, b));
            seen.insert(order.split('(').next().unwrap_or_default().to_string());
        }
        same(
            &format!("{rows} x {inputs} to {outputs}"),
            &case,
            false,
            &|r, x, w| {
                let [weight, bias] = both.clone();
                ops::linear(r, x, w, weight, Some(bias), relu)
            },
            &|q, r, x, w| linear::linear(q, r, x, w, both.clone(), relu),
        );
    }
    let all: Vec<_> = seen.iter().map(String::as_str).collect();
    assert_eq!(all, ["Blocks", "Column", "Lanes", "Outer", "Row"]);
}

#[test]
fn sizes_that_a_card_cannot_compute_are_refused() {
    let queue = queue();
    let many = queue.room(1 << 31).unwrap_err().to_string();
    assert!(
        many.contains("2147483648 numbers") && many.contains("smaller batches"),
        "{many}"
    );
    let b = queue.zeros(9).unwrap();
    let m = Matrix::new(Position(&b, 0), 3);
    product(
        &queue,
        [0, 3, 3],
        [m, m],
        None,
        false,
        Position(&b, 0),
        None,
    )
    .unwrap();
}

#[test]
fn exact_batch_normalisation() {
    let d = &mut draws(3);
    for at in 0..100 {
        let (channels, relu) = (up_to(6, d), at % 2 == 0);
        let shape = match at % 3 {
            0 => vec![channels],
            _ => vec![channels, up_to(7, d), up_to(7, d)],
        };
        let affine = (at % 5 != 0).then_some([0..channels, channels..2 * channels]);
        let n = if affine.is_some() { 2 * channels } else { 0 };
        let case = Case::new(1 + up_to(9, d), &shape, n, d);
        let first: Vec<f32> = (0..2 * channels)
            .map(|_| d.uniform() as f32 + 0.1)
            .collect();
        for of_batch in [true, false] {
            let moved = std::cell::RefCell::new([Vec::new(), Vec::new()]);
            same(
                &format!("{shape:?}, {affine:?}, of the batch: {of_batch}"),
                &case,
                false,
                &|r, x, w| {
                    let mut all = first.clone();
                    let (mean, variance) = all.split_at_mut(channels);
                    let statistics = if of_batch {
                        ops::Statistics::Batch { mean, variance }
                    } else {
                        ops::Statistics::Running { mean, variance }
                    };
                    let y = ops::batch_norm(r, x, w, affine.clone(), statistics, relu).unwrap();
                    moved.borrow_mut()[0] = all;
                    y
                },
                &|q, r, x, w| {
                    let buffers = q.upload(&first)?;
                    let statistics = norm::Statistics {
                        buffers: &buffers,
                        mean: 0,
                        variance: channels,
                        of_batch,
                    };
                    let y = norm::batch_norm(q, r, x, w, affine.clone(), statistics, relu)?;
                    moved.borrow_mut()[1] = q.download(&buffers, 0, 2 * channels)?;
                    Ok(y)
                },
            );
            let [cpu, card] = &*moved.borrow();
            assert_eq!(differ(cpu, card), None, "running statistics");
        }
    }
}

#[test]
fn exact_normalisation_of_samples() {
    let d = &mut draws(11);
    for at in 0..120 {
        let shape = match at % 3 {
            0 => vec![1 + up_to(40, d)],
            _ => vec![1 + up_to(3, d), up_to(7, d), up_to(7, d)],
        };
        let all = shape.iter().product::<usize>();
        // layer normalisation, then groups of one or more channels
        let (groups, n) = if at < 60 || all == shape[0] {
            (1, all)
        } else {
            ([1, shape[0]][at % 2], shape[0])
        };
        let case = Case::new(up_to(9, d), &shape, 2 * n, d);
        same(
            &format!("{shape:?} in {groups}"),
            &case,
            false,
            &|r, x, w| ops::sample_norm(r, x, w, groups, [0..n, n..2 * n]).unwrap(),
            &|q, r, x, w| norm::sample_norm(q, r, x, w, groups, [0..n, n..2 * n]),
        );
    }
}

/// Sizes of large batches, whose kernels keep weights in shared memory.
#[test]
fn exact_large_convolutions() {
    let d = &mut draws(12);
    for (channels, out, kernel, stride, pad, side, rows) in [
        (1, 9, 3, 1, 1, 64, 9),
        // more weights than are kept at once: in several parts
        (60, 1, 3, 1, 1, 48, 29),
        (3, 5, 5, 2, 2, 60, 77),
        (17, 20, 1, 1, 0, 31, 30),
    ] {
        let s = ConvShape {
            channels,
            height: side,
            width: side + 1,
            out,
            kernel,
            stride,
            pad,
        };
        let n = s.out * s.taps();
        let case = Case::new(rows, &[channels, side, side + 1], n + out, d);
        same(
            &format!("{s:?}"),
            &case,
            false,
            &|r, x, w| ops::conv2d(r, x, w, &s, 0..n, Some(n..n + out), true),
            &|q, r, x, w| conv::conv2d(q, r, x, w, &s, (0..n, Some(n..n + out)), true),
        );
    }
}

#[test]
fn exact_single_numbers_and_moved_ones() {
    let d = &mut draws(4);
    for at in 0..60 {
        let shape = [up_to(3, d), up_to(7, d), up_to(7, d)];
        let mut case = Case::new(up_to(5, d), &shape, 0, d);
        // also far from 0, where curves flatten
        let factor = [1.0, 10.0, 100.0][at % 3];
        case.x.iter_mut().for_each(|v| *v *= factor);
        for f in [
            Activation::Relu,
            Activation::LeakyRelu(0.2),
            Activation::Tanh,
            Activation::Sigmoid,
        ] {
            same(
                &format!("{f:?}"),
                &case,
                false,
                &|r, x, _| ops::activate(r, x, f),
                &|q, r, x, _| pointwise::activate(q, r, x, f),
            );
        }
        let factor = up_to(3, d);
        same(
            "upsample",
            &case,
            false,
            &|r, x, _| ops::upsample(r, x, factor),
            &|q, r, x, _| pointwise::upsample(q, r, x, factor),
        );
        same(
            "spread",
            &case,
            false,
            &|r, x, _| ops::spread(r, x, factor),
            &|q, r, x, _| pointwise::spread(q, r, x, factor),
        );
        same(
            "dropout",
            &case,
            false,
            &|r, x, _| ops::dropout(r, x, 0.3, &mut draws(9)),
            &|q, r, x, _| pointwise::dropout(q, r, x, 0.3, &mut draws(9)),
        );
        // one value used in three ways: its gradients are added in the same order
        same(
            "three ways",
            &case,
            false,
            &|r, x, _| {
                let (a, b) = (
                    ops::activate(r, x, Activation::Tanh),
                    ops::activate(r, x, Activation::Sigmoid),
                );
                let all = ops::concat(r, x, &a);
                let sum = ops::add(r, &b, x, true);
                ops::concat(r, &all, &sum)
            },
            &|q, r, x, _| {
                let (a, b) = (
                    pointwise::activate(q, r, x, Activation::Tanh)?,
                    pointwise::activate(q, r, x, Activation::Sigmoid)?,
                );
                let all = pointwise::concat(q, r, x, &a)?;
                let sum = pointwise::add(q, r, &b, x, true)?;
                pointwise::concat(q, r, &all, &sum)
            },
        );
    }
}

#[test]
fn exact_curves_at_numbers_of_every_size() {
    let d = &mut draws(5);
    let mut x: Vec<f32> = (0..4000)
        .map(|_| f32::from_bits((d.uniform() * 4_294_967_296.0) as u32))
        .collect();
    x.extend([
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        88.8,
        -103.9,
        1e-40,
    ]);
    let case = Case {
        rows: 1,
        shape: vec![x.len()],
        w: Vec::new(),
        x,
    };
    let queue = queue();
    for f in [Activation::Tanh, Activation::Sigmoid, Activation::Relu] {
        let value = Value {
            data: Arc::new(case.x.clone().into()),
            rows: 1,
            shape: case.shape.clone(),
            key: None,
        };
        let wanted = ops::activate(&mut Record::off(), &value, f);
        let there = cuda::Value {
            data: Arc::new(queue.upload(&case.x).unwrap()),
            rows: 1,
            shape: case.shape.clone(),
            key: None,
        };
        let record = &mut cuda::Record::new(false);
        let got = pointwise::activate(&queue, record, &there, f).unwrap();
        let got = queue.download(&got.data, 0, case.x.len()).unwrap();
        for ((x, a), b) in case.x.iter().zip(wanted.data.iter()).zip(&got) {
            let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same, "{f:?}({x:e}): processor {a:e}, card {b:e}");
        }
    }
}

#[test]
fn exact_pools() {
    let d = &mut draws(6);
    for at in 0..120 {
        let kernel = up_to(4, d);
        let s = PoolShape {
            channels: up_to(3, d),
            height: kernel + up_to(9, d) - 1,
            width: kernel + up_to(9, d) - 1,
            kernel,
            stride: if at % 3 == 0 { kernel } else { up_to(5, d) },
        };
        let mut case = Case::new(up_to(4, d), &[s.channels, s.height, s.width], 0, d);
        if at % 2 == 0 {
            // many equal numbers: the first of the largest is taken
            case.x.iter_mut().for_each(|v| *v = v.round());
        }
        same(
            &format!("max {s:?}"),
            &case,
            false,
            &|r, x, _| ops::max_pool(r, x, &s),
            &|q, r, x, _| pool::max_pool(q, r, x, &s),
        );
        same(
            &format!("mean {s:?}"),
            &case,
            false,
            &|r, x, _| ops::average_pool(r, x, &s),
            &|q, r, x, _| pool::average_pool(q, r, x, &s),
        );
    }
}

#[test]
fn exact_texts() {
    let d = &mut draws(8);
    for at in 0..100 {
        let (words, width, kernel) = (4 + up_to(12, d), up_to(6, d), up_to(4, d));
        let (rows, out) = (up_to(5, d), if at % 4 == 0 { 1 } else { up_to(40, d) });
        let vocabulary = up_to(9, d);
        let mut case = Case::new(rows, &[words], vocabulary * width, d);
        for text in case.x.chunks_mut(words) {
            let length = d.below(words + 1);
            for (i, word) in text.iter_mut().enumerate() {
                let number = 1 + d.below(vocabulary);
                *word = if i < length { number as f32 } else { 0.0 };
            }
        }
        let n = case.w.len();
        same(
            "embedding",
            &case,
            true,
            &|r, x, w| ops::embedding(r, x, w, 0..n, width).unwrap(),
            &|q, r, x, w| words::embedding(q, r, x, &case.x, w, 0..n, width),
        );
        let windows = words + 1 - kernel;
        let counts: Vec<usize> = (0..rows).map(|_| up_to(windows, d)).collect();
        let n = out * kernel * width;
        let case = Case::new(rows, &[words, width], n + out, d);
        let both = [0..n, n..n + out];
        same(
            &format!("{out} windows of {kernel} x {width}, {counts:?}"),
            &case,
            false,
            &|r, x, w| ops::conv1d(r, x, w, both.clone(), kernel, counts.clone()),
            &|q, r, x, w| words::conv1d(q, r, x, w, both.clone(), kernel, counts.clone()),
        );
        let mut case = Case::new(rows, &[words, width], 0, d);
        case.x.iter_mut().for_each(|v| *v = (*v * 2.0).round());
        same(
            "max over time",
            &case,
            false,
            &|r, x, _| ops::max_over_time(r, x, &counts),
            &|q, r, x, _| words::max_over_time(q, r, x, &counts),
        );
    }
    // long texts and one channel: sums of every order
    for (words, width, kernel, out) in [(300, 1, 1, 1), (300, 1, 260, 1), (290, 3, 1, 1)] {
        let (n, rows) = (out * kernel * width, 2);
        let case = Case::new(rows, &[words, width], n + out, d);
        let counts = vec![words + 1 - kernel, (words + 1 - kernel).min(2)];
        let both = [0..n, n..n + out];
        same(
            &format!("{out} windows of {kernel} x {width}, {counts:?}"),
            &case,
            false,
            &|r, x, w| ops::conv1d(r, x, w, both.clone(), kernel, counts.clone()),
            &|q, r, x, w| words::conv1d(q, r, x, w, both.clone(), kernel, counts.clone()),
        );
    }
}

#[test]
fn exact_optimisers_and_what_is_done_to_gradients() {
    let (d, queue) = (&mut draws(10), queue());
    for n in [1, 15, 16, 255, 4096, 4097, 10_000] {
        let adam = AdamMove {
            rate: 0.01,
            root: 1.3,
            beta1: 0.9,
            beta2: 0.999,
            rest1: 0.1,
            rest2: 0.001,
            eps: 1e-8,
            decay: 0.02,
        };
        let (rate, decay, keep) = (0.1, 0.01, 0.9);
        for how in [
            Move::Plain { rate, decay },
            Move::Momentum {
                rate,
                decay,
                keep,
                nesterov: false,
            },
            Move::Momentum {
                rate,
                decay,
                keep,
                nesterov: true,
            },
            Move::Adam(adam),
        ] {
            let mut w = numbers(n, d);
            let mut state = cpu_optim::State {
                done: 0,
                first: numbers(n, d),
                second: numbers(n, d).iter().map(|v| v.abs()).collect(),
            };
            let mut g = numbers(n, d);
            let (anchor, more) = (numbers(n, d), numbers(n, d));
            let there = |v: &[f32]| queue.upload(v).unwrap();
            let (weights, gradient) = (there(&w), there(&g));
            let moments = optim::Moments {
                first: there(&state.first),
                second: there(&state.second),
            };
            let (pull_to, drift_by) = (there(&anchor), there(&more));
            optim::clip(&queue, &gradient, 1.5).unwrap();
            optim::proximal(&queue, &gradient, &weights, &pull_to, 0.3).unwrap();
            optim::gradient_offset(&queue, &gradient, &drift_by).unwrap();
            optim::step(&queue, how, &gradient, &weights, &moments).unwrap();
            cpu_optim::clip(&mut g, 1.5);
            cpu_optim::proximal(&mut g, &w, &anchor, 0.3);
            cpu_optim::gradient_offset(&mut g, &more);
            how.apply(&mut w, &g, &mut state);
            let all = |b: &cuda::Buffer| queue.download(b, 0, n).unwrap();
            let name = format!("{how:?}, {n} weights");
            assert_eq!(differ(&g, &all(&gradient)), None, "{name}: gradient");
            assert_eq!(differ(&w, &all(&weights)), None, "{name}: weights");
            let first = differ(&state.first, &all(&moments.first));
            assert_eq!(first, None, "{name}: first moment");
            let second = differ(&state.second, &all(&moments.second));
            assert_eq!(second, None, "{name}: second moment");
        }
    }
}
