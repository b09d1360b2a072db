//! Basic composition.
use crate::priced_ledger::{Price, PricedLedger, Pricing, plus, ratio, scaled, unpriced};
use crate::vote_release::changed;
use fl_core::prelude::*;
use fl_core::privacy::{Unit, VoteNoise};

settings! {
    /// Basic composition of pure guarantees: epsilons of the same data add, of disjoint data the
    /// largest counts (Dwork and Roth 2014, theorem 3.16). Delta is 0, so only Laplace noise and
    /// randomised response have a price here.
    pub struct Basic {}
}

const PRICES: &str = "Laplace noise and randomised response only";

/// Returns an event as answers with delta 0: their number, and the epsilon of each.
pub(crate) fn pure(
    accountant: &str,
    event: &PrivacyEvent,
    unit: Unit,
) -> Result<Price<(usize, f64)>> {
    match event {
        PrivacyEvent::Laplace {
            sensitivity,
            scale,
            unit,
        } => Ok(Price::fixed(
            (1, ratio(event, *sensitivity, *scale)?),
            *unit,
        )),
        PrivacyEvent::Pure {
            epsilon,
            times,
            unit,
        } => Ok(Price::fixed((*times, ratio(event, *epsilon, 1.0)?), *unit)),
        PrivacyEvent::Votes(votes) => match votes.noise {
            VoteNoise::Laplace { gamma } => {
                let (changed, data_dependent) = changed(event, votes, unit)?;
                let each = scaled(2.0 * f64::from(changed), ratio(event, gamma, 1.0)?);
                Ok(Price {
                    cost: (votes.queries, each),
                    unit,
                    data_dependent,
                })
            }
            _ => unpriced(accountant, PRICES, event),
        },
        _ => unpriced(accountant, PRICES, event),
    }
}

impl Pricing for Basic {
    type Cost = f64;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<f64>> {
        let price = pure("basic", event, Unit::Example)?;
        Ok(price.map(|(k, epsilon)| scaled(k as f64, epsilon)))
    }

    fn add(sum: &mut f64, more: &f64) {
        *sum = plus(*sum, *more);
    }

    fn spent(&self, cost: &f64) -> (f64, f64) {
        (*cost, 0.0)
    }
}
plugin!(accountant "basic" => Basic as PricedLedger<Basic>,
    papers: ["Dwork and Roth 2014"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Problem;
    use fl_core::privacy::{Composition, Ledger};

    fn basic() -> PricedLedger<Basic> {
        Basic {}.into()
    }

    fn laplace(sensitivity: f64) -> PrivacyEvent {
        PrivacyEvent::Laplace {
            sensitivity,
            scale: 2.0,
            unit: Unit::Party,
        }
    }

    #[test]
    fn own_releases_add_and_of_the_clients_the_largest_counts() {
        let mut a = basic();
        a.charge(&laplace(1.0)).unwrap();
        a.charge(&laplace(2.0)).unwrap();
        let ledger = |client, n| Ledger {
            client: Some(client),
            events: vec![laplace(1.0); n],
        };
        a.merge(&[ledger(0, 1), ledger(1, 3)], Composition::Parallel)
            .unwrap();
        a.merge(&[ledger(0, 1)], Composition::Parallel).unwrap();
        let epsilon = a.guarantee(None).unwrap().epsilon;
        assert_eq!(epsilon, 1.5 + 1.5);
        let asked = a.guarantee(Some(&laplace(4.0))).unwrap().epsilon;
        assert_eq!(asked, epsilon + 2.0);
        let again = a.guarantee(None).unwrap().epsilon;
        assert_eq!(again, epsilon, "asking costs nothing");
    }

    #[test]
    fn a_sum_of_many_releases_is_not_below_the_exact_one() {
        // no double has exactly these decimals
        for (epsilon, times) in [
            (0.001_000_000_000_01, 1_000_000),
            (0.1, 1000),
            (0.3, 77_777),
        ] {
            let event = PrivacyEvent::Pure {
                epsilon,
                times: 1,
                unit: Unit::Party,
            };
            let mut a = basic();
            (0..times).for_each(|_| a.charge(&event).unwrap());
            let found = a.guarantee(None).unwrap().epsilon;
            let product = epsilon * f64::from(times);
            assert!(found >= product, "{epsilon} {times}: {found}");
            let most = product * (1.0 + f64::from(times) * f64::EPSILON);
            assert!(found <= most, "{epsilon} {times}: {found}");
        }
    }

    #[test]
    fn the_price_of_one_release_is_not_below_the_exact_one() {
        for (sensitivity, scale) in [(1.0, 3.0), (1.0, 49.0), (2.0, 0.3), (0.7, 1.9), (1.0, 2.0)] {
            let event = PrivacyEvent::Laplace {
                sensitivity,
                scale,
                unit: Unit::Party,
            };
            let epsilon = basic().guarantee(Some(&event)).unwrap().epsilon;
            let exact = |epsilon: f64| libm::fma(epsilon, scale, -sensitivity);
            assert!(exact(epsilon) >= 0.0, "{sensitivity} / {scale}: {epsilon}");
            assert!(exact(epsilon.next_down()) < 0.0, "{sensitivity} / {scale}");
        }
    }

    #[test]
    fn it_is_an_accountant() {
        fl_conformance::accountant(basic);
    }

    #[test]
    fn what_has_no_price_is_refused() {
        let mut a = basic();
        let gaussian = PrivacyEvent::Gaussian {
            sensitivity: 1.0,
            sigma: 1.0,
            unit: Unit::Party,
        };
        let refused = a.charge(&gaussian).unwrap_err();
        assert!(refused.downcast_ref::<Problem>().is_some());
        assert_eq!(
            refused.to_string(),
            "`basic` has no price for Gaussian noise of 1 for an L2 sensitivity of 1; it prices Laplace noise and randomised response only"
        );
        let why = PrivacyEvent::Unaccounted {
            why: "z_max comes from the data".into(),
        };
        assert_eq!(
            a.charge(&why).unwrap_err().to_string(),
            "no guarantee can be given: z_max comes from the data"
        );
        a.charge(&laplace(1.0)).unwrap();
        let example = PrivacyEvent::Laplace {
            sensitivity: 1.0,
            scale: 1.0,
            unit: Unit::Example,
        };
        assert_eq!(
            a.charge(&example).unwrap_err().to_string(),
            "guarantees for one example and for one party do not add up"
        );
    }
}
