//! The ledger of a run: its budget, and the unpriced disclosures to each observer.

pub(crate) mod budget;
pub(crate) mod exposure;
mod run;

pub use exposure::exposed;
pub(crate) use run::RunLedger;
