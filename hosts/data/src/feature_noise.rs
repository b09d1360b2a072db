//! Clients whose inputs have noise, each more than the one before.

use anyhow::{Result, ensure};
use fl_core::{Examples, Inputs, Stream, Task};
use fl_data_kit::SetSpec;
use std::sync::Arc;

fl_core::choices! {
    /// Gaussian noise on the inputs of each client, as the models see them: after they were
    /// normalised. Every row keeps its noise for the whole run; common test rows have none, unless
    /// they are those of all clients (`test.of: all`) (NIID-Bench, Li et al. 2022, "noise-based
    /// feature imbalance").
    pub enum FeatureNoise {
        /// Client `k` of `n` has noise of this variance times `(k + 1) / n`, as the paper says:
        /// party `i`, counted from 1, has `Gau(sigma * i / N)`.
        Variance(f64) = "variance",
        /// Client `k` of `n` has noise of this standard deviation times `k / (n - 1)`, as the
        /// paper's published code has it: the first client has none.
        Deviation(f64) = "deviation",
    }
}

/// The largest variance or deviation.
const MOST: f64 = 1e3;

impl FeatureNoise {
    pub(crate) fn fits(&self, set: &SetSpec, task: &Task, clients: usize) -> Result<()> {
        let (Self::Variance(most) | Self::Deviation(most)) = *self;
        ensure!(
            most > 0.0 && most <= MOST,
            "must be above 0 and at most {MOST}, got {most}"
        );
        ensure!(
            clients > 1 || matches!(self, Self::Variance(_)),
            "`deviation` gives the first client none, and there is one client"
        );
        ensure!(
            !set.is_sparse(),
            "the rows of `{}` are sparse, or hold numbers of words, and get none; leave it out",
            set.name()
        );
        ensure!(
            !task.kind.is_dense(),
            "images whose pixels have classes or values get none; leave it out"
        );
        Ok(())
    }

    /// The standard deviation of a client's noise.
    fn deviation(&self, client: usize, clients: usize) -> f64 {
        match *self {
            Self::Variance(most) => (most * (client + 1) as f64 / clients as f64).sqrt(),
            Self::Deviation(most) => most * client as f64 / (clients.max(2) - 1) as f64,
        }
    }

    /// Gives each client's rows their noise. A row has the same in each of `views`, by its number
    /// in the set.
    ///
    /// # Errors
    /// If the rows and labels of a client do not go together.
    pub(crate) fn add(&self, views: Vec<&mut [Examples]>, stream: &Stream) -> Result<()> {
        for view in views {
            let clients = view.len();
            for (client, own) in view.iter_mut().enumerate() {
                let deviation = self.deviation(client, clients);
                if deviation == 0.0 || own.is_empty() {
                    continue;
                }
                let mut values = own.samples.values();
                for (mut row, id) in values.rows_mut().into_iter().zip(own.samples.ids()) {
                    let mut draws = stream.child("row", u64::from(*id)).draws();
                    row.mapv_inplace(|x| (f64::from(x) + deviation * draws.normal()) as f32);
                }
                *own = with_values(own, values.into_raw_vec_and_offset().0)?;
            }
        }
        Ok(())
    }
}

/// The rows of `view` with these numbers as their inputs.
///
/// # Errors
/// If there are not as many numbers as the rows have.
pub(crate) fn with_values(view: &Examples, data: Vec<f32>) -> Result<Examples> {
    let inputs = Inputs::Dense {
        shape: view.samples.shape(),
        data,
    };
    let rows: Vec<usize> = view.samples.ids().iter().map(|id| *id as usize).collect();
    Examples::all(Arc::new(inputs), Arc::new(view.labels().select(&rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_of_the_paper_has_its_deviations() {
        let all = |of: FeatureNoise| (0..5).map(move |k| of.deviation(k, 5)).collect::<Vec<_>>();
        let by_variance = all(FeatureNoise::Variance(0.2));
        let squares: Vec<f64> = by_variance.iter().map(|d| d * d).collect();
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(
            squares
                .iter()
                .zip(&[0.04, 0.08, 0.12, 0.16, 0.2])
                .all(close)
        );
        let code = all(FeatureNoise::Deviation(0.2));
        assert!(code.iter().zip(&[0.0, 0.05, 0.1, 0.15, 0.2]).all(close));
    }
}
