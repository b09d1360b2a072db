//! A model that learns, and how long and by what.

use crate::message::Params;
use crate::{AuxiliaryLoss, Head, Problem, Result, Samples, Stream, Target};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::ops::{Add, Mul, Sub};

/// How long a pass over data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Length {
    /// So many mini-batches, drawn from endlessly reshuffled data.
    Steps(usize),
    /// So many times every sample once.
    Epochs(usize),
}

/// What is minimised. Means are over the batch. [`Loss::Mae`], [`Loss::Norm`] and [`Loss::Mse`] are readings of FedKD's Eq. 7
/// (Gong et al. 2022), which does not name its norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// Softmax cross-entropy for classes and soft labels; sigmoid cross-entropy, unknowns left out, for labels.
    CrossEntropy,
    /// Mean absolute error between scores, over batch and outputs.
    Mae,
    /// Mean squared error between scores, over batch and outputs.
    Mse,
    /// Mean over the batch of the Euclidean norm of the difference of scores.
    Norm,
    /// Kullback-Leibler divergence of softmax(target / tau) to softmax(output / tau), times tau squared.
    Kl {
        /// The temperature.
        tau: f64,
    },
}

impl Loss {
    /// One of each kind.
    pub const KINDS: [Self; 5] = [
        Self::CrossEntropy,
        Self::Mae,
        Self::Mse,
        Self::Norm,
        Self::Kl { tau: 1.0 },
    ];
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CrossEntropy => f.write_str("cross-entropy"),
            Self::Mae => f.write_str("mae"),
            Self::Mse => f.write_str("mse"),
            Self::Norm => f.write_str("norm"),
            Self::Kl { tau } => write!(f, "kl at temperature {tau}"),
        }
    }
}

/// What a protocol may need of a model besides learning classes and predicting; see [`SlotSpec::needs`](crate::SlotSpec::needs).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ability {
    /// [`Trainer::parametric`]
    Parameters,
    /// The gradient of a single example: [`Parametric::gradient`]
    ExampleGradients,
    /// [`Trainer::learns`]
    Loss(Loss),
    /// [`Trainer::features`]
    Features,
    /// [`Trainer::differentiable`]
    InputGradient,
    /// [`Trainer::head`] with this number of features, and [`FitOptions::auxiliary`]
    Head(usize),
    /// [`Parametric::step_size`]
    EqualSteps,
}

/// One stretch of training.
#[derive(Clone, Debug)]
pub struct FitOptions<'a> {
    /// How long.
    pub length: Length,
    /// Samples per mini-batch; the last of an epoch may be smaller.
    pub batch: usize,
    /// What is minimised.
    pub loss: Loss,
    /// Forget the optimiser's moments and schedule first.
    pub fresh: bool,
    /// FedProx: adds `mu * (w - anchor)` to the gradient.
    pub proximal: Option<(f32, &'a Params)>,
    /// SCAFFOLD: adds this (`c - c_k`) to the gradient.
    pub gradient_offset: Option<&'a Params>,
    /// Clips the gradient of a batch to this Euclidean norm.
    pub clip: Option<f32>,
    /// A loss that is added to that of each mini-batch. For a model with a [`Trainer::head`] only.
    pub auxiliary: Option<&'a dyn AuxiliaryLoss>,
}

impl FitOptions<'_> {
    /// Plain training: no proximal term, gradient offset, clipping or auxiliary loss; the optimiser goes on where it
    /// was.
    pub fn new(length: Length, batch: usize, loss: Loss) -> Self {
        Self {
            length,
            batch,
            loss,
            fresh: false,
            proximal: None,
            gradient_offset: None,
            clip: None,
            auxiliary: None,
        }
    }

    /// The mini-batches of this pass over `n` samples, as positions: every epoch in an order of its own, drawn from
    /// `stream`; the last batch of an epoch may be smaller.
    pub fn batches(&self, n: usize, stream: &Stream) -> impl Iterator<Item = Vec<usize>> + use<> {
        let (stream, batch) = (stream.child("order", 0), self.batch.max(1));
        let (epochs, steps) = match self.length {
            Length::Epochs(epochs) => (epochs, usize::MAX),
            Length::Steps(steps) => (usize::MAX, steps),
        };
        let epochs = if n == 0 { 0 } else { epochs };
        let of_epoch = move |e| {
            let order = stream.child("epoch", e as u64).draws().permutation(n);
            order
                .chunks(batch)
                .map(<[usize]>::to_vec)
                .collect::<Vec<_>>()
        };
        (0..epochs).flat_map(of_epoch).take(steps)
    }

    /// How many mini-batches [`FitOptions::batches`] gives.
    pub fn steps(&self, n: usize) -> usize {
        match self.length {
            Length::Steps(steps) if n > 0 => steps,
            Length::Steps(_) => 0,
            Length::Epochs(epochs) => epochs * n.div_ceil(self.batch.max(1)),
        }
    }
}

