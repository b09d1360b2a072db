//! The accountant of votes with Gaussian noise.
use crate::gnmax::{cap_ln_q, ln_q, rdp, threshold_rdp};
use crate::priced_ledger::{Price, PricedLedger, Pricing, plus, ratio, scaled, unpriced};
use crate::renyi::{self, Conversion, gaussian};
use crate::vote_release::{changed, counts};
use fl_core::prelude::*;
use fl_core::privacy::{Unit, VoteNoise, VoteRelease};
use fl_core::settings::between;
use std::collections::BTreeMap;

settings! {
    /// Renyi accounting of votes with Gaussian noise, plain and confident (GNMax, Papernot et al.
    /// 2018). Each query costs the lesser of the data-dependent and the data-independent bound. If
    /// the ledger holds the counts of votes, epsilon depends on the data, without the paper's
    /// smooth sensitivity: do not publish it.
    pub struct PateGnmax {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
        /// The unit to protect.
        unit: Unit = Unit::Example;
        /// The conversion of Renyi differential privacy to an epsilon.
        conversion: Conversion = Conversion::Improved;
    }
}

/// Returns the cost of the queries of `votes` at each order, if `changed` votes can change.
fn cost(
    votes: &VoteRelease,
    counts: Option<&[Vec<u32>]>,
    changed: f64,
    orders: &[f64],
) -> Vec<f64> {
    let (check, sigma) = match votes.noise {
        VoteNoise::Confident {
            threshold,
            check,
            sigma,
        } => (Some((threshold, check)), sigma),
        VoteNoise::Gaussian { sigma } | VoteNoise::Laplace { gamma: sigma } => (None, sigma),
    };
    let is_answered = |query: usize| {
        votes
            .answered
            .as_ref()
            .is_none_or(|a| a.get(query) != Some(&false))
    };
    let Some(counts) = counts else {
        // answered queries cost a changed^2 / sigma^2, the check of every query a changed^2 / (2
        // check^2)
        let answered = (0..votes.queries)
            .filter(|query| is_answered(*query))
            .count() as f64;
        let all = votes.queries as f64;
        let one = |a: &f64| {
            let check = check.map_or(0.0, |(_, check)| all * gaussian(check / changed, *a));
            check + answered * 2.0 * gaussian(sigma / changed, *a)
        };
        return orders.iter().map(one).collect();
    };
    // equal votes have equal costs for any class
    let mut equal: BTreeMap<(Vec<u32>, bool), u32> = BTreeMap::new();
    for (query, counts) in counts.iter().enumerate() {
        let mut sorted = counts.clone();
        sorted.sort_unstable();
        *equal.entry((sorted, is_answered(query))).or_default() += 1;
    }
    let mut total = vec![0.0; orders.len()];
    for ((counts, is_answered), times) in equal {
        let counts: Vec<f64> = counts.into_iter().map(f64::from).collect();
        let ln_q = cap_ln_q(ln_q(&counts, sigma), counts.len());
        for (sum, a) in total.iter_mut().zip(orders) {
            let answer = if is_answered {
                rdp(ln_q, sigma / changed, *a)
            } else {
                0.0
            };
            let check = check.map_or(0.0, |(threshold, noise)| {
                threshold_rdp(&counts, threshold, noise, changed, *a)
            });
            *sum = plus(*sum, scaled(f64::from(times), answer + check));
        }
    }
    total
}

