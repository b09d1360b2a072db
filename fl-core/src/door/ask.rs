//! Questions: what is sent is counted and hashed, what comes back is checked, dropped or believed.

use super::federation::Federation;
use crate::host::{Entry, Fault, Faults};
use crate::message::{self, Bytes, Ids, Message, hex};
use crate::privacy::{Observer, Protection, Protections};
use crate::{
    Answer, Ask, BoxedAggregator, ClientId, Inbox, Mail, Needs, Payload, PrivacyEvent, Problem,
    Question, Result, Role, Round, Trainer,
};
use anyhow::{Context, bail, ensure};
use sha2::{Digest as _, Sha256};
use std::any::Any;
use std::collections::BTreeMap;

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
        self.expose_answers(ask, needs)?;
        let mut exchange = Exchange::new(round, ask, to.len(), needs, self.faults.clone());
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
        self.host.ask(to, &question, &mut |id, answer| {
            let sent = down(id);
            match answer.and_then(|answer| exchange.admit(id, sent, answer)) {
                Ok(mail) => sink(mail),
                Err(error) => exchange.drop_or_fail(id, error),
            }
        })?;
        exchange.end(self, round, ask, to.len())
    }
}

/// One question to some clients, as it goes on.
struct Exchange<U> {
    entry: Entry,
    chain: Sha256,
    needs: Needs,
    faults: Faults,
    /// What was sent last, with its digest and bytes: one message to everybody is hashed once.
    sent: Option<(*const (), [u8; 32], Bytes)>,
    first: Option<U>,
    spent: Vec<(ClientId, Vec<PrivacyEvent>)>,
    measures: BTreeMap<String, Vec<f64>>,
    notes: BTreeMap<String, Vec<String>>,
}

/// The samples that a message asks about, if it is such a message.
fn asked<D: Message>(sent: &D) -> Option<&[u32]> {
    (sent as &dyn Any)
        .downcast_ref::<Ids>()
        .map(|ids| &ids.0[..])
}

impl<U: Message> Exchange<U> {
    fn new<D: Message>(
        round: &Round,
        ask: &Ask<D, U>,
        clients: usize,
        needs: Needs,
        faults: Faults,
    ) -> Self {
        Self {
            entry: Entry {
                step: round.name.clone(),
                question: ask.label().into(),
                down: D::KIND.into(),
                up: U::KIND.into(),
                clients,
                dropped: Vec::new(),
                bytes_down: Bytes::default(),
                bytes_up: Bytes::default(),
                bytes_envelope: 0,
                digest: String::new(),
                privacy: None,
            },
            chain: Sha256::new(),
            needs,
            faults,
            sent: None,
            first: None,
            spent: Vec::new(),
            measures: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Counts and hashes what one client is sent. `about` are the samples that clients were asked about last.
    fn send<D: Message>(&mut self, message: &D, about: &mut Option<Vec<u32>>) {
        let this = std::ptr::from_ref(message).cast::<()>();
        let (_, digest, bytes) = match self.sent {
            Some(same) if same.0 == this => same,
            _ => *self.sent.insert((
                this,
                message::digest(message),
                // samples among those that clients were asked about last can be told by a bit mask
                message::bytes(message, about.as_deref()),
            )),
        };
        if let Some(ids) = asked(message) {
            *about = Some(ids.to_vec());
        }
        self.chain.update(digest);
        self.entry.bytes_down += bytes;
    }

    /// Checks one answer, takes down what its envelope says, and counts and hashes it.
    fn admit<D: Message>(&mut self, from: ClientId, sent: &D, answer: Answer) -> Result<Mail<U>> {
        let Answer { body, envelope } = answer;
        // what a client has released is spent, whatever becomes of its answer
        self.spent.push((from, envelope.spent.clone()));
        let body: U = body.open()?;
        if let Some(asked) = asked(sent) {
            message::check_rows(&body, asked)?;
        }
        let weight = match self.needs.samples {
            true => envelope.samples.map_or(f64::NAN, |n| n as f64),
            false => 1.0,
        };
        let bytes_envelope = envelope.bytes();
        let mail = Mail {
            from,
            weight,
            class_counts: envelope.class_counts,
            body,
        };
        crate::inbox::check_mail(&mail)?;
        ensure!(weight <= self.faults.max_weight, Problem::Weight { weight });
        let first = self.first.get_or_insert_with(|| mail.body.clone());
        message::alike(first, &mail.body)?;
        for note in envelope.notes {
            self.notes.entry(note).or_default().push(from.to_string());
        }
        for (name, value) in envelope.measures {
            self.measures.entry(name).or_default().push(value);
        }
        self.entry.bytes_up += message::bytes(&mail.body, asked(sent));
        self.entry.bytes_envelope += bytes_envelope;
        self.chain.update(from.to_le_bytes());
        self.chain.update(message::digest(&mail.body));
        Ok(mail)
    }

    /// What the spec's policy makes of an answer that cannot be used.
    fn drop_or_fail(&mut self, id: ClientId, error: anyhow::Error) -> Result<()> {
        if *self.faults.policy(&error) == Fault::Drop {
            self.entry.dropped.push((id, format!("{error:#}")));
            return Ok(());
        }
        let label = self.entry.question.clone();
        Err(error.context(format!("client {id}")).context(label))
    }

    /// Passes on what was said, charges what was spent, and writes the journal.
    fn end<D: Message>(
        mut self,
        fed: &mut Federation<'_>,
        round: &Round,
        ask: &Ask<D, U>,
        clients: usize,
    ) -> Result<()> {
        for (note, said_by) in self.notes {
            let who = match said_by.len() {
                1 => "client",
                _ => "clients",
            };
            fed.warn(&format!("{who} {}: {note}", said_by.join(", ")));
        }
        for (name, each) in self.measures {
            fed.record_each(round, &name, each)?;
        }
        for (id, events) in self.spent {
            fed.charge_client(id, events)?;
        }
        let digest: [u8; 32] = self.chain.finalize().into();
        self.entry.digest = hex(&digest);
        if let [(id, _), ..] = &self.entry.dropped[..] {
            let what = format!(
                "client {id}'s answer to `{}` was left out, and whether it is may depend on its data",
                ask.label()
            );
            fed.expose(&Observer::ALL, &what)?;
        }
        let epsilons = |all: Protections| {
            let one =
                |(against, p): (Observer, Protection)| (against, p.guarantee().map(|g| g.epsilon));
            all.into_iter().map(one).collect()
        };
        self.entry.privacy = fed.protections()?.map(epsilons);
        fed.totals.up += self.entry.bytes_up.total() + self.entry.bytes_envelope;
        fed.totals.down += self.entry.bytes_down.total();
        fed.link(ask.label(), &digest);
        fed.host.journal(&self.entry)?;
        match &self.entry.dropped[..] {
            [(id, why), ..] if self.entry.dropped.len() == clients => {
                bail!(Problem::NoAnswer(format!(
                    " to `{}`: all {clients} were dropped; client {id}: {why}",
                    ask.label(),
                )))
            }
            _ => Ok(()),
        }
    }
}
