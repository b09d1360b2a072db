//! [`RunFolder`]: the folder of a run. Every file appears complete or not at all: it is written
//! beside its place, synced, then renamed.

use crate::client_state_file::{ClientStateFile, Index};
use crate::event_log::EventLog;
use crate::manifest::{self, Manifest};
use crate::outcome::{OUTCOME, Summary};
use crate::partial_step;
use anyhow::{Context, bail, ensure};
use fl_core::regular_file::{MOST_LINE, RegularLines, read_regular};
use fl_core::{JournalEntry, Metric, Result, StepCost, StepPosition, Stream};
use fl_files::{
    AppendLog, FileHash, LOCK, Lock, LogPosition, UNFINISHED, write_secret, write_unlinked,
};
use fl_receipts::{MESSAGES, RECEIPTS, ReceiptLog, RunEnd, SharedReceipts, locked};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) const SPEC: &str = "spec.yaml";
pub(crate) const JOURNAL: &str = "journal.jsonl";
pub(crate) const METRICS: &str = "metrics.jsonl";
/// The total cost of the run after each step.
pub(crate) const COSTS: &str = "costs.jsonl";
pub(crate) const REPORT: &str = "report.md";
/// The last checkpoint; for a finished run that can be extended, the one before its last round.
pub(crate) const STATE: &str = "state";
/// The key of a run's system noise, until the run is done: it allows its holder to remove the
/// noise.
const NOISE: &str = "noise-key";
/// The name of a run in the ledger over runs.
pub const LEDGER: &str = "ledger.json";
pub(crate) const MODELS: &str = "models";
pub(crate) const PICTURES: &str = "pictures";

/// The files of a run: `spec.yaml`, `run.json`, `journal.jsonl`, `metrics.jsonl`, `costs.jsonl`,
/// `receipts.jsonl`, `models/`, `state`, `pictures/` if its method makes images, and `messages/` if
/// its spec keeps them. A finished run also has
/// `outcome.json` and `report.md`, an unfinished one `lock`. This process has the folder to itself
/// while it lives.
pub struct RunFolder {
    path: PathBuf,
    /// SHA-256 of `spec.yaml`; of two while one replaces the other.
    spec: Vec<[u8; 32]>,
    files: LogFiles,
    lock: Lock,
    /// SHA-256 of the key of the system's noise.
    noise: Option<[u8; 32]>,
}

/// The beginning of a `state` of this version, after its checksum; without it an older fl wrote the
/// file.
const FORMAT: &[u8] = b"fl-state-6\n";

/// The names of the logs that each run has, beside its receipts.
pub(crate) const LOGS: [&str; 3] = [JOURNAL, METRICS, COSTS];

/// The files of a run folder that only grow.
pub(crate) struct LogFiles {
    /// By name; also those of listeners that this process does not have.
    pub lines: BTreeMap<String, AppendLog>,
    /// Those of listeners.
    pub of_listeners: Vec<EventLog>,
    pub receipts: SharedReceipts,
}

impl LogFiles {
    /// Flushes all to the disk, and returns their positions.
    fn flush(&self) -> Result<BTreeMap<String, LogPosition>> {
        let mut positions = BTreeMap::new();
        for (name, log) in &self.lines {
            positions.insert(name.clone(), log.flush()?);
        }
        for log in &self.of_listeners {
            positions.extend(log.flush()?.map(|position| (log.name().into(), position)));
        }
        positions.insert(RECEIPTS.into(), locked(&self.receipts).flush()?);
        Ok(positions)
    }

    /// Removes everything behind the positions of the checkpoint.
    pub fn go_on(&self) -> Result<()> {
        self.lines.values().try_for_each(AppendLog::go_on)?;
        locked(&self.receipts).go_on()
    }
}

/// `state`: everything that a stopped run resumes from.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// SHA-256 of `spec.yaml`; of two while one replaces the other.
    pub spec: Vec<[u8; 32]>,
    pub step: String,
    pub done: usize,
    /// The position of the checkpointed step among the rounds.
    pub place: SavedPosition,
    /// The positions of the files that only grow, by name.
    pub lines: BTreeMap<String, LogPosition>,
    #[serde(with = "serde_bytes")]
    pub server: Vec<u8>,
    pub clients: Index,
    /// State of clients in other processes; empty if they live in this one.
    #[serde(with = "serde_bytes")]
    pub elsewhere: Vec<u8>,
    pub seconds: f64,
    /// The notes so far.
    pub notes: Vec<String>,
    /// The notes on the data, as they were read first.
    pub data_notes: Vec<String>,
    /// Cost of the checkpoints before this one.
    pub written: CheckpointCost,
    /// SHA-256 of the key of the system's noise, if the run has one.
    pub noise: Option<[u8; 32]>,
}

