//! The ensemble of the clients' models.
use fl_core::Problem;
use fl_core::prelude::*;
use ndarray::Array2;

/// The clients' models, in the order of clients.
pub struct Ensemble(Vec<(ClientId, Box<dyn Trainer>)>);

impl Ensemble {
    /// Makes an ensemble of these models.
    pub fn new(models: Vec<(ClientId, Box<dyn Trainer>)>) -> Self {
        Self(models)
    }

    /// Returns the scores of each model.
    ///
    /// # Errors
    /// Those of the models, and scores that are no finite numbers, which name the client.
    pub fn scores(&mut self, x: &Samples) -> Result<Vec<Array2<f64>>> {
        let each = self.0.iter_mut().map(|(from, model)| {
            let scores = model.predict(x)?.mapv(f64::from);
            let finite = scores.iter().all(|z| z.is_finite());
            ensure!(
                finite,
                "client {from}: its model has scores that are no finite numbers"
            );
            Ok(scores)
        });
        each.collect()
    }

    /// Returns the slope by each number of the inputs, from that by the [`weighted`] scores.
    ///
    /// # Errors
    /// If a model cannot be differentiated.
    pub fn slope(
        &mut self,
        weights: &[f64],
        x: &Samples,
        by_scores: &Array2<f64>,
    ) -> Result<Array2<f64>> {
        let mut sum = Array2::zeros((x.len(), x.width()));
        for ((_, model), share) in self.0.iter_mut().zip(shares(weights)) {
            let by_own = by_scores.mapv(|g| (share * g) as f32);
            let model = model.differentiable().with_context(lacks)?;
            sum += &model.vjp(x, by_own.view())?.mapv(f64::from);
        }
        Ok(sum)
    }
}

/// The error of a model that gives no slopes by its inputs.
pub(crate) fn lacks() -> Problem {
    Problem::Lacks(
        "a teacher or the student cannot be differentiated by its input; use a neural trainer"
            .into(),
    )
}

/// Returns the weights divided by their sum; equal ones if all are 0.
pub(crate) fn shares(weights: &[f64]) -> Vec<f64> {
    let (sum, even) = (weights.iter().sum::<f64>(), 1.0 / weights.len() as f64);
    let share = |w: &f64| if sum > 0.0 { w / sum } else { even };
    weights.iter().map(share).collect()
}

/// Returns the mean of the models' scores, by their weights.
pub fn weighted(scores: &[Array2<f64>], weights: &[f64]) -> Array2<f64> {
    let each = scores.iter().zip(shares(weights));
    each.fold(Array2::zeros(scores[0].dim()), |sum, (z, share)| {
        sum + z * share
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fl_core::{Differentiable, FitReport};
    use ndarray::{ArrayView2, array};

    /// A model whose scores are `x W`.
    struct Linear(Array2<f32>);

    impl Trainer for Linear {
        fn fit(
            &mut self,
            _: &Samples,
            _: Target<'_>,
            _: &FitOptions<'_>,
            _: &Stream,
        ) -> Result<FitReport> {
            bail!("it does not learn")
        }
        fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
            Ok(x.values().dot(&self.0))
        }
        fn save(&self) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn load(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
            Some(self)
        }
    }

    impl Differentiable for Linear {
        fn vjp(&mut self, _: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
            Ok(slope.dot(&self.0.t()))
        }
    }

    /// Returns a model that knows the first class by the first number, and one that is wrong.
    pub(crate) fn pair() -> Ensemble {
        let right = array![[2.0, 0.0], [0.0, 2.0]];
        Ensemble::new(vec![
            (0, Box::new(Linear(right.clone()))),
            (1, Box::new(Linear(-right))),
        ])
    }

    #[test]
    fn exact_scores_and_slopes_are_weighted_by_shares() {
        let mut pair = pair();
        let x = Samples::fresh(array![[1.0, 0.5]], vec![2]).unwrap();
        let scores = pair.scores(&x).unwrap();
        // shares of 3/4 and 1/4 leave half of the first model's scores
        let weights = [0.3, 0.1];
        let all = weighted(&scores, &weights).mapv(|z| z as f32);
        assert_eq!(all, array![[1.0f32, 0.5]]);
        let slope = pair.slope(&weights, &x, &array![[1.0, -3.0]]).unwrap();
        assert_eq!(slope.mapv(|g| g as f32), array![[1.0f32, -3.0]]);
    }

    #[test]
    fn a_model_without_finite_scores_is_named() {
        let mut pair = pair();
        let x = Samples::fresh(array![[f32::NAN, 0.5]], vec![2]).unwrap();
        let error = pair.scores(&x).unwrap_err().to_string();
        assert!(error.starts_with("client 0: its model"), "{error}");
    }

    #[test]
    fn exact_weights_that_are_all_zero_count_equally() {
        assert_eq!(shares(&[0.0, 0.0]), [0.5, 0.5]);
        assert_eq!(shares(&[0.25, 0.75]), [0.25, 0.75]);
    }
}
