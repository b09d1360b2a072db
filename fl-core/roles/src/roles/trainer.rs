//! [`Trainer`]: the role of a model that learns, with [`FitOptions`] and [`Loss`].

use crate::message::Params;
use crate::{AuxiliaryLoss, FeatureLoss, Head, Problem, Result, Samples, Stream, Target};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::ops::{Add, Mul, Sub};

/// The length of a pass over data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Length {
    /// This number of mini-batches, drawn from endlessly reshuffled data.
    Steps(usize),
    /// This number of passes over every sample.
    Epochs(usize),
}

impl Display for Length {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (n, what) = match self {
            Self::Steps(n) => (n, "step"),
            Self::Epochs(n) => (n, "epoch"),
        };
        write!(f, "{n} {what}{}", if *n == 1 { "" } else { "s" })
    }
}

/// The loss that training minimises. Means are over the batch. [`Loss::Mae`], [`Loss::Norm`] and
/// [`Loss::Mse`] are readings of FedKD's Eq. 7 (Gong et al. 2022), which does not name its norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// Softmax cross-entropy for classes and soft labels; sigmoid cross-entropy, unknowns left out,
    /// for labels.
    CrossEntropy,
    /// Mean absolute error between scores, over batch and outputs.
    Mae,
    /// Mean squared error between scores, over batch and outputs.
    Mse,
    /// Huber's loss (1964) of the difference `d` of scores, over batch and outputs: `d^2 / 2` up to
    /// `delta`, and `delta (|d| - delta / 2)` beyond.
    Huber {
        /// Where the loss becomes linear, above 0; numbers on the label's scale.
        delta: f64,
    },
    /// Mean over the batch of the Euclidean norm of the difference of scores.
    Norm,
    /// Kullback-Leibler divergence of softmax(target / tau) to softmax(output / tau), times tau
    /// squared.
    Kl {
        /// The temperature.
        tau: f64,
    },
}

impl Loss {
    /// One of each kind.
    pub const KINDS: [Self; 6] = [
        Self::CrossEntropy,
        Self::Mae,
        Self::Mse,
        Self::Huber { delta: 1.0 },
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
            Self::Huber { delta } => write!(f, "huber from {delta}"),
            Self::Norm => f.write_str("norm"),
            Self::Kl { tau } => write!(f, "kl at temperature {tau}"),
        }
    }
}

/// An ability that a protocol may require of a model besides learning classes and predicting; see
/// [`SlotSpec::needs`](crate::SlotSpec::needs).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ability {
    /// [`Trainer::parametric`]
    Parameters,
    /// The gradient of a single example: [`Parametric::gradient`]
    ExampleGradients,
    /// [`Abilities::learns`]
    Loss(Loss),
    /// [`Abilities::learns`], of the loss of its task's labels
    /// ([`TaskKind::loss`](crate::TaskKind::loss))
    TaskLoss,
    /// [`Trainer::fit`] to [`Target::Soft`]
    SoftTargets,
    /// [`Trainer::features`]
    Features,
    /// [`Trainer::differentiable`]
    InputGradient,
    /// [`Trainer::head`] with this number of features, and [`FitOptions::auxiliary`]
    Head(usize),
    /// [`Trainer::head`] with any number of features, and [`FitOptions::auxiliary`]
    AuxiliaryLoss,
    /// [`Abilities::feature_loss`]
    FeatureLoss,
    /// [`Parametric::step_size`]
    EqualSteps,
    /// This [`Abilities::step_momentum`]
    Momentum(f64),
    /// No [`Abilities::beside_gradient`]: its training does what [`Parametric::gradient`] says
    ByGradient,
    /// No [`Abilities::decays_weights`]
    NoDecay,
    /// No [`Abilities::schedules_pass`]: its training is given one epoch at a time, or some steps
    ByEpoch,
    /// Neither [`Abilities::schedules_pass`] nor [`Abilities::schedules_epoch`]: its training is
    /// given one step at a time, or some
    ByStep,
    /// [`Abilities::scales_rate`]
    ScaledRate,
    /// [`Abilities::gradient_terms`]
    GradientTerms,
    /// No [`Parametric::buffers`], such as statistics of batch normalisation
    NoBuffers,
    /// No [`Abilities::starts_again`]: what one training learns, the next one keeps
    GoesOn,
}

