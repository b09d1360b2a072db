//! Times the three routines: `cargo run --release -p fl-linalg --example times [--features
//! lapack]`.

use fl_core::Stream;
use fl_linalg::{Cholesky, LinalgError, svd, symmetric_eigen};
use ndarray::Array2;
use std::io::Write;
use std::time::Instant;

/// The shortest of some calls, in milliseconds.
fn shortest(mut call: impl FnMut() -> Result<(), LinalgError>) -> Result<f64, LinalgError> {
    let (began, mut shortest) = (Instant::now(), f64::INFINITY);
    while shortest.is_infinite() || began.elapsed().as_secs_f64() < 1.0 {
        let start = Instant::now();
        call()?;
        shortest = shortest.min(1000.0 * start.elapsed().as_secs_f64());
    }
    Ok(shortest)
}

fn main() -> anyhow::Result<()> {
    let mut draws = Stream::root(1).draws();
    for n in [10, 100, 1000] {
        let g = Array2::from_shape_simple_fn((n, n), || draws.normal());
        let a = g.dot(&g.t()) + Array2::<f64>::eye(n);
        let mut right = Array2::ones((1, n));
        let solve = shortest(|| Cholesky::factor(a.clone())?.solve_rows(right.view_mut()))?;
        let eigen = shortest(|| symmetric_eigen(a.clone()).map(drop))?;
        let values = shortest(|| svd(g.clone()).map(drop))?;
        writeln!(
            std::io::stdout(),
            "n = {n}: Cholesky {solve:.3} ms, eigen {eigen:.3} ms, svd {values:.3} ms"
        )?;
    }
    Ok(())
}
