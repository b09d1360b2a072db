//! From a spec's text to a checked, resolved run: `read` it with the parts of a `Catalogue`.
//!
//! All mistakes of a spec are reported together, each with the place where it stands. A mistake in a value stands where
//! the value begins, an unknown key where the key begins, and something missing where its parent has its name. What is
//! wrong *inside* an anchored value is reported where it is written; what is wrong *with* an aliased value, where the
//! alias (`*name`) stands.

mod catalogue;
mod check;
mod groups;
mod mistakes;
mod overrides;
mod schema;
mod sections;
mod spec;
mod yaml;

#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, inspect, inspect_json};
pub use mistakes::{Mistake, Mistakes, Place};
pub use sections::DataSection;
pub use spec::{Spec, read};
pub use yaml::{MAX_BYTES, MAX_DEPTH, MAX_VALUES};
