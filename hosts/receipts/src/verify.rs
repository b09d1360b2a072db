//! Checks a run by its receipts, without its data.

use crate::kept_messages::{KeptMessages, MESSAGES};
use crate::receipt_log::RECEIPTS;
use crate::record::{
    ReceiptRecord, ReceiptSession, RunEnd, StepReceipt, add_answers, countersigned_text,
    inputs_hash, salted, signed_text,
};
use crate::session::program;
use anyhow::{Context, anyhow, ensure};
use fl_core::message::{Erased, Message, Scalar, digest, hex};
use fl_core::regular_file::{
    MOST_BINARY, MOST_LINE, MOST_TEXT, RegularLines, read_regular, read_text,
};
use fl_core::settings::Value;
use fl_core::{
    AggregationContext, AnyAggregator, AnyMechanism, BEFORE_AGGREGATOR, BoxedPart, BuildContext,
    ClientMessage, JournalEntry, Parts, ReleaseContext, Role, ServerStep, SharedExecutor,
    SlotAssignment, Stages, Stream, Task, aggregate_again, release_again,
};
use fl_files::{ChainHash, FileHash, read_chained};
use fl_registry::{Catalogue, Document};
use minisign_verify::{PublicKey, Signature};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};

const JOURNAL: &str = "journal.jsonl";

/// The most bytes of the receipts, and of the journal beside them, that are read.
const MOST_RECEIPTS: u64 = 1 << 30;

/// The most bytes of files in a folder that are hashed, unless the user knows the key that signed
/// their names: a file with a hole takes no space, and long to hash.
const MOST_HASHED: u64 = 1 << 36;

/// The label of the request for the number of a client's examples, before clients are picked.
const SAMPLES: &str = "number of examples";

/// A journal lists the answers to requests to at most this many clients.
const LISTED: usize = 256;

/// The first thing in which a run is not what its receipts say.
#[derive(Debug, thiserror::Error)]
#[error("{place}: found {found}; expected {expected}")]
pub struct Difference {
    /// Where: a line of the receipts with its step, exchange and client, or a file.
    pub place: String,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

/// A run in which nothing differs from its receipts.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Verified {
    /// Whether the run is done.
    pub done: bool,
    /// The digest of the run, if it is done.
    pub digest: Option<String>,
    /// Number of receipts of steps.
    pub receipts: usize,
    /// The public keys whose signatures were checked; empty if nothing is signed.
    pub keys: Vec<String>,
    /// The clients that countersigned, and the public keys of their nodes.
    pub countersigned: BTreeMap<u32, String>,
    /// Aggregations that were repeated from kept messages, with the same result.
    pub repeated: usize,
    /// Aggregations whose messages were not kept.
    pub not_repeated: usize,
    /// Releases at the server.
    pub releases: usize,
    /// Releases at the server that were repeated from kept messages, with the same result.
    pub releases_repeated: usize,
    /// Whether their noise was the system's, so that nothing can repeat it. The numbers before such
    /// noise are not kept.
    pub secret_noise: bool,
    /// The files that the receipts cover.
    pub covered: Vec<String>,
    /// Files in the folder that they do not cover.
    pub not_covered: Vec<String>,
    /// What a user should know.
    pub notes: Vec<String>,
}

/// One receipt and its line.
struct Line {
    number: usize,
    step: StepReceipt,
}

impl Line {
    fn place(&self, client: Option<u32>) -> String {
        let receipt = &self.step.receipt;
        let exchange = receipt.exchange.as_ref();
        let exchange = exchange.map_or(String::new(), |label| format!(", exchange `{label}`"));
        let client = client.map_or(String::new(), |id| format!(", client {id}"));
        let (line, step) = (self.number, &receipt.step);
        format!("{RECEIPTS}, line {line} ({step}{exchange}{client})")
    }
}

