#![doc = include_str!("../README.md")]

mod audit;
mod bounds;
mod canaries;
mod directions;
mod judge;
mod neighbours;
mod page;
mod views;

pub use audit::{
    Audit, AuditOptions, AuditProgress, Finding, Game, LEAST_RUNS, Method, Verdict, audit,
};
pub use judge::{Difference, LowerBound};
