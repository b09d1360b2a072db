//! From a spec's text to a checked, resolved run: parse a `Document`, and read it with the parts of
//! a `Catalogue`.
//!
//! All mistakes of a spec are reported together, each with the place where it stands. A mistake in
//! a value stands where the value begins, an unknown key where the key begins, and something
//! missing where its parent has its name. What is wrong *inside* an anchored value is reported
//! where it is written; what is wrong *with* an aliased value, where the alias (`*name`) stands.
//! What is set from outside (`--set path=value`) is reported by that path.
//!
//! The text is read event by event with positions, which the crate that writes YAML (`serde_yaml`)
//! gives only for its first error. What plain scalars mean is still decided by that crate alone, so
//! that what is written reads back.

#[cfg(unix)]
mod apart;
mod catalogue;
mod check;
mod choices;
mod conflicts;
mod document;
mod elf;
mod fit;
mod groups;
mod load;
mod mistakes;
mod module;
mod overrides;
#[cfg(unix)]
pub mod owners;
mod pages;
mod promise;
mod schema;
mod sealed;
mod sections;
mod slots;
mod spec;
mod tree;
mod yaml;

#[cfg(test)]
mod tests;

#[cfg(unix)]
pub use apart::{ARGUMENT, isolate_with, library_process};
pub use catalogue::{Catalogue, inspect, inspect_json, settings_json, settings_table};
pub use choices::Choice;
pub use document::Document;
pub use load::{Library, Refusal, before_loading, load};
pub use mistakes::{Mistake, Mistakes, Place};
pub use module::{Fingerprint, Import, Module, SessionPart, on_module, on_session, session_parts};
pub use sections::{DataSection, Isolate};
pub use spec::Spec;
pub use yaml::{MAX_BYTES, MAX_DEPTH, MAX_VALUES};
