//! [`Client`]: one client as a protocol sees it, with its data, its models and its parts.

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

/// Key under which a client stashes the positions of its private sample.
const PRIVATE: &str = "private sample";

/// One client. Its content leaves it only in answers.
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
    /// Releases of the same data outside this run.
    pub(crate) past: Vec<PrivacyEvent>,
    /// All releases before this request.
    pub(crate) ledger: Vec<PrivacyEvent>,
    pub(crate) budget: Option<Budget>,
    pub(crate) noise: NoiseSource,
    /// How many events of the ledger its accountant was charged with.
    pub(crate) charged: usize,
    /// Whether the server may repeat a request.
    asked_again: bool,
    /// The lasting state before its last request.
    before: Option<BeforeRequest>,
    /// The slots through which the current exchange may release something, each with the declared
    /// training steps.
    pub(crate) declared: BTreeMap<&'static str, Option<MinibatchSampling>>,
    /// The slots that the current answer has released through.
    pub(crate) released_through: BTreeSet<&'static str>,
    /// The mean loss of the last training on its own examples for this answer.
    pub(crate) training_loss: Option<f64>,
}

/// A serialised message that a client keeps and can compute again.
struct Cached(Vec<u8>);

/// Bytes of all cached messages in this process.
static CACHED: AtomicU64 = AtomicU64::new(0);

/// The largest value of [`CACHED`].
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

/// The lasting state of a client before a request.
#[derive(Clone, Serialize, Deserialize)]
struct BeforeRequest {
    /// Key of the request's stream, which is unique to the request.
    question: [u8; 32],
    parts: States,
    stash: BTreeMap<String, Vec<u8>>,
}

/// The state that a client keeps between two requests.
#[derive(Serialize, Deserialize)]
struct SavedClient {
    parts: States,
    stash: BTreeMap<String, Vec<u8>>,
    ledger: Vec<PrivacyEvent>,
    before: Option<BeforeRequest>,
}

impl Client {
    // ---- identity and data

    /// Returns the client's number.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns its own examples.
    pub fn own(&self) -> &Examples {
        &self.data
    }

    /// Returns the task that its models learn.
    pub fn task(&self) -> &Task {
        self.store.task()
    }

    /// Returns its randomness for one purpose within this request.
    pub fn stream(&self, purpose: &str) -> Stream {
        self.now.child(purpose, 0)
    }

