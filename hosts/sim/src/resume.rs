//! [`StoppedRun`]: a stopped run, checked completely before any change.

use crate::client_state_file::ClientStateFile;
use crate::event_log::EventLog;
use crate::folder::{
    COSTS, Checkpoint, LOGS, LogFiles, MODELS, REPORT, ResumePoint, RunFolder, SPEC, STATE,
    SavedPosition, remove_all, unfinished,
};
use crate::manifest::Manifest;
use crate::outcome::OUTCOME;
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use fl_core::regular_file::{MOST_BINARY, MOST_TEXT, read_regular};
use fl_files::{AppendLog, Lock};
use fl_receipts::{RECEIPTS, ReceiptLog, SigningKey, locked};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A stopped run that this process may resume. Its folder is unchanged so far, and stays so if this
/// is dropped.
pub struct StoppedRun {
    path: PathBuf,
    lock: Lock,
    manifest: Manifest,
    /// SHA-256 of `spec.yaml`.
    spec: [u8; 32],
    /// `None` if it was stopped before its first checkpoint.
    saved: Option<Checkpoint>,
    clients: ClientStateFile,
    files: LogFiles,
}

impl StoppedRun {
    /// Locks the run in the folder `path`, and checks everything needed to resume. With `more`,
    /// also accepts a finished run to extend by rounds.
    ///
    /// # Errors
    /// If it is no run folder, the run is done or in use, or its files are damaged or have changed
    /// since.
    pub fn open(path: &Path, more: bool) -> Result<Self> {
        let here = path.display();
        let state = path.join(STATE);
        let unborn = || {
            format!(
                "the run in {here} was ended before it began: nothing is lost, start it again with --out {here}"
            )
        };
        let spec =
            read_regular(&path.join(SPEC), MOST_TEXT).with_context(
                || match crate::folder::unborn(path) {
                    Ok(true) => unborn(),
                    _ => format!("{here} is not a run folder: reading {SPEC}"),
                },
            )?;
        // `outcome.json` comes last; an older fl did not write it
        let is_done =
            || path.join(REPORT).exists() && (path.join(OUTCOME).exists() || !state.exists());
        let done = || match (is_done(), state.exists()) {
            (false, _) => Ok(()),
            (true, true) if more => Ok(()),
            (true, true) => bail!(
                "the run in {here} is done; to give it more rounds, add --set protocol.rounds=N"
            ),
            (true, false) if more => {
                bail!(
                    "the run in {here} is done, and keeps no state to go on from; a run keeps none if its protocol has no setting that only counts rounds, after a single round, if `stop-when` ended its rounds or a stop fell after the last one, with `stages`, with an accountant, with `noise: system`, or with `checkpoint: {{ keep: false }}`"
                )
            }
            (true, false) => bail!("the run in {here} is done, and has no further step"),
        };
        done()?;
        fl_files::refuse_links(path)?;
        let lock = Lock::take(path)?;
        // its last process may have ended it in between
        done()?;
        let saved = fl_files::present(read_regular(&state, MOST_BINARY));
        let saved = saved.with_context(|| format!("reading {}", state.display()))?;
        let saved = saved.map(|bytes| Checkpoint::parse(&bytes, &state));
        let saved = saved.transpose()?;
        let begun = path.join(crate::manifest::FILE).exists();
        ensure!(begun || saved.is_some(), unborn());
        let hash: [u8; 32] = Sha256::digest(&spec).into();
        ensure!(
            saved.as_ref().is_none_or(|s| s.spec.contains(&hash)),
            "{} has changed since the run began; restore it, or start a new run",
            path.join(SPEC).display()
        );
        let manifest = Manifest::read(path)
            .with_context(|| format!("the run in {here} does not record what it began with"))?;
        for name in [COSTS, RECEIPTS] {
            ensure!(
                path.join(name).exists(),
                "the run in {here} has no {name}: an older fl began it, or the file was removed; start a new run"
            );
        }
        let mut known = saved.as_ref().map_or(BTreeMap::new(), |s| s.lines.clone());
        // the folder may be another's, and these files are cut
        if let Some(other) = known.keys().find(|name| !EventLog::is_name(name)) {
            bail!(
                "the checkpoint of the run in {here} names a file `{other}`, which no run writes"
            );
        }
        let receipts = ReceiptLog::open(path, known.remove(RECEIPTS))?;
        let names: BTreeSet<String> = known.keys().cloned().chain(LOGS.map(Into::into)).collect();
        let open = |name: String| {
            let log = AppendLog::open(path.join(&name), known.get(&name).copied())?;
            Ok((name, log))
        };
        let files = LogFiles {
            lines: names.into_iter().map(open).collect::<Result<_>>()?,
            of_listeners: Vec::new(),
            receipts: Arc::new(Mutex::new(receipts)),
        };
        let clients = saved.as_ref().map(|s| s.clients.clone());
        Ok(Self {
            manifest,
            files,
            clients: ClientStateFile::open(path, clients.unwrap_or_default())?,
            path: path.into(),
            lock,
            spec: hash,
            saved,
        })
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is this the text of its `spec.yaml`?
    pub fn is_of(&self, spec: &[u8]) -> bool {
        self.spec[..] == Sha256::digest(spec)[..]
    }

    /// Checks that a signed run goes on with its key.
    ///
    /// # Errors
    /// If `signer` is not that key.
    pub fn check_signer(&self, signer: Option<&SigningKey>) -> Result<()> {
        locked(&self.files.receipts).check_signer(signer)
    }

    /// Returns the number of complete steps; 0 if the run begins anew.
    pub fn done(&self) -> usize {
        self.saved.as_ref().map_or(0, |s| s.done)
    }

    /// Returns whether the number of rounds can still change, which is so until the last round is
    /// done.
    pub fn grows(&self) -> bool {
        self.saved
            .as_ref()
            .is_none_or(|s| s.place != SavedPosition::Last)
    }

    /// Returns whether it stopped at its checkpoint, with nothing released after it. A run that was
    /// killed may have released more.
    pub fn rests(&self) -> bool {
        self.saved.is_some() && self.manifest.last().stopped
    }

    /// Returns the processor that last worked on it, if it is not that of `now`.
    pub fn other_processor(&self, now: &Manifest) -> Option<&str> {
        self.manifest.other_processor(now)
    }

    /// Resumes it with the present inputs `now`, by the resolved spec `spec`: that of the run, or
    /// one with more rounds. Removes lines of an unfinished step, and incomplete files of a crash.
    /// A run without a checkpoint begins anew.
    ///
    /// # Errors
    /// If the run began with another minor version, other libraries or other data files (nothing
    /// has changed then), or the folder cannot be written.
    pub fn go_on(mut self, now: Manifest, spec: &str) -> Result<(RunFolder, Option<ResumePoint>)> {
        self.manifest.goes_on_with(&now, &self.path)?;
        let hash: [u8; 32] = Sha256::digest(spec).into();
        self.take_over(spec, hash)?;
        self.files.go_on()?;
        self.clients.go_on()?;
        remove_all(&unfinished(&self.path)?)?;
        let models = self.path.join(MODELS);
        fs::create_dir_all(&models).with_context(|| format!("making {}", models.display()))?;
        self.manifest.resumed.push(now.begun);
        self.manifest.spec_sha256 = now.spec_sha256;
        self.manifest.book = now.book;
        self.manifest.keyed = now.keyed;
        self.manifest.write(&self.path)?;
        let (path, lock) = (self.path, self.lock);
        let folder = RunFolder::of(path, vec![hash], self.files, lock);
        let clients = self.clients;
        let resumed = self.saved.map(|saved| ResumePoint { saved, clients });
        Ok((folder, resumed))
    }

    /// Replaces the spec by `spec`, if it differs. The run can resume after a kill at any point in
    /// here.
    fn take_over(&mut self, spec: &str, hash: [u8; 32]) -> Result<()> {
        // no result stands beside a spec that it is not of
        self.remove(OUTCOME)?;
        self.remove(REPORT)?;
        let there = self.path.join(SPEC);
        if read_regular(&there, MOST_TEXT).is_ok_and(|text| text != spec.as_bytes()) {
            if let Some(saved) = &mut self.saved {
                saved.spec.push(hash);
                saved.write(&self.path)?;
            }
            fl_files::write_unlinked(&there, spec.as_bytes())?;
            fl_files::sync(&self.path)?;
            self.remove(crate::partial_step::FILE)?;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        fl_files::remove(&self.path.join(name))
            .with_context(|| format!("removing {name} of a resumed run"))
    }
}
