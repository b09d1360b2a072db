//! Picks some of many.

use crate::{ClientId, Result, Round, Stream};
use serde::{Deserialize, Serialize};

/// A client that can be chosen, and what is known of it because a [`Selector`] asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Who it is.
    pub id: ClientId,
    /// How many examples it has.
    pub samples: Option<u64>,
    /// The mean loss of the current global model on its examples.
    pub loss: Option<f64>,
}

impl Candidate {
    /// A client of whom nothing else is known.
    pub fn new(id: ClientId) -> Self {
        Self {
            id,
            samples: None,
            loss: None,
        }
    }
}

/// A question of a selector: of whom it wants to know what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatQuery {
    /// What it wants to know.
    pub wanted: ClientStat,
    /// Positions in the pool, ascending.
    pub of: Vec<usize>,
}

impl ClientStatQuery {
    /// Asks all of whom it is not known yet; `None` if it is known of everybody.
    pub fn unknown(wanted: ClientStat, pool: &[Candidate]) -> Option<Self> {
        let of: Vec<usize> = (0..pool.len())
            .filter(|at| wanted.known(&pool[*at]).is_none())
            .collect();
        (!of.is_empty()).then_some(Self { wanted, of })
    }
}

impl ClientStat {
    /// What is known of a candidate.
    pub fn known(self, of: &Candidate) -> Option<f64> {
        match self {
            Self::Samples => of.samples.map(|n| n as f64),
            Self::Loss => of.loss,
        }
    }
}

/// What a selector can ask of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientStat {
    /// [`Candidate::samples`]
    Samples,
    /// [`Candidate::loss`]; where the protocol has a global model to ask about.
    Loss,
}

/// How the clients of a round were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingScheme {
    /// Everybody takes part.
    Everyone,
    /// Each client with this probability, independently of the others.
    Poisson {
        /// The probability, in `[0, 1]`.
        rate: f64,
    },
    /// So many clients that was fixed before, every set of that size equally likely.
    FixedSize,
    /// In another way, which may depend on data or on earlier rounds.
    Unknown,
}

/// The clients that take part in a round, and how they came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Cohort {
    /// Who they are, ascending.
    pub ids: Vec<ClientId>,
    /// Of how many clients they were chosen.
    pub of: usize,
    /// How they were drawn.
    pub draw: SamplingScheme,
}

impl Cohort {
    /// All of these clients, ascending.
    pub fn everyone(ids: Vec<ClientId>) -> Self {
        Self {
            of: ids.len(),
            ids,
            draw: SamplingScheme::Everyone,
        }
    }

    /// So many clients, numbered from 0, and all that there are.
    pub fn all(clients: usize) -> Self {
        Self::everyone((0..clients as ClientId).collect())
    }

    /// Some of these, chosen in a way that no privacy analysis may build on.
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

/// Picks some of many: clients for a cohort, samples worth speaking about, labels worth learning.
pub trait Selector: Send {
    /// What is chosen from: [`crate::Roster`] (clients), [`crate::Samples`] or [`crate::message::SoftLabels`].
    type Pool: ?Sized;

    /// Sees a client's own samples once, before its first choice.
    ///
    /// # Errors
    /// When nothing can be learnt from these samples.
    fn fit(&mut self, _own: &crate::Examples, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    /// Does it choose from samples by a model's scores for them? Then a protocol that hands it anything else, see
    /// [`SlotSpec::selects_from_scores`](crate::SlotSpec::hands_scores), cannot use it.
    fn needs_scores(&self) -> bool {
        false
    }

    /// What it still wants to know of whom before it chooses: asked again, with the answers in `pool`, until it wants no
    /// more. Only clients can be asked, each once in a round about the same; every question is counted. One whose answer
    /// was dropped stays unknown. What it has learnt it may remember.
    ///
    /// # Errors
    /// As [`Selector::select`].
    fn poll(&mut self, _round: &Round, _pool: &Self::Pool) -> Result<Option<ClientStatQuery>> {
        Ok(None)
    }

    /// Positions in `pool`: ascending, no repeats. Random draws come from `round.stream` only.
    ///
    /// # Errors
    /// When the pool cannot be judged.
    fn select(&mut self, round: &Round, pool: &Self::Pool) -> Result<Vec<usize>>;

    /// How it draws clients. Privacy amplification rests on it, so it is a promise: anything that is not exactly one of
    /// the random draws is [`SamplingScheme::Unknown`].
    fn draw(&self) -> SamplingScheme {
        SamplingScheme::Unknown
    }

    /// How much each of `pool` is wanted, the higher the more: only for reports on how well a selector ranks. `None`: it
    /// has no such number.
    ///
    /// # Errors
    /// As [`Selector::select`].
    fn rank(&mut self, _pool: &Self::Pool) -> Result<Option<Vec<f64>>> {
        Ok(None)
    }

    /// What it keeps from one choice to the next, [`Selector::fit`] included, for a run that stops and goes on. Empty: there
    /// is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`Selector::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}
