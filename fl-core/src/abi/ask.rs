//! The texts that cross between a protocol's library and the program: the requests of
//! [`FL_ASK`](super::raw::FL_ASK), their answers, and the requests back.

use super::marshal_data::{ExamplesAsk, SamplesText};
use crate::message::{Erased, ExchangeShape};
use crate::{
    ClientId, ClientMessage, Cohort, Problem, Round, SharedExecutor, Stream, Task, TaskKind,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A round without its sent message and executor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RoundAsk {
    pub name: String,
    pub number: usize,
    pub last: bool,
    pub key: [u8; 32],
}

impl RoundAsk {
    pub fn of(round: &Round) -> Self {
        Self {
            name: round.name.clone(),
            number: round.number,
            last: round.last,
            key: round.stream.key(),
        }
    }

    pub fn round(self, exec: SharedExecutor) -> Round {
        let stream = Stream::from_key(self.key);
        Round::new(self.name, self.number, self.last, stream, exec)
    }
}

/// A request of a protocol to the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Ask {
    // of a server
    Who {
        slot: String,
    },
    WithExamples {
        at_least: usize,
    },
    Select {
        slot: String,
        round: RoundAsk,
        pool: String,
        samples: SamplesText,
    },
    /// One message if a selector may ask for the loss of a model: the model.
    Cohort {
        round: RoundAsk,
        label: String,
    },
    Collect {
        round: RoundAsk,
        label: String,
        to: Vec<ClientId>,
        /// The position of each client's message.
        which: Vec<usize>,
    },
    Run {
        round: RoundAsk,
        label: String,
        cohort: Cohort,
        which: Vec<usize>,
        /// The kind of the message that the round shows, which comes last.
        shown: Option<String>,
        forms: bool,
    },
    Aggregate {
        slot: String,
        round: RoundAsk,
        kind: String,
        shown: Option<String>,
    },
    Release {
        label: String,
        round: RoundAsk,
        kind: String,
        cohort: Cohort,
        clip: bool,
    },
    Affords {
        slot: String,
        kind: String,
        cohort: Cohort,
    },
    WantsRange {
        slot: String,
        kind: String,
    },
    BeginStep {
        name: String,
        number: usize,
        of: usize,
    },
    JudgeStep {
        failed: Option<ErrorText>,
    },
    /// One message: the tensor `state`.
    FinishStep,
    Evaluate {
        slot: String,
        round: RoundAsk,
    },
    EvaluateClients {
        slot: String,
        round: RoundAsk,
    },
    EvaluateForClients {
        slot: String,
        round: RoundAsk,
        whose: Vec<usize>,
    },
    /// A number that JSON does not have is `null`.
    Record {
        round: RoundAsk,
        name: String,
        value: Option<f64>,
    },
    RecordEach {
        round: RoundAsk,
        name: String,
        each: Vec<Option<f64>>,
    },
    KeepModel {
        slot: String,
        name: String,
    },
    KeepGenerator {
        slot: String,
    },
    KeepImages {
        name: String,
        samples: SamplesText,
    },
    KeepClients {
        slot: String,
    },
    Warn {
        text: String,
    },
    Reader {
        slot: String,
    },
    /// One message: the tensor `model`.
    Read {
        reader: u64,
        client: ClientId,
    },
    // of a client
    Own,
    /// The private sample that the mechanism in this slot has drawn.
    Private {
        slot: String,
    },
    DrawPrivate {
        slot: String,
    },
    Note {
        text: String,
    },
    Measure {
        name: String,
        value: Option<f64>,
    },
    NewModel {
        slot: String,
        index: u64,
    },
    SetModel {
        slot: String,
        model: u64,
    },
    Fitted {
        loss: Option<f64>,
    },
    TakeSelector {
        slot: String,
    },
    PutSelector {
        slot: String,
        selector: u64,
    },
    /// One message: the tensor `kept`.
    Stash {
        name: String,
    },
    Stashed {
        name: String,
    },
    Unstash {
        name: String,
    },
    Cache {
        name: String,
        kind: String,
    },
    Cached {
        name: String,
    },
    Range {
        slot: String,
        kind: String,
    },
    Clip {
        slot: String,
        kind: String,
        agreed: Option<f64>,
    },
    ReleaseHere {
        slot: String,
        kind: String,
    },
    BeginSteps {
        slot: String,
        kind: String,
    },
    DrawLot {
        at: usize,
    },
    ReleaseStep {
        at: usize,
        mechanism: u64,
        kind: String,
    },
    EndSteps {
        slot: String,
        mechanism: u64,
    },
    // of both
    /// The number of the model in this slot, for operations of a trainer.
    Model {
        slot: String,
    },
    /// The number of the generator in this slot, for operations of one.
    Generator {
        slot: String,
    },
    Public,
    Inputs {
        number: u64,
    },
    Labels {
        number: u64,
        at: usize,
    },
    /// The numbers of samples: the tensor `values`, `samples x ..`.
    Values {
        x: SamplesText,
    },
    /// What is known of examples: the tensor `target`, and the text of its kind.
    Targets {
        of: ExamplesAsk,
    },
    Drop {
        held: u64,
    },
}

