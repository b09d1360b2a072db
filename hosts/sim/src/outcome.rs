//! The result of a run, and `outcome.json`.

use crate::releases::Releases;
use crate::unpriced::Unpriced;
use anyhow::Context;
use fl_core::privacy::Protections;
use fl_core::regular_file::{MOST_LINE, read_regular};
use fl_core::{ClientId, Result};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The file of a run's result in its folder.
pub(crate) const OUTCOME: &str = "outcome.json";

/// Bytes that crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// From clients to the server.
    pub up: u64,
    /// From the server to clients.
    pub down: u64,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The run's name.
    pub name: String,
    /// The seed.
    pub seed: u64,
    /// Name of the protocol.
    pub protocol: String,
    /// Steps done.
    pub rounds: usize,
    /// The last measurement of each kind; deviations over clients end in `.std`. A file has `null`
    /// for values that are not finite.
    #[serde(deserialize_with = "numbers")]
    pub metrics: BTreeMap<String, f64>,
    /// Bytes that crossed.
    pub bytes: Traffic,
    /// The guarantee against each observer, if the run has an accountant.
    pub privacy: Option<Protections>,
    /// Digest of all messages, answers, measurements and results.
    pub digest: String,
    /// Wall-clock seconds; a resumed run counts all parts. `None` to readers of a run with an
    /// accountant: clients with more data take longer.
    pub seconds: Option<f64>,
    /// The run folder.
    pub out: Option<String>,
    /// The step after which the run stopped, if it can resume.
    pub stopped: Option<String>,
}

/// `outcome.json`: the outcome of a finished run, for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The outcome.
    pub outcome: Outcome,
    /// Examples of each class (or label) at each client; empty with an accountant.
    pub held: BTreeMap<ClientId, Vec<u32>>,
    /// What a reader should know of the data.
    #[serde(default)]
    pub data_notes: Vec<String>,
    /// Warnings to the user, and notes for the report only.
    pub notes: Vec<String>,
    /// Releases that no accountant covers, if there are any.
    pub unaccounted: Option<String>,
    /// The releases that the guarantees in `outcome` price, if the run has an accountant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<Releases>,
    /// Whether the folder keeps a state, so that the run can be extended.
    #[serde(default)]
    pub keeps: bool,
}

impl Outcome {
    /// Returns what readers of the results see of it.
    pub fn for_readers(&self) -> Self {
        let unpriced = Unpriced::beside(self.privacy.is_some());
        Self {
            seconds: self.seconds.and_then(|seconds| unpriced.tell(|| seconds)),
            ..self.clone()
        }
    }

    /// Reads the summary of the finished run in a folder.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(OUTCOME);
        let what = || format!("reading {}", path.display());
        #[derive(Deserialize)]
        struct Stated {
            outcome: Outcome,
        }
        let text = read_regular(&path, MOST_LINE).with_context(what)?;
        let stated: Stated = serde_json::from_slice(&text).with_context(what)?;
        Ok(stated.outcome)
    }
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let all = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    let number = |(name, value): (String, Option<f64>)| (name, value.unwrap_or(f64::NAN));
    Ok(all.into_iter().map(number).collect())
}
