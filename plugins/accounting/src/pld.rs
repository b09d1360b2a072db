//! The accountant of privacy loss distributions.
use crate::compose::{self, Times};
use crate::losses::Release;
use crate::noise_release::release;
use crate::priced_ledger::{Price, PricedLedger, Pricing, plus};
use fl_core::prelude::*;
use fl_core::settings::between;
use std::sync::{Mutex, PoisonError};

settings! {
    /// Privacy loss distributions (Koskela, Jalko and Honkela 2020) on a grid (Doroshenko et al.
    /// 2022), composed by Fourier transforms. Its epsilon is an upper bound, close to the least
    /// possible. Prices the same as `rdp`: Gaussian noise on all data, on a Poisson sample of them
    /// or one of fixed size, Laplace noise, and randomised response.
    pub struct Pld {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
    }
}

/// The accountant of [`Pld`]. It caches its last results.
pub struct LossDistributions {
    delta: f64,
    known: Mutex<Vec<(Vec<Times>, f64)>>,
}

/// Number of cached epsilons: for clients with the same releases, and for prices requested before
/// the charge.
const REMEMBERED: usize = 8;

impl From<Pld> for PricedLedger<LossDistributions> {
    fn from(settings: Pld) -> Self {
        Self::from(LossDistributions {
            delta: settings.delta,
            known: Mutex::default(),
        })
    }
}

impl Pricing for LossDistributions {
    /// The releases, and the number of each.
    type Cost = Vec<Times>;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<Vec<Times>>> {
        let (mut release, times, unit) = release("pld", event)?;
        let noise = release.noise();
        *noise = up(*noise);
        // a release of an empty sample, or of numbers that no unit changes, reveals nothing
        let cost = if release.variation() > 0.0 && times > 0 {
            vec![(release, times as f64)]
        } else {
            Vec::new()
        };
        Ok(Price::fixed(cost, unit))
    }

    fn add(sum: &mut Vec<Times>, more: &Vec<Times>) {
        for (release, times) in more {
            match sum.iter_mut().find(|(known, _)| known == release) {
                Some((_, n)) => *n += times,
                None => sum.push((*release, *times)),
            }
        }
    }

    fn spent(&self, cost: &Vec<Times>) -> (f64, f64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, epsilon)) = known.iter().find(|(before, _)| before == cost) {
            return (*epsilon, self.delta);
        }
        let epsilon = compose::epsilon(cost, self.delta).min(basic(cost));
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push((cost.clone(), epsilon));
        (epsilon, self.delta)
    }
}
plugin!(accountant "pld" => Pld as PricedLedger<LossDistributions>,
    papers: ["Koskela, Jalko and Honkela 2020", "Doroshenko et al. 2022"]);

/// Returns the sum of pure epsilons, which holds for any delta; infinite if a release has none.
fn basic(cost: &[Times]) -> f64 {
    let each = cost.iter().map(|(release, times)| match release {
        Release::Pure(epsilon) | Release::Laplace(epsilon) => (times * epsilon).next_up(),
        _ => f64::INFINITY,
    });
    each.fold(0.0, plus)
}