impl Pricing for PateGnmax {
    type Cost = Vec<f64>;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<Vec<f64>>> {
        let orders = renyi::orders();
        match event {
            PrivacyEvent::Gaussian {
                sensitivity,
                sigma,
                unit,
            } => {
                let multiplier = 1.0 / ratio(event, *sensitivity, *sigma)?;
                let cost = orders.iter().map(|a| gaussian(multiplier, *a)).collect();
                Ok(Price::fixed(cost, *unit))
            }
            PrivacyEvent::Votes(votes) => {
                match votes.noise {
                    VoteNoise::Laplace { .. } => {
                        return unpriced("pate-gnmax", "Gaussian noise; use `pate-moments`", event);
                    }
                    VoteNoise::Gaussian { sigma } => ratio(event, 1.0, sigma)?,
                    VoteNoise::Confident { check, sigma, .. } => {
                        ratio(event, 1.0, check)?.max(ratio(event, 1.0, sigma)?)
                    }
                };
                let unit = self.unit;
                let (changed, from_data) = changed(event, votes, unit)?;
                let counts = counts(event, votes)?;
                Ok(Price {
                    cost: match changed {
                        0 => vec![0.0; orders.len()],
                        _ => cost(votes, counts, f64::from(changed), &orders),
                    },
                    unit,
                    // which queries were answered depends on the votes
                    data_dependent: from_data || counts.is_some() || votes.answered.is_some(),
                })
            }
            _ => unpriced("pate-gnmax", "Gaussian noise", event),
        }
    }

    fn add(sum: &mut Vec<f64>, more: &Vec<f64>) {
        renyi::add(sum, more);
    }

    fn spent(&self, cost: &Vec<f64>) -> (f64, f64) {
        let epsilon = renyi::spent(cost, self.delta, &self.conversion);
        (epsilon, self.delta)
    }
}
plugin!(accountant "pate-gnmax" => PateGnmax as PricedLedger<PateGnmax>,
    papers: ["Papernot et al. 2018"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::message::VoteSensitivity;

    fn books() -> PricedLedger<PateGnmax> {
        PateGnmax {
            delta: 1e-5,
            unit: Unit::Example,
            conversion: Conversion::Classic,
        }
        .into()
    }

    fn confident(answered: [bool; 3], changed: u32) -> VoteRelease {
        VoteRelease {
            noise: VoteNoise::Confident {
                threshold: 140.0,
                check: 80.0,
                sigma: 20.0,
            },
            queries: 3,
            classes: 3,
            counts: Some(vec![vec![240, 5, 5], vec![150, 60, 40], vec![100, 90, 60]]),
            answered: Some(answered.to_vec()),
            sensitivity: VoteSensitivity {
                example: Some(changed),
                party: None,
                ..VoteSensitivity::default()
            },
        }
    }

    fn epsilon(votes: VoteRelease) -> f64 {
        let mut books = books();
        books.charge(&PrivacyEvent::Votes(votes)).unwrap();
        books.guarantee(None).unwrap().epsilon
    }

    #[test]
    fn it_is_an_accountant() {
        fl_conformance::accountant(books);
    }

    #[test]
    fn confident_votes_cost_what_the_vector_says_or_less_with_more_orders() {
        // vector confident_gnmax_total, classic conversion, nine orders: 0.3853
        let some = epsilon(confident([true, true, false], 1));
        assert!((0.33..0.3853).contains(&some), "{some}");
        let all = epsilon(confident([true; 3], 1));
        let none = epsilon(confident([false; 3], 1));
        assert!(none < some && some < all, "{none}, {some}, {all}");
        assert!(
            epsilon(confident([true; 3], 2)) > all,
            "two votes are harder to hide"
        );
        assert_eq!(epsilon(confident([true; 3], 0)), 0.0);
    }

    #[test]
    fn without_the_counts_only_the_noise_counts() {
        let kept_back = VoteRelease {
            counts: None,
            ..confident([true, true, false], 1)
        };
        let mut books = books();
        books.charge(&PrivacyEvent::Votes(kept_back)).unwrap();
        let guarantee = books.guarantee(None).unwrap();
        // the same vector: 0.5177 for any votes
        assert!((0.48..0.5178).contains(&guarantee.epsilon), "{guarantee}");
        // the number of answers, and so epsilon, depends on the votes
        assert!(guarantee.data_dependent && guarantee.unit == Unit::Example);
    }
}
