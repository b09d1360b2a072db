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
use std::cmp::Ordering;

/// Returns every answer as one list of numbers.
fn flat(inbox: &Inbox<Params>) -> Vec<Vec<f32>> {
    inbox.iter().map(|mail| mail.body.flat()).collect()
}

/// Orders two answers by their numbers, for ties: the order of clients must not decide.
fn by_numbers(inbox: &Inbox<Params>, a: usize, b: usize) -> Ordering {
    let numbers = |of| {
        let answer = inbox.iter().nth(of).into_iter();
        answer.flat_map(|mail| mail.body.iter())
    };
    let mut both = numbers(a).zip(numbers(b));
    let first = both.find_map(|(a, b)| Some(a.total_cmp(b)).filter(|order| order.is_ne()));
    first.unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests;
