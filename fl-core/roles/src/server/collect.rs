//! Sends requests to clients; validates, combines and releases their answers.

use crate::exchange::shape_check::ExpectedShape;
use crate::message::{self, Erased, Message, MessageType, Params};
use crate::server::calls::{Down, Exchanges, Form, ModelReader, Releases, Sink};
use crate::server::collector::Collector;
use crate::server::receipts::{ServerStep, StepLog, shown};
use crate::server::{LINE, RunState};
use crate::store::Store;
use crate::{
    AnyAggregator, AnyInbox, ClientId, ClientMessage, Cohort, ExchangeSpec, Payload, Problem,
    Receipt, Request, RequiredInputs, Result, Role, Round, SlotSpec, Trainer, parametric,
};
use anyhow::{Context, anyhow, bail, ensure};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the initial parameters of the server's model in `slot`, whose shapes those of clients
/// must have.
fn server_params(store: &Store, slot: &str) -> Option<Params> {
    let made = |slot| -> Result<Params> {
        let mut model: Box<dyn Trainer> = store.make(slot, 0)?;
        Ok(parametric(model.as_mut(), slot)?.params())
    };
    store.has(slot).then(|| made(slot).ok()).flatten()
}

impl RunState<'_> {
    /// What the aggregator of the exchange needs to know of the senders.
    pub(crate) fn needs(&mut self, exchange: &ExchangeSpec) -> Result<RequiredInputs> {
        let Some(slot) = exchange.aggregator else {
            return Ok(RequiredInputs::default());
        };
        let aggregator = self.store.get::<Box<dyn AnyAggregator>>(slot)?;
        Ok(aggregator.needs())
    }

    /// Warns once if a client is asked more often than the exchange declares: then the plan is too
    /// low. Ledger and budget count what happens.
    fn count_requests(&mut self, exchange: &ExchangeSpec, to: &[ClientId]) {
        let attempts = 1 + self.faults.if_too_few.repeats();
        let most = exchange.times.saturating_mul(attempts);
        let asked = self.asked.entry(exchange.label).or_default();
        let mut above = false;
        for id in to {
            let times = asked.entry(*id).or_default();
            *times += 1;
            above |= *times == most.saturating_add(1);
        }
        let told = format!("`{}`, above what is declared", exchange.label);
        if above {
            let text = format!(
                "the protocol declares `{}` {} times and asks a client again: `fl plan` counts fewer bytes, and fewer releases, than happen",
                exchange.label, exchange.times
            );
            self.warn_first(told, &text);
        }
    }

    /// Returns the round as an aggregator sees it: with its own log, and if it combines parameters,
    /// with the buffers of the run's models.
    fn for_aggregator(&self, round: &Round, input: &MessageType) -> Round {
        let round = round.with_stream(round.stream.clone());
        if input.kind != Params::KIND {
            return round;
        }
        let of = |slot: &SlotSpec| -> Option<BTreeSet<String>> {
            let mut model = self.store.make::<Box<dyn Trainer>>(slot.name, 0).ok()?;
            Some(model.parametric()?.buffers())
        };
        let all = || {
            let slots = self.store.parts().slots().iter();
            let models = slots.filter(|slot| slot.role == Role::Trainer);
            let models = models.filter(|slot| self.store.has(slot.name));
            Arc::new(models.filter_map(of).flatten().collect())
        };
        round.with_buffers(self.buffers.get_or_init(all).clone())
    }

    /// All answers of these clients.
    pub(crate) fn inbox(
        &mut self,
        round: &Round,
        exchange: &ExchangeSpec,
        to: &[ClientId],
        down: Down<'_, '_>,
        needs: RequiredInputs,
    ) -> Result<Box<dyn AnyInbox>> {
        let mut mail = Vec::with_capacity(to.len());
        self.ask(round, exchange, to, down, needs, &mut |m, _| {
            mail.push(m);
            Ok(())
        })?;
        let inbox = exchange.answer.inbox(mail);
        inbox.with_context(|| exchange.label)
    }

    /// See [`crate::Server::reader`].
    pub(crate) fn model_reader(&self, slot: &str) -> ModelReader {
        let slot = self.store.slot(slot).into_owned();
        let (parts, context) = (self.store.parts().clone(), self.store.context(&slot, 0));
        Box::new(move |client, bytes| {
            let mut model: Box<dyn Trainer> =
                parts.build(Role::Trainer, &slot, Some(client), &context)?;
            model
                .load(bytes)
                .with_context(|| format!("parts.{slot}: what client {client} sent"))?;
            Ok(model)
        })
    }

    fn combine(
        &mut self,
        (aggregator, log): (&mut Box<dyn AnyAggregator>, &mut StepLog<'_>),
        round: &Round,
        exchange: &ExchangeSpec,
        to: &[ClientId],
        down: Down<'_, '_>,
        form: Option<Form<'_, ClientMessage<Erased>>>,
    ) -> Result<(Round, Erased)> {
        let needs = aggregator.needs();
        let mut round = self.for_aggregator(round, aggregator.input());
        if let (true, None, [first, others @ ..]) = (needs.sent, round.sent_any(), to) {
            let sent = down(*first);
            ensure!(
                others.iter().all(|id| std::ptr::addr_eq(down(*id), sent)),
                Problem::Lacks("the aggregator needs the message sent to clients, but this round sent a different message to each client".into())
            );
            round = round.showing_any(Arc::from(sent.copy()));
        }
        let slot = exchange.aggregator.unwrap_or("");
        let context = log.keeps();
        let context = context.then(|| self.context_of(slot, &round, &**aggregator, true));
        log.begin(context)?;
        let formed = form.is_some();
        let (mut as_it_is, mut answers) = (Ok, 0);
        let form = form.unwrap_or(&mut as_it_is);
        let mut take = |m: ClientMessage<Erased>, digest| -> Result<ClientMessage<Erased>> {
            let m = form(m)?;
            log.input(&shown(&m), Some(digest), formed)?;
            answers += 1;
            Ok(m)
        };
        let out = match aggregator.fold(&round) {
            Some(mut fold) => {
                self.ask(&round, exchange, to, down, needs, &mut |m, digest| {
                    fold.add(take(m, digest)?)
                })?;
                let folded = fold.finish().with_context(|| exchange.label)?;
                aggregator.update(&round, folded)?
            }
            None => {
                let mut mail = Vec::with_capacity(to.len());
                self.ask(&round, exchange, to, down, needs, &mut |m, digest| {
                    mail.push(take(m, digest)?);
                    Ok(())
                })?;
                let inbox = aggregator.input().inbox(mail);
                let inbox = inbox.with_context(|| exchange.label)?;
                aggregator.aggregate(&round, &*inbox)?
            }
        };
        self.warn_of_few(slot, &round, (aggregator.robustness(), answers));
        Ok((round, out))
    }

    /// Combines these messages, with a receipt.
    fn aggregate_inbox(
        &mut self,
        (slot, line): (&str, Option<&str>),
        round: &Round,
        inbox: &dyn AnyInbox,
        log: &mut StepLog<'_>,
    ) -> Result<Erased> {
        let mut aggregator = self.store.take::<Box<dyn AnyAggregator>>(slot)?;
        let context = log.keeps();
        let context = context.then(|| {
            let mut context = self.context_of(slot, round, &*aggregator, false);
            context
                .slot
                .extend(line.map(|line| format!("{LINE}{line}")));
            context
        });
        let recorded = log.begin(context).and_then(|()| {
            inbox.iter().try_for_each(|mail| {
                let mail = ClientMessage {
                    from: mail.from,
                    weight: mail.weight,
                    class_counts: mail.class_counts.map(<[u32]>::to_vec),
                    training_loss: mail.training_loss,
                    body: mail.body,
                };
                log.input(&mail, None, false)
            })
        });
        let out = recorded.and_then(|()| aggregator.aggregate(round, inbox));
        let robust = aggregator.robustness();
        self.store.put(slot, aggregator);
        self.warn_of_few(slot, round, (robust, inbox.iter().count()));
        let out = self.check_output(slot, round, out?)?;
        let output = log.digest(&*out);
        log.end(|| Receipt {
            output,
            ..self.receipt(round, ServerStep::Aggregation, slot)
        })?;
        Ok(out)
    }

    /// Checks the result of the aggregator in `slot`, and forwards its log events.
    fn check_output(&mut self, slot: &str, round: &Round, out: Erased) -> Result<Erased> {
        self.forward_log(slot, round)?;
        message::check(&*out)
            .with_context(|| format!("parts.{slot}: the result of the messages"))?;
        Ok(out)
    }

    /// Sends the requests and calls `each` with every accepted answer. Counts and hashes the
    /// messages, accepts or drops the answers, charges the privacy costs, and writes the journal.
    pub(crate) fn ask(
        &mut self,
        round: &Round,
        exchange: &ExchangeSpec,
        to: &[ClientId],
        down: Down<'_, '_>,
        needs: RequiredInputs,
        sink: Sink<'_>,
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
        self.count_requests(exchange, to);
        let faults = self.faults.clone();
        let mut collector = Collector::new(
            round,
            exchange,
            to.len(),
            needs,
            faults.clone(),
            self.ledger.accounts(),
        );
        for id in to {
            collector.send(down(*id), &mut self.step.asked_about);
        }
        // two requests with one label in one step must not share their randomness
        let times = self.step.again(format!("question {label}"));
        let question = |id: ClientId| {
            let stream = round.stream.child("client", u64::from(id));
            let stream = stream.child(label, times);
            Request::new(label, round.number, Payload::Here(down(id)), stream, needs)
        };
        let draws = self.faults_stream();
        let (_, number) = self.in_run("", round.number);
        let (at, repeated) = ((round.name.as_str(), number), self.step.repeated);
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
                    && collector.drop_or_fail(id, (anyhow!(silence), false), attempt)?
                {
                    again.push(id);
                }
            }
            host.ask(&here, &question, &mut |id, answer| {
                let sent = down(id);
                if refused.is_some() {
                    collector.unpaid(id, sent, answer);
                    return Ok(());
                }
                let mail = answer.map_err(|error| (error, false)).and_then(|a| {
                    let mail = collector.admit(id, sent, a, fate(id), &mut wanted);
                    mail.map_err(|error| (error, true))
                });
                match mail {
                    Ok((mail, digest)) => return sink(mail, digest),
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

impl Exchanges for RunState<'_> {
    fn collect(
        &mut self,
        round: &Round,
        label: &str,
        to: &[ClientId],
        down: Down<'_, '_>,
        each: Form<'_, ()>,
    ) -> Result<()> {
        let spec = self.ledger.exposure.exchange(label)?.clone();
        let needs = self.needs(&spec)?;
        self.with_log(|run, log| {
            log.begin(None)?;
            run.ask(round, &spec, to, down, needs, &mut |m, digest| {
                log.input(&shown(&m), Some(digest), false)?;
                each(m)
            })?;
            log.end(|| Receipt {
                exchange: Some(spec.label.into()),
                ..run.receipt(round, ServerStep::Collection, "")
            })
        })
    }

    fn run(
        &mut self,
        round: &Round,
        label: &str,
        cohort: &Cohort,
        down: Down<'_, '_>,
        form: Option<Form<'_, ClientMessage<Erased>>>,
    ) -> Result<Erased> {
        let spec = self.ledger.exposure.exchange(label)?.clone();
        let slot = spec.aggregated_in()?;
        // taken out during the exchange, so that it can take one answer after the other
        let mut aggregator = self.store.take::<Box<dyn AnyAggregator>>(slot)?;
        let mut out = self.with_log(|run, log| {
            let with = (&mut aggregator, &mut *log);
            let combined = run.combine(with, round, &spec, cohort, down, form);
            run.store.put(slot, aggregator);
            let (seen, out) = combined?;
            let out = run.check_output(slot, &seen, out)?;
            let output = log.digest(&*out);
            log.end(|| Receipt {
                exchange: Some(spec.label.into()),
                output,
                ..run.receipt(&seen, ServerStep::Aggregation, slot)
            })?;
            Ok(out)
        })?;
        if !spec.flow.at_server.is_empty() && spec.flow.released_with.is_none() {
            self.release(label, round, &mut *out, cohort, true)?;
        }
        Ok(out)
    }

    fn aggregate(&mut self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let Some((whole, line)) = slot.split_once(LINE) else {
            return self.aggregate_in(slot, None, round, inbox);
        };
        let kept = format!("{}{LINE}{line}", self.store.slot(whole));
        self.store.exchange(whole, &kept);
        let combined = self.aggregate_in(whole, Some(line), round, inbox);
        self.store.exchange(whole, &kept);
        combined
    }
}

impl RunState<'_> {
    /// Combines these messages by the part that is in `slot` now, which is that of `line`.
    fn aggregate_in(
        &mut self,
        slot: &str,
        line: Option<&str>,
        round: &Round,
        inbox: &dyn AnyInbox,
    ) -> Result<Erased> {
        let slot = &*self.store.slot(slot);
        let aggregator = self.store.get::<Box<dyn AnyAggregator>>(slot)?;
        let (needs, input) = (aggregator.needs(), aggregator.input());
        let round = self.for_aggregator(round, input);
        ensure!(
            !needs.sent || round.sent_any().is_some(),
            Problem::Lacks(format!(
                "parts.{slot} needs the message sent to clients, and this protocol does not show it"
            ))
        );
        self.with_log(|run, log| run.aggregate_inbox((slot, line), &round, inbox, log))
    }
}