/// FedProx's gradient of one number, `g + mu (w - anchor)`: what [`FitOptions::proximal`] makes of the loss's own `g`.
#[inline(always)]
pub fn pulled<T>(g: T, w: T, anchor: T, mu: T) -> T
where
    T: Copy + Add<Output = T> + Sub<Output = T> + Mul<Output = T>,
{
    g + mu * (w - anchor)
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FitReport {
    /// Mini-batches.
    pub steps: usize,
    /// Mean loss over the last epoch, or over all steps of a shorter pass; 0 if there was no step.
    pub loss: f64,
}

/// A model that learns.
///
/// A trainer is deterministic: the same calls with the same streams give the same bits. It runs on one thread.
pub trait Trainer: Send {
    /// Fits to `target`, one entry per sample.
    ///
    /// # Errors
    /// When shapes do not fit, when target and loss do not go together, when the loss is no longer finite, or when
    /// `pass` asks for something this trainer does not do (such as `proximal` for trees).
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport>;

    /// Scores (logits), `samples x outputs`. Never random.
    ///
    /// # Errors
    /// When the samples do not have the shape of the task.
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>>;

    /// The layer before the last, `samples x features`; `None` if there is no such thing.
    ///
    /// # Errors
    /// As [`Trainer::predict`].
    fn features(&mut self, _x: &Samples) -> Result<Option<Array2<f32>>> {
        Ok(None)
    }

    /// The last layer by itself, of features as [`Trainer::features`] gives them; `None` if it is not linear, or is not shown. A
    /// trainer that shows it takes an auxiliary loss too ([`FitOptions::auxiliary`]).
    fn head(&self) -> Option<Head> {
        None
    }

    /// The model in its own format: what predictions need, nothing about how it was trained.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn save(&self) -> Result<Vec<u8>>;

    /// Takes back what [`Trainer::save`] gave.
    ///
    /// # Errors
    /// When `model` is not a model of this trainer and task.
    fn load(&mut self, model: &[u8]) -> Result<()>;

    /// Model *and* optimiser, so that training goes on with the same bits. Default: the model is all there is.
    ///
    /// # Errors
    /// As [`Trainer::save`].
    fn save_state(&self) -> Result<Vec<u8>> {
        self.save()
    }

    /// Takes back what [`Trainer::save_state`] gave.
    ///
    /// # Errors
    /// As [`Trainer::load`].
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        self.load(state)
    }

    /// What the client remembers beside model and optimiser, such as its model of the last round.
    ///
    /// A slot that is not lasting ([`SlotSpec::lasting`](crate::SlotSpec::lasting)) makes its model anew
    /// for each question. The memory goes from the old model to the new one, in every engine.
    /// [`Trainer::save_state`] holds it too. Default: empty, the client remembers nothing.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn save_memory(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Takes back what [`Trainer::save_memory`] gave. Model and optimiser stay as they are. The
    /// memory is never empty.
    ///
    /// # Errors
    /// When `memory` is not a memory of this trainer.
    fn load_memory(&mut self, _memory: &[u8]) -> Result<()> {
        Err(Problem::Lacks("this trainer has no memory to take back".into()).into())
    }

    /// Can it minimise this loss? Asked before a run; one that says no is not put where a protocol needs it.
    fn learns(&self, _loss: Loss) -> bool {
        true
    }

    /// This model as one with parameters that can be averaged.
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        None
    }

    /// This model as one that can be differentiated by its input.
    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        None
    }
}

/// A model with parameters that can be averaged.
pub trait Parametric {
    /// All parameters, and buffers such as batch-norm statistics, by name.
    fn params(&self) -> Params;

    /// Replaces them.
    ///
    /// # Errors
    /// When names or shapes differ from [`Parametric::params`].
    fn set_params(&mut self, params: &Params) -> Result<()>;

    /// The gradient of the mean loss over these samples by every parameter, named and shaped as [`Parametric::params`]; 0
    /// for buffers. Changes nothing: no step is taken, no statistics move. Where the loss is no number, neither is the gradient.
    ///
    /// # Errors
    /// As [`Trainer::fit`]; when this trainer gives no gradients.
    fn gradient(&mut self, _x: &Samples, _target: Target<'_>, _loss: Loss) -> Result<Params> {
        Err(Problem::Lacks("this trainer gives no gradients".into()).into())
    }

    /// One step of its optimiser along this gradient, which is named and shaped as [`Parametric::params`], as after batch `at` of `of`
    /// of a pass. Buffers stay as they are.
    ///
    /// # Errors
    /// When names or shapes differ; when this trainer takes no gradients.
    fn descend(&mut self, _gradient: &Params, _at: usize, _of: usize) -> Result<()> {
        Err(Problem::Lacks("this trainer takes no gradients".into()).into())
    }

    /// How far the next step goes: the step size (learning rate) of its optimiser, if each step of a pass is that times the gradient
    /// and nothing else. `None`: it has none, as with momentum, Adam or a rate that changes.
    fn step_size(&self) -> Option<f64> {
        None
    }
}

/// A model that can be differentiated by its input.
pub trait Differentiable {
    /// Vector-Jacobian product: the derivative of `sum(slope * scores)` by each input number, `samples x width`.
    ///
    /// # Errors
    /// When `slope` is not `samples x outputs`.
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>>;
}
