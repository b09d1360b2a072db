//! The server's door: a protocol asks, aggregates, releases and evaluates through a [`Federation`], and a host
//! does what has to do with data, threads, clocks and files.

use crate::message::{self, Bytes, Ids, Message};
use crate::privacy::{Composition, Guarantee, Ledger};
use crate::{
    Accountant, Answer, Ask, BoxedAggregator, ClientId, Examples, Fold, Inbox, Mail, Make, Needs,
    Parametric, Parts, Pass, Payload, PrivacyEvent, Problem, Public, Question, Result, Roster,
    Samples, Scored, SharedExecutor, Stream, Target, Task, Trainer, fit_examples, metrics, parametric,
};
use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One step of a run: a round, or something that is done once.
#[derive(Clone)]
pub struct Round {
    /// `round 3`, `teachers`.
    pub name: String,
    /// From 1; 0 for a step that is done once.
    pub number: usize,
    /// Is it the last of its kind?
    pub last: bool,
    /// Its randomness, at the server.
    pub stream: Stream,
    /// For work that gives the same bits however it is cut.
    pub exec: SharedExecutor,
}

impl Round {
    /// Round 1 of a run with seed 0, on one thread: for tests.
    pub fn first() -> Self {
        let stream = Stream::root(0).child("round", 1);
        Self {
            name: "round 1".into(),
            number: 1,
            last: true,
            stream,
            exec: Arc::new(crate::Serial),
        }
    }
}

crate::choices! {
    /// What to do with an answer that cannot be used.
    pub enum Fault {
        /// The run fails, naming client and reason.
        Fail = "fail",
        /// The answer is left out, and the journal says so.
        Drop = "drop",
    }
}

crate::settings! {
    /// What to do with answers that cannot be used.
    pub struct Faults {
        /// When a client could not answer.
        on_error: Fault = Fault::Fail;
        /// When numbers are not finite.
        on_nan: Fault = Fault::Fail;
        /// When a message does not fit the others.
        on_shape: Fault = Fault::Fail;
        /// When a weight is negative, not finite, or above `max-weight`.
        on_weight: Fault = Fault::Fail;
        /// The largest weight to believe.
        max_weight: f64 = 1e9, in crate::settings::above(0.0);
    }
}

impl Faults {
    fn policy(&self, error: &anyhow::Error) -> &Fault {
        match error.downcast_ref::<Problem>() {
            Some(Problem::NotFinite { .. }) => &self.on_nan,
            Some(Problem::Shape(_)) => &self.on_shape,
            Some(Problem::Weight { .. }) => &self.on_weight,
            // a privacy refusal is the run's business, not one client's bad luck
            Some(Problem::Budget(_) | Problem::Unpriced(_)) => &Fault::Fail,
            _ => &self.on_error,
        }
    }
}

/// One line of the journal: one question, everybody's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The step.
    pub step: String,
    /// The question's label.
    pub question: String,
    /// Kind of the messages to the clients.
    pub down: String,
    /// Kind of the answers.
    pub up: String,
    /// How many were asked.
    pub clients: usize,
    /// Whose answers were left out, and why.
    pub dropped: Vec<(ClientId, String)>,
    /// Bytes to the clients.
    pub bytes_down: Bytes,
    /// Bytes of the answers.
    pub bytes_up: Bytes,
    /// Bytes of the envelopes: sample and class counts.
    pub bytes_envelope: u64,
    /// Digest of all that was sent and answered, in client order.
    pub digest: String,
    /// Epsilon after this question, if somebody accounts.
    pub epsilon: Option<f64>,
}

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The step.
    pub step: String,
    /// Number of the round; 0 for a step that is done once.
    pub round: usize,
    /// What was measured: `accuracy`, `clients.accuracy`.
    pub name: String,
    /// The number; the mean over clients where `each` is filled.
    pub value: f64,
    /// Population standard deviation over clients.
    pub std: Option<f64>,
    /// One number per client, in client order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}

/// Where clients live, and everything that has to do with data, threads, clocks and files.
pub trait Host {
    /// The clients that have examples.
    fn roster(&self) -> &Roster;

    /// Puts a question to these clients, in any order and on any number of threads; hands over the answers in the order of
    /// `to`, on this thread, without holding more of them than it must.
    ///
    /// # Errors
    /// The first error of `each`, or the host's own.
    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Question<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()>;

