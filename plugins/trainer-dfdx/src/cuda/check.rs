//! Checks that a card gives the processor's bits, at its first use in a process. It runs every kind
//! of layer forward and backward, and three steps of a network.

use super::driver::{Buffer, Card, Position, Queue};
use super::norm::Statistics;
use super::{Device, conv, linear, norm, optim, pointwise, pool, tape, words};
use crate::settings::DfdxSettings;
use crate::trainer::Dfdx;
use anyhow::{Context, bail, ensure};
use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, Draws, FitOptions, Length, Loss, Result, Samples, Stream, Target, Task, TaskKind,
    Trainer,
};
use fl_nets::ops::{self, Activation, ConvShape, PoolShape};
use fl_nets::optim::{self as on_cpu, AdamMove, Move, State};
use fl_nets::tape::{Key, Record, Value, Weights};
use ndarray::Array2;
use std::sync::Arc;

/// A batch and weights, of random numbers.
pub(super) struct Case {
    /// Samples.
    pub rows: usize,
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// The batch.
    pub x: Vec<f32>,
    /// The weights.
    pub w: Vec<f32>,
}

impl Case {
    /// Draws a case of random numbers.
    pub fn new(rows: usize, shape: &[usize], weights: usize, draws: &mut Draws) -> Self {
        let x = numbers(rows * shape.iter().product::<usize>(), draws);
        let w = numbers(weights, draws);
        let shape = shape.to_vec();
        Self { rows, shape, x, w }
    }
}

/// Returns numbers around 0, some of them 0, of several sizes.
pub(super) fn numbers(n: usize, draws: &mut Draws) -> Vec<f32> {
    let mut one = || match draws.below(12) {
        0 => 0.0,
        1 => -0.0,
        2 => (draws.normal() * 1e-3) as f32,
        _ => draws.normal() as f32,
    };
    (0..n).map(|_| one()).collect()
}

/// Returns where the processor's and the card's numbers differ in any bit; `None` if nowhere.
pub(super) fn differ(cpu: &[f32], card: &[f32]) -> Option<String> {
    if cpu.len() != card.len() {
        return Some(format!("{} numbers and {}", cpu.len(), card.len()));
    }
    let unlike = || (0..cpu.len()).filter(|i| cpu[*i].to_bits() != card[*i].to_bits());
    let first = unlike().next()?;
    let (n, all) = (unlike().count(), cpu.len());
    let (x, y) = (cpu[first], card[first]);
    Some(format!(
        "{n} of {all} numbers differ; number {first} is {x:e} on the processor, {y:e} on the card"
    ))
}

type OnCpu<'a> = &'a dyn Fn(&mut Record, &Value, &Weights) -> Result<Value>;
type OnCard<'a> =
    &'a dyn Fn(&Queue, &mut tape::Record, &tape::Value, &tape::Weights) -> Result<tape::Value>;

