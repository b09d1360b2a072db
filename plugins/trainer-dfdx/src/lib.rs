#![doc = include_str!("../README.md")]

mod buffer;
mod cuda;
mod curves;
mod examples;
mod net;
mod network;
mod ops;
mod optim;
mod settings;
mod simd;
mod store;
mod tape;
mod target;
mod trainer;

pub use cuda::{CardReport, Device, cards};
pub use net::presets::NAMES as NETWORKS;
pub use net::{Conv, Conv1d, Embedding, Layer, Layers, NetSpec, Residual, Window};
pub use network::Network;
pub use optim::{Adam, Cosine, Rule, Schedule, Sgd, Steps};
pub use settings::DfdxSettings;
pub use trainer::Dfdx;

fl_core::plugin!(trainer "dfdx" => DfdxSettings as Dfdx);
