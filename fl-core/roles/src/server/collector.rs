//! [`Collector`]: one request to a list of clients in progress. It counts and hashes the messages,
//! and accepts or drops the answers.

use crate::exchange::faults::{Fault, FaultKind, FaultOutcome, Faults};
use crate::exchange::shape_check::ExpectedShape;
use crate::host::JournalEntry;
use crate::message::{self, AnyMessage, Bytes, Erased, Ids, MessageType, hex};
use crate::privacy::{Observer, epsilons};
use crate::round::MOST_NOTES;
use crate::server::RunState;
use crate::server::calls::Results;
use crate::{
    Answer, ClientId, ClientMessage, ExchangeSpec, PrivacyEvent, Problem, RequiredInputs, Result,
    Round, RunEvent, TRAINING_LOSS, metrics, named_clients,
};
use anyhow::{bail, ensure};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The journal lists single answers up to this number of clients in a request.
const DIGESTED_ANSWERS: usize = 256;

/// One request to a list of clients, in progress.
pub(crate) struct Collector {
    entry: JournalEntry,
    /// What clients answer.
    up: &'static MessageType,
    chain: Sha256,
    needs: RequiredInputs,
    faults: Faults,
    withholds: bool,
    /// The last message, with its digest and bytes: a message that all clients get is hashed once.
    sent: Option<(*const (), [u8; 32], Bytes)>,
    spent: Vec<(ClientId, Vec<PrivacyEvent>)>,
    measures: BTreeMap<String, Vec<(ClientId, f64)>>,
    notes: BTreeMap<String, Vec<ClientId>>,
}

/// Returns the samples that a message requests, if it is a message of ids.
pub(crate) fn asked(sent: &dyn AnyMessage) -> Option<&[u32]> {
    sent.as_any().downcast_ref::<Ids>().map(|ids| &ids.0[..])
}

/// Returns why an answer is unusable, for the files of a run. With an accountant (`withholds`) it
/// is the kind of the error only, because its text may hold values of a client's data.
pub(crate) fn reason(error: &anyhow::Error, withholds: bool) -> String {
    if !withholds {
        return format!("{error:#}");
    }
    let kind = match error.downcast_ref() {
        Some(Problem::NotFinite { .. } | Problem::Diverged(_)) => "a number is not finite",
        Some(Problem::Shape(_)) => "a shape does not fit",
        Some(Problem::Weight { .. }) => "its weight cannot be used",
        Some(Problem::Absent(_)) => "it did not answer",
        _ => "it could not answer",
    };
    format!("{kind}; an accountant withholds the text of the error, which may hold private values")
}

