//! From layers to operations: follows shapes through the list, and checks each layer's input.

use super::layers::{Conv, Conv1d, Embedding, Layer};
use super::{Entry, Net, Op, Start};
use crate::ops::{Activation, ConvShape, PoolShape};
use anyhow::{Context, bail, ensure};
use fl_core::{Problem, Result, TaskKind};
use std::ops::Range;

/// The required end of a network.
#[derive(Clone, Copy)]
pub enum End<'a> {
    /// With one number for each output of a task, straight from a linear layer or a convolution.
    Scores(TaskKind),
    /// With as many numbers as an input of this shape.
    Inputs(&'a [usize]),
}

/// Builds a network for inputs of shape `from`.
pub fn net(layers: &[Layer], from: &[usize], end: End<'_>) -> Result<Net> {
    let last = layers
        .len()
        .checked_sub(1)
        .context("a network needs at least one layer, such as `outputs`")?;
    let outputs = match end {
        End::Scores(task) => task.outputs(),
        End::Inputs(shape) => volume(shape, 0)?,
    };
    if let End::Scores(_) = end {
        match &layers[last] {
            Layer::Outputs | Layer::Conv(_) => {}
            Layer::Linear(n) if *n == outputs => {}
            Layer::Linear(n) => bail!(
                "layer {last} (linear): the task has {outputs} outputs, but the last layer has {n}"
            ),
            _ => bail!("layer {last}: the last layer must be `outputs` or `linear: {outputs}`"),
        }
    }
    let pixels = match end {
        End::Scores(TaskKind::Pixels {
            classes,
            height,
            width,
        }) => Some([classes, height, width]),
        End::Scores(TaskKind::Image {
            channels,
            height,
            width,
        }) => Some([channels, height, width]),
        _ => None,
    };
    let mut builder = Builder {
        words: matches!(end, End::Scores(_)),
        text: false,
        outputs,
        channels: pixels.map(|[channels, ..]| channels),
        dropouts: 0,
        net: Net::default(),
    };
    let mut shape = from.to_vec();
    let mut ops = builder.list("", &layers[..last], &mut shape)?;
    let features = volume(&shape, 0)?;
    let op = builder.layer(&last.to_string(), &layers[last], &mut shape, false);
    ops.push(op.with_context(|| format!("layer {last}"))?);
    builder.net.shapes.push(shape.clone());
    let found = volume(&shape, 0)?;
    if let ([_, _, _], Some(due)) = (&shape[..], pixels) {
        Problem::shape_unless(shape == due, || {
            format!(
                "layer {last}: the last layer gives {shape:?} where {due:?} is due: a channel for each class or colour, and the size of the masks or images"
            )
        })?;
    }
    let wanted = match end {
        End::Scores(_) => format!("the task has {outputs} outputs"),
        End::Inputs(to) => format!("inputs of {to:?} have {outputs}"),
    };
    ensure!(
        found == outputs,
        Problem::Shape(format!(
            "layer {last}: the last layer gives {shape:?}, {found} numbers, and {wanted}"
        ))
    );
    Ok(Net {
        trunk: ops.len() - 1,
        ops,
        features,
        ..builder.net
    })
}

/// Numbers in a model, and values of one sample between two layers: 4 bytes each.
const MOST: usize = 1 << 28;

/// Returns the number of values in a tensor of this shape, together with `before`.
fn volume(shape: &[usize], before: usize) -> Result<usize> {
    let product = shape
        .iter()
        .try_fold(1usize, |n, size| n.checked_mul(*size));
    let total = product.and_then(|n| n.checked_add(before));
    total.filter(|n| *n <= MOST).with_context(|| {
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        Problem::Shape(format!(
            "{} numbers more than {before} are too many for one model, which may have {MOST}: make a layer smaller",
            sizes.join("x")
        ))
    })
}

