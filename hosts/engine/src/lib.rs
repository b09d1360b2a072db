//! What the program `fl`, the Python package and Flower share: from the text of a spec to a
//! finished run.
//!
//! * [`read`] checks a spec, [`data`] makes its data.
//! * [`run`] carries out a [`RunRequest`]: a spec, or a stopped run that goes on.
//! * [`execute`] runs a checked spec on its data.
//! * [`CheckedStudy`] does the runs of a study, and makes its tables.
//! * [`node`] is the clients' side, for clients in other processes.
//!
//! Functions here print nothing. What a user should know goes to the listeners of the run, as
//! [`fl_core::RunEvent::Warning`], or to the crate `log`. An error that is [`NotRun`] says that
//! nothing was run.

mod cached_runs;
mod client_process;
mod data_check;
mod error;
mod events;
mod execute;
mod finished_run;
mod lock;
mod node;
mod node_file;
mod placement;
mod prepare;
mod quick_digests;
mod recorded_runs;
mod request;
mod resume;
mod run_folder;
mod run_scheduler;
mod signals;
mod sinks;
mod study;

pub use client_process::ClientProcess;
#[cfg(unix)]
pub use client_process::serve;
pub use data_check::{DataNotes, check_data, noted_data};
pub use error::NotRun;
pub use events::TakeEvent;
pub use execute::{ExecuteOptions, Folder, MOST_THREADS, ProtocolOverride, execute, threads};
pub use finished_run::{BATCH, FinishedRun, Target, kept_generator, samples};
pub use fl_privacy::{
    Forecast, Plan, PlannedCohort, PlannedExchange, accountant, check_ledger, forecast,
    ledger_fault,
};
pub use lock::lock;
pub use node::{NodeConfig, node, set_by_leader};
pub use placement::{DataOwnership, EngineFactory, Placement, start_processes_with};
pub use prepare::{
    check, data, data_with_notes, input_files, manifest, note_once, open, parse, read, text,
};
pub use request::{RunRequest, Source, run};
pub use run_folder::RUN_PAGE;
pub use run_scheduler::{Job, JobEnd, JobEvent, OnJob, RunCount};
pub use signals::Signals;
pub use sinks::{OpenSinks, on_sinks, step_json};
pub use study::{BuiltStudy, CheckedStudy, Repeated, Repeats, StudyRequest, WrittenStudy};
