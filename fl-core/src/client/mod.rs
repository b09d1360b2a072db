//! A client as a protocol sees it: its own data, its models and its copies of client-side parts.

mod learning;
mod releases;
mod state;

pub use state::ClientState;

use crate::message::{Ids, Message};
use crate::privacy::{MinibatchSampling, NoiseSource};
use crate::store::{States, Store};
use crate::{
    AggregatorSlot, AttackSlot, BoxedAggregator, BoxedSelector, Budget, COUNTS, ClientId,
    Differentiable, Envelope, Examples, ExchangeSpec, Generator, Inbox, LogEvent, MechanismSlot,
    Parametric, Pool, PrivacyEvent, Problem, Public, RequiredInputs, Result, Round, SelectorSlot,
    Serial, Stream, Task, Trainer, message, parametric,
};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a client stashes which of its own examples are its private sample.
const PRIVATE: &str = "private sample";

/// One client. Nothing in here leaves it except as an answer.
pub struct Client {
    id: ClientId,
    pub(crate) data: Examples,
    public: Option<Arc<Public>>,
    home: Stream,
    pub(crate) now: Stream,
    pub(crate) store: Store,
    stash: BTreeMap<String, Vec<u8>>,
    cache: BTreeMap<String, Cached>,
    pub(crate) spent: Vec<PrivacyEvent>,
    pub(crate) notes: Vec<String>,
    measures: Vec<(String, f64)>,
    /// What was spent on the same data beside this run.
    pub(crate) past: Vec<PrivacyEvent>,
    /// Everything spent before this question.
    pub(crate) ledger: Vec<PrivacyEvent>,
    pub(crate) budget: Option<Budget>,
    pub(crate) noise: NoiseSource,
    /// How many events of the ledger its accountant knows.
    pub(crate) charged: usize,
    /// May it be asked the same question again?
    asked_again: bool,
    /// What lasted before the question that it was asked last.
    before: Option<BeforeRequest>,
    /// The slots through which the exchange that it answers may release something, each with the
    /// steps that it may release.
    pub(crate) declared: BTreeMap<&'static str, Option<MinibatchSampling>>,
    /// Those through which it has.
    pub(crate) released_through: BTreeSet<&'static str>,
    /// The mean loss of the last training on its own examples for this answer.
    pub(crate) training_loss: Option<f64>,
}

/// A message that a client keeps and could make again.
struct Cached(Vec<u8>);

/// Bytes of all of them in this process.
static CACHED: AtomicU64 = AtomicU64::new(0);

/// At most.
const CACHE: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };

impl Cached {
    fn new(m: &impl Message) -> Option<Self> {
        let room = CACHE.saturating_sub(CACHED.load(Ordering::Relaxed));
        let due = m.tensors().into_iter().map(|(_, view)| view.bytes() as u64);
        if due.sum::<u64>() > room {
            return None;
        }
        let bytes = message::encode(m);
        CACHED.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(Self(bytes))
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        CACHED.fetch_sub(self.0.len() as u64, Ordering::Relaxed);
    }
}

/// What lasts of a client, before a question.
#[derive(Clone, Serialize, Deserialize)]
struct BeforeRequest {
    /// The question's stream, which is no other question's.
    question: [u8; 32],
    parts: States,
    stash: BTreeMap<String, Vec<u8>>,
}

/// What a client keeps between two questions.
#[derive(Serialize, Deserialize)]
struct SavedClient {
    parts: States,
    stash: BTreeMap<String, Vec<u8>>,
    ledger: Vec<PrivacyEvent>,
    before: Option<BeforeRequest>,
}

impl Client {
    // ---- what there is

    /// Who it is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Its own examples.
    pub fn own(&self) -> &Examples {
        &self.data
    }

    /// What its models are to learn.
    pub fn task(&self) -> &Task {
        self.store.task()
    }

    /// Its randomness for one purpose within this question.
    pub fn stream(&self, purpose: &str) -> Stream {
        self.now.child(purpose, 0)
    }

