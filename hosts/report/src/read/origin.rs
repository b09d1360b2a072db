//! What made a run: its version, processor, files and program.

use fl_core::regular_file::{MOST_TEXT, RegularLines};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::path::Path;

/// The origin of a run, from `run.json`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub version: String,
    pub started: String,
    pub spec_sha256: String,
    pub command: Vec<String>,
    pub processor: String,
    pub libraries: Vec<FileHash>,
    pub data: Vec<FileHash>,
    pub rows: Option<String>,
    pub resumed: Vec<ProcessSpan>,
    /// SHA-256 of the program, from the receipts.
    #[serde(skip)]
    pub program: String,
}

/// A process that went on with a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessSpan {
    pub version: String,
    pub processor: String,
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
        let each = |first: &String, of: fn(&ProcessSpan) -> &String| {
            let mut all: Vec<&str> = vec![first];
            all.extend(self.resumed.iter().map(|worked| &of(worked)[..]));
            all.dedup();
            all.join(", then ")
        };
        [
            ("set of data files", hashes(&self.data)),
            ("set of libraries", hashes(&self.libraries)),
            ("version of fl", each(&self.version, |w| &w.version)),
            ("processor", each(&self.processor, |w| &w.processor)),
            ("program", self.program.clone()),
        ]
    }

    /// Returns one of [`Origin::facts`].
    pub fn fact(&self, name: &str) -> String {
        let found = self.facts().into_iter().find(|(known, _)| *known == name);
        found.map_or(String::new(), |(_, value)| value)
    }
}

/// Returns the first digits of the hash of the program that made a run, if its receipts have it.
pub(super) fn program(folder: &Path) -> Option<String> {
    let mut lines = RegularLines::open(&folder.join("receipts.jsonl"), MOST_TEXT).ok()?;
    let line = lines.next_line().ok()??;
    let record: serde_json::Value = serde_json::from_slice(line.get(65..)?).ok()?;
    let hash = record["session"]["program"]["sha256"].as_str()?;
    Some(hash.get(..12)?.into())
}

/// A file and the hash of its content.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FileHash {
    pub path: String,
    pub sha256: String,
}

pub(super) fn sha256(text: &str) -> String {
    fl_core::hex(&Sha256::digest(text))
}
