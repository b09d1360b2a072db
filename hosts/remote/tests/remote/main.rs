//! The two sides, and what is between them.

mod common;
mod exchange;
mod promises;
