//! Checks that a card gives the processor's bits, at its first use in a process. It runs every kind
//! of layer forward and backward, and three steps of a network.

use super::driver::{Buffer, Card, Position, Queue};
use super::net::ForwardPass;
use super::{Device, optim, pointwise, tape};
use crate::settings::DfdxSettings;
use crate::trainer::Dfdx;
use anyhow::{Context, bail, ensure};
use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, Draws, FitOptions, Length, Loss, Result, Samples, Stream, Target, Task, TaskKind,
    Trainer,
};
use fl_nets::net::{self, Mode, Op};
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

/// Compares an operation of a network on both.
fn compare_op(queue: &Queue, kernels: Kernels, case: &Case, op: Op, train: bool) -> Result<()> {
    let (ops, stream) = ([op], Stream::root(9));
    // the statistics of four channels, and the words that two texts lack
    let (statistics, padding) = ([[0.2; 4], [1.7; 4]].concat(), [2, 0]);
    compare(
        queue,
        kernels,
        case,
        &|record, x, weights| {
            let buffers = &mut statistics.clone();
            let mut mode = if train {
                Mode::Train(buffers, &stream)
            } else {
                Mode::Evaluate(buffers)
            };
            net::run(&ops, record, x.clone(), weights, &mut mode, &padding)
        },
        &|queue, record, x, weights| {
            let mut pass = ForwardPass {
                queue,
                record,
                weights,
                buffers: &queue.upload(&statistics)?,
                train: train.then_some(&stream),
                inputs: &case.x,
            };
            pass.run(&ops, x.clone(), &padding)
        },
    )
}

/// Compares every kind of layer, optimiser and change of a gradient.
fn every_layer(queue: &Queue) -> Result<()> {
    let d = &mut Stream::root(1).draws();
    for (kernel, stride, pad, relu) in [(3, 1, 1, true), (2, 2, 0, false)] {
        let shape = ConvShape {
            channels: 2,
            height: 7,
            width: 9,
            out: 3,
            kernel,
            stride,
            pad,
        };
        let n = shape.out * shape.taps();
        let (weight, bias) = (0..n, relu.then_some(n..n + shape.out));
        let case = Case::new(3, &[2, 7, 9], bias.as_ref().map_or(n, |b| b.end), d);
        let kernels = ["conv_forward", "conv_back_input", "conv_back_weight"];
        let op = Op::Conv {
            shape,
            weight,
            bias,
            relu,
        };
        compare_op(queue, kernels, &case, op, true)?;
    }
    for (rows, inputs, outputs) in [
        (20, 30, 17),
        (70, 20, 65),
        (5, 70, 4),
        (1, 90, 300),
        (2, 9, 70),
    ] {
        let n = inputs * outputs;
        let case = Case::new(rows, &[inputs], n + outputs, d);
        let op = Op::Linear {
            weight: 0..n,
            bias: n..n + outputs,
            relu: true,
        };
        let kernels = ["product_blocks, product_wide or product_each"; 3];
        compare_op(queue, kernels, &case, op, true)?;
    }
    let norms = ["norm_forward", "norm_back", "norm_back_sums"];
    for of_batch in [true, false] {
        let op = Op::Norm {
            affine: Some([0..4, 4..8]),
            mean: 0..4,
            variance: 4..8,
            relu: false,
        };
        compare_op(queue, norms, &Case::new(3, &[4, 5, 5], 8, d), op, of_batch)?;
    }
    let columns = ["scale_columns", "norm_back", "column_sums"];
    for (kernels, shape, groups, n) in
        [(columns, &[2, 5][..], 1, 10), (norms, &[4, 3, 3][..], 2, 4)]
    {
        let affine = [0..n, n..2 * n];
        let op = Op::SampleNorm { groups, affine };
        compare_op(queue, kernels, &Case::new(3, shape, 2 * n, d), op, true)?;
    }
    large_convolution(queue, d)?;
    images(queue, d)?;
    texts(queue, d)?;
    optimisers(queue, d)
}

/// Compares a convolution that is large enough for the kernels of large batches.
fn large_convolution(queue: &Queue, d: &mut Draws) -> Result<()> {
    let shape = ConvShape {
        channels: 2,
        height: 128,
        width: 128,
        out: 2,
        kernel: 2,
        stride: 1,
        pad: 1,
    };
    let n = shape.out * shape.taps();
    let op = Op::Conv {
        shape,
        weight: 0..n,
        bias: None,
        relu: true,
    };
    let forward = ["conv_forward_wide", "conv_back_input_wide"];
    let kernels = [forward[0], forward[1], "conv_back_weight"];
    compare_op(
        queue,
        kernels,
        &Case::new(4, &[2, 128, 128], n, d),
        op,
        true,
    )
}

fn images(queue: &Queue, d: &mut Draws) -> Result<()> {
    let case = Case::new(2, &[2, 6, 6], 0, d);
    let window = PoolShape {
        channels: 2,
        height: 6,
        width: 6,
        kernel: 3,
        stride: 2,
    };
    let kept = Op::Dropout { p: 0.3, place: 0 };
    let sum = Op::Residual {
        body: vec![kept],
        shortcut: Vec::new(),
    };
    let joined = Op::Chain(vec![sum, Op::Skip(vec![Op::Activate(Activation::Tanh)])]);
    let activate = ["activate", "activate_back", ""];
    for (kernels, op) in [
        (activate, Op::Activate(Activation::Relu)),
        (activate, Op::Activate(Activation::LeakyRelu(0.1))),
        (activate, Op::Activate(Activation::Tanh)),
        (activate, Op::Activate(Activation::Sigmoid)),
        (["upsample", "upsample_back", ""], Op::Upsample(2)),
        (["spread", "spread_back", ""], Op::Spread(2)),
        (["copy_rows, times, add, add_back or accumulate"; 3], joined),
        (["max_pool", "max_pool_back", ""], Op::MaxPool(window)),
        (
            ["average_pool", "average_pool_back", ""],
            Op::AveragePool(window),
        ),
    ] {
        compare_op(queue, kernels, &case, op, true)?;
    }
    Ok(())
}

fn texts(queue: &Queue, d: &mut Draws) -> Result<()> {
    let mut words = Case::new(2, &[5], 12, d);
    words.x = vec![1.0, 4.0, 1.0, 0.0, 0.0, 2.0, 2.0, 4.0, 3.0, 1.0];
    let table = Op::Embedding {
        table: 0..12,
        width: 3,
    };
    let kernels = ["embedding", NO_KERNEL, "embedding_back"];
    compare_op(queue, kernels, &words, table, true)?;
    let windows = Op::Conv1d {
        tensors: [0..24, 24..28],
        kernel: 2,
    };
    let kernels = ["product_each", "conv1d_back_input", "conv1d_back_weight"];
    let case = Case::new(2, &[5, 3], 28, d);
    compare_op(queue, kernels, &case, windows, true)?;
    let kernels = ["max_over_time", "max_over_time_back", ""];
    let case = Case::new(2, &[5, 3], 0, d);
    compare_op(queue, kernels, &case, Op::MaxOverTime, true)
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
        let context = BuildContext::new(
            Task::new(input.clone(), TaskKind::Classes(3)),
            Stream::root(3),
        );
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
