//! [`Aggregator`]: the role that combines many answers into one result.

use crate::message::Message;
use crate::{ClientId, Inbox, Result, Round, floor_share};
use serde::{Deserialize, Serialize};

/// Properties that an aggregator claims; the conformance kit checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The order of the senders does not affect the result (up to rounding).
    pub order_free: bool,
    /// A common factor of all weights does not affect the result (up to rounding).
    pub weight_scale_free: bool,
    /// The weights do not affect the result.
    pub weight_free: bool,
    /// Every number of the result lies between the smallest and the largest value sent for its
    /// coordinate.
    pub within_hull: bool,
    /// The result follows from the mean of the answers, by the weights that it uses, and from
    /// nothing else in them (up to rounding). Only such an aggregator has a meaning where a
    /// protocol passes it the sum of the answers as one message
    /// ([`crate::Declared::sums_into`]).
    pub of_mean: bool,
}

impl Properties {
    /// Neither the order of the senders nor a common factor of their weights affects the result.
    pub const SCALE_FREE: Self = Self {
        order_free: true,
        weight_scale_free: true,
        weight_free: false,
        within_hull: false,
        of_mean: false,
    };

    /// As [`Properties::SCALE_FREE`], and the result lies between the values sent: a weighted mean
    /// of the answers.
    pub const HULL: Self = Self {
        within_hull: true,
        ..Self::SCALE_FREE
    };

    /// As [`Properties::HULL`], without weights: a median or a plain mean of the answers.
    pub const UNWEIGHTED: Self = Self {
        weight_free: true,
        ..Self::HULL
    };

    /// Returns these properties, and whether the result follows from the mean alone.
    pub const fn of_mean(self, of_mean: bool) -> Self {
        Self { of_mean, ..self }
    }
}

/// How many answers a robust aggregator needs. Of `n` answers `f = floor(share n)` may be bad; it
/// withstands them if `f` is at least 1 and `n >= per_bad f + besides`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Robustness {
    /// The share of bad answers to withstand, from 0 to 1. At 0 only `besides` counts.
    pub share: f64,
    /// The number of answers for each bad one.
    pub per_bad: usize,
    /// The number of answers besides.
    pub besides: usize,
    /// A client whose answer it needs in every round.
    #[serde(default)]
    pub relies_on: Option<ClientId>,
    /// How many answers are combined before it counts them, as by `bucketing`: of `n` it sees
    /// `ceil(n / bucket)`. 0 and 1: none are.
    #[serde(default)]
    pub bucket: usize,
}

impl Robustness {
    /// Withstands `floor(share n)` bad answers of `n` if this is at least 1 and
    /// `n >= per_bad floor(share n) + besides`.
    pub fn of_share(share: f64, per_bad: usize, besides: usize) -> Self {
        Self {
            share,
            per_bad,
            besides,
            ..Self::default()
        }
    }

    /// Combines a step's requirement with that of the rule behind it: both must hold.
    pub(crate) fn behind(self, step: Self) -> Self {
        let shares = [self.share, step.share];
        let shares = shares.into_iter().filter(|share| *share > 0.0);
        Self {
            share: shares.reduce(f64::min).unwrap_or(0.0),
            per_bad: self.per_bad.max(step.per_bad),
            besides: self.besides.max(step.besides),
            relies_on: self.relies_on.or(step.relies_on),
            bucket: self.bucket.max(1).saturating_mul(step.bucket.max(1)),
        }
    }

    /// The most answers for which [`Robustness::shortfall`] looks.
    const MOST: usize = 1_000_000;

    /// Withstands a bad answer if there are at least `n`.
    pub fn at_least(n: usize) -> Self {
        Self {
            besides: n,
            ..Self::default()
        }
    }

    /// The number of answers that it counts, of `n`.
    fn seen(&self, n: usize) -> usize {
        n.div_ceil(self.bucket.max(1))
    }

    fn holds(&self, n: usize) -> bool {
        let n = self.seen(n);
        let bad = floor_share(self.share, n);
        let due = self.per_bad.saturating_mul(bad);
        (bad > 0 || self.share == 0.0) && n >= due.saturating_add(self.besides)
    }

    /// Returns how many bad answers of `n` it withstands, if a share decides that.
    pub fn withstands(&self, n: usize) -> Option<usize> {
        (self.share > 0.0).then(|| floor_share(self.share, self.seen(n)))
    }

    /// Returns what follows if `n` answers are too few, and how many it takes.
    pub fn shortfall(&self, n: usize) -> Option<String> {
        if n == 0 || self.holds(n) {
            return None;
        }
        let answers = match n {
            1 => "1 answer",
            _ => &format!("{n} answers"),
        };
        let takes = (n + 1..=Self::MOST).find(|n| self.holds(*n));
        let takes = takes.map_or(String::new(), |least| format!(": it takes {least}"));
        Some(format!(
            "with {answers} it withstands no bad client, as little as a mean does{takes}"
        ))
    }
}

