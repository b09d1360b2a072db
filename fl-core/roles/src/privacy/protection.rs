//! [`Observer`]s of a run, their [`UnpricedDisclosures`], and the [`Protection`] against each.

use super::{Guarantee, MinibatchSampling, Noise, UpperBound, short};
use crate::kept_text::{self, Name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};

crate::choices! {
    /// An observer of a run. Every guarantee holds against one observer.
    pub enum Observer: Copy, Eq, PartialOrd, Ord, Serialize, Deserialize {
        /// The operator of the server.
        Server = "server",
        /// The other clients.
        Clients = "clients",
        /// Readers of the results: kept models, measurements, the report.
        Readers = "readers",
    }
}

impl Observer {
    /// All observers.
    pub const ALL: [Self; 3] = [Self::Server, Self::Clients, Self::Readers];

    /// Returns its name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Clients => "clients",
            Self::Readers => "readers",
        }
    }
}

impl Display for Observer {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Server => "the server",
            Self::Clients => "the other clients",
            Self::Readers => "readers of the results",
        })
    }
}

/// How a client's answer depends on its own data, as the protocol declares. By default every
/// observer sees the answer without a price, because the server sends and keeps values made from
/// it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DataDependence {
    /// It does not depend on the client's own data.
    pub public: bool,
    /// The answer depends on them only through earlier results of the mechanism in one of these
    /// slots, such as a private sample.
    #[serde(deserialize_with = "kept_text::names")]
    pub through: Vec<&'static str>,
    /// The answer is post-processing of a model that was trained through the mechanism in one of
    /// these slots; counts that travel with it are not.
    #[serde(deserialize_with = "kept_text::names")]
    pub learnt_through: Vec<&'static str>,
    /// The client releases the answer through the mechanisms in these slots.
    #[serde(deserialize_with = "kept_text::names")]
    pub releases: Vec<&'static str>,
    /// Those of them that the client's own code calls: only the run tells how often, and on what.
    #[serde(deserialize_with = "kept_text::names")]
    pub within: Vec<&'static str>,
    /// The mechanism in this slot releases the steps of a training.
    #[serde(deserialize_with = "kept_text::name_with")]
    pub steps: Option<(&'static str, MinibatchSampling)>,
    /// If one of these slots is filled, part of the answer bypasses those mechanisms.
    #[serde(deserialize_with = "kept_text::names")]
    pub beside: Vec<&'static str>,
    /// Whether those mechanisms release only a part of the answer.
    pub partly: bool,
    /// The server releases its result from the answers through the mechanism in one of these slots,
    /// before another observer sees it.
    #[serde(deserialize_with = "kept_text::names")]
    pub at_server: Vec<&'static str>,
    /// The exchange whose release covers what the server learns from this answer, if not its own.
    #[serde(deserialize_with = "kept_text::no_name")]
    pub released_with: Option<Name>,
    /// The server sends derived values back to clients before that release.
    pub sent_back_unreleased: bool,
    /// How earlier stages taught models that this answer may come from: for each training the
    /// slots of the mechanisms that it went through.
    #[serde(skip)]
    pub taught_before: Vec<Vec<&'static str>>,
}

impl DataDependence {
    /// Returns the observers that see part of the answer without a price; `filled` tells which
    /// slots have a mechanism with a price. With `envelope`, returns those of the counts that
    /// travel with it.
    pub fn open(&self, filled: &dyn Fn(&str) -> bool, envelope: bool) -> Vec<Observer> {
        let any = |slots: &[&'static str]| slots.iter().any(|slot| filled(slot));
        // mechanisms of a training do not cover what its model and optimiser had learnt before
        let begins_clean = !self.learns_from_rows_before(filled);
        let steps = self.steps.is_none() || begins_clean;
        let released = any(&self.releases) && !any(&self.beside) && !self.partly && steps;
        let released = released || (any(&self.learnt_through) && begins_clean);
        let through = any(&self.through) && begins_clean;
        if through || (!envelope && (self.public || released)) {
            return Vec::new();
        }
        let mut open = vec![Observer::Server];
        let at_server = any(&self.at_server);
        open.extend((self.sent_back_unreleased || !at_server).then_some(Observer::Clients));
        open.extend((!at_server).then_some(Observer::Readers));
        open
    }

    /// Returns whether observers see the answer without a price only because of what an earlier
    /// stage has taught.
    pub fn open_by_before(&self, filled: &dyn Fn(&str) -> bool) -> bool {
        let alone = Self {
            taught_before: Vec::new(),
            ..self.clone()
        };
        self.learns_from_rows_before(filled) && alone.open(filled, false).is_empty()
    }

    /// Returns whether an earlier stage may have taught the same models without a mechanism that
    /// has a price; `filled` tells which slots have one.
    fn learns_from_rows_before(&self, filled: &dyn Fn(&str) -> bool) -> bool {
        let priced = |slots: &Vec<&str>| slots.iter().any(|slot| filled(slot));
        !self.taught_before.iter().all(priced)
    }

    /// Returns all slots that the answer is released through, at the client or at the server.
    pub fn slots(&self) -> impl Iterator<Item = &'static str> {
        let all = self.through.iter().chain(&self.releases);
        all.chain(&self.at_server).copied()
    }
}

