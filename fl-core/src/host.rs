//! What a host is: where clients live, and everything that has to do with data, threads, clocks and files.

use crate::message::Bytes;
use crate::privacy::{Epsilons, NoiseSource, Observer};
use crate::{
    Answer, ClientId, Evaluation, Examples, Faults, Public, Request, Result, Round, Samples,
    SharedExecutor, Task, metrics,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

crate::choices! {
    /// How often a run is written down.
    pub enum CheckpointInterval {
        /// After a step that ends at least so many seconds after the last time.
        Seconds(f64, in crate::settings::above(0.0)) = "seconds",
        /// After so many steps; a round is one.
        Rounds(usize, in 1..) = "rounds",
    }
}

crate::settings! {
    /// When a run is written down so that it can go on after a stop: after its first step, and then every so often.
    pub struct Checkpoints {
        /// How long from one checkpoint to the next: what a crash costs at most, beside the step that it interrupts.
        every: CheckpointInterval = CheckpointInterval::Seconds(20.0);
        /// Keep the one before the last round when the run is done, so that it can be given more rounds.
        keep: bool = true;
    }
}

/// Where a step stands among rounds of which there may be more later ([`crate::Declaration::grows_by`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepPosition {
    /// Nowhere in particular.
    #[default]
    Within,
    /// Only the last round is left. What was done until here does not depend on how many there are.
    BeforeLast,
    /// The last one.
    Last,
}

/// One line of the journal: one question, everybody's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The step.
    pub step: String,
    /// The question's label.
    pub question: String,
    /// Kind of the messages to the clients.
    pub down: String,
    /// Kind of the answers.
    pub up: String,
    /// How many were asked.
    pub clients: usize,
    /// Whose answers were left out, and why.
    pub dropped: Vec<(ClientId, String)>,
    /// Whose answers could not be used and were asked for again, each time, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<(ClientId, String)>,
    /// Bytes to the clients.
    pub bytes_down: Bytes,
    /// Bytes of the answers.
    pub bytes_up: Bytes,
    /// Bytes of the envelopes: sample and class counts, and training losses.
    pub bytes_envelope: u64,
    /// Digest of all that was sent and answered, in client order. Empty where that depends on noise of the system.
    pub digest: String,
    /// Who answered, each with the first eight digits of its answer's digest, so that two runs can be compared client by client.
    /// Empty for more than 256 clients, and where somebody accounts for privacy: whoever guesses an answer could check it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(ClientId, String)>,
    /// Epsilon after this question, if the spec has an accountant. What the server releases
    /// afterwards is in the [`StepCost`] of the step.
    pub privacy: Option<Epsilons>,
}

/// What a run had cost when a step was complete, with everything before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// The step.
    pub step: String,
    /// Number of the round; 0 for a step that is done once.
    pub round: usize,
    /// Bytes from clients to the server, envelopes included.
    pub bytes_up: u64,
    /// Bytes from the server to clients.
    pub bytes_down: u64,
    /// Epsilon of all releases, if the spec has an accountant.
    pub privacy: Option<Epsilons>,
}

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The step.
    pub step: String,
    /// Number of the round; 0 for a step that is done once.
    pub round: usize,
    /// What was measured: `accuracy`, `clients.accuracy`.
    pub name: String,
    /// The number; the mean over clients where `each` is filled. JSON has no NaN and no infinities: they are written as `null`,
    /// and read as NaN.
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
    /// [`crate::metrics::confusion`] of what was evaluated, the sum over clients where `each` is filled; empty where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u32>>,
}

fn number<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
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

/// Where clients live, and everything that has to do with data, threads, clocks and files.
pub trait Host {
    /// The clients that take part, ascending, and how many examples each has: what was agreed when
    /// the run was set up. Where an accountant works all clients take part, and the numbers may be
    /// 0.
    fn roster(&self) -> &[(ClientId, usize)];

    /// Puts a question to these clients, in any order and on any number of threads; hands over the answers in the order of
    /// `to`, on this thread, without holding more of them than it must.
    ///
    /// # Errors
    /// The first error of `each`, or the host's own.
    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()>;

