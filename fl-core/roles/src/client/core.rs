//! A client's own side of its calls: its data, its models and its copies of client-side parts.

use super::calls::ClientCalls;
use super::{PRIVATE, SAMPLE_COUNTS};
use crate::exchange::{TRAINING_LOSS, label_in};
use crate::message::{AnyMessage, Erased, Ids, Message as _};
use crate::privacy::{MinibatchSampling, NoiseSource, ReleaseNoise};
use crate::round::limited;
use crate::slot_calls::SlotCalls;
use crate::store::{States, Store};
use crate::{
    AnyAggregator, AnyInbox, AnyMechanism, AnySelector, Budget, ClientId, Envelope, Examples,
    ExchangeSpec, Generator, PrivacyEvent, Problem, Public, Request, RequiredInputs, Result, Round,
    SlotSpec, Stream, Task, Trainer, message,
};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A client whose host is in this process.
pub(crate) struct ClientCore {
    pub(super) id: ClientId,
    pub(crate) data: Examples,
    /// The rows that it tests on and does not learn from, if it has some.
    pub(super) held_out: Option<Examples>,
    /// May its answer depend on them?
    pub(super) uses_held_out: bool,
    /// Does its answer depend on its own examples through a private sample?
    pub(super) sampled: bool,
    pub(super) public: Option<Arc<Public>>,
    pub(super) home: Stream,
    pub(crate) now: Stream,
    /// The number of the step whose request it answers.
    pub(super) round: usize,
    pub(crate) store: Store,
    pub(super) stash: States,
    pub(super) cache: BTreeMap<String, Cached>,
    pub(crate) spent: Vec<PrivacyEvent>,
    pub(crate) notes: Vec<String>,
    pub(super) measures: Vec<(String, f64)>,
    /// Events that other runs charged for the same data.
    pub(crate) past: Vec<PrivacyEvent>,
    /// Everything spent before this question.
    pub(crate) ledger: Vec<PrivacyEvent>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) noise: NoiseSource,
    /// How many events of the ledger its accountant knows.
    pub(crate) charged: usize,
    /// May it be asked the same question again?
    pub(super) asked_again: bool,
    /// What lasted before the question that it was asked last.
    pub(super) before: Option<BeforeRequest>,
    /// The slots through which the exchange that it answers may release something, each with the
    /// steps that it may release.
    pub(crate) declared: BTreeMap<&'static str, Option<MinibatchSampling>>,
    /// Those through which it has.
    pub(crate) released_through: BTreeSet<&'static str>,
    /// Does the exchange that it answers take place only once?
    pub(crate) once: bool,
    /// The mean loss of the last training on its own examples for this answer.
    pub(crate) training_loss: Option<f64>,
    /// The training whose steps it releases.
    pub(super) steps: Option<ReleasedSteps>,
}

/// A training whose steps are released.
pub(crate) struct ReleasedSteps {
    pub slot: &'static str,
    pub lots: MinibatchSampling,
    pub noise: ReleaseNoise,
    pub event: PrivacyEvent,
}

/// A message that a client keeps and could make again.
pub(super) struct Cached(Vec<u8>);

/// Bytes of all of them in this process.
static CACHED: AtomicU64 = AtomicU64::new(0);

/// At most.
const CACHE: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };

impl Cached {
    fn new(m: &dyn AnyMessage) -> Option<Self> {
        let room = CACHE.saturating_sub(CACHED.load(Ordering::Relaxed));
        if m.size() > room {
            return None;
        }
        let bytes = m.encode();
        CACHED.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(Self(bytes))
    }
}

impl Cached {
    /// What was kept; it counts no more.
    fn take(&mut self) -> Vec<u8> {
        CACHED.fetch_sub(self.0.len() as u64, Ordering::Relaxed);
        std::mem::take(&mut self.0)
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        CACHED.fetch_sub(self.0.len() as u64, Ordering::Relaxed);
    }
}

/// What lasts of a client, before a question.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct BeforeRequest {
    /// The question's stream, which is no other question's.
    question: [u8; 32],
    parts: States,
    stash: States,
}

