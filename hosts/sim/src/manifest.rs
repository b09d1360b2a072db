//! [`Manifest`]: `run.json`, the inputs of a run. It is not part of the digest.

use anyhow::{Context, ensure};
use fl_core::Result;
use fl_core::regular_file::{MOST_LINE, MOST_TEXT, read_regular};
use fl_files::FileHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::SystemTime;

/// Its name in the run folder.
pub(crate) const FILE: &str = "run.json";

/// One process that worked on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Version of fl.
    pub version: String,
    /// Its start: UTC, RFC 3339.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// The processor ([`processor`]); empty in a folder of an older fl.
    #[serde(default)]
    pub processor: String,
    /// The machine ([`machine`]); empty in a folder of an older fl.
    #[serde(default)]
    pub machine: String,
    /// What a reader should know of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether it stopped at a checkpoint and released nothing after it; a process that was killed
    /// did not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// Names this processor's family, and those of its instructions that fl chooses kernels by. Results
/// do not depend on them, except where a loaded part's do.
pub fn processor() -> String {
    let mut name = std::env::consts::ARCH.to_string();
    #[cfg(target_arch = "x86_64")]
    for (found, feature) in [
        (std::arch::is_x86_feature_detected!("avx2"), " avx2"),
        (std::arch::is_x86_feature_detected!("fma"), " fma"),
        (std::arch::is_x86_feature_detected!("avx512f"), " avx512f"),
    ] {
        name += if found { feature } else { "" };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        name += " neon";
    }
    name
}

/// Names the model of this machine's processor and counts its cores: `AMD EPYC 7B13, 2 cores`.
/// Where the system names no model, [`processor`] stands for it. Seconds depend on it, results do
/// not.
pub fn machine() -> String {
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| {
        let (key, model) = line.split_once(':')?;
        let words: Vec<&str> = model.split_whitespace().take(MODEL_WORDS).collect();
        (key.trim() == "model name" && !words.is_empty()).then(|| words.join(" "))
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let s = if cores == 1 { "" } else { "s" };
    format!("{}, {cores} core{s}", model.unwrap_or_else(processor))
}

/// The most words of a processor's model.
const MODEL_WORDS: usize = 12;

/// Formats a time in UTC by RFC 3339; `None` before 1970 or after 9999, when the clock must be
/// wrong.
pub fn time(of: SystemTime) -> Option<String> {
    let since = of.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since.as_secs() <= LATEST).then(|| humantime::format_rfc3339_seconds(of).to_string())
}

/// The last second of the year 9999, since 1970.
const LATEST: u64 = 253_402_300_799;

impl Session {
    /// Describes this process now; without a time if the clock is wrong.
    pub fn now(version: &str, command: &[String]) -> Self {
        Self {
            version: version.into(),
            started: time(SystemTime::now()).unwrap_or_default(),
            command: command.to_vec(),
            processor: processor(),
            machine: machine(),
            notes: Vec::new(),
            stopped: false,
        }
    }
}

/// The inputs of a run: a repetition needs the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version, date and command line.
    #[serde(flatten)]
    pub begun: Session,
    /// The seed.
    pub seed: u64,
    /// What the user calls its protocol, if that is another name of it, such as `fedper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// SHA-256 of `spec.yaml`.
    pub spec_sha256: String,
    /// Every loaded library.
    pub libraries: Vec<FileHash>,
    /// Every data file, without its hash once the run is done and has a keyed one.
    pub data: Vec<FileHash>,
    /// The hash of data files of which nobody may check a guess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keyed: Option<KeyedHash>,
    /// Its rows and all that it may spend, if the run has an accountant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub book: Option<serde_json::Value>,
    /// What the inputs and outputs of its models stand for; none in a folder of an older fl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<serde_json::Value>,
    /// The processes that resumed it.
    pub resumed: Vec<Session>,
}

impl Manifest {
    /// Describes a run with the resolved spec `spec`.
    pub fn new(
        begun: Session,
        seed: u64,
        spec: &str,
        libraries: Vec<FileHash>,
        data: Vec<FileHash>,
    ) -> Self {
        Self {
            begun,
            seed,
            method: None,
            spec_sha256: fl_core::hex(&Sha256::digest(spec)),
            libraries,
            data,
            keyed: None,
            book: None,
            meaning: None,
            resumed: Vec::new(),
        }
    }

    /// Withholds the hashes of data files once the run is done: who can guess a file could check
    /// the guess. One hash with this secret takes their place. No two runs have one `nonce`.
    pub fn withhold_data(&mut self, secret: [u8; 32], nonce: String) {
        self.keyed = Some(KeyedHash::new(secret, nonce, &self.data));
    }

    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let text = read_regular(&path, MOST_LINE)
            .with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Checks that the finished run in `folder` has the present inputs `now`. Skips data files that
    /// are not present `now`.
    ///
    /// # Errors
    /// If it has another spec, other libraries or other files.
    pub fn is_of(&self, folder: &Path) -> Result<()> {
        let then = Self::read(folder)?;
        let here = folder.display();
        let spec =
            read_regular(&folder.join("spec.yaml"), MOST_TEXT).context("reading spec.yaml")?;
        let spec = fl_core::hex(&Sha256::digest(spec));
        ensure!(
            then.spec_sha256 == self.spec_sha256 && spec == self.spec_sha256,
            "the run in {here} is of another spec: it was resumed with other settings, or changed"
        );
        same("libraries", &then.libraries, &self.libraries, folder)?;
        if self.data.is_empty() {
            Ok(())
        } else {
            then.same_data(self, folder)
        }
    }

