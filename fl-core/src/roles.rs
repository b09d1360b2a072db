//! What a part can be: the six roles of the field and the protocol that ties them into a method.

use crate::message::{Message, Params};
use crate::privacy::{Composition, Guarantee, Ledger};
use crate::{
    Answer, Asked, Client, Federation, Inbox, PrivacyEvent, Question, Result, Round, Samples, Slot,
    Stream, Target,
};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

/// What an aggregator promises; the conformance kit holds it to its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Who sent what does not matter, only what was sent (up to rounding).
    pub order_free: bool,
    /// Multiplying all weights by one factor changes nothing (up to rounding).
    pub weight_scale_free: bool,
    /// The weights are not looked at.
    pub weight_free: bool,
    /// Every number of the result lies between the smallest and the largest value sent for its place.
    pub within_hull: bool,
}

/// What an aggregator wants to know about a sender besides its message. It is sent only if asked for, and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Number of examples: it becomes the weight. Not asked for, every weight is 1.
    pub samples: bool,
    /// Number of examples per class.
    pub class_counts: bool,
}

crate::choices! {
    /// How much a client counts in a mean.
    pub enum Weigh {
        /// By its number of examples (McMahan et al. 2017).
        Samples = "samples",
        /// Every client alike.
        Uniform = "uniform",
    }
}

impl Weigh {
    /// What an aggregator that weighs like this must know.
    pub fn needs(&self) -> Needs {
        Needs {
            samples: *self == Self::Samples,
            ..Needs::default()
        }
    }
}

/// Many answers in, one result out: a mean, a vote, an EM step.
pub trait Aggregator: Send {
    /// What clients send.
    type In: Message;
    /// What comes out.
    type Out: Message;

    /// Combines one inbox. What is kept from round to round lives in `self` (see [`Aggregator::save`]).
    ///
    /// # Errors
    /// When the inbox cannot be combined. The inbox itself is already finite, sorted and of one shape.
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Self::In>) -> Result<Self::Out>;

    /// The same result from one message at a time, in memory that does not grow with the number of clients.
    /// Messages come in client order; the result must have the same bits as [`Aggregator::aggregate`].
    fn fold(&self) -> Option<Box<dyn Fold<Self::In, Self::Out>>> {
        None
    }

    /// What it wants to know about the senders.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Properties users may rely on.
    fn claims(&self) -> Claims {
        Claims::default()
    }

    /// The state kept from round to round, for a run that stops and goes on. Empty: there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`Aggregator::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// An aggregation in progress, see [`Aggregator::fold`].
pub trait Fold<In, Out>: Send {
    /// Takes one message in.
    ///
    /// # Errors
    /// When the message does not fit those before it.
    fn add(&mut self, mail: crate::Mail<In>) -> Result<()>;

    /// The result of all messages so far.
    ///
    /// # Errors
    /// When nothing usable was added.
    fn finish(self: Box<Self>) -> Result<Out>;
}

/// Picks some of many: clients for a cohort, samples worth speaking about, labels worth learning.
pub trait Selector: Send {
    /// What is chosen from: [`crate::Roster`] (clients), [`Samples`] or [`crate::message::SoftLabels`].
    type Pool: ?Sized;

    /// Sees a client's own samples once, before its first choice.
    ///
    /// # Errors
    /// When nothing can be learnt from these samples.
    fn fit(&mut self, _own: &crate::Examples, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    /// Positions in `pool`: ascending, no repeats.
    ///
    /// # Errors
    /// When the pool cannot be judged.
    fn select(&mut self, pool: &Self::Pool, stream: &Stream) -> Result<Vec<usize>>;

    /// How much each of `pool` is wanted, the higher the more: only for reports on how well a selector ranks. `None`: it
    /// has no such number.
    ///
    /// # Errors
    /// As [`Selector::select`].
    fn rank(&mut self, _pool: &Self::Pool) -> Result<Option<Vec<f64>>> {
        Ok(None)
    }

    /// The state after [`Selector::fit`], for a run that stops and goes on. Empty: there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`Selector::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Bounds what one client can change, says what a release costs, then hides the rest with noise.
pub trait PrivacyMechanism: Send {
    /// What it protects.
    type On: Message;

    /// Limits one client's range: clips, quantises, subsamples. Not random.
    ///
    /// # Errors
    /// When the message cannot be bounded.
    fn clip(&self, message: &mut Self::On) -> Result<()>;

    /// A number that every client reports so that all bound alike (FedKD's `z_max`); the largest comes back through
    /// [`PrivacyMechanism::agree`]. `None`: no such number is needed.
    fn range(&self, _message: &Self::On) -> Option<f32> {
        None
    }

    /// The largest [`PrivacyMechanism::range`] of all clients.
    fn agree(&mut self, _largest: f32) {}

    /// What releasing `message`, made from the data of `n` clients, would cost; asked before it is done.
    ///
    /// # Errors
    /// When there is no honest answer for this message.
    fn price(&self, message: &Self::On, n: usize) -> Result<PrivacyEvent>;

    /// Adds the noise. Does nothing for a mechanism that only bounds.
    ///
    /// # Errors
    /// When the message cannot be perturbed.
    fn perturb(&mut self, message: &mut Self::On, n: usize, stream: &Stream) -> Result<()>;

    /// How many queries `message` answers one by one, such as the rows of vote counts; a budget may then pay for the
    /// first few only.
    fn queries(&self, _message: &Self::On) -> usize {
        1
    }

    /// Leaves only the first `n` queries, `n` at most [`PrivacyMechanism::queries`].
    fn truncate(&self, _message: &mut Self::On, _n: usize) {}

    /// What the release has cost; asked after [`PrivacyMechanism::perturb`]. It may be less than the `price`, if the
    /// noise decides what is released, but never more.
    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        price
    }
}

/// Keeps the privacy ledger and turns it into a guarantee.
pub trait Accountant: Send {
    /// Takes one event in. An event without a price is an error ([`crate::Problem::Unpriced`]), never free.
    ///
    /// # Errors
    /// When this accountant cannot price `event`.
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()>;

