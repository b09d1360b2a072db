//! [`Net`]: a network that is known at run time, from a list of layers to operations on the tape.

mod build;
mod layers;
mod net_spec;
mod numbers;
mod outline;
pub mod presets;
#[cfg(test)]
mod tests;

pub use layers::{Conv, Conv1d, Embedding, Layer, Layers, Residual, Window};
pub use net_spec::NetSpec;
pub use numbers::Numbers;
pub use outline::{LayerOutline, Outline, outline};

use crate::buffer::Buffer;
use crate::ops::{self, Activation, ConvShape, PoolShape, Statistics};
use crate::store::Tensors;
use crate::tape::{Record, Value, Weights};
use anyhow::{Context, bail, ensure};
use build::End;
use fl_core::{Problem, Result, Stream, Task};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// One tensor of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position of its layer and its kind, as in PyTorch: `0.weight`, `3.body.1.running_mean`.
    pub name: String,
    /// As in PyTorch, except that of a transposed convolution, whose weight is that of the
    /// convolution which it becomes.
    pub shape: Vec<usize>,
    /// Its position among the weights, or among the buffers.
    pub range: Range<usize>,
    /// `false` for a buffer, such as running statistics, that no optimiser moves.
    pub trainable: bool,
    start: Start,
}

/// The initial values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Uniform in +-1/sqrt(this), with this the number of inputs of one output. PyTorch's `Linear`
    /// and `Conv2d` initialise weight and bias like that (`reset_parameters`: Kaiming uniform with
    /// a = sqrt 5).
    FanIn(usize),
    Zeros,
    Ones,
}

/// One operation of a network. Ranges are those of [`Entry`].
#[derive(Clone, Debug)]
pub enum Op {
    /// A two-dimensional convolution.
    Conv {
        /// Its images and windows.
        shape: ConvShape,
        /// Its weights.
        weight: Range<usize>,
        /// What is added to each channel.
        bias: Option<Range<usize>>,
        /// Whether negative results become 0.
        relu: bool,
    },
    /// A fully connected layer.
    Linear {
        /// A row for each output.
        weight: Range<usize>,
        /// What is added to each output.
        bias: Range<usize>,
        /// Whether negative results become 0.
        relu: bool,
    },
    /// Batch normalisation.
    Norm {
        /// Weight and bias.
        affine: Option<[Range<usize>; 2]>,
        /// The running mean of each channel.
        mean: Range<usize>,
        /// The running variance of each channel.
        variance: Range<usize>,
        /// Whether negative results become 0.
        relu: bool,
    },
    /// Normalisation of each sample.
    SampleNorm {
        /// The equal parts that are normalised by themselves.
        groups: usize,
        /// Weight and bias, of each number or each channel.
        affine: [Range<usize>; 2],
    },
    /// A function of each number.
    Activate(Activation),
    /// The largest number of each window.
    MaxPool(PoolShape),
    /// The mean of each window.
    AveragePool(PoolShape),
    /// Zeros in the place of some numbers, in training.
    Dropout {
        /// The share of zeros.
        p: f32,
        /// Its number among the network's dropouts.
        place: u64,
    },
    /// Each pixel as often, along both sides.
    Upsample(usize),
    /// Zeros between the pixels.
    Spread(usize),
    /// The same numbers in another shape.
    Reshape(Vec<usize>),
    /// One operation after the other.
    Chain(Vec<Op>),
    /// The sum of two ways.
    Residual {
        /// The long way.
        body: Vec<Op>,
        /// The short one; the input itself if it is empty.
        shortcut: Vec<Op>,
    },
    /// The result beside the input, as further channels.
    Skip(Vec<Op>),
    /// A row of numbers for each word.
    Embedding {
        /// The rows.
        table: Range<usize>,
        /// Numbers in a row.
        width: usize,
    },
    /// A convolution of windows of neighbouring positions.
    Conv1d {
        /// Weight and bias.
        tensors: [Range<usize>; 2],
        /// Positions in a window.
        kernel: usize,
    },
    /// The largest number of each channel over all positions.
    MaxOverTime,
    /// A memory over all positions.
    Lstm([Range<usize>; 3]),
    /// The numbers of the last position.
    LastOverTime,
    /// Several ways side by side; at least one.
    Branches(Vec<Vec<Op>>),
}

