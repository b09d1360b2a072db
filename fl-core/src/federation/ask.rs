//! Questions: what is sent is counted and hashed, what comes back is checked, dropped or believed.

use super::Federation;
use super::save::Held;
use crate::host::{Entry, Fault, Round};
use crate::message::{self, Bytes, Ids, Message, hex};
use crate::{
    Answer, Ask, BoxedAggregator, ClientId, Inbox, Mail, Needs, Payload, Problem, Question, Result,
    Trainer,
};
use anyhow::{Context, bail};
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
        let needs = self.aggregator::<U, O>(slot)?.needs();
        self.collect(round, ask, to, &down, needs, Ok)
    }

    fn collect<'d, D: Message, U: Message, V: Message>(
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
        let aggregator = self.aggregator::<V, O>(slot)?;
        let (needs, fold) = (aggregator.needs(), aggregator.fold());
        let formed = |mail: Mail<U>| mail.try_map(&form);
        let out = match fold {
            Some(mut fold) => {
                self.exchange(round, ask, to, &down, needs, &mut |m| fold.add(formed(m)?))?;
                fold.finish().with_context(|| ask.label())?
            }
            None => {
                let inbox = self.collect(round, ask, to, &down, needs, formed)?;
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
                    // samples among those that clients were asked about last can be told by a bit mask
                    message::bytes(message, self.about.as_deref()),
                )),
            };
            if let Some(ids) = (message as &dyn Any).downcast_ref::<Ids>() {
                self.about = Some(ids.0.clone());
            }
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
        let mut measures: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        self.host.ask(to, &question, &mut |id, answer| {
            let taken = answer.and_then(|answer| {
                let Answer { body, envelope } = answer;
                let asked = (down(id) as &dyn Any)
                    .downcast_ref::<Ids>()
                    .map(|ids| &ids.0[..]);
                let body: U = body.open()?;
                if let Some(asked) = asked {
                    message::check_rows(&body, asked)?;
                }
                let (bytes, digest) = (message::bytes(&body, asked), message::digest(&body));
                // what a client has released is spent, whatever becomes of its answer
                spent.push((id, envelope.spent.clone()));
                for note in &envelope.notes {
                    notes.entry(note.clone()).or_default().push(id.to_string());
                }
                for (name, value) in &envelope.measures {
                    measures.entry(name.clone()).or_default().push(*value);
                }
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
        for (note, said_by) in notes {
            let who = match said_by.len() {
                1 => "client",
                _ => "clients",
            };
            self.host
                .warn(&format!("{who} {}: {note}", said_by.join(", ")));
        }
        for (name, each) in measures {
            self.record_each(round, &name, each)?;
        }
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
}