/// [`StepPosition`] in its serialised form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SavedPosition {
    #[default]
    Within,
    BeforeLast,
    Last,
}

impl From<StepPosition> for SavedPosition {
    fn from(place: StepPosition) -> Self {
        match place {
            StepPosition::Within | StepPosition::Outside => Self::Within,
            StepPosition::BeforeLast => Self::BeforeLast,
            StepPosition::Last => Self::Last,
        }
    }
}

/// The cost of checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckpointCost {
    /// Number of checkpoints.
    pub times: u64,
    /// Their total seconds.
    pub seconds: f64,
    /// Bytes of the last one.
    pub bytes: u64,
}

/// Where a stopped run continues.
pub struct ResumePoint {
    pub(crate) saved: Checkpoint,
    /// Every client's state.
    pub(crate) clients: ClientStateFile,
}

impl RunFolder {
    /// Makes a new folder, or takes an empty one. Leftovers of a run that was killed while it made
    /// its folder count as empty. `spec` is the resolved spec.
    ///
    /// # Errors
    /// If the folder is not empty, or cannot be written.
    pub fn create(path: &Path, spec: &str, manifest: &Manifest) -> Result<Self> {
        let what = || format!("making the run folder {}", path.display());
        let unborn = || -> Result<()> {
            if unborn(path).with_context(what)? {
                Ok(())
            } else {
                bail!(
                    "the run folder {} is not empty; name another with --out, or go on with --resume",
                    path.display()
                )
            }
        };
        fs::create_dir_all(path).with_context(what)?;
        unborn()?;
        fl_files::refuse_links(path)?;
        let lock = Lock::take(path)?;
        // another process may have begun, and even ended, in between
        unborn()?;
        Self::begin(path, spec, manifest, lock)
    }

