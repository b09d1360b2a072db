//! Gaussian noise on updates: at each client, or on the sum at the server.
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
    }
}

impl GaussianUpdate {
    fn noise(&self) -> GaussianNoise {
        GaussianNoise {
            clip: self.clip,
            noise_multiplier: self.noise_multiplier,
            unit: Unit::Party,
        }
    }
}

impl PrivacyMechanism for GaussianUpdate {
    type On = Params;

    fn clip(&self, update: &mut Params) -> Result<()> {
        self.noise().clip(update);
        Ok(())
    }

    fn price(&self, _: &Params, cohort: &Cohort) -> Result<PrivacyEvent> {
        Ok(self.noise().price(cohort))
    }

    fn perturb(&mut self, update: &mut Params, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        self.noise().perturb(update, noise);
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
            });
        }
    }
}