/// A network: its operations and its tensors. The numbers are kept elsewhere, see [`Net::start`].
#[derive(Clone, Debug, Default)]
pub struct Net {
    ops: Vec<Op>,
    /// Number of operations before the last layer.
    trunk: usize,
    features: usize,
    entries: Vec<Entry>,
    /// What each layer of the list gives for one sample.
    shapes: Vec<Vec<usize>>,
    weights: usize,
    buffers: usize,
    /// Whether a layer normalises numbers of which a sample alone has only one.
    needs_company: bool,
}

/// The purpose of a pass.
pub enum Mode<'a> {
    /// Batch statistics, which update the running ones in these buffers; dropout from this stream.
    Train(&'a mut [f32], &'a Stream),
    /// Running statistics from these buffers, no dropout.
    Evaluate(&'a [f32]),
}

impl Net {
    /// Builds the network for a task.
    ///
    /// # Errors
    /// If a layer does not accept its input (the error names the layer), or the last layer does not
    /// have the task's outputs.
    pub fn new(spec: &NetSpec, task: &Task) -> Result<Self> {
        let outputs = task.kind.outputs();
        ensure!(
            task.width() > 0 && outputs > 0,
            "a task without inputs or outputs: inputs of {:?}, {}",
            task.input,
            task.kind
        );
        let built = |layers: &[Layer]| build::net(layers, &task.input, End::Scores(task.kind));
        match spec {
            NetSpec::Layers(layers) => built(layers).context("net"),
            NetSpec::Named(net) => {
                built(&net.layers()).with_context(|| format!("net `{}`", net.name()))
            }
        }
    }

    /// Builds a network that makes inputs of shape `to` from rows of `from` numbers.
    ///
    /// # Errors
    /// If a layer does not accept its input (the error names the layer), or the last layer does not
    /// give that shape.
    pub fn maker(layers: &[Layer], from: usize, to: &[usize]) -> Result<Self> {
        build::net(layers, &[from], End::Inputs(to)).context("net")
    }

    /// Returns all tensors by name, from weights and buffers laid out as in [`Entry::range`].
    pub fn tensors(&self, weights: &[f32], buffers: &[f32]) -> Tensors {
        let entry = |e: &Entry| {
            let all = if e.trainable { weights } else { buffers };
            (
                e.name.clone(),
                (e.shape.clone(), all[e.range.clone()].to_vec()),
            )
        };
        self.entries.iter().map(entry).collect()
    }

    /// Inverts [`Net::tensors`]: returns weights and buffers.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape, or does not belong to this network.
    pub fn arrange<T: AsRef<[f32]>>(
        &self,
        mut tensors: BTreeMap<String, (Vec<usize>, T)>,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let mut weights = Vec::with_capacity(self.weights);
        let mut buffers = Vec::with_capacity(self.buffers);
        for entry in &self.entries {
            let lacks = || Problem::Shape(format!("`{}` is missing", entry.name));
            let (shape, values) = tensors.remove(&entry.name).with_context(lacks)?;
            let text = || {
                format!(
                    "`{}` is {shape:?}, the model has {:?}",
                    entry.name, entry.shape
                )
            };
            Problem::shape_unless(shape == entry.shape, text)?;
            let all = if entry.trainable {
                &mut weights
            } else {
                &mut buffers
            };
            // entries are in the order of their ranges, which leave no gaps
            debug_assert_eq!(all.len(), entry.range.start);
            all.extend_from_slice(values.as_ref());
        }
        match tensors.keys().next() {
            Some(name) => bail!(Problem::Shape(format!(
                "`{name}` is no tensor of the model"
            ))),
            None => Ok((weights, buffers)),
        }
    }

