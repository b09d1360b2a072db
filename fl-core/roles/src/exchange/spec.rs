//! [`Exchange`] and [`ExchangeSpec`]: one request of the server with the clients' answers, and its
//! properties before a run.

use crate::kept_text::{self, Name};
use crate::message::{Message, MessageType, Nothing, VoteSensitivity};
use crate::privacy::{DataDependence, MinibatchSampling};
use crate::{COUNTS, Result};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// An exchange: its label, the message to a client (`D`), and the client's answer (`U`).
///
/// A protocol declares it once, with all its properties ([`crate::Declaration::exchange`]).
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
    /// Returns an exchange called `label`, which must be unique in its protocol.
    pub const fn new(label: &'static str) -> Self {
        Self {
            label,
            types: PhantomData,
        }
    }

    /// Returns its name in the journal.
    pub fn label(&self) -> &'static str {
        self.label
    }

    /// Returns what the declaration says of it, before anything is added.
    pub fn spec(&self) -> ExchangeSpec {
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
            shares: Vec::new(),
            flow: DataDependence {
                // an empty message reveals nothing
                public: U::KIND == Nothing::KIND,
                ..DataDependence::default()
            },
            cohort: None,
            aggregator: None,
            sums_into: None,
            class_counts: false,
            trains: false,
            held_out: false,
            change: false,
            needs: None,
            unless: None,
            requested_by: None,
            votes: None,
        }
    }
}

/// The properties of an exchange that are known before a run. Made by [`crate::Declared`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExchangeSpec {
    /// The label.
    #[serde(deserialize_with = "kept_text::name")]
    pub label: Name,
    /// Kind of the message to the clients.
    #[serde(deserialize_with = "kept_text::name")]
    pub down: Name,
    /// Kind of the answer.
    #[serde(deserialize_with = "kept_text::name")]
    pub up: Name,
    /// The type of the message to the clients.
    #[serde(skip, default = "MessageType::of::<Nothing>")]
    pub request: &'static MessageType,
    /// The type of the answer.
    #[serde(skip, default = "MessageType::of::<Nothing>")]
    pub answer: &'static MessageType,
    /// How many times the exchange takes place.
    pub times: usize,
    /// The largest number of samples that it concerns; `usize::MAX` for all public ones.
    #[serde(with = "all_or", default = "all_or::all")]
    pub rows: usize,
    /// Whether the run generates the samples; otherwise they are public ones.
    #[serde(default)]
    pub made: bool,
    /// The number of models or voters whose results one answer holds.
    pub voices: usize,
    /// The number of messages, such as models, in one message to a client.
    pub copies: usize,
    /// The slot of the model whose parameters are sent, if any.
    #[serde(deserialize_with = "kept_text::name")]
    pub model: Name,
    /// The groups of its parameters that are sent ([`crate::parameters_in`]); all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<String>,
    /// How the answer depends on a client's own data.
    #[serde(default)]
    pub flow: DataDependence,
    /// The slot of the selector that picks the clients. All clients take part if it is empty or
    /// `None`.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub cohort: Option<Name>,
    /// The slot of the aggregator that combines the answers.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub aggregator: Option<Name>,
    /// The slot of the aggregator that gets the sum of the answers as one message.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub sums_into: Option<Name>,
    /// Whether the protocol itself needs each sender's number of examples per class.
    #[serde(default)]
    pub class_counts: bool,
    /// Whether the client trains a model on its own examples for the answer.
    #[serde(default)]
    pub trains: bool,
    /// Whether the client uses the rows that it has held back for its answer
    /// ([`crate::Client::held_out`]).
    #[serde(default)]
    pub held_out: bool,
    /// Whether the answer is a change of the parameters that the client was sent.
    #[serde(default)]
    pub change: bool,
    /// The exchange takes place only if this slot is filled.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub needs: Option<Name>,
    /// The exchange takes place only if this slot is empty.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub unless: Option<Name>,
    /// The exchange takes place only if the part in this slot requests it.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub requested_by: Option<Name>,
    /// The number of released votes that one unit of data can change, if it is known before a run.
    #[serde(default)]
    pub votes: Option<VoteSensitivity>,
}

/// All public samples cross as `null`.
mod all_or {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn all() -> usize {
        usize::MAX
    }

    pub fn serialize<S: Serializer>(rows: &usize, to: S) -> Result<S::Ok, S::Error> {
        (*rows != usize::MAX).then_some(rows).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or_else(all))
    }
}

impl ExchangeSpec {
    /// Returns the slots, besides those of mechanisms, whose parts a guarantee relies on: the
    /// selector of clients, the model whose gradients a mechanism bounds one by one, and the
    /// aggregator whose result the server releases.
    pub fn relied_on(&self) -> impl Iterator<Item = &'static str> {
        let gradients = self.flow.steps.is_some().then_some(self.model);
        let released = !self.flow.at_server.is_empty();
        let combined = self.aggregator.filter(|_| released);
        let slots = [self.cohort, gradients, combined];
        slots.into_iter().flatten()
    }

    /// Returns the exchange with this label.
    ///
    /// # Errors
    /// If the protocol declares none.
    #[doc(hidden)]
    pub fn find<'s>(all: impl IntoIterator<Item = &'s Self>, label: &str) -> Result<&'s Self> {
        let found = all.into_iter().find(|spec| spec.label == label);
        found.with_context(|| format!("the protocol declares no exchange `{label}`"))
    }

    /// Returns the slot of the aggregator that combines the answers.
    ///
    /// # Errors
    /// If the exchange declares none.
    #[doc(hidden)]
    pub fn aggregated_in(&self) -> Result<Name> {
        let none = || format!("exchange `{}` declares no aggregator", self.label);
        self.aggregator.with_context(none)
    }

    /// Returns whether the answers, or the counts that travel with them, are released through
    /// `slot`.
    pub fn goes_through(&self, slot: &str) -> bool {
        let told = self.aggregator.is_some() || self.class_counts;
        let counts = slot == &*COUNTS && told;
        counts || self.flow.slots().any(|through| through == slot)
    }

    /// Returns the reason why an aggregator of the answers cannot have a training loss.
    pub fn no_training(&self) -> String {
        format!(
            "the aggregator needs the training loss of each client, and clients do not train for `{}`",
            self.label
        )
    }

    /// Returns the training steps that are released through `slot`, if any.
    pub(crate) fn steps(&self, slot: &str) -> Option<MinibatchSampling> {
        let steps = self.flow.steps.filter(|(through, _)| *through == slot);
        steps.map(|(_, lots)| lots)
    }
}
