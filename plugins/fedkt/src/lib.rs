//! FedKT (Li, He, Song 2021, "Practical one-shot federated learning for cross-silo setting") and PATE (Papernot et al.
//! 2017 and 2018): teachers vote, students learn what wins. METHODS section 5 lists the readings.
mod noise;
mod pate;
mod teach;
mod two_tier;
mod vote;

pub use noise::{ConfidentVotes, GaussianVotes, LaplaceVotes, confident};
pub use pate::Pate;
pub use teach::{close_votes, subset_sizes};
pub use two_tier::{NoiseAt, Sent, ShortParty, TwoTierVote};
pub use vote::{ConsistentVote, MajorityVote, NobodyConsistent, consistent_counts, plain_counts};
