#![doc = include_str!("../README.md")]

pub mod buffer;
mod curves;
pub mod examples;
pub mod net;
mod network;
pub mod ops;
pub mod optim;
mod simd;
pub mod store;
pub mod tape;
pub mod target;

pub use net::presets::KnownNet;
pub use net::{Conv, Conv1d, Embedding, Layer, Layers, NetSpec, Residual, Window};
pub use network::Network;
pub use optim::{Adam, Cosine, Rule, Schedule, Sgd, Steps};
