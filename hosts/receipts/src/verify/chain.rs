//! The chain of a run's receipts, and its signatures.

use super::differs;
use crate::receipt_log::RECEIPTS;
use crate::record::{
    Countersignature, ReceiptRecord, ReceiptSession, RunEnd, StepReceipt, add_answers,
    countersigned_text, signed_text,
};
use anyhow::{Context, ensure};
use fl_core::message::hex;
use fl_core::regular_file::RegularLines;
use fl_files::{ChainHash, read_chained};
use minisign_verify::{PublicKey, Signature};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The most bytes of the receipts, and of the journal beside them, that are read.
pub(super) const MOST_RECEIPTS: u64 = 1 << 30;

/// One receipt and its line.
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) step: StepReceipt,
}

impl Line {
    pub(super) fn place(&self, client: Option<u32>) -> String {
        let receipt = &self.step.receipt;
        let exchange = receipt.exchange.as_ref();
        let exchange = exchange.map_or(String::new(), |label| format!(", exchange `{label}`"));
        let client = client.map_or(String::new(), |id| format!(", client {id}"));
        let (line, step) = (self.number, &receipt.step);
        format!("{RECEIPTS}, line {line} ({step}{exchange}{client})")
    }
}

/// A chain of receipts. A record of a session with a key counts once its signature was checked.
#[derive(Default)]
pub(super) struct ReadChain {
    pub(super) sessions: Vec<ReceiptSession>,
    pub(super) steps: Vec<Line>,
    pub(super) end: Option<RunEnd>,
    /// The number of complete lines.
    pub(super) lines: usize,
    /// The keys of checked signatures.
    pub(super) keys: BTreeSet<String>,
    pub(super) countersigned: BTreeMap<u32, String>,
    pub(super) notes: Vec<String>,
    /// The answers of each client so far, which nodes countersign.
    answers: BTreeMap<u32, Vec<String>>,
}

impl ReadChain {
    fn add(&mut self, number: usize, record: ReceiptRecord) {
        match record {
            ReceiptRecord::Session(session) => self.sessions.push(session),
            ReceiptRecord::Step(step) => {
                add_answers(&mut self.answers, &step);
                self.steps.push(Line {
                    number,
                    step: *step,
                });
            }
            ReceiptRecord::End(end) => self.end = Some(end),
            ReceiptRecord::Signature(_) | ReceiptRecord::Countersignature(_) => {}
        }
    }
}

/// The receipts so far, up to a line.
#[derive(Default)]
struct ChainReader<'a> {
    chain: ReadChain,
    /// The key that must have signed the run.
    pinned: Option<&'a str>,
    /// Of the line before.
    hash: ChainHash,
    /// Of the last record that is no countersignature.
    head: ChainHash,
    /// The key of the session.
    key: Option<String>,
    /// The record that waits for its signature, and its line.
    unsigned: Option<(usize, ReceiptRecord)>,
}

/// Reads the receipts in `folder`, all that hold. `done`: the run says that it is.
pub(super) fn read_chain(
    folder: &Path,
    pinned: Option<&str>,
    done: bool,
) -> anyhow::Result<ReadChain> {
    let path = folder.join(RECEIPTS);
    let what = || format!("reading {}", path.display());
    let mut lines = RegularLines::open(&path, MOST_RECEIPTS).with_context(|| {
        if path.exists() {
            what()
        } else {
            format!("{}: a run of an older fl has no receipts", what())
        }
    })?;
    let mut reader = ChainReader {
        pinned,
        ..ChainReader::default()
    };
    while let Some(line) = lines.next_line().with_context(what)? {
        let number = reader.chain.lines + 1;
        let place = format!("{RECEIPTS}, line {number}");
        let Some((next, json)) = read_chained(&reader.hash, line) else {
            if !done && !line.ends_with(b"\n") {
                let note = "the last receipt is incomplete: its process was killed";
                reader.chain.notes.push(note.into());
                break;
            }
            return differs(
                place,
                "a line that does not follow the one before, or was changed",
                format!("one after the hash {}", hex(&reader.hash)),
            );
        };
        let record = serde_json::from_slice(json)
            .with_context(|| format!("{place} is of another version of fl"))?;
        reader.read(number, &place, record, next)?;
    }
    ensure!(
        reader.chain.lines > 0 || !done,
        "{} is empty, and the run is done",
        path.display()
    );
    reader.end(done)
}

