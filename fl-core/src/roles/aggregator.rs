//! Many answers in, one result out.

use crate::message::Message;
use crate::{Inbox, Result, Round};
use serde::{Deserialize, Serialize};

/// What an aggregator promises; the conformance kit holds it to its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Who sent what does not matter, only what was sent (up to rounding).
    pub order_free: bool,
    /// Multiplying all weights by one factor changes nothing (up to rounding).
    pub weight_scale_free: bool,
    /// The weights are not looked at.
    pub weight_free: bool,
    /// Every number of the result lies between the smallest and the largest value sent for its place.
    pub within_hull: bool,
}

/// What an aggregator wants to know besides the messages. What is about a sender is sent only if asked for, and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredInputs {
    /// Number of examples: it becomes the weight. Not asked for, every weight is 1.
    pub samples: bool,
    /// Number of examples per class.
    pub class_counts: bool,
    /// The mean loss of the training that made the answer ([`crate::Declared::trains`]), as the
    /// trainer reports it ([`crate::FitReport::loss`]).
    pub training_loss: bool,
    /// What the clients were sent, such as the global model ([`Round::sent`]). Costs nothing on the wire.
    pub sent: bool,
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
    pub fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            samples: *self == Self::Samples,
            ..RequiredInputs::default()
        }
    }
}

/// Many answers in, one result out: a mean, a vote, an EM step.
pub trait Aggregator: Send {
    /// What clients send.
    type In: Message;
    /// What comes out.
    type Out: Message;

    /// Combines one inbox. What is kept from round to round lives in `self` (see [`Aggregator::save`]); `round` shows what
    /// the clients were sent ([`Round::sent`]), if [`Aggregator::needs`] says so, and takes notes and numbers for the report.
    ///
    /// # Errors
    /// When the inbox cannot be combined. The inbox itself is already finite, sorted and of one shape.
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Self::In>) -> Result<Self::Out>;

    /// The same result from one message at a time, in memory that does not grow with the number of clients.
    /// Messages come in client order; what the fold gives, after [`Aggregator::update`], must have the same bits as
    /// [`Aggregator::aggregate`].
    fn fold(&self, _round: &Round) -> Option<Box<dyn Fold<Self::In, Self::Out>>> {
        None
    }

    /// What becomes of a fold's result. A fold has no access to what the aggregator keeps from round to round; here is the
    /// place to use and to change it (a server optimiser's step, a momentum).
    ///
    /// # Errors
    /// When the result does not fit what was kept.
    fn update(&mut self, _round: &Round, folded: Self::Out) -> Result<Self::Out> {
        Ok(folded)
    }

    /// What it wants to know about the senders.
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Properties users may rely on.
    fn claims(&self) -> Properties {
        Properties::default()
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
    fn add(&mut self, mail: crate::ClientMessage<In>) -> Result<()>;

    /// The result of all messages so far.
    ///
    /// # Errors
    /// When nothing usable was added.
    fn finish(self: Box<Self>) -> Result<Out>;
}
