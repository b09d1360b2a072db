//! Gaussian kernel matrices by blocked matrix products, in `f64` and on one thread.

use crate::exp::gaussians;
use faer::linalg::matmul::{matmul, triangular};
use faer::{Accum, MatMut, MatRef, Par};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// Rows of a kernel block: its memory is `BLOCK x` the number of centres.
pub(crate) const BLOCK: usize = 256;

/// Points, one per row, around an origin, with their squared norms.
///
/// Distances do not depend on the origin, but `|a|^2 + |b|^2 - 2ab` loses the digits that far-off points share, so all
/// are counted from a point in their middle.
///
/// Zeros fill the last block: matrix products of few rows take other paths with other roundings, and the bits of a ratio,
/// which is compared with a threshold, must not depend on how many others are asked about.
pub(crate) struct Points {
    values: Vec<f64>,
    norms: Vec<f64>,
    len: usize,
    width: usize,
}

impl Points {
    pub(crate) fn new<T: Copy + Into<f64>>(rows: ArrayView2<'_, T>, origin: &[f64]) -> Self {
        let (len, width) = rows.dim();
        let padded = len.next_multiple_of(BLOCK);
        let mut values = Vec::with_capacity(padded * width);
        let mut norms = Vec::with_capacity(padded);
        for row in rows.rows() {
            let from = values.len();
            values.extend(row.iter().zip(origin).map(|(v, o)| (*v).into() - o));
            norms.push(dot(&values[from..], &values[from..]));
        }
        values.resize(padded * width, 0.0);
        norms.resize(padded, 0.0);
        Self {
            values,
            norms,
            len,
            width,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The ranges that cut the points into blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let n = self.len();
        (0..n).step_by(BLOCK).map(move |at| at..(at + BLOCK).min(n))
    }

    fn part(&self, range: Range<usize>) -> (MatRef<'_, f64>, &[f64]) {
        let rows = &self.values[range.start * self.width..range.end * self.width];
        let rows = MatRef::from_row_major_slice(rows, range.len(), self.width);
        (rows, &self.norms[range])
    }
}

/// The mean of each column: the origin of [`Points`].
pub(crate) fn middle<T: Copy + Into<f64>>(rows: ArrayView2<'_, T>) -> Vec<f64> {
    let mut sums = vec![0.0; rows.ncols()];
    for row in rows.rows() {
        sums.iter_mut()
            .zip(row)
            .for_each(|(s, v)| *s += (*v).into());
    }
    let n = rows.nrows().max(1) as f64;
    sums.into_iter().map(|s| s / n).collect()
}

/// `k(a, b) = exp(-|a - b|^2 / (2 sigma^2))`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gaussian {
    factor: f64,
}

impl Gaussian {
    pub(crate) fn new(sigma: f64) -> Self {
        Self {
            factor: -0.5 / (sigma * sigma),
        }
    }

    /// The kernel between one of the blocks of `a` (rows) and all of `b` (columns); `buffer` is `BLOCK x b.len()`, and the
    /// rows that there are come back.
    pub(crate) fn block<'o>(
        self,
        a: &Points,
        block: &Range<usize>,
        b: &Points,
        buffer: &'o mut [f64],
    ) -> &'o [f64] {
        let (rows, norms) = a.part(block.start..block.start + BLOCK);
        let (columns, others) = b.part(0..b.len());
        let products = MatMut::from_row_major_slice_mut(buffer, BLOCK, b.len());
        let (add, one) = (Accum::Replace, Par::Seq);
        matmul(products, add, rows, columns.transpose(), 1.0, one);
        let there = &mut buffer[..block.len() * b.len()];
        for (norm, row) in norms.iter().zip(there.chunks_mut(b.len().max(1))) {
            gaussians(self.factor, *norm, others, row);
        }
        there
    }

    /// The kernel of `a` with itself, `n x n`. Only what [`crate::solve::solve`] reads is filled: on and right of the
    /// diagonal.
    pub(crate) fn with_itself(self, a: &Points) -> Array2<f64> {
        let n = a.len();
        let mut out = vec![0.0; n * n];
        let (rows, norms) = a.part(0..n);
        gram(&mut out, n, Accum::Replace, rows);
        for i in 0..n {
            gaussians(
                self.factor,
                norms[i],
                &norms[i..],
                &mut out[i * n + i..(i + 1) * n],
            );
        }
        Array2::from_shape_vec((n, n), out).expect("n rows of n")
    }

    /// For each of `points`, the mean of its kernel with all of `over`.
    pub(crate) fn mean(self, points: &Points, over: &Points) -> Vec<f64> {
        let mut sums = vec![0.0; points.len()];
        let mut buffer = vec![0.0; BLOCK * points.len()];
        for range in over.blocks() {
            let block = self.block(over, &range, points, &mut buffer);
            for row in block.chunks(points.len().max(1)) {
                sums.iter_mut().zip(row).for_each(|(s, k)| *s += k);
            }
        }
        let n = over.len().max(1) as f64;
        sums.into_iter().map(|s| s / n).collect()
    }
}

/// `out += rows rows'`, on and right of the diagonal of the `n x n` numbers of `out`.
pub(crate) fn gram(out: &mut [f64], n: usize, add: Accum, rows: MatRef<'_, f64>) {
    use triangular::BlockStructure::{Rectangular, TriangularLower};
    // right of the diagonal by rows is below the diagonal by columns
    let out = MatMut::from_column_major_slice_mut(out, n, n);
    triangular::matmul(
        out,
        TriangularLower,
        add,
        rows,
        Rectangular,
        rows.transpose(),
        Rectangular,
        1.0,
        Par::Seq,
    );
}

/// The sum of products, in one order on every machine: eight running sums, then those.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
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
