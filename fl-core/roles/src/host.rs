//! [`Host`]: the place where clients live, with everything about data, threads, clocks and files.

use crate::message::Bytes;
use crate::message::Params;
use crate::privacy::{Epsilons, NoiseSource, Observer, Protections};
use crate::{
    Answer, ClientId, Evaluation, Examples, Faults, PrivacyEvent, Public, Request, Result, Round,
    RunEvent, SharedExecutor, Task, metrics,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

crate::choices! {
    /// The interval between two checkpoints.
    pub enum CheckpointInterval {
        /// After a step that ends at least this many seconds after the last checkpoint.
        Seconds(f64, in crate::settings::above(0.0)) = "seconds",
        /// After this many steps; a round is one step.
        Rounds(usize, in 1..) = "rounds",
    }
}

crate::settings! {
    /// When to write checkpoints, so that a stopped run can resume: after the first step, and then
    /// at this interval.
    pub struct Checkpoints {
        /// Interval between checkpoints. A crash costs at most this much work, plus the interrupted
        /// step.
        every: CheckpointInterval = CheckpointInterval::Seconds(20.0);
        /// Keep the checkpoint before the last round of a finished run, so that it can be extended
        /// with more rounds.
        keep: bool = true;
    }
}

/// The position of a step among rounds that may be extended later
/// ([`crate::Declaration::grows_by`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepPosition {
    /// Any other position.
    #[default]
    Within,
    /// Outside of rounds.
    Outside,
    /// Only the last round is left. Everything up to here is independent of the number of rounds.
    BeforeLast,
    /// The last round.
    Last,
}

/// One line of the journal: one request with all clients' answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The step.
    pub step: String,
    /// The label of the exchange.
    pub question: String,
    /// Kind of the messages to the clients.
    pub down: String,
    /// Kind of the answers.
    pub up: String,
    /// The number of clients that got the request.
    pub clients: usize,
    /// The clients whose answers were dropped, and why.
    pub dropped: Vec<(ClientId, String)>,
    /// The clients whose unusable answers were requested again, each time, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<(ClientId, String)>,
    /// Bytes to the clients.
    pub bytes_down: Bytes,
    /// Bytes of the answers.
    pub bytes_up: Bytes,
    /// Bytes of the envelopes: sample and class counts, and training losses.
    pub bytes_envelope: u64,
    /// Digest of all messages and answers, in client order. Empty if it depends on system noise.
    pub digest: String,
    /// The clients that answered, each with the first eight digits of its answer's digest, to
    /// compare two runs client by client. Empty for more than 256 clients. Also empty with an
    /// accountant, because the digests would let a reader check a guess of an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(ClientId, String)>,
    /// Epsilon after this request, if the spec has an accountant. Later releases of the server are
    /// in the [`StepCost`] of the step.
    pub privacy: Option<Epsilons>,
}

/// The total cost of a run after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// The step.
    pub step: String,
    /// Number of the round; 0 for a step that runs once.
    pub round: usize,
    /// Bytes from clients to the server, envelopes included.
    pub bytes_up: u64,
    /// Bytes from the server to clients.
    pub bytes_down: u64,
    /// Epsilon of all releases, if the spec has an accountant.
    pub privacy: Option<Epsilons>,
    /// The guarantees that these epsilons are a part of. Not written to files of the run.
    #[serde(skip)]
    pub protections: Option<Protections>,
}

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The step.
    pub step: String,
    /// Number of the round; 0 for a step that runs once.
    pub round: usize,
    /// The name of the measure: `accuracy`, `clients.accuracy`.
    pub name: String,
    /// The number, or the mean over clients if `each` is filled. JSON has no NaN and no infinities:
    /// they are written as `null` and read as NaN.
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// Population standard deviation over clients.
    pub std: Option<f64>,
    /// One number for each of `clients`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "numbers"
    )]
    pub each: Vec<f64>,
    /// The clients that have a number, in the order of `each`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientId>,
    /// [`crate::metrics::confusion`] of the evaluation, or the sum over clients if `each` is
    /// filled; empty if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u32>>,
}

pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<f64>, D::Error> {
    let all = Vec::<Option<f64>>::deserialize(from)?;
    Ok(all.into_iter().map(|n| n.unwrap_or(f64::NAN)).collect())
}

impl Metric {
    pub(crate) fn of(round: &Round, name: &str, value: f64) -> Self {
        Self {
            step: round.name.clone(),
            round: round.number,
            name: name.into(),
            value,
            std: None,
            each: Vec::new(),
            clients: Vec::new(),
            confusion: Vec::new(),
        }
    }

    pub(crate) fn of_each(round: &Round, name: &str, each: Vec<(ClientId, f64)>) -> Self {
        let (clients, each): (Vec<ClientId>, Vec<f64>) = each.into_iter().unzip();
        let (value, std) = metrics::mean_std(&each);
        Self {
            std: Some(std),
            each,
            clients,
            ..Self::of(round, name, value)
        }
    }
}

/// Where clients live, with everything about data, threads, clocks and files.
pub trait Host {
    /// Returns the clients that take part, ascending, with their number of examples, as fixed when
    /// the run was set up. With an accountant all clients take part, and the numbers may be 0.
    fn roster(&self) -> &[(ClientId, usize)];

    /// Sends a request to these clients, in any order and on any number of threads. Passes the
    /// answers to `each` in the order of `to`, on this thread. Holds as few of them as possible.
    ///
    /// # Errors
    /// The first error of `each`, or the host's own.
    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()>;

