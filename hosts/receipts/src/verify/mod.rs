//! Checks a run by its receipts, without its data.

mod again;
mod chain;
mod files;
mod journal;
mod repeat;
mod steps;
mod streams;

use crate::kept_messages::MESSAGES;
use crate::receipt_log::RECEIPTS;
use crate::record::RunEnd;
use crate::session::program;
use anyhow::{Context, ensure};
use chain::{Line, ReadChain, check_clients, read_chain};
use files::{FilesLeft, files as names};
use fl_core::message::hex;
use fl_core::regular_file::{MOST_LINE, MOST_TEXT, read_regular, read_text};
use fl_core::{ServerStep, SharedExecutor};
use fl_registry::{Catalogue, Document};
use journal::check_journal;
use repeat::repeat;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use steps::check_steps;

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
    /// Receipts of answers that the protocol itself combined.
    pub collections: usize,
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
/// public key that must have signed it, in base64, and `client_keys` those that must have
/// countersigned it for these clients.
///
/// # Errors
/// [`Difference`] for the first thing that is not as the receipts say; another error if something
/// cannot be checked.
pub fn verify(
    folder: &Path,
    (key, client_keys): (Option<&str>, &BTreeMap<u32, String>),
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
    check_clients(client_keys, &chain.countersigned)?;
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
    let collection = |line: &&Line| line.step.receipt.did == ServerStep::Collection;
    let mut all = Verified {
        done,
        receipts: chain.steps.len(),
        collections: chain.steps.iter().filter(collection).count(),
        keys: std::mem::take(&mut chain.keys).into_iter().collect(),
        countersigned: std::mem::take(&mut chain.countersigned),
        notes: std::mem::take(&mut chain.notes),
        covered: vec![RECEIPTS.into(), "spec.yaml".into()],
        ..Verified::default()
    };
    let resolved = Document::values_of("spec.yaml", &text)?;
    let mut files_left = FilesLeft::new(folder, key.is_some());
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
    let failed = check_journal(folder, &chain, &resolved, &mut all.notes)?;
    check_steps(&chain, &resolved, catalogue)?;
    for line in &chain.steps {
        if let Some(kept) = &line.step.kept {
            files_left.check(kept, &line.place(None))?;
            all.covered.push(kept.path.clone());
        }
    }
    repeat(
        folder,
        (&spec, &text, &resolved),
        (&chain.steps, &failed),
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
    let mut there = names(folder, "")?;
    there.retain(|name| !covered.contains(name));
    all.not_covered = there;
    Ok(all)
}

/// Whether a folder has anything of this name.
fn there(folder: &Path, name: &str) -> bool {
    folder.join(name).symlink_metadata().is_ok()
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

/// The files that every run has that is done, and that then change no more; a session has the hash
/// of `spec.yaml`.
const OF_A_DONE_RUN: [&str; 6] = [
    "run.json",
    "journal.jsonl",
    "metrics.jsonl",
    "costs.jsonl",
    "report.md",
    "outcome.json",
];

/// Checks the files of a run that is done, and the digests that they state.
fn check_end(files: &mut FilesLeft<'_>, end: &RunEnd, all: &mut Verified) -> anyhow::Result<()> {
    for file in &end.files {
        files.check(file, "the end of the run")?;
        all.covered.push(file.path.clone());
    }
    let mut due: Vec<String> = OF_A_DONE_RUN.iter().map(ToString::to_string).collect();
    if there(files.folder, "ledger.json") {
        due.push("ledger.json".into());
    }
    for folder in ["models", "pictures"] {
        if there(files.folder, folder) {
            due.extend(names(files.folder, folder)?);
        }
    }
    due.retain(|name| !end.files.iter().any(|file| file.path == *name));
    if let Some(name) = due.first() {
        let due = "its SHA-256, which the end of a run has of each result";
        return differs(RECEIPTS, format!("no hash of {name}"), due);
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
