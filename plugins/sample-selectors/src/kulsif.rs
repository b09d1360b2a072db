//! KuLSIF: the ratio of two densities, least squares in a reproducing kernel Hilbert space
//! (Kanamori, Suzuki and Sugiyama 2012), as Selective-FD uses it (Shao et al. 2024, "Client-side
//! selector"; the crate's README documents our choices).
//!
//! `U` are `n_u` points of the density below the line (uniform), `S` `n_s` points of the density
//! above it (the client's). The estimate minimises
//! `1/(2 n_u) sum_U w^2 - 1/n_s sum_S w + beta/2 |w|^2`, and is `w(x) = sum_i alpha_i k(x, u_i) +
//! 1/(n_s beta) sum_j k(x, s_j)` with `(K_UU/n_u + beta I) alpha = -1/(n_u n_s beta) K_US 1`.
//!
//! Several sets `S` share `U`: the matrix is factored once, and there is one right-hand side for
//! each.

use crate::kernel::{BLOCK, Gaussian, Points, middle, solve};
use crate::landmarks;
use crate::width::check as check_width;
use anyhow::{Result, ensure};
use fl_core::Stream;
use fl_core::portable::product;
use fl_linalg::dot;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use serde::{Deserialize, Serialize};

/// The solver.
#[derive(Clone, Copy, Debug)]
pub enum Method<'a> {
    /// Solves the system: `n_u^2` numbers of memory, `n_u^3/3` multiplications.
    Exact,
    /// Multiplies by the matrix in place of its inverse, as the published code of Selective-FD
    /// does.
    Official,
    /// The minimum among sums of this many kernels, on points of `U` and `S` that the stream draws
    /// (Nystrom): time and memory grow linearly with `n_u` and `n_s`.
    Landmarks(usize, &'a Stream),
}

/// Estimated density ratios, one for each set `S`: sums of Gaussians around common centres.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratios<T = f32> {
    sigma: f64,
    /// `centres x features`.
    centres: Array2<T>,
    /// `sets x centres`.
    coefficients: Array2<f64>,
}