    /// Evaluates the clients' own models on the test examples; hands over the scores in client order, or why there is none.
    ///
    /// # Errors
    /// The first error of `each`, or the host's own.
    fn score_clients(
        &mut self,
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()>;

    /// The public data, if the spec has any.
    fn public(&self) -> Option<&Arc<Public>>;

    /// The test examples.
    fn test(&self) -> &Examples;

    /// What this client's own model is tested on.
    fn test_of(&self, _client: ClientId) -> &Examples {
        self.test()
    }

    /// What runs work in chunks.
    fn executor(&self) -> SharedExecutor;

    /// A step is to begin, the `number`th of `of` (0: nobody knows): for a progress display.
    ///
    /// # Errors
    /// [`crate::Problem::Stopped`] when the run is to be gone on with later; it has been written down then.
    fn progress(&mut self, step: &str, number: usize, of: usize) -> Result<()>;

    /// Writes a line to the journal.
    ///
    /// # Errors
    /// When it cannot be written.
    fn journal(&mut self, entry: &JournalEntry) -> Result<()>;

    /// Records a measurement.
    ///
    /// # Errors
    /// When it cannot be written.
    fn metric(&mut self, metric: &Metric) -> Result<()>;

    /// Writes down what the run had cost when a step was complete.
    ///
    /// # Errors
    /// When it cannot be written.
    fn cost(&mut self, _cost: &StepCost) -> Result<()> {
        Ok(())
    }

    /// Keeps a model as a result of the run.
    ///
    /// # Errors
    /// When it cannot be written.
    fn keep_model(&mut self, name: &str, model: &[u8]) -> Result<()>;

    /// Keeps images as a picture for people to look at, if it keeps anything.
    ///
    /// # Errors
    /// When it cannot be written.
    fn keep_images(&mut self, _name: &str, _images: &Samples) -> Result<()> {
        Ok(())
    }

    /// Keeps the clients' own models in `slot` as results of the run. `lost` is told of those that cannot be written down.
    ///
    /// # Errors
    /// The first error of `lost`, or when one cannot be kept.
    fn keep_clients(
        &mut self,
        slot: &str,
        lost: &mut dyn FnMut(ClientId, anyhow::Error) -> Result<()>,
    ) -> Result<()>;

    /// Says something that the user should know.
    fn warn(&mut self, text: &str);

    /// Step number `done` is complete: keeps the server's state and every client's, if the run can be resumed.
    ///
    /// # Errors
    /// [`crate::Problem::Stopped`] when the run is to stop here; others when it cannot be written.
    fn checkpoint(
        &mut self,
        done: usize,
        step: &str,
        place: StepPosition,
        server: &dyn Fn() -> Result<Vec<u8>>,
    ) -> Result<()>;
}

crate::choices! {
    /// Whom a budget is kept against.
    pub enum BudgetScope {
        /// Whoever runs the server.
        Server = "server",
        /// The other clients.
        Clients = "clients",
        /// Whoever reads the results: kept models, measurements, the report.
        Readers = "readers",
    }
}

impl From<&BudgetScope> for Observer {
    fn from(against: &BudgetScope) -> Self {
        match against {
            BudgetScope::Server => Self::Server,
            BudgetScope::Clients => Self::Clients,
            BudgetScope::Readers => Self::Readers,
        }
    }
}

crate::settings! {
    /// What a run may spend; it stops before it would spend more.
    pub struct Budget {
        /// The largest epsilon.
        epsilon: f64, in crate::settings::above(0.0);
        /// Whom the budget is kept against.
        against: BudgetScope = BudgetScope::Readers;
        /// The delta that it holds at: an accountant with a larger one is refused. If not given, the accountant's own.
        delta: Option<f64> = None, in crate::settings::between(0.0, 1.0);
    }
}

impl Budget {
    /// Does it reach for this? A sum of prices is rounded, so nine times 0.1 may spend 0.9.
    pub fn allows(&self, epsilon: f64) -> bool {
        epsilon <= self.epsilon * (1.0 + 1e-9)
    }
}

/// How a run is set up, beside its parts.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The seed.
    pub seed: u64,
    /// Where the noise of releases comes from.
    pub noise: NoiseSource,
    /// What models are to learn.
    pub task: Task,
    /// The policy for unusable answers.
    pub faults: Faults,
    /// The privacy budget.
    pub budget: Option<Budget>,
    /// Evaluate after every so many rounds, and after the last.
    pub evaluate_every: usize,
    /// Were the clients' data dealt out of one set
    /// ([`Guarantee::after_split`](crate::privacy::Guarantee::after_split))?
    pub after_split: bool,
}

impl RunOptions {
    /// A run with seeded noise, without a budget, that fails on an answer it cannot use, evaluated after every round.
    pub fn new(seed: u64, task: Task) -> Self {
        Self {
            seed,
            noise: NoiseSource::Seeded,
            task,
            faults: crate::settings::defaults(),
            budget: None,
            evaluate_every: 1,
            after_split: false,
        }
    }
}

/// What a run adds up to.
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