    /// Makes `NAME-1` in `parent`, or the next after the last of `NAME-1`, `NAME-2`, .. there: no
    /// two runs get the same, and that of a removed one is not used again while a later one is there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create_next(parent: &Path, name: &str, spec: &str, manifest: &Manifest) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        let there = parent.read_dir();
        let there = there.with_context(|| format!("listing {}", parent.display()))?;
        let numbers = there.filter_map(|entry| {
            let found = entry.ok()?.file_name();
            let number = found.to_str()?.strip_prefix(name)?.strip_prefix('-')?;
            let n: u32 = number.parse().ok()?;
            (n.to_string() == number).then_some(n)
        });
        let mut n = 1 + u64::from(numbers.max().unwrap_or(0));
        loop {
            let path = parent.join(format!("{name}-{n}"));
            match fs::create_dir(&path) {
                Ok(()) => return Self::begin(&path, spec, manifest, Lock::take(&path)?),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => n += 1,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("making the run folder {}", path.display()));
                }
            }
        }
    }

    /// Begins a run in a folder without one. `run.json` is written last: the run has begun once it
    /// exists.
    fn begin(path: &Path, spec: &str, manifest: &Manifest, lock: Lock) -> Result<Self> {
        fl_files::tidy(path)?;
        let models = path.join(MODELS);
        fs::create_dir_all(&models).with_context(|| format!("making {}", models.display()))?;
        write_unlinked(&path.join(SPEC), spec.as_bytes())?;
        let files = LogFiles {
            lines: LOGS
                .into_iter()
                .map(|name| Ok((name.into(), AppendLog::create(path.join(name))?)))
                .collect::<Result<_>>()?,
            of_listeners: Vec::new(),
            receipts: Arc::new(Mutex::new(ReceiptLog::create(path)?)),
        };
        manifest.write(path)?;
        fl_files::sync(path)?;
        let spec = vec![Sha256::digest(spec).into()];
        Ok(Self::of(path.into(), spec, files, lock))
    }

    pub(crate) fn of(path: PathBuf, spec: Vec<[u8; 32]>, files: LogFiles, lock: Lock) -> Self {
        Self {
            path,
            spec,
            files,
            lock,
            noise: None,
        }
    }

    /// Removes an unfinished run that no process works on. Does nothing if the folder does not
    /// exist.
    ///
    /// # Errors
    /// If the run is in use or done, or the folder is no run folder or cannot be removed.
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
        let lock = Lock::take(path)?;
        fs::remove_dir_all(path).with_context(|| format!("removing {here}"))?;
        drop(lock);
        Ok(())
    }

    /// Removes the files of [`RunFolder::create`]: a run that failed before its first step leaves
    /// nothing behind.
    pub(crate) fn discard(self) {
        // a file that cannot be removed stays; the run's own error matters more
        let others = [
            RECEIPTS,
            SPEC,
            NOISE,
            LEDGER,
            partial_step::FILE,
            manifest::FILE,
        ];
        let of_listeners = self.files.of_listeners.iter().map(EventLog::name);
        for name in LOGS.into_iter().chain(of_listeners).chain(others) {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(self.path.join(MODELS));
        let _ = fs::remove_dir_all(self.path.join(MESSAGES));
        self.lock.remove();
        let _ = fs::remove_dir(&self.path);
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line into one of [`LOGS`].
    pub(crate) fn log(&mut self, name: &str, line: &impl Serialize) -> Result<()> {
        let log = self.files.lines.get_mut(name);
        log.with_context(|| format!("there is no {name}"))?
            .add(line)
    }

    /// Opens the log of a listener.
    pub(crate) fn open_log(&mut self, log: &EventLog) -> Result<()> {
        let name = log.name();
        let taken = || self.files.of_listeners.iter().any(|of| of.name() == name);
        ensure!(
            EventLog::is_name(name),
            "a listener's log is called `{name}`; give it a name such as `energy.jsonl`, without a folder"
        );
        ensure!(
            ![&LOGS[..], &[RECEIPTS]].concat().contains(&name) && !taken(),
            "a listener's log is called `{name}`, as another file of the run; give it another name"
        );
        log.open(&self.path, self.files.lines.remove(name))?;
        self.files.of_listeners.push(log.clone());
        Ok(())
    }

    /// Returns the journal, the metrics and the costs so far.
    pub(crate) fn lines(&self) -> Result<(Vec<JournalEntry>, Vec<Metric>, Vec<StepCost>)> {
        fn all<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
            let what = || format!("reading {}", path.display());
            // the checkpoint knows how long the file is
            let mut lines = RegularLines::open(path, u64::MAX).with_context(what)?;
            let mut all = Vec::new();
            while let Some(line) = lines.next_line().with_context(what)? {
                let line = serde_json::from_slice(line);
                all.push(line.with_context(|| format!("a line of {}", path.display()))?);
            }
            Ok(all)
        }
        let mut metrics: Vec<Metric> = all(&self.path.join(METRICS))?;
        // the file has `null` for values that are not finite, deviations included
        for metric in metrics.iter_mut().filter(|m| !m.each.is_empty()) {
            metric.std.get_or_insert(f64::NAN);
        }
        let journal = all(&self.path.join(JOURNAL))?;
        Ok((journal, metrics, all(&self.path.join(COSTS))?))
    }

    pub(crate) fn model(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_unlinked(&self.path.join(MODELS).join(name), bytes)
    }

    pub(crate) fn picture(&self, name: &str, png: &[u8]) -> Result<()> {
        let folder = self.path.join(PICTURES);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        write_unlinked(&folder.join(format!("{name}.png")), png)?;
        fl_files::sync(&folder)
    }

    /// Returns the names of its pictures.
    pub(crate) fn pictures(&self) -> Vec<String> {
        let there = fs::read_dir(self.path.join(PICTURES)).into_iter();
        let names = there.flatten().flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| name.ends_with(".png"));
        names.sort();
        names
    }

    /// Writes a durable checkpoint, with what the folder knows of the run; returns its bytes.
    pub(crate) fn checkpoint(&self, mut saved: Checkpoint) -> Result<u64> {
        saved.spec.clone_from(&self.spec);
        saved.lines = self.files.flush()?;
        saved.noise = self.noise;
        saved.write(&self.path)
    }

    /// Returns the source of this run's noise: the key from its beginning, which is `new` in a new
    /// run, and its spec. A release that is repeated after a stop has the same noise: two draws on
    /// the same numbers would cost twice.
    pub(crate) fn noise_key(
        &mut self,
        new: &Stream,
        resumed: Option<&ResumePoint>,
    ) -> Result<Stream> {
        let path = self.path.join(NOISE);
        let here = path.display();
        let key = match fl_files::read_own(&path) {
            Ok(key) => {
                let key = key.try_into().ok();
                Stream::from_key(key.with_context(|| format!("{here} is no key"))?)
            }
            Err(error) if error.kind() == ErrorKind::NotFound && resumed.is_none() => {
                write_secret(&path, &new.key())?;
                new.clone()
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("reading {here}: without the run's first key the noise of earlier releases would be drawn again")
                });
            }
        };
        let hash: [u8; 32] = Sha256::digest(key.key()).into();
        if let Some(begun) = resumed {
            ensure!(
                begun.saved.noise == Some(hash),
                "{here} is not the key of this run: the noise of earlier releases would be drawn again"
            );
        }
        self.noise = Some(hash);
        // two copies of a folder that resume with different specs must not draw the same noise for
        // different numbers
        let spec = self.spec.last().context("a run has a spec")?;
        let words = spec.chunks_exact(8);
        let words = words.map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        Ok(words.fold(key, |key, word| key.child("spec", word)))
    }

    /// Completes the run: writes the report, and last the outcome, which marks a run as done.
    /// Removes files that a finished run does not need. The caller removes the lock.
    pub(crate) fn finish(self, report: &str, summary: &Summary) -> Result<Lock> {
        let mut text = serde_json::to_vec_pretty(summary)?;
        text.push(b'\n');
        fl_files::sync(&self.path.join(MODELS))?;
        write_unlinked(&self.path.join(REPORT), report.as_bytes())?;
        Manifest::forget_data(&self.path)?;
        let end = RunEnd {
            run: summary.outcome.digest.clone(),
            files: self.final_files(&text)?,
        };
        locked(&self.files.receipts).end(end)?;
        write_unlinked(&self.path.join(OUTCOME), &text)?;
        fl_files::sync(&self.path)?;
        remove_all(&unneeded(&self.path)?)?;
        Ok(self.lock)
    }

    /// Returns the files that do not change once the run is done, with their hashes; `outcome` is
    /// the text of the one that is still to be written.
    fn final_files(&self, outcome: &[u8]) -> Result<Vec<FileHash>> {
        let fixed = [
            SPEC,
            manifest::FILE,
            JOURNAL,
            METRICS,
            COSTS,
            REPORT,
            LEDGER,
        ];
        let mut names: Vec<String> = fixed.iter().map(ToString::to_string).collect();
        names.retain(|name| self.path.join(name).is_file());
        for folder in [MODELS, PICTURES] {
            let there = fs::read_dir(self.path.join(folder)).into_iter();
            let there = there.flatten().flatten().map(|entry| entry.file_name());
            let there = there.filter_map(|name| name.into_string().ok());
            let there = there.filter(|name| !name.starts_with(UNFINISHED));
            names.extend(there.map(|name| format!("{folder}/{name}")));
        }
        let mut files = vec![FileHash {
            path: OUTCOME.into(),
            sha256: fl_core::hex(&Sha256::digest(outcome)),
        }];
        for name in names {
            let sha256 = FileHash::of(&self.path.join(&name))?.sha256;
            files.push(FileHash { path: name, sha256 });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Returns the chain of its receipts.
    pub(crate) fn receipts(&self) -> &SharedReceipts {
        &self.files.receipts
    }

    /// Returns whether the run in this folder is done.
    pub fn is_done(path: &Path) -> bool {
        path.join(REPORT).exists() && path.join(OUTCOME).exists()
    }

    /// Returns whether a finished run has leftovers except the lock, because its process was killed
    /// before it removed them. `elsewhere` is the folder of clients in other processes.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn has_leftovers(path: &Path, elsewhere: &str) -> Result<bool> {
        Ok(!leftovers(path, elsewhere)?.is_empty())
    }

    /// Completes the folder of a finished run: removes leftovers and calls `more`, with the folder
    /// locked.
    ///
    /// # Errors
    /// If the folder is in use or cannot be written, or `more` fails.
    pub fn complete(path: &Path, elsewhere: &str, more: impl FnOnce() -> Result<()>) -> Result<()> {
        fl_files::refuse_links(path)?;
        let lock = Lock::take(path)?;
        remove_all(&leftovers(path, elsewhere)?)?;
        more()?;
        lock.remove();
        Ok(())
    }
}

