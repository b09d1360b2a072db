//! What a run has released and disclosed: the budget, and each observer's unpriced disclosures.

pub(crate) mod budget;
pub(crate) mod exposure;

pub use exposure::exposed;
