//! Receipts of what a run does at the server: from which messages, with which part, what was made.

use crate::message::{self, AnyMessage, Erased, hex};
use crate::server::RunState;
use crate::{AnyAggregator, AnyMechanism, ClientId, ClientMessage, Cohort, Result, Round, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the server did in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerStep {
    /// An aggregator combined messages.
    Aggregation,
    /// The protocol received messages, and combined them itself or later.
    Collection,
    /// A mechanism released a result.
    Release,
}

/// One message that a step was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiptInput {
    /// The sender.
    pub client: ClientId,
    /// Its weight.
    pub weight: f64,
    /// Examples per class at the sender, if the aggregator requested them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_counts: Option<Vec<u32>>,
    /// Mean loss of the training, if the aggregator requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_loss: Option<f64>,
    /// The message's digest ([`message::digest`]), in hexadecimal.
    pub sha256: String,
    /// The digest of the client's answer, if the protocol made the message of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// A step at the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The step of the run: `round 3`.
    pub step: String,
    /// What was done.
    pub did: ServerStep,
    /// The exchange that the messages are answers of, if the step combined them as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<String>,
    /// The slot of the part; empty in a collection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub slot: String,
    /// The part's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// The crate, library or module that the part is from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// The digest of the result; of a release, after the noise. Empty: there is none, or it is
    /// withheld.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Of a release: the digest before clipping and noise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// The digest of the run so far ([`RunState::digest`]).
    pub run: String,
}

/// What an aggregation was made from besides the messages. A verifier takes the state and the
/// random numbers from the seed and from the steps before, and not from here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AggregationContext {
    /// The slot of the aggregator; `SLOT#LINE` for one of several lines of models
    /// ([`crate::Server::aggregate_line`]).
    pub slot: String,
    /// The name of the round, its number, and whether it is the last.
    pub round: (String, usize, bool),
    /// The key of the round's stream.
    pub stream: [u8; 32],
    /// The task that the aggregator was made for, and the key of the stream that it was made with.
    pub made: (Task, [u8; 32]),
    /// The aggregator's state before.
    pub state: Vec<u8>,
    /// The kind and wire form of the message sent to clients, if the round shows it.
    pub sent: Option<(String, Vec<u8>)>,
    /// Whether messages are folded one by one, if the aggregator can.
    pub folds: bool,
    /// The buffers of the run's models ([`Round::buffers`]).
    pub buffers: BTreeSet<String>,
}

/// What a release with seeded noise was made from: enough to repeat it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleaseContext {
    /// The slot of the mechanism.
    pub slot: String,
    /// The task that the mechanism was made for, and the key of the stream that it was made with.
    pub made: (Task, [u8; 32]),
    /// The mechanism's state before.
    pub state: Vec<u8>,
    /// The clients whose data the message was made from.
    pub cohort: Cohort,
    /// Whether the mechanism bounds the message first.
    pub clips: bool,
    /// The number of released queries, if the budget did not pay for all.
    pub queries: Option<usize>,
    /// The key of the noise's stream.
    pub stream: [u8; 32],
    /// The wire form of the message before clipping and noise.
    pub message: Vec<u8>,
}

/// Keeps receipts. A host has one for each run.
pub trait StepRecorder {
    /// Returns whether it keeps the messages of aggregations, and of releases that can be repeated.
    fn keeps(&self) -> bool;

    /// Begins a step; one that was begun before and not ended is forgotten. `secret`: hashes would
    /// let a reader check a guess of what the messages are. `context` is that of an aggregation, if
    /// messages are kept.
    ///
    /// # Errors
    /// If it cannot be written.
    fn begin(&mut self, secret: bool, context: Option<AggregationContext>) -> Result<()>;

    /// As [`StepRecorder::begin`], of a release. `context` is what to repeat it from, if messages
    /// are kept and the noise is seeded.
    ///
    /// # Errors
    /// If it cannot be written.
    fn begin_release(&mut self, secret: bool, context: Option<ReleaseContext>) -> Result<()> {
        let _ = context;
        self.begin(secret, None)
    }

    /// Adds a message of the step.
    ///
    /// # Errors
    /// If it cannot be written.
    fn input(&mut self, input: ReceiptInput, body: &dyn AnyMessage) -> Result<()>;

    /// Ends the step.
    ///
    /// # Errors
    /// If it cannot be written.
    fn end(&mut self, receipt: Receipt) -> Result<()>;
}

/// The recorder of a run while a step is done. Without a recorder it does nothing.
pub(crate) struct StepLog<'a> {
    recorder: Option<&'a mut dyn StepRecorder>,
    secret: bool,
}

impl<'a> StepLog<'a> {
    fn new(recorder: &'a mut Option<Box<dyn StepRecorder>>, secret: bool) -> Self {
        Self {
            recorder: recorder.as_deref_mut().map(|r| r as _),
            secret,
        }
    }

