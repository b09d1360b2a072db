//! An empirical audit: how well a mechanism's releases separate two neighbouring inputs. It gives a
//! lower bound on epsilon (Jagielski, Ullman and Oprea 2020), to compare with the accountant's
//! claim.

use crate::compare::{floats, whole};
use fl_core::message::Message;
use fl_core::privacy::{Guarantee, Noise, ReleaseNoise, VoteNoise};
use fl_core::{BoxedMechanism, Cohort, PrivacyEvent, Result, Stream};
use statrs::distribution::{Beta, ContinuousCDF};
use std::fmt::{Display, Formatter};

/// The probability that a bound is wrong by chance.
const ERROR_RATE: f64 = 1e-4;

/// The result of an audit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Audit {
    /// The accountant's epsilon.
    pub claim: f64,
    /// The delta of both.
    pub delta: f64,
    /// The lower bound of epsilon that the releases show, with one error in 10,000 audits.
    pub shown: f64,
}

impl Display for Audit {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self {
            claim,
            delta,
            shown,
        } = self;
        write!(f, "claim {claim:.4}, shown {shown:.4} at delta {delta:e}")
    }
}

/// Releases each of two neighbouring messages `draws` times, and separates them as well as their
/// noise allows. `claim` is an accountant's guarantee for one release.
///
/// # Errors
/// If a message cannot be clipped, priced or released.
pub fn audit<M: Message>(
    make: &dyn Fn() -> BoxedMechanism<M>,
    (one, other): (&M, &M),
    claim: &dyn Fn(&PrivacyEvent) -> Result<Guarantee>,
    draws: usize,
    kind: Noise,
) -> Result<Audit> {
    let mut part = make();
    if let Some(range) = part
        .range(one)
        .into_iter()
        .chain(part.range(other))
        .reduce(f32::max)
    {
        part.agree(range);
    }
    let bounded = |m: &M| {
        let mut m = m.clone();
        part.clip(&mut m).map(|()| m)
    };
    let (one, other) = (bounded(one)?, bounded(other)?);
    let everyone = Cohort::all(1);
    let event = part.price(&one, &everyone)?;
    let Guarantee { epsilon, delta, .. } = claim(&event)?;
    let root = Stream::root(0).child("audit", 0);
    let mut scores = |m: &M, name: &str| {
        let one_score = |n: usize| {
            let noise = ReleaseNoise::of(root.child(name, n as u64), kind);
            let mut out = m.clone();
            part.perturb(&mut out, &everyone, &noise)?;
            Ok(score(&event, &one, &other, &out))
        };
        (0..draws).map(one_score).collect::<Result<Vec<f64>>>()
    };
    let (a, b) = (scores(&one, "one")?, scores(&other, "other")?);
    Ok(Audit {
        claim: epsilon,
        delta,
        shown: shown(&a, &b, delta),
    })
}

/// Returns how much likelier `out` is a release of `one` than of `other`. This is the
/// log-likelihood ratio if the noise is known, and otherwise an attacker's best statistic.
fn score<M: Message>(event: &PrivacyEvent, one: &M, other: &M, out: &M) -> f64 {
    let (a, b, y) = (floats(one), floats(other), floats(out));
    let over = |f: &dyn Fn(f64, f64, f64) -> f64| {
        let all = a.iter().zip(&b).zip(&y);
        all.map(|((a, b), y)| f(*a, *b, *y)).sum::<f64>()
    };
    match event {
        PrivacyEvent::Laplace { scale, .. } => {
            over(&|a, b, y| ((y - b).abs() - (y - a).abs()) / scale)
        }
        PrivacyEvent::Gaussian { sigma, .. } => {
            over(&|a, b, y| ((y - b).powi(2) - (y - a).powi(2)) / (2.0 * sigma * sigma))
        }
        // only the winner is released, and the fact that there is one
        PrivacyEvent::Votes(votes) => match (votes.noise, y.len() < a.len()) {
            (VoteNoise::Confident { .. }, true) => 0.5,
            _ => f64::from(y.iter().copied().fold(f64::MIN, f64::max) == y[0]),
        },
        // labels and positions: the number that match `one` and not `other`
        _ => {
            let (a, b, y) = (whole(one), whole(other), whole(out));
            let seen = |of: &[u32]| y.iter().filter(|id| of.contains(id)).count() as f64;
            let only = |of: &[u32], not: &[u32]| -> Vec<u32> {
                of.iter().filter(|id| !not.contains(id)).copied().collect()
            };
            seen(&only(&a, &b)) - seen(&only(&b, &a))
        }
    }
}

