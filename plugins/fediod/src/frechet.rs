//! Quality measures of made inputs.
use crate::loss_terms::entropy;
use fl_core::portable::product;
use fl_linalg::{Eigen, symmetric_eigen};
use ndarray::{Array1, ArrayView2, Axis};

/// The inception score of inputs that come batch by batch, with any model's probabilities:
/// `exp(mean_x KL(p(.|x) || mean p))`, from 1 to the number of classes (Salimans et al. 2016). With
/// a client's model it is the paper's adapted score (Table 7).
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
        self.sum = if self.sum.is_empty() {
            p.sum_axis(Axis(0))
        } else {
            &self.sum + &p.sum_axis(Axis(0))
        };
    }

    /// Returns the score; 1 without inputs.
    pub fn score(&self) -> f64 {
        let n = self.inputs.max(1) as f64;
        libm::exp(entropy((&self.sum / n).view()) - self.entropies / n)
    }
}

/// Returns the Frechet distance of two sets of features, `inputs x features`, as of normal
/// distributions with their means and covariances (divided by `n - 1`):
/// `|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2))` (Heusel et al. 2017). NaN for fewer than two
/// inputs, and for features that are not finite.
pub fn frechet(x: ArrayView2<'_, f64>, y: ArrayView2<'_, f64>) -> f64 {
    distance(x, y).unwrap_or(f64::NAN)
}

fn distance(x: ArrayView2<'_, f64>, y: ArrayView2<'_, f64>) -> Option<f64> {
    let moments = |x: ArrayView2<'_, f64>| {
        let mean = x.mean_axis(Axis(0))?;
        let off = &x - &mean;
        (x.nrows() > 1).then(|| (mean, product(off.t(), off.view()) / (x.nrows() - 1) as f64))
    };
    let ((m1, c1), (m2, c2)) = (moments(x)?, moments(y)?);
    let off = &m1 - &m2;
    // the eigenvalues of C1 C2 are those of C1^(1/2) C2 C1^(1/2), which is symmetric
    let Eigen { values, vectors } = symmetric_eigen(c1.clone()).ok()?;
    let root = values.mapv(|v| v.max(0.0).sqrt());
    let root = product((&vectors * &root).view(), vectors.t());
    let values = symmetric_eigen(product(product(root.view(), c2.view()).view(), root.view()))
        .ok()?
        .values;
    let cross: f64 = values.iter().map(|v| v.max(0.0).sqrt()).sum();
    Some(off.dot(&off) + c1.diag().sum() + c2.diag().sum() - 2.0 * cross)
}
