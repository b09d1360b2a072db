//! The run folder. Every file appears whole or not at all: written beside its place, synced, then renamed.

use crate::disk::{LOCK, Lock, write, write_secret};
use crate::manifest::{self, Manifest};
use crate::setup::Summary;
use crate::shelf::{Index, Shelf};
use anyhow::{Context, bail};
use fl_core::{Entry, Metric, Result, Stream};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

pub(crate) const SPEC: &str = "spec.yaml";
pub(crate) const JOURNAL: &str = "journal.jsonl";
pub(crate) const METRICS: &str = "metrics.jsonl";
pub(crate) const REPORT: &str = "report.md";
const OUTCOME: &str = "outcome.json";
/// The last checkpoint, as long as the run is not done.
pub(crate) const STATE: &str = "state";
/// The key of a run's noise, if it is the system's, as long as the run is not done: whoever has it can take the noise off.
const NOISE: &str = "noise-key";
const MODELS: &str = "models";

/// What a run leaves behind: `spec.yaml`, `run.json`, `journal.jsonl`, `metrics.jsonl`, `models/`, when it is done also
/// `outcome.json` and `report.md`, and `state` and `lock` as long as it is not. It is this process's alone while it lives.
pub struct RunFolder {
    path: PathBuf,
    spec: [u8; 32],
    journal: File,
    metrics: File,
    lock: Lock,
}

/// `state`: everything that a stopped run needs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// SHA-256 of `spec.yaml`.
    pub spec: [u8; 32],
    pub step: String,
    pub done: usize,
    /// Bytes of `journal.jsonl`.
    pub journal: u64,
    /// Bytes of `metrics.jsonl`.
    pub metrics: u64,
    pub server: Vec<u8>,
    pub clients: Index,
    pub seconds: f64,
}

/// Where a stopped run goes on.
pub struct Resumed {
    /// The server's state.
    pub server: Vec<u8>,
    /// Every client's state.
    pub(crate) clients: Shelf,
    /// Time already spent.
    pub seconds: f64,
    /// The last step that is complete.
    pub step: String,
}

impl RunFolder {
    /// Makes a new folder, or takes an empty one. `spec` is the resolved spec.
    ///
    /// # Errors
    /// When there is something in it already, or it cannot be written.
    pub fn create(path: &Path, spec: &str, manifest: &Manifest) -> Result<Self> {
        let what = || format!("making the run folder {}", path.display());
        fs::create_dir_all(path).with_context(what)?;
        if fs::read_dir(path).with_context(what)?.next().is_some() {
            bail!(
                "the run folder {} is not empty; name another with --out, or go on with --resume",
                path.display()
            );
        }
        Self::begin(path, spec, manifest)
    }