struct Builder {
    /// Whether the next layer may take words.
    words: bool,
    /// Whether the network begins with words.
    text: bool,
    outputs: usize,
    /// Values per pixel, if every pixel has an output.
    channels: Option<usize>,
    dropouts: u64,
    /// Its tensors, and what each layer of the outermost list gives.
    net: Net,
}

impl Builder {
    fn list(&mut self, prefix: &str, layers: &[Layer], shape: &mut Vec<usize>) -> Result<Vec<Op>> {
        let mut ops = Vec::with_capacity(layers.len());
        let mut at = 0;
        while at < layers.len() {
            // a relu right after is fused: one sweep over memory less, in both directions
            let relu = layers.get(at + 1) == Some(&Layer::Relu);
            let fuses = relu
                && matches!(
                    layers[at],
                    Layer::Conv(_) | Layer::Linear(_) | Layer::BatchNorm
                );
            let op = self.layer(&format!("{prefix}{at}"), &layers[at], shape, fuses);
            ops.push(op.with_context(|| format!("layer {prefix}{at}"))?);
            if prefix.is_empty() {
                let fused = usize::from(fuses);
                self.net.shapes.extend((0..=fused).map(|_| shape.clone()));
            }
            at += 1 + usize::from(fuses);
        }
        Ok(ops)
    }

