#![doc = include_str!("../README.md")]

/// As [`anyhow::ensure!`], of what the user asks for: nothing is run otherwise.
macro_rules! ensure_usage {
    ($fits:expr, $($text:tt)+) => {
        anyhow::ensure!($fits, fl_engine::NotRun::Usage(format!($($text)+)))
    };
}

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
