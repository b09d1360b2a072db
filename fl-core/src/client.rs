//! A client as a protocol sees it: its own data, its models and its copies of client-side parts.

use crate::message::{Ids, Logits, Message};
use crate::{
    BoxedMechanism, BoxedSelector, Budget, BuildContext, ClientId, Differentiable, Envelope,
    Examples, Fitted, Inbox, Length, Loss, Needs, Parametric, Parts, Pass, PrivacyEvent, Problem,
    Result, Round, Samples, Serial, Stream, Target, Task, Trainer, message, metrics,
};
use anyhow::{Context, ensure};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

crate::settings! {
    /// One stretch of training: so many epochs or so many steps.
    #[check(Training::one_length)]
    pub struct Training {
        /// Times that every example is seen. Give this or `steps`.
        epochs: Option<usize> = None, in 1..=100_000;
        /// Mini-batches. Give this or `epochs`.
        steps: Option<usize> = None, in 1..=100_000_000;
        /// Examples per mini-batch.
        batch: usize = 32, in 1..=1_000_000;
        /// Clips the gradient of a mini-batch to this Euclidean norm.
        clip: Option<f64> = None, in crate::settings::above(0.0);
    }
}

impl Training {
    /// So many epochs.
    pub fn epochs(epochs: usize, batch: usize) -> Self {
        Self {
            epochs: Some(epochs),
            steps: None,
            batch,
            clip: None,
        }
    }

    /// So many mini-batches.
    pub fn steps(steps: usize, batch: usize) -> Self {
        Self {
            steps: Some(steps),
            epochs: None,
            ..Self::epochs(1, batch)
        }
    }

    fn one_length(&self) -> Result<(), String> {
        match (self.epochs, self.steps) {
            (Some(_), Some(_)) => Err("give `epochs` or `steps`, not both".into()),
            (None, None) => Err("must give `epochs` or `steps`".into()),
            _ => Ok(()),
        }
    }

    /// As a pass with this loss.
    pub fn pass(&self, loss: Loss) -> Pass<'static> {
        let length = match (self.steps, self.epochs) {
            (Some(steps), _) => Length::Steps(steps),
            (None, epochs) => Length::Epochs(epochs.unwrap_or(1)),
        };
        Pass {
            clip: self.clip.map(|c| c as f32),
            ..Pass::new(length, self.batch, loss)
        }
    }
}

/// The public data of a run: everybody has it.
#[derive(Clone, Debug)]
pub struct Public {
    samples: Samples,
    labelled: Option<Examples>,
    truth: Option<Examples>,
}

impl Public {
    /// Only inputs, as most methods want it.
    pub fn unlabelled(samples: Samples) -> Self {
        Self {
            samples,
            labelled: None,
            truth: None,
        }
    }

    /// Inputs with labels.
    pub fn labelled(examples: Examples) -> Self {
        Self {
            samples: examples.samples.clone(),
            labelled: Some(examples.clone()),
            truth: Some(examples),
        }
    }

    /// The same, with labels that measurements may see and methods may not.
    pub fn with_truth(mut self, truth: Option<Examples>) -> Self {
        self.truth = truth.or(self.truth);
        self
    }

    /// The inputs.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The class of each sample if it is known, to measure how good a part is. A method that learns from it cheats.
    pub fn truth(&self) -> Option<Vec<u32>> {
        self.truth.as_ref().and_then(Examples::classes)
    }

    /// The labelled examples.
    ///
    /// # Errors
    /// When the spec keeps public labels from the protocol.
    pub fn examples(&self) -> Result<&Examples> {
        self.labelled
            .as_ref()
            .context("this needs labels of the public data; set `data.public.labelled: true`")
    }

    /// The samples at these positions.
    ///
    /// # Errors
    /// When a position is not below the number of public samples.
    pub fn pick(&self, ids: &Ids) -> Result<Samples> {
        let n = self.samples().len();
        ensure!(
            ids.0.iter().all(|id| (*id as usize) < n),
            Problem::Shape(format!("a public sample beyond {n}"))
        );
        Ok(self
            .samples()
            .pick(&ids.0.iter().map(|id| *id as usize).collect::<Vec<_>>()))
    }
}

