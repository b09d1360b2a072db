//! Gaussian kernel matrices by blocked matrix products, in `f64` and on one thread.

use crate::exp::gaussians;
use anyhow::{Context, Result};
use fl_core::portable::add_product;
use fl_linalg::{Cholesky, add_gram, dot};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

/// Rows of a kernel block: its memory is `BLOCK x` the number of centres.
pub(crate) const BLOCK: usize = 256;

/// Points, one per row, relative to an origin, with their squared norms.
///
/// Distances do not depend on the origin, but `|a|^2 + |b|^2 - 2ab` cancels the digits that distant
/// points share. The origin is therefore a point in their middle.
pub(crate) struct Points {
    /// `points x features`.
    values: Array2<f64>,
    norms: Vec<f64>,
}

impl Points {
    pub(crate) fn new<T: Copy + Into<f64>>(rows: ArrayView2<'_, T>, origin: &[f64]) -> Self {
        let mut values = Array2::zeros(rows.raw_dim());
        let mut norms = Vec::with_capacity(rows.nrows());
        for (row, mut to) in rows.rows().into_iter().zip(values.rows_mut()) {
            let from = row.iter().zip(origin);
            to.iter_mut()
                .zip(from)
                .for_each(|(t, (v, o))| *t = (*v).into() - o);
            let to = to.as_slice().expect("made by rows");
            norms.push(dot(to, to));
        }
        Self { values, norms }
    }

    pub(crate) fn len(&self) -> usize {
        self.norms.len()
    }

    /// Returns the ranges that divide the points into blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let n = self.len();
        (0..n).step_by(BLOCK).map(move |at| at..(at + BLOCK).min(n))
    }
}

/// Returns the mean of each column: the origin of [`Points`].
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

    /// Computes the kernel between one of the blocks of `a` (rows) and all of `b` (columns);
    /// `buffer` is `BLOCK x b.len()`. Returns the rows of the block. A number is compared with a
    /// threshold, so its bits must not depend on the number of others: `ndarray` sums a product of
    /// any shape in one order.
    pub(crate) fn block<'o>(
        self,
        a: &Points,
        block: &Range<usize>,
        b: &Points,
        buffer: &'o mut [f64],
    ) -> &'o [f64] {
        let there = &mut buffer[..block.len() * b.len()];
        let shape = (block.len(), b.len());
        let mut products = ArrayViewMut2::from_shape(shape, there).expect("as many as that");
        let rows = a.values.slice(s![block.clone(), ..]);
        products.fill(0.0);
        add_product(1.0, rows, b.values.t(), &mut products);
        for (norm, row) in a.norms[block.clone()]
            .iter()
            .zip(there.chunks_mut(b.len().max(1)))
        {
            gaussians(self.factor, *norm, &b.norms, row);
        }
        there
    }

    /// Returns the kernel of `a` with itself, `n x n`. Fills only the entries that
    /// [`fl_linalg::Cholesky`] reads: on and right of the diagonal.
    pub(crate) fn with_itself(self, a: &Points) -> Array2<f64> {
        let mut out = Array2::zeros((a.len(), a.len()));
        add_gram(1.0, a.values.view(), &mut out.view_mut());
        for (i, mut row) in out.rows_mut().into_iter().enumerate() {
            let row = row.as_slice_mut().expect("made by rows");
            gaussians(self.factor, a.norms[i], &a.norms[i..], &mut row[i..]);
        }
        out
    }

    /// Returns for each of `points` the mean of its kernel with all of `over`.
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

/// Replaces each row `b` of `right` by the `x` with `matrix x = b`.
pub(crate) fn solve(matrix: Array2<f64>, right: &mut Array2<f64>) -> Result<()> {
    let n = matrix.nrows();
    let factor = Cholesky::factor(matrix).with_context(|| {
        format!(
            "the kernel system of {n} points is not positive definite in f64; give a larger `beta` or a smaller `width`"
        )
    })?;
    Ok(factor.solve_rows(right.view_mut())?)
}