    /// The first of `NAME-1`, `NAME-2`, .. below `parent` that is not there yet: no two runs get the same.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create_next(parent: &Path, name: &str, spec: &str, manifest: &Manifest) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        let mut n = 1_u64;
        loop {
            let path = parent.join(format!("{name}-{n}"));
            match fs::create_dir(&path) {
                Ok(()) => return Self::begin(&path, spec, manifest),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => n += 1,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("making the run folder {}", path.display()));
                }
            }
        }
    }

    /// In an empty folder. Of two that find it empty, one gets the lock.
    fn begin(path: &Path, spec: &str, manifest: &Manifest) -> Result<Self> {
        let lock = Lock::take(path, true)?;
        let models = path.join(MODELS);
        fs::create_dir(&models).with_context(|| format!("making {}", models.display()))?;
        write(&path.join(SPEC), spec.as_bytes())?;
        manifest.write(path)?;
        let lines = |name: &str| {
            let file = path.join(name);
            let mut options = OpenOptions::new();
            options.create_new(true).append(true);
            options
                .open(&file)
                .with_context(|| format!("opening {}", file.display()))
        };
        let (journal, metrics) = (lines(JOURNAL)?, lines(METRICS)?);
        let spec = Sha256::digest(spec).into();
        Ok(Self::of(path.into(), spec, journal, metrics, lock))
    }

    pub(crate) fn of(
        path: PathBuf,
        spec: [u8; 32],
        journal: File,
        metrics: File,
        lock: Lock,
    ) -> Self {
        Self {
            path,
            spec,
            journal,
            metrics,
            lock,
        }
    }

    /// Removes a run that did not end, and that no process works on any more. Nothing is done if the folder is not there.
    ///
    /// # Errors
    /// When the run is in use, or is done, or it is no run folder, or cannot be removed.
    pub fn remove_unfinished(path: &Path) -> Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let here = path.display();
        let empty = fs::read_dir(path).is_ok_and(|mut all| all.next().is_none());
        if !empty && !path.join(SPEC).exists() && !path.join(LOCK).exists() {
            bail!("{here} is not a run folder: it has no {SPEC}");
        }
        if path.join(OUTCOME).exists() {
            bail!("the run in {here} is done");
        }
        let lock = Lock::take(path, false)?;
        fs::remove_dir_all(path).with_context(|| format!("removing {here}"))?;
        drop(lock);
        Ok(())
    }

    /// Takes away what [`RunFolder::create`] made: a run that failed before it did anything leaves nothing behind.
    pub(crate) fn discard(self) {
        // what cannot be removed stays; the run's own error is what matters
        for name in [SPEC, JOURNAL, METRICS, NOISE, manifest::FILE] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(self.path.join(MODELS));
        self.lock.remove();
        let _ = fs::remove_dir(&self.path);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn journal(&mut self, line: &impl Serialize) -> Result<()> {
        writeln!(self.journal, "{}", serde_json::to_string(line)?).context("writing journal.jsonl")
    }

    pub(crate) fn metric(&mut self, line: &impl Serialize) -> Result<()> {
        writeln!(self.metrics, "{}", serde_json::to_string(line)?).context("writing metrics.jsonl")
    }

    /// The journal and the metrics so far.
    pub(crate) fn lines(&self) -> Result<(Vec<Entry>, Vec<Metric>)> {
        fn all<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
            let text =
                fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            text.lines()
                .map(|line| {
                    serde_json::from_str(line)
                        .with_context(|| format!("a line of {}", path.display()))
                })
                .collect()
        }
        Ok((
            all(&self.path.join(JOURNAL))?,
            all(&self.path.join(METRICS))?,
        ))
    }

    pub(crate) fn model(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(&self.path.join(MODELS).join(name), bytes)
    }

    pub(crate) fn checkpoint(
        &self,
        done: usize,
        step: &str,
        server: Vec<u8>,
        clients: Index,
        seconds: f64,
    ) -> Result<()> {
        for file in [&self.journal, &self.metrics] {
            file.sync_all().context("syncing the journal")?;
        }
        let length = |file: &File| {
            file.metadata()
                .map(|m| m.len())
                .context("the length of the journal")
        };
        let (journal, metrics) = (length(&self.journal)?, length(&self.metrics)?);
        let body = postcard::to_stdvec(&Checkpoint {
            spec: self.spec,
            step: step.into(),
            done,
            journal,
            metrics,
            server,
            clients,
            seconds,
        })?;
        let mut bytes = Sha256::digest(&body).to_vec();
        bytes.extend_from_slice(&body);
        write(&self.path.join(STATE), &bytes)
    }

    /// The key of this run's noise: that of its beginning, which is `new` in a run that begins. What is released again after
    /// a stop has the same noise: two draws on the same numbers would cost twice.
    pub(crate) fn noise_key(&self, new: &Stream) -> Result<Stream> {
        let path = self.path.join(NOISE);
        match fs::read(&path) {
            Ok(key) => {
                let key = key.try_into().ok();
                let key = key.with_context(|| format!("{} is no key", path.display()))?;
                Ok(Stream::from_key(key))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                write_secret(&path, &new.key())?;
                Ok(new.clone())
            }
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// The run is complete: writes what it came to and the report, and the state is no longer needed.
    pub(crate) fn finish(self, report: &str, summary: &Summary) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(summary)?;
        text.push(b'\n');
        write(&self.path.join(OUTCOME), &text)?;
        write(&self.path.join(REPORT), report.as_bytes())?;
        for name in [STATE, NOISE] {
            match fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("removing {name} of a run that is done"));
                }
                _ => {}
            }
        }
        self.lock.remove();
        Ok(())
    }
}
