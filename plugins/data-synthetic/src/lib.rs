#![doc = include_str!("../README.md")]

mod blobs;
mod cells;
mod glyphs;
mod multi_label;
mod synthetic;

pub use blobs::Blobs;
pub use cells::Cells;
pub use glyphs::Glyphs;
pub use multi_label::MultiLabel;
