//! Checks a run by its receipts, without its data.

use crate::kept_messages::KeptMessages;
use crate::receipt_log::RECEIPTS;
use crate::record::{
    ReceiptRecord, ReceiptSession, RunEnd, StepReceipt, add_answers, countersigned_text,
    inputs_hash, salted, signed_text,
};
use crate::session::program;
use anyhow::{Context, anyhow, ensure};
use fl_core::message::{Erased, digest, hex};
use fl_core::regular_file::{MOST_BINARY, MOST_TEXT, RegularLines, read_regular, read_text};
use fl_core::settings::Value;
use fl_core::{
    AggregationContext, AnyAggregator, AnyMechanism, BEFORE_AGGREGATOR, BoxedPart, BuildContext,
    ClientMessage, JournalEntry, Parts, ReleaseContext, Role, ServerStep, SharedExecutor,
    SlotAssignment, Stages, Stream, Task, aggregate_again, release_again,
};
use fl_files::{ChainHash, FileHash, read_chained};
use fl_registry::{Catalogue, Document};
use minisign_verify::{PublicKey, Signature};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const JOURNAL: &str = "journal.jsonl";

/// The most bytes of the receipts, and of the journal beside them, that are read.
const MOST_RECEIPTS: u64 = 1 << 30;

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
    let done = folder.join("outcome.json").is_file();
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
    match &chain.end {
        Some(end) => check_end(folder, end, &mut all)?,
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
    check_journal(folder, &chain, &mut all.notes)?;
    for line in &chain.steps {
        if let Some(kept) = &line.step.kept {
            check_file(folder, kept, &line.place(None))?;
            all.covered.push(kept.path.clone());
        }
    }
    repeat(
        folder,
        (&spec, &text),
        &chain.steps,
        (catalogue, key.is_some()),
        exec,
        &mut all,
    )?;
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

/// Checks the hash of a file that `by` names.
fn check_file(folder: &Path, file: &FileHash, by: &str) -> anyhow::Result<()> {
    // a name in a receipt stays in the folder
    let plain = Path::new(&file.path)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    ensure!(plain, "{by}: `{}` is no name in the folder", file.path);
    let expected = || format!("the SHA-256 {} ({by})", file.sha256);
    match folder.join(&file.path).metadata() {
        Ok(about) if about.is_file() && about.len() > MOST_BINARY => {
            let found = format!("{} bytes, more than are hashed", about.len());
            return differs(&file.path, found, expected());
        }
        Ok(about) if about.is_file() => {}
        _ => return differs(&file.path, "no file", expected()),
    }
    let found = FileHash::of(&folder.join(&file.path))?.sha256;
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

/// Checks the files of a run that is done, and the digests that they state.
fn check_end(folder: &Path, end: &RunEnd, all: &mut Verified) -> anyhow::Result<()> {
    for file in &end.files {
        check_file(folder, file, "the end of the run")?;
        all.covered.push(file.path.clone());
    }
    let outcome = read_text(&folder.join("outcome.json")).context("reading outcome.json")?;
    let outcome: Json = serde_json::from_str(&outcome).context("reading outcome.json")?;
    let digest = outcome["outcome"]["digest"].as_str().unwrap_or_default();
    if digest != end.run {
        return differs("outcome.json", digest, format!("the digest {}", end.run));
    }
    let report = read_text(&folder.join("report.md")).context("reading report.md")?;
    if !report.contains(&end.run) {
        return differs(
            "report.md",
            "no such digest",
            format!("the digest {}", end.run),
        );
    }
    all.digest = Some(digest.into());
    Ok(())
}

/// Checks the answers of which the journal has the first bytes, and that each exchange of the
/// journal has a receipt.
fn check_journal(folder: &Path, chain: &ReadChain, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let path = folder.join(JOURNAL);
    let what = || format!("reading {}", path.display());
    let mut lines = RegularLines::open(&path, MOST_RECEIPTS).with_context(what)?;
    let (mut entries, mut number) = (Vec::new(), 0);
    while let Some(line) = lines.next_line().with_context(what)? {
        number += 1;
        if let Ok(entry) = serde_json::from_slice::<JournalEntry>(line) {
            entries.push((number, entry));
        }
    }
    let mut next = 0;
    for line in &chain.steps {
        let Some(label) = &line.step.receipt.exchange else {
            continue;
        };
        let of_step =
            |entry: &JournalEntry| entry.step == line.step.receipt.step && entry.question == *label;
        // a step that is repeated for too few answers has several
        let due = (next..entries.len()).filter(|at| of_step(&entries[*at].1));
        let mut first = None;
        let found = due.into_iter().find(|at| {
            let (number, entry) = &entries[*at];
            let other = unlike(line, entry, *number);
            let fits = other.is_none();
            first = first.take().or(other);
            fits
        });
        match (found, first) {
            (Some(at), _) => next = at + 1,
            (None, Some(first)) => return Err(first.into()),
            (None, None) => return differs(JOURNAL, "no such exchange", line.place(None)),
        }
    }
    // an exchange gets its line before its receipt, and the end of a run covers the whole journal
    let open = &entries[next.min(entries.len())..];
    let (Some((number, first)), None) = (open.first(), &chain.end) else {
        return Ok(());
    };
    let place = format!(
        "{JOURNAL}, line {number} ({}, exchange `{}`)",
        first.step, first.question
    );
    let one = |(_, entry): &(usize, JournalEntry)| {
        (&entry.step, &entry.question) == (&first.step, &first.question)
    };
    if !open.iter().all(one) {
        return differs(
            place,
            format!("{} exchanges without a receipt", open.len()),
            "one at most, whose process was killed: the receipts were cut back, or are of another run",
        );
    }
    notes.push(format!(
        "{place} has no receipt: its process was killed, or the receipts were cut back"
    ));
    Ok(())
}

/// Returns the first answer that a line of the journal states otherwise than a receipt.
fn unlike(line: &Line, entry: &JournalEntry, number: usize) -> Option<Difference> {
    let inputs = &line.step.inputs;
    entry.answers.iter().find_map(|(client, due)| {
        let found = inputs.iter().find(|input| input.client == *client);
        let found = found.map(|input| input.answer.as_ref().unwrap_or(&input.sha256));
        let found = match found {
            None if inputs.is_empty() => return None,
            None => "no answer".into(),
            Some(found) if found.starts_with(due.as_str()) => return None,
            Some(found) => found.clone(),
        };
        Some(Difference {
            place: line.place(Some(*client)),
            found,
            expected: format!("{due}.., as line {number} of journal.jsonl says"),
        })
    })
}

/// Repeats the aggregations and releases whose messages were kept.
fn repeat(
    folder: &Path,
    (spec, text): (&Path, &[u8]),
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
    let resolved: Value = serde_yaml::from_slice(text).context("spec.yaml")?;
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
        resolved: &resolved,
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