/// One client. Nothing in here leaves it except as an answer.
pub struct Client {
    id: ClientId,
    data: Examples,
    public: Option<Arc<Public>>,
    task: Task,
    parts: Arc<Parts>,
    home: Stream,
    now: Stream,
    models: BTreeMap<String, Box<dyn Trainer>>,
    mechanisms: BTreeMap<String, Box<dyn Any + Send>>,
    stash: BTreeMap<String, Vec<u8>>,
    spent: Vec<PrivacyEvent>,
    notes: Vec<String>,
    measures: Vec<(String, f64)>,
    /// Everything spent before this question.
    ledger: Vec<PrivacyEvent>,
    budget: Option<Budget>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    models: BTreeMap<String, Vec<u8>>,
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
        let task = data.task();
        let (models, mechanisms, stash) = Default::default();
        Self {
            id,
            data,
            public,
            task,
            parts,
            now: home.clone(),
            home,
            models,
            mechanisms,
            stash,
            spent: Vec::new(),
            notes: Vec::new(),
            measures: Vec::new(),
            ledger: Vec::new(),
            budget: None,
        }
    }

    /// The same client, which releases nothing beyond this budget. Used by hosts.
    pub fn with_budget(mut self, budget: Option<Budget>) -> Self {
        self.budget = budget;
        self
    }

    /// Who it is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Its own examples.
    pub fn own(&self) -> &Examples {
        &self.data
    }

    /// Its randomness for one purpose within this question.
    pub fn stream(&self, purpose: &str) -> Stream {
        self.now.child(purpose, 0)
    }

    pub(crate) fn begin(&mut self, stream: Stream) {
        self.now = stream;
        self.notes.clear();
        self.measures.clear();
        // what a failed answer has released is spent as well
        self.ledger.append(&mut self.spent);
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

    fn make(&self, slot: &str) -> BuildContext {
        BuildContext {
            task: self.task.clone(),
            stream: self.home.child(slot, 0),
        }
    }

    /// Its lasting model for this slot, made on first use.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        if !self.models.contains_key(slot) {
            let model = self.parts.trainer(slot, Some(self.id), &self.make(slot))?;
            self.models.insert(slot.into(), model);
        }
        Ok(self
            .models
            .get_mut(slot)
            .map(Box::as_mut)
            .expect("it has just been put there"))
    }

    /// A new model for this slot, the `index`-th of its kind: one that need not last, such as a teacher.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        let make = BuildContext {
            stream: self.home.child(slot, 1 + index),
            ..self.make(slot)
        };
        self.parts.trainer(slot, Some(self.id), &make)
    }

    /// Lets `model` be the lasting one of this slot.
    pub fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        self.models.insert(slot.into(), model);
    }

    /// Lets the aggregator in `slot` combine messages of this client's own, such as those of its teachers.
    ///
    /// # Errors
    /// When the slot's part cannot be made, or cannot combine them.
    pub fn aggregate<I: Message, O: Message>(&self, slot: &str, inbox: &Inbox<I>) -> Result<O> {
        let round = Round {
            name: slot.into(),
            number: 0,
            last: false,
            stream: self.stream(slot),
            exec: Arc::new(Serial),
        };
        let mut part = self.parts.aggregator::<I, O>(slot, &self.make(slot))?;
        let out = part.aggregate(&round, inbox)?;
        message::check(&out)
            .with_context(|| format!("parts.{slot}: what it made of its messages"))?;
        Ok(out)
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

    /// The public data.
    ///
    /// # Errors
    /// When the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        self.public
            .clone()
            .context("this protocol needs public data; add `data.public` to the spec")
    }

    /// A model's scores of these public samples.
    ///
    /// # Errors
    /// When there are no such samples.
    pub fn logits(&mut self, slot: &str, ids: &Ids) -> Result<Logits> {
        let x = self.public()?.pick(ids)?;
        Ok(Logits::new(ids.0.clone(), self.model(slot)?.predict(&x)?))
    }

    /// Is there anything in this slot?
    pub fn has(&self, slot: &str) -> bool {
        self.parts.has(slot)
    }

    /// Says that this answer tells something about the client's data for which nothing can be guaranteed: an accountant
    /// refuses it.
    pub fn disclose(&mut self, why: &str) {
        self.spent
            .push(PrivacyEvent::Unaccounted { why: why.into() });
    }

    /// A selector for this slot, not fitted to anything yet; `None` if the slot is empty.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn selector<P: ?Sized + 'static>(&self, slot: &str) -> Result<Option<BoxedSelector<P>>> {
        let make = || self.parts.selector(slot, Some(self.id), &self.make(slot));
        self.parts.has(slot).then(make).transpose()
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
        if !self.parts.has(slot) {
            return Ok(None);
        }
        if !self.mechanisms.contains_key(slot) {
            let mechanism: BoxedMechanism<M> =
                self.parts
                    .mechanism(slot, Some(self.id), &self.make(slot))?;
            self.mechanisms.insert(slot.into(), Box::new(mechanism));
        }
        let mechanism = self.mechanisms.get_mut(slot).and_then(|m| m.downcast_mut());
        mechanism
            .with_context(|| format!("parts.{slot} is not a mechanism on {}", M::KIND))
            .map(Some)
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

    /// Lets the mechanism in `slot` bound a message, if the slot is filled. `agreed` is what all clients agreed on.
    ///
    /// # Errors
    /// When the message cannot be bounded.
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
    /// When the message cannot be bounded, priced or perturbed; [`Problem::Budget`] before anything is spent.
    pub fn release<M: Message>(&mut self, slot: &str, m: &mut M) -> Result<()> {
        let (budget, before) = (self.budget.clone(), self.ledger.len() + self.spent.len());
        // two releases in one answer must not share their noise
        let stream = self.stream(slot).child("noise", self.spent.len() as u64);
        let mut accountant = match &budget {
            Some(_) => self.parts.accountant(&self.make("accountant"))?,
            None => None,
        };
        if let Some(accountant) = &mut accountant {
            let mut all = self.ledger.iter().chain(&self.spent);
            all.try_for_each(|event| accountant.charge(event))?;
        }
        if let Some(mechanism) = self.mechanism::<M>(slot)? {
            mechanism.clip(m)?;
            let (event, note) = crate::release::afford(
                mechanism.as_ref(),
                m,
                1,
                accountant.as_deref(),
                budget.as_ref(),
                before,
            )?;
            mechanism.perturb(m, 1, &stream)?;
            let event = mechanism.actual_cost(event);
            self.spent.push(event);
            self.notes
                .extend(note.map(|note| format!("parts.{slot}: {note}")));
            message::check(m).with_context(|| format!("parts.{slot}: after the noise"))?;
        }
        Ok(())
    }

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

    /// How good a model is on these examples, and the digest of what it predicts. Measured by a host, never sent.
    ///
    /// # Errors
    /// When the model cannot predict them.
    pub fn score(&mut self, slot: &str, test: &Examples) -> Result<Scored> {
        Scored::of(self.model(slot)?, test)
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
            self.parts.clone(),
            self.home.clone(),
        )
        .with_budget(self.budget.clone());
        again.load(&self.save()?)?;
        Ok(again)
    }

    /// Everything that it has learnt, bit for bit.
    ///
    /// # Errors
    /// When a model cannot be written down.
    pub fn save(&self) -> Result<Vec<u8>> {
        let models = self
            .models
            .iter()
            .map(|(slot, m)| Ok((slot.clone(), m.save_state()?)))
            .collect::<Result<_>>()?;
        Ok(postcard::to_stdvec(&Saved {
            models,
            stash: self.stash.clone(),
            ledger: self.ledger.clone(),
        })?)
    }

    /// Takes back what [`Client::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this client.
    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        let saved: Saved = postcard::from_bytes(state)
            .with_context(|| format!("the saved state of client {}", self.id))?;
        for (slot, state) in saved.models {
            self.model(&slot)?
                .load_state(&state)
                .with_context(|| format!("client {}, model `{slot}`", self.id))?;
        }
        self.stash = saved.stash;
        self.ledger = saved.ledger;
        Ok(())
    }
}