    /// Scores of the clients' own models on the test examples, in client order.
    ///
    /// # Errors
    /// When a model cannot be evaluated.
    fn score_clients(&mut self, slot: &str) -> Result<Vec<Scored>>;

    /// The public data, if the spec has any.
    fn public(&self) -> Option<&Arc<Public>>;

    /// The test examples.
    fn test(&self) -> &Examples;

    /// What runs work in chunks.
    fn executor(&self) -> SharedExecutor;

    /// A step begins: for a progress display.
    fn progress(&mut self, step: &str, done: usize, of: usize);

    /// Writes a line to the journal.
    ///
    /// # Errors
    /// When it cannot be written.
    fn journal(&mut self, entry: &Entry) -> Result<()>;

    /// Records a measurement.
    ///
    /// # Errors
    /// When it cannot be written.
    fn metric(&mut self, metric: &Metric) -> Result<()>;

    /// Keeps a model as a result of the run.
    ///
    /// # Errors
    /// When it cannot be written.
    fn keep_model(&mut self, name: &str, model: &[u8]) -> Result<()>;

    /// Says something that the user should know.
    fn warn(&mut self, text: &str);

    /// Step number `done` is complete: keeps the server's state and every client's, if the run can be resumed.
    ///
    /// # Errors
    /// [`Problem::Stopped`] when the run is to stop here; others when it cannot be written.
    fn checkpoint(
        &mut self,
        done: usize,
        step: &str,
        server: &dyn Fn() -> Result<Vec<u8>>,
    ) -> Result<()>;
}

/// A stateful server-side part whose type only its slot knows.
struct Held {
    part: Box<dyn Any + Send>,
    save: fn(&dyn Any) -> Vec<u8>,
}

crate::settings! {
    /// What a run may spend; it stops before it would spend more.
    pub struct Budget {
        /// The largest epsilon, at the accountant's delta.
        epsilon: f64, in crate::settings::above(0.0);
    }
}

/// What a run adds up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes from clients to server, envelopes included.
    pub up: u64,
    /// Bytes from server to clients.
    pub down: u64,
    /// Steps done.
    pub steps: usize,
}

/// Everything at the server that a stopped run needs to go on.
#[derive(Serialize, Deserialize)]
struct Saved {
    done: usize,
    protocol: Vec<u8>,
    parts: BTreeMap<String, Vec<u8>>,
    models: BTreeMap<String, Vec<u8>>,
    own: Vec<PrivacyEvent>,
    clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
    chain: [u8; 32],
    totals: Totals,
}

/// A protocol's view of the world, from the server.
pub struct Federation<'h> {
    host: &'h mut dyn Host,
    parts: Arc<Parts>,
    task: Task,
    root: Stream,
    faults: Faults,
    budget: Option<Budget>,
    every: usize,
    accountant: Option<Box<dyn Accountant>>,
    own: Vec<PrivacyEvent>,
    clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
    held: BTreeMap<String, Held>,
    models: BTreeMap<String, Box<dyn Trainer>>,
    chain: [u8; 32],
    totals: Totals,
    steps: usize,
    resumed: Option<Saved>,
}

/// How a run is set up, beside its parts.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The seed.
    pub seed: u64,
    /// What models are to learn.
    pub task: Task,
    /// The policy for unusable answers.
    pub faults: Faults,
    /// The privacy budget.
    pub budget: Option<Budget>,
    /// Evaluate after every so many rounds, and after the last.
    pub evaluate_every: usize,
}

impl<'h> Federation<'h> {
    /// Used by hosts. `state` is what a checkpoint of the same run kept, to go on from there.
    ///
    /// # Errors
    /// When the accountant cannot be made, or `state` is not a server's state.
    pub fn new(
        host: &'h mut dyn Host,
        parts: Arc<Parts>,
        options: &RunOptions,
        state: Option<&[u8]>,
    ) -> Result<Self> {
        let root = Stream::root(options.seed);
        let make = Make {
            task: options.task.clone(),
            stream: root.child("accountant", 0),
        };
        let accountant = parts.accountant(&make)?;
        if options.budget.is_some() && accountant.is_none() {
            bail!("a privacy budget needs an accountant: fill parts.accountant");
        }
        let resumed = state
            .map(postcard::from_bytes::<Saved>)
            .transpose()
            .context("the saved state of the server")?;
        let mut fed = Self {
            host,
            parts,
            task: options.task.clone(),
            root,
            faults: options.faults.clone(),
            budget: options.budget.clone(),
            every: options.evaluate_every.max(1),
            accountant,
            own: Vec::new(),
            clients: BTreeMap::new(),
            held: BTreeMap::new(),
            models: BTreeMap::new(),
            chain: [0; 32],
            totals: Totals::default(),
            steps: 0,
            resumed: None,
        };
        if let Some(saved) = &resumed {
            fed.chain = saved.chain;
            fed.totals = saved.totals.clone();
            fed.charge(saved.own.clone())?;
            for (id, events) in saved.clients.clone() {
                fed.charge_client(id, events)?;
            }
        }
        fed.resumed = resumed;
        Ok(fed)
    }

