//! Eigenvalues and eigenvectors of symmetric matrices.

use crate::{LinalgError, check_square, scale};
use ndarray::{Array1, Array2};

/// `a = vectors diag(values) vectors'`.
#[derive(Clone, Debug, PartialEq)]
pub struct Eigen {
    /// The `n` eigenvalues, ascending.
    pub values: Array1<f64>,
    /// Their vectors, `n x n`, one in each column, of length 1 and orthogonal. The sign of a vector
    /// is arbitrary.
    pub vectors: Array2<f64>,
}

/// Decomposes `a`, which is `n x n` and symmetric up to rounding; `n` may be 0.
///
/// # Errors
/// [`LinalgError::NotSquare`], [`LinalgError::NotFinite`] or [`LinalgError::NotConverged`].
pub fn symmetric_eigen(a: Array2<f64>) -> Result<Eigen, LinalgError> {
    check_square(a.view())?;
    let n = a.nrows();
    let (a, power) = scale(a)?;
    let eigen = match n {
        0 => Some((Array1::zeros(0), a)),
        _ => backend::decompose(a),
    };
    let (rows, columns) = (n, n);
    let (values, vectors) = eigen.ok_or(LinalgError::NotConverged { rows, columns })?;
    let values = values / power;
    Ok(Eigen { values, vectors })
}

#[cfg(not(feature = "lapack"))]
mod backend {
    use ndarray::{Array1, Array2, Axis, Zip};

    /// Decomposes by Jacobi's rotations (Golub and Van Loan, Matrix Computations, section 8.5).
    pub(super) fn decompose(mut a: Array2<f64>) -> Option<(Array1<f64>, Array2<f64>)> {
        /// About ten are enough.
        const SWEEPS: usize = 100;
        let n = a.nrows();
        // as exact as rounding allows
        let least = (n as f64 * f64::EPSILON).powi(2);
        // vectors are in rows until the end
        let mut vectors: Array2<f64> = Array2::eye(n);
        let size: f64 = a.iter().map(|v| v * v).sum();
        for _ in 0..SWEEPS {
            let off: f64 = (0..n)
                .flat_map(|i| (0..i).map(move |j| (i, j)))
                .map(|at| a[at] * a[at])
                .sum();
            if off <= least * size {
                let values = a.diag();
                let mut order: Vec<usize> = (0..n).collect();
                order.sort_by(|i, j| values[*i].total_cmp(&values[*j]));
                let vectors = vectors.select(Axis(0), &order);
                return Some((values.select(Axis(0), &order), vectors.reversed_axes()));
            }
            for p in 0..n {
                for q in p + 1..n {
                    if a[[p, q]] == 0.0 {
                        continue;
                    }
                    let theta = (a[[q, q]] - a[[p, p]]) / (2.0 * a[[p, q]]);
                    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                    let (c, s) = (1.0 / (t * t + 1.0).sqrt(), t / (t * t + 1.0).sqrt());
                    let turn = |x: &mut f64, y: &mut f64| {
                        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
                    };
                    let (x, y) = a.multi_slice_mut((ndarray::s![.., p], ndarray::s![.., q]));
                    Zip::from(x).and(y).for_each(turn);
                    for matrix in [&mut a, &mut vectors] {
                        let rows = (ndarray::s![p, ..], ndarray::s![q, ..]);
                        let (x, y) = matrix.multi_slice_mut(rows);
                        Zip::from(x).and(y).for_each(turn);
                    }
                }
            }
        }
        None
    }
}

#[cfg(feature = "lapack")]
mod backend {
    use ndarray::{Array1, Array2};
    use ndarray_linalg::{EighInto, UPLO};

    pub(super) fn decompose(a: Array2<f64>) -> Option<(Array1<f64>, Array2<f64>)> {
        a.eigh_into(UPLO::Upper).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;
    use ndarray::arr2;

    /// Checks that the factors give the matrix, and that vectors have length 1 and are orthogonal.
    fn check(a: &Array2<f64>) -> Array1<f64> {
        let Eigen { values, vectors } = symmetric_eigen(a.clone()).unwrap();
        let size = a.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let near = |x: &Array2<f64>, y: &Array2<f64>, by: f64| {
            x.iter().zip(y).all(|(x, y)| (x - y).abs() <= 1e-12 * by)
        };
        assert!(
            near(&(&vectors * &values).dot(&vectors.t()), a, size),
            "{a}"
        );
        assert!(
            near(&vectors.t().dot(&vectors), &Array2::eye(a.nrows()), 1.0),
            "{a}"
        );
        assert!(
            values.windows(2).into_iter().all(|w| w[0] <= w[1]),
            "{values}"
        );
        values
    }

    #[test]
    fn close_known_matrices_have_their_eigenvalues() {
        let close = |found: Array1<f64>, wanted: &[f64]| {
            assert_eq!(found.len(), wanted.len());
            for (f, w) in found.iter().zip(wanted) {
                assert!((f - w).abs() < 1e-12, "{found}");
            }
        };
        close(check(&arr2(&[[2.0, 1.0], [1.0, 2.0]])), &[1.0, 3.0]);
        close(check(&arr2(&[[-3.5]])), &[-3.5]);
        close(check(&Array2::eye(3)), &[1.0; 3]);
        close(check(&Array2::zeros((2, 2))), &[0.0; 2]);
        close(check(&Array2::zeros((0, 0))), &[]);
        // opposite eigenvalues, and a singular matrix
        close(check(&arr2(&[[0.0, 5.0], [5.0, 0.0]])), &[-5.0, 5.0]);
        close(check(&Array2::ones((4, 4))), &[0.0, 0.0, 0.0, 4.0]);
        // second differences: 2 - 2 cos(k pi / (n + 1))
        let n = 40;
        let differences = Array2::from_shape_fn((n, n), |(i, j)| match i.abs_diff(j) {
            0 => 2.0,
            1 => -1.0,
            _ => 0.0,
        });
        let angle = |k: usize| std::f64::consts::PI * k as f64 / (n + 1) as f64;
        let wanted: Vec<f64> = (1..=n).map(|k| 2.0 - 2.0 * libm::cos(angle(k))).collect();
        close(check(&differences), &wanted);
    }

    #[test]
    fn close_random_matrices_are_put_together_again() {
        let mut draws = Stream::root(5).draws();
        for n in [3, 20, 90, 200] {
            let g = Array2::from_shape_simple_fn((n, n), || draws.normal());
            check(&(&g + &g.t()));
        }
    }

    #[test]
    fn close_numbers_near_the_ends_of_the_range_do_not_overflow() {
        for size in [1e300, 1e-300] {
            let values = check(&arr2(&[[2.0 * size, size], [size, 2.0 * size]]));
            assert!((values[0] / size - 1.0).abs() < 1e-12, "{values}");
            assert!((values[1] / size - 3.0).abs() < 1e-12, "{values}");
        }
    }

    #[test]
    fn what_is_not_finite_or_not_square_is_an_error() {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut a = Array2::eye(3);
            (a[[1, 2]], a[[2, 1]]) = (bad, bad);
            let text = symmetric_eigen(a).unwrap_err().to_string();
            assert!(text.contains("in row 1, column 2"), "{text}");
        }
        let (rows, columns) = (2, 1);
        let tall = symmetric_eigen(Array2::zeros((rows, columns)));
        assert_eq!(tall, Err(LinalgError::NotSquare { rows, columns }));
    }
}