fn differs<T>(
    place: impl Into<String>,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> anyhow::Result<T> {
    Err(Difference {
        place: place.into(),
        found: found.into(),
        expected: expected.into(),
    }
    .into())
}

/// Checks the run in `folder`: the chain of its receipts, their signatures, and the hashes of its
/// files; then repeats each aggregation and release whose messages were kept. `key` is the
/// public key that must have signed it, in base64.
///
/// # Errors
/// [`Difference`] for the first thing that is not as the receipts say; another error if something
/// cannot be checked.
pub fn verify(
    folder: &Path,
    key: Option<&str>,
    catalogue: &Catalogue,
    exec: SharedExecutor,
) -> anyhow::Result<Verified> {
    let spec = folder.join("spec.yaml");
    ensure!(
        spec.is_file() || folder.join(RECEIPTS).is_file(),
        "{} is not a run folder: it has no spec.yaml",
        folder.display()
    );
    let done = there(folder, "outcome.json");
    let mut chain = read_chain(folder, key, done)?;
    let text = read_regular(&spec, MOST_TEXT);
    let text = text.with_context(|| format!("reading {}", spec.display()))?;
    let found = hex(&Sha256::digest(&text));
    if let Some(session) = chain.sessions.last().filter(|last| last.spec != found) {
        return differs(
            "spec.yaml",
            found,
            format!("{}, as the last session says", session.spec),
        );
    }
    let mut all = Verified {
        done,
        receipts: chain.steps.len(),
        keys: std::mem::take(&mut chain.keys).into_iter().collect(),
        countersigned: std::mem::take(&mut chain.countersigned),
        notes: std::mem::take(&mut chain.notes),
        covered: vec![RECEIPTS.into(), "spec.yaml".into()],
        ..Verified::default()
    };
    let resolved = Document::values_of("spec.yaml", &text)?;
    let mut files_left = FilesLeft {
        folder,
        seen: BTreeSet::new(),
        bytes: key.map_or(MOST_HASHED, |_| u64::MAX),
    };
    match &chain.end {
        Some(end) => check_end(&mut files_left, end, &mut all)?,
        None if done => {
            return differs(
                RECEIPTS,
                "no end of the run",
                "one, for outcome.json says that it is done",
            );
        }
        None => all
            .notes
            .push("the run is not done: files that still change are checked when it ends".into()),
    }
    check_journal(folder, &chain, &resolved, &mut all.notes)?;
    for line in &chain.steps {
        if let Some(kept) = &line.step.kept {
            files_left.check(kept, &line.place(None))?;
            all.covered.push(kept.path.clone());
        }
    }
    repeat(
        folder,
        (&spec, &text, &resolved),
        &chain.steps,
        (catalogue, key.is_some()),
        exec,
        &mut all,
    )?;
    check_rest(folder, &chain, &mut all.notes)?;
    let other = chain.sessions.last().and_then(|last| last.program.as_ref());
    if let (Some(other), Some(own)) = (other, program())
        && other.sha256 != own.sha256
    {
        all.notes.push(format!(
            "the run was made by another build of fl than this one: {} has the SHA-256 {}",
            other.path, other.sha256
        ));
    }
    all.covered.sort();
    all.covered.dedup();
    let covered: BTreeSet<&String> = all.covered.iter().collect();
    let mut there = files(folder, "")?;
    there.retain(|name| !covered.contains(name));
    all.not_covered = there;
    Ok(all)
}

/// A chain of receipts. A record of a session with a key counts once its signature was checked.
#[derive(Default)]
struct ReadChain {
    sessions: Vec<ReceiptSession>,
    steps: Vec<Line>,
    end: Option<RunEnd>,
    /// The number of complete lines.
    lines: usize,
    /// The keys of checked signatures.
    keys: BTreeSet<String>,
    countersigned: BTreeMap<u32, String>,
    notes: Vec<String>,
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

fn read_chain(folder: &Path, pinned: Option<&str>, done: bool) -> anyhow::Result<ReadChain> {
    let path = folder.join(RECEIPTS);
    let what = || format!("reading {}", path.display());
    let mut lines = RegularLines::open(&path, MOST_RECEIPTS).with_context(|| {
        if path.exists() {
            what()
        } else {
            format!("{}: a run of an older fl has no receipts", what())
        }
    })?;
    let mut all = ReadChain::default();
    // of the line before, and of the last record that is no countersignature
    let mut hash: ChainHash = [0; 32];
    let mut head = hash;
    // the key of the session, and the record that waits for its signature
    let mut key: Option<String> = None;
    let mut unsigned: Option<(usize, ReceiptRecord)> = None;
    let mut number = 0;
    while let Some(line) = lines.next_line().with_context(what)? {
        number += 1;
        let place = format!("{RECEIPTS}, line {number}");
        let Some((next, json)) = read_chained(&hash, line) else {
            if !done && !line.ends_with(b"\n") {
                all.notes
                    .push("the last receipt is incomplete: its process was killed".into());
                break;
            }
            return differs(
                place,
                "a line that does not follow the one before, or was changed",
                format!("one after the hash {}", hex(&hash)),
            );
        };
        let before = std::mem::replace(&mut hash, next);
        all.lines = number;
        let record = serde_json::from_slice(json)
            .with_context(|| format!("{place} is of another version of fl"))?;
        let signature = matches!(record, ReceiptRecord::Signature(_));
        if unsigned.is_some() && !signature {
            return differs(
                place,
                "a record that is no signature",
                "that of the line before",
            );
        }
        ensure!(
            !all.sessions.is_empty() || signature || matches!(record, ReceiptRecord::Session(_)),
            "{place}: the receipts do not begin with a session"
        );
        if all.end.is_some() && !signature {
            return differs(place, "a record after the end of the run", "none");
        }
        match record {
            ReceiptRecord::Countersignature(by) => {
                let of = all.answers.get(&by.client).map_or(&[][..], Vec::as_slice);
                let text = countersigned_text(&head, by.client, of);
                if let Err(error) = check_signature(&by.key, &text, &by.signature) {
                    let who = format!("{place} (client {})", by.client);
                    return differs(
                        who,
                        format!("a wrong signature ({error})"),
                        format!("one by {}", by.key),
                    );
                }
                all.countersigned.insert(by.client, by.key);
                continue;
            }
            ReceiptRecord::Signature(found) => {
                let signed = key.as_ref().zip(unsigned.take());
                let (by, (number, record)) =
                    signed.with_context(|| format!("{place}: a signature of nothing"))?;
                if let Err(error) = check_signature(by, &signed_text(&before), &found.signature) {
                    return differs(
                        place,
                        format!("a wrong signature ({error})"),
                        "one by the session's key",
                    );
                }
                all.keys.insert(by.clone());
                all.add(number, record);
            }
            record => {
                if let ReceiptRecord::Session(session) = &record {
                    check_key(session, pinned, &place)?;
                    if let (Some(key), other) = (&key, &session.key)
                        && Some(key) != other.as_ref()
                    {
                        let found = other.as_ref().map(|other| format!("the key {other}"));
                        let found = found.unwrap_or("no key".into());
                        let due = format!("the key {key}, which signed what is before");
                        return differs(place, found, due);
                    }
                    key.clone_from(&session.key);
                }
                match key {
                    Some(_) => unsigned = Some((number, record)),
                    None => all.add(number, record),
                }
            }
        }
        head = next;
    }
    if let Some((number, _)) = unsigned {
        let place = format!("{RECEIPTS}, line {number}");
        // the process was killed between a record and its signature; nothing shows that it was the
        // holder of the key, unless that one signed what is before
        if done || all.keys.is_empty() {
            return differs(
                place,
                "a last record without a signature",
                "one by the session's key",
            );
        }
        all.notes.push(format!(
            "{place}: the last record has no signature, and counts for nothing: its process was killed before it signed; `--resume` removes the line"
        ));
    }
    ensure!(
        number > 0 || !done,
        "{} is empty, and the run is done",
        path.display()
    );
    if !all.keys.is_empty() && all.sessions.iter().any(|session| session.key.is_none()) {
        all.notes
            .push("some sessions of the run are not signed".into());
    }
    if let (Some(pinned), true) = (pinned, all.sessions.is_empty()) {
        return differs(RECEIPTS, "no session", format!("one with the key {pinned}"));
    }
    Ok(all)
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

/// Whether a folder has anything of this name.
fn there(folder: &Path, name: &str) -> bool {
    folder.join(name).symlink_metadata().is_ok()
}

/// The files whose hashes are still to be checked: each once, and no more bytes than these.
struct FilesLeft<'a> {
    folder: &'a Path,
    seen: BTreeSet<String>,
    bytes: u64,
}

impl FilesLeft<'_> {
    /// Checks the hash of a file that `by` names.
    fn check(&mut self, file: &FileHash, by: &str) -> anyhow::Result<()> {
        // a name in a receipt stays in the folder, and each file has one
        let mut parts = Path::new(&file.path).components();
        let plain = parts.all(|part| matches!(part, Component::Normal(_)));
        ensure!(
            plain
                && file.path.split('/').all(|part| !matches!(part, "" | "."))
                && !file.path.contains(char::is_control),
            "{by}: {:?} is no name in the folder",
            file.path
        );
        ensure!(
            self.seen.insert(file.path.clone()),
            "{by}: {:?} is named twice",
            file.path
        );
        let expected = || format!("the SHA-256 {} ({by})", file.sha256);
        let path = self.folder.join(&file.path);
        let about = path.metadata().ok().filter(fs::Metadata::is_file);
        let Some(about) = about else {
            return differs(&file.path, "no file", expected());
        };
        if about.len() > MOST_BINARY {
            let found = format!("{} bytes, more than are hashed", about.len());
            return differs(&file.path, found, expected());
        }
        let Some(left) = self.bytes.checked_sub(about.len()) else {
            let most = MOST_HASHED >> 30;
            let found = format!("more than {most} GiB of files with the ones before");
            let key = "; --key with the key that signed the run allows any number";
            return differs(&file.path, found, expected() + key);
        };
        self.bytes = left;
        let found = FileHash::of(&path)?.sha256;
        if found == file.sha256 {
            Ok(())
        } else {
            differs(
                &file.path,
                format!("the SHA-256 {found}"),
                format!("{} ({by})", file.sha256),
            )
        }
    }
}

/// What is read of `outcome.json`.
#[derive(Deserialize)]
struct StatedOutcome {
    outcome: StatedDigest,
}

#[derive(Deserialize)]
struct StatedDigest {
    digest: String,
}

/// Checks the files of a run that is done, and the digests that they state.
fn check_end(files: &mut FilesLeft<'_>, end: &RunEnd, all: &mut Verified) -> anyhow::Result<()> {
    for file in &end.files {
        files.check(file, "the end of the run")?;
        all.covered.push(file.path.clone());
    }
    let what = "reading outcome.json";
    let outcome = read_regular(&files.folder.join("outcome.json"), MOST_LINE).context(what)?;
    let outcome: StatedOutcome = serde_json::from_slice(&outcome).context(what)?;
    let digest = outcome.outcome.digest;
    if digest != end.run {
        return differs("outcome.json", digest, format!("the digest {}", end.run));
    }
    let report = read_text(&files.folder.join("report.md")).context("reading report.md")?;
    if !report.contains(&end.run) {
        return differs(
            "report.md",
            "no such digest",
            format!("the digest {}", end.run),
        );
    }
    all.digest = Some(digest);
    Ok(())
}

/// Checks that the folder of a run has nothing that comes after its last receipt.
fn check_rest(folder: &Path, chain: &ReadChain, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let cut = "the receipts were cut back, or their process was killed, and `--resume` goes on";
    let models = || fs::read_dir(folder.join("models")).is_ok_and(|mut all| all.next().is_some());
    if chain.end.is_none() {
        let report = there(folder, "report.md").then_some("report.md");
        let model = (chain.steps.is_empty() && models()).then_some("models");
        if let Some(name) = report.or(model) {
            return differs(name, "a result", format!("none before its receipt: {cut}"));
        }
    }
    // a step gets its file before its receipt
    let open = chain.lines + usize::from(chain.end.is_none());
    let Ok(kept) = fs::read_dir(folder.join(MESSAGES)) else {
        return Ok(());
    };
    for entry in kept {
        let name = entry
            .with_context(|| format!("reading {MESSAGES}"))?
            .file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<usize>().ok()) else {
            continue;
        };
        let place = format!("{MESSAGES}/{number:06}");
        if number > open {
            let due = format!("none after line {} of the receipts: {cut}", chain.lines);
            return differs(place, "messages of a step", due);
        }
        if number > chain.lines {
            notes.push(format!("{place} has no receipt: {cut}"));
        }
    }
    Ok(())
}

