//! What a run needs.

use crate::external_clients::ExternalClients;
use crate::folder::{ResumePoint, RunFolder};
use fl_core::privacy::Observer;
use fl_core::{Checkpoints, Examples, Parts, Protocol, Public, RunOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Told of each step that begins.
pub type Progress<'a> = Box<dyn FnMut(StepProgress<'_>) + 'a>;

/// A step that begins, and how far the run has come.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress<'a> {
    /// The step's name.
    pub step: &'a str,
    /// Which one it is.
    pub number: usize,
    /// How many there are; 0 if nobody knows.
    pub of: usize,
    /// The accuracy (mAUC with several labels) that was measured last.
    pub accuracy: Option<f64>,
    /// Bytes that have crossed so far, both ways.
    pub bytes: u64,
}

/// Told what the user should know.
pub type Warn<'a> = Box<dyn FnMut(&str) + 'a>;

/// Shown what an observer sees.
pub type Watch<'a> = Box<dyn FnMut(Observer, &str, &[u8]) + 'a>;

/// Everything that a run needs.
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
    /// What each client owns. Those who own nothing take no part, unless an accountant works.
    pub clients: Vec<Examples>,
    /// Where the clients live, if not in this process; `clients` then says what is known of their
    /// data.
    pub elsewhere: Option<Box<dyn ExternalClients + 'a>>,
    /// What everybody has.
    pub public: Option<Public>,
    /// What models are tested on.
    pub test: Examples,
    /// What each client's own model is tested on, if not on `test`: one per client, or empty.
    pub client_tests: Vec<Examples>,
    /// What the data have been made with of clients' own rows, such as means to standardise by:
    /// whoever sees a run sees something of it, and nothing prices it.
    pub exposed: Vec<String>,
    /// A row that two clients have: nothing is guaranteed for one example.
    pub twice: Option<String>,
    /// Where results go.
    pub folder: Option<RunFolder>,
    /// Where a stopped run goes on.
    pub resumed: Option<ResumePoint>,
    /// When the run is written down, so that it can go on.
    pub checkpoints: Checkpoints,
    /// How the run is executed.
    pub execution: Execution<'a>,
}

/// How a run is executed. Results do not depend on it.
pub struct Execution<'a> {
    /// Clients that are served at the same time.
    pub threads: usize,
    /// The number of bytes that the program may hold. Fewer clients work at once when another would
    /// exceed it. Of what clients keep between two requests, a quarter of it stays in memory; the
    /// rest goes to the disk until it is needed. Data, models at work and what an aggregator
    /// gathers stay. `None`: everything stays, and every thread works.
    pub memory: Option<u64>,
    /// Send every message through its wire form, as between processes.
    pub wire: bool,
    /// Stop after this many steps, so that the run can go on later.
    pub stop_after: Option<usize>,
    /// Once this is set, the run stops after the current step.
    pub stop: Arc<AtomicBool>,
    /// Called at the start of each step.
    pub progress: Progress<'a>,
    /// Called with what the user should know.
    pub warn: Warn<'a>,
    /// Called with everything that an observer sees, in that order: what it is, and its bytes.
    pub watch: Option<Watch<'a>>,
}

impl Default for Execution<'_> {
    /// On one thread, to the end; no one is told anything.
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
    /// A run of these clients on one thread, which writes nothing, and tells nobody.
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