    // ---- what there is

    /// Is there anything in this slot?
    pub fn has(&self, slot: &str) -> bool {
        self.parts.has(slot)
    }

    /// What models are to learn.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Every client that has examples and how many, ascending.
    pub fn roster(&self) -> &Roster {
        self.host.roster()
    }

    /// Every client that has examples, ascending.
    pub fn everyone(&self) -> Vec<ClientId> {
        self.host.roster().iter().map(|(id, _)| *id).collect()
    }

    /// The clients that the selector in `slot` picks for this round; everyone if the slot is empty.
    ///
    /// # Errors
    /// When it picks nobody, or cannot pick.
    pub fn cohort(&mut self, slot: &str, round: &Round) -> Result<Vec<ClientId>> {
        if !self.parts.has(slot) {
            return Ok(self.everyone());
        }
        let mut selector = self
            .parts
            .selector::<Roster>(slot, None, &self.make(slot))?;
        let roster = self.host.roster();
        let picked = selector.select(roster, &round.stream.child(slot, 0))?;
        let ids: Option<Vec<ClientId>> = picked
            .iter()
            .map(|i| roster.get(*i).map(|(id, _)| *id))
            .collect();
        let ids = ids.filter(|ids| !ids.is_empty() && ids.is_sorted_by(|a, b| a < b));
        ids.with_context(|| format!("parts.{slot} picked positions {picked:?} of {} clients; they must be ascending, different and at least one", roster.len()))
    }

