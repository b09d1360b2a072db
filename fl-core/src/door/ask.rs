//! Questions: what is sent is counted and hashed, what comes back is checked, dropped or believed.

use super::exchange::Exchange;
use super::federation::Federation;
use super::shapes::Wanted;
use super::store::Store;
use crate::message::{self, Message, Params};
use crate::{
    Ask, BoxedAggregator, ClientId, Inbox, Mail, Needs, Payload, Problem, Question, Result, Role,
    Round, Trainer, parametric,
};
use anyhow::{Context, anyhow, ensure};

/// The parameters that the server's model in `slot` begins with: what shape those of clients must have.
fn server_params(store: &Store, slot: &str) -> Option<Params> {
    let made = |slot| -> Result<Params> {
        let mut model: Box<dyn Trainer> = store.make(slot, 0)?;
        Ok(parametric(model.as_mut(), slot)?.params())
    };
    store.has(slot).then(|| made(slot).ok()).flatten()
}

impl Federation<'_> {
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
        self.ask_each(round, ask, to, down, |_, answer| Ok(answer))
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
        self.collect(round, ask, to, &down, Needs::default(), |mail| {
            let from = mail.from;
            mail.try_map(|body| make(from, body))
                .with_context(|| format!("client {from}"))
        })
    }

    /// Reads models that clients trained in `slot` and sent.
    pub fn reader(
        &self,
        slot: &'static str,
    ) -> impl Fn(ClientId, &[u8]) -> Result<Box<dyn Trainer>> + use<> {
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

    /// Lets the aggregator in `slot` combine these messages. One that wants to see what the clients were sent
    /// ([`Needs::sent`]) must be given a round that shows it ([`Round::showing`]).
    ///
    /// # Errors
    /// Those of the aggregator.
    pub fn aggregate<I: Message, O: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        inbox: &Inbox<I>,
    ) -> Result<O> {
        let round = round.with_stream(round.stream.clone());
        let aggregator = self.store.get::<BoxedAggregator<I, O>>(slot)?;
        ensure!(
            !aggregator.needs().sent || round.sent_any().is_some(),
            Problem::Lacks(format!(
                "parts.{slot} wants to see what the clients were sent, and this protocol does not show it"
            ))
        );
        let out = aggregator.aggregate(&round, inbox)?;
        self.made(slot, &round, out)
    }

    /// What the aggregator in `slot` made: it is checked, and what it said is passed on.
    fn made<O: Message>(&mut self, slot: &str, round: &Round, out: O) -> Result<O> {
        self.hear(slot, round)?;
        message::check(&out)
            .with_context(|| format!("parts.{slot}: what it made of the messages"))?;
        Ok(out)
    }

    /// Asks on behalf of the aggregator in `slot`, which does not see the answers yet: they come with the weights that it
    /// wants. [`Federation::aggregate`] combines them.
    ///
    /// # Errors
    /// Those of [`Federation::ask`], and when the slot's part is not an aggregator of these.
    pub fn ask_for<'d, D: Message, U: Message, O: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
    ) -> Result<Inbox<U>> {
        let needs = self.store.get::<BoxedAggregator<U, O>>(slot)?.needs();
        self.collect(round, ask, to, &down, needs, Ok)
    }

    pub(super) fn collect<'d, D: Message, U: Message, V: Message>(
        &mut self,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        needs: Needs,
        mut form: impl FnMut(Mail<U>) -> Result<Mail<V>>,
    ) -> Result<Inbox<V>> {
        let mut mail = Vec::with_capacity(to.len());
        self.exchange(round, ask, to, down, needs, &mut |m| {
            mail.push(form(m)?);
            Ok(())
        })?;
        Inbox::new(mail).with_context(|| ask.label())
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
        self.gather_as(slot, round, ask, to, down, |answer: U| Ok(answer))
    }

    /// As [`Federation::gather`], for an aggregator that wants answers in another form.
    ///
    /// # Errors
    /// As [`Federation::gather`].
    pub fn gather_as<'d, D: Message, U: Message, V: Message, O: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
        form: impl Fn(U) -> Result<V>,
    ) -> Result<O> {
        self.gather_mail(slot, round, ask, to, down, |mail| mail.try_map(&form))
    }

    /// As [`Federation::gather_as`], for a protocol that makes more of an answer than what its aggregator combines: `form`
    /// sees the mail as it comes, in client order, with the weight that the aggregator asks for.
    ///
    /// # Errors
    /// As [`Federation::gather`].
    pub fn gather_mail<'d, D: Message, U: Message, V: Message, O: Message>(
        &mut self,
        slot: &str,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: impl Fn(ClientId) -> &'d D + Sync,
        form: impl FnMut(Mail<U>) -> Result<Mail<V>>,
    ) -> Result<O> {
        // taken out for the time of the question, so that it can take in one answer after the other
        let mut aggregator = self.store.take::<BoxedAggregator<V, O>>(slot)?;
        let gathered = self.gather_into(&mut aggregator, round, ask, to, &down, form);
        self.store.put(slot, aggregator);
        let (round, out) = gathered?;
        self.made(slot, &round, out)
    }

    fn gather_into<'d, D: Message, U: Message, V: Message, O: Message>(
        &mut self,
        aggregator: &mut BoxedAggregator<V, O>,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        mut form: impl FnMut(Mail<U>) -> Result<Mail<V>>,
    ) -> Result<(Round, O)> {
        let needs = aggregator.needs();
        let mut round = round.with_stream(round.stream.clone());
        if let (true, None, [first, others @ ..]) = (needs.sent, round.sent_any(), to) {
            let sent = down(*first);
            ensure!(
                others.iter().all(|id| std::ptr::eq(down(*id), sent)),
                Problem::Lacks("its aggregator wants to see what the clients were sent, and each was sent something else".into())
            );
            round = round.showing(sent.clone());
        }
        let out = match aggregator.fold(&round) {
            Some(mut fold) => {
                self.exchange(&round, ask, to, down, needs, &mut |m| fold.add(form(m)?))?;
                let folded = fold.finish().with_context(|| ask.label())?;
                aggregator.update(&round, folded)?
            }
            None => {
                let inbox = self.collect(&round, ask, to, down, needs, form)?;
                aggregator.aggregate(&round, &inbox)?
            }
        };
        Ok((round, out))
    }

    /// Asks these clients, and hands over each answer as it is believed: what is sent is counted and hashed, what comes back
    /// is admitted or dropped, and everything is accounted and journalled.
    fn exchange<'d, D: Message, U: Message>(
        &mut self,
        round: &Round,
        ask: &Ask<D, U>,
        to: &[ClientId],
        down: &(impl Fn(ClientId) -> &'d D + Sync),
        needs: Needs,
        sink: &mut dyn FnMut(Mail<U>) -> Result<()>,
    ) -> Result<()> {
        let needs = Needs {
            class_counts: needs.class_counts || self.observed.counts(ask.label()),
            ..needs
        };
        self.expose_answers(ask, needs)?;
        let faults = self.faults.clone();
        let mut exchange = Exchange::new(round, ask, to.len(), needs, faults.clone());
        for id in to {
            exchange.send(down(*id), &mut self.step.asked_about);
        }
        // two questions of one label in one step must not share their randomness
        let times = self.step.again(format!("question {}", ask.label()));
        let question = |id: ClientId| {
            let stream = round.stream.child("client", u64::from(id));
            let stream = stream.child(ask.label(), times);
            Question::new(ask.label(), Payload::Here(down(id)), stream, needs)
        };
        let draws = self.faults_stream();
        let (at, repeated) = ((round.name.as_str(), round.number), self.step.repeated);
        let slot = self.observed.model(ask.label());
        let (host, store) = (&mut *self.host, &self.store);
        let mut made = None;
        let mut model = || {
            let make = || server_params(store, slot);
            made.get_or_insert_with(make).clone()
        };
        let mut wanted = Wanted {
            task: store.task().kind,
            model: &mut model,
            first: None,
        };
        let mut left = to.to_vec();
        // whom a budget does not pay for refuses; the others have been asked as well, and what they release is released
        let mut refused = None;
        for attempt in 0.. {
            let mut again = Vec::new();
            let fate = |id: ClientId| faults.fate(&draws, at, id, (repeated, attempt));
            let (gone, here): (Vec<ClientId>, Vec<ClientId>) = left
                .iter()
                .partition(|id| fate(**id).is_some_and(|f| f.absent()));
            for id in gone {
                if let Some(silence) = fate(id).and_then(|f| f.silence())
                    && exchange.drop_or_fail(id, anyhow!(silence), attempt)?
                {
                    again.push(id);
                }
            }
            host.ask(&here, &question, &mut |id, answer| {
                let sent = down(id);
                if refused.is_some() {
                    exchange.unpaid::<D, U>(id, sent, answer);
                    return Ok(());
                }
                let mail = answer.and_then(|a| exchange.admit(id, sent, a, fate(id), &mut wanted));
                match mail {
                    Ok(mail) => return sink(mail),
                    Err(error) => match exchange.drop_or_fail(id, error, attempt) {
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
                exchange.settle(self)?;
                Err(error)
            }
            None => exchange.end(self, round),
        }
    }
}