/// Reads the journal: each entry with its line. The last line of a run that is not done may be cut
/// short.
fn read_journal(
    folder: &Path,
    done: bool,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<(usize, JournalEntry)>> {
    let path = folder.join(JOURNAL);
    let what = || format!("reading {}", path.display());
    let mut lines = RegularLines::open(&path, MOST_RECEIPTS).with_context(what)?;
    let (mut entries, mut number) = (Vec::new(), 0);
    while let Some(line) = lines.next_line().with_context(what)? {
        number += 1;
        let place = format!("{JOURNAL}, line {number}");
        if !done && !line.ends_with(b"\n") {
            notes.push(format!("{place} is incomplete: its process was killed"));
            break;
        }
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push((number, entry)),
            Err(error) => return differs(place, error.to_string(), "an exchange"),
        }
    }
    Ok(entries)
}

/// Which exchanges of a run's spec have no receipt.
struct WithoutReceipt {
    /// With fewer answers a step is done again.
    least: usize,
    /// How often.
    repeats: usize,
    /// How often a budget may refuse an exchange.
    refusals: usize,
    /// Whether clients may be asked for a number before they are picked.
    polls: bool,
    /// The attempts at each step.
    attempts: BTreeMap<String, usize>,
}

impl WithoutReceipt {
    fn of(spec: &Value) -> Self {
        let faults = spec.get("faults");
        let number = |value: Option<&Value>| value.and_then(Value::as_u64).map(|n| n as usize);
        let stages = spec.get("stages").and_then(Value::as_sequence);
        let own = [spec].into_iter().chain(stages.into_iter().flatten());
        let fills: Vec<&Value> = own.filter_map(|of| of.get("parts")).collect();
        let has = |slot: &str| {
            let mut filled = fills.iter().filter_map(|parts| parts.get(slot));
            filled.any(|part| !part.is_null())
        };
        let spends = has("accountant") || spec.get("ledger").is_some_and(|of| !of.is_null());
        Self {
            least: number(faults.and_then(|of| of.get("min-answers"))).unwrap_or(1),
            repeats: number(faults.and_then(|of| of.get("if-too-few")?.get("repeat"))).unwrap_or(0),
            refusals: usize::from(spends) * fills.len(),
            polls: has("cohort"),
            attempts: BTreeMap::new(),
        }
    }

