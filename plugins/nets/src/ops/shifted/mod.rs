//! The inner loops of convolutions: sums and dot products of shifted rows.
//!
//! A convolution spends its time in two loops, written here once for every geometry. A sum of
//! shifted rows ([`shifted_sums`]) computes the output and the gradient by the input. A table of
//! dot products between shifted rows ([`shifted_dots`]) computes the gradient by the weights.
//! Nothing is unfolded into columns first (im2col): for the small channel counts of federated
//! models that costs as much memory traffic as the product itself.

mod dots;
mod sums;

pub use dots::{Rows, shifted_dots};
pub use sums::{Lines, Needed, Packed, Sink, needed_sums, shifted_sums};

use crate::simd::{self, Strip};

/// Sums that the registers hold together: some rows, and some vectors of each.
trait Tiles<S: Strip> {
    /// Computes `V` vectors, from vector `at` on, of `R` rows from `row` on. Must be marked
    /// `#[inline(always)]`, as all that it calls.
    fn tile<const R: usize, const V: usize>(&mut self, strip: S, row: usize, at: usize);
}

/// Computes this many vectors of each row in tiles that fill the registers. A last single vector
/// would starve the multipliers.
#[inline(always)]
fn tiles<S: Strip>(strip: S, rows: usize, vectors: usize, work: &mut impl Tiles<S>) {
    let many = S::SUMS >= 24;
    for (row, rows) in row_blocks(rows) {
        let mut at = 0;
        macro_rules! tile {
            ($rows:literal, $vectors:literal) => {{
                work.tile::<$rows, $vectors>(strip, row, at);
                $vectors
            }};
        }
        while at < vectors {
            at += match (rows, vectors - at) {
                (6, 4..) if many => tile!(6, 4),
                (6, 3) if many => tile!(6, 3),
                (6, 2..) => tile!(6, 2),
                (6, _) => tile!(6, 1),
                (4, 6..) if many => tile!(4, 6),
                (4, 4) if many => tile!(4, 4),
                (4, 3) if many => tile!(4, 3),
                (4, 2..) => tile!(4, 2),
                (4, _) => tile!(4, 1),
                (2, 6..) => tile!(2, 6),
                (2, 3..) => tile!(2, 3),
                (2, 2) => tile!(2, 2),
                (2, _) => tile!(2, 1),
                (_, 6..) => tile!(1, 6),
                (_, 3..) => tile!(1, 3),
                (_, 2) => tile!(1, 2),
                (_, _) => tile!(1, 1),
            }
        }
    }
}

/// Splits rows into blocks of 6 or 4, then 2, then 1. Blocks of 6 need the fewest registers beside
/// the sums: the compiler kept a sum of 4 x 3 vectors in memory where there are 16 registers, which
/// took twice as long. With 32 only a last 6 stays in one block, because two would starve the
/// multipliers.
#[inline(always)]
fn row_blocks(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let (mut first, few) = (0, !simd::has_wide_registers());
    std::iter::from_fn(move || {
        let count = match rows - first {
            6 => 6,
            left if few && left > 6 && left != 8 => 6,
            left if left >= 4 => 4,
            left => left.min(2),
        };
        first += count;
        (count > 0).then_some((first - count, count))
    })
}

/// Rows, taps and numbers of a row that tests try: every shape of a tile.
#[cfg(test)]
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (2, 2, 9),
    (3, 5, 31),
    (4, 3, 32),
    (7, 4, 50),
    (6, 7, 100),
    (9, 8, 65),
    (10, 5, 17),
];

/// Returns numbers for tests.
#[cfg(test)]
fn wave(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| libm::sinf(i as f32 * step)).collect()
}
