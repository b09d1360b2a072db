//! [`Server`]: the interface through which a protocol sends requests, aggregates, releases and
//! evaluates.

pub(crate) mod calls;
pub(crate) mod cohort;
mod collect;
mod collector;
mod evaluate;
pub(crate) mod receipts;
mod release;
mod run_calls;
mod state;
mod steps;

pub use state::RunState;

use crate::message::{AnyMessage, Erased, Message, MessageType, Params, Scalar};
use crate::server::calls::{ServerCalls, StepStart, StepVerdict};
use crate::{
    AggregatorSlot, ClientId, ClientMessage, Cohort, Examples, Exchange, FitOptions, Generator,
    Inbox, MechanismSlot, Parametric, Pool, Public, Result, Round, Samples, SelectorSlot, Stream,
    Target, Task, Trainer, TrainerSlot, fit_examples, parametric,
};
use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// Stands between a slot and the number of a line of models ([`Server::aggregate_line`]).
const LINE: char = '#';

/// What tells [`Server::aggregate`] the slot of an aggregator: the slot, or an exchange that
/// declares it ([`Declared::into`](crate::Declared::into)).
pub trait Combiner<I, O> {
    #[doc(hidden)]
    fn slot(&self, server: &dyn ServerCalls) -> Result<&'static str>;
}

impl<I: Message, O: Message> Combiner<I, O> for AggregatorSlot<I, O> {
    fn slot(&self, _: &dyn ServerCalls) -> Result<&'static str> {
        Ok(self.name())
    }
}

impl<D: Message, U: Message, I: Message, O: Message> Combiner<I, O> for Exchange<D, U> {
    fn slot(&self, server: &dyn ServerCalls) -> Result<&'static str> {
        server.exchange(self.label())?.aggregated_in()
    }
}

/// A protocol's view of the world, from the server. The run is in this process, or in the program
/// that loaded the protocol's library.
pub struct Server<'h>(pub(crate) &'h mut dyn ServerCalls);

impl<'h> Server<'h> {
    /// The server of the program that loaded the protocol's library.
    #[doc(hidden)]
    pub fn elsewhere(calls: &'h mut dyn ServerCalls) -> Self {
        Self(calls)
    }

    #[doc(hidden)]
    pub fn calls(&mut self) -> &mut (dyn ServerCalls + 'h) {
        self.0
    }
}

// what there is
impl Server<'_> {
    /// Returns whether this slot is filled.
    pub fn has(&self, slot: &str) -> bool {
        self.0.has(slot)
    }

    /// Returns the clients that have a part in this slot, such as `sign-flip for clients 0-1`.
    pub fn who(&self, slot: &str) -> Vec<String> {
        self.0.who(slot)
    }

    /// Returns the task that models learn.
    pub fn task(&self) -> &Task {
        self.0.task()
    }

    /// Returns every client that takes part, ascending: those with examples, or all clients if the
    /// run has an accountant.
    pub fn everyone(&self) -> Cohort {
        self.0.everyone()
    }

    /// Returns every client with `at_least` examples, ascending. No protocol learns how many each
    /// client has. With an accountant it returns all clients: the list of participants is public,
    /// so it must not depend on the number of a client's examples.
    pub fn with_examples(&self, at_least: usize) -> Cohort {
        self.0.with_examples(at_least)
    }

    /// Returns the public data.
    ///
    /// # Errors
    /// If the spec has none.
    pub fn public(&self) -> Result<Arc<Public>> {
        Public::required(self.0.public()?)
    }
}