    /// Evaluates these clients' own models on the test examples, with these `shared` parameters if
    /// there are any. Passes the scores, or the errors, to `each` in client order.
    ///
    /// # Errors
    /// The first error of `each`, or the host's own.
    fn score_clients(
        &mut self,
        to: &[ClientId],
        slot: &str,
        shared: Option<&Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()>;

    /// Evaluates the server's models at the clients, each on the client's own test rows: for each
    /// client the model with the parameters that `params` returns. Passes scores and errors to
    /// `each` in client order. Called only if [`Host::tests_at_clients`].
    ///
    /// # Errors
    /// The first error of `each`, or the host's own.
    fn score_at_clients(
        &mut self,
        _slot: &str,
        _params: &dyn Fn(ClientId) -> Arc<Params>,
        _each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        anyhow::bail!("this host has all test rows itself")
    }

    /// Returns the public data, if the spec has any.
    fn public(&self) -> Option<&Arc<Public>>;

    /// Returns the test examples.
    fn test(&self) -> &Examples;

    /// Returns the test examples of this client's own model.
    fn test_of(&self, _client: ClientId) -> &Examples {
        self.test()
    }

    /// Returns whether these are rows of the client's own.
    fn own_tests(&self) -> bool {
        false
    }

    /// Returns whether only the clients have these rows, such as nodes with data of their own.
    fn tests_at_clients(&self) -> bool {
        false
    }

    /// Returns the executor for work in chunks.
    fn executor(&self) -> SharedExecutor;

    /// Passes an event to all that listen. After [`RunEvent::StepEnds`], returns whether no further
    /// round follows; otherwise `false`.
    ///
    /// # Errors
    /// If a listener refuses what follows, or cannot write. At [`RunEvent::StepBegins`],
    /// [`crate::Problem::Stopped`] if the run is to stop and resume later; it has a checkpoint
    /// then.
    fn emit(&mut self, event: RunEvent<'_>) -> Result<bool>;

    /// Returns whether rounds may end because of what was measured. Measurements that
    /// `evaluate.every` skips are then kept until they are due.
    fn may_end_rounds(&self) -> bool {
        false
    }

    /// Keeps these clients' own models in `slot` as results of the run. Calls `lost` for each model
    /// that cannot be serialised.
    ///
    /// # Errors
    /// The first error of `lost`, or if a model cannot be kept.
    fn keep_clients(
        &mut self,
        to: &[ClientId],
        slot: &str,
        lost: &mut dyn FnMut(ClientId, anyhow::Error) -> Result<()>,
    ) -> Result<()>;

    /// Saves the states of the server and of all clients after step number `done`, if the run can
    /// be resumed.
    ///
    /// # Errors
    /// [`crate::Problem::Stopped`] if the run is to stop here; other errors if it cannot be
    /// written.
    fn checkpoint(
        &mut self,
        done: usize,
        step: &str,
        place: StepPosition,
        server: &dyn Fn() -> Result<Vec<u8>>,
    ) -> Result<()>;
}

crate::settings! {
    /// The privacy budget of a run, which stops before it would exceed the budget.
    pub struct Budget {
        /// The largest epsilon.
        epsilon: f64, in crate::settings::above(0.0);
        /// The observer that the budget limits.
        against: Observer = Observer::Readers;
        /// The delta of the budget; an accountant with a larger one is refused. Defaults to the
        /// accountant's own.
        delta: Option<f64> = None, in crate::settings::between(0.0, 1.0);
    }
}

impl Budget {
    /// Returns whether the budget covers this epsilon. A sum of prices is rounded, so nine times
    /// 0.1 may spend 0.9.
    pub fn allows(&self, epsilon: f64) -> bool {
        epsilon <= self.epsilon * (1.0 + 1e-9)
    }
}

crate::choices! {
    /// Which values of a measure are better.
    pub enum Better {
        /// Larger ones, as of accuracy.
        Higher = "higher",
        /// Smaller ones, as of a loss.
        Lower = "lower",
    }
}

crate::settings! {
    /// Ends the rounds early, when a measure no longer improves.
    pub struct StopWhen {
        /// The measure, as results name it: `accuracy`, `clients.accuracy`.
        metric: String;
        /// End after this many evaluations in a row without an improvement.
        patience: usize, in 1..;
        /// A smaller change than this is no improvement.
        min_change: f64 = 0.0, in 0.0..=1e300;
        /// Which values are better. If it is left out, smaller ones of losses and errors
        /// (`training-loss`, `rmse`, `mae`, `hd95`), and larger ones of all others.
        better: Option<Better> = None;
    }
}

impl StopWhen {
    /// Returns why the rounds end after the last of these measurements, or `None`. A number that is
    /// not finite is no improvement.
    pub fn reason(&self, metrics: &[Metric]) -> Option<String> {
        let named = metrics
            .iter()
            .filter(|m| m.round > 0 && m.name == self.metric);
        // a round that began again counts once
        let rounds: BTreeMap<usize, f64> = named.map(|m| (m.round, m.value)).collect();
        let better = self.better.clone();
        let better = better.or_else(|| crate::metrics::better(&self.metric));
        let lower = better == Some(Better::Lower);
        // decimals such as 0.03 - 0.02 are a little off
        let least = self.min_change * (1.0 - 1e-9);
        let (mut last, mut best, mut since) = (None::<f64>, None::<(f64, usize)>, 0);
        for (round, value) in rounds {
            let gain = |from: f64| if lower { from - value } else { value - from };
            let better = |from: f64, least: f64| gain(from) > 0.0 && gain(from) >= least;
            since += 1;
            if value.is_finite() && last.is_none_or(|from| better(from, least)) {
                (last, since) = (Some(value), 0);
            }
            if value.is_finite() && best.is_none_or(|(from, _)| better(from, 0.0)) {
                best = Some((value, round));
            }
        }
        let than = best.map_or(String::new(), |(best, round)| {
            format!("; the best was {best:.4}, in round {round}")
        });
        let by = match self.min_change {
            0.0 => String::new(),
            least => format!(" by {least}"),
        };
        (since >= self.patience).then(|| {
            format!(
                "`{}` did not improve{by} in {since} evaluations{than}",
                self.metric
            )
        })
    }
}

/// The options of a run, apart from its parts.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The seed.
    pub seed: u64,
    /// The source of the noise of releases.
    pub noise: NoiseSource,
    /// The task that models learn.
    pub task: Task,
    /// The policy for unusable answers.
    pub faults: Faults,
    /// The privacy budgets, each against its own observer.
    pub budgets: Vec<Budget>,
    /// Evaluate after every `evaluate_every` rounds, and after the last.
    pub evaluate_every: usize,
    /// Whether the clients' data were split from one set
    /// ([`Guarantee::after_split`](crate::privacy::Guarantee::after_split)).
    pub after_split: bool,
    /// Releases of earlier runs whose results every observer of this run sees, such as public
    /// samples that a run made from private rows. They count as releases of each client.
    pub inherited: Vec<PrivacyEvent>,
}

impl RunOptions {
    /// Returns the defaults: seeded noise, no budget, failure on an unusable answer, and an
    /// evaluation after every round.
    pub fn new(seed: u64, task: Task) -> Self {
        Self {
            seed,
            noise: NoiseSource::Seeded,
            task,
            faults: crate::settings::defaults(),
            budgets: Vec::new(),
            evaluate_every: 1,
            after_split: false,
            inherited: Vec::new(),
        }
    }
}

/// The totals of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes from clients to server, envelopes included.
    pub up: u64,
    /// Bytes from server to clients.
    pub down: u64,
    /// Steps done.
    pub steps: usize,
}