/// Kernels of an operation: forward, backward to its inputs, backward to its weights.
pub(super) type Kernels = [&'static str; 3];

/// Stands for the missing backward kernel of an operation whose inputs are words.
pub(super) const NO_KERNEL: &str = "none";

/// Runs an operation on both, forward and backward.
///
/// # Errors
/// Names the kernel whose numbers differ.
pub(super) fn compare(
    queue: &Queue,
    kernels: Kernels,
    case: &Case,
    cpu: OnCpu<'_>,
    card: OnCard<'_>,
) -> Result<()> {
    let words = kernels[1] == NO_KERNEL;
    let value = |key: Option<Key>| Value {
        data: Arc::new(case.x.clone().into()),
        rows: case.rows,
        shape: case.shape.clone(),
        key,
    };
    let weights = |key: Option<Key>| Weights {
        data: Arc::new(case.w.clone()),
        key,
    };
    let same = |kernel: &str, cpu: &[f32], card: &Buffer| -> Result<()> {
        match differ(cpu, &queue.download(card, 0, card.len())?) {
            Some(how) => bail!("kernel `{kernel}`: {how}"),
            None => Ok(()),
        }
    };
    let mut record = tape::Record::new(true);
    let gradient = Arc::new(queue.room(case.w.len())?);
    let there = tape::Weights {
        data: Arc::new(queue.upload(&case.w)?),
        gradient: (!case.w.is_empty()).then(|| gradient.clone()),
    };
    let key = (!words).then(|| record.key());
    let x = tape::Value {
        data: Arc::new(queue.upload(&case.x)?),
        rows: case.rows,
        shape: case.shape.clone(),
        key,
    };
    let got = card(queue, &mut record, &x, &there)?;
    let wanted = cpu(&mut Record::off(), &value(None), &weights(None))?;
    ensure!(
        got.shape == wanted.shape,
        "kernel `{}`: another shape",
        kernels[0]
    );
    same(kernels[0], &wanted.data, &got.data)?;
    let slope = numbers(wanted.data.len(), &mut Stream::root(7).draws());
    let by_x = record.backward(queue, &got, queue.upload(&slope)?, key)?;
    if let Some(by_x) = by_x {
        let (key, mut record) = (Key::new(), Record::on());
        let y = cpu(&mut record, &value(Some(key.clone())), &weights(None))?;
        let by = record.backward(&y, slope.clone(), &key, Vec::new())?;
        same(kernels[1], &by, &by_x)?;
    }
    if !case.w.is_empty() {
        let (key, mut record) = (Key::new(), Record::on());
        let y = cpu(&mut record, &value(None), &weights(Some(key.clone())))?;
        let room = vec![0.0; case.w.len()];
        same(
            kernels[2],
            &record.backward(&y, slope, &key, room)?,
            &gradient,
        )?;
    }
    Ok(())
}

impl Card {
    /// Compares the card with the processor, once in a process.
    ///
    /// # Errors
    /// Names card, driver and kernel if a number differs.
    pub fn checked(self: &Arc<Self>) -> Result<()> {
        let found = self.check.get_or_init(|| {
            let queue = Queue::new(self.clone(), None).map_err(|e| format!("{e:#}"))?;
            let done = every_layer(&queue).and_then(|()| three_steps(&queue));
            let done = done.and_then(|()| shared_launches(self));
            done.map_err(|e| format!("{e:#}"))
        });
        let hint = || {
            format!(
                "device: cuda: {} (compute capability {}.{}, driver for CUDA {}.{}) does not give the processor's numbers; \
                 use `device: cpu`, and report this",
                self.name,
                self.capability.0,
                self.capability.1,
                self.version / 1000,
                self.version % 1000 / 10
            )
        };
        found
            .as_ref()
            .map_err(|e| anyhow::anyhow!("{e}"))
            .copied()
            .with_context(hint)
    }
}

/// Compares every kind of layer, optimiser and change of a gradient.
fn every_layer(queue: &Queue) -> Result<()> {
    let d = &mut Stream::root(1).draws();
    for (kernel, stride, pad, relu) in [(3, 1, 1, true), (2, 2, 0, false)] {
        let s = ConvShape {
            channels: 2,
            height: 7,
            width: 9,
            out: 3,
            kernel,
            stride,
            pad,
        };
        let n = s.out * s.taps();
        let bias = relu.then_some(n..n + s.out);
        let weights = bias.as_ref().map_or(n, |b| b.end);
        compare(
            queue,
            ["conv_forward", "conv_back_input", "conv_back_weight"],
            &Case::new(3, &[2, 7, 9], weights, d),
            &|r, x, w| Ok(ops::conv2d(r, x, w, &s, 0..n, bias.clone(), relu)),
            &|q, r, x, w| conv::conv2d(q, r, x, w, &s, (0..n, bias.clone()), relu),
        )?;
    }
    for (rows, inputs, outputs) in [
        (20, 30, 17),
        (70, 20, 65),
        (5, 70, 4),
        (1, 90, 300),
        (2, 9, 70),
    ] {
        let n = inputs * outputs;
        let both = [0..n, n..n + outputs];
        compare(
            queue,
            ["product_blocks, product_wide or product_each"; 3],
            &Case::new(rows, &[inputs], n + outputs, d),
            &|r, x, w| {
                let [weight, bias] = both.clone();
                Ok(ops::linear(r, x, w, weight, Some(bias), true))
            },
            &|q, r, x, w| linear::linear(q, r, x, w, both.clone(), true),
        )?;
    }
    for of_batch in [true, false] {
        compare(
            queue,
            ["norm_forward", "norm_back", "norm_back_sums"],
            &Case::new(3, &[4, 5, 5], 8, d),
            &|r, x, w| {
                let (mean, variance) = (&mut [0.2; 4], &mut [1.7; 4]);
                let statistics = match of_batch {
                    true => ops::Statistics::Batch { mean, variance },
                    false => ops::Statistics::Running { mean, variance },
                };
                ops::batch_norm(r, x, w, Some([0..4, 4..8]), statistics, false)
            },
            &|q, r, x, w| {
                let buffers = &q.upload(&[0.2, 0.2, 0.2, 0.2, 1.7, 1.7, 1.7, 1.7])?;
                let statistics = Statistics {
                    buffers,
                    mean: 0,
                    variance: 4,
                    of_batch,
                };
                norm::batch_norm(q, r, x, w, Some([0..4, 4..8]), statistics, false)
            },
        )?;
    }
    compare(
        queue,
        ["scale_columns", "norm_back", "column_sums"],
        &Case::new(3, &[2, 5], 20, d),
        &|r, x, w| ops::sample_norm(r, x, w, 1, [0..10, 10..20]),
        &|q, r, x, w| norm::sample_norm(q, r, x, w, 1, [0..10, 10..20]),
    )?;
    compare(
        queue,
        ["norm_forward", "norm_back", "norm_back_sums"],
        &Case::new(3, &[4, 3, 3], 8, d),
        &|r, x, w| ops::sample_norm(r, x, w, 2, [0..4, 4..8]),
        &|q, r, x, w| norm::sample_norm(q, r, x, w, 2, [0..4, 4..8]),
    )?;
    large_convolution(queue, d)?;
    images(queue, d)?;
    texts(queue, d)?;
    optimisers(queue, d)
}

/// Compares a convolution that is large enough for the kernels of large batches.
fn large_convolution(queue: &Queue, d: &mut Draws) -> Result<()> {
    let s = ConvShape {
        channels: 2,
        height: 128,
        width: 128,
        out: 2,
        kernel: 2,
        stride: 1,
        pad: 1,
    };
    let n = s.out * s.taps();
    compare(
        queue,
        [
            "conv_forward_wide",
            "conv_back_input_wide",
            "conv_back_weight",
        ],
        &Case::new(4, &[2, 128, 128], n, d),
        &|r, x, w| Ok(ops::conv2d(r, x, w, &s, 0..n, None, true)),
        &|q, r, x, w| conv::conv2d(q, r, x, w, &s, (0..n, None), true),
    )
}

fn images(queue: &Queue, d: &mut Draws) -> Result<()> {
    let case = Case::new(2, &[2, 6, 6], 0, d);
    let leaky = Activation::LeakyRelu(0.1);
    for f in [
        Activation::Relu,
        leaky,
        Activation::Tanh,
        Activation::Sigmoid,
    ] {
        compare(
            queue,
            ["activate", "activate_back", ""],
            &case,
            &|r, x, _| Ok(ops::activate(r, x, f)),
            &|q, r, x, _| pointwise::activate(q, r, x, f),
        )?;
    }
    compare(
        queue,
        ["upsample", "upsample_back", ""],
        &case,
        &|r, x, _| Ok(ops::upsample(r, x, 2)),
        &|q, r, x, _| pointwise::upsample(q, r, x, 2),
    )?;
    compare(
        queue,
        ["spread", "spread_back", ""],
        &case,
        &|r, x, _| Ok(ops::spread(r, x, 2)),
        &|q, r, x, _| pointwise::spread(q, r, x, 2),
    )?;
    let draws = || Stream::root(9).draws();
    compare(
        queue,
        ["copy_rows, times, add, add_back or accumulate"; 3],
        &case,
        &|r, x, _| {
            let kept = ops::dropout(r, x, 0.3, &mut draws());
            let sum = ops::add(r, &kept, x, true);
            Ok(ops::concat(r, &sum, x))
        },
        &|q, r, x, _| {
            let kept = pointwise::dropout(q, r, x, 0.3, &mut draws())?;
            let sum = pointwise::add(q, r, &kept, x, true)?;
            pointwise::concat(q, r, &sum, x)
        },
    )?;
    let s = PoolShape {
        channels: 2,
        height: 6,
        width: 6,
        kernel: 3,
        stride: 2,
    };
    compare(
        queue,
        ["max_pool", "max_pool_back", ""],
        &case,
        &|r, x, _| Ok(ops::max_pool(r, x, &s)),
        &|q, r, x, _| pool::max_pool(q, r, x, &s),
    )?;
    compare(
        queue,
        ["average_pool", "average_pool_back", ""],
        &case,
        &|r, x, _| Ok(ops::average_pool(r, x, &s)),
        &|q, r, x, _| pool::average_pool(q, r, x, &s),
    )
}

fn texts(queue: &Queue, d: &mut Draws) -> Result<()> {
    let mut case = Case::new(2, &[5], 12, d);
    case.x = vec![1.0, 4.0, 1.0, 0.0, 0.0, 2.0, 2.0, 4.0, 3.0, 1.0];
    compare(
        queue,
        ["embedding", NO_KERNEL, "embedding_back"],
        &case,
        &|r, x, w| ops::embedding(r, x, w, 0..12, 3),
        &|q, r, x, w| words::embedding(q, r, x, &case.x, w, 0..12, 3),
    )?;
    let (both, counts) = ([0..24, 24..28], [2, 4]);
    compare(
        queue,
        ["product_each", "conv1d_back_input", "conv1d_back_weight"],
        &Case::new(2, &[5, 3], 28, d),
        &|r, x, w| Ok(ops::conv1d(r, x, w, both.clone(), 2, counts.to_vec())),
        &|q, r, x, w| words::conv1d(q, r, x, w, both.clone(), 2, counts.to_vec()),
    )?;
    compare(
        queue,
        ["max_over_time", "max_over_time_back", ""],
        &Case::new(2, &[5, 3], 0, d),
        &|r, x, _| Ok(ops::max_over_time(r, x, &counts)),
        &|q, r, x, _| words::max_over_time(q, r, x, &counts),
    )
}

fn optimisers(queue: &Queue, d: &mut Draws) -> Result<()> {
    let (rate, decay, keep, nesterov) = (0.1, 0.01, 0.9, true);
    let adam = AdamMove {
        rate,
        root: 1.3,
        beta1: 0.9,
        beta2: 0.999,
        rest1: 0.1,
        rest2: 0.001,
        eps: 1e-8,
        decay,
    };
    let momentum = Move::Momentum {
        rate,
        decay,
        keep,
        nesterov,
    };
    for (kernel, how) in [
        ("sgd", Move::Plain { rate, decay }),
        ("momentum", momentum),
        ("adam", Move::Adam(adam)),
    ] {
        let n = 100;
        let [mut w, mut g, first, second, anchor] = [(); 5].map(|()| numbers(n, d));
        let second = second.iter().map(|v| v.abs()).collect();
        let mut state = State {
            done: 0,
            first,
            second,
        };
        let (weights, gradient) = (queue.upload(&w)?, queue.upload(&g)?);
        let moments = optim::Moments {
            first: queue.upload(&state.first)?,
            second: queue.upload(&state.second)?,
        };
        let there = queue.upload(&anchor)?;
        optim::clip(queue, &gradient, 1.5)?;
        optim::proximal(queue, &gradient, &weights, &there, 0.3)?;
        optim::gradient_offset(queue, &gradient, &there)?;
        optim::step(queue, how, &gradient, &weights, &moments)?;
        on_cpu::clip(&mut g, 1.5);
        on_cpu::proximal(&mut g, &w, &anchor, 0.3);
        on_cpu::gradient_offset(&mut g, &anchor);
        how.apply(&mut w, &g, &mut state);
        for (kernel, cpu, card) in [
            ("scale, proximal or accumulate", &g, &gradient),
            (kernel, &w, &weights),
            (kernel, &state.first, &moments.first),
            (kernel, &state.second, &moments.second),
        ] {
            if let Some(how) = differ(cpu, &queue.download(card, 0, n)?) {
                bail!("kernel `{kernel}`: {how}");
            }
        }
    }
    let (zeros, place) = (queue.zeros(3)?, 1);
    queue.each(
        "accumulate",
        2,
        &[
            2.into(),
            Position(&zeros, place).into(),
            Position(&zeros, place).into(),
        ],
    )
}

/// Compares the numbers of models that share launches, each with its own number of numbers.
fn shared_launches(card: &Arc<Card>) -> Result<()> {
    let d = &mut Stream::root(12).draws();
    let (mut queues, mut lists, mut made) = (Vec::new(), Vec::new(), Vec::new());
    for n in [300, 7, 1000] {
        let (queue, x) = (Queue::new(card.clone(), None)?, numbers(n, d));
        queue.keep(true)?;
        let value = tape::Value {
            data: Arc::new(queue.upload(&x)?),
            rows: 1,
            shape: vec![n],
            key: None,
        };
        let record = &mut tape::Record::new(false);
        let y = pointwise::activate(&queue, record, &value, Activation::Tanh)?;
        lists.push(queue.taken());
        queues.push(queue);
        made.push((x, y));
    }
    let all: Vec<_> = lists.iter().map(Vec::as_slice).collect();
    Queue::together(&queues, &all)?;
    for (queue, (x, y)) in queues.iter().zip(made) {
        let value = Value {
            rows: 1,
            shape: vec![x.len()],
            data: Arc::new(x.into()),
            key: None,
        };
        let wanted = ops::activate(&mut Record::off(), &value, Activation::Tanh);
        if let Some(how) = differ(&wanted.data, &queue.download(&y.data, 0, y.data.len())?) {
            bail!("kernel `activate`, shared by three models: {how}");
        }
    }
    Ok(())
}

/// A network of several kinds of layers.
const NET: &str = "{net: [{conv: {out: 3, kernel: 3, pad: 1, bias: false}}, batch-norm, relu, \
    {residual: {body: [{conv: {out: 3, kernel: 3, pad: 1}}, tanh]}}, layer-norm, {pool: 2}, {dropout: 0.2}, \
    {linear: 9}, sigmoid, outputs], optimiser: {adam: {lr: 0.01}}}";

/// Compares three steps of a network on both, from initial weights to scores.
fn three_steps(queue: &Queue) -> Result<()> {
    let input = vec![2, 6, 6];
    let x = numbers(7 * 72, &mut Stream::root(2).draws());
    let x = Samples::fresh(Array2::from_shape_vec((7, 72), x)?, input.clone())?;
    let labels: Vec<u32> = (0..7).map(|i| i % 3).collect();
    let pass = FitOptions::new(Length::Steps(3), 3, Loss::CrossEntropy);
    let scores = |card: Option<&Queue>| -> Result<Array2<f32>> {
        let settings: DfdxSettings = read_yaml(NET)?;
        let context = BuildContext {
            task: Task {
                input: input.clone(),
                kind: TaskKind::Classes(3),
            },
            stream: Stream::root(3),
        };
        let mut model = Dfdx::new(settings, &context)?;
        if let Some(queue) = card {
            let (index, memory) = (0, None);
            model.put_on(Device::Cuda { index, memory }, queue.clone());
        }
        model.fit(&x, Target::Classes(&labels), &pass, &Stream::root(4))?;
        model.predict(&x)
    };
    let [cpu, card] = [scores(None)?, scores(Some(queue))?].map(|s| s.into_raw_vec_and_offset().0);
    match differ(&cpu, &card) {
        Some(how) => bail!("three steps of a network: {how}"),
        None => Ok(()),
    }
}
