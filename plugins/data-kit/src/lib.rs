#![doc = include_str!("../README.md")]

pub mod archive;
mod catalogue;
pub mod column_match;
pub mod dataset;
pub mod dataset_decl;
mod dataset_spec;
mod download;
mod facts;
mod file_hash;
mod folder;
pub mod format;
mod load;
mod made_inputs;
mod normalise;
mod number_label;
mod ranges;
pub mod text;

pub use catalogue::{Entry, FileEntry, list};
pub use column_match::alike;
pub use dataset::{DataSet, Inferred, Rows, class_task};
pub use dataset_decl::{SetDecl, linked_sets};
pub use dataset_spec::{SetSpec, Use};
pub use download::Download;
pub use facts::DataSetFacts;
pub use file_hash::{same, sha256};
pub use folder::{Folder, data_dir, user_dir};
pub use load::{Scaling, Set, load, load_seen};
pub use made_inputs::{made_file, made_inputs, made_path};
pub use normalise::Normalise;
pub use number_label::{NumberLabel, NumberLoss};
pub use ranges::check_ranges;

/// Used by [`data_set!`].
#[doc(hidden)]
pub mod __private {
    pub use inventory;
}
