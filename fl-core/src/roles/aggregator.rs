//! [`Aggregator`]: the role that combines many answers into one result.

use crate::message::Message;
use crate::{Inbox, Result, Round};
use serde::{Deserialize, Serialize};

/// Properties that an aggregator claims; the conformance kit checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The order of the senders does not affect the result (up to rounding).
    pub order_free: bool,
    /// A common factor of all weights does not affect the result (up to rounding).
    pub weight_scale_free: bool,
    /// The weights do not affect the result.
    pub weight_free: bool,
    /// Every number of the result lies between the smallest and the largest value sent for its
    /// coordinate.
    pub within_hull: bool,
}

/// Inputs that an aggregator requires besides the messages. Data about a sender is sent only if
/// requested, and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredInputs {
    /// Number of examples, which becomes the weight. If not requested, every weight is 1.
    pub samples: bool,
    /// Number of examples per class.
    pub class_counts: bool,
    /// The mean loss of the training that made the answer ([`crate::Declared::trains`]), as the
    /// trainer reports it ([`crate::FitReport::loss`]).
    pub training_loss: bool,
    /// The message sent to clients, such as the global model ([`Round::sent`]). Costs no bytes.
    pub sent: bool,
}

crate::choices! {
    /// The weight of a client in a mean.
    pub enum Weigh {
        /// By its number of examples (McMahan et al. 2017).
        Samples = "samples",
        /// All clients equally.
        Uniform = "uniform",
    }
}

impl Weigh {
    /// Returns the inputs that an aggregator with these weights requires.
    pub fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            samples: *self == Self::Samples,
            ..RequiredInputs::default()
        }
    }
}

/// Combines many answers into one result: a mean, a vote, an EM step.
pub trait Aggregator: Send {
    /// The clients' messages.
    type In: Message;
    /// The result.
    type Out: Message;

    /// Combines one inbox. State that lasts between rounds lives in `self` (see
    /// [`Aggregator::save`]). `round` shows the message sent to clients ([`Round::sent`]), if
    /// [`Aggregator::needs`] requests it. `round` also takes notes and numbers for the report.
    ///
    /// # Errors
    /// If the inbox cannot be combined. The inbox itself is already finite, sorted and of one
    /// shape.
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Self::In>) -> Result<Self::Out>;

    /// Returns a fold with the same result from one message at a time. Its memory does not grow
    /// with the number of clients. Messages come in client order. The fold's result, after
    /// [`Aggregator::update`], must have the same bits as that of [`Aggregator::aggregate`].
    fn fold(&self, _round: &Round) -> Option<Box<dyn Fold<Self::In, Self::Out>>> {
        None
    }

    /// Converts a fold's result. A fold cannot access the aggregator's lasting state; this function
    /// may use and change it (a server optimiser's step, a momentum).
    ///
    /// # Errors
    /// If the result does not fit the state.
    fn update(&mut self, _round: &Round, folded: Self::Out) -> Result<Self::Out> {
        Ok(folded)
    }

    /// Returns the inputs that it requires about the senders.
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Returns the properties that it claims.
    fn claims(&self) -> Properties {
        Properties::default()
    }

    /// Returns the state that lasts between rounds, for a run that stops and resumes. Empty if
    /// there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a state from [`Aggregator::save`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// An aggregation in progress, see [`Aggregator::fold`].
pub trait Fold<In, Out>: Send {
    /// Adds one message.
    ///
    /// # Errors
    /// If the message does not fit the earlier ones.
    fn add(&mut self, mail: crate::ClientMessage<In>) -> Result<()>;

    /// Returns the result of all messages so far.
    ///
    /// # Errors
    /// If no usable message was added.
    fn finish(self: Box<Self>) -> Result<Out>;
}
