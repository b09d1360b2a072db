//! Eq. 8 and 9: an ensemble that weights a client for each input and class by how likely it is to
//! know them.
use crate::settings::{Classes, Weights};
use fl_core::loss::sigmoid;
use ndarray::{Array1, Array2, Axis};

/// `P_k(c) / P(c)` of Eq. 8, one row for each client. The probability of a class at a client is
/// relative to that at all of them: the mean of their proportions, or the sum of their counts. It
/// cancels when weights are normalised to 1. 0 for a class that no client has.
pub fn shares(counts: &[Vec<u32>], classes: &Classes) -> Vec<Array1<f64>> {
    let own = |counts: &Vec<u32>| {
        let counts: Array1<f64> = counts.iter().map(|n| f64::from(*n)).collect();
        let total = counts.sum();
        match classes {
            Classes::Proportions if total > 0.0 => counts / total,
            _ => counts,
        }
    };
    let mut own: Vec<_> = counts.iter().map(own).collect();
    let n = match classes {
        Classes::Proportions => own.len() as f64,
        Classes::Counts => 1.0,
    };
    let all = own.iter().skip(1).fold(own[0].clone(), |sum, p| sum + p) / n;
    for own in &mut own {
        own.zip_mut_with(&all, |p, all| *p = if *all > 0.0 { *p / all } else { 0.0 });
    }
    own
}

/// Eq. 8: `P_k(c) / P(c) * D_k(x) / mean D_k(real)`, and the same divided by its sum over clients.
/// If the sum is 0, all clients have equal weights. `d` is `D_k(x)` for each input.
pub fn importance(
    prior: &[Array1<f64>],
    d: &[Array1<f64>],
    real: &[f64],
) -> (Vec<Array2<f64>>, Vec<Array2<f64>>) {
    let raw = prior.iter().zip(d).zip(real).map(|((p, d), real)| {
        let ratio = d / real.max(f64::from(f32::MIN_POSITIVE));
        &ratio.insert_axis(Axis(1)) * &p.view().insert_axis(Axis(0))
    });
    let raw: Vec<Array2<f64>> = raw.collect();
    let total = raw[1..].iter().fold(raw[0].clone(), |sum, w| sum + w);
    let even = 1.0 / raw.len() as f64;
    let weights = raw.iter().map(|w| {
        let mut w = w.clone();
        w.zip_mut_with(&total, |w, sum| {
            *w = if *sum > 0.0 { *w / sum } else { even }
        });
        w
    });
    let weights = weights.collect();
    (raw, weights)
}

/// The clients' weights for one batch.
pub struct Ensemble {
    /// Weight of each client, `batch x classes`; they add up to 1.
    weights: Vec<Array2<f64>>,
    /// Derivative of the logarithm of a client's unnormalised weight by the log-odds of its
    /// discriminator: the probability of "real". Empty if discriminators do not count.
    by_odds: Vec<Array1<f64>>,
}

impl Ensemble {
    /// Computes the weights of clients with these [`shares`], shares of all examples, log-odds of
    /// each input and mean `D_k` of real ones.
    pub fn new(
        how: &Weights,
        prior: &[Array1<f64>],
        sizes: &[f64],
        (odds, real): (&[Array1<f64>], &[f64]),
        (batch, classes): (usize, usize),
    ) -> Self {
        let even = |w: f64| Array2::from_elem((batch, classes), w);
        let (weights, by_odds) = match how {
            Weights::Sizes => (sizes.iter().map(|pi| even(*pi)).collect(), Vec::new()),
            Weights::Uniform => (
                vec![even(1.0 / sizes.len() as f64); sizes.len()],
                Vec::new(),
            ),
            Weights::Importance(how) if how.discriminator => {
                let d: Vec<_> = odds.iter().map(|odds| odds.mapv(sigmoid)).collect();
                let by_odds = odds.iter().map(|odds| odds.mapv(|x| sigmoid(-x)));
                (importance(prior, &d, real).1, by_odds.collect())
            }
            Weights::Importance(_) => {
                let ones = vec![Array1::ones(batch); sizes.len()];
                (
                    importance(prior, &ones, &vec![1.0; sizes.len()]).1,
                    Vec::new(),
                )
            }
        };
        Self { weights, by_odds }
    }

    /// `sum_k pi_k^c(x) v_k[c]` (Eq. 9), `v` being scores or probabilities.
    pub fn of(&self, values: &[Array2<f64>]) -> Array2<f64> {
        let each = self.weights.iter().zip(values);
        each.fold(Array2::zeros(values[0].dim()), |sum, (w, v)| sum + w * v)
    }

    /// Converts the slope by `made`, the result of [`Ensemble::of`], to those by each client's
    /// values and log-odds. The latter are empty if discriminators do not count.
    pub fn back(
        &self,
        values: &[Array2<f64>],
        made: &Array2<f64>,
        slope: &Array2<f64>,
    ) -> (Vec<Array2<f64>>, Vec<Array1<f64>>) {
        let by_values: Vec<_> = self.weights.iter().map(|w| w * slope).collect();
        let by_odds = self
            .by_odds
            .iter()
            .zip(values)
            .zip(&by_values)
            .map(|((by, v), back)| {
                // d pi_j / d ln pihat_k = pi_j (1{j = k} - pi_k)
                (back * &(v - made)).sum_axis(Axis(1)) * by
            });
        let by_odds = by_odds.collect();
        (by_values, by_odds)
    }
}
