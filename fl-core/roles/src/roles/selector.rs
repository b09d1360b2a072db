//! [`Selector`]: the role that picks clients, samples or labels.

use crate::{ClientId, Result, Round, Stream};
use serde::{Deserialize, Serialize};

/// A client that can be chosen, with the statistics that a [`Selector`] requested.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Its number.
    pub id: ClientId,
    /// Its number of examples.
    pub samples: Option<u64>,
    /// The mean loss of the current global model on its examples.
    pub loss: Option<f64>,
}

impl Candidate {
    /// Returns a client without statistics.
    pub fn new(id: ClientId) -> Self {
        Self {
            id,
            samples: None,
            loss: None,
        }
    }
}

/// A selector's request for one statistic of some clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatQuery {
    /// The statistic.
    pub wanted: ClientStat,
    /// Positions in the pool, ascending.
    pub of: Vec<usize>,
}

impl ClientStatQuery {
    /// Returns a query for all clients whose statistic is unknown; `None` if all are known.
    pub fn unknown(wanted: ClientStat, pool: &[Candidate]) -> Option<Self> {
        let of: Vec<usize> = (0..pool.len())
            .filter(|at| wanted.known(&pool[*at]).is_none())
            .collect();
        (!of.is_empty()).then_some(Self { wanted, of })
    }
}

impl ClientStat {
    /// Returns this statistic of a candidate, if known.
    pub fn known(self, of: &Candidate) -> Option<f64> {
        match self {
            Self::Samples => of.samples.map(|n| n as f64),
            Self::Loss => of.loss,
        }
    }
}

/// A statistic that a selector can request from clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientStat {
    /// [`Candidate::samples`]
    Samples,
    /// [`Candidate::loss`], if the protocol has a global model.
    Loss,
}

/// How the clients of a round were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingScheme {
    /// All clients take part.
    Everyone,
    /// Each client with this probability, independently of the others.
    Poisson {
        /// The probability, in `[0, 1]`.
        rate: f64,
    },
    /// A fixed number of clients, every set of that size equally likely.
    FixedSize,
    /// In another way, which may depend on data or on earlier rounds.
    Unknown,
}

/// The clients that take part in a round, and how they were drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cohort {
    /// Their numbers, ascending.
    pub ids: Vec<ClientId>,
    /// The number of clients that they were chosen from.
    pub of: usize,
    /// How they were drawn.
    pub draw: SamplingScheme,
}

impl Cohort {
    /// Returns a cohort of all these clients, ascending.
    pub fn everyone(ids: Vec<ClientId>) -> Self {
        Self {
            of: ids.len(),
            ids,
            draw: SamplingScheme::Everyone,
        }
    }

    /// Returns a cohort of all `clients` clients, numbered from 0.
    pub fn all(clients: usize) -> Self {
        Self::everyone((0..clients as ClientId).collect())
    }

    /// Keeps some of these clients, chosen in a way that no privacy analysis may assume.
    pub fn retain(mut self, keep: impl Fn(ClientId) -> bool) -> Self {
        self.ids.retain(|id| keep(*id));
        if self.ids.len() < self.of {
            self.draw = SamplingScheme::Unknown;
        }
        self
    }
}

impl std::ops::Deref for Cohort {
    type Target = [ClientId];
    fn deref(&self) -> &[ClientId] {
        &self.ids
    }
}

/// Picks clients for a cohort, samples worth exchanging, or labels worth learning.
pub trait Selector: Send {
    /// The pool: [`crate::Roster`] (clients), [`crate::Samples`] or [`crate::message::SoftLabels`].
    type Pool: ?Sized;

    /// Learns from a client's own samples once, before the first selection.
    ///
    /// # Errors
    /// If it cannot learn from these samples.
    fn fit(&mut self, _own: &crate::Examples, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    /// Returns whether it chooses samples by a model's scores for them, one class for each sample.
    /// A protocol with another pool or task cannot use it then, see
    /// [`SlotSpec::selects_from_scores`](crate::SlotSpec::selects_from_scores).
    fn needs_scores(&self) -> bool {
        false
    }

    /// Returns the next statistic that it requests before it selects. The core calls it again, with
    /// the answers in `pool`, until it returns `None`. Only clients get such requests, each once a
    /// round for one statistic, and every request is counted. A client whose answer was dropped
    /// stays unknown. The selector may remember the statistics.
    ///
    /// # Errors
    /// As [`Selector::select`].
    fn poll(&mut self, _round: &Round, _pool: &Self::Pool) -> Result<Option<ClientStatQuery>> {
        Ok(None)
    }

    /// Returns positions in `pool`: ascending, no repeats. Random draws come from `round.stream`
    /// only.
    ///
    /// # Errors
    /// If it cannot judge the pool.
    fn select(&mut self, round: &Round, pool: &Self::Pool) -> Result<Vec<usize>>;

    /// Returns how it draws clients. Privacy amplification relies on it: any draw that is not
    /// exactly one of the random ones is [`SamplingScheme::Unknown`].
    fn draw(&self) -> SamplingScheme {
        SamplingScheme::Unknown
    }

    /// Returns a score for each entry of `pool`, higher for a preferred one, only for reports on
    /// how well a selector ranks. `None`: it has no such scores.
    ///
    /// # Errors
    /// As [`Selector::select`].
    fn rank(&mut self, _pool: &Self::Pool) -> Result<Option<Vec<f64>>> {
        Ok(None)
    }

    /// Returns the state that lasts between selections, with that of [`Selector::fit`], for a run
    /// that stops and resumes. Empty if there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a state from [`Selector::save`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}