/// Rounds up to nine digits, so that releases that differ only by rounding count as one.
fn up(x: f64) -> f64 {
    const BITS: u64 = (1 << 22) - 1;
    f64::from_bits(x.to_bits().saturating_add(BITS) & !BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renyi::gaussian_epsilon;

    const FIXED: Release = Release::Fixed {
        rate: 0.1,
        shift: 0.5,
    };

    fn poisson(rate: f64, sigma: f64) -> Release {
        let shift = 1.0 / sigma;
        Release::Poisson { rate, shift }
    }

    #[test]
    fn it_is_an_accountant() {
        fl_conformance::accountant(|| PricedLedger::<LossDistributions>::from(Pld { delta: 1e-5 }));
    }

    #[test]
    fn gaussian_noise_costs_what_the_exact_formula_says_and_no_less() {
        for sigma in [1e-2, 0.5, 1.0, 5.0, 30.0] {
            for times in [1.0, 7.0, 1000.0, 100_000.0] {
                for delta in [1e-15, 1e-8, 1e-5, 0.01] {
                    let exact = gaussian_epsilon(sigma / f64::sqrt(times), delta);
                    let found = compose::epsilon(&[(poisson(1.0, sigma), times)], delta);
                    let all = format!("{sigma} {times} {delta}: {found} of {exact}");
                    // above 700 it is no longer exact, but still a bound
                    assert!(found >= exact * (1.0 - 1e-9) || exact > 700.0, "{all}");
                    assert!(found <= exact * 1.002 + 1e-9, "{all}");
                }
            }
        }
    }

    /// Computed by hand: the binomial tail of `n` answers, `k` of which have the loss `epsilon`.
    #[test]
    fn randomised_response_is_a_binomial() {
        for (epsilon, n) in [(0.1, 50), (1.0, 10), (3.0, 1)] {
            let delta = 1e-3;
            let exact = {
                let keep = 1.0 / (1.0 + libm::exp(-epsilon));
                let spent = |at: f64| {
                    let mut choose = 1.0;
                    let mut sum = 0.0;
                    for k in 0..=n {
                        let loss = epsilon * f64::from(2 * k - n);
                        let mass = choose * f64::powi(keep, k) * f64::powi(1.0 - keep, n - k);
                        sum += mass * (1.0 - libm::exp(at - loss)).max(0.0);
                        choose *= f64::from(n - k) / f64::from(k + 1);
                    }
                    sum
                };
                let (mut a, mut b) = (0.0, epsilon * f64::from(n));
                for _ in 0..60 {
                    let middle = f64::midpoint(a, b);
                    if spent(middle) > delta {
                        a = middle
                    } else {
                        b = middle
                    }
                }
                b
            };
            let found = compose::epsilon(&[(Release::Pure(epsilon), f64::from(n))], delta);
            assert!(found >= exact * (1.0 - 1e-9), "{found} {exact}");
            assert!(found <= exact * 1.003, "{found} {exact}");
        }
    }

    #[test]
    fn one_laplace_release_costs_what_its_formula_says() {
        // delta(e) = 1 - exp((e - epsilon) / 2)
        let found = compose::epsilon(&[(Release::Laplace(2.0), 1.0)], 0.1);
        let exact = 2.0 + 2.0 * libm::log(0.9);
        assert!((exact..exact * 1.001).contains(&found), "{found} {exact}");
    }

    #[test]
    fn a_sample_of_fixed_size_amplifies_as_its_theorem_says() {
        // one release: ln(1 + q (e^epsilon - 1)) at q delta
        let found = compose::epsilon(&[(FIXED, 1.0)], 1e-6);
        let exact = libm::log1p(0.1 * libm::expm1(gaussian_epsilon(2.0, 1e-5)));
        assert!((exact..exact * 1.001).contains(&found), "{found} {exact}");
        let all = |rate| {
            let shift = 0.5;
            compose::epsilon(&[(Release::Fixed { rate, shift }, 100.0)], 1e-5)
        };
        assert!(all(0.01) < all(0.1) && all(0.1) < all(1.0));
        let exact = gaussian_epsilon(0.2, 1e-5);
        assert!((all(1.0) / exact - 1.0).abs() < 0.002);
    }

    /// On the grid three such losses would cost 1.0137.
    #[test]
    fn pure_releases_cost_no_more_than_the_sum_of_their_epsilons() {
        let pld = LossDistributions {
            delta: 1e-5,
            known: Mutex::default(),
        };
        let found = |release, times| pld.spent(&vec![(release, times)]).0;
        let sum = 3.0 * 0.3333;
        let three = found(Release::Pure(0.3333), 3.0);
        assert!((sum..sum * (1.0 + 1e-9)).contains(&three), "{three}");
        let one = found(Release::Laplace(0.3333), 1.0);
        assert!(one <= 0.3333 * (1.0 + 1e-9), "{one}");
        // many of them cost less
        assert!(found(Release::Pure(0.1), 1000.0) < 50.0);
    }

    #[test]
    fn noise_beside_nothing_has_an_infinite_price() {
        for shift in [1e200, 1e308, f64::INFINITY] {
            for rate in [0.1, 1.0] {
                let found = compose::epsilon(&[(Release::Poisson { rate, shift }, 2.0)], 1e-5);
                assert!(
                    !found.is_finite() || found > 1e300,
                    "{shift} {rate}: {found}"
                );
            }
        }
    }

    #[test]
    fn more_releases_and_more_kinds_cost_more() {
        let mut before = 0.0;
        for n in [1.0, 10.0, 100.0, 101.0, 1000.0] {
            let one = compose::epsilon(&[(poisson(0.02, 1.0), n)], 1e-5);
            let two = compose::epsilon(&[(poisson(0.02, 1.0), n), (FIXED, 3.0)], 1e-5);
            assert!(before < one && one < two, "{n}: {before} {one} {two}");
            before = one;
        }
    }

    /// The numbers of `dp-accounting` itself, computed on a fine grid: see the file for version and
    /// steps.
    #[test]
    fn the_numbers_of_dp_accounting() {
        let text = include_str!("../tests/dp_accounting.json");
        let known: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let rows: Vec<[f64; 5]> = serde_json::from_value(known["rows"].clone()).expect("numbers");
        assert!(rows.len() > 50);
        let mut far = Vec::new();
        for [sigma, rate, times, delta, epsilon] in rows {
            let found = compose::epsilon(&[(poisson(rate, sigma), times)], delta);
            if (found - epsilon).abs() > 0.01 * epsilon + 1e-6 {
                far.push(format!(
                    "{sigma} {rate} {times} {delta}: {found} of {epsilon}"
                ));
            }
        }
        assert!(far.is_empty(), "{}", far.join("\n"));
    }
}
