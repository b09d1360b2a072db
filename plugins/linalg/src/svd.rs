//! Singular values.

use crate::{LinalgError, scale};
use ndarray::{Array1, Array2};

/// `a = left diag(values) right`, without `left`, which no caller needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Svd {
    /// The `min(m, n)` singular values, descending.
    pub values: Array1<f64>,
    /// Their right vectors, `min(m, n) x n`, one in each row, of length 1 and orthogonal. The sign
    /// of a vector is arbitrary. Vectors of values that are 0 up to rounding are arbitrary.
    pub right: Array2<f64>,
}

/// Returns singular values and right vectors of `a`, which is `m x n` of any shape.
///
/// # Errors
/// [`LinalgError::NotFinite`], and with LAPACK [`LinalgError::NotConverged`].
pub fn svd(a: Array2<f64>) -> Result<Svd, LinalgError> {
    let (rows, columns) = a.dim();
    let (a, power) = scale(a)?;
    if a.is_empty() {
        return Ok(Svd {
            values: Array1::zeros(0),
            right: Array2::zeros((0, columns)),
        });
    }
    let found = backend::decompose(a);
    let (values, right) = found.ok_or(LinalgError::NotConverged { rows, columns })?;
    let values = values / power;
    Ok(Svd { values, right })
}

#[cfg(not(feature = "lapack"))]
mod backend {
    use ndarray::{Array1, Array2};

    /// Rotates pairs of rows until all are orthogonal (one-sided Jacobi; Golub and Van Loan, Matrix
    /// Computations, section 8.6.3). Their lengths are the values, and their directions the
    /// vectors.
    pub(super) fn decompose(a: Array2<f64>) -> Option<(Array1<f64>, Array2<f64>)> {
        /// About ten are enough; further rotations are rounding.
        const SWEEPS: usize = 30;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (count, width) = (a.nrows().min(a.ncols()), a.ncols());
        let mut rows: Vec<Vec<f64>> = a.rows().into_iter().map(|row| row.to_vec()).collect();
        let all: f64 = rows.iter().map(|row| dot(row, row)).sum();
        for _ in 0..SWEEPS {
            let mut turned = false;
            for j in 1..rows.len() {
                let (before, after) = rows.split_at_mut(j);
                let b = &mut after[0];
                for a in before {
                    let (aa, ab, bb) = (dot(a, a), dot(a, b), dot(b, b));
                    // orthogonal already, or one is only rounding
                    let least = f64::EPSILON * (aa * bb).sqrt().max(f64::EPSILON * all);
                    if ab.abs() <= least {
                        continue;
                    }
                    turned = true;
                    let zeta = (bb - aa) / (2.0 * ab);
                    let tangent = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
                    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
                    let sine = cosine * tangent;
                    for (a, b) in a.iter_mut().zip(b.iter_mut()) {
                        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
                    }
                }
            }
            if !turned {
                break;
            }
        }
        let lengths: Vec<f64> = rows.iter().map(|row| dot(row, row).sqrt()).collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|i, j| lengths[*j].total_cmp(&lengths[*i]).then(j.cmp(i)));
        order.truncate(count);
        let right = Array2::from_shape_fn((count, width), |(i, j)| match lengths[order[i]] {
            0.0 => 0.0,
            length => rows[order[i]][j] / length,
        });
        Some((order.iter().map(|at| lengths[*at]).collect(), right))
    }
}

#[cfg(feature = "lapack")]
mod backend {
    use ndarray::{Array1, Array2};
    use ndarray_linalg::{JobSvd, SVDDCInto};

    pub(super) fn decompose(a: Array2<f64>) -> Option<(Array1<f64>, Array2<f64>)> {
        let (_, values, right) = a.svddc_into(JobSvd::Some).ok()?;
        Some((values, right?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;
    use ndarray::arr2;

    /// Checks that values are in order, and `right a' a right' = values^2`.
    fn check(a: &Array2<f64>) -> Array1<f64> {
        let Svd { values, right } = svd(a.clone()).unwrap();
        let count = a.nrows().min(a.ncols());
        assert_eq!((values.len(), right.dim()), (count, (count, a.ncols())));
        assert!(
            values.windows(2).into_iter().all(|w| w[0] >= w[1]),
            "{values}"
        );
        let turned = a.dot(&right.t());
        let squares = turned.t().dot(&turned);
        let largest = values.first().map_or(0.0, |v| v * v);
        for ((i, j), found) in squares.indexed_iter() {
            let wanted = if i == j { values[i] * values[i] } else { 0.0 };
            assert!(
                (found - wanted).abs() <= 1e-12 * largest,
                "{i}, {j}: {squares}"
            );
        }
        values
    }

    #[test]
    fn close_known_matrices_have_their_singular_values() {
        let close = |found: Array1<f64>, wanted: &[f64]| {
            assert_eq!(found.len(), wanted.len());
            for (f, w) in found.iter().zip(wanted) {
                assert!((f - w).abs() < 1e-12, "{found}");
            }
        };
        let a = arr2(&[[3.0, 0.0], [4.0, 5.0]]);
        close(check(&a), &[45f64.sqrt(), 5f64.sqrt()]);
        let wide = arr2(&[[3.0, 2.0, 2.0], [2.0, 3.0, -2.0]]);
        close(check(&wide), &[5.0, 3.0]);
        close(check(&wide.reversed_axes()), &[5.0, 3.0]);
        close(check(&arr2(&[[-2.0]])), &[2.0]);
        close(check(&Array2::zeros((2, 3))), &[0.0, 0.0]);
        // of rank 1: u v' with lengths 3 and 13
        let (u, v) = (arr2(&[[1.0], [2.0], [2.0]]), arr2(&[[3.0, 4.0, 12.0]]));
        close(check(&u.dot(&v)), &[39.0, 0.0, 0.0]);
        for empty in [(0, 0), (0, 3), (3, 0)] {
            close(check(&Array2::zeros(empty)), &[]);
        }
    }

    #[test]
    fn close_random_matrices_of_any_shape_have_orthogonal_vectors() {
        let mut draws = Stream::root(6).draws();
        for shape in [(1, 9), (9, 1), (12, 30), (30, 12), (40, 40)] {
            let a = Array2::from_shape_simple_fn(shape, || draws.normal());
            check(&a);
            let right = svd(a).unwrap().right;
            let off = right.dot(&right.t()) - Array2::<f64>::eye(right.nrows());
            assert!(off.iter().all(|v| v.abs() < 1e-12), "{shape:?}: {off}");
        }
    }

    #[test]
    fn close_numbers_near_the_ends_of_the_range_do_not_overflow() {
        for size in [1e300, 1e-300] {
            let a = arr2(&[[3.0 * size, 0.0], [4.0 * size, 5.0 * size]]);
            let values = svd(a).unwrap().values / size;
            assert!((values[0] - 45f64.sqrt()).abs() < 1e-12, "{values}");
            assert!((values[1] - 5f64.sqrt()).abs() < 1e-12, "{values}");
        }
    }

    #[test]
    fn what_is_not_finite_is_an_error() {
        for bad in [f64::NAN, f64::NEG_INFINITY] {
            let text = svd(arr2(&[[1.0, bad]])).unwrap_err().to_string();
            assert!(
                text.contains(&format!("{bad} in row 0, column 1")),
                "{text}"
            );
        }
    }
}
