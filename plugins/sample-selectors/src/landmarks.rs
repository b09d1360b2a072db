//! KuLSIF among sums of kernels on a few landmarks (Nystrom; Williams and Seeger 2001): `n m`
//! kernel values in place of `n^2`.

use crate::kernel::{BLOCK, Gaussian, Points, middle, solve};
use anyhow::Result;
use fl_core::Stream;
use fl_linalg::add_gram;
use ndarray::{Array2, ArrayView2, Axis, concatenate};

/// Returns landmarks, `m x features`, and the coefficients of each set, `sets x m`.
///
/// With `w = sum_l a_l k(., z_l)` the objective is
/// `1/(2 n_u) |K_UZ a|^2 - 1/n_s 1' K_SZ a + beta/2 a' K_ZZ a`; its gradient vanishes where
/// `(K_UZ' K_UZ / n_u + beta K_ZZ) a = 1/n_s K_ZS 1`.
pub(crate) fn fit<T: Copy + Into<f64>>(
    uniform: ArrayView2<'_, T>,
    own: &[ArrayView2<'_, T>],
    kernel: Gaussian,
    beta: f64,
    count: usize,
    stream: &Stream,
) -> Result<(Array2<T>, Array2<f64>)> {
    let chosen = choose(uniform, &concatenate(Axis(0), own)?, count, stream);
    let origin = middle(chosen.view());
    let landmarks = Points::new(chosen.view(), &origin);
    let mut right = Array2::zeros((own.len(), landmarks.len()));
    for (set, mut right) in own.iter().zip(right.rows_mut()) {
        let means = kernel.mean(&landmarks, &Points::new(*set, &origin));
        right.iter_mut().zip(means).for_each(|(r, m)| *r = m);
    }
    let mut matrix = normal_matrix(uniform, &origin, &landmarks, kernel);
    matrix.scaled_add(beta, &kernel.with_itself(&landmarks));
    let trace: f64 = matrix.diag().sum();
    // kernels of near landmarks are nearly equal: a small diagonal term, relative to the trace,
    // keeps the factor real
    let mut jitter = 1e-13 * trace;
    loop {
        let mut tried = matrix.clone();
        tried.diag_mut().iter_mut().for_each(|d| *d += jitter);
        let mut coefficients = right.clone();
        match solve(tried, &mut coefficients) {
            Ok(()) => return Ok((chosen, coefficients)),
            Err(error) if jitter > 1e-6 * trace => return Err(error),
            Err(_) => jitter *= 100.0,
        }
    }
}

/// Chooses the landmarks: up to half are own points, because the ratio peaks there; the others are
/// uniform.
fn choose<T: Copy>(
    uniform: ArrayView2<'_, T>,
    own: &Array2<T>,
    count: usize,
    stream: &Stream,
) -> Array2<T> {
    let of = |what, n, k| stream.child(what, 0).draws().choose(n, k);
    let from_own = of("own landmarks", own.nrows(), count.div_ceil(2));
    let rest = count - from_own.len();
    let from_uniform = of("uniform landmarks", uniform.nrows(), rest);
    let parts = [
        uniform.select(Axis(0), &from_uniform),
        own.select(Axis(0), &from_own),
    ];
    concatenate(Axis(0), &[parts[0].view(), parts[1].view()]).expect("of one width")
}

/// `K_UZ' K_UZ / n_u`, from blocks of `U`.
fn normal_matrix<T: Copy + Into<f64>>(
    uniform: ArrayView2<'_, T>,
    origin: &[f64],
    landmarks: &Points,
    kernel: Gaussian,
) -> Array2<f64> {
    let m = landmarks.len();
    let (mut sums, mut buffer) = (Array2::zeros((m, m)), vec![0.0; BLOCK * m]);
    for rows in uniform.axis_chunks_iter(Axis(0), BLOCK) {
        let points = Points::new(rows, origin);
        let block = kernel.block(&points, &(0..points.len()), landmarks, &mut buffer);
        let block = ArrayView2::from_shape((points.len(), m), block).expect("rows of m");
        add_gram(1.0, block.t(), &mut sums.view_mut());
    }
    sums / uniform.nrows() as f64
}
