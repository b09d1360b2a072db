//! Exchanges: one request of the server and the clients' answers, and what is known of it before
//! a run.

use crate::COUNTS;
use crate::message::{Message, MessageType, Nothing, VoteSensitivity};
use crate::privacy::{DataDependence, MinibatchSampling};
use std::marker::PhantomData;

/// An exchange: its label, the message to a client (`D`), and the client's answer (`U`).
///
/// A protocol declares it once ([`crate::Declaration::exchange`]) with all that is true of it.
///
/// ```
/// use fl_core::{Exchange, message::{Ids, Logits}};
/// const LOGITS: Exchange<Ids, Logits> = Exchange::new("logits of the public samples");
/// ```
#[derive(Debug)]
pub struct Exchange<D, U> {
    label: &'static str,
    types: PhantomData<fn(&D) -> U>,
}

impl<D: Message, U: Message> Exchange<D, U> {
    /// An exchange called `label`, which must be unique in its protocol.
    pub const fn new(label: &'static str) -> Self {
        Self {
            label,
            types: PhantomData,
        }
    }

    /// Its name in the journal.
    pub fn label(&self) -> &'static str {
        self.label
    }

    pub(crate) fn spec(&self) -> ExchangeSpec {
        ExchangeSpec {
            label: self.label,
            down: D::KIND,
            up: U::KIND,
            request: MessageType::of::<D>(),
            answer: MessageType::of::<U>(),
            times: 1,
            rows: 0,
            made: false,
            voices: 1,
            copies: 1,
            model: "model",
            flow: DataDependence {
                // an empty message says nothing
                public: U::KIND == Nothing::KIND,
                ..DataDependence::default()
            },
            cohort: None,
            aggregator: None,
            class_counts: false,
            trains: false,
            needs: None,
            unless: None,
            requested_by: None,
            votes: None,
        }
    }
}

/// What is known of an exchange before a run. [`crate::Declared`] makes it.
#[derive(Clone, Debug)]
pub struct ExchangeSpec {
    /// Its label.
    pub label: &'static str,
    /// Kind of the message to the clients.
    pub down: &'static str,
    /// Kind of the answer.
    pub up: &'static str,
    /// The type of the message to the clients.
    pub request: &'static MessageType,
    /// The type of the answer.
    pub answer: &'static MessageType,
    /// How often it takes place.
    pub times: usize,
    /// The number of samples that it is about, at most; `usize::MAX` for all public ones.
    pub rows: usize,
    /// The samples are made during the run, not public ones.
    pub made: bool,
    /// The number of models or voters that speak in one answer.
    pub voices: usize,
    /// The number of messages, such as models, that travel to a client in one.
    pub copies: usize,
    /// The slot of the model whose parameters travel, if parameters do.
    pub model: &'static str,
    /// How the answer depends on a client's own data.
    pub flow: DataDependence,
    /// The slot of the selector that picks the clients; everyone if it is empty, or `None`.
    pub cohort: Option<&'static str>,
    /// The aggregator that combines the answers.
    pub aggregator: Option<AggregatorUse>,
    /// The protocol itself needs the number of examples of each class at the senders.
    pub class_counts: bool,
    /// The client trains a model on its own examples for the answer.
    pub trains: bool,
    /// It takes place only if this slot is filled.
    pub needs: Option<&'static str>,
    /// It takes place only if this slot is empty.
    pub unless: Option<&'static str>,
    /// It takes place only if the part in this slot requests it.
    pub requested_by: Option<&'static str>,
    /// The number of votes that one unit of data can change in the counts that are released, as far
    /// as it is known before a run.
    pub votes: Option<VoteSensitivity>,
}

/// The aggregator that combines the answers of an exchange.
#[derive(Clone, Copy)]
pub struct AggregatorUse {
    /// Its slot.
    pub slot: &'static str,
}

impl std::fmt::Debug for AggregatorUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.slot)
    }
}

impl ExchangeSpec {
    /// Whether the answers, or the counts beside them, are released through `slot`.
    pub fn goes_through(&self, slot: &str) -> bool {
        let told = self.aggregator.is_some() || self.class_counts;
        let counts = slot == &*COUNTS && told;
        counts || self.flow.slots().any(|through| through == slot)
    }

    /// Why no aggregator of the answers can have a training loss.
    pub fn no_training(&self) -> String {
        format!(
            "the aggregator needs the training loss of each client, and clients do not train for `{}`",
            self.label
        )
    }

    /// The steps of a training that are released through `slot`, if any.
    pub(crate) fn steps(&self, slot: &str) -> Option<MinibatchSampling> {
        let steps = self.flow.steps.filter(|(through, _)| *through == slot);
        steps.map(|(_, lots)| lots)
    }
}