// its parts
impl Server<'_> {
    /// Returns the positions in `pool` that the selector in `slot` picks, ascending; `None` if the
    /// slot is empty.
    ///
    /// # Errors
    /// If the selector cannot judge the pool, or picks a position outside it.
    pub fn select<P: Pool + ?Sized>(
        &mut self,
        slot: &SelectorSlot<P>,
        round: &Round,
        pool: &P,
    ) -> Result<Option<Vec<usize>>> {
        self.0.select(slot, round, pool.any())
    }

    /// Returns the server's lasting model in this slot, made on first use.
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        self.0.model(slot)
    }

    /// Returns the server's generator in this slot, made on first use.
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        self.0.generator(slot)
    }

    /// Returns the server's model as one with parameters.
    ///
    /// # Errors
    /// If it has none.
    pub fn parametric(&mut self, slot: &str) -> Result<&mut dyn Parametric> {
        parametric(self.model(slot)?, slot)
    }

    /// Trains the server's model in `slot` on these samples.
    ///
    /// # Errors
    /// If training fails, see [`Trainer::fit`].
    pub fn fit(
        &mut self,
        slot: &str,
        stream: &Stream,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
    ) -> Result<()> {
        let fitted = self
            .model(slot)?
            .fit(x, target, pass, &stream.child(slot, 0))?;
        self.0.trained(slot, &fitted);
        Ok(())
    }

    /// Trains the server's model in `slot` on labelled examples.
    ///
    /// # Errors
    /// As [`Server::fit`].
    pub fn fit_examples(
        &mut self,
        slot: &str,
        stream: &Stream,
        examples: &Examples,
        pass: &FitOptions<'_>,
    ) -> Result<()> {
        let stream = stream.child(slot, 0);
        let fitted = fit_examples(self.model(slot)?, examples, pass, &stream)?;
        self.0.trained(slot, &fitted);
        Ok(())
    }

    /// Reads models that clients trained in `slot` and sent.
    pub fn reader(
        &self,
        slot: &TrainerSlot,
    ) -> impl Fn(ClientId, &[u8]) -> Result<Box<dyn Trainer>> + use<> {
        self.0.reader(slot)
    }
}

