//! Products of matrices whose sums have one order on every machine.

use fl_core::portable::add_product;
use ndarray::{ArrayView2, ArrayViewMut2, s};

/// Computes `out += sign rows rows'`, on and right of the diagonal (and partly left of it). `sign`
/// is 1 or -1, `rows` `n x k`, `out` `n x n`.
///
/// # Panics
/// If the shapes differ from these.
pub fn add_gram(sign: f64, rows: ArrayView2<'_, f64>, out: &mut ArrayViewMut2<'_, f64>) {
    const STRIP: usize = 128;
    let n = rows.nrows();
    for from in (0..n).step_by(STRIP) {
        let to = (from + STRIP).min(n);
        let (some, rest) = (rows.slice(s![from..to, ..]), rows.slice(s![from.., ..]));
        let mut strip = out.slice_mut(s![from..to, from..]);
        add_product(sign, some, rest.t(), &mut strip);
    }
}

/// Returns the sum of products, in one order on every machine: eight running sums, then their sum.
/// Uses the shorter of the two lengths.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a.zip(b) {
        for (s, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *s += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest
}