/// Inputs that an aggregator requires besides the messages. Data about a sender is sent only if
/// requested, and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredInputs {
    /// Number of examples, which becomes the weight. If not requested, every weight is 1.
    pub samples: bool,
    /// Number of examples per class.
    pub class_counts: bool,
    /// The mean loss of the training that made the answer ([`crate::Declared::trains`]), as the
    /// trainer reports it ([`crate::FitReport::loss`]).
    pub training_loss: bool,
    /// The message sent to clients, such as the global model ([`Round::sent`]). Costs no bytes.
    pub sent: bool,
}

impl RequiredInputs {
    /// The message sent to clients alone.
    pub const SENT: Self = Self {
        samples: false,
        class_counts: false,
        training_loss: false,
        sent: true,
    };
}

crate::choices! {
    /// The weight of a client in a mean.
    pub enum Weigh {
        /// By its number of examples (McMahan et al. 2017).
        Samples = "samples",
        /// All clients equally.
        Uniform = "uniform",
    }
}

impl Weigh {
    /// Returns the inputs that an aggregator with these weights requires.
    pub fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            samples: *self == Self::Samples,
            ..RequiredInputs::default()
        }
    }
}

/// Combines many answers into one result: a mean, a vote, an EM step.
pub trait Aggregator: Send {
    /// The clients' messages.
    type In: Message;
    /// The result.
    type Out: Message;

    /// Combines one inbox. State that lasts between rounds lives in `self` (see
    /// [`Aggregator::save`]). `round` shows the message sent to clients ([`Round::sent`]), if
    /// [`Aggregator::needs`] requests it. `round` also takes notes and numbers for the report.
    ///
    /// # Errors
    /// If the inbox cannot be combined. The inbox itself is already finite, sorted and of one
    /// shape.
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Self::In>) -> Result<Self::Out>;

    /// Returns a fold with the same result from one message at a time. Its memory does not grow
    /// with the number of clients. Messages come in client order. The fold's result, after
    /// [`Aggregator::update`], must have the same bits as that of [`Aggregator::aggregate`].
    fn fold(&self, _round: &Round) -> Option<Box<dyn Fold<Self::In, Self::Out>>> {
        None
    }

    /// Converts a fold's result. A fold cannot access the aggregator's lasting state; this function
    /// may use and change it (a server optimiser's step, a momentum).
    ///
    /// # Errors
    /// If the result does not fit the state.
    fn update(&mut self, _round: &Round, folded: Self::Out) -> Result<Self::Out> {
        Ok(folded)
    }

    /// Returns the inputs that it requires about the senders.
    fn needs(&self) -> RequiredInputs {
        RequiredInputs::default()
    }

    /// Returns the properties that it claims.
    fn claims(&self) -> Properties {
        Properties::default()
    }

    /// Returns how many answers it needs to withstand a bad client; `None` if it does not promise
    /// to. Checks and runs tell the user if there are fewer.
    fn robustness(&self) -> Option<Robustness> {
        None
    }

    /// Returns the state that lasts between rounds, for a run that stops and resumes. Empty if
    /// there is none.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a state from [`Aggregator::save`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// An aggregation in progress, see [`Aggregator::fold`].
pub trait Fold<In, Out>: Send {
    /// Adds one message.
    ///
    /// # Errors
    /// If the message does not fit the earlier ones.
    fn add(&mut self, mail: crate::ClientMessage<In>) -> Result<()>;

    /// Returns the result of all messages so far.
    ///
    /// # Errors
    /// If no usable message was added.
    fn finish(self: Box<Self>) -> Result<Out>;
}

#[test]
fn a_robust_aggregator_tells_how_many_answers_it_needs() {
    let short = |of: Robustness, n| of.shortfall(n).unwrap_or_default();
    let trimmed = Robustness::of_share(0.1, 2, 1);
    assert_eq!(
        short(trimmed, 5),
        "with 5 answers it withstands no bad client, as little as a mean does: it takes 10"
    );
    assert_eq!(trimmed.shortfall(10), None);
    // 8 of 20 may be bad, and it takes 2 8 + 3; 9 of 20 take 21
    let krum = |share| Robustness::of_share(share, 2, 3);
    assert_eq!(krum(0.4).shortfall(20), None);
    assert!(short(krum(0.45), 20).ends_with("it takes 21"));
    let median = Robustness::at_least(3);
    assert!(short(median, 1).starts_with("with 1 answer it"));
    assert!(median.shortfall(2).is_some() && median.shortfall(3).is_none());
    // five buckets of two, of which one may be bad, take nine answers
    let buckets = Robustness {
        bucket: 2,
        ..Robustness::default()
    };
    let few = short(krum(0.2).behind(buckets), 8);
    assert!(few.ends_with("it takes 9"), "{few}");
    assert_eq!(krum(0.2).behind(buckets).shortfall(9), None);
    // a step that needs 2 f + 1, before a median that needs 3
    let mixed = median.behind(Robustness::of_share(0.2, 2, 1));
    assert!(short(mixed, 4).ends_with("it takes 5"));
    // a share that no number of clients reaches
    let none = Robustness {
        share: 1e-9,
        ..median
    };
    assert!(short(none, 7).ends_with("a mean does"));
}
