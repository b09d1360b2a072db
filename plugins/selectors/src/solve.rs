//! Symmetric positive definite systems: Cholesky by faer, or by LAPACK under the cargo feature `lapack`.

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
    use faer::dyn_stack::{MemBuffer, MemStack};
    use faer::linalg::cholesky::llt::factor::{self, LltRegularization};
    use faer::linalg::cholesky::llt::solve as back;
    use faer::{MatMut, Par};
    use ndarray::Array2;

    pub(super) fn solve(mut a: Array2<f64>, right: &mut Array2<f64>) -> Result<(), ()> {
        let (n, k) = (a.nrows(), right.nrows());
        let none = Default::default();
        // right of the diagonal by rows is below the diagonal by columns, where faer reads and writes
        let a = a.as_slice_mut().expect("made by rows");
        let mut a = MatMut::from_column_major_slice_mut(a, n, n);
        let space = factor::cholesky_in_place_scratch::<f64>(n, Par::Seq, none);
        let mut space = MemBuffer::new(space);
        let stack = MemStack::new(&mut space);
        factor::cholesky_in_place(
            a.as_mut(),
            LltRegularization::default(),
            Par::Seq,
            stack,
            none,
        )
        .map_err(|_| ())?;
        let right = right.as_slice_mut().expect("made by rows");
        let right = MatMut::from_column_major_slice_mut(right, n, k);
        back::solve_in_place(a.as_ref(), right, Par::Seq, stack);
        Ok(())
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