    /// Whether an exchange, which is not the next with a receipt, may have none.
    fn has(&mut self, entry: &JournalEntry) -> bool {
        if self.polls && (entry.question == SAMPLES || entry.up == Scalar::KIND) {
            return true;
        }
        if self.failed(entry) {
            let attempts = self.attempts.entry(entry.step.clone()).or_default();
            *attempts += 1;
            if *attempts <= self.repeats {
                return true;
            }
        }
        let refused = self.refusals > 0 && !entry.dropped.is_empty();
        self.refusals -= usize::from(refused);
        refused
    }

    /// Whether an exchange had too few answers.
    fn failed(&self, entry: &JournalEntry) -> bool {
        let dropped = entry.dropped.len();
        dropped > 0 && entry.clients.saturating_sub(dropped) < self.least
    }
}

/// Checks that the exchanges of the journal are those of the receipts, with their answers.
fn check_journal(
    folder: &Path,
    chain: &ReadChain,
    spec: &Value,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let entries = read_journal(folder, chain.end.is_some(), notes)?;
    let mut without = WithoutReceipt::of(spec);
    let hidden = spec.get("noise").and_then(Value::as_str) == Some("system");
    let due = chain.steps.iter();
    let mut due = due.filter_map(|line| Some((line, line.step.receipt.exchange.as_ref()?)));
    let mut next = due.next();
    let mut open = Vec::new();
    for (number, entry) in &entries {
        match next {
            Some((line, label))
                if (&line.step.receipt.step, label) == (&entry.step, &entry.question)
                    && !without.failed(entry) =>
            {
                if let Some(other) = unlike(line, entry, *number, hidden) {
                    return Err(other.into());
                }
                next = due.next();
            }
            _ if without.has(entry) => {}
            _ => open.push((number, entry)),
        }
    }
    if let (Some((line, _)), []) = (next, &open[..]) {
        return differs(JOURNAL, "no such exchange", line.place(None));
    }
    let Some((number, first)) = open.first() else {
        return Ok(());
    };
    let place = format!(
        "{JOURNAL}, line {number} ({}, exchange `{}`)",
        first.step, first.question
    );
    // an exchange gets its line before its receipt
    let last = **number == entries.len() && next.is_none() && chain.end.is_none();
    if !last {
        return differs(
            place,
            format!("{} exchanges without a receipt", open.len()),
            "one at most, the last, whose process was killed: lines were added, or the receipts were cut back, or are of another run",
        );
    }
    notes.push(format!(
        "{place} has no receipt: its process was killed, or the receipts were cut back"
    ));
    Ok(())
}

