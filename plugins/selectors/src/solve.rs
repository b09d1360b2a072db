//! Symmetric positive definite systems: Cholesky by blocks, or by LAPACK under the cargo feature `lapack`.

use anyhow::{Result, anyhow};
use ndarray::Array2;

/// Solves `a x = b` for each row `b` of `right`, in place. `a` is symmetric positive definite; only what stands on and right of its diagonal is read.
///
/// # Errors
/// When `a` is not positive definite to working precision.
pub(crate) fn solve(a: Array2<f64>, right: &mut Array2<f64>) -> Result<()> {
    let n = a.nrows();
    backend::solve(a, right).map_err(|()| {
        anyhow!("the kernel system of {n} points is not positive definite in f64; give a larger `beta` or a smaller `width`")
    })
}

#[cfg(not(feature = "lapack"))]
mod backend {
    use crate::kernel::{add_gram, dot};
    use ndarray::{Array2, ArrayViewMut2, Axis, s};
    use pulp::Arch;

    /// Rows that are factored at a time: the rest of the work is one matrix product for each such block.
    const BLOCK: usize = 64;

    pub(super) fn solve(mut a: Array2<f64>, right: &mut Array2<f64>) -> Result<(), ()> {
        let n = a.nrows();
        for from in (0..n).step_by(BLOCK) {
            let to = (from + BLOCK).min(n);
            let (mut above, mut below) = a.view_mut().split_at(Axis(0), to);
            let mut block = above.slice_mut(s![from.., from..]);
            Arch::new().dispatch(
                #[inline(always)]
                || factor_rows(&mut block),
            )?;
            let done = block.slice(s![.., to - from..]);
            add_gram(-1.0, done.t(), &mut below.slice_mut(s![.., to..]));
        }
        for mut x in right.rows_mut() {
            substitute(&a, x.as_slice_mut().expect("made by rows"));
        }
        Ok(())
    }

    /// The first rows of the triangle `u` with `u' u = a`, in the place of those of `a`.
    #[inline(always)]
    fn factor_rows(rows: &mut ArrayViewMut2<'_, f64>) -> Result<(), ()> {
        for i in 0..rows.nrows() {
            let (mut above, mut below) = rows.view_mut().split_at(Axis(0), i + 1);
            let mut row = above.row_mut(i);
            let row = &mut row.as_slice_mut().expect("made by rows")[i..];
            let square = row[0];
            if !(square.is_finite() && square > 0.0) {
                return Err(());
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

    /// `to -= factor from`.
    #[inline(always)]
    fn take_away(factor: f64, from: &[f64], to: &mut [f64]) {
        to.iter_mut().zip(from).for_each(|(t, f)| *t -= factor * f);
    }

    /// Solves `u' u x = b`; `x` is `b` before.
    fn substitute(u: &Array2<f64>, x: &mut [f64]) {
        let row = |i: usize| &u.row(i).to_slice().expect("made by rows")[i..];
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
    }
}

#[cfg(feature = "lapack")]
mod backend {
    use ndarray::{Array1, Array2};
    use ndarray_linalg::{FactorizeCInto, SolveC, UPLO};

    pub(super) fn solve(a: Array2<f64>, right: &mut Array2<f64>) -> Result<(), ()> {
        let factor = a.factorizec_into(UPLO::Upper).map_err(|_| ())?;
        for mut row in right.rows_mut() {
            let solved: Array1<f64> = factor.solvec(&row).map_err(|_| ())?;
            row.assign(&solved);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;
    use ndarray::Array1;

    #[test]
    fn close_residuals_are_rounding() {
        let mut draws = Stream::root(3).draws();
        for n in [1, 2, 17, 130] {
            let g = Array2::from_shape_simple_fn((n, n), || draws.normal());
            let a = g.dot(&g.t()) + Array2::<f64>::eye(n);
            let b = Array2::from_shape_simple_fn((3, n), || draws.normal());
            let mut read = a.clone();
            for ((i, j), v) in read.indexed_iter_mut() {
                if j < i {
                    *v = f64::NAN; // must not be looked at
                }
            }
            let mut x = b.clone();
            solve(read, &mut x).unwrap();
            for (x, b) in x.rows().into_iter().zip(b.rows()) {
                let left: Array1<f64> = a.dot(&x) - b;
                assert!(left.iter().all(|r| r.abs() < 1e-9), "{n}: {left}");
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_an_error() {
        let a = ndarray::arr2(&[[1.0, 2.0], [2.0, 1.0]]);
        let text = solve(a, &mut Array2::ones((1, 2))).unwrap_err().to_string();
        assert!(text.contains("not positive definite"), "{text}");
    }
}
