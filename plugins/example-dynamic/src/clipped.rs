//! Laplace noise on parameters.
use fl_core::prelude::*;
use fl_core::privacy::{LEAST_CLIP, Unit};

// ANCHOR: part
settings! {
    /// Clips parameters to an L1 norm and adds Laplace noise to every one of them.
    pub struct LaplaceParams {
        /// The largest L1 norm of the parameters that leave.
        clip: f64 = 1.0, in LEAST_CLIP..;
        /// Scale of the noise.
        scale: f64 = 1.0, in above(0.0);
    }
}

impl PrivacyMechanism for LaplaceParams {
    type On = Params;

    fn clip(&self, message: &mut Params) -> Result<()> {
        let norm: f64 = message.iter().map(|x| f64::from(x.abs())).sum();
        if norm > self.clip {
            // slightly smaller, so that rounding cannot exceed the bound
            let factor = self.clip / norm * (1.0 - 1e-6);
            for tensor in message.0.values_mut() {
                tensor.mapv_inplace(|x| (f64::from(x) * factor) as f32);
            }
        }
        Ok(())
    }

    fn price(&self, _: &Params, _: &Cohort) -> Result<PrivacyEvent> {
        Ok(PrivacyEvent::Laplace {
            // from one end of the ball to the other
            sensitivity: 2.0 * self.clip,
            scale: self.scale,
            unit: Unit::Party,
        })
    }

    fn perturb(&mut self, message: &mut Params, _: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        let mut draws = noise.draws();
        for tensor in message.0.values_mut() {
            tensor.mapv_inplace(|x| draws.laplace(f64::from(x), self.scale) as f32);
        }
        Ok(())
    }
}
plugin!(privacy "laplace-params" => LaplaceParams);
// ANCHOR_END: part

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_and_price_agree() {
        for (clip, scale) in [(1.0, 1.0), (30.0, 0.2)] {
            fl_conformance::mechanism(|| LaplaceParams { clip, scale });
        }
    }
}
