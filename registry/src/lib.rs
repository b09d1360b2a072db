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

mod aliases;
mod answers;
mod budget_check;
mod catalogue;
mod check;
mod client_groups;
mod compatibility;
mod conflicts;
mod data_section;
mod describe;
mod diagnostics;
mod docs;
mod document;
mod elf;
mod enum_options;
#[cfg(unix)]
pub mod file_permissions;
mod idle;
#[cfg(unix)]
mod isolate;
mod library;
mod library_file;
mod load;
mod lock;
mod method_parts;
mod misplaced;
mod overrides;
mod package;
mod package_files;
mod python_module;
mod rounds_check;
#[cfg(target_os = "linux")]
mod sandbox;
mod schema;
mod sealed_memfd;
mod sections;
mod sinks;
mod slots;
mod spanned_value;
mod spec;
mod stages;
mod training_check;
mod yaml;

#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, any_make, as_in_papers, meant};
pub use data_section::{DataSection, DataSizes};
pub use describe::{settings_json, settings_table};
pub use diagnostics::{Mistake, Mistakes, SourcePosition};
pub use docs::columns::{columns, fill};
pub use document::{Document, Places, ReadableSettings};
pub use enum_options::Choice;
#[cfg(unix)]
pub use isolate::{
    ARGUMENT, isolate_with, isolated_program, isolation_notes, library_process, opening_notes,
};
pub use library::{Library, PackageRequest, Refusal, replacement_notes};
pub use load::{before_loading, load};
pub use lock::{LOCK_FILE, Lock};
pub use package::{Announced, Package, on_packages, packages};
pub use python_module::{
    Fingerprint, HashedFiles, Import, Module, SessionMetric, SessionMetrics, SessionPart,
    on_metrics, on_module, on_session, session_parts,
};
pub use schema::schema_of;
pub use sections::{Isolate, Isolation, Keep, LedgerUse, Plugin, is_spec_key};
pub use sinks::{FileSink, FolderSink, MlFlowSink, Sink, WandbMode, WandbSink};
pub use spec::{NO_LEVELS, Spec, slot_of_kept};
pub use stages::SpecStage;
pub use yaml::{MAX_BYTES, MAX_DEPTH, MAX_VALUES};
