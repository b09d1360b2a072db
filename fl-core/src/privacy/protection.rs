//! Who sees what of a run, and what of it nobody has priced.

use super::{Guarantee, MinibatchSampling, short};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};

/// Somebody who sees something of a run. Every guarantee is one against somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observer {
    /// Whoever runs the server: every answer and its envelope.
    Server,
    /// Any client: everything that the server sends.
    Clients,
    /// Whoever reads the results: kept models, measurements, the journal, the report.
    Readers,
}

impl Observer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Server, Self::Clients, Self::Readers];

    /// What files and tables call it.
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

/// How a client's answer depends on its own data, as the protocol says. One of whom nothing is said tells everybody
/// everything: what the server sends and keeps is made of the answers.
#[derive(Clone, Debug, Default)]
pub struct DataDependence {
    /// It does not depend on the client's own data.
    pub public: bool,
    /// It depends on them only through what the mechanism in one of these slots has let through before, such as a private
    /// sample.
    pub through: Vec<&'static str>,
    /// It says of the client's own data what a model says that has learnt them through the mechanism in one of these slots
    /// before (post-processing); counts that travel with it do not.
    pub learnt_through: Vec<&'static str>,
    /// It is released through the mechanisms in these slots, at the client.
    pub releases: Vec<&'static str>,
    /// The mechanism in this slot releases the steps of a training.
    pub steps: Option<(&'static str, MinibatchSampling)>,
    /// If one of these slots is filled, something of the answer goes beside those mechanisms.
    pub beside: Vec<&'static str>,
    /// Only a part of the answer is released through them.
    pub partly: bool,
    /// What the server makes of it is released through the mechanism in one of these slots, before anybody else sees it.
    pub at_server: Vec<&'static str>,
    /// Clients are sent something of it before that.
    pub sent_back_unreleased: bool,
}

impl DataDependence {
    /// Who sees something of the answer that has no price, where `filled` says which slots have a mechanism that is asked
    /// for one. `envelope`: of the counts that travel with it.
    pub fn open(&self, filled: &dyn Fn(&str) -> bool, envelope: bool) -> Vec<Observer> {
        let any = |slots: &[&'static str]| slots.iter().any(|slot| filled(slot));
        let released = any(&self.releases) && !any(&self.beside) && !self.partly;
        let released = released || any(&self.learnt_through);
        if any(&self.through) || (!envelope && (self.public || released)) {
            return Vec::new();
        }
        let mut open = vec![Observer::Server];
        let at_server = any(&self.at_server);
        open.extend((self.sent_back_unreleased || !at_server).then_some(Observer::Clients));
        open.extend((!at_server).then_some(Observer::Readers));
        open
    }

    /// All slots that it is released through, at the client or at the server.
    pub fn slots(&self) -> impl Iterator<Item = &'static str> {
        let all = self.through.iter().chain(&self.releases);
        all.chain(&self.at_server).copied()
    }
}

/// What each observer has seen, or will see, that has no price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpricedDisclosures(BTreeMap<Observer, BTreeSet<String>>);

impl UnpricedDisclosures {
    /// These see `what`.
    pub fn add(&mut self, to: &[Observer], what: &str) {
        for observer in to {
            self.0.entry(*observer).or_default().insert(what.into());
        }
    }

    /// What this one sees.
    pub fn to(&self, observer: Observer) -> Vec<String> {
        let seen = self.0.get(&observer);
        seen.into_iter().flatten().cloned().collect()
    }
}

/// What is guaranteed against one observer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Protection {
    /// Something is, for all that it has seen.
    Holds(Guarantee),
    /// Nothing is.
    Nothing {
        /// What it has seen without a price.
        nothing: Vec<String>,
        /// What an accountant says that looked at the data, for research. It holds for these data
        /// only, and tells something about them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of_these_data: Option<Box<Guarantee>>,
    },
}

impl Protection {
    /// Nothing is guaranteed, for these reasons.
    pub fn nothing(nothing: Vec<String>) -> Self {
        Self::Nothing {
            nothing,
            of_these_data: None,
        }
    }

    /// The guarantee, if there is one.
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
                        " (of these data, for research: epsilon {:.4} at delta {})",
                        g.epsilon,
                        short(g.delta)
                    ),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What is guaranteed, by observer.
pub type Protections = BTreeMap<Observer, Protection>;

/// Epsilon against each observer; `None` where nothing is guaranteed.
pub type Epsilons = BTreeMap<Observer, Option<f64>>;

/// The epsilons of `all`.
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
    }
}
