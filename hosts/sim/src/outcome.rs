//! The result of a run, and `outcome.json`.

use anyhow::Context;
use fl_core::privacy::Protections;
use fl_core::{ClientId, Result};
use serde::{Deserialize, Serialize};
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

/// What a run came to.
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
    /// The last measurement of each kind; deviations over clients end in `.std`.
    pub metrics: BTreeMap<String, f64>,
    /// Bytes that crossed.
    pub bytes: Traffic,
    /// What is guaranteed against each observer, if somebody accounts.
    pub privacy: Option<Protections>,
    /// Digest of everything that was sent, answered, measured and kept.
    pub digest: String,
    /// Wall-clock seconds; a run that was stopped counts both parts.
    pub seconds: f64,
    /// The run folder.
    pub out: Option<String>,
    /// The step after which the run stopped, if it can go on.
    pub stopped: Option<String>,
}

/// `outcome.json`: what a run that is done came to, for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What it came to.
    pub outcome: Outcome,
    /// How many examples of each class (or label) each client holds; empty where somebody accounts
    /// for privacy.
    pub held: BTreeMap<ClientId, Vec<u32>>,
    /// What the user was told, and what only the report says.
    pub notes: Vec<String>,
    /// What nobody accounts for, if there is anything.
    pub unaccounted: Option<String>,
    /// Does the folder keep a state, so that the run can be given more rounds?
    #[serde(default)]
    pub keeps: bool,
}

impl Outcome {
    /// That of the run in a folder, which is done.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(OUTCOME);
        let what = || format!("reading {}", path.display());
        let text = crate::atomic_file::read(&path).with_context(what)?;
        let mut summary: serde_json::Value = serde_json::from_slice(&text).with_context(what)?;
        let mut outcome = summary["outcome"].take();
        // of what is not finite the file has `null`
        let metrics: BTreeMap<String, Option<f64>> =
            serde_json::from_value(outcome["metrics"].take()).with_context(what)?;
        outcome["metrics"] = serde_json::json!({});
        let mut outcome: Self = serde_json::from_value(outcome).with_context(what)?;
        let number = |(name, value): (String, Option<f64>)| (name, value.unwrap_or(f64::NAN));
        outcome.metrics = metrics.into_iter().map(number).collect();
        Ok(outcome)
    }
}
