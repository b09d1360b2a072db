#![doc = include_str!("../README.md")]

mod advanced;
mod analytic;
mod basic;
mod compose;
mod fourier;
mod gaussian_pair;
pub mod gnmax;
mod losses;
mod nfdp;
mod noise_release;
pub mod pate;
mod pate_gnmax;
mod pate_moments;
mod pld;
mod priced_ledger;
mod public_size;
mod rdp;
pub mod renyi;
mod vote_release;

pub use advanced::AdvancedComposition;
pub use analytic::AnalyticGaussian;
pub use basic::Basic;
pub use nfdp::Nfdp;
pub use pate_gnmax::PateGnmax;
pub use pate_moments::{MomentOrders, PateMoments};
pub use pld::{LossDistributions, Pld};
pub use priced_ledger::{Price, PricedLedger, Pricing};
pub use rdp::Rdp;
pub use renyi::Conversion;
