//! How good made inputs are.
use crate::terms::entropy;
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// The inception score of inputs that come batch by batch, with any model's probabilities: `exp(mean_x KL(p(.|x) || mean p))`,
/// from 1 to the number of classes (Salimans et al. 2016). With a client's model it is the paper's adapted score (Table 7).
#[derive(Clone, Debug, Default)]
pub struct Inception {
    inputs: usize,
    /// Sum of the entropies.
    entropies: f64,
    /// Sum of the probabilities.
    sum: Array1<f64>,
}

impl Inception {
    /// Adds inputs with these probabilities, `inputs x classes`.
    pub fn add(&mut self, p: ArrayView2<'_, f64>) {
        self.inputs += p.nrows();
        self.entropies += p.rows().into_iter().map(entropy).sum::<f64>();
        self.sum = match self.sum.is_empty() {
            true => p.sum_axis(Axis(0)),
            false => &self.sum + &p.sum_axis(Axis(0)),
        };
    }

    /// The score; 1 without inputs.
    pub fn score(&self) -> f64 {
        let n = self.inputs.max(1) as f64;
        (entropy((&self.sum / n).view()) - self.entropies / n).exp()
    }
}

/// Frechet distance of two sets of features, `inputs x features`, as of normal distributions with their means and covariances
/// (divided by `n - 1`): `|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2))` (Heusel et al. 2017). NaN for fewer than two inputs.
pub fn frechet(x: ArrayView2<'_, f64>, y: ArrayView2<'_, f64>) -> f64 {
    let moments = |x: ArrayView2<'_, f64>| {
        let mean = x.mean_axis(Axis(0))?;
        let off = &x - &mean;
        (x.nrows() > 1).then(|| (mean, off.t().dot(&off) / (x.nrows() - 1) as f64))
    };
    let (Some((m1, c1)), Some((m2, c2))) = (moments(x), moments(y)) else {
        return f64::NAN;
    };
    let off = &m1 - &m2;
    // the eigenvalues of C1 C2 are those of C1^(1/2) C2 C1^(1/2), which is symmetric
    let (values, vectors) = symmetric(c1.clone());
    let root = values.mapv(|v| v.max(0.0).sqrt());
    let root = (&vectors * &root).dot(&vectors.t());
    let (values, _) = symmetric(root.dot(&c2).dot(&root));
    let cross: f64 = values.iter().map(|v| v.max(0.0).sqrt()).sum();
    off.dot(&off) + c1.diag().sum() + c2.diag().sum() - 2.0 * cross
}

/// Eigenvalues and eigenvectors (columns) of a symmetric matrix, by Jacobi's rotations.
fn symmetric(mut a: Array2<f64>) -> (Array1<f64>, Array2<f64>) {
    let n = a.nrows();
    let mut vectors = Array2::eye(n);
    let size: f64 = a.iter().map(|v| v * v).sum();
    for _ in 0..100 {
        let off: f64 = (0..n)
            .flat_map(|i| (0..i).map(move |j| (i, j)))
            .map(|at| a[at] * a[at])
            .sum();
        if off <= 1e-30 * size {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[[p, q]] == 0.0 {
                    continue;
                }
                let theta = (a[[q, q]] - a[[p, p]]) / (2.0 * a[[p, q]]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let (c, s) = (1.0 / (t * t + 1.0).sqrt(), t / (t * t + 1.0).sqrt());
                for i in 0..n {
                    let (x, y) = (a[[i, p]], a[[i, q]]);
                    (a[[i, p]], a[[i, q]]) = (c * x - s * y, s * x + c * y);
                }
                for i in 0..n {
                    let (x, y) = (a[[p, i]], a[[q, i]]);
                    (a[[p, i]], a[[q, i]]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (vectors[[i, p]], vectors[[i, q]]);
                    (vectors[[i, p]], vectors[[i, q]]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    (a.diag().to_owned(), vectors)
}