#[test]
fn numbers_that_are_not_finite_are_read_back_as_nan() {
    let each = vec![(0, 0.5), (2, f64::INFINITY)];
    let metric = Metric::of_each(&Round::first(), "accuracy", each);
    let text = serde_json::to_string(&metric).unwrap();
    let read: Metric = serde_json::from_str(&text).unwrap();
    assert!(read.value.is_nan() && read.each[0] == 0.5 && read.each[1].is_nan());
    assert_eq!(read.clients, [0, 2]);
}

#[test]
fn rounds_end_when_a_measure_has_not_improved_for_so_many_evaluations() {
    let rule = |patience, min_change, better| StopWhen {
        metric: "loss".into(),
        patience,
        min_change,
        better: Some(better),
    };
    let of = |values: &[f64]| -> Vec<Metric> {
        let measured = values.iter().enumerate();
        let metric = |(at, value): (usize, &f64)| Metric {
            round: at + 1,
            ..Metric::of(&Round::first(), "loss", *value)
        };
        measured.map(metric).collect()
    };
    let falls = of(&[1.0, 0.5, 0.45, 0.5, 0.44]);
    assert_eq!(rule(2, 0.0, Better::Lower).reason(&falls), None);
    assert_eq!(rule(2, 0.0, Better::Higher).reason(&falls[..2]), None);
    let why = rule(2, 0.0, Better::Higher).reason(&falls[..3]).unwrap();
    assert!(
        why.ends_with("2 evaluations; the best was 1.0000, in round 1"),
        "{why}"
    );
    assert!(rule(3, 0.1, Better::Lower).reason(&falls).is_some());
    // what is no improvement may be the best
    let why = rule(2, 0.1, Better::Higher)
        .reason(&of(&[0.1, 0.15, 0.12]))
        .unwrap();
    assert!(why.ends_with("the best was 0.1500, in round 2"), "{why}");
    // a change of exactly `min-change` counts, in spite of rounding
    let hundredths = of(&[0.02, 0.02, 0.03]);
    assert_eq!(rule(2, 0.01, Better::Higher).reason(&hundredths), None);
    // attempts of one round are one evaluation, the last
    let mut again = of(&[1.0, 1.1, 1.2, 0.9]);
    again.iter_mut().for_each(|attempt| attempt.round = 1);
    assert_eq!(rule(1, 0.0, Better::Lower).reason(&again), None);
    // errors are better the lower they are, unless the spec says otherwise
    let of_errors = StopWhen {
        metric: "clients.rmse".into(),
        better: None,
        ..rule(2, 0.0, Better::Higher)
    };
    let errors = of(&[1.0, 0.5, 0.4]).into_iter().map(|metric| Metric {
        name: "clients.rmse".into(),
        ..metric
    });
    let errors: Vec<Metric> = errors.collect();
    assert_eq!(of_errors.reason(&errors), None);
    let risen = StopWhen {
        better: Some(Better::Higher),
        ..of_errors
    };
    assert!(risen.reason(&errors).is_some());
    // what was not measured ends nothing, and what is not a number does not improve
    let nan = of(&[f64::NAN, f64::INFINITY, f64::NAN]);
    assert!(rule(3, 0.0, Better::Higher).reason(&nan).is_some());
    let other = StopWhen {
        metric: "accuracy".into(),
        ..rule(1, 0.0, Better::Higher)
    };
    assert_eq!(other.reason(&falls), None);
}