// exchanges
impl Server<'_> {
    /// Returns the clients of an exchange in this round: those that its selector picks
    /// ([`Declared::to`](crate::Declared::to)), or everyone. A selector picks once in a step, for
    /// all its exchanges; it may ask how many examples clients have.
    ///
    /// # Errors
    /// If it picks no client, or cannot pick.
    pub fn cohort<D: Message, U: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
    ) -> Result<Cohort> {
        self.0.cohort(round, exchange.label(), None)
    }

    /// As [`Server::cohort`], of the selector that may request the exchange `loss`
    /// ([`Declared::if_requested_by`](crate::Declared::if_requested_by)): the loss of `model` on
    /// the clients' own examples. Call it before another exchange of that selector.
    ///
    /// # Errors
    /// As [`Server::cohort`].
    pub fn cohort_by_loss<D: Message>(
        &mut self,
        round: &Round,
        loss: &Exchange<D, Scalar>,
        model: &D,
    ) -> Result<Cohort> {
        self.0.cohort(round, loss.label(), Some(model))
    }

    /// Sends `down` to each client of the exchange ([`Server::cohort`]) and collects their answers,
    /// by the spec's fault policy. They come with the weights that the aggregator of the exchange
    /// needs.
    ///
    /// # Errors
    /// When no answer can be used, or the policy says that the run fails.
    pub fn collect<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<Inbox<U>> {
        let cohort = self.cohort(round, exchange)?;
        self.collect_from(round, exchange, &cohort, down)
    }

    /// As [`Server::collect`], from these clients.
    ///
    /// # Errors
    /// Those of [`Server::collect`].
    pub fn collect_from<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<Inbox<U>> {
        self.collect_each(round, exchange, to, down, |_, answer| Ok(answer))
    }

    /// As [`Server::collect_from`]; `make` makes something else of each answer as it comes, so that
    /// the answers themselves are not kept.
    ///
    /// # Errors
    /// Those of [`Server::collect`] and of `make`.
    pub fn collect_each<'d, D: Message, U: Message, V: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
        mut make: impl FnMut(ClientId, U) -> Result<V>,
    ) -> Result<Inbox<V>> {
        let mut all = Vec::with_capacity(to.len());
        let down = |id| -> &'d (dyn AnyMessage + 'static) { down(id) };
        self.0
            .collect(round, exchange.label(), to, &down, &mut |mail| {
                let from = mail.from;
                let made = mail.try_map(|body| make(from, body.take()?));
                all.push(made.with_context(|| format!("client {from}"))?);
                Ok(())
            })?;
        Inbox::new(all).with_context(|| exchange.label())
    }

    /// Runs the exchange as it is declared: sends `down` to each of its clients
    /// ([`Server::cohort`]), lets the declared aggregator combine the answers, one at a time if it
    /// can, and releases the result through the declared mechanism of the server.
    ///
    /// # Errors
    /// Those of [`Server::collect`], of the aggregator, and of [`Server::release`].
    pub fn run<'d, D: Message, U: Message, O: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<O> {
        let cohort = self.cohort(round, exchange)?;
        self.run_from(round, exchange, &cohort, down)
    }

    /// As [`Server::run`], with these clients.
    ///
    /// # Errors
    /// Those of [`Server::run`].
    pub fn run_from<'d, D: Message, U: Message, O: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        cohort: &Cohort,
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<O> {
        let down = |id| -> &'d (dyn AnyMessage + 'static) { down(id) };
        let label = exchange.label();
        self.0.run(round, label, cohort, &down, None)?.take()
    }

    /// As [`Server::run`]; the aggregator combines what `form` makes of each answer. `form` sees
    /// them in client order, with the weights that the aggregator needs.
    ///
    /// # Errors
    /// Those of [`Server::run`] and of `form`.
    pub fn run_with<'d, D: Message, U: Message, V: Message, O: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        down: impl Fn(ClientId) -> &'d D + Sync,
        mut form: impl FnMut(ClientMessage<U>) -> Result<ClientMessage<V>>,
    ) -> Result<O> {
        let cohort = self.cohort(round, exchange)?;
        let down = |id| -> &'d (dyn AnyMessage + 'static) { down(id) };
        let label = exchange.label();
        let mut form = |mail: ClientMessage<_>| {
            let formed = form(mail.try_map(|body: Erased| body.take::<U>())?)?;
            formed.try_map(|body| Ok(Box::new(body) as Erased))
        };
        let formed = self.0.run(round, label, &cohort, &down, Some(&mut form))?;
        formed.take()
    }

    /// Lets an aggregator combine these messages: that of an exchange
    /// ([`Declared::into`](crate::Declared::into)), or that in a slot. One that needs the message
    /// sent to the clients ([`crate::RequiredInputs::sent`]) must be given a round that shows it
    /// ([`Round::showing`]).
    ///
    /// # Errors
    /// Those of the aggregator; if the exchange declares none.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        by: &impl Combiner<I, O>,
        round: &Round,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let slot = by.slot(self.0)?;
        self.0.aggregate(slot, round, inbox)?.take()
    }

    /// As [`Server::aggregate`], for one of several lines of models, such as the centres of
    /// clusters: what the aggregator keeps from round to round of one, it uses for no other.
    ///
    /// # Errors
    /// Those of [`Server::aggregate`].
    pub fn aggregate_line<I: Message, O: Message>(
        &mut self,
        by: &impl Combiner<I, O>,
        line: usize,
        round: &Round,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let slot = format!("{}{LINE}{line}", by.slot(self.0)?);
        self.0.aggregate(&slot, round, inbox)?.take()
    }

    /// As [`Server::aggregate`], with weights of the protocol's own: `weight` gives one for each
    /// message, finite and not below 0. Any aggregator of these messages combines them by those
    /// weights, unless it looks at no weights.
    ///
    /// ```
    /// use fl_core::prelude::*;
    /// const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");
    ///
    /// /// The clients' parameters, those with a large norm counting less.
    /// fn combine(server: &mut Server<'_>, round: &Round, sent: &Inbox<Params>) -> Result<Params> {
    ///     server.aggregate_with(&TRAIN, round, sent, |mail| 1.0 / (1.0 + mail.body.norm()))
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`Server::aggregate`]; when a weight is negative or no number, or every weight is
    /// 0.
    pub fn aggregate_with<I: Message, O: Message>(
        &mut self,
        by: &impl Combiner<I, O>,
        round: &Round,
        inbox: &Inbox<I>,
        weight: impl Fn(&ClientMessage<I>) -> f64,
    ) -> Result<O> {
        let weighted = inbox.weighted_by(weight);
        let slot = by.slot(self.0)?;
        let weighted = weighted.with_context(|| format!("weights for parts.{slot}"))?;
        self.0.aggregate(slot, round, &weighted)?.take()
    }
}

