//! A run that was stopped: found whole before anything of it is changed.

use crate::disk::{self, Lock};
use crate::folder::{Checkpoint, JOURNAL, METRICS, REPORT, Resumed, RunFolder, SPEC, STATE};
use crate::manifest::Manifest;
use crate::shelf::Shelf;
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

/// A stopped run that is this process's to go on with. Nothing in its folder has been changed yet, and nothing is if it is
/// dropped.
pub struct Paused {
    path: PathBuf,
    lock: Lock,
    manifest: Manifest,
    saved: Checkpoint,
    clients: Shelf,
    journal: File,
    metrics: File,
}

impl Paused {
    /// Takes the run in the folder `path`, and looks at all that is needed to go on.
    ///
    /// # Errors
    /// When it is no run folder, the run is done or in use, was never stopped at a checkpoint, or its files are damaged or
    /// have changed since.
    pub fn open(path: &Path) -> Result<Self> {
        let here = path.display();
        let state = path.join(STATE);
        let spec = fs::read_to_string(path.join(SPEC))
            .with_context(|| format!("{here} is not a run folder: reading {SPEC}"))?;
        ensure!(
            state.exists() || !path.join(REPORT).exists(),
            "the run in {here} is done; there is nothing to go on with"
        );
        let lock = Lock::take(path, false)?;
        let bytes = fs::read(&state)
            .with_context(|| format!("{here} has no checkpoint: reading {}", state.display()))?;
        let saved = checkpoint(&bytes, &state)?;
        ensure!(
            Sha256::digest(&spec).as_slice() == saved.spec,
            "{} has changed since the run began; restore it, or start anew",
            path.join(SPEC).display()
        );
        Ok(Self {
            manifest: Manifest::read(path)
                .with_context(|| format!("what the run in {here} was begun with is not known"))?,
            journal: lines(&path.join(JOURNAL), saved.journal)?,
            metrics: lines(&path.join(METRICS), saved.metrics)?,
            clients: Shelf::open(path, saved.clients.clone())?,
            path: path.into(),
            lock,
            saved,
        })
    }

    /// Steps that are complete.
    pub fn done(&self) -> usize {
        self.saved.done
    }

    /// Goes on with it, with what is here `now`. Lines of an unfinished step are taken back, and files that a crash left half
    /// written are removed.
    ///
    /// # Errors
    /// When the run was begun with another minor version, other libraries or other data files, and nothing has been changed;
    /// or when the folder cannot be written.
    pub fn go_on(mut self, now: Manifest) -> Result<(RunFolder, Resumed)> {
        self.manifest.goes_on_with(&now, &self.path)?;
        for (file, length) in [
            (&self.journal, self.saved.journal),
            (&self.metrics, self.saved.metrics),
        ] {
            file.set_len(length)
                .context("taking back the lines of the unfinished step")?;
        }
        self.clients.go_on()?;
        disk::tidy(&self.path)?;
        disk::tidy(&self.path.join("models"))?;
        self.manifest.resumed.push(now.begun);
        self.manifest.write(&self.path)?;
        let Checkpoint {
            spec,
            step,
            server,
            seconds,
            ..
        } = self.saved;
        let folder = RunFolder::of(self.path, spec, self.journal, self.metrics, self.lock);
        let resumed = Resumed {
            server,
            clients: self.clients,
            seconds,
            step,
        };
        Ok((folder, resumed))
    }
}

fn checkpoint(bytes: &[u8], state: &Path) -> Result<Checkpoint> {
    let (sum, body) = bytes
        .split_at_checked(32)
        .with_context(|| format!("{} is cut short", state.display()))?;
    ensure!(
        Sha256::digest(body).as_slice() == sum,
        "{} is damaged: its checksum does not match",
        state.display()
    );
    postcard::from_bytes(body)
        .with_context(|| format!("{} is of another version of fl", state.display()))
}

/// Opens a file of lines to add to, which has at least `length` bytes.
fn lines(path: &Path, length: u64) -> Result<File> {
    let what = || format!("opening {}", path.display());
    let file = OpenOptions::new()
        .append(true)
        .open(path)
        .with_context(what)?;
    let found = file.metadata().with_context(what)?.len();
    if found < length {
        bail!(
            "{} is cut short: it has {found} bytes, and had {length} when the run stopped; restore it, or start anew",
            path.display()
        );
    }
    Ok(file)
}
