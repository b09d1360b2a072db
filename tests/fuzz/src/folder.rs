//! Run folders, of which a file is not as it was.

use crate::bytes::Bytes;
use crate::spec::CATALOGUE;
use fl_core::{BuildContext, Problem, Result, RunOptions, Stream};
use fl_data::{Assembled, DataSpec};
use fl_registry::Spec;
use fl_sim::{Execution, Manifest, Outcome, ResumePoint, RunFolder, Session, Setup, StoppedRun};
use sha2::{Digest, Sha256};
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Control variates stay with the clients and with the server; the step after which it stops is one
/// of three.
const SPEC: &str = "
name: fuzz
data: { set: { blobs: { train: 24, test: 8 } }, clients: 3, split: iid }
protocol: { use: scaffold, rounds: 3, local: { epochs: 1, batch: 8 } }
parts:
  model: { use: linear, lr: 0.05 }
  aggregator: { use: mean, weigh: uniform }
checkpoint: { every: { rounds: 1 } }
";

struct Base {
    spec: Spec<DataSpec>,
    yaml: String,
    data: Assembled,
    /// Below its folder.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// What the whole run comes to.
    digest: String,
    scratch: TempDir,
}

thread_local! {
    static BASE: LazyCell<Base> = LazyCell::new(|| base().expect("a run"));
}

fn manifest(yaml: &str) -> Manifest {
    let mut begun = Session::now("0.1.0", &["fl".into()]);
    begun.started = "2026-01-01T00:00:00Z".into();
    Manifest::new(begun, 0, yaml, Vec::new(), Vec::new())
}

fn base() -> Result<Base> {
    let spec: Spec<DataSpec> = fl_registry::Document::parse("spec.yaml", SPEC.as_bytes())
        .read(&CATALOGUE)
        .map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
    let (yaml, scratch) = (spec.yaml()?, TempDir::new()?);
    let data = fl_data::build(&spec.data, Path::new(""), &Stream::root(0))?;
    let mut base = Base {
        spec,
        yaml,
        data,
        files: BTreeMap::new(),
        digest: String::new(),
        scratch,
    };
    let path = base.scratch.path().join("base");
    let folder = RunFolder::create(&path, &base.yaml, &manifest(&base.yaml))?;
    let stopped = go_on(&base, folder, None, Some(2))?;
    anyhow::ensure!(stopped.stopped.is_some(), "it goes on");
    collect(&path, &path, &mut base.files)?;
    // no process works on it, and no answer was cut off
    base.files.remove(Path::new("lock"));
    base.files.insert("answers".into(), Vec::new());
    base.digest = resumed(&base, &path, None)?.digest;
    fs::remove_dir_all(&path)?;
    Ok(base)
}

fn collect(top: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(top, &path, files)?
        } else {
            files.insert(path.strip_prefix(top)?.into(), fs::read(&path)?);
        }
    }
    Ok(())
}

fn go_on(
    base: &Base,
    folder: RunFolder,
    resumed: Option<ResumePoint>,
    stop_after: Option<usize>,
) -> Result<Outcome> {
    let (spec, data) = (&base.spec, base.data.clone());
    let make = BuildContext {
        task: data.task.clone(),
        stream: Stream::root(0).child("protocol", 0),
    };
    fl_sim::run(Setup {
        execution: Execution {
            stop_after,
            ..Execution::default()
        },
        folder: Some(folder),
        resumed,
        checkpoints: spec.checkpoints.clone(),
        ..Setup::new(
            Arc::from(spec.make_protocol(&make)?),
            spec.parts.clone(),
            RunOptions {
                faults: spec.faults.clone(),
                evaluate_every: spec.evaluate_every,
                ..RunOptions::new(spec.seed, data.task)
            },
            data.clients,
            data.test,
        )
    })
}

fn resumed(base: &Base, path: &Path, stop_after: Option<usize>) -> Result<Outcome> {
    let (folder, resumed) =
        StoppedRun::open(path, false)?.go_on(manifest(&base.yaml), &base.yaml)?;
    go_on(base, folder, resumed, stop_after)
}

/// The bytes say which file is changed, and how: a place, what is done there, and with what, as
/// often as they reach. The sums of what has sums are made right, so that what is behind them is
/// read. Says whether a file that only people read was changed.
fn edited(base: &Base, data: &[u8]) -> (PathBuf, bool) {
    let mut bytes = Bytes(data);
    let changed = bytes.of(base.files.len());
    let (name, whole) = base.files.iter().nth(changed).expect("a file");
    let mut file = whole.clone();
    let is = |other: &str| name == Path::new(other);
    let sum = if is("state") { 32 } else { 0 };
    while !bytes.is_empty() {
        let body = file.len() - sum;
        let at = sum + usize::from(bytes.number()) % body.max(1);
        let at = at.min(file.len());
        match bytes.byte() % 5 {
            0 if at < file.len() => file[at] = bytes.byte(),
            1 if at < file.len() => file[at] = file[at].wrapping_add(bytes.byte()),
            2 => file.truncate(at),
            3 => drop(file.splice(at..at, bytes.some().iter().copied())),
            _ => drop(file.drain(at..(at + bytes.of(64)).min(file.len()))),
        }
    }
    if is("state") {
        let sum = Sha256::digest(&file[32..]);
        file[..32].copy_from_slice(&sum);
    }
    if is("answers") {
        let mut record = (file.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(&Sha256::digest(&file));
        record.append(&mut file);
        file = record;
    }
    let path = base.scratch.path().join("edited");
    for (other, bytes) in &base.files {
        let there = path.join(other);
        let folder = there.parent().expect("a folder");
        fs::create_dir_all(folder).expect("a folder");
        fs::write(there, if other == name { &file } else { bytes }).expect("a file");
    }
    let lines = [
        "journal.jsonl",
        "metrics.jsonl",
        "costs.jsonl",
        "receipts.jsonl",
    ];
    let people = [&lines[..], &["run.json", "answers"]].concat();
    (path, people.iter().any(|name| is(name)) || file == *whole)
}

fn remove(path: &Path) {
    fs::remove_dir_all(path).expect("it was there");
}

/// Going on is refused, or comes to its end; to the same end, if what was changed is no part of the
/// state.
pub(crate) fn checkpoint(data: &[u8]) {
    BASE.with(|base| {
        let (path, same) = edited(base, data);
        match resumed(base, &path, None) {
            Ok(outcome) if same => assert_eq!(outcome.digest, base.digest, "another digest"),
            Ok(_) => {}
            Err(error) => {
                let stopped = matches!(error.downcast_ref(), Some(Problem::Stopped { .. }));
                assert!(!stopped, "nobody stopped it");
            }
        }
        remove(&path);
    });
}

/// A page, a table and a comparison are made of what can be read.
pub(crate) fn report(data: &[u8]) {
    BASE.with(|base| {
        let (path, _) = edited(base, data);
        if let Ok(run) = fl_report::Run::open(&path) {
            let compared = fl_report::compare(&run, &run);
            let apart = compared.parts.is_some() || !compared.only.is_empty();
            assert!(!apart, "a run is not like itself");
            let _ = compared.json().to_string();
            let began = 0.0;
            let _ = fl_report::tensorboard(&run, began, &mut Vec::new());
            let runs = [run];
            let _ = fl_report::csv(&runs, &mut Vec::new());
            let _ = fl_report::page(&runs);
        }
        remove(&path);
    });
}
