#![doc = include_str!("../README.md")]

mod clipped;
mod geometric;
mod krum;
mod trust;

pub use clipped::{CentredClipping, Clipping, NormBounding};
pub use geometric::GeometricMedian;
pub use krum::{Bulyan, Krum, MultiKrum};
pub use trust::Fltrust;

use fl_core::prelude::*;

/// Every answer as one list of numbers.
fn flat(inbox: &Inbox<Params>) -> Vec<Vec<f32>> {
    inbox.iter().map(|mail| mail.body.flat()).collect()
}

#[cfg(test)]
mod tests;
