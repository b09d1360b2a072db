//! The Renyi accountant of plain noise.
use crate::losses::Release;
use crate::noise_release::release;
use crate::priced_ledger::{Price, PricedLedger, Pricing};
use crate::public_size::divergences;
use crate::renyi::{self, Conversion};
use fl_core::prelude::*;
use fl_core::settings::between;

settings! {
    /// Renyi accounting (Mironov 2017) of Gaussian noise, on all data or on a Poisson sample of
    /// them (Mironov, Talwar and Zhang 2019) or of fixed size (Wang, Balle and Kasiviswanathan
    /// 2019), of Laplace noise, and of randomised response.
    pub struct Rdp {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
        /// The conversion of Renyi differential privacy to an epsilon.
        conversion: Conversion = Conversion::Improved;
    }
}

impl Pricing for Rdp {
    type Cost = Vec<f64>;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<Vec<f64>>> {
        let at = |cost: &dyn Fn(f64) -> f64| renyi::orders().into_iter().map(cost).collect();
        let (release, times, unit) = release("rdp", event)?;
        let cost = match release {
            // noise without limit hides all
            Release::Poisson { shift, .. } | Release::PublicSize { shift, .. }
                if (1.0 / shift).is_infinite() =>
            {
                at(&|_| 0.0)
            }
            Release::Poisson { rate, shift } => {
                at(&|a| renyi::subsampled_gaussian(rate, 1.0 / shift, a))
            }
            Release::Fixed { rate, shift } => {
                at(&|a| renyi::fixed_size_gaussian(rate, 1.0 / shift, a))
            }
            Release::PublicSize { of, rate, shift } => {
                divergences(of, rate, 1.0 / shift, &renyi::orders())
            }
            Release::Laplace(epsilon) => at(&|a| renyi::laplace(epsilon, a)),
            Release::Pure(epsilon) => at(&|a| times as f64 * renyi::pure(epsilon, a)),
        };
        Ok(Price::fixed(cost, unit))
    }

    fn add(sum: &mut Vec<f64>, more: &Vec<f64>) {
        renyi::add(sum, more);
    }

    fn spent(&self, cost: &Vec<f64>) -> (f64, f64) {
        let epsilon = renyi::spent(cost, self.delta, &self.conversion);
        (epsilon, self.delta)
    }
}
plugin!(accountant "rdp" => Rdp as PricedLedger<Rdp>,
    papers: ["Mironov 2017", "Mironov, Talwar and Zhang 2019", "Wang, Balle and Kasiviswanathan 2019"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::privacy::Unit;

    #[test]
    fn a_sample_of_fixed_size_costs_more_than_poisson_sampling_and_less_than_all() {
        let epsilon = |event: &PrivacyEvent| {
            let mut books = PricedLedger::from(Rdp {
                delta: 1e-5,
                conversion: Conversion::Improved,
            });
            (0..100).for_each(|_| books.charge(event).unwrap());
            books.guarantee(None).unwrap().epsilon
        };
        let (sigma, unit) = (4.0, Unit::Party);
        let fixed = |k, of| {
            epsilon(&PrivacyEvent::FixedSizeGaussian {
                k,
                of,
                sensitivity: 2.0,
                sigma,
                unit,
            })
        };
        let poisson = epsilon(&PrivacyEvent::SubsampledGaussian {
            rate: 0.01,
            sensitivity: 1.0,
            sigma,
            unit,
        });
        let all = epsilon(&PrivacyEvent::Gaussian {
            sensitivity: 2.0,
            sigma,
            unit,
        });
        assert!(poisson < fixed(10, 1000) && fixed(10, 1000) < fixed(100, 1000));
        assert!(fixed(100, 1000) < all && fixed(1000, 1000) == all);
        assert_eq!(fixed(0, 1000), 0.0);
    }

    /// One example more would change how many of them take part, and so the public sizes.
    #[test]
    fn a_sample_of_public_size_has_no_price_for_an_example() {
        let event = |unit| PrivacyEvent::PublicSizeGaussian {
            rate: 0.01,
            of: 100,
            sensitivity: 1.0,
            sigma: 5.0,
            unit,
        };
        let priced = |unit| release("rdp", &event(unit)).map(|_| ());
        assert!(priced(Unit::Party).is_ok());
        let refused = priced(Unit::Example).unwrap_err().to_string();
        assert!(refused.contains("only a party"), "{refused}");
    }

    #[test]
    fn the_bound_of_order_two_by_hand() {
        // gamma = 1/10, sigma = 2: cost(2) = 1/4; 1 + gamma^2 C(2,2) min(4 (e^(1/4) - 1), 2
        // e^(1/4)) = 1 + 0.01 * 1.1361
        let by_hand = libm::log1p(0.04 * libm::expm1(0.25f64));
        let found = renyi::fixed_size_gaussian(0.1, 2.0, 2.0);
        assert!((found - by_hand).abs() < 1e-14, "{found} {by_hand}");
    }

    #[test]
    fn it_is_an_accountant() {
        for conversion in [Conversion::Improved, Conversion::Classic] {
            fl_conformance::accountant(|| {
                PricedLedger::from(Rdp {
                    delta: 1e-5,
                    conversion: conversion.clone(),
                })
            });
        }
    }

    #[test]
    fn a_thousand_steps_of_dp_sgd_cost_what_other_libraries_say() {
        let mut books = PricedLedger::from(Rdp {
            delta: 1e-5,
            conversion: Conversion::Improved,
        });
        let step = PrivacyEvent::SubsampledGaussian {
            rate: 0.01,
            sensitivity: 2.0,
            sigma: 4.0,
            unit: Unit::Example,
        };
        for _ in 0..1000 {
            books.charge(&step).unwrap();
        }
        // dp-accounting and opacus give 0.7307 with 32 as the best of few orders (vector
        // `convert_dpsgd_q0.01_sigma2_T1000`)
        let guarantee = books.guarantee(None).unwrap();
        assert!((0.68..0.7308).contains(&guarantee.epsilon), "{guarantee}");
        assert!(!guarantee.data_dependent && guarantee.delta == 1e-5);
    }
}
