//! Gaussian noise on updates: at each client, or on the sum at the server.
use crate::server_sum::expected;
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::{LEAST_CLIP, Unit};
use fl_plugin_dp_sgd::GaussianNoise;

settings! {
    /// Clips a client's update to an L2 norm and adds Gaussian noise to every number of it, or of
    /// the sum of all clients' updates (the Gaussian mechanism, Dwork and Roth 2014). In `privacy`
    /// the client adds the noise: local privacy of all its data, also against the server. In
    /// `server-privacy` the server adds it to the sum (DP-FedAvg, McMahan et al. 2018): smaller by
    /// the number of clients, and amplified by drawing them.
    pub struct GaussianUpdate {
        /// The largest L2 norm of an update that leaves.
        clip: f64 = 1.0, in LEAST_CLIP..;
        /// Standard deviation of the noise, in multiples of `clip`.
        noise_multiplier: f64 = 1.0, in above(0.0);
        /// Simulates a larger cohort, in `server-privacy` only: the update has the noise of one
        /// from so many clients a round (`noise_cohort_size` of pfl-research). The drawn noise, and
        /// the guarantee that pays for it, are those of the run's own clients: the noise is
        /// `noise-multiplier` times their average number, divided by this. What the larger cohort
        /// would cost is no guarantee of the run; `fl account gaussian` computes it.
        noise_cohort: Option<usize> = None, in 1..;
    }
}

impl GaussianUpdate {
    fn noise(&self, noise_multiplier: f64) -> GaussianNoise {
        GaussianNoise {
            clip: self.clip,
            noise_multiplier,
            unit: Unit::Party,
        }
    }

    /// Returns the noise on the sum of this cohort. A price uses the same.
    fn drawn(&self, cohort: &Cohort) -> Result<GaussianNoise> {
        let Some(larger) = self.noise_cohort else {
            return Ok(self.noise(self.noise_multiplier));
        };
        ensure!(
            cohort.draw != SamplingScheme::Everyone,
            Problem::Lacks("`noise-cohort` simulates a larger draw of clients: fill `parts.cohort`, and use the mechanism in `parts.server-privacy`; or leave it out".into())
        );
        let own = match expected(cohort) {
            0.0 => 1.0,
            own => own,
        };
        Ok(self.noise(self.noise_multiplier * own / larger as f64))
    }
}

impl PrivacyMechanism for GaussianUpdate {
    type On = Params;

    fn clip(&self, update: &mut Params) -> Result<()> {
        self.noise(self.noise_multiplier).clip(update);
        Ok(())
    }

    fn price(&self, _: &Params, cohort: &Cohort) -> Result<PrivacyEvent> {
        Ok(self.drawn(cohort)?.price(cohort))
    }

    fn perturb(
        &mut self,
        update: &mut Params,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()> {
        self.drawn(cohort)?.perturb(update, noise);
        Ok(())
    }
}
plugin!(privacy "gaussian-update" => GaussianUpdate,
    papers: ["Dwork and Roth 2014", "McMahan et al. 2018"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_the_least_clip_is_kept_by_the_least_numbers() {
        let part = GaussianUpdate {
            clip: LEAST_CLIP,
            noise_multiplier: 1.0,
            noise_cohort: None,
        };
        // every number lies between two neighbours of single precision
        for number in [1e-44_f32, 3e-39, 1e-30, 1.0, 1e30] {
            let mut update =
                Params([("w".into(), ndarray::ArrayD::from_elem(vec![9999], number))].into());
            part.clip(&mut update).unwrap();
            assert!(update.norm() <= LEAST_CLIP, "{number}: {}", update.norm());
        }
    }

    #[test]
    fn noise_and_price_agree() {
        for (clip, noise_multiplier) in [(1.0, 1.0), (30.0, 0.2)] {
            fl_conformance::mechanism(|| GaussianUpdate {
                clip,
                noise_multiplier,
                noise_cohort: None,
            });
        }
    }

    /// A draw of a fifth of 100 clients.
    fn drawn() -> Cohort {
        Cohort {
            ids: (0..23).collect(),
            of: 100,
            draw: SamplingScheme::Poisson { rate: 0.2 },
        }
    }

    #[test]
    fn exact_a_larger_cohort_has_less_noise_and_its_price_is_of_the_noise_drawn() {
        let part = |noise_multiplier, noise_cohort| GaussianUpdate {
            clip: 2.0,
            noise_multiplier,
            noise_cohort,
        };
        let like = Params([("w".into(), ndarray::ArrayD::zeros(vec![50]))].into());
        let noisy = |mut part: GaussianUpdate| {
            let mut update = like.clone();
            let noise = ReleaseNoise::seeded(&Stream::root(3));
            part.perturb(&mut update, &drawn(), &noise).unwrap();
            update
        };
        // 20 clients on average, where 1000 are simulated
        let (simulated, same) = (part(1.5, Some(1000)), part(1.5 * 0.02, None));
        let price = simulated.price(&like, &drawn()).unwrap();
        assert_eq!(price, same.price(&like, &drawn()).unwrap());
        assert_eq!(noisy(simulated), noisy(same));
        // as many as there are: nothing is simulated
        let none = part(1.5, None).price(&like, &drawn()).unwrap();
        assert_eq!(part(1.5, Some(20)).price(&like, &drawn()).unwrap(), none);
    }

    #[test]
    fn a_larger_cohort_needs_a_draw_of_clients() {
        let part = GaussianUpdate {
            clip: 1.0,
            noise_multiplier: 1.0,
            noise_cohort: Some(1000),
        };
        let error = part.price(&Params::default(), &Cohort::all(1)).unwrap_err();
        insta::assert_snapshot!(error, @"`noise-cohort` simulates a larger draw of clients: fill `parts.cohort`, and use the mechanism in `parts.server-privacy`; or leave it out");
    }
}
