//! The run folder. Every file appears whole or not at all: written beside its place, synced, then renamed.

use anyhow::{Context, bail, ensure};
use fl_core::{ClientId, Entry, Metric, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a file so that a crash leaves the old one or the new one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file stands in a folder")?;
    let what = || format!("writing {}", path.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(what)?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .with_context(what)?;
    file.persist(path).with_context(what)?;
    Ok(())
}

/// What a run leaves behind: `spec.yaml`, `journal.jsonl`, `metrics.jsonl`, `report.md`, `models/`, and `state/` as long as
/// it is not done.
pub struct RunFolder {
    path: PathBuf,
    spec: [u8; 32],
    journal: File,
    metrics: File,
}

/// `state/checkpoint`: everything that a stopped run needs.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    /// SHA-256 of `spec.yaml`.
    spec: [u8; 32],
    step: String,
    done: usize,
    journal: u64,
    metrics: u64,
    server: Vec<u8>,
    clients: BTreeMap<ClientId, Vec<u8>>,
    seconds: f64,
}

/// Where a stopped run goes on.
pub struct Resumed {
    /// The server's state.
    pub server: Vec<u8>,
    /// Every client's state.
    pub clients: BTreeMap<ClientId, Vec<u8>>,
    /// Time already spent.
    pub seconds: f64,
    /// The last step that is complete.
    pub step: String,
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

impl RunFolder {
    /// Makes a new folder; `spec` is the resolved spec.
    ///
    /// # Errors
    /// When there is something in it already, or it cannot be written.
    pub fn create(path: &Path, spec: &str) -> Result<Self> {
        if path.exists() {
            let full = fs::read_dir(path)
                .with_context(|| format!("the run folder {}", path.display()))?
                .next()
                .is_some();
            ensure!(
                !full,
                "the run folder {} is not empty; name another with --out, or go on with --resume",
                path.display()
            );
        }
        fs::create_dir_all(path.join("models"))
            .with_context(|| format!("making the run folder {}", path.display()))?;
        write(&path.join("spec.yaml"), spec.as_bytes())?;
        Self::open(path, spec)
    }

    /// Takes away what [`RunFolder::create`] made: a run that failed before it did anything leaves nothing behind.
    pub(crate) fn discard(self) {
        for name in ["spec.yaml", "journal.jsonl", "metrics.jsonl"] {
            // what cannot be removed stays; the run's own error is what matters
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(self.path.join("models")).and_then(|()| fs::remove_dir(&self.path));
    }

    fn open(path: &Path, spec: &str) -> Result<Self> {
        let (journal, metrics) = (
            append(&path.join("journal.jsonl"))?,
            append(&path.join("metrics.jsonl"))?,
        );
        Ok(Self {
            path: path.into(),
            spec: Sha256::digest(spec).into(),
            journal,
            metrics,
        })
    }

    /// The spec of the run in this folder.
    ///
    /// # Errors
    /// When there is none.
    pub fn spec(path: &Path) -> Result<String> {
        let file = path.join("spec.yaml");
        fs::read_to_string(&file).with_context(|| {
            format!(
                "{} is not a run folder: reading {}",
                path.display(),
                file.display()
            )
        })
    }

    /// Goes on with the run in this folder. Journal lines of an unfinished step are taken back.
    ///
    /// # Errors
    /// When the run is done already, was never stopped at a checkpoint, or its spec has changed since.
    pub fn resume(path: &Path) -> Result<(Self, Resumed)> {
        let spec = Self::spec(path)?;
        let state = path.join("state");
        let bytes = match fs::read(&state) {
            Ok(bytes) => bytes,
            Err(_) if path.join("report.md").exists() => bail!(
                "the run in {} is done; there is nothing to go on with",
                path.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "{} has no checkpoint: reading {}",
                        path.display(),
                        state.display()
                    )
                });
            }
        };
        let (sum, body) = bytes
            .split_at_checked(32)
            .with_context(|| format!("{} is cut short", state.display()))?;
        ensure!(
            Sha256::digest(body).as_slice() == sum,
            "{} is damaged: its checksum does not match",
            state.display()
        );
        let saved: Checkpoint = postcard::from_bytes(body)
            .with_context(|| format!("{} is of another version of fl", state.display()))?;
        let folder = Self::open(path, &spec)?;
        ensure!(
            saved.spec == folder.spec,
            "{} has changed since the run began; restore it, or start anew",
            path.join("spec.yaml").display()
        );
        for (file, length) in [
            (&folder.journal, saved.journal),
            (&folder.metrics, saved.metrics),
        ] {
            file.set_len(length)
                .context("taking back the lines of the unfinished step")?;
        }
        Ok((
            folder,
            Resumed {
                server: saved.server,
                clients: saved.clients,
                seconds: saved.seconds,
                step: saved.step,
            },
        ))
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
            all(&self.path.join("journal.jsonl"))?,
            all(&self.path.join("metrics.jsonl"))?,
        ))
    }

    pub(crate) fn model(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(&self.path.join("models").join(name), bytes)
    }

    pub(crate) fn checkpoint(
        &self,
        done: usize,
        step: &str,
        server: Vec<u8>,
        clients: BTreeMap<ClientId, Vec<u8>>,
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
        write(&self.path.join("state"), &bytes)
    }

    /// The run is complete: writes the report, and the state is no longer needed.
    pub(crate) fn finish(&self, report: &str) -> Result<()> {
        write(&self.path.join("report.md"), report.as_bytes())?;
        match fs::remove_file(self.path.join("state")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("removing the checkpoint of a run that is done")
            }
            _ => Ok(()),
        }
    }
}
