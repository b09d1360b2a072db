//! [`Setup`]: the inputs of a run. [`Outcome`]: its results.

use crate::external_clients::ExternalClients;
use crate::folder::{ResumePoint, RunFolder};
use anyhow::Context;
use fl_core::privacy::{Observer, Protections};
use fl_core::{Checkpoints, ClientId, Examples, Parts, Protocol, Public, Result, RunOptions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Called at the start of each step.
pub type Progress<'a> = Box<dyn FnMut(StepProgress<'_>) + 'a>;

/// A step that begins, and the progress of the run.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress<'a> {
    /// The step's name.
    pub step: &'a str,
    /// Its number.
    pub number: usize,
    /// The number of steps; 0 if unknown.
    pub of: usize,
    /// The last measured accuracy (mAUC with several labels).
    pub accuracy: Option<f64>,
    /// Bytes that have crossed so far, in both directions.
    pub bytes: u64,
}

/// Called with warnings for the user.
pub type Warn<'a> = Box<dyn FnMut(&str) + 'a>;

/// Called with the data that an observer sees.
pub type Watch<'a> = Box<dyn FnMut(Observer, &str, &[u8]) + 'a>;

/// The inputs of a run.
pub struct Setup<'a> {
    /// The run's name.
    pub name: &'a str,
    /// Name of the protocol.
    pub protocol_name: &'a str,
    /// The method.
    pub protocol: Arc<dyn Protocol>,
    /// Its parts.
    pub parts: Arc<Parts>,
    /// Seed, task, policies.
    pub options: RunOptions,
    /// Each client's examples. Clients without any take no part, unless the run has an accountant.
    pub clients: Vec<Examples>,
    /// Clients in other processes, if any; `clients` then holds the known facts about their data.
    pub elsewhere: Option<Box<dyn ExternalClients + 'a>>,
    /// The public data.
    pub public: Option<Public>,
    /// The test examples.
    pub test: Examples,
    /// The test examples of each client's own model, if not `test`: one entry per client, or empty.
    pub client_tests: Vec<Examples>,
    /// Statistics of clients' own rows that the data were made with, such as means for
    /// standardisation. All observers of a run see part of them, and nothing prices it.
    pub exposed: Vec<String>,
    /// A row that two clients have: no guarantee for one example is possible.
    pub twice: Option<String>,
    /// The folder for results.
    pub folder: Option<RunFolder>,
    /// Where a stopped run continues.
    pub resumed: Option<ResumePoint>,
    /// When to write checkpoints.
    pub checkpoints: Checkpoints,
    /// How to execute the run.
    pub execution: Execution<'a>,
}

/// How to execute a run. Results do not depend on it.
pub struct Execution<'a> {
    /// Number of clients that work at the same time.
    pub threads: usize,
    /// The limit on the program's memory, in bytes. Fewer clients work at once if another would
    /// exceed it. A quarter of it holds clients' states between requests; the rest of the states is
    /// on the disk until needed. Data, models at work and an aggregator's buffers stay in memory.
    /// `None`: all states stay in memory, and every thread works.
    pub memory: Option<u64>,
    /// Send every message through its wire form, as between processes.
    pub wire: bool,
    /// Stop after this many steps; the run can resume later.
    pub stop_after: Option<usize>,
    /// Once this is set, the run stops after the current step.
    pub stop: Arc<AtomicBool>,
    /// Called at the start of each step.
    pub progress: Progress<'a>,
    /// Called with warnings for the user.
    pub warn: Warn<'a>,
    /// Called with everything that an observer sees, in that order: a description, and its bytes.
    pub watch: Option<Watch<'a>>,
}

impl Default for Execution<'_> {
    /// Returns an execution on one thread, without a stop or callbacks.
    fn default() -> Self {
        Self {
            threads: 1,
            memory: None,
            wire: false,
            stop_after: None,
            stop: Arc::default(),
            progress: Box::new(|_| {}),
            warn: Box::new(|_| {}),
            watch: None,
        }
    }
}

impl Setup<'_> {
    /// Returns a run of these clients on one thread, without files or callbacks.
    pub fn new(
        protocol: Arc<dyn Protocol>,
        parts: Arc<Parts>,
        options: RunOptions,
        clients: Vec<Examples>,
        test: Examples,
    ) -> Self {
        Self {
            name: "run",
            protocol_name: "protocol",
            protocol,
            parts,
            options,
            clients,
            elsewhere: None,
            public: None,
            test,
            client_tests: Vec::new(),
            exposed: Vec::new(),
            twice: None,
            folder: None,
            resumed: None,
            checkpoints: fl_core::settings::defaults(),
            execution: Execution::default(),
        }
    }
}

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
    /// The last measurement of each kind; deviations over clients end in `.std`.
    pub metrics: BTreeMap<String, f64>,
    /// Bytes that crossed.
    pub bytes: Traffic,
    /// The guarantee against each observer, if the run has an accountant.
    pub privacy: Option<Protections>,
    /// Digest of all messages, answers, measurements and results.
    pub digest: String,
    /// Wall-clock seconds; a resumed run counts all parts.
    pub seconds: f64,
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
    /// Warnings to the user, and notes for the report only.
    pub notes: Vec<String>,
    /// Releases that no accountant covers, if there are any.
    pub unaccounted: Option<String>,
    /// Whether the folder keeps a state, so that the run can be extended.
    #[serde(default)]
    pub keeps: bool,
}

impl Outcome {
    /// Reads the summary of the finished run in a folder.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(crate::folder::OUTCOME);
        let what = || format!("reading {}", path.display());
        let text = crate::atomic_file::read(&path).with_context(what)?;
        let mut summary: serde_json::Value = serde_json::from_slice(&text).with_context(what)?;
        let mut outcome = summary["outcome"].take();
        // the file has `null` for values that are not finite
        let metrics: BTreeMap<String, Option<f64>> =
            serde_json::from_value(outcome["metrics"].take()).with_context(what)?;
        outcome["metrics"] = serde_json::json!({});
        let mut outcome: Self = serde_json::from_value(outcome).with_context(what)?;
        let number = |(name, value): (String, Option<f64>)| (name, value.unwrap_or(f64::NAN));
        outcome.metrics = metrics.into_iter().map(number).collect();
        Ok(outcome)
    }
}
