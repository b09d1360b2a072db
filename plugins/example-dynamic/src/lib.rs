//! An example of a crate whose parts can be linked or loaded: an aggregator, a selector and a privacy mechanism.
//!
//! Two lines make it loadable: `export_plugins!();` here and `crate-type = ["cdylib", "rlib"]` in `Cargo.toml`. Then
//! `cargo build --release -p fl-plugin-example-dynamic` and
//! `fl run SPEC --plugin target/release/libfl_plugin_example_dynamic.so`.
mod by_size;
mod clipped;
mod momentum;

pub use by_size::BySize;
pub use clipped::LaplaceParams;
pub use momentum::{Momentum, MomentumMean};

fl_core::export_plugins!();
