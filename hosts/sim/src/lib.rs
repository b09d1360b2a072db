//! A federation in one process: every client is served by one thread at a time, several clients at once.
mod answers;
mod clients;
mod disk;
mod elsewhere;
mod folder;
mod host;
mod lines;
mod manifest;
mod memory;
mod paused;
mod picture;
mod pool;
mod report;
mod run;
mod setup;
mod shelf;

#[cfg(unix)]
pub use disk::own;
pub use disk::{open_own, read_own, sync, write, write_secret};
pub use elsewhere::{Elsewhere, Maker, owners};
pub use folder::{Resumed, RunFolder};
pub use manifest::{Hashed, Manifest, Session, time};
pub use paused::Paused;
pub use picture::picture;
pub use pool::{executor, workers};
pub use run::run;
pub use setup::{Begun, Execution, Outcome, Progress, Setup, Spent, Summary, Warn, Watch};
