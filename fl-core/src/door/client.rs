//! A client as a protocol sees it: its own data, its models and its copies of client-side parts.

use super::release::{Afford, afford};
use super::store::{States, Store};
use crate::message::{Ids, Logits, Message};
use crate::{
    Accountant, BoxedAggregator, BoxedMechanism, BoxedSelector, Budget, ClientId, Cohort,
    Differentiable, Envelope, Examples, Fitted, Generator, Inbox, Loss, Needs, Parametric, Parts,
    Pass, PrivacyEvent, Problem, Public, Result, Round, Said, Scored, Serial, Stream, Target, Task,
    Trainer, fit_examples, loss, message, parametric,
};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One client. Nothing in here leaves it except as an answer.
pub struct Client {
    id: ClientId,
    data: Examples,
    public: Option<Arc<Public>>,
    home: Stream,
    now: Stream,
    store: Store,
    stash: BTreeMap<String, Vec<u8>>,
    spent: Vec<PrivacyEvent>,
    notes: Vec<String>,
    measures: Vec<(String, f64)>,
    /// Everything spent before this question.
    ledger: Vec<PrivacyEvent>,
    budget: Option<Budget>,
    /// How many events of the ledger its accountant knows.
    charged: usize,
}

/// What a client keeps between two questions.
#[derive(Serialize, Deserialize)]
struct Saved {
    parts: States,
    stash: BTreeMap<String, Vec<u8>>,
    ledger: Vec<PrivacyEvent>,
}

impl Client {
    /// A client without models. `home` is its stream in the run.
    pub fn new(
        id: ClientId,
        data: Examples,
        public: Option<Arc<Public>>,
        parts: Arc<Parts>,
        home: Stream,
    ) -> Self {
        Self {
            id,
            public,
            now: home.clone(),
            store: Store::new(parts, Some(id), data.task(), home.clone()),
            home,
            data,
            stash: BTreeMap::new(),
            spent: Vec::new(),
            notes: Vec::new(),
            measures: Vec::new(),
            ledger: Vec::new(),
            budget: None,
            charged: 0,
        }
    }

    /// The same client, which releases nothing beyond this budget. Used by hosts.
    pub fn with_budget(mut self, budget: Option<Budget>) -> Self {
        self.budget = budget;
        self
    }

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

    /// Is there anything in this slot?
    pub fn has(&self, slot: &str) -> bool {
        self.store.has(slot)
    }

    // ---- an answer

    pub(crate) fn begin(&mut self, stream: Stream) {
        self.now = stream;
        self.notes.clear();
        self.measures.clear();
        // what a failed answer has released is spent as well
        self.ledger.append(&mut self.spent);
    }

    pub(crate) fn envelope(&mut self, needs: Needs) -> Envelope {
        self.ledger.extend(self.spent.iter().cloned());
        Envelope {
            notes: std::mem::take(&mut self.notes),
            measures: std::mem::take(&mut self.measures),
            samples: needs.samples.then_some(self.data.len() as u64),
            class_counts: needs.class_counts.then(|| self.data.class_counts()),
            spent: std::mem::take(&mut self.spent),
        }
    }

    /// After an answer: what does not last is gone.
    pub(crate) fn end(&mut self) {
        self.store.forget();
    }

    /// Tells the user something about this answer.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Reports a number for the metrics: their mean and deviation over clients are recorded, and no part of the method
    /// sees them.
    pub fn measure(&mut self, name: &str, value: f64) {
        self.measures.push((name.into(), value));
    }

    // ---- its parts

    /// Its model for this slot, made on first use. It lasts from question to question if its slot does
    /// ([`crate::Slot::lasting`]).
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
        model.differentiable().with_context(|| Problem::Lacks(format!("parts.{slot}: this trainer cannot be differentiated by its input; use a neural trainer")))
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
    pub fn aggregate<I: Message, O: Message>(&mut self, slot: &str, inbox: &Inbox<I>) -> Result<O> {
        let round = Round::new(slot, 0, false, self.stream(slot), Arc::new(Serial));
        let part = self.store.get::<BoxedAggregator<I, O>>(slot)?;
        let out = part.aggregate(&round, inbox)?;
        message::check(&out)
            .with_context(|| format!("parts.{slot}: what it made of its messages"))?;
        self.hear(slot, &round);
        Ok(out)
    }

