//! Data sets, their files, and how they are split over clients.
//!
//! [`build`] does it all: it reads (or makes) the set that a [`spec::DataSpec`] names, takes the public samples
//! out, and shares out the others. The pieces are of use alone: [`archive`] and [`format`](mod@format) read
//! published files, [`sets`] knows the sets, [`made`] makes sets that need no files, [`partition`] holds the rules
//! that say which sample goes where, [`published`] splits that were published as counts, [`split`](mod@split) draws.

pub mod archive;
mod build;
pub mod format;
pub mod made;
pub mod partition;
pub mod published;
pub mod sets;
pub mod spec;
pub mod split;
pub mod text;

pub use build::{Assembled, PublicSamples, build};
pub use sets::{SetSpec, data_dir, list};
pub use spec::DataSpec;