    /// The public data.
    ///
    /// # Errors
    /// When the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        self.public
            .clone()
            .context("this protocol needs public data; add `data.public` to the spec")
    }

    /// Is there anything in this slot, for this client?
    pub fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }

    /// The examples that the run may use: all of its own, or those of the private sample that the mechanism in `slot` has
    /// drawn ([`crate::Declared::draws`]; FedMD-NFDP).
    ///
    /// # Errors
    /// When the slot is filled and nothing has been drawn: a client whose draw was lost must not fall back on all that it
    /// has.
    pub fn private(&self, slot: &MechanismSlot<Ids>) -> Result<Examples> {
        let Some(sample) = self.private_sample()? else {
            ensure!(
                !self.has(slot),
                "it has drawn no private sample through parts.{}",
                slot.name()
            );
            return Ok(self.data.clone());
        };
        Ok(sample)
    }

    pub(crate) fn private_sample(&self) -> Result<Option<Examples>> {
        let positions = |Ids(all): Ids| all.iter().map(|at| *at as usize).collect::<Vec<_>>();
        let chosen = self.stashed::<Ids>(PRIVATE)?.map(positions);
        Ok(chosen.map(|chosen| self.data.pick(&chosen)))
    }

    /// Draws the private sample anew, if `slot` is filled. From then on it is all that the client's envelopes count.
    pub(crate) fn draw_private(&mut self, slot: &MechanismSlot<Ids>) -> Result<()> {
        if self.has(slot) {
            let mut chosen = Ids((0..self.data.len() as u32).collect());
            self.release_now(slot, &mut chosen)?;
            self.stash(PRIVATE, &chosen);
            self.stash.remove(&*COUNTS);
        }
        Ok(())
    }

    // ---- an answer

    pub(crate) fn begin(&mut self, stream: Stream, exchange: &ExchangeSpec) -> Result<()> {
        if self.asked_again {
            let question = stream.key();
            match &self.before {
                Some(before) if before.question == question => {
                    self.store.load(before.parts.clone());
                    self.stash = before.stash.clone();
                }
                _ => {
                    self.before = Some(BeforeRequest {
                        question,
                        parts: self.store.save()?,
                        stash: self.stash.clone(),
                    });
                }
            }
        }
        let slots = exchange.flow.releases.iter();
        self.declared = slots.map(|slot| (*slot, exchange.steps(slot))).collect();
        self.released_through.clear();
        self.training_loss = None;
        self.now = stream;
        self.notes.clear();
        self.measures.clear();
        // what a failed answer has released is spent as well
        self.ledger.append(&mut self.spent);
        Ok(())
    }

    pub(crate) fn envelope(&mut self, needs: RequiredInputs) -> Result<Envelope> {
        let (samples, class_counts) = self.told(needs)?;
        let training_loss = match needs.training_loss {
            true => Some(self.trained_with_loss()? as f32),
            false => None,
        };
        self.ledger.extend(self.spent.iter().cloned());
        Ok(Envelope {
            samples,
            class_counts,
            training_loss,
            notes: std::mem::take(&mut self.notes),
            measures: std::mem::take(&mut self.measures),
            spent: std::mem::take(&mut self.spent),
        })
    }

    /// After an answer: what does not last is gone.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.store.forget()
    }

    /// Tells the user something about this answer. Where somebody accounts it stays with the client: it may depend on the
    /// client's own data, and nothing prices it.
    pub fn note(&mut self, text: impl Into<String>) {
        if !self.has("accountant") {
            self.notes.push(text.into());
        }
    }

    /// Reports a number for the metrics: their mean and deviation over clients are recorded, and no part of the method
    /// sees them. Where somebody accounts it stays with the client, as a [note](Client::note) does.
    pub fn measure(&mut self, name: &str, value: f64) {
        if !self.has("accountant") {
            self.measures.push((name.into(), value));
        }
    }

    // ---- its parts

    /// Its model for this slot, made on first use. It lasts from question to question if its slot does
    /// ([`crate::SlotSpec::lasting`]).
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }

    /// A new model for this slot, the `index`-th of its kind: one that need not last, such as a teacher.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        self.store.make(slot, 1 + index)
    }

    /// Lets `model` be the one of this slot.
    pub fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        self.store.put(slot, model);
    }

    /// Its model as one with parameters.
    ///
    /// # Errors
    /// When it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Its model as one that can be differentiated by its input.
    ///
    /// # Errors
    /// When it cannot.
    pub fn differentiable(&mut self, slot: &str) -> Result<&mut dyn Differentiable> {
        let model = self.model(slot)?;
        model.differentiable().with_context(|| Problem::Lacks(format!("parts.{slot}: this trainer cannot be differentiated by its input; use a neural trainer, on inputs that are no words")))
    }

    /// Its generator in this slot, made on first use.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
    }

    /// Lets the aggregator in `slot` combine messages of this client's own, such as those of its teachers.
    ///
    /// # Errors
    /// When the slot's part cannot be made, or cannot combine them.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        slot: &AggregatorSlot<I, O>,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let round = self.round(slot);
        self.aggregate_in(slot, round, inbox)
    }

    /// What the attack in `slot` makes of this client's honest results. It sees `sent`, which the
    /// client was sent.
    ///
    /// # Errors
    /// When the slot's part cannot be made, or fails.
    pub fn attack<M: Message>(
        &mut self,
        slot: &AttackSlot<M>,
        sent: Option<&M>,
        honest: &Inbox<M>,
    ) -> Result<M> {
        let round = self.round(slot);
        let round = match sent {
            Some(sent) => round.showing(sent.clone()),
            None => round,
        };
        self.aggregate_in(slot, round, honest)
    }

    fn aggregate_in<I: Message, O: Message>(
        &mut self,
        slot: &str,
        round: Round,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let part = self.store.get::<BoxedAggregator<I, O>>(slot)?;
        let out = part.aggregate(&round, inbox)?;
        message::check(&out)
            .with_context(|| format!("parts.{slot}: the result of its messages"))?;
        self.forward_log(slot, &round);
        Ok(out)
    }

    /// Uses the selector in `slot`; `None` if the slot is empty. It is the same from question to question, if its slot lasts.
    ///
    /// # Errors
    /// When the slot's part cannot be made, and those of `f`.
    pub fn with_selector<P: Pool + ?Sized, T>(
        &mut self,
        slot: &SelectorSlot<P>,
        f: impl FnOnce(&mut Self, &mut BoxedSelector<P>) -> Result<T>,
    ) -> Result<Option<T>> {
        if !self.has(slot) {
            return Ok(None);
        }
        let mut selector = self.store.take::<BoxedSelector<P>>(slot)?;
        let out = f(self, &mut selector);
        self.store.put(slot, selector);
        out.map(Some)
    }

    /// The round as a selector in `slot` sees it while this question is answered.
    pub fn round(&self, slot: &str) -> Round {
        Round::new(slot, 0, false, self.stream(slot), Arc::new(Serial))
    }

    /// Passes on what a part has said.
    pub fn forward_log(&mut self, slot: &str, round: &Round) {
        for said in round.said() {
            match said {
                LogEvent::Note(text) => self.note(format!("parts.{slot}: {text}")),
                LogEvent::Number(name, value) => self.measure(&format!("{slot}.{name}"), value),
            }
        }
    }

    // ---- what lasts

    /// Keeps something between two questions.
    pub fn stash<M: Message>(&mut self, name: &str, m: &M) {
        self.stash.insert(name.into(), message::encode(m));
    }

    /// What [`Client::stash`] kept, if anything; it stays kept.
    ///
    /// # Errors
    /// When it is of another kind.
    pub fn stashed<M: Message>(&self, name: &str) -> Result<Option<M>> {
        let kept = self.stash.get(name);
        kept.map(|bytes| message::decode(bytes)).transpose()
    }

    /// Keeps a message that can be made again for one of the next requests, if there is room: all
    /// clients of a process keep 256 MiB together, and nothing of it outlasts the process or goes
    /// into a checkpoint.
    pub fn cache<M: Message>(&mut self, name: &str, m: &M) {
        self.cache.remove(name);
        if let Some(kept) = Cached::new(m) {
            self.cache.insert(name.into(), kept);
        }
    }

    /// Takes back what [`Client::cache`] kept, if it did; otherwise it is to be made again.
    ///
    /// # Errors
    /// When it is another kind of message.
    pub fn cached<M: Message>(&mut self, name: &str) -> Result<Option<M>> {
        let kept = self.cache.remove(name);
        kept.map(|kept| message::decode(&kept.0)).transpose()
    }

    /// Takes back what [`Client::stash`] kept, if anything.
    ///
    /// # Errors
    /// When it is of another kind.
    pub fn unstash<M: Message>(&mut self, name: &str) -> Result<Option<M>> {
        let kept = self.stash.remove(name);
        kept.map(|bytes| message::decode(&bytes)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Params;

    #[test]
    fn what_can_be_made_again_is_kept_while_there_is_room() {
        let message = |bytes: u64| {
            let numbers = ndarray::ArrayD::from_elem(vec![bytes as usize / 4], 0.5);
            Params([("w".to_string(), numbers)].into())
        };
        let half = message(CACHE / 2);
        let first = Cached::new(&half).unwrap();
        assert!(Cached::new(&message(CACHE)).is_none());
        assert!(message::decode::<Params>(&first.0).unwrap() == half);
        drop(first);
        assert_eq!(CACHED.load(Ordering::Relaxed), 0);
        assert!(Cached::new(&message(CACHE - 1024)).is_some());
    }
}
