#![doc = include_str!("../README.md")]

mod noise;
mod pate;
mod teach;
mod two_tier;
mod vote;

pub use noise::{ConfidentVotes, GaussianVotes, LaplaceVotes, confident};
pub use pate::Pate;
pub use teach::{close_votes, subset_sizes};
pub use two_tier::{NoiseAt, Sent, ShortParty, TwoTierVote};
pub use vote::{ConsistentVote, MajorityVote, NoneConsistent, consistent_counts, plain_counts};

fl_core::export_plugins!();