// releases
impl Server<'_> {
    /// Releases `m`, made from the answers of `cohort` to an exchange, through the mechanism that
    /// the exchange declares
    /// ([`Declared::releases_at_server`](crate::Declared::releases_at_server)), if its slot is
    /// filled: clip, price, afford, perturb, charge. A budget that pays for the first few queries
    /// of `m` only leaves those.
    ///
    /// # Errors
    /// [`crate::Problem::Budget`] before anything is spent; [`crate::Problem::Unpriced`] when the
    /// accountant has no price for it, or its price counts on a draw of clients that did not
    /// happen.
    pub fn release<D: Message, U: Message, M: Message>(
        &mut self,
        exchange: &Exchange<D, U>,
        round: &Round,
        m: &mut M,
        cohort: &Cohort,
    ) -> Result<()> {
        self.0.release(exchange.label(), round, m, cohort, true)
    }

    /// A summand of [`Server::release_sum`]: `m`, within the bound of the mechanism in `slot`. Its
    /// client has clipped it as well ([`crate::Client::clip`]), which then changes nothing, but who
    /// sends more than he should must not drown the noise that hides him.
    ///
    /// # Errors
    /// When it cannot be clipped.
    pub fn clipped<M: Message>(&mut self, slot: &MechanismSlot<M>, mut m: M) -> Result<M> {
        self.0.clip(slot, &mut m)?;
        Ok(m)
    }

    /// As [`Server::release`], of a sum of what [`Server::clipped`] has let through: the sum itself
    /// has no bound.
    ///
    /// # Errors
    /// As [`Server::release`].
    pub fn release_sum<D: Message, U: Message, M: Message>(
        &mut self,
        exchange: &Exchange<D, U>,
        round: &Round,
        sum: &mut M,
        cohort: &Cohort,
    ) -> Result<()> {
        self.0.release(exchange.label(), round, sum, cohort, false)
    }

    /// Would the budget pay for any of a release like `m`, of the data of `cohort`, through the
    /// mechanism in `slot`? To be asked before the clients are, so that they send nothing that is
    /// then refused.
    ///
    /// # Errors
    /// As [`Server::release`].
    pub fn affords<M: Message>(
        &mut self,
        slot: &MechanismSlot<M>,
        m: M,
        cohort: &Cohort,
    ) -> Result<()> {
        self.0.affords(slot, &m, cohort)
    }

    /// Does the mechanism in `slot` require all clients to share a range
    /// ([`crate::PrivacyMechanism::range`])?
    ///
    /// # Errors
    /// If the part cannot be made.
    pub fn wants_range<M: Message>(&self, slot: &MechanismSlot<M>) -> Result<bool> {
        self.0.wants_range(slot, MessageType::of::<M>())
    }
}

// steps
impl Server<'_> {
    /// Does something once. A resumed run that has done it before skips it and takes `state` from
    /// the checkpoint.
    ///
    /// # Errors
    /// Those of `body`, and of the checkpoint.
    pub fn once<S: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        state: &mut S,
        body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        self.step(name, 0, 0, state, body)
    }

    /// Does something in each of the declared rounds
    /// ([`Declaration::rounds`](crate::Declaration::rounds)). A resumed run skips the rounds that
    /// it has done before. A round that the budget does not pay for is not done, nor is any after
    /// it: state and server's parts are those of the last round that was paid for, and if that was
    /// not evaluated, it is now.
    ///
    /// # Errors
    /// Those of `body`, and of the checkpoints; [`crate::Problem::Budget`] when not even the first
    /// round is paid for; if no number of rounds is declared.
    pub fn rounds<S: Serialize + DeserializeOwned>(
        &mut self,
        state: &mut S,
        mut body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        let n = self.0.declared_rounds();
        let n =
            n.context("the protocol declares no number of rounds: call `Declaration::rounds`")?;
        for number in 1..=n {
            self.step(&format!("round {number}"), number, n, state, &mut body)?;
        }
        Ok(())
    }

    fn step<S: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        number: usize,
        of: usize,
        state: &mut S,
        mut body: impl FnMut(&mut Self, &mut S, &Round) -> Result<()>,
    ) -> Result<()> {
        let (mut round, mut undoable) = match self.0.begin_step(name, number, of)? {
            StepStart::Skipped => return Ok(()),
            StepStart::Restored(kept) => {
                *state = postcard::from_bytes(&kept).context(
                    "the saved state of the protocol cannot be read back; a state must read \
                     what it has written, and only the protocol that wrote it can go on",
                )?;
                return Ok(());
            }
            StepStart::Attempt { round, undoable } => (round, undoable),
        };
        loop {
            let before = undoable.then(|| postcard::to_stdvec(state)).transpose()?;
            let outcome = body(self, state, &round);
            let verdict = self.0.judge_step(outcome)?;
            if let (Some(before), false) = (before, matches!(verdict, StepVerdict::Done)) {
                *state = postcard::from_bytes(&before)?;
            }
            match verdict {
                StepVerdict::Done | StepVerdict::Undone => break,
                StepVerdict::Again {
                    round: next,
                    undoable: may,
                } => (round, undoable) = (next, may),
            }
        }
        let state = &*state;
        self.0.finish_step(&|| Ok(postcard::to_stdvec(state)?))
    }
}