/// A request of the program to a protocol, before it answers the protocol's own request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub(super) enum AskBack {
    /// One message with its envelope.
    Form,
    /// One message with `weight`, `bias`, `scores` and `target`.
    Auxiliary { target: String, key: [u8; 32] },
    /// One message with `features` and `target`.
    FeatureLoss { target: String, key: [u8; 32] },
}

/// The state of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StepText {
    Skipped,
    /// The tensor `state` is the protocol's state.
    Restored,
    Attempt {
        round: RoundAsk,
        undoable: bool,
    },
    Done,
    Undone,
}

/// An error: its text, and its [`Problem`] if it has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ErrorText {
    text: String,
    problem: Option<Problem>,
}

impl ErrorText {
    pub fn of(error: &anyhow::Error) -> Self {
        Self {
            text: format!("{error:#}"),
            problem: error.downcast_ref().cloned(),
        }
    }

    pub fn error(self) -> anyhow::Error {
        let text = super::marshal::plain(&self.text);
        let Some(problem) = self.problem else {
            return anyhow::Error::msg(text);
        };
        let inner = problem.to_string();
        match text.strip_suffix(&inner).map(|t| t.strip_suffix(": ")) {
            Some(Some(context)) => anyhow::Error::new(problem).context(context.to_string()),
            _ if text == inner => anyhow::Error::new(problem),
            _ => anyhow::Error::new(problem).context(text),
        }
    }
}

/// The envelope of a client's message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MailText {
    pub from: ClientId,
    pub weight: f64,
    pub class_counts: Option<Vec<u32>>,
    pub training_loss: Option<f64>,
}

impl MailText {
    pub fn of(message: &ClientMessage<Erased>) -> Self {
        Self {
            from: message.from,
            weight: message.weight,
            class_counts: message.class_counts.clone(),
            training_loss: message.training_loss,
        }
    }

    pub fn with(self, body: Erased) -> ClientMessage<Erased> {
        ClientMessage {
            from: self.from,
            weight: self.weight,
            class_counts: self.class_counts,
            training_loss: self.training_loss,
            body,
        }
    }
}

/// The facts of a run for a protocol that leads it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeadText {
    pub task: Task,
    pub filled: BTreeSet<String>,
    pub everyone: Cohort,
}

/// See [`FL_ANSWER`](super::raw::FL_ANSWER): the facts that the requests to most clients have in
/// common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AnswerText {
    pub label: String,
    pub task: Task,
    pub filled: BTreeSet<String>,
}

/// See [`FL_CONFLICTS`](super::raw::FL_CONFLICTS).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConflictsText {
    pub filled: Vec<String>,
}

/// See [`FL_SUITS`](super::raw::FL_SUITS).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SuitsText {
    pub kind: TaskKind,
    pub filled: Vec<String>,
}

/// See [`FL_TASK`](super::raw::FL_TASK).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskText {
    pub slot: String,
    pub task: Task,
}

/// See [`FL_BYTES`](super::raw::FL_BYTES).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BytesText {
    pub kind: String,
    #[serde(flatten)]
    pub shape: ExchangeShape,
}

/// A conflict of settings.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConflictText {
    pub setting: Option<String>,
    pub text: String,
}