    /// Uses the selector in `slot`; `None` if the slot is empty. It is the same from question to question, if its slot lasts.
    ///
    /// # Errors
    /// When the slot's part cannot be made, and those of `f`.
    pub fn with_selector<P: ?Sized + 'static, T>(
        &mut self,
        slot: &str,
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
    pub fn hear(&mut self, slot: &str, round: &Round) {
        for said in round.said() {
            match said {
                Said::Note(text) => self.notes.push(format!("parts.{slot}: {text}")),
                Said::Number(name, value) => self.measures.push((format!("{slot}.{name}"), value)),
            }
        }
    }

    // ---- learning

    /// Trains a model on its own examples.
    ///
    /// # Errors
    /// When training fails, see [`Trainer::fit`].
    pub fn fit_own(&mut self, slot: &str, pass: &Pass<'_>) -> Result<Fitted> {
        let data = self.data.clone();
        self.fit_examples(slot, &data, pass)
    }

    /// Trains a model on these labelled examples.
    ///
    /// # Errors
    /// As [`Client::fit_own`].
    pub fn fit_examples(
        &mut self,
        slot: &str,
        examples: &Examples,
        pass: &Pass<'_>,
    ) -> Result<Fitted> {
        let stream = self.stream(slot);
        fit_examples(self.model(slot)?, examples, pass, &stream)
    }

    /// Trains a model to these scores or labels of public samples.
    ///
    /// # Errors
    /// As [`Client::fit_own`].
    pub fn fit_public(
        &mut self,
        slot: &str,
        ids: &Ids,
        target: Target<'_>,
        pass: &Pass<'_>,
    ) -> Result<Fitted> {
        let (x, stream) = (
            self.public()?.pick(ids)?,
            self.stream(slot).child("public", 0),
        );
        self.model(slot)?.fit(&x, target, pass, &stream)
    }

    /// The mean loss of its model in `slot` on its own examples: cross-entropy.
    ///
    /// # Errors
    /// When the model cannot predict them.
    pub fn own_loss(&mut self, slot: &str) -> Result<f64> {
        let data = self.data.clone();
        let scores = self.model(slot)?.predict(&data.samples)?;
        let (classes, labels) = (data.classes(), data.multi_label().unwrap_or_default());
        let target = match &classes {
            Some(classes) => Target::Classes(classes),
            None => Target::MultiLabel(labels.view()),
        };
        Ok(loss::of_batch(Loss::CrossEntropy, target, scores.view())?.0)
    }

    /// A model's scores of these public samples.
    ///
    /// # Errors
    /// When there are no such samples.
    pub fn logits(&mut self, slot: &str, ids: &Ids) -> Result<Logits> {
        let x = self.public()?.pick(ids)?;
        Ok(Logits::new(ids.0.clone(), self.model(slot)?.predict(&x)?))
    }

    /// How good a model is on these examples, and the digest of what it predicts. Measured by a host, never sent.
    ///
    /// # Errors
    /// When the model cannot predict them, or its slot does not last.
    pub fn score(&mut self, slot: &str, test: &Examples) -> Result<Scored> {
        if !self.store.parts().lasts(slot) {
            let why = format!(
                "parts.{slot} does not last at clients, so there is nothing to evaluate; its slot must say `lasting()`"
            );
            return Err(Problem::Lacks(why).into());
        }
        Scored::of(self.model(slot)?, test)
    }

    // ---- what leaves

    /// Says that this answer tells something about the client's data for which nothing can be guaranteed: an accountant
    /// refuses it.
    pub fn disclose(&mut self, why: &str) {
        self.spent
            .push(PrivacyEvent::Unaccounted { why: why.into() });
    }

    /// Lets the mechanism in `slot` sample this client's own examples, if it is filled (FedMD-NFDP): the positions of
    /// those that the run may use.
    ///
    /// # Errors
    /// As [`Client::release`].
    pub fn sample_own(&mut self, slot: &str) -> Result<Ids> {
        let mut chosen = Ids((0..self.data.len() as u32).collect());
        self.release(slot, &mut chosen)?;
        Ok(chosen)
    }

    fn mechanism<M: Message>(&mut self, slot: &str) -> Result<Option<&mut BoxedMechanism<M>>> {
        match self.has(slot) {
            true => self.store.get(slot).map(Some),
            false => Ok(None),
        }
    }

    /// What the mechanism in `slot` wants all clients to agree on, see [`crate::PrivacyMechanism::range`].
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn range<M: Message>(&mut self, slot: &str, m: &M) -> Result<Option<f32>> {
        Ok(self
            .mechanism::<M>(slot)?
            .and_then(|mechanism| mechanism.range(m)))
    }

