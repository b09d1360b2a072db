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

/// The squared Euclidean distance of two lists of numbers: eight sums at a time in 64 bits, so that it is the same whoever
/// comes first.
fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0f64; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            let apart = f64::from(*a) - f64::from(*b);
            *sum += apart * apart;
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(rest_a.iter().zip(rest_b)) {
        let apart = f64::from(*a) - f64::from(*b);
        *sum += apart * apart;
    }
    sums.iter().sum()
}

/// Every answer as one list of numbers.
fn flat(inbox: &Inbox<Params>) -> Vec<Vec<f32>> {
    inbox.iter().map(|mail| mail.body.flat()).collect()
}

#[cfg(test)]
mod tests;
