#![doc = include_str!("../README.md")]

mod cholesky;
mod eigen;
mod products;
mod svd;

pub use cholesky::Cholesky;
pub use eigen::{Eigen, symmetric_eigen};
pub use products::{add_gram, dot};
pub use svd::{Svd, svd};

use ndarray::{Array2, ArrayView2};

/// Why a matrix has no factor.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LinalgError {
    /// The matrix is not square.
    #[error("the matrix must be square, got {rows} x {columns}")]
    NotSquare {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// A right-hand side and the matrix differ in length.
    #[error("a right-hand side must have {wanted} numbers, got {got}")]
    Length {
        /// Rows of the matrix.
        wanted: usize,
        /// Numbers of the right-hand side.
        got: usize,
    },
    /// The leading block that ends with this pivot (counted from 0) is not positive definite in
    /// `f64`.
    #[error("the {n} x {n} matrix is not positive definite in f64: pivot {pivot} is not above 0")]
    NotPositiveDefinite {
        /// Rows of the matrix.
        n: usize,
        /// The first pivot that is not a positive number.
        pivot: usize,
    },
    /// NaN or an infinity in the matrix.
    #[error("the matrix has {value} in row {row}, column {column}; all numbers must be finite")]
    NotFinite {
        /// Counted from 0.
        row: usize,
        /// Counted from 0.
        column: usize,
        /// The value found.
        value: f64,
    },
    /// The iteration did not converge.
    #[error("the {rows} x {columns} matrix has no result within the allowed number of sweeps")]
    NotConverged {
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
    },
}

/// Checks that it is square.
fn check_square(a: ArrayView2<'_, f64>) -> Result<(), LinalgError> {
    match a.dim() {
        (rows, columns) if rows == columns => Ok(()),
        (rows, columns) => Err(LinalgError::NotSquare { rows, columns }),
    }
}

/// Returns the matrix, which must be finite, times a power of two, and that power. The power is 1
/// unless squares of squares of its numbers would leave the range of `f64`.
fn scale(mut a: Array2<f64>) -> Result<(Array2<f64>, f64), LinalgError> {
    const SAFE: i32 = 200;
    let mut largest: f64 = 0.0;
    for ((row, column), &value) in a.indexed_iter() {
        if !value.is_finite() {
            return Err(LinalgError::NotFinite { row, column, value });
        }
        largest = largest.max(value.abs());
    }
    let exponent = (largest.to_bits() >> 52) as i32 - 1023;
    if largest == 0.0 || exponent.abs() < SAFE {
        return Ok((a, 1.0));
    }
    let power = 2f64.powi(-exponent);
    a.mapv_inplace(|v| v * power);
    Ok((a, power))
}
