#![doc = include_str!("../README.md")]

mod bucketing;
mod clipped;
mod clipping;
mod fltrust;
mod geometric;
mod krum;
mod mixing;
mod sketching;

pub use bucketing::Bucketing;
pub use clipped::{CentredClipping, Clipping, NormBounding};
pub use clipping::{AdaptiveClipping, UpdateClipping};
pub use fltrust::Fltrust;
pub use geometric::GeometricMedian;
pub use krum::{Bulyan, Krum, MultiKrum};
pub use mixing::NearestNeighbourMixing;
pub use sketching::Sketching;

use fl_core::prelude::*;

/// Returns every answer as one list of numbers.
fn flat(inbox: &Inbox<Params>) -> Vec<Vec<f32>> {
    inbox.iter().map(|mail| mail.body.flat()).collect()
}

#[cfg(test)]
mod tests;