/// Returns the first answer that a line of the journal states otherwise than a receipt. `hidden`:
/// a journal may lack the answers because nothing repeats them.
fn unlike(line: &Line, entry: &JournalEntry, number: usize, hidden: bool) -> Option<Difference> {
    let inputs = &line.step.inputs;
    if inputs.is_empty() {
        return None;
    }
    let says = format!("as line {number} of journal.jsonl says");
    let other = |client: u32, found: String, due: String| Difference {
        place: line.place(Some(client)),
        found,
        expected: format!("{due}, {says}"),
    };
    let unequal = entry.answers.iter().find_map(|(client, due)| {
        let found = inputs.iter().find(|input| input.client == *client);
        let found = found.map(|input| input.answer.as_ref().unwrap_or(&input.sha256));
        let found = found.map_or("no answer", String::as_str);
        (!found.starts_with(due.as_str())).then(|| other(*client, found.into(), format!("{due}..")))
    });
    let listed = entry.clients <= LISTED && !(hidden && entry.digest.is_empty());
    let unlisted = || {
        let mut left = entry
            .answers
            .iter()
            .map(|(client, _)| client)
            .collect::<Vec<_>>();
        let extra = inputs.iter().find(|input| {
            let at = left.iter().position(|client| **client == input.client);
            at.map(|at| left.swap_remove(at)).is_none()
        });
        extra
            .filter(|_| listed)
            .map(|input| other(input.client, "an answer".into(), "none".into()))
    };
    unequal.or_else(unlisted)
}

