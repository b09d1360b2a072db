//! Data sets, their files, and how they are split over clients.
//!
//! [`build`] does it all: it reads (or makes) the set that a [`spec::DataSpec`] names, takes the public samples
//! out, and shares out the others. The pieces are of use alone: [`set`] says what a data set is and how a crate adds one,
//! [`sets`] holds those that are known here, [`archive`] and [`format`](mod@format) read files, [`partition`] holds the
//! rules that say which sample goes where, [`published`] splits that were published as counts, [`split`](mod@split) draws.

pub mod archive;
mod build;
mod columns;
mod counts;
mod domains;
mod fingerprint;
mod folder;
pub mod format;
mod load;
mod overview;
pub mod partition;
pub mod published;
pub mod set;
mod set_spec;
pub mod sets;
mod shared_rows;
pub mod spec;
mod spec_checks;
pub mod split;
pub mod text;
mod undersampled;

pub use build::{Assembled, PublicSamples, build};
pub use columns::alike;
pub use domains::Domains;
pub use fingerprint::fingerprints;
pub use folder::{Entry, FileEntry, Folder, data_dir, list};
pub use load::{Set, load};
pub use overview::{Overview, Share};
pub use set::{DataSet, DataSetFacts, Rows, SetDecl, linked_sets};
pub use set_spec::{SetSpec, Use};
#[doc(hidden)]
pub use sets::files::of_test_rows;
pub use shared_rows::share_a_row;
pub use spec::DataSpec;
pub use undersampled::Undersampled;

/// Used by [`data_set!`].
#[doc(hidden)]
pub mod __private {
    pub use inventory;
}
