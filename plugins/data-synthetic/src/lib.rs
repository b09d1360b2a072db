#![doc = include_str!("../README.md")]

mod blobs;
mod cells;
mod friedman;
mod glyphs;
mod made;
mod multi_label;
mod phrases;
mod synthetic;

pub use blobs::Blobs;
pub use cells::Cells;
pub use friedman::Friedman;
pub use glyphs::Glyphs;
pub use made::Made;
pub use multi_label::MultiLabel;
pub use phrases::Phrases;
