//! Noise on a client's labels, added at the client.
use fl_core::message::{SoftLabels, Votes};
use fl_core::prelude::*;
use fl_core::privacy::{NoiseDraws, Unit};

/// L1 sensitivity of a row of probabilities. A client's data can move it from any corner of the
/// simplex to any other: by 2 in the L1 norm, by sqrt(2) in the L2 norm. That holds for all its
/// data, and so for one example.
const L1: f64 = 2.0;

macro_rules! labels_are_noised {
    ($t:ty, $price:expr, $hide:expr) => {
        impl PrivacyMechanism for $t {
            type On = SoftLabels;

            fn clip(&self, labels: &mut SoftLabels) -> Result<()> {
                labels.project();
                Ok(())
            }

            fn price(&self, labels: &SoftLabels, _: &Cohort) -> Result<PrivacyEvent> {
                Ok($price(self, labels.rows.len() as f64))
            }

            fn perturb(
                &mut self,
                labels: &mut SoftLabels,
                _: &Cohort,
                noise: &ReleaseNoise,
            ) -> Result<()> {
                let mut draws = noise.draws();
                let hide = |p: f32| $hide(&*self, &mut draws, f64::from(p)) as f32;
                labels.values.mapv_inplace(hide);
                Ok(())
            }

            fn queries(&self, labels: &SoftLabels) -> usize {
                labels.rows.len()
            }

            fn truncate(&self, labels: &mut SoftLabels, n: usize) {
                labels.retain_rows(&(0..n).collect::<Vec<_>>());
            }
        }
    };
}

settings! {
    /// Laplace noise on every probability that a client sends: local privacy of all its data (Dwork
    /// et al. 2006).
    pub struct LaplaceLabels {
        /// Scale of the noise. One sample's label costs an epsilon of `2 / scale`.
        scale: f64, in above(0.0);
    }
}
labels_are_noised!(
    LaplaceLabels,
    |this: &LaplaceLabels, rows: f64| PrivacyEvent::Laplace {
        sensitivity: L1 * rows,
        scale: this.scale,
        unit: Unit::Party
    },
    |this: &LaplaceLabels, draws: &mut NoiseDraws, p| draws.laplace(p, this.scale)
);
plugin!(privacy "laplace-labels" => LaplaceLabels,
    papers: ["Dwork et al. 2006"]);

settings! {
    /// Gaussian noise on every probability that a client sends: local privacy of all its data
    /// (Dwork and Roth 2014).
    pub struct GaussianLabels {
        /// Standard deviation of the noise. The sensitivity of `n` samples' labels is `sqrt(2 n)`.
        sigma: f64, in above(0.0);
    }
}
labels_are_noised!(
    GaussianLabels,
    |this: &GaussianLabels, rows: f64| PrivacyEvent::Gaussian {
        sensitivity: (L1 * rows).sqrt(),
        sigma: this.sigma,
        unit: Unit::Party
    },
    |this: &GaussianLabels, draws: &mut NoiseDraws, p| draws.gaussian(p, this.sigma)
);
plugin!(privacy "gaussian-labels" => GaussianLabels,
    papers: ["Dwork and Roth 2014"]);

settings! {
    /// Each hard label is kept with probability `e^epsilon / (e^epsilon + classes - 1)` and
    /// otherwise becomes one of the others, all equally likely (randomised response; Kairouz, Oh
    /// and Viswanath 2014): local privacy of all of a client's data.
    pub struct RandomisedResponse {
        /// The cost of one label.
        epsilon: f64 = 1.0, in above(0.0);
    }
}

impl PrivacyMechanism for RandomisedResponse {
    type On = Votes;

    fn clip(&self, _: &mut Votes) -> Result<()> {
        Ok(()) // a label is one of the classes
    }

    fn price(&self, votes: &Votes, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Pure {
            epsilon: self.epsilon,
            times: votes.labels.len(),
            unit: Unit::Party,
        })
    }

    fn perturb(&mut self, votes: &mut Votes, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let (mut draws, classes) = (noise.draws(), votes.classes());
        let hide = |label| draws.randomised_response(label, classes, self.epsilon);
        votes.labels.mapv_inplace(hide);
        Ok(())
    }

    fn queries(&self, votes: &Votes) -> usize {
        votes.rows.len()
    }

    fn truncate(&self, votes: &mut Votes, n: usize) {
        votes.retain_rows(&(0..n).collect::<Vec<_>>());
    }
}
plugin!(privacy "randomised-response" => RandomisedResponse,
    papers: ["Kairouz, Oh and Viswanath 2014"]);

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn noise_and_price_agree() {
        for scale in [0.1, 5.0] {
            fl_conformance::mechanism(|| LaplaceLabels { scale });
            fl_conformance::mechanism(|| GaussianLabels { sigma: scale });
        }
    }

    #[test]
    fn labels_change_as_often_as_epsilon_says_and_to_all_others_alike() {
        let (n, classes, epsilon) = (60_000, 4, 1.0f64);
        let labels = Array2::from_elem((n, 1), 2);
        let mut votes = Votes::new((0..n as u32).collect(), labels, classes);
        let mut part = RandomisedResponse { epsilon };
        part.perturb(
            &mut votes,
            &Cohort::all(1),
            &ReleaseNoise::seeded(&Stream::root(5)),
        )
        .unwrap();
        let share = |c: u32| votes.labels.iter().filter(|l| **l == c).count() as f64 / n as f64;
        let keep = libm::exp(epsilon) / (libm::exp(epsilon) + 3.0);
        // four standard deviations of a share; the stream is fixed, so the test is deterministic
        let most = 4.0 * (0.25 / n as f64).sqrt();
        assert!((share(2) - keep).abs() < most, "{} and {keep}", share(2));
        for other in [0, 1, 3] {
            assert!(
                (share(other) - (1.0 - keep) / 3.0).abs() < most,
                "{other}: {}",
                share(other)
            );
        }
        let PrivacyEvent::Pure { times, .. } = part.price(&votes, &Cohort::all(1)).unwrap() else {
            panic!("randomised response is pure");
        };
        assert_eq!(times, n);
    }
}
