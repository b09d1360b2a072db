//! Eq. 2: Laplace noise on the ensemble's scores.
use fl_core::prelude::*;
use fl_core::privacy::Unit;
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
            z.values
                .mapv_inplace(|v| v.clamp(-clip as f32, clip as f32));
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

    fn perturb(&mut self, z: &mut Logits, _: &Cohort, stream: &Stream) -> Result<()> {
        let mut draws = stream.draws();
        z.values
            .mapv_inplace(|v| (f64::from(v) + draws.laplace(1.0 / self.gamma)) as f32);
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