/// What a client keeps between two questions.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedClient {
    pub parts: States,
    pub stash: States,
    pub ledger: Vec<PrivacyEvent>,
    pub before: Option<BeforeRequest>,
}

impl ClientCore {
    /// Those of its examples that its answer may use, if that is a sample that it has drawn. One of
    /// an earlier stage does not count where the answer does not go through a sample.
    pub(super) fn private_sample(&self) -> Result<Option<Examples>> {
        let drawn = self.stash.get(PRIVATE).filter(|_| self.sampled);
        let drawn = drawn
            .map(|bytes| message::decode::<Ids>(bytes))
            .transpose()?;
        let positions = |Ids(all): Ids| all.iter().map(|at| *at as usize).collect::<Vec<_>>();
        Ok(drawn.map(|drawn| self.data.pick(&positions(drawn))))
    }

    /// Returns the name under which it keeps something for its protocol: that of another stage does
    /// not see it. The private sample is the last that was drawn, for exchanges that go through it.
    fn kept_as(&self, name: &str) -> String {
        match name {
            PRIVATE => name.into(),
            _ => label_in(name, self.store.stage()),
        }
    }

    pub(crate) fn begin(&mut self, request: &Request<'_>, exchange: &ExchangeSpec) -> Result<()> {
        if self.asked_again {
            let question = request.stream.key();
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
        self.once = exchange.times == 1;
        self.uses_held_out = exchange.held_out;
        let samples = |slot: &&SlotSpec| slot.signature == Ids::KIND && self.has(slot.name);
        let mut slots = self.store.parts().slots().iter().filter(samples);
        self.sampled = slots.any(|slot| exchange.flow.through.contains(&slot.name));
        self.training_loss = None;
        self.now = request.stream.clone();
        self.round = request.round;
        self.notes.clear();
        self.measures.clear();
        // what a failed answer has released is spent as well
        self.ledger.append(&mut self.spent);
        Ok(())
    }

    pub(crate) fn envelope(&mut self, needs: RequiredInputs) -> Result<Envelope> {
        let (samples, class_counts) = self.told(needs)?;
        let training_loss = if needs.training_loss {
            Some(self.trained_with_loss()? as f32)
        } else {
            None
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

    /// The mean loss of the training that made the answer.
    pub(crate) fn trained_with_loss(&self) -> Result<f64> {
        self.training_loss.ok_or_else(|| {
            let why = "the aggregator needs a training loss, and the client took no training step \
                       for this answer";
            Problem::Lacks(why.into()).into()
        })
    }

    /// After an answer: what does not last is gone.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.store.forget()
    }
}

impl SlotCalls for ClientCore {
    fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }
    fn task(&self) -> &Task {
        self.store.task()
    }
    fn public(&self) -> Result<Option<Arc<Public>>> {
        Ok(self.public.clone())
    }
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(self.store.get::<Box<dyn Trainer>>(slot)?.as_mut())
    }
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(self.store.get::<Box<dyn Generator>>(slot)?.as_mut())
    }
}

