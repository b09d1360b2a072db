//! The exact accountant of Gaussian noise.
use crate::priced_ledger::{Price, PricedLedger, Pricing, plus, ratio, unpriced};
use crate::renyi::gaussian_epsilon;
use fl_core::prelude::*;
use fl_core::settings::between;

settings! {
    /// The exact guarantee of Gaussian noise on all data, any number of times (the analytic
    /// Gaussian mechanism, Balle and Wang 2018, theorem 8; `k` releases are one with
    /// `sigma / sqrt(k)`, Dong, Roth and Su 2022, corollary 3.3). An epsilon above 700, or a delta
    /// near 1e-300, is priced a little above it. Prices nothing else.
    pub struct AnalyticGaussian {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
    }
}

impl Pricing for AnalyticGaussian {
    /// The sum of `(sensitivity / sigma)^2`.
    type Cost = f64;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<f64>> {
        match event {
            PrivacyEvent::Gaussian {
                sensitivity,
                sigma,
                unit,
            } => Ok(Price::fixed(
                ratio(event, *sensitivity, *sigma)?.powi(2),
                *unit,
            )),
            _ => unpriced(
                "analytic-gaussian",
                "Gaussian noise on all data only",
                event,
            ),
        }
    }

    fn add(sum: &mut f64, more: &f64) {
        *sum = plus(*sum, *more);
    }

    fn spent(&self, cost: &f64) -> (f64, f64) {
        let epsilon = gaussian_epsilon(1.0 / cost.sqrt(), self.delta);
        (epsilon, self.delta)
    }
}
plugin!(accountant "analytic-gaussian" => AnalyticGaussian as PricedLedger<AnalyticGaussian>,
    papers: ["Balle and Wang 2018", "Dong, Roth and Su 2022"]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renyi::gaussian_delta;
    use fl_core::privacy::Unit;

    fn exact(delta: f64) -> PricedLedger<AnalyticGaussian> {
        AnalyticGaussian { delta }.into()
    }

    fn gaussian(sigma: f64) -> PrivacyEvent {
        PrivacyEvent::Gaussian {
            sensitivity: 2.0,
            sigma,
            unit: Unit::Party,
        }
    }

    #[test]
    fn it_is_an_accountant() {
        fl_conformance::accountant(|| exact(1e-5));
    }

    #[test]
    fn epsilon_is_where_delta_is_reached_and_four_releases_are_one_of_half_the_noise() {
        let (mut four, mut one) = (exact(1e-5), exact(1e-5));
        (0..4).for_each(|_| four.charge(&gaussian(6.0)).unwrap());
        one.charge(&gaussian(3.0)).unwrap();
        let [four, one] = [four, one].map(|a| a.guarantee(None).unwrap().epsilon);
        assert!((four / one - 1.0).abs() < 1e-9, "{four} {one}");
        let delta = gaussian_delta(1.5, one);
        assert!(delta <= 1e-5 && delta > 0.999e-5, "{delta}");
    }

    #[test]
    fn there_is_no_noise_too_small_or_too_large() {
        for sigma in [1e-200, 1e-6, 1e6, 1e200] {
            let mut a = exact(1e-5);
            a.charge(&gaussian(sigma)).unwrap();
            let epsilon = a.guarantee(None).unwrap().epsilon;
            assert!(epsilon >= 0.0, "{sigma}: {epsilon}");
            assert_eq!(epsilon > 1.0, sigma < 1.0, "{sigma}: {epsilon}");
        }
    }

    /// Exact values by 60 decimal digits.
    #[test]
    fn tiny_epsilons_are_not_below_the_exact_ones() {
        use crate::renyi::gaussian_epsilon;
        for (sigma, delta, exact) in [
            (1e9, 1e-40, 1.145100412e-8),
            (1e12, 1e-40, 1.084084827e-11),
            (1e12, 1e-300, 3.619517738e-11),
            (1e13, 1e-40, 1.062993316e-12),
            (1e15, 1e-20, 3.9235614e-15),
            (1e18, 1e-20, 1.938356307e-18),
            (1e30, 1e-40, 6.070461369e-30),
        ] {
            let found = gaussian_epsilon(sigma, delta);
            assert!(found >= exact * (1.0 - 1e-9), "{sigma} {delta}: {found}");
            assert!(found < exact * 4.0, "{sigma} {delta}: {found}");
        }
    }
}
