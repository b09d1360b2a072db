//! A network on a card: its operations in the order of [`fl_nets::net`].

use super::driver::{Buffer, Queue};
use super::norm::{Statistics, batch_norm, sample_norm};
use super::tape::{Record, Value, Weights};
use super::{conv, linear, pointwise, pool, words};
use anyhow::bail;
use fl_core::{Result, Stream};
use fl_nets::net::{Net, Op, counted};

/// One pass of a batch through a network.
pub struct ForwardPass<'a> {
    /// The queue that it runs on.
    pub queue: &'a Queue,
    /// The record for the backward pass.
    pub record: &'a mut Record,
    /// The weights.
    pub weights: &'a Weights,
    /// The running statistics.
    pub buffers: &'a Buffer,
    /// Training: statistics of the batch, and dropout from this stream.
    pub train: Option<&'a Stream>,
    /// The numbers of the batch, on the host; only networks that take words read them.
    pub inputs: &'a [f32],
}

impl ForwardPass<'_> {
    /// Returns the scores of a batch, `rows x outputs`.
    ///
    /// # Errors
    /// As [`Net::forward`], or if the card fails.
    pub fn scores(&mut self, net: &Net, x: Value) -> Result<Value> {
        let [_, scores] = self.features_and_scores(net, x)?;
        Ok(scores)
    }

    /// Returns the inputs of the last layer in their own shape, and the scores.
    ///
    /// # Errors
    /// As [`ForwardPass::scores`].
    pub fn features_and_scores(&mut self, net: &Net, x: Value) -> Result<[Value; 2]> {
        let padding = net.padding(self.inputs, x.rows);
        let [trunk, last] = net.ops();
        let features = self.run(trunk, x, &padding)?;
        let scores = self.run(last, features.clone(), &padding)?;
        Ok([features, scores])
    }

    /// Returns the inputs of the last layer, `rows x features`.
    ///
    /// # Errors
    /// As [`ForwardPass::scores`].
    pub fn features(&mut self, net: &Net, x: Value) -> Result<Value> {
        let padding = net.padding(self.inputs, x.rows);
        let [trunk, _] = net.ops();
        let x = self.run(trunk, x, &padding)?;
        let shape = vec![x.width()];
        Ok(Value { shape, ..x })
    }

    /// Runs operations one after the other; `padding` is [`Net::padding`].
    pub(super) fn run(&mut self, all: &[Op], x: Value, padding: &[usize]) -> Result<Value> {
        all.iter().try_fold(x, |x, op| self.one(op, x, padding))
    }

    fn one(&mut self, op: &Op, x: Value, padding: &[usize]) -> Result<Value> {
        let (queue, weights) = (self.queue, self.weights);
        match op {
            Op::Conv {
                shape,
                weight,
                bias,
                relu,
            } => {
                let tensors = (weight.clone(), bias.clone());
                conv::conv2d(queue, self.record, &x, weights, shape, tensors, *relu)
            }
            Op::Linear { weight, bias, relu } => {
                let tensors = [weight.clone(), bias.clone()];
                linear::linear(queue, self.record, &x, weights, tensors, *relu)
            }
            Op::Norm {
                affine,
                mean,
                variance,
                relu,
            } => {
                let statistics = Statistics {
                    buffers: self.buffers,
                    mean: mean.start,
                    variance: variance.start,
                    of_batch: self.train.is_some(),
                };
                let affine = affine.clone();
                batch_norm(queue, self.record, &x, weights, affine, statistics, *relu)
            }
            Op::SampleNorm { groups, affine } => {
                sample_norm(queue, self.record, &x, weights, *groups, affine.clone())
            }
            Op::Activate(f) => pointwise::activate(queue, self.record, &x, *f),
            Op::MaxPool(shape) => pool::max_pool(queue, self.record, &x, shape),
            Op::AveragePool(shape) => pool::average_pool(queue, self.record, &x, shape),
            Op::Dropout { p, place } => match self.train {
                Some(stream) => {
                    let mut draws = stream.child("dropout", *place).draws();
                    pointwise::dropout(queue, self.record, &x, *p, &mut draws)
                }
                None => Ok(x),
            },
            Op::Upsample(factor) => pointwise::upsample(queue, self.record, &x, *factor),
            Op::Spread(stride) => pointwise::spread(queue, self.record, &x, *stride),
            Op::Reshape(shape) => Ok(Value {
                shape: shape.clone(),
                ..x
            }),
            Op::Chain(ops) => self.run(ops, x, padding),
            Op::Residual { body, shortcut } => {
                let inside = self.run(body, x.clone(), padding)?;
                let beside = self.run(shortcut, x, padding)?;
                pointwise::add(queue, self.record, &inside, &beside, true)
            }
            Op::Skip(around) => {
                let beside = self.run(around, x.clone(), padding)?;
                pointwise::concat(queue, self.record, &x, &beside)
            }
            Op::Embedding { table, width } => {
                let (inputs, table) = (self.inputs, table.clone());
                words::embedding(queue, self.record, &x, inputs, weights, table, *width)
            }
            Op::Conv1d { tensors, kernel } => {
                let counts = counted(x.shape[0] + 1 - kernel, padding);
                let tensors = tensors.clone();
                words::conv1d(queue, self.record, &x, weights, tensors, *kernel, counts)
            }
            Op::MaxOverTime => {
                let counts = counted(x.shape[0], padding);
                words::max_over_time(queue, self.record, &x, &counts)
            }
            Op::Lstm(_) | Op::LastOverTime => bail!("no card computes this layer"),
            Op::Branches(all) => {
                let mut made: Option<Value> = None;
                for branch in all {
                    let next = self.run(branch, x.clone(), padding)?;
                    made = Some(match made {
                        None => next,
                        Some(before) => pointwise::concat(queue, self.record, &before, &next)?,
                    });
                }
                Ok(made.unwrap_or(x))
            }
        }
    }
}
