//! What a run needs.

use crate::external_clients::ExternalClients;
use crate::folder::{ResumePoint, RunFolder};
use crate::listener::Listener;
use crate::run_record::RunRecord;
use crate::unpriced::Unpriced;
use fl_core::{Checkpoints, Examples, Parts, Protocol, Public, RunEvent, RunOptions, StopWhen};
use fl_receipts::ReceiptOptions;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// Whether these are rows of the clients' own.
    pub own_tests: bool,
    /// Statistics of clients' own rows that the data were made with, such as means for
    /// standardisation. All observers of a run see part of them, and nothing prices it.
    pub exposed: Vec<String>,
    /// What a reader of the results should know of the data.
    pub data_notes: Vec<String>,
    /// Notes for the report only, which the user has seen before the run.
    pub report_notes: Vec<String>,
    /// A row that two clients have: no guarantee for one example is possible.
    pub twice: Option<String>,
    /// Notes that the run begins with.
    pub notes: Vec<String>,
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
    /// Listeners that may refuse an event before any file of the run has it.
    pub guards: Vec<Box<dyn Listener + 'a>>,
    /// How to execute the run.
    pub execution: Execution<'a>,
}

/// How to execute a run. Results do not depend on it, unless a listener ends the rounds.
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
    /// Take the events of the run, after its files have them.
    pub listeners: Vec<Box<dyn Listener + 'a>>,
}

impl Execution<'_> {
    /// Shows the user a warning before the run begins.
    pub fn warn(&mut self, text: &str) {
        let none = RunRecord::new(0.0, Vec::new(), Unpriced::Withheld);
        for listener in &mut self.listeners {
            // no listener refuses a warning
            let _ = listener.on(&RunEvent::Warning(text), &none);
        }
    }
}

impl Default for Execution<'_> {
    /// Returns an execution on one thread, without a stop or listeners.
    fn default() -> Self {
        Self {
            threads: 1,
            memory: None,
            wire: false,
            stop_after: None,
            stop: Arc::default(),
            listeners: Vec::new(),
        }
    }
}

impl Setup<'_> {
    /// Returns a run of these clients on one thread, without files or listeners.
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
            own_tests: false,
            exposed: Vec::new(),
            data_notes: Vec::new(),
            report_notes: Vec::new(),
            twice: None,
            notes: Vec::new(),
            folder: None,
            resumed: None,
            checkpoints: fl_core::settings::defaults(),
            stop_when: None,
            receipts: ReceiptOptions::default(),
            guards: Vec::new(),
            execution: Execution::default(),
        }
    }
}