/// The abilities of a trainer that its other methods do not show. A trainer names those that differ
/// from [`Abilities::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Abilities {
    /// Whether it takes a loss on its features ([`FitOptions::feature_loss`]), which trains the
    /// layers before the last one. [`Trainer::features`] then returns features. Default: no.
    pub feature_loss: bool,
    /// Whether a pass may scale its learning rate ([`FitOptions::rate`], [`PassStep::rate`]).
    /// Default: no.
    pub scales_rate: bool,
    /// Whether a pass may add to its gradients and shorten them ([`FitOptions::proximal`],
    /// [`FitOptions::gradient_offset`], [`FitOptions::clip`]). Default: no.
    pub gradient_terms: bool,
    /// The losses that it can minimise, each with any number: one temperature is as good as
    /// another. Default: all.
    pub learns: Vec<Loss>,
    /// The number of words, counted from 0, if samples must be word numbers below it, as those of a
    /// network that begins with an embedding. Default: other numbers.
    pub vocabulary: Option<usize>,
    /// How many samples a mini-batch must have for a step. Training skips smaller ones, as a
    /// network skips a single sample whose channels batch normalisation cannot normalise.
    /// Default: 1.
    pub least_batch: usize,
    /// After how many mini-batches of a fresh optimiser the schedule of its rate first falls, or
    /// has come to its end if it falls all the time. `None` if there is no schedule, or each pass
    /// has all of it. A run is refused if no training is that long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_length: Option<usize>,
    /// The rate that the schedule keeps once it has come to its end, from 0. Default: `None`, it
    /// has no end, or each pass has all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_end: Option<f64>,
    /// Whether the schedule of its rate follows the place of a step in its pass, so that each pass
    /// has all of it. Default: no.
    pub schedules_pass: bool,
    /// Whether the schedule of its rate counts epochs by the ends of passes. Default: no.
    pub schedules_epoch: bool,
    /// The momentum `m` of its optimiser, if each step of a pass is exactly `v <- m v + g`,
    /// `w <- w - rate v`, from `v = 0` if fresh, with gradient `g` and a rate that does not change.
    /// Default: `None`, another or no momentum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_momentum: Option<f64>,
    /// What its training does and [`Parametric::gradient`] leaves out, such as `dropout`. Default:
    /// nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside_gradient: Vec<String>,
    /// Whether its steps add a multiple of the weights to the gradient (weight decay). Default: no.
    pub decays_weights: bool,
    /// Whether each training starts again, as trees are grown anew, so that the model knows nothing
    /// of earlier ones. Default: no.
    pub starts_again: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            feature_loss: false,
            scales_rate: false,
            gradient_terms: false,
            learns: Loss::KINDS.into(),
            vocabulary: None,
            least_batch: 1,
            schedule_length: None,
            schedule_end: None,
            schedules_pass: false,
            schedules_epoch: false,
            step_momentum: None,
            beside_gradient: Vec::new(),
            decays_weights: false,
            starts_again: false,
        }
    }
}

impl Abilities {
    /// Returns whether the trainer can minimise this loss.
    pub fn learns(&self, loss: Loss) -> bool {
        let same = |known: &Loss| std::mem::discriminant(known) == std::mem::discriminant(&loss);
        self.learns.iter().any(same)
    }
}

/// The options of one training pass.
#[derive(Clone, Debug)]
pub struct FitOptions<'a> {
    /// The length.
    pub length: Length,
    /// Samples per mini-batch; the last of an epoch may be smaller.
    pub batch: usize,
    /// The loss to minimise.
    pub loss: Loss,
    /// Whether to reset the optimiser's moments and schedule first.
    pub fresh: bool,
    /// The factor of the learning rate in this pass, from 0: 1 leaves it as it is. Only for a model
    /// that takes one ([`Abilities::scales_rate`]).
    pub rate: f64,
    /// FedProx: adds `mu * (w - anchor)` to the gradient.
    pub proximal: Option<(f32, &'a Params)>,
    /// SCAFFOLD: adds this (`c - c_k`) to the gradient.
    pub gradient_offset: Option<&'a Params>,
    /// Clips the gradient of a batch to this Euclidean norm.
    pub clip: Option<f32>,
    /// A loss to add to that of each mini-batch, only for a model with a [`Trainer::head`].
    pub auxiliary: Option<&'a dyn AuxiliaryLoss>,
    /// A loss on features to add to that of each mini-batch, only for a model that takes one
    /// ([`Abilities::feature_loss`]).
    pub feature_loss: Option<&'a dyn FeatureLoss>,
}