    fn layer(
        &mut self,
        name: &str,
        layer: &Layer,
        shape: &mut Vec<usize>,
        relu: bool,
    ) -> Result<Op> {
        let first = std::mem::take(&mut self.words);
        Ok(match layer {
            Layer::Relu => Op::Activate(Activation::Relu),
            Layer::LeakyRelu(slope) => Op::Activate(Activation::LeakyRelu(*slope as f32)),
            Layer::Tanh => Op::Activate(Activation::Tanh),
            Layer::Sigmoid => Op::Activate(Activation::Sigmoid),
            Layer::Flatten => {
                *shape = vec![volume(shape, 0)?];
                Op::Reshape(shape.clone())
            }
            Layer::Outputs if self.channels.is_some() => {
                let conv = Conv {
                    out: self.channels.unwrap_or_default(),
                    kernel: 1,
                    stride: 1,
                    pad: 0,
                    bias: true,
                };
                self.layer(name, &Layer::Conv(conv), shape, false)?
            }
            Layer::Linear(_) | Layer::Outputs => {
                let outputs = if let Layer::Linear(n) = layer {
                    *n
                } else {
                    self.outputs
                };
                let inputs = volume(shape, 0)?;
                *shape = vec![outputs];
                let size = vec![outputs, inputs];
                let [weight, bias] = self.weight_and_bias(name, size, Start::FanIn(inputs))?;
                Op::Linear { weight, bias, relu }
            }
            Layer::Conv(conv) => self.convolution(name, conv, shape, relu)?,
            Layer::BatchNorm | Layer::Standardise => {
                self.refuse_text(shape)?;
                let channels = vec![shape[0]];
                self.net.needs_company |= shape[1..].iter().product::<usize>() <= 1;
                let affine = (*layer == Layer::BatchNorm)
                    .then(|| self.scale_and_shift(name, &channels))
                    .transpose()?;
                let mut running =
                    |part, start| self.tensor(name, part, channels.clone(), start, false);
                Op::Norm {
                    affine,
                    mean: running("running_mean", Start::Zeros)?,
                    variance: running("running_var", Start::Ones)?,
                    relu,
                }
            }
            Layer::LayerNorm => {
                self.refuse_text(shape)?;
                let width = volume(shape, 0)?;
                let text = || "layer-norm: a sample of one number has no variance".into();
                Problem::shape_unless(width > 1, text)?;
                Op::SampleNorm {
                    groups: 1,
                    affine: self.scale_and_shift(name, shape)?,
                }
            }
            Layer::GroupNorm(groups) => {
                self.refuse_text(shape)?;
                let (channels, width) = (shape[0], volume(shape, 0)?);
                let text =
                    || format!("group-norm: {groups} does not divide the {channels} channels");
                Problem::shape_unless(channels.is_multiple_of(*groups), text)?;
                let text = || {
                    format!(
                        "group-norm: each of {groups} groups is one number, which has no variance"
                    )
                };
                Problem::shape_unless(width > *groups, text)?;
                Op::SampleNorm {
                    groups: *groups,
                    affine: self.scale_and_shift(name, &shape[..1])?,
                }
            }
            Layer::Pool(kernel) => Op::MaxPool(pool("pool", shape, *kernel, *kernel)?),
            Layer::MaxPool(window) => {
                Op::MaxPool(pool("max-pool", shape, window.kernel, window.stride)?)
            }
            Layer::AveragePool(kernel) => {
                Op::AveragePool(pool("average-pool", shape, *kernel, *kernel)?)
            }
            Layer::GlobalPool => {
                let [_, height, width] = image("global-pool", shape)?;
                let text = || format!("global-pool: needs square images, got {height}x{width}");
                Problem::shape_unless(height == width, text)?;
                Op::AveragePool(pool("global-pool", shape, height, height)?)
            }
            Layer::Dropout(p) => {
                self.dropouts += 1;
                Op::Dropout {
                    p: *p as f32,
                    place: self.dropouts - 1,
                }
            }
            Layer::Upsample(factor) => {
                let [channels, height, width] = image("upsample", shape)?;
                *shape = vec![
                    channels,
                    height.saturating_mul(*factor),
                    width.saturating_mul(*factor),
                ];
                volume(shape, 0)?;
                Op::Upsample(*factor)
            }
            Layer::Unflatten(to) => {
                let (found, wanted) = (volume(shape, 0)?, volume(to, 0)?);
                let text = || format!("unflatten: {found} numbers do not fill {to:?}");
                Problem::shape_unless(found == wanted, text)?;
                image("unflatten", to)?;
                shape.clone_from(to);
                Op::Reshape(to.clone())
            }
            Layer::TransposedConv(conv) => self.transposed(name, conv, shape)?,
            Layer::Skip(around) => {
                let [channels, height, width] = image("skip", shape)?;
                let mut inside = shape.clone();
                let around = self.list(&format!("{name}."), &around.0, &mut inside)?;
                let text = || {
                    format!(
                        "skip: the input is {shape:?}, and its layers give {inside:?}; rows and columns must be the same"
                    )
                };
                let [more, ..] = <[usize; 3]>::try_from(&inside[..])
                    .ok()
                    .filter(|[_, h, w]| (*h, *w) == (height, width))
                    .with_context(|| Problem::Shape(text()))?;
                *shape = vec![channels + more, height, width];
                volume(shape, 0)?;
                Op::Skip(around)
            }
            Layer::Embedding(Embedding { vocabulary, width }) => {
                let words = match &shape[..] {
                    [words] if first => *words,
                    _ => bail!(Problem::Shape(format!(
                        "embedding: must be the first layer, of a row of word numbers, got {shape:?}"
                    ))),
                };
                self.text = true;
                *shape = vec![words, *width];
                volume(shape, 0)?;
                let size = vec![*vocabulary, *width];
                // +-1/4, as Kim's code initialises words without known vectors
                let start = Start::FanIn(16);
                Op::Embedding {
                    table: self.tensor(name, "weight", size, start, true)?,
                    width: *width,
                }
            }
            Layer::Conv1d(Conv1d { out, kernel }) => {
                let [words, channels] = text("conv1d", shape)?;
                let text = || format!("conv1d: a window of {kernel} does not fit {words} words");
                Problem::shape_unless(*kernel <= words, text)?;
                *shape = vec![words + 1 - kernel, *out];
                volume(shape, 0)?;
                let start = Start::FanIn(volume(&[*kernel, channels], 0)?);
                let size = vec![*out, *kernel, channels];
                Op::Conv1d {
                    tensors: self.weight_and_bias(name, size, start)?,
                    kernel: *kernel,
                }
            }
            Layer::MaxOverTime => {
                let [_, channels] = text("max-over-time", shape)?;
                *shape = vec![channels];
                Op::MaxOverTime
            }
            Layer::Lstm(units) => {
                let [words, channels] = text("lstm", shape)?;
                *shape = vec![words, *units];
                volume(shape, 0)?;
                let gates = volume(&[4, *units], 0)?;
                let mut tensor =
                    |part, size| self.tensor(name, part, size, Start::FanIn(*units), true);
                Op::Lstm([
                    tensor("weight_ih", vec![gates, channels])?,
                    tensor("weight_hh", vec![gates, *units])?,
                    tensor("bias", vec![gates])?,
                ])
            }
            Layer::LastOverTime => {
                let [_, channels] = text("last-over-time", shape)?;
                *shape = vec![channels];
                Op::LastOverTime
            }
            Layer::Branches(lists) => {
                let (mut all, mut made) = (Vec::new(), Vec::<Vec<usize>>::new());
                for (at, list) in lists.iter().enumerate() {
                    let mut inside = shape.clone();
                    all.push(self.list(&format!("{name}.{at}."), &list.0, &mut inside)?);
                    made.push(inside);
                }
                let text = || {
                    format!(
                        "branches: they give {made:?}; they must all be rows of numbers, or all be images of one size"
                    )
                };
                let size = made
                    .first()
                    .filter(|s| s.len() != 2)
                    .and_then(|s| s.get(1..));
                let size = size.filter(|size| made.iter().all(|s| s.get(1..) == Some(*size)));
                let size = size.with_context(|| Problem::Shape(text()))?;
                let channels = made.iter().fold(0usize, |n, s| n.saturating_add(s[0]));
                *shape = [&[channels], size].concat();
                volume(shape, 0)?;
                Op::Branches(all)
            }
            Layer::Residual(block) => {
                let (mut inside, mut beside) = (shape.clone(), shape.clone());
                let body = self.list(&format!("{name}.body."), &block.body.0, &mut inside)?;
                let shortcut =
                    self.list(&format!("{name}.shortcut."), &block.shortcut.0, &mut beside)?;
                let text = || {
                    format!(
                        "residual: the body gives {inside:?}, the shortcut {beside:?}; both must be the same"
                    )
                };
                Problem::shape_unless(inside == beside, text)?;
                *shape = inside;
                Op::Residual { body, shortcut }
            }
        })
    }

