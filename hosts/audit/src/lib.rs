#![doc = include_str!("../README.md")]

mod audit;
mod bounds;
mod canaries;
mod directions;
mod finding;
mod judge;
mod neighbours;
mod page;
mod runner;
mod told;
mod views;

pub use audit::{LEAST_RUNS, audit};
pub use finding::{Audit, Finding, Game, Verdict};
pub use judge::{Difference, LowerBound};
pub use runner::{AuditOptions, AuditProgress, Method};
pub use told::told;
