//! What a run needs.

use crate::external_clients::ExternalClients;
use crate::folder::{ResumePoint, RunFolder};
use crate::receipts::ReceiptOptions;
use fl_core::privacy::{Epsilons, Observer, Protections};
use fl_core::{
    Checkpoints, ClientId, Examples, Metric, Parts, PrivacyEvent, Protocol, Public, Result,
    RunOptions, StepCost, StopWhen,
};
use std::collections::BTreeMap;
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

/// Called after each step.
pub type OnStep<'a> = Box<dyn FnMut(StepReport<'_>) -> Next + 'a>;

/// A step that is done.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Its number; 0 if it runs once.
    pub number: usize,
    /// The number of rounds; 0 if unknown.
    pub of: usize,
    /// What was measured in it.
    pub metrics: &'a [Metric],
    /// The last measured score: accuracy, mAUC, or what the task has.
    pub accuracy: Option<f64>,
    /// Bytes and epsilon of the run so far, and the step's name.
    pub cost: &'a StepCost,
    /// Wall-clock seconds of the run so far.
    pub seconds: f64,
}

/// How a run goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// With the next step.
    GoOn,
    /// With what follows the rounds.
    EndRounds,
}

/// Called with warnings for the user.
pub type Warn<'a> = Box<dyn FnMut(&str) + 'a>;

/// Called with the data that an observer sees.
pub type Watch<'a> = Box<dyn FnMut(Observer, &str, &[u8]) + 'a>;

/// A record of what runs spend, which outlives a run.
pub trait SpendingRecord {
    /// Reserves all that the run may spend. Called before the first request of this process.
    ///
    /// # Errors
    /// If it may not be spent, or the record cannot be written; then no request is sent.
    fn reserve(&mut self) -> Result<()>;

    /// Records epsilon after an exchange or a step; `None` for an observer without a guarantee.
    ///
    /// # Errors
    /// If the record cannot be written.
    fn reached(&mut self, epsilons: &Epsilons) -> Result<()>;

    /// Records that the run stops at a checkpoint, without a release after it.
    ///
    /// # Errors
    /// If the record cannot be written.
    fn stop(&mut self) -> Result<()>;

    /// Records the releases of the server and of each client in a run that is done, and its
    /// guarantees.
    ///
    /// # Errors
    /// If the record cannot be written; the run can then resume.
    fn settle(
        &mut self,
        server: &[PrivacyEvent],
        clients: &BTreeMap<ClientId, Vec<PrivacyEvent>>,
        privacy: Option<&Protections>,
    ) -> Result<()>;
}

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
    /// When to end the rounds early.
    pub stop_when: Option<StopWhen>,
    /// How the run gives receipts, if it has a folder.
    pub receipts: ReceiptOptions,
    /// Where the run's spending is recorded, if anywhere.
    pub spending: Option<Box<dyn SpendingRecord + 'a>>,
    /// How to execute the run.
    pub execution: Execution<'a>,
}

/// How to execute a run. Results do not depend on it, unless `on_step` ends the rounds.
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
    /// Called after each step; it may end the rounds, as [`StopWhen`] does.
    pub on_step: Option<OnStep<'a>>,
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
            on_step: None,
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
            stop_when: None,
            receipts: ReceiptOptions::default(),
            spending: None,
            execution: Execution::default(),
        }
    }
}