    /// Lets the mechanism in `slot` clip a message, if the slot is filled. `agreed` is what all clients agreed on.
    ///
    /// # Errors
    /// When the message cannot be clipped.
    pub fn clip<M: Message>(&mut self, slot: &str, m: &mut M, agreed: Option<f32>) -> Result<()> {
        if let Some(mechanism) = self.mechanism::<M>(slot)? {
            if let Some(agreed) = agreed {
                mechanism.agree(agreed);
            }
            mechanism.clip(m)?;
        }
        Ok(())
    }

    /// Releases a message through the mechanism in `slot`, if it is filled: clip, price, afford, perturb. The cost travels
    /// in the answer's envelope, and the server charges it. A budget that pays for the first few queries of `m` only
    /// leaves those.
    ///
    /// # Errors
    /// When the message cannot be clipped, priced or perturbed; [`Problem::Budget`] before anything is spent.
    pub fn release<M: Message>(&mut self, slot: &str, m: &mut M) -> Result<()> {
        if !self.has(slot) {
            return Ok(());
        }
        self.account()?;
        let mut mechanism = self.store.take::<BoxedMechanism<M>>(slot)?;
        let released = self.release_through(slot, &mut mechanism, m);
        self.store.put(slot, mechanism);
        released
    }

    fn release_through<M: Message>(
        &mut self,
        slot: &str,
        mechanism: &mut BoxedMechanism<M>,
        m: &mut M,
    ) -> Result<()> {
        // two releases in one answer must not share their noise
        let stream = self.stream(slot).child("noise", self.spent.len() as u64);
        let cohort = Cohort::everyone(vec![self.id]);
        mechanism.clip(m)?;
        let accountant = match self.budget.is_some() && self.store.has("accountant") {
            true => Some(self.store.get::<Box<dyn Accountant>>("accountant")?),
            false => None,
        };
        let accountant = accountant.map(|a| &**a);
        let Afford { event, note } = afford(
            mechanism.as_ref(),
            m,
            &cohort,
            accountant,
            self.budget.as_ref(),
            self.ledger.len() + self.spent.len(),
        )?;
        mechanism.perturb(m, &cohort, &stream)?;
        self.spent.push(mechanism.actual_cost(event));
        self.notes
            .extend(note.map(|note| format!("parts.{slot}: {note}")));
        message::check(m).with_context(|| format!("parts.{slot}: after the noise"))
    }

    /// Lets the client's own accountant, if a budget needs one, know everything that was spent.
    fn account(&mut self) -> Result<()> {
        if self.budget.is_none() || !self.has("accountant") {
            return Ok(());
        }
        let accountant = self.store.get::<Box<dyn Accountant>>("accountant")?;
        for event in self.ledger.iter().chain(&self.spent).skip(self.charged) {
            accountant.charge(event)?;
            self.charged += 1;
        }
        Ok(())
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

    /// Takes back what [`Client::stash`] kept, if anything.
    ///
    /// # Errors
    /// When it is of another kind.
    pub fn unstash<M: Message>(&mut self, name: &str) -> Result<Option<M>> {
        let kept = self.stash.remove(name);
        kept.map(|bytes| message::decode(&bytes)).transpose()
    }

    /// The same client made anew from its data and its saved state, as in another process.
    ///
    /// # Errors
    /// As [`Client::save`] and [`Client::load`].
    pub fn again(&self) -> Result<Self> {
        let mut again = Self::new(
            self.id,
            self.data.clone(),
            self.public.clone(),
            self.store.parts().clone(),
            self.home.clone(),
        )
        .with_budget(self.budget.clone());
        again.load(&self.save()?)?;
        Ok(again)
    }

    /// Is there nothing that lasts? Then there is no need to save it.
    pub fn is_blank(&self) -> bool {
        self.store.is_empty()
            && self.stash.is_empty()
            && self.ledger.is_empty()
            && self.spent.is_empty()
    }

    /// Everything that lasts, bit for bit; what a failed answer released is among it.
    ///
    /// # Errors
    /// When a part cannot be written down.
    pub fn save(&self) -> Result<Vec<u8>> {
        let what = || format!("client {}", self.id);
        Ok(postcard::to_stdvec(&Saved {
            parts: self.store.save().with_context(what)?,
            stash: self.stash.clone(),
            ledger: [&self.ledger[..], &self.spent].concat(),
        })?)
    }

    /// Takes back what [`Client::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of a client. A part's state is looked at when the part is used.
    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        let saved: Saved = postcard::from_bytes(state)
            .with_context(|| format!("the saved state of client {}", self.id))?;
        self.store.load(saved.parts);
        self.stash = saved.stash;
        self.ledger = saved.ledger;
        self.spent.clear();
        self.charged = 0;
        Ok(())
    }
}