impl<T: Copy + Into<f64>> Ratios<T> {
    /// Fits one ratio for each of `own`; `uniform` and each of `own` are `points x features`,
    /// finite.
    ///
    /// # Errors
    /// If a set has no points, widths differ, `sigma` or `beta` is not a positive number, or the
    /// system cannot be solved.
    pub fn fit(
        uniform: ArrayView2<'_, T>,
        own: &[ArrayView2<'_, T>],
        sigma: f64,
        beta: f64,
        method: Method<'_>,
    ) -> Result<Self> {
        check_width(sigma)?;
        ensure!(
            beta > 0.0 && beta.is_finite(),
            "`beta` must be above 0 and finite, got {beta}"
        );
        for (what, set) in [("uniform", &uniform)]
            .into_iter()
            .chain(own.iter().map(|set| ("own", set)))
        {
            ensure!(
                set.nrows() > 0,
                "a density ratio needs at least one {what} point, got none"
            );
            ensure!(
                set.ncols() == uniform.ncols(),
                "{what} points have {} features, the uniform ones {}",
                set.ncols(),
                uniform.ncols()
            );
        }
        let fitted = Self::fit_checked(uniform, own, sigma, beta, method)?;
        ensure!(
            fitted.is_sound(),
            "the density ratio overflows with `beta` {beta:e} and `width` {sigma}; give a larger `beta`"
        );
        Ok(fitted)
    }

    fn fit_checked(
        uniform: ArrayView2<'_, T>,
        own: &[ArrayView2<'_, T>],
        sigma: f64,
        beta: f64,
        method: Method<'_>,
    ) -> Result<Self> {
        let kernel = Gaussian::new(sigma);
        if let Method::Landmarks(count, stream) = method {
            let (centres, coefficients) =
                landmarks::fit(uniform, own, kernel, beta, count, stream)?;
            return Ok(Self {
                sigma,
                centres,
                coefficients,
            });
        }
        let sets: Vec<_> = [uniform].into_iter().chain(own.iter().copied()).collect();
        let mut coefficients = exact(&sets, kernel, beta, matches!(method, Method::Official))?;
        let mut at = uniform.nrows();
        for (set, mut of_set) in own.iter().zip(coefficients.rows_mut()) {
            let n = set.nrows();
            of_set
                .slice_mut(s![at..at + n])
                .fill(1.0 / (n as f64 * beta));
            at += n;
        }
        Ok(Self {
            sigma,
            centres: concatenate(Axis(0), &sets)?,
            coefficients,
        })
    }

    /// Returns the ratios at points in blocks of any size, `points x sets`.
    ///
    /// # Errors
    /// If a block is an error or has another number of features.
    pub fn of_blocks(
        &self,
        blocks: impl IntoIterator<Item = Result<Array2<T>>>,
    ) -> Result<Array2<f64>> {
        let (kernel, origin) = (Gaussian::new(self.sigma), middle(self.centres.view()));
        let centres = Points::new(self.centres.view(), &origin);
        let mut buffer = vec![0.0; BLOCK * centres.len()];
        let (mut out, mut rows) = (Vec::new(), 0);
        for block in blocks {
            let block = block?;
            ensure!(
                block.ncols() == origin.len(),
                "points of {} features for a density ratio of {}",
                block.ncols(),
                origin.len()
            );
            let points = Points::new(block.view(), &origin);
            for range in points.blocks() {
                let values = kernel.block(&points, &range, &centres, &mut buffer);
                for values in values.chunks(centres.len().max(1)) {
                    let sets = self.coefficients.rows().into_iter();
                    out.extend(sets.map(|c| dot(values, c.to_slice().expect("made by rows"))));
                }
            }
            rows += points.len();
        }
        Ok(Array2::from_shape_vec((rows, self.sets()), out)?)
    }

    /// Returns the ratios at `points` (`points x features`), `points x sets`.
    ///
    /// # Errors
    /// If the number of features differs.
    pub fn of(&self, points: ArrayView2<'_, T>) -> Result<Array2<f64>> {
        let blocks = points.axis_chunks_iter(Axis(0), BLOCK);
        self.of_blocks(blocks.map(|block| Ok(block.to_owned())))
    }

    /// Returns the number of sets `S`.
    pub fn sets(&self) -> usize {
        self.coefficients.nrows()
    }

    /// Returns `sets x centres`. For an exact fit: first `alpha` of the uniform points, then
    /// `1/(n_s beta)` at the set's own points.
    pub fn coefficients(&self) -> ArrayView2<'_, f64> {
        self.coefficients.view()
    }

    /// Returns the number of features of a point.
    pub fn features(&self) -> usize {
        self.centres.ncols()
    }

    /// Checks that the parts fit together and are finite; a loaded state may violate this.
    pub(crate) fn is_sound(&self) -> bool {
        let finite = |v: &f64| v.is_finite();
        self.coefficients.ncols() == self.centres.nrows()
            && self.coefficients.is_standard_layout()
            && check_width(self.sigma).is_ok()
            && self.coefficients.iter().all(finite)
            && self.centres.iter().all(|v| (*v).into().is_finite())
    }
}

/// Returns `alpha` for each set after the first, at the positions of the first (`U`); zeros at all
/// other positions.
fn exact<T: Copy + Into<f64>>(
    sets: &[ArrayView2<'_, T>],
    kernel: Gaussian,
    beta: f64,
    official: bool,
) -> Result<Array2<f64>> {
    let (n, total) = (sets[0].nrows(), sets.iter().map(|s| s.nrows()).sum());
    let origin = middle(sets[0]);
    let uniform = Points::new(sets[0], &origin);
    let mut alpha = Array2::zeros((sets.len() - 1, n));
    for (set, mut right) in sets[1..].iter().zip(alpha.rows_mut()) {
        let means = kernel.mean(&uniform, &Points::new(*set, &origin));
        let factor = -1.0 / (n as f64 * beta);
        right
            .iter_mut()
            .zip(means)
            .for_each(|(r, m)| *r = factor * m);
    }
    let mut matrix = kernel.with_itself(&uniform);
    matrix.mapv_inplace(|k| k / n as f64);
    matrix.diag_mut().iter_mut().for_each(|k| *k += beta);
    if official {
        for i in 0..n {
            for j in 0..i {
                matrix[[i, j]] = matrix[[j, i]];
            }
        }
        alpha = product(alpha.view(), matrix.view());
    } else {
        solve(matrix, &mut alpha)?;
    }
    let mut coefficients = Array2::zeros((sets.len() - 1, total));
    coefficients.slice_mut(s![.., ..n]).assign(&alpha);
    Ok(coefficients)
}

#[cfg(test)]
#[path = "kulsif_tests.rs"]
mod tests;
