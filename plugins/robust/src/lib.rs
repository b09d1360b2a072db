#![doc = include_str!("../README.md")]

mod clipped;
mod fltrust;
mod geometric;
mod krum;

pub use clipped::{CentredClipping, Clipping, NormBounding};
pub use fltrust::Fltrust;
pub use geometric::GeometricMedian;
pub use krum::{Bulyan, Krum, MultiKrum};

use fl_core::prelude::*;

/// Returns every answer as one list of numbers.
fn flat(inbox: &Inbox<Params>) -> Vec<Vec<f32>> {
    inbox.iter().map(|mail| mail.body.flat()).collect()
}

#[cfg(test)]
mod tests;
