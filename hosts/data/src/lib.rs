//! How a data set is split over clients.
//!
//! [`build`] reads the set that a [`DataSpec`] names, takes the public samples out, and shares out
//! the others. The rules of splits are in [`partition`] and [`published`]; [`split`](mod@split)
//! draws. What a set is, `fl-data-kit` says.

mod assembled;
mod build;
mod data_section;
mod domains;
mod feature_noise;
mod features;
mod fingerprint;
mod kept_model;
mod other_scale;
mod overview;
pub mod partition;
mod public;
mod public_rows;
mod public_size;
pub mod published;
mod rows;
pub mod section;
mod seen_rows;
mod shared_rows;
pub mod split;
pub mod split_spec;
mod test_notes;
mod test_rows;
mod undersampled;

pub use assembled::{Assembled, PublicSamples, RowIdentity};
pub use build::{build, build_identified};
pub use domains::Domains;
pub use feature_noise::FeatureNoise;
pub use features::{FeatureMap, Features};
pub use fingerprint::fingerprints;
pub use kept_model::KeptModel;
pub use overview::{Overview, Share};
pub use public::{Mix, Public, PublicFrom};
pub use section::{DataSpec, Limit};
pub use shared_rows::{RowHash, digest_of_rows, row_hashes, shared_rows};
pub use split_spec::{MAX_CLIENTS, Split};
pub use test_rows::{OwnTests, OwnTestsOf};
pub use undersampled::Undersampled;
