//! What the program `fl`, the Python package and Flower share: from the text of a spec to a
//! finished run.
//!
//! * [`read`] checks a spec, [`data`] makes its data.
//! * [`run`] carries out a [`RunRequest`]: a spec, or a stopped run that goes on.
//! * [`execute`] runs a checked spec on its data.
//! * [`node`] is the clients' side, for clients in other processes.
//!
//! Functions here print nothing. What a user should know goes to [`fl_sim::Execution::warn`] or to
//! the crate `log`. An error that is [`NotRun`] says that nothing was run.

mod error;
mod execute;
mod node;
mod node_file;
mod placement;
mod prepare;
mod request;
mod resume;
mod signals;

pub use error::NotRun;
pub use execute::{ExecuteOptions, Folder, MOST_THREADS, ProtocolOverride, execute, threads};
pub use node::{NodeConfig, node};
#[cfg(unix)]
pub use placement::serve;
pub use placement::{ClientProcess, DataOwnership, EngineFactory, Placement, start_processes_with};
pub use prepare::{check, data, data_files, data_with_notes, manifest, open, parse, read};
pub use request::{RUN_PAGE, RunRequest, Source, run, tidy};
pub use signals::Signals;