/// Repeats the aggregations and releases whose messages were kept.
fn repeat(
    folder: &Path,
    (spec, text, resolved): (&Path, &[u8], &Value),
    steps: &[Line],
    (catalogue, known): (&Catalogue, bool),
    exec: SharedExecutor,
    all: &mut Verified,
) -> anyhow::Result<()> {
    let did = |line: &Line, step| line.step.receipt.did == step;
    let lacks = |line: &&Line| line.step.kept.is_none() && did(line, ServerStep::Aggregation);
    all.not_repeated = steps.iter().filter(lacks).count();
    let released = |line: &&Line| did(line, ServerStep::Release);
    all.releases = steps.iter().filter(released).count();
    all.secret_noise = resolved.get("noise").and_then(Value::as_str) == Some("system");
    if steps.iter().all(|line| line.step.kept.is_none()) {
        return Ok(());
    }
    let document = Document::parse(&spec.display().to_string(), text);
    // who made the folder does not say what its libraries may do here, unless the verifier knows
    // the key of that user
    let catalogue = catalogue.clone().for_foreign_specs(known);
    let catalogue = catalogue.with_plugins(&document).map_err(|mut refusal| {
        refusal.text += "; `fl verify` runs what a folder names in a sandbox; modules of Python only with --key, for a run that this key signed, and all outside of a sandbox with --isolate=false";
        refusal
    })?;
    let run = KeptRun {
        resolved,
        catalogue: &catalogue,
    };
    for line in steps {
        let Some(kept) = &line.step.kept else {
            continue;
        };
        let path = folder.join(&kept.path);
        let (again, number): (_, &mut usize) = match line.step.receipt.did {
            ServerStep::Release => (run.release(&path, line), &mut all.releases_repeated),
            _ => (run.aggregate(&path, line, &exec), &mut all.repeated),
        };
        again.with_context(|| format!("{}: repeating it from {}", line.place(None), kept.path))?;
        *number += 1;
    }
    Ok(())
}