impl Collector {
    /// `withholds`: whether the texts of errors are kept from the files of the run.
    pub fn new(
        round: &Round,
        exchange: &ExchangeSpec,
        clients: usize,
        needs: RequiredInputs,
        faults: Faults,
        withholds: bool,
    ) -> Self {
        Self {
            entry: JournalEntry {
                step: round.name.clone(),
                question: exchange.label.into(),
                down: exchange.down.into(),
                up: exchange.up.into(),
                clients,
                dropped: Vec::new(),
                again: Vec::new(),
                bytes_down: Bytes::default(),
                bytes_up: Bytes::default(),
                bytes_envelope: 0,
                digest: String::new(),
                answers: Vec::new(),
                privacy: None,
            },
            up: exchange.answer,
            chain: Sha256::new(),
            needs,
            faults,
            withholds,
            sent: None,
            spent: Vec::new(),
            measures: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Counts and hashes the message to one client. `about` holds the samples of the last request.
    pub fn send(&mut self, message: &dyn AnyMessage, about: &mut Option<Vec<u32>>) {
        let this = std::ptr::from_ref(message).cast::<()>();
        let (_, digest, bytes) = match self.sent {
            Some(same) if same.0 == this => same,
            _ => *self.sent.insert((
                this,
                message::digest(message),
                // a bit mask can encode a subset of the samples of the last request
                message::bytes(message, about.as_deref()),
            )),
        };
        if let Some(ids) = asked(message) {
            *about = Some(ids.to_vec());
        }
        self.chain.update(digest);
        self.entry.bytes_down += bytes;
    }

    /// Checks one answer, stores the numbers of its envelope, and counts and hashes it. Returns it
    /// with its digest. `fate` is the injected fault, if any.
    pub fn admit(
        &mut self,
        from: ClientId,
        sent: &dyn AnyMessage,
        answer: Answer,
        fate: Option<FaultOutcome<'_>>,
        wanted: &mut ExpectedShape<'_>,
    ) -> Result<(ClientMessage<Erased>, [u8; 32])> {
        let Answer { body, envelope } = answer;
        // the client has released it, so the cost counts even if the answer is dropped
        self.spent.push((from, envelope.spent.clone()));
        let mut body = body.open_as(self.up)?;
        let mut weight = if self.needs.samples {
            envelope.samples.map_or(f64::NAN, |n| n as f64)
        } else {
            1.0
        };
        if let Some(fate) = fate {
            if let Some(silence) = fate.silence() {
                bail!(silence);
            }
            body = fate.spoil(body)?;
            if *fate.what == FaultKind::Weight {
                weight = -1.0;
            }
        }
        if let Some(asked) = asked(sent) {
            message::check_rows(&*body, asked)?;
        }
        let bytes_envelope = envelope.bytes();
        let mail = ClientMessage {
            from,
            weight,
            class_counts: envelope.class_counts,
            training_loss: envelope.training_loss.map(f64::from),
            body,
        };
        crate::inbox::check_message(&mail, &*mail.body)?;
        for (missing, what) in [
            (
                self.needs.class_counts && mail.class_counts.is_none(),
                "counts of classes",
            ),
            (
                self.needs.training_loss && mail.training_loss.is_none(),
                "training loss",
            ),
        ] {
            Problem::shape_unless(!missing, || format!("no {what} came with it"))?;
        }
        let most = self.faults.max_weight;
        let too_much = Problem::Weight {
            weight,
            most: Some(most),
        };
        ensure!(weight <= most, too_much);
        wanted.check(sent, &mail)?;
        for (name, _) in &envelope.measures {
            if name != TRAINING_LOSS {
                metrics::ensure_free(name)?;
            }
        }
        for note in envelope.notes.into_iter().take(MOST_NOTES + 1) {
            self.notes.entry(note).or_default().push(from);
        }
        for (name, value) in envelope.measures {
            self.measures.entry(name).or_default().push((from, value));
        }
        self.entry.bytes_up += message::bytes(&*mail.body, asked(sent));
        self.entry.bytes_envelope += bytes_envelope;
        self.chain.update(from.to_le_bytes());
        let digest = message::digest(&*mail.body);
        self.chain.update(digest);
        if self.entry.clients <= DIGESTED_ANSWERS {
            self.entry.answers.push((from, hex(&digest[..4])));
        }
        Ok((mail, digest))
    }

    /// Applies the spec's policy to an unusable answer, or if not `answered`, to the error of a
    /// client without an answer. Returns whether to repeat the request to its client, which was
    /// repeated `attempt` times before.
    pub fn drop_or_fail(
        &mut self,
        id: ClientId,
        (error, answered): (anyhow::Error, bool),
        attempt: usize,
    ) -> Result<bool> {
        let why = reason(&error, self.withholds);
        match self.faults.policy(&error, answered) {
            Fault::Retry(times) if attempt < *times => {
                self.entry.again.push((id, why));
                return Ok(true);
            }
            Fault::Retry(times) => {
                let why = format!("{why} (asked {} times)", times + 1);
                self.entry.dropped.push((id, why));
            }
            Fault::Drop => self.entry.dropped.push((id, why)),
            Fault::Fail => {
                self.entry.dropped.push((id, why));
                let label = self.entry.question.clone();
                return Err(error.context(format!("client {id}")).context(label));
            }
        }
        Ok(false)
    }

    /// Records the answer of a client after a budget refused another one. The answer is not used,
    /// but counted and charged like any other.
    pub fn unpaid(&mut self, from: ClientId, sent: &dyn AnyMessage, answer: Result<Answer>) {
        let Answer { body, envelope } = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let too = matches!(error.downcast_ref(), Some(Problem::Budget(_)));
                let why = if too {
                    "refused as well".into()
                } else {
                    reason(&error, self.withholds)
                };
                return self.entry.dropped.push((from, why));
            }
        };
        self.entry.bytes_envelope += envelope.bytes();
        self.spent.push((from, envelope.spent));
        match body.open_as(self.up) {
            Ok(body) => self.entry.bytes_up += message::bytes(&*body, asked(sent)),
            Err(error) => {
                let why = reason(&error, self.withholds);
                self.entry.dropped.push((from, why));
            }
        }
    }