    fn convolution(
        &mut self,
        name: &str,
        conv: &Conv,
        shape: &mut Vec<usize>,
        relu: bool,
    ) -> Result<Op> {
        let [channels, height, width] = image("conv", shape)?;
        let Conv {
            out,
            kernel,
            stride,
            pad,
            bias,
        } = *conv;
        ensure!(pad <= MOST, "conv: a padding of {pad}; at most {MOST}");
        let text = || {
            format!(
                "conv: a kernel of {kernel}x{kernel} does not fit {height}x{width} with padding {pad}"
            )
        };
        Problem::shape_unless(kernel <= height.min(width) + 2 * pad, text)?;
        let windows = ConvShape {
            channels,
            height,
            width,
            out,
            kernel,
            stride,
            pad,
        };
        *shape = vec![out, windows.out_height(), windows.out_width()];
        volume(shape, 0)?;
        let size = vec![out, channels, kernel, kernel];
        volume(&size, 0)?;
        let start = Start::FanIn(windows.taps());
        let (weight, bias) = if bias {
            let [weight, bias] = self.weight_and_bias(name, size, start)?;
            (weight, Some(bias))
        } else {
            (self.tensor(name, "weight", size, start, true)?, None)
        };
        Ok(Op::Conv {
            shape: windows,
            weight,
            bias,
            relu,
        })
    }