/// What an evaluation found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// [`metrics::score`]
    pub score: f64,
    /// Digest of all predictions: two models may have the same score, hardly the same predictions.
    pub digest: [u8; 32],
}

impl Scored {
    /// Evaluates a model.
    ///
    /// # Errors
    /// When the model cannot predict these examples.
    pub fn of(model: &mut dyn Trainer, test: &Examples) -> Result<Self> {
        let predicted = Logits::new(test.samples.ids().to_vec(), model.predict(&test.samples)?);
        Ok(Self {
            score: metrics::score(predicted.values.view(), test)?,
            digest: message::digest(&predicted),
        })
    }
}

/// `model` as one with parameters.
///
/// # Errors
/// When it has none; says what would do.
pub fn parametric<'m>(model: &'m mut dyn Trainer, slot: &str) -> Result<&'m mut dyn Parametric> {
    model.parametric().with_context(|| {
        Problem::Lacks(format!("parts.{slot}: this trainer has no parameters to average; use a neural trainer, or a protocol that sends votes or models"))
    })
}

/// Trains on labelled examples.
///
/// # Errors
/// See [`Trainer::fit`].
pub fn fit_examples(
    model: &mut dyn Trainer,
    examples: &Examples,
    pass: &Pass<'_>,
    stream: &Stream,
) -> Result<Fitted> {
    match (examples.classes(), examples.multi_label()) {
        (Some(classes), _) => model.fit(&examples.samples, Target::Classes(&classes), pass, stream),
        (None, findings) => {
            let findings = findings.unwrap_or_default();
            let view: ArrayView2<'_, i8> = findings.view();
            model.fit(&examples.samples, Target::MultiLabel(view), pass, stream)
        }
    }
}