/// Fails if a repeated step has another value than its receipt.
fn same(line: &Line, what: &str, found: &str, due: &str) -> anyhow::Result<()> {
    if found == due {
        Ok(())
    } else {
        differs(line.place(None), format!("{what} {found}"), due)
    }
}

/// Returns a hash as the receipt of a step has it.
fn shown(line: &Line, salt: &[u8; 32], hash: String) -> String {
    if line.step.salted {
        salted(salt, &hash)
    } else {
        hash
    }
}

/// A run whose messages were kept.
struct KeptRun<'a> {
    resolved: &'a Value,
    catalogue: &'a Catalogue,
}

impl KeptRun<'_> {
    fn release(&self, path: &Path, line: &Line) -> anyhow::Result<()> {
        let kept = KeptMessages::<ReleaseContext>::open(path)?;
        let (context, receipt) = (&kept.context, &line.step.receipt);
        same(line, "a release through", &context.slot, &receipt.slot)?;
        let mechanism: Box<dyn AnyMechanism> =
            self.make(Role::Privacy, &context.slot, &context.made)?;
        let (before, after) = release_again(mechanism, context)?;
        let hash = |of: &Erased| shown(line, &kept.salt, hex(&digest(&**of)));
        same(
            line,
            "numbers before the noise",
            &hash(&before),
            &receipt.before,
        )?;
        same(line, "the result", &hash(&after), &receipt.output)
    }

    fn aggregate(&self, path: &Path, line: &Line, exec: &SharedExecutor) -> anyhow::Result<()> {
        let step = &line.step;
        let mut kept = KeptMessages::<AggregationContext>::open(path)?;
        let salt = kept.salt;
        let context = kept.context.clone();
        same(line, "an aggregation in", &context.slot, &step.receipt.slot)?;
        let aggregator: Box<dyn AnyAggregator> =
            self.make(Role::Aggregator, &context.slot, &context.made)?;
        let of = aggregator.input();
        let mut inputs = Vec::new();
        let mut next = || -> anyhow::Result<Option<ClientMessage<Erased>>> {
            let Some((input, wire)) = kept.next_message()? else {
                return Ok(None);
            };
            let body = of.decode(&wire)?;
            let found = hex(&digest(&*body));
            if found != input.sha256 {
                return differs(line.place(Some(input.client)), found, &input.sha256);
            }
            let due = step.inputs.get(inputs.len()).filter(|due| **due != input);
            if let Some(due) = due {
                let place = line.place(Some(input.client));
                return differs(place, format!("{input:?}"), format!("{due:?}"));
            }
            let mail = ClientMessage {
                from: input.client,
                weight: input.weight,
                class_counts: input.class_counts.clone(),
                training_loss: input.training_loss,
                body,
            };
            inputs.push(input);
            Ok(Some(mail))
        };
        let mut mail = std::iter::from_fn(|| next().transpose());
        let out = aggregate_again(aggregator, &context, exec.clone(), &mut mail)?;
        // whatever the aggregator did not take
        for rest in mail {
            rest?;
        }
        let found = shown(line, &salt, inputs_hash(&inputs)?);
        same(line, "messages with the hash", &found, &step.inputs_sha256)?;
        let found = shown(line, &salt, hex(&digest(&*out)));
        same(line, "the result", &found, &step.receipt.output)
    }

    /// Makes the server's part in a slot of the run anew.
    fn make<P: BoxedPart>(
        &self,
        role: Role,
        slot: &str,
        made: &(Task, [u8; 32]),
    ) -> anyhow::Result<P> {
        let part = self.part(role, slot)?;
        let part = part.with_context(|| format!("spec.yaml has nothing for parts.{slot}"))?;
        let before = match role {
            Role::Aggregator => self.part(role, &BEFORE_AGGREGATOR)?,
            _ => None,
        };
        let (task, key) = made.clone();
        let made = BuildContext {
            task,
            stream: Stream::from_key(key),
        };
        let parts = Parts::new([Some(part), before].into_iter().flatten().collect());
        parts.build(role, slot, None, &made)
    }

    /// The server's part in a slot of the run, if it is filled.
    fn part(&self, role: Role, slot: &str) -> anyhow::Result<Option<SlotAssignment>> {
        let stages = self.resolved.get("stages");
        let (section, name) = match Stages::owner(slot) {
            Some((stage, name)) => (stages.and_then(|all| all.get(stage - 1)), name),
            None => (Some(self.resolved), slot),
        };
        let parts = section.and_then(|section| section.get("parts"));
        let filled = parts.and_then(|parts| parts.get(name));
        let part = match filled {
            Some(Value::Sequence(list)) => list.iter().find(|part| part.get("clients").is_none()),
            other => other,
        };
        let Some(mut settings) = part.and_then(Value::as_mapping).cloned() else {
            return Ok(None);
        };
        let name = settings.shift_remove("use");
        let name = name.as_ref().and_then(Value::as_str);
        let name = name.with_context(|| format!("parts.{slot} of spec.yaml has no `use`"))?;
        let found = self.catalogue.find(role, name);
        let decl = found.map_err(|why| anyhow!(why))?;
        Ok(Some(SlotAssignment {
            slot: slot.into(),
            clients: None,
            decl,
            settings: decl.read(&settings.into())?,
        }))
    }
}

