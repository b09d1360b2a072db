//! The two sides, and what is between them.

mod common;
mod exchange;
#[cfg(unix)]
mod processes;
mod promises;