    /// The public data.
    ///
    /// # Errors
    /// When the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        self.host
            .public()
            .cloned()
            .context("this protocol needs public data; add `data.public` to the spec")
    }

    /// All public samples, by position.
    ///
    /// # Errors
    /// When the spec has none.
    pub fn public_ids(&self) -> Result<Ids> {
        Ok(Ids((0..self.public()?.samples().len() as u32).collect()))
    }

    fn make(&self, slot: &str) -> Make {
        Make {
            task: self.task.clone(),
            stream: self.root.child("server", 0).child(slot, 0),
        }
    }

    /// The server's lasting model for this slot, made on first use.
    ///
    /// # Errors
    /// When the slot's part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        if !self.models.contains_key(slot) {
            let mut model = self.parts.trainer(slot, None, &self.make(slot))?;
            if let Some(state) = self.resumed.as_ref().and_then(|r| r.models.get(slot)) {
                model
                    .load_state(state)
                    .with_context(|| format!("the server's model `{slot}`"))?;
            }
            self.models.insert(slot.into(), model);
        }
        Ok(self
            .models
            .get_mut(slot)
            .map(Box::as_mut)
            .expect("it has just been put there"))
    }

    /// The server's model as one with parameters.
    ///
    /// # Errors
    /// When it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Trains the server's model in `slot` on these samples.
    ///
    /// # Errors
    /// When training fails, see [`Trainer::fit`].
    pub fn fit(
        &mut self,
        slot: &str,
        stream: &Stream,
        x: &Samples,
        target: Target<'_>,
        pass: &Pass<'_>,
    ) -> Result<()> {
        self.model(slot)?
            .fit(x, target, pass, &stream.child(slot, 0))
            .map(|_| ())
    }

    /// Trains the server's model in `slot` on labelled examples.
    ///
    /// # Errors
    /// As [`Federation::fit`].
    pub fn fit_examples(
        &mut self,
        slot: &str,
        stream: &Stream,
        examples: &Examples,
        pass: &Pass<'_>,
    ) -> Result<()> {
        fit_examples(self.model(slot)?, examples, pass, &stream.child(slot, 0)).map(|_| ())
    }

    // ---- steps

    /// Does something once. A resumed run that has done it before skips it and takes `state` from the checkpoint.
    ///
    /// # Errors
    /// Those of `body`, and of the checkpoint.
    pub fn once<S: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        state: &mut S,
        body: impl FnOnce(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        self.step(name.into(), 0, 0, self.root.child(name, 0), state, body)
    }

    /// Does something `n` times, as rounds 1 to `n`. A resumed run skips the rounds that it has done before.
    ///
    /// # Errors
    /// Those of `body`, and of the checkpoints.
    pub fn rounds<S: Serialize + DeserializeOwned>(
        &mut self,
        n: usize,
        state: &mut S,
        mut body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        for number in 1..=n {
            let stream = self.root.child("round", number as u64);
            self.step(
                format!("round {number}"),
                number,
                n,
                stream,
                state,
                &mut body,
            )?;
        }
        Ok(())
    }

    fn step<S: Serialize + DeserializeOwned>(
        &mut self,
        name: String,
        number: usize,
        of: usize,
        stream: Stream,
        state: &mut S,
        body: impl FnOnce(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        self.steps += 1;
        if let Some(saved) = self.resumed.as_ref().filter(|s| self.steps <= s.done) {
            *state =
                postcard::from_bytes(&saved.protocol).context("the saved state of the protocol")?;
            return Ok(());
        }
        self.host.progress(&name, number, of);
        let round = Round {
            name: name.clone(),
            number,
            last: number == of,
            stream,
            exec: self.host.executor(),
        };
        body(self, state, &round).with_context(|| name.clone())?;
        self.totals.steps = self.steps;
        let (host, server) = (
            &mut self.host,
            Saving {
                state: &*state,
                fed: (&self.held, &self.models, &self.own, &self.clients),
                chain: self.chain,
                totals: &self.totals,
            },
        );
        host.checkpoint(self.steps, &name, &|| server.bytes())
    }

    // ---- questions

    /// Asks these clients; `down` is what each of them is sent. Answers become an [`Inbox`] by the spec's fault policy.
    ///
    /// # Errors
    /// When nobody's answer can be used, or the policy says that the run fails.
    pub fn ask<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<Inbox<U>> {
        self.ask_for(round, ask, to, down, Needs::default())
    }

    fn ask_for<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
        needs: Needs,
    ) -> Result<Inbox<U>> {
        let mut mail = Vec::with_capacity(to.len());
        self.exchange(round, ask, to, &down, needs, &mut |m| {
            mail.push(m);
            Ok(())
        })?;
        Inbox::new(mail).with_context(|| ask.label())
    }

    /// Asks, and makes something else of each answer as it comes, so that the answers themselves are not kept.
    ///
    /// # Errors
    /// Those of [`Federation::ask`] and of `make`.
    pub fn ask_each<'d, D: Message, U: Message, V: Message>(
        &mut self,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
        mut make: impl FnMut(ClientId, U) -> Result<V>,
    ) -> Result<Inbox<V>> {
        let mut mail = Vec::with_capacity(to.len());
        self.exchange(round, ask, to, &down, Needs::default(), &mut |m| {
            let body = make(m.from, m.body).with_context(|| format!("client {}", m.from))?;
            mail.push(Mail::new(m.from, m.weight, body));
            Ok(())
        })?;
        Inbox::new(mail).with_context(|| ask.label())
    }

    /// Reads models that clients trained in `slot` and sent.
    pub fn reader(
        &self,
        slot: &'static str,
    ) -> impl Fn(ClientId, &[u8]) -> Result<Box<dyn Trainer>> + use<> {
        let (parts, make) = (self.parts.clone(), self.make(slot));
        move |client, bytes| {
            let mut model = parts.trainer(slot, Some(client), &make)?;
            model
                .load(bytes)
                .with_context(|| format!("parts.{slot}: what client {client} sent"))?;
            Ok(model)
        }
    }

    /// Lets the aggregator in `slot` combine these messages.
    ///
    /// # Errors
    /// Those of the aggregator.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let out = self.aggregator::<I, O>(slot)?.aggregate(round, inbox)?;
        message::check(&out)
            .with_context(|| format!("parts.{slot}: what it made of the messages"))?;
        Ok(out)
    }

    /// Asks, and lets the aggregator in `slot` combine the answers, one at a time if it can.
    ///
    /// # Errors
    /// Those of [`Federation::ask`] and of the aggregator.
    pub fn gather<'d, D: Message, U: Message, O: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<O> {
        let aggregator = self.aggregator::<U, O>(slot)?;
        let (needs, fold) = (aggregator.needs(), aggregator.fold());
        let out = match fold {
            Some(mut fold) => {
                self.exchange(round, ask, to, &down, needs, &mut |mail| fold.add(mail))?;
                fold.finish().with_context(|| ask.label())?
            }
            None => {
                let inbox = self.ask_for(round, ask, to, down, needs)?;
                return self.aggregate(slot, round, &inbox);
            }
        };
        message::check(&out)
            .with_context(|| format!("parts.{slot}: what it made of the answers"))?;
        Ok(out)
    }

    fn aggregator<I: Message, O: Message>(
        &mut self,
        slot: &str,
    ) -> Result<&mut BoxedAggregator<I, O>> {
        if !self.held.contains_key(slot) {
            let mut part: BoxedAggregator<I, O> = self.parts.aggregator(slot, &self.make(slot))?;
            if let Some(state) = self.resumed.as_ref().and_then(|r| r.parts.get(slot)) {
                part.load(state)
                    .with_context(|| format!("parts.{slot}: its saved state"))?;
            }
            let save: fn(&dyn Any) -> Vec<u8> = |part| {
                part.downcast_ref::<BoxedAggregator<I, O>>()
                    .map(|p| p.save())
                    .unwrap_or_default()
            };
            self.held.insert(
                slot.into(),
                Held {
                    part: Box::new(part),
                    save,
                },
            );
        }
        let held = self.held.get_mut(slot).and_then(|h| h.part.downcast_mut());
        held.with_context(|| format!("parts.{slot} is used for messages of two kinds"))
    }

    fn exchange<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        needs: Needs,
        sink: &mut dyn FnMut(Mail<U>) -> Result<()>,
    ) -> Result<()> {
        let mut entry = Entry {
            step: round.name.clone(),
            question: ask.label().into(),
            down: D::KIND.into(),
            up: U::KIND.into(),
            clients: to.len(),
            dropped: Vec::new(),
            bytes_down: Bytes::default(),
            bytes_up: Bytes::default(),
            bytes_envelope: 0,
            digest: String::new(),
            epsilon: None,
        };
        let mut chain = Sha256::new();
        let mut sent: Option<(*const D, [u8; 32], Bytes)> = None;
        for id in to {
            let message = down(*id);
            let (_, digest, bytes) = match sent {
                Some(same) if std::ptr::eq(same.0, message) => same, // one message to everybody is hashed once
                _ => *sent.insert((
                    message,
                    message::digest(message),
                    message::bytes(message, None),
                )),
            };
            chain.update(digest);
            entry.bytes_down += bytes;
        }
        let question = |id: ClientId| {
            let stream = round
                .stream
                .child("client", u64::from(id))
                .child(ask.label(), 0);
            Question::new(ask.label(), Payload::Here(down(id)), stream, needs)
        };
        let (faults, mut first, mut spent) = (self.faults.clone(), None::<U>, Vec::new());
        let mut notes: Vec<String> = Vec::new();
        self.host.ask(to, &question, &mut |id, answer| {
            let taken = answer.and_then(|answer| {
                let Answer { body, envelope } = answer;
                let asked = (down(id) as &dyn Any)
                    .downcast_ref::<Ids>()
                    .map(|ids| &ids.0[..]);
                let body: U = body.open()?;
                let (bytes, digest) = (message::bytes(&body, asked), message::digest(&body));
                // what a client has released is spent, whatever becomes of its answer
                spent.push((id, envelope.spent.clone()));
                notes.extend(
                    envelope
                        .notes
                        .iter()
                        .map(|note| format!("client {id}: {note}")),
                );
                let weight = if needs.samples {
                    envelope.samples.map_or(f64::NAN, |n| n as f64)
                } else {
                    1.0
                };
                let mail = Mail {
                    from: id,
                    weight,
                    class_counts: envelope.class_counts.clone(),
                    body,
                };
                crate::inbox::check_mail(&mail)?;
                if weight > faults.max_weight {
                    bail!(Problem::Weight { weight });
                }
                message::alike(first.get_or_insert_with(|| mail.body.clone()), &mail.body)?;
                Ok((mail, bytes, digest, envelope.bytes()))
            });
            match taken {
                Ok((mail, bytes, digest, envelope)) => {
                    entry.bytes_up += bytes;
                    entry.bytes_envelope += envelope;
                    chain.update(id.to_le_bytes());
                    chain.update(digest);
                    sink(mail)
                }
                Err(error) if *faults.policy(&error) == Fault::Drop => {
                    entry.dropped.push((id, format!("{error:#}")));
                    Ok(())
                }
                Err(error) => Err(error.context(format!("client {id}")).context(ask.label())),
            }
        })?;
        notes.iter().for_each(|note| self.host.warn(note));
        for (id, events) in spent {
            self.charge_client(id, events)?;
        }
        let digest: [u8; 32] = chain.finalize().into();
        entry.digest = hex(&digest);
        entry.epsilon = self.guarantee()?.map(|g| g.epsilon);
        self.totals.up += entry.bytes_up.total() + entry.bytes_envelope;
        self.totals.down += entry.bytes_down.total();
        self.link(ask.label(), &digest);
        self.host.journal(&entry)?;
        if entry.dropped.len() == to.len() && !to.is_empty() {
            let (id, why) = &entry.dropped[0];
            bail!(Problem::NoAnswer(format!(
                " to `{}`: all {} were dropped; client {id}: {why}",
                ask.label(),
                to.len()
            )));
        }
        Ok(())
    }

    // ---- privacy

    /// Releases something made from the data of `n` clients through the mechanism in `slot`, if it is filled: bound,
    /// price, afford, perturb, charge. A budget that pays for the first few queries of `m` only leaves those.
    ///
    /// # Errors
    /// [`Problem::Budget`] before anything is spent; [`Problem::Unpriced`] when the accountant has no price for it.
    pub fn release<M: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        m: &mut M,
        n: usize,
    ) -> Result<()> {
        if !self.parts.has(slot) {
            return Ok(());
        }
        let mut mechanism = self.parts.mechanism::<M>(slot, None, &self.make(slot))?;
        mechanism.bound(m)?;
        let (event, note) = crate::release::afford(
            mechanism.as_ref(),
            m,
            n,
            self.accountant.as_deref(),
            self.budget.as_ref(),
            self.own.len(),
        )?;
        mechanism.perturb(m, n, &round.stream.child(slot, 0))?;
        self.charge(vec![mechanism.settle(event)])?;
        if let Some(note) = note {
            self.warn(&format!("parts.{slot}: {note}"));
        }
        message::check(m).with_context(|| format!("parts.{slot}: after the noise"))
    }

    fn charge(&mut self, events: Vec<PrivacyEvent>) -> Result<()> {
        if let Some(accountant) = &mut self.accountant {
            events.iter().try_for_each(|e| accountant.charge(e))?;
        }
        self.own.extend(events);
        Ok(())
    }

    fn charge_client(&mut self, id: ClientId, events: Vec<PrivacyEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        if let Some(accountant) = &mut self.accountant {
            accountant.merge(
                &[Ledger {
                    client: Some(id),
                    events: events.clone(),
                }],
                Composition::Parallel,
            )?;
        }
        self.clients.entry(id).or_default().extend(events);
        Ok(())
    }

    /// What is guaranteed so far; `None` without an accountant.
    ///
    /// # Errors
    /// When the accountant cannot say.
    pub fn guarantee(&self) -> Result<Option<Guarantee>> {
        self.accountant
            .as_ref()
            .map(|a| a.guarantee(None))
            .transpose()
    }

    /// Everything released so far, at the server and by clients, that nobody accounts for.
    pub fn unaccounted(&self) -> Vec<PrivacyEvent> {
        let all = self.own.iter().chain(self.clients.values().flatten());
        all.filter(|e| self.accountant.is_none() || matches!(e, PrivacyEvent::Unaccounted { .. }))
            .cloned()
            .collect()
    }

    // ---- results

    fn due(&self, round: &Round) -> bool {
        round.last || round.number.is_multiple_of(self.every)
    }

    /// Records how good the server's model in `slot` is on the test examples, if this round is to be evaluated.
    ///
    /// # Errors
    /// When it cannot predict them.
    pub fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()> {
        if !self.due(round) {
            return Ok(());
        }
        let test = self.host.test().clone();
        let scored = Scored::of(self.model(slot)?, &test)?;
        let name = metrics::score_name(self.task.kind);
        self.link(name, &scored.digest);
        self.host.metric(&Metric {
            step: round.name.clone(),
            round: round.number,
            name: name.into(),
            value: scored.score,
            std: None,
            each: Vec::new(),
        })
    }

    /// Records how good the clients' own models in `slot` are on the test examples, if this round is to be evaluated.
    ///
    /// # Errors
    /// When one of them cannot predict them.
    pub fn evaluate_clients(&mut self, round: &Round, slot: &str) -> Result<()> {
        if !self.due(round) {
            return Ok(());
        }
        let scored = self.host.score_clients(slot)?;
        let name = format!("clients.{}", metrics::score_name(self.task.kind));
        for one in &scored {
            self.link(&name, &one.digest);
        }
        let each: Vec<f64> = scored.iter().map(|s| s.score).collect();
        let (value, std) = metrics::mean_std(&each);
        self.host.metric(&Metric {
            step: round.name.clone(),
            round: round.number,
            name,
            value,
            std: Some(std),
            each,
        })
    }

    /// Keeps the server's model in `slot` as a result of the run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_model(&mut self, slot: &str) -> Result<()> {
        let bytes = self.model(slot)?.save()?;
        self.link(slot, &bytes);
        self.host.keep_model(slot, &bytes)
    }

    /// Says something that the user should know.
    pub fn warn(&mut self, text: &str) {
        self.host.warn(text);
    }

    fn link(&mut self, what: &str, bytes: &[u8]) {
        let mut hash = Sha256::new();
        hash.update(self.chain);
        hash.update((what.len() as u64).to_le_bytes());
        hash.update(what.as_bytes());
        hash.update(bytes);
        self.chain = hash.finalize().into();
    }

    /// The digest of everything that was sent, answered, measured and kept so far.
    pub fn digest(&self) -> String {
        hex(&self.chain)
    }

    /// Bytes and steps so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