/// Returns the largest epsilon that chance does not explain: for some threshold,
/// `P(a above) >= e^epsilon P(b above) + delta`, by Clopper and Pearson's bounds. Half of the
/// releases select the threshold, the other half are counted.
fn shown(a: &[f64], b: &[f64], delta: f64) -> f64 {
    let sides = [1.0, -1.0].map(|sign| {
        let turned = |all: &[f64]| all.iter().map(|x| sign * x).collect::<Vec<f64>>();
        // each may be the first of the two
        let (a, b) = if sign > 0.0 {
            (turned(a), turned(b))
        } else {
            (turned(b), turned(a))
        };
        let (train_a, test_a) = a.split_at(a.len() / 2);
        let (train_b, test_b) = b.split_at(b.len() / 2);
        let bound = |a: &[f64], b: &[f64], at: f64| {
            let above = |all: &[f64]| all.iter().filter(|x| **x >= at).count();
            let (low, high) = (
                at_least(above(a), a.len(), ERROR_RATE / 4.0),
                1.0 - at_least(b.len() - above(b), b.len(), ERROR_RATE / 4.0),
            );
            libm::log((low - delta) / high)
        };
        let mut sorted = train_b.to_vec();
        sorted.sort_by(f64::total_cmp);
        // thresholds that few of the other releases pass, and then fewer
        let shares = (0..40).map(|i| 1.0 - 0.75f64.powi(i));
        let places =
            shares.map(|s| sorted[((s * sorted.len() as f64) as usize).min(sorted.len() - 1)]);
        let best = places
            .map(|at| (bound(train_a, train_b, at), at))
            .filter(|(bound, _)| !bound.is_nan())
            .max_by(|x, y| x.0.total_cmp(&y.0));
        best.map_or(0.0, |(_, at)| bound(test_a, test_b, at))
    });
    sides
        .into_iter()
        .filter(|x| !x.is_nan())
        .fold(0.0, f64::max)
}

/// Returns a lower bound of a probability, wrong with probability `error_rate`, from `k` successes
/// of `n` (Clopper and Pearson 1934).
pub fn at_least(k: usize, n: usize, error_rate: f64) -> f64 {
    if k == 0 {
        return 0.0;
    }
    let beta = Beta::new(k as f64, (n - k + 1) as f64).expect("both are above 0");
    beta.inverse_cdf(error_rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_tables() {
        // 10 of 100 at 95 % on both sides: 0.0490 to 0.1762
        assert!((at_least(10, 100, 0.025) - 0.0490).abs() < 1e-4);
        assert!((1.0 - at_least(90, 100, 0.025) - 0.1762).abs() < 1e-4);
        // none of 100, on one side: 1 - 0.05^(1/100)
        assert!((1.0 - at_least(100, 100, 0.05) - (1.0 - libm::pow(0.05f64, 0.01))).abs() < 1e-9);
        assert_eq!(at_least(0, 100, 0.05), 0.0);
    }

    #[test]
    fn what_cannot_be_told_apart_shows_nothing() {
        let same: Vec<f64> = (0..10_000).map(|i| f64::from(i % 997)).collect();
        assert!(shown(&same, &same, 0.0) < 0.1);
        let apart: Vec<f64> = same.iter().map(|x| x + 2000.0).collect();
        // none of 5,000 passes, so e^epsilon is about 5000 / 10
        assert!(shown(&apart, &same, 0.0) > 5.0);
    }
}