/// The files in `folder`, by their names from there.
fn files(folder: &Path, below: &str) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    let here = folder.join(below);
    let what = || format!("reading {}", here.display());
    for entry in fs::read_dir(&here).with_context(what)? {
        let entry = entry.with_context(what)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = match below {
            "" => name,
            below => format!("{below}/{name}"),
        };
        if entry.file_type().with_context(what)?.is_dir() {
            all.extend(files(folder, &name)?)
        } else {
            all.push(name)
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_hashed_once_and_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            fs::write(&path, "abc").unwrap();
            FileHash {
                path: name.into(),
                ..FileHash::of(&path).unwrap()
            }
        };
        let (a, b) = (file("a"), file("b"));
        let mut files = FilesLeft {
            folder: dir.path(),
            seen: BTreeSet::new(),
            bytes: 5,
        };
        files.check(&a, "a line").unwrap();
        for (file, due) in [
            (a.clone(), "\"a\" is named twice"),
            (b, "found more than 64 GiB of files"),
            (
                FileHash {
                    path: "./a".into(),
                    ..a.clone()
                },
                "is no name",
            ),
            (
                FileHash {
                    path: "a\nb".into(),
                    ..a.clone()
                },
                "\"a\\nb\" is no name",
            ),
            (
                FileHash {
                    path: "../a".into(),
                    ..a
                },
                "is no name",
            ),
        ] {
            let error = files.check(&file, "a line").unwrap_err().to_string();
            assert!(error.contains(due), "{error}");
        }
    }
}