type Stateful<'a> = (
    &'a BTreeMap<String, Held>,
    &'a BTreeMap<String, Box<dyn Trainer>>,
    &'a Vec<PrivacyEvent>,
    &'a BTreeMap<ClientId, Vec<PrivacyEvent>>,
);

/// The server's state, written down only if the host wants it.
struct Saving<'a, S> {
    state: &'a S,
    fed: Stateful<'a>,
    chain: [u8; 32],
    totals: &'a Totals,
}

impl<S: Serialize> Saving<'_, S> {
    fn bytes(&self) -> Result<Vec<u8>> {
        let (held, models, own, clients) = self.fed;
        let saved = Saved {
            done: self.totals.steps,
            protocol: postcard::to_stdvec(self.state)?,
            parts: held
                .iter()
                .map(|(slot, h)| (slot.clone(), (h.save)(h.part.as_ref())))
                .collect(),
            models: models
                .iter()
                .map(|(slot, m)| Ok((slot.clone(), m.save_state()?)))
                .collect::<Result<_>>()?,
            own: own.clone(),
            clients: clients.clone(),
            chain: self.chain,
            totals: self.totals.clone(),
        };
        Ok(postcard::to_stdvec(&saved)?)
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        })
}

/// A fold that collects parameters into a weighted mean; used by aggregators that are means.
#[derive(Default)]
pub struct MeanOfParams {
    first: Option<message::Params>,
    running: BTreeMap<String, crate::kernels::RunningMean>,
}

impl Fold<message::Params, message::Params> for MeanOfParams {
    fn add(&mut self, mail: Mail<message::Params>) -> Result<()> {
        for (name, tensor) in &mail.body.0 {
            let tensor = tensor.as_standard_layout();
            let values = tensor.as_slice().expect("standard layout");
            self.running
                .entry(name.clone())
                .or_default()
                .add(values, mail.weight);
        }
        self.first.get_or_insert(mail.body);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<message::Params> {
        let mut out = self
            .first
            .ok_or_else(|| anyhow!(Problem::NoAnswer(String::new())))?;
        for (name, tensor) in &mut out.0 {
            let mean = self.running[name].finish();
            *tensor = ndarray::ArrayD::from_shape_vec(tensor.raw_dim(), mean)?;
        }
        Ok(out)
    }
}
