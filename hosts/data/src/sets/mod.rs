//! The sets that can be named in a spec, one file each.

pub mod adult;
pub mod adult_raw;
pub mod ag_news;
pub mod blobs;
pub mod cells;
pub mod cifar10;
pub mod cifar100;
pub mod cod_rna;
pub mod fashion_mnist;
pub mod files;
pub mod glyphs;
mod made;
pub mod mnist;
pub mod multi_label;
pub mod pneumoniamnist;
mod shared;
pub mod sst2;

pub use adult::Adult;
pub use adult_raw::AdultRaw;
pub use ag_news::AgNews;
pub use blobs::Blobs;
pub use cells::Cells;
pub use cifar10::Cifar10;
pub use cifar100::Cifar100;
pub use cod_rna::CodRna;
pub use fashion_mnist::FashionMnist;
pub use files::Files;
pub use glyphs::Glyphs;
pub use mnist::Mnist;
pub use multi_label::MultiLabel;
pub use pneumoniamnist::PneumoniaMnist;
pub use sst2::Sst2;

fl_core::choices! {
    /// What is done to the columns of a table of numbers.
    pub enum Scale {
        /// Nothing.
        None = "none",
        /// `(value - mean) / std` with the training rows' mean and standard deviation of each column of numbers.
        Standard = "standard",
    }
}