impl FitOptions<'_> {
    /// Returns options for plain training: no proximal term, gradient offset, clipping or added
    /// loss. The optimiser continues from its state.
    pub fn new(length: Length, batch: usize, loss: Loss) -> Self {
        Self {
            length,
            batch,
            loss,
            fresh: false,
            rate: 1.0,
            proximal: None,
            gradient_offset: None,
            clip: None,
            auxiliary: None,
            feature_loss: None,
        }
    }

    /// Returns the mini-batches of this pass over `n` samples, as positions. Every epoch has its
    /// own order, drawn from `stream`. The last batch of an epoch may be smaller.
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

    /// Returns the number of mini-batches of [`FitOptions::batches`].
    pub fn steps(&self, n: usize) -> usize {
        match self.length {
            Length::Steps(steps) if n > 0 => steps,
            Length::Steps(_) => 0,
            Length::Epochs(epochs) => epochs * n.div_ceil(self.batch.max(1)),
        }
    }

    /// Returns the first mini-batch that [`FitReport::loss`] is about, as its position in
    /// [`FitOptions::batches`]: as many as an epoch has come from it on, or all of a shorter pass.
    pub fn reported_from(&self, n: usize) -> usize {
        self.steps(n).saturating_sub(n.div_ceil(self.batch.max(1)))
    }
}

/// The place of one step in its pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassStep {
    /// The number of steps before it in the pass.
    pub at: usize,
    /// The number of steps of the pass.
    pub of: usize,
    /// [`FitOptions::rate`]
    #[serde(
        default = "PassStep::whole",
        skip_serializing_if = "PassStep::is_whole"
    )]
    pub rate: f64,
}

impl PassStep {
    /// Returns step `at` of `of`, which leaves the learning rate as it is.
    pub fn new(at: usize, of: usize) -> Self {
        let rate = Self::whole();
        Self { at, of, rate }
    }

    /// The factor that leaves a learning rate as it is.
    #[doc(hidden)]
    pub fn whole() -> f64 {
        1.0
    }

    #[doc(hidden)]
    pub fn is_whole(rate: &f64) -> bool {
        *rate == Self::whole()
    }
}

/// Returns FedProx's gradient of one number, `g + mu (w - anchor)`: [`FitOptions::proximal`]
/// applied to the loss's own gradient `g`.
#[inline(always)]
pub fn pulled<T>(g: T, w: T, anchor: T, mu: T) -> T
where
    T: Copy + Add<Output = T> + Sub<Output = T> + Mul<Output = T>,
{
    g + mu * (w - anchor)
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitReport {
    /// Mini-batches.
    pub steps: usize,
    /// Mean of the losses of the mini-batches of the last epoch, or of all steps of a shorter pass;
    /// 0 if there was no step. Every mini-batch counts the same, a smaller last one too. It is
    /// without what a method adds, such as [`FitOptions::proximal`] and [`FitOptions::auxiliary`].
    /// JSON has no number for NaN, which is written as `null`.
    #[serde(default = "nan", deserialize_with = "crate::host::number")]
    pub loss: f64,
    /// Whether the loss still fell at the end ([`crate::LossCurve::falls`]); `None` if the trainer
    /// does not know.
    pub falls: Option<bool>,
}

fn nan() -> f64 {
    f64::NAN
}

impl FitReport {
    /// Returns a note for the user if the model in `slot` took no step, or if its loss still fell
    /// at the end, after `length`.
    pub fn unfinished(&self, slot: &str, length: impl Display) -> Option<String> {
        match (self.steps, self.falls) {
            (0, _) => Some(format!(
                "parts.{slot} took no training step: no mini-batch had the samples that it needs, or there were none"
            )),
            (_, Some(true)) => Some(format!(
                "parts.{slot}: the loss still fell when training ended ({length}): train longer, or raise the learning rate"
            )),
            _ => None,
        }
    }
}

/// A model that learns.
///
/// A trainer is deterministic: the same calls with the same streams give the same bits. It runs on
/// one thread.
pub trait Trainer: Send {
    /// Fits the model to `target`, one entry per sample.
    ///
    /// # Errors
    /// If shapes do not fit, target and loss do not go together, or the loss is no longer finite.
    /// Also if `pass` requests an option that this trainer lacks (such as `proximal` for trees).
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport>;

    /// Returns scores (logits), `samples x outputs`. Never random.
    ///
    /// # Errors
    /// If the samples do not have the shape of the task.
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>>;

    /// Returns the output of the layer before the last, `samples x features`; `None` if there is
    /// none.
    ///
    /// # Errors
    /// As [`Trainer::predict`].
    fn features(&mut self, _x: &Samples) -> Result<Option<Array2<f32>>> {
        Ok(None)
    }

    /// Returns the last layer, on features of [`Trainer::features`]; `None` if it is not linear or
    /// not accessible. A trainer that returns it must support an auxiliary loss too
    /// ([`FitOptions::auxiliary`]).
    fn head(&self) -> Option<Head> {
        None
    }

    /// Returns the abilities that its other methods do not show. Called before a run: a protocol
    /// that needs an ability refuses a trainer without it.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Returns the model in its own format: only what predictions need, without training state.
    ///
    /// # Errors
    /// If it cannot be serialised.
    fn save(&self) -> Result<Vec<u8>>;

    /// Restores a model from [`Trainer::save`].
    ///
    /// # Errors
    /// If `model` is not a model of this trainer and task.
    fn load(&mut self, model: &[u8]) -> Result<()>;

    /// Returns model *and* optimiser, so that training continues with the same bits. Default: the
    /// model is all.
    ///
    /// # Errors
    /// As [`Trainer::save`].
    fn save_state(&self) -> Result<Vec<u8>> {
        self.save()
    }

    /// Restores a state from [`Trainer::save_state`].
    ///
    /// # Errors
    /// As [`Trainer::load`].
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        self.load(state)
    }

    /// Returns the client's memory besides model and optimiser, such as its model of the last
    /// round.
    ///
    /// A slot that does not last ([`SlotSpec::lasting`](crate::SlotSpec::lasting)) makes a new
    /// model for each request. The memory goes from the old model to the new one, in every engine.
    /// [`Trainer::save_state`] holds it too. Default: empty, no memory.
    ///
    /// # Errors
    /// If it cannot be serialised.
    fn save_memory(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Restores a memory from [`Trainer::save_memory`]. Model and optimiser stay as they are. The
    /// memory is never empty.
    ///
    /// # Errors
    /// If `memory` is not a memory of this trainer.
    fn load_memory(&mut self, _memory: &[u8]) -> Result<()> {
        Err(Problem::Lacks("this trainer keeps no memory to restore".into()).into())
    }

    /// Returns this model as one with parameters that can be averaged.
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        None
    }

    /// Returns this model as one that is differentiable by its input.
    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        None
    }
}