    /// Whether messages are kept, so that a step must say what it was made from.
    pub fn keeps(&self) -> bool {
        self.recorder.as_ref().is_some_and(|r| r.keeps())
    }

    /// Whether anyone is told of hashes.
    fn hashes(&self) -> bool {
        self.recorder.is_some() && (!self.secret || self.keeps())
    }

    pub fn begin(&mut self, context: Option<AggregationContext>) -> Result<()> {
        match &mut self.recorder {
            Some(recorder) => recorder.begin(self.secret, context),
            None => Ok(()),
        }
    }

    pub fn begin_release(&mut self, context: Option<ReleaseContext>) -> Result<()> {
        match &mut self.recorder {
            Some(recorder) => recorder.begin_release(self.secret, context),
            None => Ok(()),
        }
    }

    /// Adds a message. `answer` is the digest of the client's answer; the message is that answer
    /// unless it was `formed` from it.
    pub fn input(
        &mut self,
        mail: &ClientMessage<&dyn AnyMessage>,
        answer: Option<[u8; 32]>,
        formed: bool,
    ) -> Result<()> {
        if !self.hashes() {
            return Ok(());
        }
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let own = answer.filter(|_| !formed);
        let digest = own.unwrap_or_else(|| message::digest(mail.body));
        let input = ReceiptInput {
            client: mail.from,
            weight: mail.weight,
            class_counts: mail.class_counts.clone(),
            training_loss: mail.training_loss,
            sha256: hex(&digest),
            answer: answer.filter(|_| formed).map(|answer| hex(&answer)),
        };
        recorder.input(input, mail.body)
    }

    /// The digest of a message, for a receipt; empty if it is withheld.
    pub fn digest(&self, of: &dyn AnyMessage) -> String {
        if self.hashes() {
            hex(&message::digest(of))
        } else {
            String::new()
        }
    }

    pub fn end(&mut self, receipt: impl FnOnce() -> Receipt) -> Result<()> {
        match &mut self.recorder {
            Some(recorder) => recorder.end(receipt()),
            None => Ok(()),
        }
    }
}

/// As a [`StepLog`] takes it.
pub(crate) fn shown(mail: &ClientMessage<Erased>) -> ClientMessage<&dyn AnyMessage> {
    mail.around(&*mail.body)
}

impl RunState<'_> {
    /// Gives receipts of all that follows to `recorder`.
    pub fn record_with(&mut self, recorder: Box<dyn StepRecorder>) {
        self.recorder = Some(recorder);
    }

    /// Does a step whose receipt `f` gives.
    pub(crate) fn with_log<T>(
        &mut self,
        f: impl FnOnce(&mut Self, &mut StepLog<'_>) -> Result<T>,
    ) -> Result<T> {
        let (secret, mut recorder) = (self.secret(), self.recorder.take());
        let done = f(self, &mut StepLog::new(&mut recorder, secret));
        self.recorder = recorder;
        done
    }

    /// Whether hashes of what clients sent are withheld from readers.
    pub(crate) fn secret(&self) -> bool {
        self.unrepeatable() || self.ledger.accounts()
    }

    /// What an aggregation is made from besides the messages.
    pub(crate) fn context_of(
        &self,
        slot: &str,
        round: &Round,
        aggregator: &dyn AnyAggregator,
        folds: bool,
    ) -> AggregationContext {
        let context = self.store.context(slot, 0);
        AggregationContext {
            slot: slot.into(),
            round: (round.name.clone(), round.number, round.last),
            stream: round.stream.key(),
            made: (context.task, context.stream.key()),
            state: aggregator.save(),
            sent: round
                .sent_any()
                .map(|sent| (sent.kind().into(), sent.encode())),
            folds,
            buffers: round.buffers().clone(),
        }
    }

    /// What a release is made from. The noise's stream and the number of queries follow.
    pub(crate) fn release_context(
        &self,
        slot: &str,
        mechanism: &dyn AnyMechanism,
        message: &dyn AnyMessage,
        (cohort, clips): (&Cohort, bool),
    ) -> ReleaseContext {
        let context = self.store.context(slot, 0);
        ReleaseContext {
            slot: slot.into(),
            made: (context.task, context.stream.key()),
            state: mechanism.save(),
            cohort: cohort.clone(),
            clips,
            queries: None,
            stream: [0; 32],
            message: message.encode(),
        }
    }

    /// A receipt of this step, without digests of messages.
    pub(crate) fn receipt(&self, round: &Round, did: ServerStep, slot: &str) -> Receipt {
        let (part, origin) = self.store.parts().named(slot).unwrap_or_default();
        Receipt {
            step: round.name.clone(),
            did,
            exchange: None,
            slot: slot.into(),
            part: part.into(),
            origin: origin.into(),
            output: String::new(),
            before: String::new(),
            run: self.digest(),
        }
    }
}
