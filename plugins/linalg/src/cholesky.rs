//! Cholesky factors of symmetric positive definite matrices.

use crate::{LinalgError, check_square};
use ndarray::{Array1, Array2, ArrayViewMut2};
use std::fmt::{Debug, Formatter};

/// The triangle `u` with `u' u = a`, of a symmetric positive definite `a`.
pub struct Cholesky {
    n: usize,
    factor: backend::Factor,
}

impl Debug for Cholesky {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cholesky of {0} x {0}", self.n)
    }
}

impl Cholesky {
    /// Factors `a`, which is `n x n`. Only its diagonal and the entries right of it are read; `n`
    /// may be 0.
    ///
    /// # Errors
    /// [`LinalgError::NotSquare`], or [`LinalgError::NotPositiveDefinite`] with the first pivot
    /// that is not a positive number (so also for NaN).
    pub fn factor(a: Array2<f64>) -> Result<Self, LinalgError> {
        check_square(a.view())?;
        let n = a.nrows();
        let factor =
            backend::factor(a).map_err(|pivot| LinalgError::NotPositiveDefinite { n, pivot })?;
        Ok(Self { n, factor })
    }

    /// Replaces each row `b` of `right` (`systems x n`) by the `x` with `a x = b`.
    ///
    /// # Errors
    /// [`LinalgError::Length`], if the length of rows is not `n`.
    pub fn solve_rows(&self, mut right: ArrayViewMut2<'_, f64>) -> Result<(), LinalgError> {
        let (wanted, got) = (self.n, right.ncols());
        if wanted != got {
            return Err(LinalgError::Length { wanted, got });
        }
        for mut row in right.rows_mut() {
            let solved: Array1<f64> = backend::solve(&self.factor, row.to_owned());
            row.assign(&solved);
        }
        Ok(())
    }
}

#[cfg(not(feature = "lapack"))]
mod backend {
    use crate::products::{add_gram, dot};
    use ndarray::{Array1, Array2, ArrayViewMut2, Axis, s};
    use pulp::Arch;

    pub(super) type Factor = Array2<f64>;

    /// Rows factored at a time: the remaining work is one matrix product per block.
    const BLOCK: usize = 64;

    pub(super) fn factor(a: Array2<f64>) -> Result<Factor, usize> {
        let n = a.nrows();
        let mut a = if a.is_standard_layout() {
            a
        } else {
            a.as_standard_layout().into_owned()
        };
        for from in (0..n).step_by(BLOCK) {
            let to = (from + BLOCK).min(n);
            let (mut above, mut below) = a.view_mut().split_at(Axis(0), to);
            let mut block = above.slice_mut(s![from.., from..]);
            let factored = Arch::new().dispatch(
                #[inline(always)]
                || factor_rows(&mut block),
            );
            factored.map_err(|pivot| from + pivot)?;
            let done = block.slice(s![.., to - from..]);
            add_gram(-1.0, done.t(), &mut below.slice_mut(s![.., to..]));
        }
        Ok(a)
    }

    /// Computes the first rows of the triangle in place. The error is the pivot.
    #[inline(always)]
    fn factor_rows(rows: &mut ArrayViewMut2<'_, f64>) -> Result<(), usize> {
        for i in 0..rows.nrows() {
            let (mut above, mut below) = rows.view_mut().split_at(Axis(0), i + 1);
            let mut row = above.row_mut(i);
            let row = &mut row.as_slice_mut().expect("made by rows")[i..];
            let square = row[0];
            if !(square.is_finite() && square > 0.0) {
                return Err(i);
            }
            let diagonal = square.sqrt();
            row.iter_mut().for_each(|u| *u /= diagonal);
            for (k, mut other) in below.rows_mut().into_iter().enumerate() {
                let other = &mut other.as_slice_mut().expect("made by rows")[i + 1 + k..];
                take_away(row[k + 1], &row[k + 1..], other);
            }
        }
        Ok(())
    }

    /// Computes `to -= factor from`.
    #[inline(always)]
    fn take_away(factor: f64, from: &[f64], to: &mut [f64]) {
        to.iter_mut().zip(from).for_each(|(t, f)| *t -= factor * f);
    }

    pub(super) fn solve(u: &Factor, b: Array1<f64>) -> Array1<f64> {
        let row = |i: usize| &u.row(i).to_slice().expect("made by rows")[i..];
        let mut x = b.to_vec();
        for i in 0..x.len() {
            let row = row(i);
            let (x, rest) = x[i..].split_first_mut().expect("there are more");
            *x /= row[0];
            take_away(*x, &row[1..], rest);
        }
        for i in (0..x.len()).rev() {
            let row = row(i);
            x[i] = (x[i] - dot(&row[1..], &x[i + 1..])) / row[0];
        }
        x.into()
    }
}