/// A model with parameters that can be averaged.
pub trait Parametric {
    /// Returns all parameters, and buffers such as batch-norm statistics, by name.
    fn params(&self) -> Params;

    /// Returns the names of those tensors of [`Parametric::params`] that are buffers: statistics of
    /// data, such as a running variance or a count of batches, which no optimiser moves. They are
    /// averaged with the parameters, and no server optimiser takes a step with them.
    fn buffers(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Replaces them. A buffer outside its range, as noise may make a variance, counts as the
    /// nearest value within.
    ///
    /// # Errors
    /// If names or shapes differ from [`Parametric::params`].
    fn set_params(&mut self, params: &Params) -> Result<()>;

    /// Returns the gradient of the mean loss over these samples by every parameter, named and
    /// shaped as [`Parametric::params`]; 0 for buffers. Changes nothing: takes no step and moves no
    /// statistics. If the loss is NaN, so is the gradient.
    ///
    /// # Errors
    /// As [`Trainer::fit`], or if this trainer gives no gradients.
    fn gradient(&mut self, _x: &Samples, _target: Target<'_>, _loss: Loss) -> Result<Params> {
        Err(Problem::Lacks("this trainer gives no gradients".into()).into())
    }

    /// Returns the sum over the samples of `min(1, clip / |g|) g`, where `g` is the gradient of the
    /// loss of one sample alone by every parameter, and `|g|` its Euclidean norm (DP-SGD; Abadi et
    /// al. 2016). `None` if this trainer computes gradients sample by sample only: its caller then
    /// asks for the [`Parametric::gradient`] of each.
    ///
    /// One sample more or less must move the sum by at most `clip`, rounding included. So the
    /// addend of a sample must be the same bits whatever the other samples are, no longer than
    /// `clip`, and 0 if its gradient is not finite; and sums are in 64 bits.
    ///
    /// # Errors
    /// As [`Parametric::gradient`].
    fn clipped_gradients(
        &mut self,
        _x: &Samples,
        _target: Target<'_>,
        _loss: Loss,
        _clip: f64,
    ) -> Result<Option<Params>> {
        Ok(None)
    }

    /// Takes one step of its optimiser along this gradient, named and shaped as
    /// [`Parametric::params`]. Buffers stay as they are.
    ///
    /// # Errors
    /// If names or shapes differ, or this trainer takes no gradients.
    fn descend(&mut self, _gradient: &Params, _step: &PassStep) -> Result<()> {
        Err(Problem::Lacks("this trainer takes no gradients".into()).into())
    }

    /// Returns the step size (learning rate) of its optimiser, if each step of a pass is exactly
    /// that times the gradient, in a pass that leaves it as it is ([`FitOptions::rate`]). `None`
    /// otherwise, as with momentum, Adam or a rate that changes.
    fn step_size(&self) -> Option<f64> {
        None
    }
}

/// A model that is differentiable by its input.
pub trait Differentiable {
    /// Vector-Jacobian product: returns the derivative of `sum(slope * scores)` by each input
    /// number, `samples x width`.
    ///
    /// # Errors
    /// If `slope` is not `samples x outputs`.
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>>;
}
