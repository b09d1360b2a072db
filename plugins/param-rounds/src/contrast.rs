//! The loss on features that MOON adds to a client's training (Li et al. 2021, section 3.2).
use fl_core::prelude::*;
use fl_core::{FeatureLoss, FeatureTerm, Problem};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

/// `mu` times the mean over the examples of a mini-batch of
/// `log(1 + exp((cos(z, far) - cos(z, near)) / tau))`, where `z` are the features of an example.
#[derive(Debug)]
pub(crate) struct Contrast {
    /// The features of all examples by the server's model.
    pub near: Array2<f64>,
    /// Those by the client's last model.
    pub far: Array2<f64>,
    pub mu: f64,
    /// The temperature.
    pub tau: f64,
}

/// Returns the cosine of the angle between two vectors, and its slope by the first; 0 if one is 0.
fn cosine(z: ArrayView1<'_, f64>, other: ArrayView1<'_, f64>) -> (f64, Array1<f64>) {
    let (square, norms) = (z.dot(&z), (z.dot(&z) * other.dot(&other)).sqrt());
    if norms == 0.0 {
        return (0.0, Array1::zeros(z.len()));
    }
    let cosine = z.dot(&other) / norms;
    (cosine, &other / norms - &z * (cosine / square))
}

impl FeatureLoss for Contrast {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        _: Target<'_>,
        rows: &[usize],
        _: &Stream,
    ) -> Result<FeatureTerm> {
        let (n, z) = (features.nrows(), features.mapv(f64::from));
        let examples = self.near.nrows();
        let text = || format!("rows {rows:?} of {examples} examples");
        Problem::shape_unless(rows.iter().all(|row| *row < examples), text)?;
        let (share, mut loss, mut slope) = (self.mu / n as f64, 0.0, Array2::zeros(z.dim()));
        for (at, row) in rows.iter().enumerate() {
            let near = cosine(z.row(at), self.near.row(*row));
            let far = cosine(z.row(at), self.far.row(*row));
            let apart = (far.0 - near.0) / self.tau;
            loss += share * (apart.max(0.0) + libm::log1p(libm::exp(-apart.abs())));
            let by = share / self.tau / (1.0 + libm::exp(-apart));
            slope.row_mut(at).assign(&((far.1 - near.1) * by));
        }
        let by_features = slope.mapv(|s| s as f32);
        Ok(FeatureTerm { loss, by_features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn contrast() -> Contrast {
        Contrast {
            near: array![[1.0, 0.5], [-0.3, 0.8], [0.0, 0.0]],
            far: array![[0.2, -1.5], [0.4, 0.1], [2.0, -1.0]],
            mu: 1.7,
            tau: 0.3,
        }
    }

    fn of(z: &Array2<f32>, rows: [usize; 2]) -> Result<FeatureTerm> {
        let target = Target::Classes(&[0, 0]);
        FeatureTerm::of(&contrast(), z.view(), target, &rows, &Stream::root(1))
    }

    /// The paper's equation 3, number by number.
    fn by_hand(z: &Array2<f32>, rows: [usize; 2]) -> f64 {
        let all = contrast();
        let similar = |at: usize, other: ArrayView1<'_, f64>| {
            let z = [f64::from(z[[at, 0]]), f64::from(z[[at, 1]])];
            let norms = (z[0] * z[0] + z[1] * z[1]) * (other[0].powi(2) + other[1].powi(2));
            let product = z[0] * other[0] + z[1] * other[1];
            libm::exp(if norms > 0.0 {
                product / norms.sqrt() / 0.3
            } else {
                0.0
            })
        };
        let of = |at: usize| {
            let (near, far) = (all.near.row(rows[at]), all.far.row(rows[at]));
            let (near, far) = (similar(at, near), similar(at, far));
            -libm::log(near / (near + far))
        };
        1.7 * (of(0) + of(1)) / 2.0
    }

    #[test]
    fn close_the_contrast_is_the_papers_and_slopes_are_its_own() {
        let z = array![[0.7f32, -0.2], [0.4, 1.1]];
        for rows in [[0, 1], [2, 0]] {
            let found = of(&z, rows).unwrap();
            assert!((found.loss - by_hand(&z, rows)).abs() < 1e-12);
            for (at, slope) in found.by_features.indexed_iter() {
                let moved = |d: f32| {
                    let mut z = z.clone();
                    z[at] += d;
                    by_hand(&z, rows)
                };
                let n = (moved(0.001) - moved(-0.001)) / 0.002;
                assert!((f64::from(*slope) - n).abs() < 1e-3, "{at:?}: {slope}, {n}");
            }
        }
        let none = of(&array![[0.0, 0.0], [0.4, 1.1]], [0, 1]).unwrap();
        assert_eq!(none.by_features.row(0).to_vec(), [0.0, 0.0]);
    }

    #[test]
    fn a_row_that_no_example_has_is_refused() {
        let text = of(&array![[0.7f32, -0.2], [0.4, 1.1]], [2, 3]).unwrap_err();
        assert_eq!(text.to_string(), "rows [2, 3] of 3 examples");
    }
}