/// What is read of `outcome.json` to know whether the state stays.
#[derive(Deserialize)]
struct KeptState {
    keeps: Option<bool>,
}

/// Returns files of a finished run that only a resumed run needs. The key of the noise is never
/// needed again, and the state only if the run can be extended.
fn unneeded(path: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("reading {}", path.display());
    let outcome = read_regular(&path.join(OUTCOME), MOST_LINE).with_context(what)?;
    let outcome: KeptState = serde_json::from_slice(&outcome).with_context(what)?;
    // a folder of an older fl does not record it
    let keeps = outcome.keeps.unwrap_or(true);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).with_context(what)? {
        let entry = entry.with_context(what)?;
        let name = entry.file_name();
        let state = |name: &str| name == STATE || ClientStateFile::is_file_of(name);
        if let Some(name) = name.to_str()
            && ([NOISE, partial_step::FILE].contains(&name) || state(name) && !keeps)
        {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns these, incomplete files, and the folder of clients in other processes.
fn leftovers(path: &Path, elsewhere: &str) -> Result<Vec<PathBuf>> {
    let mut found = unneeded(path)?;
    // a run that keeps the state keeps the clients too
    let elsewhere = path.join(elsewhere);
    if elsewhere.is_dir() && !path.join(STATE).exists() | found.contains(&path.join(STATE)) {
        found.push(elsewhere);
    }
    found.extend(unfinished(path)?);
    Ok(found)
}

/// Returns the incomplete files that a crash left in a run folder.
pub(crate) fn unfinished(path: &Path) -> Result<Vec<PathBuf>> {
    let folders = ["", MODELS, PICTURES, MESSAGES].map(|name| path.join(name));
    let there = folders.iter().filter(|folder| folder.is_dir());
    let found = there.map(|folder| fl_files::unfinished(folder));
    Ok(found.collect::<Result<Vec<_>>>()?.concat())
}

pub(crate) fn remove_all(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        fl_files::remove(path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

impl Checkpoint {
    /// Replaces the previous checkpoint as a whole and durably; returns its bytes.
    pub(crate) fn write(&self, folder: &Path) -> Result<u64> {
        let body = [FORMAT, &postcard::to_stdvec(self)?].concat();
        let mut bytes = Sha256::digest(&body).to_vec();
        bytes.extend_from_slice(&body);
        write_secret(&folder.join(STATE), &bytes)?;
        fl_files::sync(folder)?;
        Ok(bytes.len() as u64)
    }

    /// Parses the checkpoint in `bytes`, read from `path`.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let here = path.display();
        let (sum, body) = bytes
            .split_at_checked(32)
            .with_context(|| format!("{here} is cut short"))?;
        ensure!(
            Sha256::digest(body).as_slice() == sum,
            "{here} is damaged: its checksum does not match"
        );
        let other = || {
            format!(
                "{here} is of another version of fl; resume it with that version, or start a new run"
            )
        };
        let body = body.strip_prefix(FORMAT).with_context(other)?;
        postcard::from_bytes(body).with_context(other)
    }
}

/// Returns whether a folder has nothing but leftovers of a run that was killed while it made it.
/// `lock` comes first, and only `run.json`, which comes last, shows that a run has begun.
pub(crate) fn unborn(folder: &Path) -> std::io::Result<bool> {
    let locked = folder.join(LOCK).exists();
    for entry in fs::read_dir(folder)? {
        let (entry, name) = entry.map(|e| (e.path(), e.file_name()))?;
        let name = name.to_string_lossy();
        let empty = || entry.metadata().is_ok_and(|about| about.len() == 0);
        let ours = match &*name {
            LOCK | SPEC => entry.is_file(),
            MODELS => entry.is_dir() && fs::read_dir(&entry)?.next().is_none(),
            JOURNAL | METRICS | COSTS | RECEIPTS => entry.is_file() && empty(),
            name => name.starts_with(UNFINISHED) && entry.is_file(),
        };
        if !ours || !locked {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Session, StoppedRun};

    /// Writes a checkpoint after the first round.
    fn checkpoint(folder: &RunFolder) {
        let saved = Checkpoint {
            done: 1,
            step: "round 1".into(),
            ..Checkpoint::default()
        };
        folder.checkpoint(saved).unwrap();
    }

    #[test]
    fn what_was_measured_and_is_no_number_does_not_end_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = || Manifest::new(Session::now("0", &[]), 1, "x", Vec::new(), Vec::new());
        let mut folder = RunFolder::create(&dir.path().join("r"), "x", &manifest()).unwrap();
        let metric = Metric {
            step: "round 1".into(),
            round: 1,
            name: "clients.accuracy".into(),
            value: f64::NAN,
            std: Some(f64::INFINITY),
            each: vec![0.5, f64::NAN],
            clients: vec![0, 1],
            confusion: Vec::new(),
        };
        folder.log(METRICS, &metric).unwrap();
        let text = fs::read_to_string(folder.path().join(METRICS)).unwrap();
        assert!(text.contains("\"value\":null"), "{text}");
        checkpoint(&folder);
        let path = folder.path().to_path_buf();
        drop(folder);
        let stopped = StoppedRun::open(&path, false).unwrap();
        assert!(stopped.is_of(b"x") && !stopped.is_of(b"y"));
        let (folder, _) = stopped.go_on(manifest(), "x").unwrap();
        let (_, metrics, _) = folder.lines().unwrap();
        assert!(metrics[0].value.is_nan() && metrics[0].each[1].is_nan());
        assert_eq!(metrics[0].each[0], 0.5);
        assert!(metrics[0].std.unwrap().is_nan());
    }

    #[test]
    fn a_resumed_run_has_no_line_of_a_listener_behind_its_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = || Manifest::new(Session::now("0", &[]), 1, "x", Vec::new(), Vec::new());
        let path = dir.path().join("r");
        let text = || fs::read_to_string(path.join("energy.jsonl")).unwrap();
        let resume = || {
            let stopped = StoppedRun::open(&path, false).unwrap();
            stopped.go_on(manifest(), "x").unwrap().0
        };
        let log = EventLog::new("energy.jsonl");
        // without a folder it writes nothing
        log.add(&0).unwrap();
        let mut folder = RunFolder::create(&path, "x", &manifest()).unwrap();
        folder.open_log(&log).unwrap();
        log.add(&1).unwrap();
        drop(folder);
        // no checkpoint knows it
        let mut folder = resume();
        folder.open_log(&log).unwrap();
        assert_eq!(text(), "");
        log.add(&2).unwrap();
        checkpoint(&folder);
        log.add(&3).unwrap();
        drop(folder);
        // a process without the listener keeps its lines, and so does its checkpoint
        let folder = resume();
        assert_eq!(text(), "2\n");
        checkpoint(&folder);
        drop(folder);
        let mut folder = resume();
        folder.open_log(&log).unwrap();
        log.add(&4).unwrap();
        assert_eq!(text(), "2\n4\n");
        for name in ["energy.jsonl", METRICS, "../x.jsonl", "energy"] {
            let error = folder.open_log(&EventLog::new(name)).unwrap_err();
            assert!(format!("{error:#}").contains(name), "{error:#}");
        }
    }

    #[test]
    fn noise_is_of_one_key_and_one_spec() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(Session::now("0", &[]), 1, "x", Vec::new(), Vec::new());
        let new = Stream::root(7);
        let noise = |name: &str, spec: &str, key: &Stream| {
            let path = dir.path().join(name);
            let mut folder = RunFolder::create(&path, spec, &manifest).unwrap();
            folder.noise_key(key, None).unwrap().key()
        };
        let first = noise("a", "rounds: 3", &new);
        assert_ne!(first, new.key());
        assert_eq!(first, noise("copy", "rounds: 3", &new));
        // a copy that is given more rounds, on which a plugin's numbers may depend
        assert_ne!(first, noise("longer", "rounds: 5", &new));
        assert_ne!(first, noise("other", "rounds: 3", &Stream::root(8)));
    }

    #[test]
    fn a_run_that_an_older_fl_began_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let manifest = Manifest::new(Session::now("0", &[]), 1, "x", Vec::new(), Vec::new());
        drop(RunFolder::create(&path, "x", &manifest).unwrap());
        let refused = || format!("{:#}", StoppedRun::open(&path, false).err().unwrap());
        // its state is complete, but in another format
        let body = postcard::to_stdvec(&("older", 1)).unwrap();
        let mut state = Sha256::digest(&body).to_vec();
        state.extend(&body);
        fs::write(path.join(STATE), &state).unwrap();
        let error = refused();
        assert!(
            error.contains(
                "state is of another version of fl; resume it with that version, or start a new run"
            ),
            "{error}"
        );
        // or it was stopped before it had a checkpoint
        fs::remove_file(path.join(STATE)).unwrap();
        fs::remove_file(path.join(COSTS)).unwrap();
        let error = refused();
        assert!(
            error.contains("has no costs.jsonl: an older fl began it, or the file was removed"),
            "{error}"
        );
    }
}
