//! The accountant of PATE's and FedKT's Laplace votes.
use crate::advanced::Whose;
use crate::books::{Books, Price, Pricing, name, ratio, unpriced};
use crate::pate::{Orders, Pure, alpha, epsilon, moments};
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::{Unit, VoteNoise, VoteRelease};
use fl_core::settings::between;

choices! {
    /// At which orders moments are kept.
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
    /// The orders.
    pub fn orders(&self) -> Orders {
        match self {
            Self::Standard => Orders::up_to(32),
            Self::Official => Orders::up_to(8),
            Self::Finer => Orders { step: 0.25, n: 256 },
        }
    }
}

settings! {
    /// The moments accountant of votes with Laplace noise: PATE (Papernot et al. 2017) and FedKT (Li et al. 2021). For every
    /// query the least of the data-dependent, the data-independent and the pure bound; in all also basic and advanced
    /// composition. Votes whose counts are in the ledger make epsilon depend on the data: do not publish it.
    pub struct PateMoments {
        /// Delta of the guarantee.
        delta: f64 = 1e-5, in between(0.0, 1.0);
        /// Whose presence is to be hidden.
        unit: Whose = Whose::Example;
        /// At which orders moments are kept.
        orders: MomentOrders = MomentOrders::Standard;
    }
}

/// Moments by order, and what is known of the same releases without any.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    alpha: Vec<f64>,
    pure: Pure,
}

/// How many votes can change with one `unit`.
pub(crate) fn reach(event: &PrivacyEvent, votes: &VoteRelease, unit: Unit) -> Result<u32> {
    votes.votes_of(unit).with_context(|| {
        Problem::Unpriced(format!(
            "{event}: nobody has said how many votes one {} can change",
            name(unit)
        ))
    })
}

/// The clean counts of a release, all of `classes` classes.
pub(crate) fn counts<'v>(
    event: &PrivacyEvent,
    votes: &'v VoteRelease,
) -> Result<Option<&'v [Vec<u32>]>> {
    if let Some(counts) = &votes.counts {
        let whole = counts.len() == votes.queries
            && votes.classes > 0
            && counts.iter().all(|c| c.len() == votes.classes);
        ensure!(
            whole,
            Problem::Unpriced(format!("{event} has counts of other queries or classes"))
        );
    }
    Ok(votes.counts.as_deref())
}

impl Pricing for PateMoments {
    type Cost = Moments;

    fn price(&self, event: &PrivacyEvent) -> Result<Price<Moments>> {
        let orders = self.orders.orders();
        // k answers of eps0 each, whatever the data
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
            PrivacyEvent::Votes(votes) => {
                let VoteNoise::Laplace { gamma } = votes.noise else {
                    return unpriced("pate-moments", "Laplace noise; use `pate-gnmax`", event);
                };
                let (unit, gamma) = (self.unit.unit(), ratio(event, gamma, 1.0)?);
                let reach = reach(event, votes, unit)?;
                let mut cost = fixed(votes.queries, 2.0 * f64::from(reach) * gamma);
                let counts = counts(event, votes)?;
                if let Some(counts) = counts {
                    cost.alpha = moments(counts.iter().map(Vec::as_slice), gamma, reach, orders);
                }
                Ok(Price {
                    cost,
                    unit,
                    data_dependent: counts.is_some(),
                })
            }
            _ => unpriced("pate-moments", "Laplace noise", event),
        }
    }

    fn add(sum: &mut Moments, more: &Moments) {
        if sum.alpha.is_empty() {
            sum.alpha = vec![0.0; more.alpha.len()];
        }
        sum.alpha.iter_mut().zip(&more.alpha).for_each(|(s, m)| *s += m);
        sum.pure = sum.pure.plus(more.pure);
    }

    fn epsilon(&self, cost: &Moments) -> f64 {
        let (by_moments, _) = epsilon(&cost.alpha, self.orders.orders(), self.delta);
        by_moments.min(cost.pure.least(self.delta))
    }

    fn delta(&self) -> f64 {
        self.delta
    }
}
plugin!(accountant "pate-moments" => PateMoments as Books<PateMoments>);
