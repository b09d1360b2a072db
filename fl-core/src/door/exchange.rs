//! One question to some clients, as it goes on: what is sent is counted and hashed, what comes back is checked, dropped or
//! believed.

use super::federation::Federation;
use crate::host::{Entry, Fault, Faults};
use crate::message::{self, Bytes, Ids, Message, hex};
use crate::privacy::{Observer, Protection, Protections};
use crate::{Answer, Ask, ClientId, Mail, Needs, PrivacyEvent, Problem, Result, Round};
use anyhow::{bail, ensure};
use sha2::{Digest as _, Sha256};
use std::any::Any;
use std::collections::BTreeMap;

/// The journal tells answers apart for at most so many clients a question.
const TOLD_APART: usize = 256;

/// One question to some clients, as it goes on.
pub(super) struct Exchange<U> {
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
pub(super) fn asked<D: Message>(sent: &D) -> Option<&[u32]> {
    (sent as &dyn Any)
        .downcast_ref::<Ids>()
        .map(|ids| &ids.0[..])
}

impl<U: Message> Exchange<U> {
    pub fn new<D: Message>(
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
                answers: Vec::new(),
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
    pub fn send<D: Message>(&mut self, message: &D, about: &mut Option<Vec<u32>>) {
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
    pub fn admit<D: Message>(
        &mut self,
        from: ClientId,
        sent: &D,
        answer: Answer,
    ) -> Result<Mail<U>> {
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
        let digest = message::digest(&mail.body);
        self.chain.update(digest);
        if self.entry.clients <= TOLD_APART {
            self.entry.answers.push((from, hex(&digest[..4])));
        }
        Ok(mail)
    }

    /// What the spec's policy makes of an answer that cannot be used.
    pub fn drop_or_fail(&mut self, id: ClientId, error: anyhow::Error) -> Result<()> {
        if *self.faults.policy(&error) == Fault::Drop {
            self.entry.dropped.push((id, format!("{error:#}")));
            return Ok(());
        }
        let label = self.entry.question.clone();
        Err(error.context(format!("client {id}")).context(label))
    }

    /// Passes on what was said, charges what was spent, and writes the journal.
    pub fn end<D: Message>(
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
        if !fed.unrepeatable() {
            self.entry.digest = hex(&digest);
        }
        if fed.unrepeatable() || fed.accountant.is_some() {
            self.entry.answers.clear();
        }
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
