//! Eq. 2: Laplace noise on the ensemble's scores.
use fl_core::prelude::*;
use fl_core::privacy::{Unit, at_most};
use fl_core::settings::above;

settings! {
    /// Laplace noise of scale `1 / gamma` on every score of the ensemble, drawn once (FedKD, Eq. 2; Gong et al. 2022).
    pub struct LaplaceLogits {
        /// Inverse scale of the noise. FedKD uses 1.
        gamma: f64 = 1.0, in above(0.0);
        /// A bound that does not come from the data: the ensemble is clipped to it, and the release gets a price. The
        /// paper has none, and then no epsilon can be stated.
        clip: Option<f64> = None, in above(0.0);
    }
}

impl PrivacyMechanism for LaplaceLogits {
    type On = Logits;

    fn clip(&self, z: &mut Logits) -> Result<()> {
        if let Some(clip) = self.clip {
            let most = at_most(clip);
            z.values.mapv_inplace(|v| v.clamp(-most, most));
        }
        Ok(())
    }

    fn price(&self, z: &Logits, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(match self.clip {
            // a party can move every one of the numbers from one end to the other
            Some(clip) => PrivacyEvent::Laplace { sensitivity: 2.0 * clip * z.values.len() as f64, scale: 1.0 / self.gamma, unit: Unit::Party },
            None => PrivacyEvent::Unaccounted { why: "the scores have no bound that is independent of the data; set `clip` in laplace-logits".into() },
        })
    }

    fn perturb(&mut self, z: &mut Logits, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.draws();
        let hide = |v| draws.laplace(f64::from(v), 1.0 / self.gamma) as f32;
        z.values.mapv_inplace(hide);
        Ok(())
    }
}
plugin!(privacy "laplace-logits" => LaplaceLogits);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_and_price_agree() {
        for (gamma, clip) in [(1.0, Some(2.0)), (0.04, Some(30.0)), (1.0, None)] {
            fl_conformance::mechanism(|| LaplaceLogits { gamma, clip });
        }
    }
}