    /// Returns all tensors in the order of the layers.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of trainable numbers.
    pub fn weights(&self) -> usize {
        self.weights
    }

    /// Returns the number of weights outside fully connected layers.
    pub fn summed_weights(&self) -> usize {
        self.weights - connected(&self.ops)
    }

    /// Returns the number of inputs of the last layer for one sample.
    pub fn features_width(&self) -> usize {
        self.features
    }

    /// Returns the positions of weight (`outputs x features`) and bias of the last layer among the
    /// weights, if it is linear.
    pub fn head(&self) -> Option<[Range<usize>; 2]> {
        match &self.ops[self.trunk..] {
            [
                Op::Linear {
                    weight,
                    bias,
                    relu: false,
                },
            ] => Some([weight.clone(), bias.clone()]),
            _ => None,
        }
    }

    /// Returns whether it has weights before the last layer.
    pub fn trains_features(&self) -> bool {
        match &self.ops[self.trunk..] {
            [Op::Linear { weight, .. } | Op::Conv { weight, .. }] => weight.start > 0,
            _ => self.weights > 0,
        }
    }

    /// Returns whether its inputs are the numbers of words, which have no slope.
    pub fn takes_words(&self) -> bool {
        matches!(self.ops.first(), Some(Op::Embedding { .. }))
    }

    /// Returns the largest word number that it takes, if it takes words.
    pub fn vocabulary(&self) -> Option<usize> {
        match self.ops.first() {
            Some(Op::Embedding { table, width }) => Some(table.len() / width),
            _ => None,
        }
    }

    /// Returns whether it has `lstm` or `last-over-time`, which no card computes.
    pub fn has_memory(&self) -> bool {
        any(&self.ops, |op| matches!(op, Op::Lstm(_) | Op::LastOverTime))
    }

    /// Returns whether it drops numbers at random in training.
    pub fn has_dropout(&self) -> bool {
        any(
            &self.ops,
            |op| matches!(op, Op::Dropout { p, .. } if *p > 0.0),
        )
    }

    /// Returns whether it normalises a batch by its mean and variance in training.
    pub fn normalises_batches(&self) -> bool {
        self.entries.iter().any(|entry| !entry.trainable)
    }

    /// Returns for each text of a batch the number of positions at its end without words; 0 if the
    /// inputs are not texts.
    pub fn padding(&self, x: &[f32], rows: usize) -> Vec<usize> {
        let padding = |words: &[f32]| words.iter().rev().take_while(|n| **n == 0.0).count();
        if self.takes_words() {
            x.chunks_exact((x.len() / rows.max(1)).max(1))
                .map(padding)
                .collect()
        } else {
            vec![0; rows]
        }
    }

    /// Returns the operations before the last layer, and the last layer.
    pub fn ops(&self) -> [&[Op]; 2] {
        self.ops.split_at(self.trunk).into()
    }

    /// Returns whether it has batch normalisation.
    pub fn normalises(&self) -> bool {
        self.buffers > 0
    }

    /// Returns whether it can train on a sample alone: batch normalisation of a row of numbers
    /// cannot, for one number has no variance.
    pub fn trains_alone(&self) -> bool {
        !self.needs_company
    }

    /// Raises variances below 0 to 0, the nearest value that a variance can have.
    pub fn bound_variances(&self, buffers: &mut [f32]) {
        let variances = self
            .entries
            .iter()
            .filter(|e| !e.trainable && e.start == Start::Ones);
        for entry in variances {
            let values = buffers[entry.range.clone()].iter_mut();
            values.filter(|v| **v < 0.0).for_each(|v| *v = 0.0);
        }
    }

