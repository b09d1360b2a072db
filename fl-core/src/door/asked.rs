//! What a question is called, and what is known of it before anything runs.

use crate::Slot;
use crate::message::{Facts, Message, Nothing};
use crate::privacy::{Flow, Lots};
use std::marker::PhantomData;

/// A question: its label, what is sent with it (`D`), and what comes back (`U`).
///
/// ```
/// use fl_core::{Ask, message::{Ids, Logits}};
/// const LOGITS: Ask<Ids, Logits> = Ask::new("logits of the public samples");
/// ```
#[derive(Debug)]
pub struct Ask<D, U> {
    label: &'static str,
    types: PhantomData<fn(&D) -> U>,
}

impl<D: Message, U: Message> Ask<D, U> {
    /// A question called `label`, which must be unique in its protocol.
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

    /// A row of [`crate::Protocol::questions`].
    pub fn asked(&self) -> Asked {
        Asked {
            label: self.label,
            down: D::KIND,
            up: U::KIND,
            down_bytes: D::expected,
            up_bytes: U::expected,
            times: 1,
            rows: 0,
            made: false,
            voices: 1,
            copies: 1,
            model: "model",
            flow: Flow {
                // an empty message says nothing
                public: U::KIND == Nothing::KIND,
                ..Flow::default()
            },
            cohort: None,
            aggregator: None,
            class_counts: false,
            needs: None,
            unless: None,
            asked_by: None,
        }
    }
}

/// What is known of a question before anything runs.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its label.
    pub label: &'static str,
    /// Kind of the message to the clients.
    pub down: &'static str,
    /// Kind of the answer.
    pub up: &'static str,
    /// Bytes of the message to one client, at most.
    pub down_bytes: fn(&Facts) -> Option<u64>,
    /// Bytes of one answer, at most.
    pub up_bytes: fn(&Facts) -> Option<u64>,
    /// How many times it is asked.
    pub times: usize,
    /// How many samples it is about, at most; `usize::MAX` for all public ones.
    pub rows: usize,
    /// The samples are made during the run, not public ones.
    pub made: bool,
    /// How many models or voters speak in one answer.
    pub voices: usize,
    /// How many of what is expected travel to a client in one message.
    pub copies: usize,
    /// The slot of the model whose parameters travel, if parameters do.
    pub model: &'static str,
    /// How its answer depends on a client's own data.
    pub flow: Flow,
    /// The slot of the selector that picks whom to ask; everyone is asked if it is empty, or `None`.
    pub cohort: Option<&'static str>,
    /// The slot of the aggregator that the answers are for: it may want counts beside them.
    pub aggregator: Option<&'static str>,
    /// The protocol itself wants to know how many examples of each class the senders have.
    pub class_counts: bool,
    /// It is asked only if this slot is filled.
    pub needs: Option<&'static str>,
    /// It is asked only if this slot is empty.
    pub unless: Option<&'static str>,
    /// It is asked only if the part in this slot wants to know it.
    pub asked_by: Option<&'static str>,
}

impl Asked {
    /// Asked so many times.
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }
    /// About so many samples.
    pub fn rows(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }
    /// About so many samples that are made during the run, whatever the public data.
    pub fn made(mut self, rows: usize) -> Self {
        self.made = true;
        self.rows(rows)
    }
    /// So many models or voters speak in one answer.
    pub fn voices(mut self, voices: usize) -> Self {
        self.voices = voices;
        self
    }
    /// So many of what is expected travel to a client in one message, such as models.
    pub fn copies(mut self, copies: usize) -> Self {
        self.copies = copies;
        self
    }
    /// About all public samples.
    pub fn all_public(self) -> Self {
        self.rows(usize::MAX)
    }
    /// Parameters are those of the model in `slot`.
    pub fn model(mut self, slot: &'static str) -> Self {
        self.model = slot;
        self
    }
    /// Asked only if the part in `slot` wants to know it, such as a selector that picks clients by their loss.
    pub fn if_asked_by(mut self, slot: &'static str) -> Self {
        self.asked_by = Some(slot);
        self
    }
    /// The answer is released through the privacy mechanism in `slot`, at the client.
    pub fn releases(mut self, slot: &'static str) -> Self {
        self.flow.releases.push(slot);
        self
    }
    /// The answer is made of these steps, and what each sees of the client's examples is released through the mechanism in `slot`
    /// ([`crate::Client::release_steps`]).
    pub fn releases_steps(mut self, slot: &'static str, lots: Lots) -> Self {
        self.flow.steps = Some((slot, lots));
        self.releases(slot)
    }
    /// The answer depends on the client's own data only through what the mechanism in `slot` lets through, here or before.
    pub fn through(mut self, slot: &'static str) -> Self {
        self.flow.through.push(slot);
        self
    }
    /// The answer is what a model says that has learnt the client's own data through the mechanism in `slot` before, and nothing else of
    /// them.
    pub fn learnt_through(mut self, slot: &'static str) -> Self {
        self.flow.learnt_through.push(slot);
        self
    }
    /// If `slot` is filled, something of the answer goes beside the mechanism that it is released through.
    pub fn beside(mut self, slot: &'static str) -> Self {
        self.flow.beside.push(slot);
        self
    }
    /// Only a part of the answer goes through the mechanism that it is released through.
    pub fn partly(mut self) -> Self {
        self.flow.partly = true;
        self
    }
    /// What the server makes of the answers is released through the mechanism in `slot` before anybody else sees it.
    pub fn releases_at_server(mut self, slot: &'static str) -> Self {
        self.flow.at_server.push(slot);
        self
    }
    /// Clients are sent something of the answers before that.
    pub fn echoed(mut self) -> Self {
        self.flow.echoed = true;
        self
    }
    /// The answer does not depend on the client's own data.
    pub fn public(mut self) -> Self {
        self.flow.public = true;
        self
    }
    /// The selector of clients in `slot` picks whom to ask.
    pub fn cohort(mut self, slot: &'static str) -> Self {
        self.cohort = Some(slot);
        self
    }
    /// Asked only if `slot` is empty.
    pub fn unless(mut self, slot: &'static str) -> Self {
        self.unless = Some(slot);
        self
    }
    /// The answers are for the aggregator in `slot`.
    pub fn aggregated_in(mut self, slot: &'static str) -> Self {
        self.aggregator = Some(slot);
        self
    }
    /// With each answer comes how many examples of each class its sender has ([`crate::Mail::class_counts`]), whatever the aggregator
    /// wants; if `wanted`.
    pub fn with_class_counts_if(mut self, wanted: bool) -> Self {
        self.class_counts = wanted;
        self
    }
    /// Is anything of its answers, or of the counts beside them, released through `slot`?
    pub fn goes_through(&self, slot: &str) -> bool {
        let told = self.aggregator.is_some() || self.class_counts;
        let counts = slot == Slot::COUNTS && told;
        counts || self.flow.slots().any(|through| through == slot)
    }
    /// Asked only if `slot` is filled.
    pub fn needs(mut self, slot: &'static str) -> Self {
        self.needs = Some(slot);
        self
    }
}