#[cfg(feature = "lapack")]
mod backend {
    use lax::error::Error;
    use ndarray::{Array1, Array2};
    use ndarray_linalg::error::LinalgError;
    use ndarray_linalg::{CholeskyFactorized, FactorizeCInto, SolveC, UPLO};

    /// `None` for an empty matrix, which LAPACK does not accept.
    pub(super) type Factor = Option<CholeskyFactorized<ndarray::OwnedRepr<f64>>>;

    pub(super) fn factor(a: Array2<f64>) -> Result<Factor, usize> {
        if a.is_empty() {
            return Ok(None);
        }
        // LAPACK continues with an infinite pivot
        let infinite = a.diag().iter().position(|v| !v.is_finite());
        match a.factorizec_into(UPLO::Upper) {
            Ok(factor) => infinite.map_or(Ok(Some(factor)), Err),
            Err(LinalgError::Lapack(Error::LapackComputationalFailure { return_code })) => {
                Err(return_code as usize - 1)
            }
            Err(_) => Err(infinite.unwrap_or(0)),
        }
    }

    pub(super) fn solve(factor: &Factor, b: Array1<f64>) -> Array1<f64> {
        match factor {
            Some(factor) => factor.solvec_into(b).expect("of this length"),
            None => b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;
    use ndarray::{ShapeBuilder, arr2};

    #[test]
    fn close_residuals_are_rounding() {
        let mut draws = Stream::root(3).draws();
        for n in [0, 1, 2, 17, 130] {
            let g = Array2::from_shape_simple_fn((n, n), || draws.normal());
            let a = g.dot(&g.t()) + Array2::<f64>::eye(n);
            let b = Array2::from_shape_simple_fn((3, n), || draws.normal());
            let mut read = a.clone();
            for ((i, j), v) in read.indexed_iter_mut() {
                if j < i {
                    *v = f64::NAN; // must not be read
                }
            }
            let mut x = b.clone();
            Cholesky::factor(read)
                .unwrap()
                .solve_rows(x.view_mut())
                .unwrap();
            for (x, b) in x.rows().into_iter().zip(b.rows()) {
                let left: Array1<f64> = a.dot(&x) - b;
                assert!(left.iter().all(|r| r.abs() < 1e-9), "{n}: {left}");
            }
        }
    }

    /// The inverse of a Hilbert matrix has whole numbers; its condition number of 1.5e10 leaves
    /// five digits.
    #[test]
    fn close_the_inverse_of_a_hilbert_matrix_is_known() {
        let hilbert = Array2::from_shape_fn((8, 8), |(i, j)| 1.0 / (i + j + 1) as f64);
        let mut inverse = Array2::eye(8);
        Cholesky::factor(hilbert)
            .unwrap()
            .solve_rows(inverse.view_mut())
            .unwrap();
        for (at, wanted) in [((0, 0), 64.0), ((0, 1), -2016.0), ((7, 7), 176_679_360.0)] {
            assert!(
                (inverse[at] / wanted - 1.0).abs() < 1e-5,
                "{at:?}: {}",
                inverse[at]
            );
        }
    }

    #[test]
    fn exact_a_matrix_by_columns_and_a_view_with_gaps_are_taken() {
        let a = Array2::from_shape_vec((2, 2).f(), vec![4.0, f64::NAN, 2.0, 5.0]).unwrap();
        let mut right = arr2(&[[8.0, 0.0], [9.0, 0.0]]);
        let factor = Cholesky::factor(a).unwrap();
        let first_column = right.view_mut().reversed_axes();
        factor
            .solve_rows(first_column.slice_move(ndarray::s![..1, ..]))
            .unwrap();
        assert_eq!(right, arr2(&[[1.375, 0.0], [1.25, 0.0]]));
    }

    #[test]
    fn what_is_not_positive_definite_is_an_error_that_names_the_pivot() {
        let error = |a: Array2<f64>| Cholesky::factor(a).unwrap_err();
        let at = |n, pivot| LinalgError::NotPositiveDefinite { n, pivot };
        assert_eq!(error(arr2(&[[1.0, 2.0], [2.0, 1.0]])), at(2, 1));
        assert_eq!(error(arr2(&[[0.0]])), at(1, 0));
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            // in the second block of rows
            let mut a = Array2::eye(100);
            a[[90, 90]] = bad;
            assert_eq!(error(a), at(100, 90), "{bad}");
        }
        let (rows, columns) = (2, 3);
        let wide = error(Array2::zeros((rows, columns)));
        assert_eq!(wide, LinalgError::NotSquare { rows, columns });
        let factor = Cholesky::factor(Array2::eye(2)).unwrap();
        let (wanted, got) = (2, 3);
        let short = factor.solve_rows(Array2::zeros((1, got)).view_mut());
        assert_eq!(short, Err(LinalgError::Length { wanted, got }));
    }
}