    /// Returns initial values of weights and buffers. Each tensor draws from its own child of
    /// `stream`, so a layer starts the same in every network.
    pub fn start(&self, stream: &Stream) -> (Vec<f32>, Vec<f32>) {
        let (mut weights, mut buffers) = (vec![0.0; self.weights], vec![0.0; self.buffers]);
        for entry in &self.entries {
            let all = if entry.trainable {
                &mut weights
            } else {
                &mut buffers
            };
            let values = &mut all[entry.range.clone()];
            match entry.start {
                Start::Zeros => values.fill(0.0),
                Start::Ones => values.fill(1.0),
                Start::FanIn(n) => {
                    let (reach, mut draws) = (
                        1.0 / (n as f64).sqrt(),
                        stream.child(&entry.name, 0).draws(),
                    );
                    values
                        .iter_mut()
                        .for_each(|v| *v = ((2.0 * draws.uniform() - 1.0) * reach) as f32);
                }
            }
        }
        (weights, buffers)
    }

    /// Returns the scores of a batch, `rows x outputs`.
    ///
    /// # Errors
    /// If batch normalisation gets one number per channel, or an embedding an invalid word number.
    pub fn forward(
        &self,
        record: &mut Record,
        x: Value,
        weights: &Weights,
        mode: &mut Mode<'_>,
    ) -> Result<Value> {
        let [_, scores] = self.features_and_scores(record, x, weights, mode)?;
        Ok(scores)
    }

    /// Returns the inputs of the last layer in their own shape, and the scores.
    ///
    /// # Errors
    /// As [`Net::forward`].
    pub fn features_and_scores(
        &self,
        record: &mut Record,
        x: Value,
        weights: &Weights,
        mode: &mut Mode<'_>,
    ) -> Result<[Value; 2]> {
        let padding = self.padding(&x.data, x.rows);
        let mut pass = |ops, x| run(ops, record, x, weights, mode, &padding);
        let features = pass(&self.ops[..self.trunk], x)?;
        let scores = pass(&self.ops[self.trunk..], features.clone())?;
        Ok([features, scores])
    }

    /// Returns the inputs of the last layer, `rows x features`.
    ///
    /// # Errors
    /// As [`Net::forward`].
    pub fn features(&self, x: Value, weights: &Weights, mode: &mut Mode<'_>) -> Result<Value> {
        let padding = self.padding(&x.data, x.rows);
        let trunk = &self.ops[..self.trunk];
        run(trunk, &mut Record::off(), x, weights, mode, &padding).map(|v| Value {
            shape: vec![v.width()],
            ..v
        })
    }
}

/// Returns the number of weights of fully connected layers.
fn connected(ops: &[Op]) -> usize {
    let of = |op: &Op| match op {
        Op::Linear { weight, bias, .. } => weight.len() + bias.len(),
        Op::Chain(ops) | Op::Skip(ops) => connected(ops),
        Op::Residual { body, shortcut } => connected(body) + connected(shortcut),
        Op::Branches(all) => all.iter().map(|ops| connected(ops)).sum(),
        _ => 0,
    };
    ops.iter().map(of).sum()
}

