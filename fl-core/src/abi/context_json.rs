//! The JSON that accompanies the tensors of a call, in both directions.

use crate::{Cohort, LogEvent, Loss, Round, SamplingScheme, SharedExecutor, Stream, Trainer};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The facts of a round, as they cross.
#[derive(Serialize, Deserialize)]
pub(super) struct RoundText<'a> {
    pub number: usize,
    pub last: bool,
    pub name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_empty")]
    pub buffers: Cow<'a, BTreeSet<String>>,
}

fn is_empty(names: &BTreeSet<String>) -> bool {
    names.is_empty()
}

impl<'a> RoundText<'a> {
    pub fn of(round: &'a Round) -> serde_json::Result<String> {
        serde_json::to_string(&Self {
            number: round.number,
            last: round.last,
            name: (&*round.name).into(),
            buffers: Cow::Borrowed(round.buffers()),
        })
    }

    pub fn round(self, stream: Stream, exec: SharedExecutor) -> Round {
        let round = Round::new(self.name, self.number, self.last, stream, exec);
        match self.buffers.is_empty() {
            true => round,
            false => round.with_buffers(self.buffers.into_owned()),
        }
    }
}

/// The text beside a result: the part's events for the log.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LogEventText {
    notes: Vec<String>,
    numbers: Vec<(String, f64)>,
}

impl LogEventText {
    /// The events of `round`; `None` if there are none.
    pub fn of(round: &Round) -> Option<Self> {
        let mut text = Self::default();
        for said in round.take_log() {
            match said {
                LogEvent::Note(note) => text.notes.push(note),
                LogEvent::Number(name, value) => text.numbers.push((name, value)),
            }
        }
        (!text.notes.is_empty() || !text.numbers.is_empty()).then_some(text)
    }

    pub fn say(self, round: &Round) {
        for note in self.notes {
            round.note(super::marshal::plain(&note));
        }
        for (name, value) in self.numbers {
            round.record(super::marshal::plain(&name), value);
        }
    }
}

/// Whose data a release is made of, as it crosses.
#[derive(Serialize, Deserialize)]
pub(super) struct CohortText {
    clients: usize,
    of: usize,
    draw: SamplingScheme,
}

impl CohortText {
    pub fn of(cohort: &Cohort) -> serde_json::Result<String> {
        serde_json::to_string(&Self {
            clients: cohort.len(),
            of: cohort.of,
            draw: cohort.draw,
        })
    }

    /// Who the clients are does not cross: they are numbered from 0.
    pub fn cohort(self) -> Cohort {
        Cohort {
            of: self.of,
            draw: self.draw,
            ..Cohort::all(self.clients)
        }
    }
}

/// The target of a gradient, as it crosses.
#[derive(Serialize, Deserialize)]
pub(super) struct GradientText {
    pub loss: Loss,
    pub target: String,
    /// Of single samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
}

/// The facts of a [`crate::FitOptions`], as they cross.
#[derive(Serialize, Deserialize)]
pub(super) struct FitOptionsText {
    pub length: crate::Length,
    pub batch: usize,
    pub loss: Loss,
    pub fresh: bool,
    pub proximal: Option<f64>,
    pub gradient_offset: bool,
    pub clip: Option<f64>,
    pub target: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auxiliary: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub feature_loss: bool,
    /// See [`super::marshal_samples::number`].
    #[serde(default)]
    pub samples: u64,
}

/// What a trainer says of itself, as it crosses.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TrainerText {
    pub parametric: bool,
    pub differentiable: bool,
    pub feature_loss: bool,
    /// `None`: not stated, so it is taken to learn all.
    pub learns: Option<Vec<Loss>>,
    pub vocabulary: Option<usize>,
    #[serde(skip_serializing_if = "is_empty")]
    pub buffers: BTreeSet<String>,
    #[serde(skip_serializing_if = "is_one")]
    pub least_batch: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_length: Option<usize>,
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

impl Default for TrainerText {
    fn default() -> Self {
        Self {
            parametric: false,
            differentiable: false,
            feature_loss: false,
            learns: None,
            vocabulary: None,
            buffers: BTreeSet::new(),
            least_batch: 1,
            schedule_length: None,
        }
    }
}

impl TrainerText {
    pub fn of(trainer: &mut dyn Trainer) -> Self {
        let parametric = trainer.parametric();
        let buffers = parametric.as_ref().map(|model| model.buffers());
        Self {
            parametric: parametric.is_some(),
            differentiable: trainer.differentiable().is_some(),
            feature_loss: trainer.takes_feature_loss(),
            learns: None,
            vocabulary: trainer.vocabulary(),
            buffers: buffers.unwrap_or_default(),
            least_batch: trainer.least_batch(),
            schedule_length: trainer.schedule_length(),
        }
    }
}

/// Which samples a model is to see, as it crosses.
#[derive(Serialize)]
pub(super) struct SamplesText {
    pub samples: u64,
}

/// The place of a step in its pass, as it crosses.
#[derive(Serialize, Deserialize)]
pub(super) struct StepText {
    pub at: usize,
    pub of: usize,
}
