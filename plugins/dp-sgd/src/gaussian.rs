//! [`GaussianNoise`]: the Gaussian mechanism on parameters of bounded norm.

use crate::finite;
use fl_core::prelude::*;
use fl_core::privacy::Unit;

/// Clips parameters to an L2 norm, and adds Gaussian noise to every number of them or of a sum.
#[derive(Clone, Copy)]
pub struct GaussianNoise {
    /// The largest L2 norm.
    pub clip: f64,
    /// Standard deviation of the noise, in multiples of `clip`.
    pub noise_multiplier: f64,
    /// The unit whose parameters are clipped.
    pub unit: Unit,
}

impl GaussianNoise {
    /// Shortens the parameters to the norm. What is not finite becomes 0.
    pub fn clip(self, params: &mut Params) {
        finite(params);
        let norm = params.norm();
        if norm > self.clip {
            // slightly smaller, so that rounding cannot exceed the bound
            params.scale(self.clip / norm * (1.0 - 1e-6));
        }
    }

    /// Returns the event of noise on the sum of those that were drawn.
    pub fn price(self, drawn: &Cohort) -> PrivacyEvent {
        let (clip, unit) = (self.clip, self.unit);
        let sigma = self.noise_multiplier * clip;
        match (drawn.draw, unit) {
            // a client has its data or none
            (SamplingScheme::Poisson { rate }, Unit::Party) => PrivacyEvent::PublicSizeGaussian {
                rate,
                of: drawn.of,
                sensitivity: clip,
                sigma,
                unit,
            },
            // one example is added or removed
            (SamplingScheme::Poisson { rate }, Unit::Example) => PrivacyEvent::SubsampledGaussian {
                rate,
                sensitivity: clip,
                sigma,
                unit,
            },
            // one is replaced: from one end of the ball to the other
            (SamplingScheme::FixedSize, _) => PrivacyEvent::FixedSizeGaussian {
                k: drawn.len(),
                of: drawn.of,
                sensitivity: 2.0 * clip,
                sigma,
                unit,
            },
            (SamplingScheme::Everyone | SamplingScheme::Unknown, _) => PrivacyEvent::Gaussian {
                sensitivity: 2.0 * clip,
                sigma,
                unit,
            },
        }
    }

    /// Adds the noise.
    pub fn perturb(self, params: &mut Params, noise: &ReleaseNoise) {
        let (mut draws, sigma) = (noise.draws(), self.noise_multiplier * self.clip);
        for tensor in params.0.values_mut() {
            tensor.mapv_inplace(|x| draws.gaussian(f64::from(x), sigma) as f32);
        }
    }
}
