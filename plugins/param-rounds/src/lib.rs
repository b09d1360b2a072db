#![doc = include_str!("../README.md")]

mod adaptive_clip;
pub mod apfl;
mod contrast;
mod ditto;
mod dp_fedavg;
mod family;
mod fedamp;
mod fedavg;
pub mod feddf;
mod feddyn;
pub mod fedgen;
pub mod fednova;
mod fedprox;
mod fedrep;
mod gaussian_update;
mod learnt;
mod local;
mod moon;
mod per_fedavg;
mod personal;
pub mod rounds;
pub mod scaffold;
mod server_sum;
pub mod slots;

pub use adaptive_clip::{AdaptiveClip, Bounded};
pub use dp_fedavg::DpFedAvg;
pub use fedavg::FedAvg;
pub use fedprox::FedProx;
pub use gaussian_update::GaussianUpdate;
pub use rounds::{InRound, RoundRule, RoundSettings, Rounds, Shared};

fl_core::export_plugins!();
