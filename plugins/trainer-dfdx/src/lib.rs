//! Neural networks for fl: architectures known at run time, trained on dfdx's tape.
//!
//! dfdx 0.13 gives the tape and the gradient store. Its own convolution needs a nightly compiler, its layers have shapes
//! fixed at compile time and its optimisers cannot be saved, so operations, networks and optimisers are this crate's. Every
//! operation is checked against a plain loop and against finite differences.

mod buffer;
mod net;
mod ops;
mod optim;
mod settings;
mod simd;
mod store;
mod tape;
mod target;
mod trainer;

pub use net::presets::NAMES as NETWORKS;
pub use net::{Conv, Layer, Layers, NetSpec, Residual, Window};
pub use optim::{Adam, Cosine, Rule, Schedule, Sgd, Steps};
pub use settings::DfdxSettings;
pub use trainer::Dfdx;

fl_core::plugin!(trainer "dfdx" => DfdxSettings as Dfdx);
