//! A federation in one process: every client is served by one thread at a time, several clients at once.
mod folder;
mod host;
mod pool;
mod report;

pub use folder::{Resumed, RunFolder};
pub use host::{Outcome, Privacy, Setup, Spent, run};