    /// Checks that this run has the data files of `now`.
    fn same_data(&self, now: &Self, folder: &Path) -> Result<()> {
        let (then, key) = match (&self.keyed, &now.keyed) {
            (Some(then), Some(now)) if self.is_withheld() => (then, now),
            _ => return same("data files", &self.data, &now.data, folder),
        };
        let here = folder.display();
        if then.key != key.key {
            log::info!(
                "note: the data files of the run in {here} are not compared with those that are here: their hash has the key of another user, or of another machine"
            );
            return Ok(());
        }
        ensure!(
            then.sha256 == KeyedHash::new(key.secret, then.nonce.clone(), &now.data).sha256,
            "the run in {here} was begun with other data files: one of {} was not the same; restore it, or start a new run",
            paths(&now.data)
        );
        Ok(())
    }

    fn is_withheld(&self) -> bool {
        self.data.iter().any(|file| file.sha256.is_empty())
    }

    /// Removes the hashes of the data files of the run in `folder`, if they are to be withheld.
    pub(crate) fn forget_data(folder: &Path) -> Result<()> {
        let mut all = Self::read(folder)?;
        if all.keyed.is_none() {
            return Ok(());
        }
        all.data.iter_mut().for_each(|file| file.sha256.clear());
        all.write(folder)
    }

    /// Returns what the models in the run folder `folder` learnt; `None` if it is no run folder, or
    /// that of an older fl.
    ///
    /// # Errors
    /// If it is one, and cannot be read.
    pub fn meaning_in(folder: &Path) -> Result<Option<serde_json::Value>> {
        if folder.join(FILE).is_file() {
            Ok(Self::read(folder)?.meaning)
        } else {
            Ok(None)
        }
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let path = folder.join(FILE);
        // while the run goes on, who can guess a data file could check the guess by its hash
        if self.book.is_some() {
            fl_files::write_secret(&path, &text)
        } else {
            fl_files::write_unlinked(&path, &text)
        }
    }

    /// Records that this process stops at a checkpoint.
    pub(crate) fn stops(folder: &Path) -> Result<()> {
        let mut all = Self::read(folder)?;
        let last = all.resumed.last_mut().unwrap_or(&mut all.begun);
        last.stopped = true;
        all.write(folder)
    }

    /// Returns the process that last worked on the run.
    pub(crate) fn last(&self) -> &Session {
        self.resumed.last().unwrap_or(&self.begun)
    }

    /// Returns the processor that last worked on the run, if it is not that of `now`.
    pub(crate) fn other_processor(&self, now: &Self) -> Option<&str> {
        let last = &self.last().processor[..];
        (!last.is_empty() && last != now.begun.processor).then_some(last)
    }

    /// Checks that a run that began with `self` may resume with `now`: its other half must belong
    /// to the same run.
    pub(crate) fn goes_on_with(&self, now: &Self, folder: &Path) -> Result<()> {
        let here = folder.display();
        let (then, version) = (&self.begun.version, &now.begun.version);
        ensure!(
            minor(then) == minor(version),
            "the run in {here} was begun by fl {then}, and this is fl {version}; resume it with that version, or start a new run"
        );
        same("libraries", &self.libraries, &now.libraries, folder)?;
        self.same_data(now, folder)
    }
}

/// A hash of data files with a secret. Without the secret it tells nothing, also beside that of
/// another run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyedHash {
    /// Names the secret.
    key: String,
    nonce: String,
    sha256: String,
    #[serde(skip)]
    secret: [u8; 32],
}

impl KeyedHash {
    fn new(secret: [u8; 32], nonce: String, files: &[FileHash]) -> Self {
        let mut all = Sha256::new_with_prefix(secret).chain_update(&nonce);
        files.iter().for_each(|file| all.update(&file.sha256));
        let name = Sha256::new_with_prefix(secret).chain_update("name");
        Self {
            key: fl_core::hex(&name.finalize()),
            nonce,
            sha256: fl_core::hex(&all.finalize()),
            secret,
        }
    }
}

/// Returns `1.2` of `1.2.3`.
fn minor(version: &str) -> Vec<&str> {
    version.splitn(3, '.').take(2).collect()
}

fn paths(all: &[FileHash]) -> String {
    match all {
        [] => "none".into(),
        all => {
            let all: Vec<&str> = all.iter().map(|file| &file.path[..]).collect();
            all.join(", ")
        }
    }
}

/// Checks for the same bytes in the same order, at any paths.
fn same(what: &str, then: &[FileHash], now: &[FileHash], folder: &Path) -> Result<()> {
    let here = folder.display();
    for (then, now) in then.iter().zip(now) {
        ensure!(
            then.sha256 == now.sha256,
            "the run in {here} was begun with other {what}: {} has sha256 {}, and {} had {}; restore it, or start a new run",
            now.path,
            now.sha256,
            then.path,
            then.sha256
        );
    }
    ensure!(
        then.len() == now.len(),
        "the run in {here} was begun with other {what}: {}; now there are {}",
        paths(then),
        paths(now)
    );
    Ok(())
}

#[cfg(test)]
mod clock_tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_clock_that_is_wrong_has_no_time() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(time(epoch).unwrap(), "1970-01-01T00:00:00Z");
        let last = epoch + Duration::from_secs(LATEST);
        assert_eq!(time(last).unwrap(), "9999-12-31T23:59:59Z");
        assert_eq!(time(last + Duration::from_secs(1)), None);
        assert_eq!(time(epoch - Duration::from_nanos(1)), None);
        assert_eq!(time(epoch - Duration::from_secs(1 << 40)), None);
    }
}
