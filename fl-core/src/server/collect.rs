//! Sends requests to clients; validates, combines and releases their answers.

use crate::exchange::shape_check::ExpectedShape;
use crate::message::{self, Message, Params};
use crate::server::Server;
use crate::server::collector::Collector;
use crate::store::Store;
use crate::{
    AggregatorSlot, BoxedAggregator, ClientId, ClientMessage, Cohort, Exchange, ExchangeSpec,
    Inbox, Payload, Problem, Request, RequiredInputs, Result, Role, Round, Trainer, TrainerSlot,
    parametric,
};
use anyhow::{Context, anyhow, bail, ensure};

/// Returns the initial parameters of the server's model in `slot`, whose shapes those of clients
/// must have.
fn server_params(store: &Store, slot: &str) -> Option<Params> {
    let made = |slot| -> Result<Params> {
        let mut model: Box<dyn Trainer> = store.make(slot, 0)?;
        Ok(parametric(model.as_mut(), slot)?.params())
    };
    store.has(slot).then(|| made(slot).ok()).flatten()
}

impl Server<'_> {
    /// Sends `down` to each of these clients and collects their answers, by the spec's fault
    /// policy. They come with the weights that the aggregator of the exchange needs.
    ///
    /// # Errors
    /// If no answer is usable, or the policy is to fail.
    pub fn collect<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<Inbox<U>> {
        self.collect_each(round, exchange, to, down, |_, answer| Ok(answer))
    }

    /// As [`Server::collect`]; `make` converts each answer as it arrives, so that the answers
    /// themselves are not kept.
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
        let spec = self.ledger.exposure.exchange(exchange.label())?.clone();
        let needs = spec
            .aggregator
            .map(|used| (used.needs)(&mut self.store, used.slot));
        let needs = needs.transpose()?.unwrap_or_default();
        self.collect_with(round, &spec, to, &down, needs, |mail: ClientMessage<U>| {
            let from = mail.from;
            mail.try_map(|body| make(from, body))
                .with_context(|| format!("client {from}"))
        })
    }

    pub(crate) fn collect_with<'d, D: Message, U: Message, V: Message>(
        &mut self,
        round: &Round,
        exchange: &ExchangeSpec,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        needs: RequiredInputs,
        mut form: impl FnMut(ClientMessage<U>) -> Result<ClientMessage<V>>,
    ) -> Result<Inbox<V>> {
        let mut mail = Vec::with_capacity(to.len());
        self.exchange(round, exchange, to, down, needs, &mut |m| {
            mail.push(form(m)?);
            Ok(())
        })?;
        Inbox::new(mail).with_context(|| exchange.label)
    }

    /// Returns a reader of models that clients trained in `slot` and sent.
    pub fn reader(
        &self,
        slot: &TrainerSlot,
    ) -> impl Fn(ClientId, &[u8]) -> Result<Box<dyn Trainer>> + use<> {
        let slot = slot.name();
        let (parts, context) = (self.store.parts().clone(), self.store.context(slot, 0));
        move |client, bytes| {
            let mut model: Box<dyn Trainer> =
                parts.build(Role::Trainer, slot, Some(client), &context)?;
            model
                .load(bytes)
                .with_context(|| format!("parts.{slot}: what client {client} sent"))?;
            Ok(model)
        }
    }

    /// Runs the exchange as declared. Sends `down` to each client of the cohort, and lets the
    /// declared aggregator combine the answers, one at a time if it can. Then releases the result
    /// through the server's declared mechanism.
    ///
    /// # Errors
    /// Those of [`Server::collect`], of the aggregator, and of [`Server::release`].
    pub fn run<'d, D: Message, U: Message, O: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        cohort: &Cohort,
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<O> {
        self.run_with(round, exchange, cohort, down, |mail: ClientMessage<U>| {
            Ok(mail)
        })
    }

    /// As [`Server::run`]; `form` converts each answer before the aggregator gets it. `form` sees
    /// the answers in client order, with the weights that the aggregator needs.
    ///
    /// # Errors
    /// Those of [`Server::run`] and of `form`.
    pub fn run_with<'d, D: Message, U: Message, V: Message, O: Message>(
        &mut self,
        round: &Round,
        exchange: &Exchange<D, U>,
        cohort: &Cohort,
        down: impl Fn(ClientId) -> &'d D + Sync,
        form: impl FnMut(ClientMessage<U>) -> Result<ClientMessage<V>>,
    ) -> Result<O> {
        let spec = self.ledger.exposure.exchange(exchange.label())?.clone();
        let slot = spec.aggregator.map(|used| used.slot);
        let slot =
            slot.with_context(|| format!("exchange `{}` declares no aggregator", spec.label))?;
        // taken out during the exchange, so that it can take one answer after the other
        let mut aggregator = self.store.take::<BoxedAggregator<V, O>>(slot)?;
        let combined = self.combine(&mut aggregator, round, &spec, cohort, &down, form);
        self.store.put(slot, aggregator);
        let (seen, out) = combined?;
        let mut out = self.check_output(slot, &seen, out)?;
        for slot in &spec.flow.at_server {
            self.release_as(slot, round, &mut out, cohort, true)?;
        }
        Ok(out)
    }

    fn combine<'d, D: Message, U: Message, V: Message, O: Message>(
        &mut self,
        aggregator: &mut BoxedAggregator<V, O>,
        round: &Round,
        exchange: &ExchangeSpec,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        mut form: impl FnMut(ClientMessage<U>) -> Result<ClientMessage<V>>,
    ) -> Result<(Round, O)> {
        let needs = aggregator.needs();
        let mut round = round.with_stream(round.stream.clone());
        if let (true, None, [first, others @ ..]) = (needs.sent, round.sent_any(), to) {
            let sent = down(*first);
            ensure!(
                others.iter().all(|id| std::ptr::eq(down(*id), sent)),
                Problem::Lacks("the aggregator needs the message sent to clients, but this round sent a different message to each client".into())
            );
            round = round.showing(sent.clone());
        }
        let out = match aggregator.fold(&round) {
            Some(mut fold) => {
                self.exchange(&round, exchange, to, down, needs, &mut |m| {
                    fold.add(form(m)?)
                })?;
                let folded = fold.finish().with_context(|| exchange.label)?;
                aggregator.update(&round, folded)?
            }
            None => {
                let inbox = self.collect_with(&round, exchange, to, down, needs, form)?;
                aggregator.aggregate(&round, &inbox)?
            }
        };
        Ok((round, out))
    }

    /// Lets the aggregator in `slot` combine these messages. One that needs the message sent to the
    /// clients ([`RequiredInputs::sent`]) must be given a round that shows it ([`Round::showing`]).
    ///
    /// # Errors
    /// Those of the aggregator.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        slot: &AggregatorSlot<I, O>,
        round: &Round,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let round = round.with_stream(round.stream.clone());
        let slot = slot.name();
        let aggregator = self.store.get::<BoxedAggregator<I, O>>(slot)?;
        ensure!(
            !aggregator.needs().sent || round.sent_any().is_some(),
            Problem::Lacks(format!(
                "parts.{slot} needs the message sent to clients, and this protocol does not show it"
            ))
        );
        let out = aggregator.aggregate(&round, inbox)?;
        self.check_output(slot, &round, out)
    }

    /// As [`Server::aggregate`], with the protocol's own weights: `weight` returns one for each
    /// message, finite and at least 0. Any aggregator of these messages uses them, unless it
    /// ignores weights.
    ///
    /// ```
    /// use fl_core::prelude::*;
    /// const MEAN: AggregatorSlot<Params, Params> = AggregatorSlot::new("aggregator", "Combines.");
    ///
    /// /// The clients' parameters, those with a large norm counting less.
    /// fn combine(server: &mut Server<'_>, round: &Round, sent: &Inbox<Params>) -> Result<Params> {
    ///     server.aggregate_with(&MEAN, round, sent, |mail| 1.0 / (1.0 + mail.body.norm()))
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`Server::aggregate`], or if a weight is negative or NaN, or every weight is 0.
    pub fn aggregate_with<I: Message, O: Message>(
        &mut self,
        slot: &AggregatorSlot<I, O>,
        round: &Round,
        inbox: &Inbox<I>,
        weight: impl Fn(&ClientMessage<I>) -> f64,
    ) -> Result<O> {
        let weighted = inbox.weighted_by(weight);
        let weighted = weighted.with_context(|| format!("weights for parts.{}", slot.name()))?;
        self.aggregate(slot, round, &weighted)
    }

    /// Checks the result of the aggregator in `slot`, and forwards its log events.
    fn check_output<O: Message>(&mut self, slot: &str, round: &Round, out: O) -> Result<O> {
        self.forward_log(slot, round)?;
        message::check(&out)
            .with_context(|| format!("parts.{slot}: the result of the messages"))?;
        Ok(out)
    }

    /// Sends the requests and calls `each` with every accepted answer. Counts and hashes the
    /// messages, accepts or drops the answers, charges the privacy costs, and writes the journal.
    fn exchange<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        exchange: &ExchangeSpec,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        needs: RequiredInputs,
        sink: &mut dyn FnMut(ClientMessage<U>) -> Result<()>,
    ) -> Result<()> {
        let label = exchange.label;
        let needs = RequiredInputs {
            class_counts: needs.class_counts || exchange.class_counts,
            ..needs
        };
        if needs.training_loss && !exchange.trains {
            bail!(Problem::Lacks(exchange.no_training()));
        }
        let releases = |slot: &str| self.store.parts().releases(slot);
        self.ledger.expose_answers(exchange, needs, &releases)?;
        let faults = self.faults.clone();
        let mut collector = Collector::new(round, exchange, to.len(), needs, faults.clone());
        for id in to {
            collector.send(down(*id), &mut self.step.asked_about);
        }
        // two requests with one label in one step must not share their randomness
        let times = self.step.again(format!("question {label}"));
        let question = |id: ClientId| {
            let stream = round.stream.child("client", u64::from(id));
            let stream = stream.child(label, times);
            Request::new(label, Payload::Here(down(id)), stream, needs)
        };
        let draws = self.faults_stream();
        let (at, repeated) = ((round.name.as_str(), round.number), self.step.repeated);
        let slot = exchange.model;
        let (host, store) = (&mut *self.host, &self.store);
        let mut made = None;
        let mut model = || {
            let make = || server_params(store, slot);
            made.get_or_insert_with(make).clone()
        };
        let mut wanted = ExpectedShape {
            task: store.task().kind,
            model: &mut model,
            first: None,
        };
        let mut left = to.to_vec();
        // if a budget refuses one client, the others have still answered, and their releases still
        // count
        let mut refused = None;
        for attempt in 0.. {
            let mut again = Vec::new();
            let fate = |id: ClientId| faults.fate(&draws, at, id, (repeated, attempt));
            let (gone, here): (Vec<ClientId>, Vec<ClientId>) = left
                .iter()
                .partition(|id| fate(**id).is_some_and(|f| f.absent()));
            for id in gone {
                if let Some(silence) = fate(id).and_then(|f| f.silence())
                    && collector.drop_or_fail(id, anyhow!(silence), attempt)?
                {
                    again.push(id);
                }
            }
            host.ask(&here, &question, &mut |id, answer| {
                let sent = down(id);
                if refused.is_some() {
                    collector.unpaid::<D, U>(id, sent, answer);
                    return Ok(());
                }
                let mail = answer.and_then(|a| collector.admit(id, sent, a, fate(id), &mut wanted));
                match mail {
                    Ok(mail) => return sink(mail),
                    Err(error) => match collector.drop_or_fail(id, error, attempt) {
                        Ok(true) => again.push(id),
                        Ok(false) => {}
                        Err(error) => match error.downcast_ref() {
                            Some(Problem::Budget(_)) => refused = Some(error),
                            _ => return Err(error),
                        },
                    },
                }
                Ok(())
            })?;
            again.sort_unstable();
            left = again;
            if left.is_empty() || refused.is_some() {
                break;
            }
        }
        match refused {
            Some(error) => {
                collector.finish(self)?;
                Err(error)
            }
            None => collector.end(self, round),
        }
    }
}
