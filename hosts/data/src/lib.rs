//! What a data set is, and how one is split over clients.
//!
//! A data set is a plugin: a type with [`DataSet`] and a [`data_set!`] line, in a crate of its own.
//! [`build`] reads the set that a [`DataSpec`] names, takes the public samples out, and shares out
//! the others. Sets use the readers [`archive`], [`format`](mod@format) and [`text`]. The rules of
//! splits are in [`partition`] and [`published`]; [`split`](mod@split) draws.

pub mod archive;
mod build;
mod catalogue;
pub mod column_match;
pub mod dataset;
pub mod dataset_decl;
mod dataset_spec;
mod domains;
mod facts;
mod file_hash;
mod fingerprint;
mod folder;
pub mod format;
mod load;
mod made_inputs;
mod normalise;
mod overview;
pub mod partition;
mod public;
mod public_size;
pub mod published;
mod ranges;
pub mod section;
mod shared_rows;
pub mod split;
pub mod split_spec;
pub mod text;
mod undersampled;

pub use build::{Assembled, PublicSamples, RowIdentity, build, build_identified};
pub use catalogue::{Entry, FileEntry, list};
pub use column_match::alike;
pub use dataset::{DataSet, Inferred, Rows, class_task};
pub use dataset_decl::{SetDecl, linked_sets};
pub use dataset_spec::{SetSpec, Use};
pub use domains::Domains;
pub use facts::DataSetFacts;
pub use file_hash::same;
pub use fingerprint::fingerprints;
pub use folder::{Folder, data_dir};
pub use load::{Set, load};
pub use made_inputs::{made_file, made_inputs, made_path};
pub use normalise::Normalise;
pub use overview::{Overview, Share};
pub use public::{Mix, Public, PublicFrom};
pub use ranges::check_ranges;
pub use section::{DataSpec, Limit};
pub use shared_rows::{RowHash, digest_of_rows, row_hashes, shared_rows};
pub use split_spec::{MAX_CLIENTS, Split};
pub use undersampled::Undersampled;

/// Used by [`data_set!`].
#[doc(hidden)]
pub mod __private {
    pub use inventory;
}
