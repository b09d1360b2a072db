//! [`Audit`]: what an audit has found, by observer.

use crate::judge::LowerBound;
use fl_core::privacy::{Guarantee, Neighbours, Noise, Observer, Protection, Protections, Unit};
use serde::Serialize;
use std::fmt::{Display, Formatter};

/// The number of observers, whose bounds share the probability of an error.
pub(crate) const OBSERVERS: f64 = Observer::ALL.len() as f64;

/// Whether a claim holds as far as the audit can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The bound is above the claim.
    Broken,
    /// The bound is not above the claim, but a fact differs in every run as if it had no noise.
    Suspect,
    /// The audit has found nothing against the claim.
    NotRefuted,
    /// There is no claim for this observer and unit.
    NoClaim,
    /// The observer sees nothing that this method can judge.
    NotJudged,
}

impl Verdict {
    /// Judges a claim of this epsilon, if there is one.
    pub(crate) fn of(shown: &LowerBound, claim: Option<f64>) -> Self {
        match claim {
            None => Self::NoClaim,
            Some(claim) if shown.epsilon > claim => Self::Broken,
            Some(_) if shown.fixed > 0 => Self::Suspect,
            Some(_) => Self::NotRefuted,
        }
    }
}

/// What two neighbours differ in, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Game {
    /// The unit.
    pub unit: Unit,
    /// The change.
    pub change: Neighbours,
}

impl Display for Game {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.unit, self.change) {
            (Unit::Example, Neighbours::Removed) => "example added or removed",
            (Unit::Example, Neighbours::Replaced) => "example replaced",
            (Unit::Party, Neighbours::Removed) => "party with its data or none",
            (Unit::Party, Neighbours::Replaced) => "party replaced",
        })
    }
}

/// What an audit has found about one observer.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The observer.
    pub observer: Observer,
    /// What the neighbours differ in.
    #[serde(flatten)]
    pub game: Game,
    /// The claimed guarantee against it.
    pub claim: Option<Guarantee>,
    /// The reasons if there is none.
    pub no_claim: Vec<String>,
    /// The delta of the bound.
    pub delta: f64,
    /// What was shown.
    pub shown: LowerBound,
    /// What follows.
    pub verdict: Verdict,
}

/// What an audit has found.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// The name of the spec.
    pub name: String,
    /// The method and its size, for people.
    pub method: String,
    /// The differences of the neighbours, for people.
    pub compared: Vec<String>,
    /// The probability that all bounds are right.
    pub confidence: f64,
    /// The seed of the audit.
    pub seed: u64,
    /// The source of noise in the spec.
    pub noise: Noise,
    /// By observer.
    pub findings: Vec<Finding>,
    /// What a user should know.
    pub notes: Vec<String>,
    /// The digest of everything that the runs showed.
    pub digest: String,
}

impl Audit {
    /// Returns whether a claim is broken.
    pub fn broken(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.verdict == Verdict::Broken)
    }
}

/// The claim against an observer for these neighbours, or why there is none.
pub(crate) fn claim_of(
    claims: &Protections,
    observer: Observer,
    game: Game,
) -> (Option<Guarantee>, Vec<String>) {
    let claim = match claims.get(&observer) {
        None => return (None, vec!["the spec has no accountant".into()]),
        Some(Protection::Nothing { nothing, .. }) => return (None, nothing.clone()),
        Some(Protection::Holds(claim)) => claim,
    };
    // what holds when a row is replaced does not hold with the same epsilon for one row more; a
    // party may be replaced by one without data
    let covers = claim.neighbours == game.change
        || (claim.unit == Unit::Party && claim.neighbours == Neighbours::Replaced);
    if claim.unit == game.unit && covers {
        (Some(claim.clone()), Vec::new())
    } else {
        (None, vec![format!("its claim is another: {claim}")])
    }
}