impl ClientCalls for ClientCore {
    fn id(&self) -> ClientId {
        self.id
    }
    fn own(&self) -> &Examples {
        &self.data
    }
    fn held_out(&self) -> Result<Examples> {
        ensure!(
            self.uses_held_out,
            "the exchange does not declare that it uses held-out rows (`uses_held_out`, in Python `held_out=True`)"
        );
        ensure!(
            !self.has("accountant"),
            Problem::Lacks(
                "no accountant prices what follows from a client's held-out rows".into()
            )
        );
        let held_out = self.held_out.clone();
        held_out.with_context(|| {
            Problem::Lacks(
                "the client has held back no rows to test on: set `data.test.own`".into(),
            )
        })
    }
    fn now(&self) -> &Stream {
        &self.now
    }
    fn round_number(&self) -> usize {
        self.round
    }
    fn draw_private(&mut self, slot: &str) -> Result<()> {
        if self.has(slot) {
            let mut chosen = Ids((0..self.data.len() as u32).collect());
            self.release_now(slot, &mut chosen)?;
            self.stash
                .insert(PRIVATE.into(), message::encode(&chosen).into());
            self.stash.remove(SAMPLE_COUNTS);
        }
        Ok(())
    }
    fn note(&mut self, text: String) {
        if !self.has("accountant") && !self.notes.contains(&text) {
            self.notes.extend(limited(self.notes.len(), text));
        }
    }
    fn measure(&mut self, name: &str, value: f64) {
        if !self.has("accountant") {
            self.measures.push((name.into(), value));
        }
    }
    fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        let number = index.checked_add(1);
        let number =
            number.with_context(|| format!("a model of parts.{slot} has no number {index}"))?;
        self.store.make(slot, number)
    }
    fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        self.store.put(slot, model);
    }
    fn answers_once(&self) -> bool {
        self.once
    }
    fn fitted(&mut self, loss: Option<f64>) {
        self.training_loss = loss;
        // of several trainings the last counts, as in the message
        self.measures.retain(|(name, _)| name != TRAINING_LOSS);
        if let Some(loss) = loss {
            self.measure(TRAINING_LOSS, loss);
        }
    }
    fn aggregate(&mut self, slot: &str, round: Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let part = self.store.get::<Box<dyn AnyAggregator>>(slot)?;
        let out = part.aggregate(&round, inbox)?;
        message::check(&*out)
            .with_context(|| format!("parts.{slot}: the result of its messages"))?;
        self.forward_log(slot, &round);
        Ok(out)
    }
    fn take_selector(&mut self, slot: &str) -> Result<Box<dyn AnySelector>> {
        self.store.take(slot)
    }
    fn put_selector(&mut self, slot: &str, selector: Box<dyn AnySelector>) {
        self.store.put(slot, selector);
    }
    fn stash(&mut self, name: &str, bytes: Vec<u8>) {
        self.stash.insert(self.kept_as(name), bytes.into());
    }
    fn stashed(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let kept = self.stash.get(&self.kept_as(name));
        Ok(kept.map(|bytes| bytes.to_vec()))
    }
    fn unstash(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self
            .stash
            .remove(&self.kept_as(name))
            .map(ByteBuf::into_vec))
    }
    fn cache(&mut self, name: &str, message: &dyn AnyMessage) {
        let name = self.kept_as(name);
        self.cache.remove(&name);
        if let Some(kept) = Cached::new(message) {
            self.cache.insert(name, kept);
        }
    }
    fn cached(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let kept = self.cache.remove(&self.kept_as(name));
        Ok(kept.map(|mut kept| kept.take()))
    }
    fn range(&mut self, slot: &str, message: &dyn AnyMessage) -> Result<Option<f32>> {
        Ok(self.mechanism(slot)?.and_then(|m| m.range(message)))
    }
    fn clip(
        &mut self,
        slot: &str,
        message: &mut dyn AnyMessage,
        agreed: Option<f32>,
    ) -> Result<()> {
        if let Some(mechanism) = self.mechanism(slot)? {
            if let Some(agreed) = agreed {
                mechanism.agree(agreed);
            }
            mechanism.clip(message)?;
        }
        Ok(())
    }
    fn release(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        self.declares(slot)?;
        self.release_now(slot, message)
    }
    fn begin_steps(
        &mut self,
        slot: &str,
        like: &mut dyn AnyMessage,
    ) -> Result<(Box<dyn AnyMechanism>, usize)> {
        self.begin_released_steps(slot, like)
    }
    fn draw_lot(&mut self, at: usize) -> Result<Vec<usize>> {
        let going = self.going()?;
        let lot = going.noise.child("step", at as u64).child("lot", 0);
        let (lots, stream) = (going.lots, lot.stream().clone());
        Ok(lots.draw(self.data.len(), &stream))
    }
    fn release_step(
        &mut self,
        at: usize,
        seen: &mut dyn AnyMessage,
        mechanism: &mut dyn AnyMechanism,
    ) -> Result<()> {
        self.release_seen(at, seen, mechanism)
    }
    fn end_steps(&mut self, slot: &str, mechanism: Box<dyn AnyMechanism>) {
        self.steps = None;
        self.store.put(slot, mechanism);
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
