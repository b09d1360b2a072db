//! The JSON that accompanies the tensors of a call, in both directions.

use super::library::Host;
use anyhow::Context;
use fl_roles::{Cohort, LogEvent, Result, Round, SamplingScheme, SharedExecutor, Stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The facts of a round, as they cross.
#[derive(Serialize, Deserialize)]
pub(super) struct RoundText {
    number: usize,
    last: bool,
    name: String,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    buffers: BTreeSet<String>,
    /// That of its stream, where the call itself has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<[u8; 32]>,
}

impl From<&Round> for RoundText {
    fn from(round: &Round) -> Self {
        Self {
            key: Some(round.stream.key()),
            ..Self::of(round)
        }
    }
}

impl RoundText {
    /// The round without its stream.
    pub fn of(round: &Round) -> Self {
        Self {
            number: round.number,
            last: round.last,
            name: round.name.clone(),
            buffers: round.buffers().clone(),
            key: None,
        }
    }

    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    pub fn round(&self, stream: Stream, exec: SharedExecutor) -> Round {
        let round = Round::new(&*self.name, self.number, self.last, stream, exec);
        round.with_buffers(self.buffers.clone())
    }

    /// The round with the stream that the text names.
    pub fn with_stream(&self, exec: SharedExecutor) -> Result<Round> {
        let key = self.key.context("the round states no `key`")?;
        Ok(self.round(Stream::from_key(key), exec))
    }
}

/// The text beside a result: the part's events for the log.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LogEventText {
    notes: Vec<String>,
    /// JSON has no NaN.
    numbers: Vec<(String, Option<f64>)>,
}

impl LogEventText {
    /// The events of `round`; `None` if there are none.
    pub fn of(round: &Round) -> Option<Self> {
        let mut text = Self::default();
        for said in round.take_log() {
            match said {
                LogEvent::Note(note) => text.notes.push(note),
                LogEvent::Number(name, value) => text.numbers.push((name, Some(value))),
            }
        }
        (!text.notes.is_empty() || !text.numbers.is_empty()).then_some(text)
    }

    pub fn say(self, round: &Round) {
        for note in self.notes {
            round.note(super::marshal::plain(&note));
        }
        for (name, value) in self.numbers {
            round.record(super::marshal::plain(&name), value.unwrap_or(f64::NAN));
        }
    }
}

/// Gives the log events of a round, beside a part's result.
pub(super) fn said(host: &Host<'_>, round: &Round) -> Result<()> {
    match LogEventText::of(round) {
        Some(said) => host.json(&said),
        None => Ok(()),
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
