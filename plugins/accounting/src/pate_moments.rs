//! The accountant of Laplace votes in PATE and FedKT.
use crate::pate::{Orders, Pure, alpha, epsilon, moments};
use crate::priced_ledger::{Price, PricedLedger, Pricing, plus, ratio, scaled, unpriced};
use crate::vote_release::{changed, counts};
use fl_core::prelude::*;
use fl_core::privacy::{Unit, VoteNoise};
use fl_core::settings::between;

choices! {
    /// The orders at which moments are kept.
    pub enum MomentOrders {
        /// 1 to 32.
        Standard = "standard",
        /// 1 to 8, as in the published code of FedKT and PATE.
        Official = "official",
        /// 0.25 to 64 in quarters: a little tighter.
        Finer = "finer",
    }
}

impl MomentOrders {
    /// Returns the orders.
    pub fn orders(&self) -> Orders {
        match self {
            Self::Standard => Orders::up_to(32),
            Self::Official => Orders::up_to(8),
            Self::Finer => Orders { step: 0.25, n: 256 },
        }
    }
}

settings! {
    /// The moments accountant of votes with Laplace noise: PATE (Papernot et al. 2017) and FedKT
    /// (Li et al. 2021). Each query costs the least of the data-dependent, the data-independent and
    /// the pure bound; the total also considers basic and advanced composition. If the ledger holds
    /// the counts of votes, epsilon depends on the data: do not publish it.
    pub struct PateMoments {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
        /// The unit to protect.
        unit: Unit = Unit::Example;
        /// The orders at which moments are kept.
        orders: MomentOrders = MomentOrders::Standard;
    }
}

/// Moments by order, and the sums that composition without moments needs.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    alpha: Vec<f64>,
    pure: Pure,
}

impl Pricing for PateMoments {
    type Cost = Moments;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<Moments>> {
        let orders = self.orders.orders();
        // k answers of eps0 each, for any data
        let fixed = |k: usize, eps0: f64| Moments {
            alpha: orders
                .iter()
                .map(|l| k as f64 * alpha(None, eps0, l))
                .collect(),
            pure: Pure::of(k, eps0),
        };
        match event {
            PrivacyEvent::Laplace {
                sensitivity,
                scale,
                unit,
            } => {
                let eps0 = ratio(event, *sensitivity, *scale)?;
                Ok(Price::fixed(fixed(1, eps0), *unit))
            }
            PrivacyEvent::Pure {
                epsilon,
                times,
                unit,
            } => {
                let eps0 = ratio(event, *epsilon, 1.0)?;
                Ok(Price::fixed(fixed(*times, eps0), *unit))
            }
            PrivacyEvent::Votes(votes) => {
                let VoteNoise::Laplace { gamma } = votes.noise else {
                    return unpriced("pate-moments", "Laplace noise; use `pate-gnmax`", event);
                };
                let (unit, gamma) = (self.unit, ratio(event, gamma, 1.0)?);
                let (changed, from_data) = changed(event, votes, unit)?;
                let mut cost = fixed(votes.queries, scaled(2.0 * f64::from(changed), gamma));
                let counts = counts(event, votes)?;
                if let Some(counts) = counts {
                    cost.alpha = moments(counts.iter().map(Vec::as_slice), gamma, changed, orders);
                }
                Ok(Price {
                    cost,
                    unit,
                    data_dependent: from_data || counts.is_some(),
                })
            }
            _ => unpriced("pate-moments", "Laplace noise", event),
        }
    }

    fn add(sum: &mut Moments, more: &Moments) {
        if sum.alpha.is_empty() {
            sum.alpha = vec![0.0; more.alpha.len()];
        }
        sum.alpha
            .iter_mut()
            .zip(&more.alpha)
            .for_each(|(s, m)| *s = plus(*s, *m));
        sum.pure = sum.pure.plus(more.pure);
    }

