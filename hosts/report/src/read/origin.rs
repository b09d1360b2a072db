//! What made a run: its version, processor, files and program.

use fl_core::regular_file::{MOST_TEXT, RegularLines};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Names the data files among [`Origin::facts`].
const DATA: &str = "set of data files";

/// The origin of a run, from `run.json`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub version: String,
    pub started: String,
    pub method: Option<String>,
    pub spec_sha256: String,
    pub command: Vec<String>,
    pub processor: String,
    pub machine: String,
    pub libraries: Vec<FileHash>,
    pub data: Vec<FileHash>,
    /// There if the hashes of these files are withheld once the run is done.
    pub keyed: Option<serde::de::IgnoredAny>,
    pub book: Option<serde_json::Value>,
    pub resumed: Vec<ProcessSpan>,
    /// The first digits of the SHA-256 of each program, from the receipts.
    #[serde(skip)]
    pub program: String,
}

/// A process that went on with a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessSpan {
    pub version: String,
    pub processor: String,
    pub machine: String,
}

impl Origin {
    /// Names what made a run: each input, with its values in order.
    pub fn facts(&self) -> [(&'static str, String); 5] {
        let hashes = |files: &[FileHash]| {
            let all: Vec<&str> = files.iter().map(|file| &file.sha256[..]).collect();
            match &all[..] {
                [] => String::new(),
                [one] => one.chars().take(12).collect(),
                all => sha256(&all.join(" ")).chars().take(12).collect(),
            }
        };
        [
            (DATA, hashes(&self.data)),
            ("set of libraries", hashes(&self.libraries)),
            ("version of fl", self.each(&self.version, |w| &w.version)),
            ("processor", self.each(&self.processor, |w| &w.processor)),
            ("program", self.program.clone()),
        ]
    }

    /// Names what of [`Origin::facts`] differs, with both values; of one data file its name.
    pub fn apart(&self, other: &Self) -> Vec<(String, [String; 2])> {
        let facts = self.facts().into_iter().zip(other.facts());
        let apart = facts.filter(|((_, a), (_, b))| a != b);
        apart
            .map(|((name, a), (_, b))| match self.other_file(other) {
                Some(file) if name == DATA => file,
                _ => (name.into(), [a, b]),
            })
            .collect()
    }

    /// Names the data file that differs, with both hashes, if it is one.
    fn other_file(&self, other: &Self) -> Option<(String, [String; 2])> {
        let pairs = self.data.iter().zip(&other.data);
        let mut apart = pairs.filter(|(a, b)| a.sha256 != b.sha256);
        let (Some((a, b)), None) = (apart.next(), apart.next()) else {
            return None;
        };
        let hashes = [a, b].map(|file| file.sha256.chars().take(12).collect());
        let same = self.data.len() == other.data.len() && a.path == b.path;
        same.then(|| (format!("data file {}", a.path), hashes))
    }

    /// Joins what each process that worked on the run says.
    fn each(&self, first: &str, of: fn(&ProcessSpan) -> &String) -> String {
        let mut all: Vec<&str> = vec![first];
        all.extend(self.resumed.iter().map(|worked| &of(worked)[..]));
        all.dedup();
        all.join(", then ")
    }

    /// Returns model and cores of the processor.
    pub fn machine(&self) -> String {
        self.each(&self.machine, |w| &w.machine)
    }

    /// Returns one of [`Origin::facts`].
    pub fn fact(&self, name: &str) -> String {
        let found = self.facts().into_iter().find(|(known, _)| *known == name);
        found.map_or(String::new(), |(_, value)| value)
    }
}

/// Returns the first digits of the hash of the program that made a run, if its receipts have it; of
/// each, if several processes worked on it.
pub(super) fn program(folder: &Path, resumed: bool) -> String {
    let Ok(mut lines) = RegularLines::open(&folder.join("receipts.jsonl"), MOST_TEXT) else {
        return String::new();
    };
    let mut all: Vec<String> = Vec::new();
    while let Ok(Some(line)) = lines.next_line() {
        let json = line.get(65..).unwrap_or_default();
        if json.windows(9).any(|word| word == b"\"program\"") {
            let record: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
            let hash = record["session"]["program"]["sha256"].as_str();
            all.extend(hash.and_then(|hash| Some(hash.get(..12)?.to_string())));
        }
        if !resumed {
            break;
        }
    }
    all.dedup();
    all.join(", then ")
}

/// A file and the hash of its content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FileHash {
    pub path: String,
    pub sha256: String,
}

pub(super) fn sha256(text: &str) -> String {
    fl_core::hex(&Sha256::digest(text))
}