impl ChainReader<'_> {
    /// Reads the record of a line, which has the hash `next`.
    fn read(
        &mut self,
        number: usize,
        place: &str,
        record: ReceiptRecord,
        next: ChainHash,
    ) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.hash, next);
        self.chain.lines = number;
        let signature = matches!(record, ReceiptRecord::Signature(_));
        if self.unsigned.is_some() && !signature {
            return differs(
                place,
                "a record that is no signature",
                "that of the line before",
            );
        }
        let begins = signature || matches!(record, ReceiptRecord::Session(_));
        ensure!(
            begins || !self.chain.sessions.is_empty(),
            "{place}: the receipts do not begin with a session"
        );
        if self.chain.end.is_some() && !signature {
            return differs(place, "a record after the end of the run", "none");
        }
        match record {
            ReceiptRecord::Countersignature(by) => return self.countersigned(place, by),
            ReceiptRecord::Signature(found) => {
                self.signed(place, &signed_text(&before), &found.signature)?;
            }
            record => {
                if let ReceiptRecord::Session(session) = &record {
                    self.begin(place, session)?;
                }
                match self.key {
                    Some(_) => self.unsigned = Some((number, record)),
                    None => self.chain.add(number, record),
                }
            }
        }
        self.head = next;
        Ok(())
    }

    /// Begins a session, whose key is that of the one before.
    fn begin(&mut self, place: &str, session: &ReceiptSession) -> anyhow::Result<()> {
        check_key(session, self.pinned, place)?;
        if let (Some(key), other) = (&self.key, &session.key)
            && Some(key) != other.as_ref()
        {
            let found = other.as_ref().map(|other| format!("the key {other}"));
            let found = found.unwrap_or("no key".into());
            let due = format!("the key {key}, which signed what is before");
            return differs(place, found, due);
        }
        self.key.clone_from(&session.key);
        Ok(())
    }

    /// Checks the signature of the record before, which counts from now on.
    fn signed(&mut self, place: &str, text: &[u8], signature: &str) -> anyhow::Result<()> {
        let signed = self.key.as_ref().zip(self.unsigned.take());
        let (by, (number, record)) =
            signed.with_context(|| format!("{place}: a signature of nothing"))?;
        if let Err(error) = check_signature(by, text, signature) {
            let found = format!("a wrong signature ({error})");
            return differs(place, found, "one by the session's key");
        }
        self.chain.keys.insert(by.clone());
        self.chain.add(number, record);
        Ok(())
    }

    /// Checks a node's signature of its answers so far. Nodes of one home share its key.
    fn countersigned(&mut self, place: &str, by: Countersignature) -> anyhow::Result<()> {
        let who = format!("{place} (client {})", by.client);
        let Some(of) = self.chain.answers.get(&by.client) else {
            let due = "one of a client whose answers the receipts list";
            return differs(who, "a countersignature", due);
        };
        let mut leaders = self.chain.sessions.iter();
        if leaders.any(|session| session.key.as_ref() == Some(&by.key)) {
            let found = format!("the key {}, which signs the receipts", by.key);
            return differs(who, found, "the key of the client's node");
        }
        let text = countersigned_text(&self.head, by.client, of);
        if let Err(error) = check_signature(&by.key, &text, &by.signature) {
            let found = format!("a wrong signature ({error})");
            return differs(who, found, format!("one by {}", by.key));
        }
        self.chain.countersigned.insert(by.client, by.key);
        Ok(())
    }

    /// The chain, once all lines are read.
    fn end(self, done: bool) -> anyhow::Result<ReadChain> {
        let mut all = self.chain;
        if let Some((number, _)) = self.unsigned {
            let place = format!("{RECEIPTS}, line {number}");
            // the process was killed between a record and its signature; nothing shows that it was
            // the holder of the key, unless that one signed what is before
            if done || all.keys.is_empty() {
                let found = "a last record without a signature";
                return differs(place, found, "one by the session's key");
            }
            all.notes.push(format!(
                "{place}: the last record has no signature, and counts for nothing: its process was killed before it signed; `--resume` removes the line"
            ));
        }
        if !all.keys.is_empty() && all.sessions.iter().any(|session| session.key.is_none()) {
            let note = "some sessions of the run are not signed";
            all.notes.push(note.into());
        }
        if let (Some(pinned), true) = (self.pinned, all.sessions.is_empty()) {
            return differs(RECEIPTS, "no session", format!("one with the key {pinned}"));
        }
        Ok(all)
    }
}

/// Checks that the nodes of these clients countersigned with these keys.
pub(super) fn check_clients(
    due: &BTreeMap<u32, String>,
    found: &BTreeMap<u32, String>,
) -> anyhow::Result<()> {
    let other = due.iter().find(|(id, key)| found.get(id) != Some(key));
    let Some((id, key)) = other else {
        return Ok(());
    };
    let found = found.get(id).map(|key| format!("one by {key}"));
    differs(
        format!("{RECEIPTS}, the countersignature of client {id}"),
        found.unwrap_or("none".into()),
        format!("one by {key}"),
    )
}

/// Checks that a session names the key that must have signed the run.
fn check_key(session: &ReceiptSession, pinned: Option<&str>, place: &str) -> anyhow::Result<()> {
    match (pinned, &session.key) {
        (None, _) => Ok(()),
        (Some(pinned), Some(key)) if key == pinned => Ok(()),
        (Some(pinned), Some(key)) => {
            differs(place, format!("the key {key}"), format!("the key {pinned}"))
        }
        (Some(pinned), None) => differs(
            place,
            "no key",
            format!("the key {pinned}; this run is not signed (`fl run --sign FILE` signs one)"),
        ),
    }
}

fn check_signature(key: &str, text: &[u8], signature: &str) -> Result<(), minisign_verify::Error> {
    PublicKey::from_base64(key)?.verify(text, &Signature::decode(signature)?, false)
}