/// Runs operations one after the other; `padding` is [`Net::padding`].
///
/// # Errors
/// As [`Net::forward`].
pub fn run(
    all: &[Op],
    record: &mut Record,
    x: Value,
    weights: &Weights,
    mode: &mut Mode<'_>,
    padding: &[usize],
) -> Result<Value> {
    all.iter().try_fold(x, |x, op| {
        Ok(match op {
            Op::Conv {
                shape,
                weight,
                bias,
                relu,
            } => ops::conv2d(
                record,
                &x,
                weights,
                shape,
                weight.clone(),
                bias.clone(),
                *relu,
            ),
            Op::Linear { weight, bias, relu } => ops::linear(
                record,
                &x,
                weights,
                weight.clone(),
                Some(bias.clone()),
                *relu,
            ),
            Op::Norm {
                affine,
                mean,
                variance,
                relu,
            } => {
                let statistics = match mode {
                    Mode::Evaluate(b) => Statistics::Running {
                        mean: &b[mean.clone()],
                        variance: &b[variance.clone()],
                    },
                    Mode::Train(b, _) => {
                        // the variance of a layer is stored right after its mean
                        let (mean, rest) = b[mean.start..variance.end].split_at_mut(mean.len());
                        Statistics::Batch {
                            mean,
                            variance: rest,
                        }
                    }
                };
                ops::batch_norm(record, &x, weights, affine.clone(), statistics, *relu)?
            }
            Op::SampleNorm { groups, affine } => {
                ops::sample_norm(record, &x, weights, *groups, affine.clone())?
            }
            Op::Activate(f) => ops::activate(record, &x, *f),
            Op::MaxPool(shape) => ops::max_pool(record, &x, shape),
            Op::AveragePool(shape) => ops::average_pool(record, &x, shape),
            Op::Dropout { p, place } => match mode {
                Mode::Train(_, stream) => {
                    ops::dropout(record, &x, *p, &mut stream.child("dropout", *place).draws())
                }
                Mode::Evaluate(_) => x,
            },
            Op::Upsample(factor) => ops::upsample(record, &x, *factor),
            Op::Spread(stride) => ops::spread(record, &x, *stride),
            Op::Reshape(shape) => Value {
                shape: shape.clone(),
                ..x
            },
            Op::Chain(ops) => run(ops, record, x, weights, mode, padding)?,
            Op::Residual { body, shortcut } => {
                let inside = run(body, record, x.clone(), weights, mode, padding)?;
                let beside = run(shortcut, record, x, weights, mode, padding)?;
                ops::add(record, &inside, &beside, true)
            }
            Op::Skip(around) => {
                let beside = run(around, record, x.clone(), weights, mode, padding)?;
                ops::concat(record, &x, &beside)
            }
            Op::Embedding { table, width } => {
                ops::embedding(record, &x, weights, table.clone(), *width)?
            }
            Op::Conv1d { tensors, kernel } => {
                let counts = counted(x.shape[0] + 1 - kernel, padding);
                ops::conv1d(record, &x, weights, tensors.clone(), *kernel, counts)
            }
            Op::MaxOverTime => {
                let counts = counted(x.shape[0], padding);
                ops::max_over_time(record, &x, &counts)
            }
            Op::Lstm(tensors) => {
                let counts = counted(x.shape[0], padding);
                ops::lstm(record, &x, weights, tensors.clone(), counts)
            }
            Op::LastOverTime => {
                let counts = counted(x.shape[0], padding);
                ops::last(record, &x, counts)
            }
            Op::Branches(all) => {
                let mut made: Option<Value> = None;
                for branch in all {
                    let next = run(branch, record, x.clone(), weights, mode, padding)?;
                    made = Some(match made {
                        None => next,
                        Some(before) => ops::concat(record, &before, &next),
                    });
                }
                made.unwrap_or(x)
            }
        })
    })
}

/// Returns whether there is such an operation among these, or within one of them.
fn any(ops: &[Op], of: fn(&Op) -> bool) -> bool {
    ops.iter().any(|op| match op {
        Op::Chain(ops) | Op::Skip(ops) => any(ops, of),
        Op::Residual { body, shortcut } => any(body, of) || any(shortcut, of),
        Op::Branches(all) => all.iter().any(|ops| any(ops, of)),
        op => of(op),
    })
}

/// Returns how many of `positions` positions lie in each text. A window of words counts at its
/// first word, and must lie within the text; the first window always counts.
pub fn counted(positions: usize, padding: &[usize]) -> Vec<usize> {
    let inside = |absent: &usize| positions.saturating_sub(*absent).max(1);
    padding.iter().map(inside).collect()
}

/// Returns a batch as a value; `key` names its gradient.
pub fn batch(data: Buffer, shape: &[usize], key: Option<crate::tape::Key>) -> Result<Value> {
    let width: usize = shape.iter().product();
    let rows = data
        .len()
        .checked_div(width)
        .filter(|rows| rows * width == data.len());
    let rows = rows.with_context(|| {
        Problem::Shape(format!(
            "{} numbers are no batch of inputs of shape {shape:?}",
            data.len()
        ))
    })?;
    Ok(Value {
        data: Arc::new(data),
        rows,
        shape: shape.to_vec(),
        key,
    })
}