    /// Adds zeros between the pixels, then a convolution: the transpose of the convolution with
    /// this stride and padding. Its kernel is PyTorch's rotated by half a turn,
    /// `out x in x kernel x kernel`.
    fn transposed(&mut self, name: &str, conv: &Conv, shape: &mut Vec<usize>) -> Result<Op> {
        let [channels, height, width] = image("transposed-conv", shape)?;
        let spread = |n: usize| (n - 1).saturating_mul(conv.stride).saturating_add(1);
        *shape = vec![channels, spread(height), spread(width)];
        volume(shape, 0)?;
        let inner = Conv {
            stride: 1,
            pad: conv.kernel - 1 - conv.pad,
            ..conv.clone()
        };
        let op = self.layer(name, &Layer::Conv(inner), shape, false)?;
        // PyTorch counts the outputs that one input reaches, not the inputs of one output
        for entry in self
            .net
            .entries
            .iter_mut()
            .rev()
            .take(1 + usize::from(conv.bias))
        {
            entry.start = Start::FanIn(conv.out * conv.kernel * conv.kernel);
        }
        Ok(Op::Chain(vec![Op::Spread(conv.stride), op]))
    }

    /// Adds a weight of this shape, and a number for each of its outputs.
    fn weight_and_bias(
        &mut self,
        layer: &str,
        weight: Vec<usize>,
        start: Start,
    ) -> Result<[Range<usize>; 2]> {
        let outputs = vec![weight[0]];
        Ok([
            self.tensor(layer, "weight", weight, start, true)?,
            self.tensor(layer, "bias", outputs, start, true)?,
        ])
    }

    fn refuse_text(&self, shape: &[usize]) -> Result<()> {
        let text = || format!("needs an image or a row of numbers, got a text {shape:?}");
        Problem::shape_unless(!self.text || shape.len() != 2, text)
    }

    fn scale_and_shift(&mut self, layer: &str, shape: &[usize]) -> Result<[Range<usize>; 2]> {
        Ok([
            self.tensor(layer, "weight", shape.to_vec(), Start::Ones, true)?,
            self.tensor(layer, "bias", shape.to_vec(), Start::Zeros, true)?,
        ])
    }

    fn tensor(
        &mut self,
        layer: &str,
        part: &str,
        shape: Vec<usize>,
        start: Start,
        trainable: bool,
    ) -> Result<Range<usize>> {
        let end = if trainable {
            &mut self.net.weights
        } else {
            &mut self.net.buffers
        };
        let range = *end..volume(&shape, *end)?;
        *end = range.end;
        self.net.entries.push(Entry {
            name: format!("{layer}.{part}"),
            shape,
            range: range.clone(),
            trainable,
            start,
        });
        Ok(range)
    }
}

fn image(layer: &str, shape: &[usize]) -> Result<[usize; 3]> {
    let text = || format!("{layer}: needs an image [channels, height, width], got {shape:?}");
    <[usize; 3]>::try_from(shape).map_err(|_| Problem::Shape(text()).into())
}

fn text(layer: &str, shape: &[usize]) -> Result<[usize; 2]> {
    let text = || format!("{layer}: needs a text [words, numbers of each], got {shape:?}");
    <[usize; 2]>::try_from(shape).map_err(|_| Problem::Shape(text()).into())
}

fn pool(layer: &str, shape: &mut Vec<usize>, kernel: usize, stride: usize) -> Result<PoolShape> {
    let [channels, height, width] = image(layer, shape)?;
    let text = || format!("{layer}: a window of {kernel}x{kernel} does not fit {height}x{width}");
    Problem::shape_unless(kernel <= height.min(width), text)?;
    let size = PoolShape {
        channels,
        height,
        width,
        kernel,
        stride,
    };
    *shape = size.out().to_vec();
    Ok(size)
}