/// The unpriced data that each observer has seen or will see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpricedDisclosures(BTreeMap<Observer, BTreeSet<String>>);

impl UnpricedDisclosures {
    /// Records that these observers see `what`.
    pub fn add(&mut self, to: &[Observer], what: &str) {
        for observer in to {
            self.0.entry(*observer).or_default().insert(what.into());
        }
    }

    /// Returns the data that this observer sees.
    pub fn to(&self, observer: Observer) -> Vec<String> {
        let seen = self.0.get(&observer);
        seen.into_iter().flatten().cloned().collect()
    }
}

/// The guarantee against one observer, or its absence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Protection {
    /// The guarantee covers everything that the observer has seen.
    Holds(Guarantee),
    /// No guarantee holds.
    Nothing {
        /// The unpriced data that it has seen.
        nothing: Vec<String>,
        /// The guarantee of an accountant that used the data, for research. It holds for these data
        /// only, and reveals something about them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of_these_data: Option<Box<Guarantee>>,
    },
}

impl Protection {
    /// Returns the absence of a guarantee, for these reasons.
    pub fn nothing(nothing: Vec<String>) -> Self {
        Self::Nothing {
            nothing,
            of_these_data: None,
        }
    }

    /// Returns the protection of a run that was stopped after this step. The user who stops it may
    /// have seen results, and no price covers a number of rounds that follows from results.
    pub fn of_stopped(self, after: &str) -> Self {
        match self {
            Self::Holds(guarantee) => Self::Nothing {
                nothing: vec![format!(
                    "the run was stopped after {after}, and the moment may follow from results; resume it to its end"
                )],
                of_these_data: Some(Box::new(guarantee)),
            },
            nothing => nothing,
        }
    }

    /// Returns what a reader must know of its epsilon: that the noise is seeded, which libraries
    /// claim it, or why there is no guarantee.
    pub fn caveats(&self) -> Vec<String> {
        match self {
            Self::Nothing { nothing, .. } => {
                vec![format!("no guarantee: {}", nothing.join("; "))]
            }
            Self::Holds(guarantee) => {
                let seeded =
                    "an estimate, and no guarantee: who knows the seed can remove the noise";
                let seeded = (guarantee.noise == Noise::Seeded).then(|| seeded.to_string());
                let claims = guarantee.claimed_by.iter();
                let claims = claims.map(|library| format!("as claimed by {library}"));
                seeded.into_iter().chain(claims).collect()
            }
        }
    }

    /// Returns the guarantee, if there is one.
    pub fn guarantee(&self) -> Option<&Guarantee> {
        match self {
            Self::Holds(guarantee) => Some(guarantee),
            Self::Nothing { .. } => None,
        }
    }
}

impl Display for Protection {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Holds(guarantee) => guarantee.fmt(f),
            Self::Nothing {
                nothing,
                of_these_data,
            } => {
                write!(f, "nothing: {}", nothing.join("; "))?;
                match of_these_data {
                    Some(g) => write!(
                        f,
                        " (of these data, for research: epsilon {} at delta {})",
                        UpperBound(g.epsilon),
                        short(g.delta)
                    ),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The guarantees, by observer.
pub type Protections = BTreeMap<Observer, Protection>;

/// Epsilon against each observer; `None` without a guarantee.
pub type Epsilons = BTreeMap<Observer, Option<f64>>;

/// Returns the epsilons of `all`.
pub fn epsilons(all: &Protections) -> Epsilons {
    let epsilon = |p: &Protection| p.guarantee().map(|g| g.epsilon);
    all.iter().map(|(o, p)| (*o, epsilon(p))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_speaks_of_is_seen_by_everybody() {
        let seen = |flow: &DataDependence, filled: &[&str]| {
            flow.open(&|slot| filled.contains(&slot), false)
        };
        assert_eq!(
            seen(&DataDependence::default(), &["privacy"]),
            Observer::ALL
        );
        let flow = DataDependence {
            releases: vec!["privacy"],
            beside: vec!["filter"],
            ..DataDependence::default()
        };
        assert_eq!(seen(&flow, &[]), Observer::ALL);
        assert_eq!(seen(&flow, &["privacy"]), []);
        assert_eq!(seen(&flow, &["privacy", "filter"]), Observer::ALL);
        assert_eq!(flow.open(&|slot| slot == "privacy", true), Observer::ALL);
        let flow = DataDependence {
            at_server: vec!["privacy"],
            ..DataDependence::default()
        };
        assert_eq!(seen(&flow, &["privacy"]), [Observer::Server]);
        let flow = DataDependence {
            sent_back_unreleased: true,
            ..flow
        };
        let both = [Observer::Server, Observer::Clients];
        assert_eq!(seen(&flow, &["privacy"]), both);
        let flow = DataDependence {
            through: vec!["sampling"],
            taught_before: vec![vec!["sampling"], vec!["example-privacy"]],
            ..DataDependence::default()
        };
        assert_eq!(seen(&flow, &["sampling"]), Observer::ALL);
        assert_eq!(seen(&flow, &["sampling", "example-privacy"]), []);
    }
}