    /// The guarantee for everything charged so far, and for `next` if there is one.
    ///
    /// # Errors
    /// When `next` has no price here.
    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee>;

    /// Takes in the ledgers of several clients; `how` says whether their data are disjoint.
    ///
    /// # Errors
    /// When one of their events has no price here.
    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()>;
}

/// Makes inputs, and learns which inputs are wanted.
pub trait Generator: Send {
    /// `n` inputs.
    ///
    /// # Errors
    /// When the generator cannot run.
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples>;

    /// Moves against `slope`, the derivative of a loss by each number of `made`, which [`Generator::sample`] gave last.
    ///
    /// # Errors
    /// When `made` is not what was sampled last.
    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()>;

    /// Everything it has learnt, optimiser included.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn save(&self) -> Result<Vec<u8>>;

    /// Takes back what [`Generator::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this generator.
    fn load(&mut self, state: &[u8]) -> Result<()>;
}

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

/// One stretch of training.
#[derive(Clone, Debug)]
pub struct Pass<'a> {
    /// How long.
    pub length: Length,
    /// Samples per mini-batch; the last of an epoch may be smaller.
    pub batch: usize,
    /// What is minimised.
    pub loss: Loss,
    /// Forget the optimiser's moments and schedule first.
    pub fresh: bool,
    /// FedProx: adds `mu * (w - anchor)` to the gradient.
    pub pull: Option<(f32, &'a Params)>,
    /// SCAFFOLD: adds this (`c - c_k`) to the gradient.
    pub drift: Option<&'a Params>,
    /// Clips the gradient of a batch to this Euclidean norm.
    pub clip: Option<f32>,
}

impl Pass<'_> {
    /// Plain training: no pull, drift or clipping; the optimiser goes on where it was.
    pub fn new(length: Length, batch: usize, loss: Loss) -> Self {
        Self {
            length,
            batch,
            loss,
            fresh: false,
            pull: None,
            drift: None,
            clip: None,
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

    /// How many mini-batches [`Pass::batches`] gives.
    pub fn steps(&self, n: usize) -> usize {
        match self.length {
            Length::Steps(steps) if n > 0 => steps,
            Length::Steps(_) => 0,
            Length::Epochs(epochs) => epochs * n.div_ceil(self.batch.max(1)),
        }
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fitted {
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
    /// `pass` asks for something this trainer does not do (such as `pull` for trees).
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &Pass<'_>,
        stream: &Stream,
    ) -> Result<Fitted>;

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
}

/// A model that can be differentiated by its input.
pub trait Differentiable {
    /// Vector-Jacobian product: the derivative of `sum(slope * scores)` by each input number, `samples x width`.
    ///
    /// # Errors
    /// When `slope` is not `samples x outputs`.
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>>;
}

/// A paper's algorithm box: the server's side and the client's side of one conversation.
///
/// The two sides share nothing but the questions, whose payloads are messages: a client can live in another process.
pub trait Protocol: Send + Sync {
    /// What the spec must fill.
    fn slots(&self) -> Vec<Slot>;

    /// Every question, known before anything runs.
    fn questions(&self) -> Vec<Asked>;

    /// The server's side.
    ///
    /// # Errors
    /// When the run cannot go on.
    fn lead(&self, fed: &mut Federation<'_>) -> Result<()>;

    /// The client's side: answers one question.
    ///
    /// # Errors
    /// When this client cannot answer; the spec's fault policy decides what becomes of the run.
    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer>;

    /// Run on one client that has everybody's data (the centralised baseline).
    fn pools_data(&self) -> bool {
        false
    }
}
