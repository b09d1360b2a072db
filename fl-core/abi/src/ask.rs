//! The texts of operations of libraries and protocols.

use fl_roles::message::ExchangeShape;
use fl_roles::settings::{Mistake, Value};
use fl_roles::{Cohort, Problem, Task, TaskKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    pub round: usize,
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

/// See [`FL_CHECK`](super::raw::FL_CHECK): a part's number, and its settings.
#[derive(Serialize, Deserialize)]
pub(super) struct CheckText {
    pub part: u32,
    pub settings: Value,
}

/// What a check gives: the settings with every default filled in, or mistakes.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CheckedText {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
}