    fn spent(&self, cost: &Moments) -> (f64, f64) {
        let (by_moments, _) = epsilon(&cost.alpha, self.orders.orders(), self.delta);
        let epsilon = by_moments.min(cost.pure.least(self.delta));
        (epsilon, self.delta)
    }
}
plugin!(accountant "pate-moments" => PateMoments as PricedLedger<PateMoments>,
    papers: ["Papernot et al. 2017", "Li et al. 2021"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Problem;
    use fl_core::message::VoteSensitivity;
    use fl_core::privacy::VoteRelease;
    use fl_core::privacy::{Composition, Ledger};

    fn books(unit: Unit) -> PricedLedger<PateMoments> {
        PateMoments {
            delta: 1e-5,
            unit,
            orders: MomentOrders::Standard,
        }
        .into()
    }

    fn votes(gamma: f64, counts: &[[u32; 2]]) -> VoteRelease {
        VoteRelease {
            noise: VoteNoise::Laplace { gamma },
            queries: counts.len(),
            classes: 2,
            counts: Some(counts.iter().map(|c| c.to_vec()).collect()),
            answered: None,
            sensitivity: VoteSensitivity {
                example: Some(1),
                party: Some(5),
                ..VoteSensitivity::default()
            },
        }
    }

    fn epsilon_of(event: &PrivacyEvent) -> f64 {
        let mut books = books(Unit::Example);
        books.charge(event).unwrap();
        books.guarantee(None).unwrap().epsilon
    }

    #[test]
    fn it_is_an_accountant() {
        for orders in [
            MomentOrders::Standard,
            MomentOrders::Official,
            MomentOrders::Finer,
        ] {
            fl_conformance::accountant(|| {
                PricedLedger::from(PateMoments {
                    delta: 1e-5,
                    unit: Unit::Party,
                    orders: orders.clone(),
                })
            });
        }
    }

    #[test]
    fn agreement_costs_less_than_any_votes_and_is_said_to_depend_on_the_data() {
        let agreed = votes(0.1, &[[250, 0]; 500]);
        let kept_back = VoteRelease {
            counts: None,
            ..agreed.clone()
        };
        let mut told = books(Unit::Example);
        told.charge(&PrivacyEvent::Votes(agreed)).unwrap();
        let guarantee = told.guarantee(None).unwrap();
        assert!(guarantee.data_dependent && guarantee.unit == Unit::Example);
        let any = epsilon_of(&PrivacyEvent::Votes(kept_back));
        assert!(
            guarantee.epsilon < 1.0 && any > 30.0,
            "{} and {any}",
            guarantee.epsilon
        );
    }

    #[test]
    fn a_party_counts_with_all_its_votes_and_parties_do_not_add_up() {
        let event = PrivacyEvent::Votes(votes(0.1, &[[5, 0], [4, 1], [3, 2]]));
        let mut party = books(Unit::Party);
        party.charge(&event).unwrap();
        // vector L2_party_level_t5: 3.3597 by moments, and three times eps0 = 1 is less
        let epsilon = party.guarantee(None).unwrap().epsilon;
        // 0.1 is a little more in 64 bits, and products are rounded up
        assert!((3.0..3.0 + 1e-14).contains(&epsilon), "{epsilon}");
        assert_eq!(party.guarantee(None).unwrap().unit, Unit::Party);
        let ledger = |client, n| Ledger {
            client: Some(client),
            events: vec![event.clone(); n],
        };
        let mut many = books(Unit::Example);
        many.merge(
            &[ledger(0, 2), ledger(1, 1), ledger(2, 2)],
            Composition::Parallel,
        )
        .unwrap();
        let mut one = books(Unit::Example);
        one.merge(&[ledger(7, 2)], Composition::Parallel).unwrap();
        assert_eq!(many.guarantee(None).unwrap(), one.guarantee(None).unwrap());
    }

    #[test]
    fn three_changed_votes_cost_no_less_than_six_gamma() {
        let mut three = votes(0.35, &[[9, 1]]);
        (three.counts, three.sensitivity.example) = (None, Some(3));
        let epsilon = epsilon_of(&PrivacyEvent::Votes(three));
        // in 64 bits the nearest product is less
        assert!(libm::fma(6.0, 0.35, -epsilon) <= 0.0, "{epsilon}");
        assert!(epsilon < 2.1 + 1e-14, "{epsilon}");
        let pure = PrivacyEvent::Pure {
            epsilon,
            times: 1,
            unit: Unit::Example,
        };
        assert_eq!(epsilon_of(&pure), epsilon);
    }

    #[test]
    fn votes_that_nobody_can_change_cost_nothing() {
        let mut free = votes(0.1, &[[9, 1], [8, 2]]);
        free.sensitivity.example = Some(0);
        assert_eq!(epsilon_of(&PrivacyEvent::Votes(free.clone())), 0.0);
        // a bound of 0 is itself a fact about the data, if it comes from them
        (free.counts, free.sensitivity.from_data) = (None, true);
        let mut books = books(Unit::Example);
        books.charge(&PrivacyEvent::Votes(free)).unwrap();
        assert!(books.guarantee(None).unwrap().data_dependent);
    }

    #[test]
    fn what_is_not_said_or_does_not_fit_is_refused() {
        let text = |votes: VoteRelease| {
            let error = books(Unit::Example)
                .charge(&PrivacyEvent::Votes(votes))
                .unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(Problem::Unpriced(_))));
            error.to_string()
        };
        let good = votes(0.1, &[[9, 1]]);
        let mut unknown = good.clone();
        unknown.sensitivity.example = None;
        assert!(
            text(unknown)
                .ends_with("the number of votes that one example can change is not stated")
        );
        let mut gaussian = good.clone();
        gaussian.noise = VoteNoise::Gaussian { sigma: 2.0 };
        assert!(text(gaussian).ends_with("it prices Laplace noise; use `pate-gnmax`"));
        let mut other = good.clone();
        other.queries = 2;
        assert!(text(other).ends_with("has counts of other queries or classes"));
        let mut senseless = good;
        senseless.noise = VoteNoise::Laplace { gamma: f64::NAN };
        assert!(text(senseless).contains("makes no sense"));
    }

    #[test]
    fn the_fast_sums_are_the_slow_ones() {
        let mut draws = Stream::root(5).draws();
        for (gamma, changed) in [(0.01, 1), (0.05, 2), (0.3, 5), (1.0, 1), (3.0, 5), (8.0, 4)] {
            for orders in [Orders::up_to(32), Orders { step: 0.25, n: 256 }] {
                let counts: Vec<Vec<u32>> = (0..200)
                    .map(|_| (0..3).map(|_| draws.below(60) as u32).collect())
                    .collect();
                let fast = moments(counts.iter().map(Vec::as_slice), gamma, changed, orders);
                let eps0 = 2.0 * f64::from(changed) * gamma;
                for (fast, l) in fast.into_iter().zip(orders.iter()) {
                    let slow: f64 = counts
                        .iter()
                        .map(|c| c.iter().map(|n| f64::from(*n)).collect::<Vec<_>>())
                        .map(|c| crate::pate::cap_q(crate::pate::lnmax_q(&c, gamma), 3))
                        .map(|q| alpha(Some(q), eps0, l))
                        .sum();
                    let near = (fast - slow).abs() <= 1e-11 * slow;
                    assert!(
                        near,
                        "gamma {gamma}, changed {changed}, l {l}: {fast} and {slow}"
                    );
                }
            }
        }
    }
}