    /// Forwards notes and measurements, charges the privacy costs, and writes the journal.
    pub fn end(mut self, fed: &mut RunState<'_>, round: &Round) -> Result<()> {
        let (label, clients) = (self.entry.question.clone(), self.entry.clients);
        for (note, said_by) in std::mem::take(&mut self.notes) {
            let told = fed.told.entry(format!("note: {note}")).or_default();
            let new = said_by.into_iter().filter(|id| told.insert(*id));
            let new: Vec<String> = new.map(|id| id.to_string()).collect();
            let who = match new.len() {
                0 => continue,
                1 => "client",
                _ => "clients",
            };
            fed.warn(&format!("{who} {}: {note}", new.join(", ")));
        }
        let (answers, least) = (clients - self.entry.dropped.len(), self.faults.min_answers);
        // what too few say belongs to a round that does not count; a small cohort may be whole
        if answers == clients || answers >= least {
            for (name, each) in std::mem::take(&mut self.measures) {
                fed.record_of(round, &name, each)?;
            }
        }
        self.entry.dropped.sort();
        let told = format!("answer to `{label}`");
        self.entry.again.sort();
        fed.unusable(round, (&told, "asked for again"), &self.entry.again)?;
        fed.left_out(round, &told, &self.entry.dropped)?;
        let dropped = self.entry.dropped.clone();
        self.finish(fed)?;
        match &dropped[..] {
            [(id, why), ..] if answers == 0 && least == 1 => {
                bail!(Problem::NoAnswer(format!(
                    " to `{}`: all {clients} were dropped; client {id}: {why}",
                    label,
                )))
            }
            [(id, why), ..] if answers < least => bail!(Problem::TooFew {
                answers,
                least,
                text: format!(
                    " to `{label}` of {clients}; {} gave none that is usable; client {id}: {why}",
                    named_clients(&dropped.iter().map(|(id, _)| *id).collect::<Vec<_>>())
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Charges the privacy costs, and writes the journal.
    pub fn finish(mut self, fed: &mut RunState<'_>) -> Result<()> {
        for (id, events) in self.spent {
            fed.ledger.charge_client(id, events)?;
        }
        let digest: [u8; 32] = self.chain.finalize().into();
        if !fed.unrepeatable() {
            self.entry.digest = hex(&digest);
        }
        if fed.unrepeatable() || fed.ledger.accounts() {
            self.entry.answers.clear();
        }
        self.entry.dropped.sort();
        self.entry.privacy = fed.protections()?.map(|all| epsilons(&all));
        fed.totals.up += self.entry.bytes_up.total() + self.entry.bytes_envelope;
        fed.totals.down += self.entry.bytes_down.total();
        fed.extend_digest(&self.entry.question, &digest);
        let ended = RunEvent::ExchangeEnds(&self.entry);
        fed.host.emit(ended).map(drop)
    }
}

impl RunState<'_> {
    /// Warns of dropped answers, once for each client and kind of answer, and records that
    /// observers learn from it.
    pub(crate) fn left_out(
        &mut self,
        round: &Round,
        what: &str,
        dropped: &[(ClientId, String)],
    ) -> Result<()> {
        self.unusable(round, (what, "left out"), dropped)
    }

    /// Records that `what` of these clients was unusable, and its `fate`.
    fn unusable(
        &mut self,
        round: &Round,
        (what, fate): (&str, &str),
        dropped: &[(ClientId, String)],
    ) -> Result<()> {
        let Some((id, _)) = dropped.first() else {
            return Ok(());
        };
        let told = self.told.entry(format!("{what} {fate}")).or_default();
        let new: Vec<&(ClientId, String)> =
            dropped.iter().filter(|(id, _)| told.insert(*id)).collect();
        let note = new.first().map(|(first, why)| {
            let ids: BTreeSet<ClientId> = new.iter().map(|(id, _)| *id).collect();
            let all: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let whose = match all.len() {
                1 => "client",
                _ => "clients",
            };
            format!(
                "{}: {what} {fate}: {whose} {} ({first}: {why})",
                round.name,
                all.join(", ")
            )
        });
        if let Some(note) = note {
            self.warn(&note);
        }
        let seen = format!("client {id}'s {what} was {fate}, which may depend on its data");
        self.expose(&Observer::ALL, &seen)
    }
}