    /// Returns the public data.
    ///
    /// # Errors
    /// If the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        self.public
            .clone()
            .context("this protocol needs public data; add `data.public` to the spec")
    }

    /// Returns whether this slot is filled for this client.
    pub fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }

    /// Returns the examples that the run may use: all of its own, or the private sample that the
    /// mechanism in `slot` has drawn ([`crate::Declared::draws`]; FedMD-NFDP).
    ///
    /// # Errors
    /// If the slot is filled and no sample was drawn. A client whose draw was lost must not fall
    /// back on all its examples.
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

    /// Draws a new private sample, if `slot` is filled. The counts in the client's envelopes then
    /// cover only that sample.
    pub(crate) fn draw_private(&mut self, slot: &MechanismSlot<Ids>) -> Result<()> {
        if self.has(slot) {
            let mut chosen = Ids((0..self.data.len() as u32).collect());
            self.release_now(slot, &mut chosen)?;
            self.stash(PRIVATE, &chosen);
            self.stash.remove(&*COUNTS);
        }
        Ok(())
    }

    // ---- answers

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
        // the releases of a failed answer are spent too
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

    /// Ends an answer: drops all parts that do not last.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.store.forget()
    }

    /// Adds a note for the user to this answer. With an accountant the note stays with the client:
    /// it may depend on the client's own data, and nothing prices it.
    pub fn note(&mut self, text: impl Into<String>) {
        if !self.has("accountant") {
            self.notes.push(text.into());
        }
    }

    /// Reports a number for the metrics, which record the mean and deviation over clients; no part
    /// of the method sees it. With an accountant it stays with the client, as a
    /// [note](Client::note) does.
    pub fn measure(&mut self, name: &str, value: f64) {
        if !self.has("accountant") {
            self.measures.push((name.into(), value));
        }
    }

    // ---- parts

    /// Returns its model for this slot, made on first use. It lasts between requests if its slot
    /// does ([`crate::SlotSpec::lasting`]).
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }

    /// Returns a new model for this slot, the `index`-th of its kind, which need not last (such as
    /// a teacher).
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        self.store.make(slot, 1 + index)
    }

    /// Puts `model` into this slot.
    pub fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        self.store.put(slot, model);
    }

    /// Returns its model as one with parameters.
    ///
    /// # Errors
    /// If it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Returns its model as one that is differentiable by its input.
    ///
    /// # Errors
    /// If it is not.
    pub fn differentiable(&mut self, slot: &str) -> Result<&mut dyn Differentiable> {
        let model = self.model(slot)?;
        model.differentiable().with_context(|| Problem::Lacks(format!("parts.{slot}: this trainer cannot be differentiated by its input; use a neural trainer, on inputs that are no words")))
    }

    /// Returns its generator in this slot, made on first use.
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
    }

    /// Lets the aggregator in `slot` combine messages of this client, such as those of its
    /// teachers.
    ///
    /// # Errors
    /// If the part cannot be made, or cannot combine them.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        slot: &AggregatorSlot<I, O>,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let round = self.round(slot);
        self.aggregate_in(slot, round, inbox)
    }

    /// Returns the answer that the attack in `slot` forges from this client's honest results. The
    /// attack sees `sent`, the message to the client.
    ///
    /// # Errors
    /// If the part cannot be made, or fails.
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

    /// Uses the selector in `slot`; `None` if the slot is empty. The selector lasts between
    /// requests if its slot does.
    ///
    /// # Errors
    /// If the part cannot be made, and those of `f`.
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

    /// Returns the round for the part in `slot` during this request.
    pub fn round(&self, slot: &str) -> Round {
        Round::new(slot, 0, false, self.stream(slot), Arc::new(Serial))
    }

    /// Forwards the log events of a part.
    pub fn forward_log(&mut self, slot: &str, round: &Round) {
        for said in round.said() {
            match said {
                LogEvent::Note(text) => self.note(format!("parts.{slot}: {text}")),
                LogEvent::Number(name, value) => self.measure(&format!("{slot}.{name}"), value),
            }
        }
    }

    // ---- lasting state

    /// Keeps a message between requests.
    pub fn stash<M: Message>(&mut self, name: &str, m: &M) {
        self.stash.insert(name.into(), message::encode(m));
    }

    /// Returns the message that [`Client::stash`] kept, if any; it stays kept.
    ///
    /// # Errors
    /// If it is of another kind.
    pub fn stashed<M: Message>(&self, name: &str) -> Result<Option<M>> {
        let kept = self.stash.get(name);
        kept.map(|bytes| message::decode(bytes)).transpose()
    }

    /// Keeps a message that can be computed again for a later request, if there is room. All
    /// clients of a process share 256 MiB. The cache does not outlast the process and is not part
    /// of a checkpoint.
    pub fn cache<M: Message>(&mut self, name: &str, m: &M) {
        self.cache.remove(name);
        if let Some(kept) = Cached::new(m) {
            self.cache.insert(name.into(), kept);
        }
    }

    /// Removes and returns the message that [`Client::cache`] kept. `None`: compute it again.
    ///
    /// # Errors
    /// If it is another kind of message.
    pub fn cached<M: Message>(&mut self, name: &str) -> Result<Option<M>> {
        let kept = self.cache.remove(name);
        kept.map(|kept| message::decode(&kept.0)).transpose()
    }

    /// Removes and returns the message that [`Client::stash`] kept, if any.
    ///
    /// # Errors
    /// If it is of another kind.
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