// measurements, kept models and notes
impl Server<'_> {
    /// Records how good the server's model in `slot` is on the test examples, if this round is to
    /// be evaluated.
    ///
    /// # Errors
    /// When it cannot predict them.
    pub fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()> {
        self.0.evaluate(round, slot)
    }

    /// Records how good the clients' own models in `slot` are on the test examples, if this round
    /// is to be evaluated.
    ///
    /// # Errors
    /// When one of them cannot predict them.
    pub fn evaluate_clients(&mut self, round: &Round, slot: &str) -> Result<()> {
        self.0.evaluate_clients(round, slot, None, None)
    }

    /// As [`Server::evaluate_clients`], of the models of `clients` only, such as those that have
    /// trained theirs.
    ///
    /// # Errors
    /// As [`Server::evaluate_clients`].
    pub fn evaluate_clients_of(
        &mut self,
        round: &Round,
        slot: &str,
        clients: &[ClientId],
    ) -> Result<()> {
        self.0.evaluate_clients(round, slot, None, Some(clients))
    }

    /// As [`Server::evaluate_clients`], of models that have the server's parameters in place of
    /// theirs where these are `shared`; `head.weight` and `head.bias` are those of the last layer:
    /// the one called `head`, or the last of those with numbers.
    ///
    /// # Errors
    /// As [`Server::evaluate_clients`], or if a client's model lacks one of the parameters.
    pub fn evaluate_clients_with(
        &mut self,
        round: &Round,
        slot: &str,
        shared: &Params,
    ) -> Result<()> {
        self.0.evaluate_clients(round, slot, Some(shared), None)
    }

    /// Records how good models of the server's are for the clients, each on the test examples of
    /// those that `of` gives it to, if this round is to be evaluated, and gives the scores in
    /// client order; none if it is not, and NaN for a client that failed to measure its own. They
    /// take the place of the model in `slot` one after the other.
    ///
    /// # Errors
    /// When one of them does not fit the slot's, or cannot predict.
    pub fn evaluate_for_clients(
        &mut self,
        round: &Round,
        slot: &str,
        models: &[Params],
        of: impl Fn(ClientId) -> usize,
    ) -> Result<Vec<f64>> {
        let whose: Vec<usize> = self.everyone().iter().map(|id| of(*id)).collect();
        self.0.evaluate_for_clients(round, slot, models, &whose)
    }

    /// Records a number that each client has, in client order ([`Server::everyone`]), if this
    /// round is to be evaluated: its mean and its deviation.
    ///
    /// # Errors
    /// When there are more or fewer numbers than clients, or it cannot be written.
    pub fn record_each(&mut self, round: &Round, name: &str, each: Vec<f64>) -> Result<()> {
        self.0.record_each(round, name, each)
    }

    /// Records a number that the protocol has counted or measured, if this round is to be
    /// evaluated.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record(&mut self, round: &Round, name: &str, value: f64) -> Result<()> {
        self.0.record(round, name, value)
    }

    /// Keeps the server's model in `slot` as a result of the run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_model(&mut self, slot: &str) -> Result<()> {
        self.0.keep_model(slot, slot)
    }

    /// As [`Server::keep_model`], under another name than the slot's.
    ///
    /// # Errors
    /// As [`Server::keep_model`].
    pub fn keep_model_as(&mut self, slot: &str, name: &str) -> Result<()> {
        self.0.keep_model(slot, name)
    }

    /// Keeps the generator in `slot`, with its optimiser, as a result of the run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_generator(&mut self, slot: &str) -> Result<()> {
        self.0.keep_generator(slot)
    }

    /// Keeps images (`[channels, height, width]`, 1 or 3 channels) as a picture for people to look
    /// at, side by side, the least number of all black and the largest white. Inputs that
    /// are no images are left out. The digest does not depend on it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()> {
        self.0.keep_images(name, images)
    }

    /// Keeps the clients' own models in `slot` as results of the run.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn keep_clients(&mut self, slot: &str) -> Result<()> {
        self.0.keep_clients(slot, None)
    }

    /// As [`Server::keep_clients`], of the models of `clients` only.
    ///
    /// # Errors
    /// As [`Server::keep_clients`].
    pub fn keep_clients_of(&mut self, slot: &str, clients: &[ClientId]) -> Result<()> {
        self.0.keep_clients(slot, Some(clients))
    }

    /// Says something that the user should know.
    pub fn warn(&mut self, text: &str) {
        self.0.warn(text);
    }
}
