//! [`Round`]: one step of a run, as its parts see it.

use crate::message::{AnyMessage, Message};
use crate::{SharedExecutor, Stream};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The most notes of a part at a time.
pub(crate) const MOST_NOTES: usize = 100;

/// Returns the note, or that others are left out if as many are known as there may be; `None`
/// beyond that.
pub(crate) fn limited(known: usize, note: String) -> Option<String> {
    match known.cmp(&MOST_NOTES) {
        Ordering::Less => Some(note),
        Ordering::Equal => Some(format!(
            "more than {MOST_NOTES} notes at a time: the others are left out"
        )),
        Ordering::Greater => None,
    }
}

/// One step of a run: a round, or a step that runs once.
#[derive(Clone)]
pub struct Round {
    /// `round 3`, `teachers`.
    pub name: String,
    /// From 1; 0 for a step that runs once.
    pub number: usize,
    /// Whether it is the last of its kind.
    pub last: bool,
    /// Its randomness: that of the step at the server, and that of its slot in this step for a
    /// part.
    pub stream: Stream,
    /// Runs work with the same bits for any division of it.
    pub exec: SharedExecutor,
    sent: Option<Arc<dyn AnyMessage>>,
    buffers: Arc<BTreeSet<String>>,
    log: Arc<Mutex<Vec<LogEvent>>>,
}

/// A log event of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// A sentence for the user.
    Note(String),
    /// A number for the metrics.
    Number(String, f64),
}

impl Round {
    /// Returns a round without a message and with an empty log.
    pub fn new(
        name: impl Into<String>,
        number: usize,
        last: bool,
        stream: Stream,
        exec: SharedExecutor,
    ) -> Self {
        Self {
            name: name.into(),
            number,
            last,
            stream,
            exec,
            sent: None,
            buffers: Arc::default(),
            log: Arc::default(),
        }
    }

    /// Returns round 1 of a run with seed 0, on one thread, for tests.
    pub fn first() -> Self {
        let stream = Stream::root(0).child("round", 1);
        Self::new("round 1", 1, true, stream, Arc::new(crate::Serial))
    }

    /// Returns the round for the part in a slot: with another stream and its own log.
    pub fn with_stream(&self, stream: Stream) -> Self {
        Self {
            stream,
            log: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns the same round with another stream, for a part of a part: it has the same log.
    pub(crate) fn drawing_from(&self, stream: Stream) -> Self {
        Self {
            stream,
            ..self.clone()
        }
    }

    /// Returns the round with `message`, the message sent to clients.
    pub fn showing(&self, message: impl Message) -> Self {
        Self {
            sent: Some(Arc::new(message)),
            ..self.clone()
        }
    }

    /// As [`Round::showing`], for a message of any Rust type.
    pub fn showing_any(&self, message: Arc<dyn AnyMessage>) -> Self {
        Self {
            sent: Some(message),
            ..self.clone()
        }
    }

    /// Returns the round with these tensors as the [buffers](Round::buffers) of the models.
    pub fn with_buffers(&self, buffers: impl Into<Arc<BTreeSet<String>>>) -> Self {
        Self {
            buffers: buffers.into(),
            ..self.clone()
        }
    }

    /// Returns the names of tensors that are statistics of data and no parameters, such as the
    /// running variance of a batch normalisation ([`Parametric::buffers`](crate::Parametric)). An
    /// aggregator averages them and never takes a step with them ([`Params::step`]).
    ///
    /// [`Params::step`]: crate::message::Params::step
    pub fn buffers(&self) -> &BTreeSet<String> {
        &self.buffers
    }

    /// Returns the message sent to clients, if it is an `M` and the aggregator's
    /// [`crate::RequiredInputs`] request it.
    pub fn sent<M: Message>(&self) -> Option<&M> {
        self.sent.as_deref().and_then(|m| m.as_any().downcast_ref())
    }

    /// Returns the message sent to clients, of any Rust type.
    pub fn sent_any(&self) -> Option<&dyn AnyMessage> {
        self.sent.as_deref()
    }

    /// Adds a note for the user to the report.
    pub fn note(&self, text: impl Into<String>) {
        self.say(LogEvent::Note(text.into()));
    }

    /// Records a number, such as the count of dropped messages, as the metric `SLOT.name`.
    pub fn record(&self, name: impl Into<String>, value: f64) {
        self.say(LogEvent::Number(name.into(), value));
    }

    pub(crate) fn say(&self, said: LogEvent) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |log: &[LogEvent]| {
            let is_note = |event: &&LogEvent| matches!(event, LogEvent::Note(_));
            log.iter().filter(is_note).count()
        };
        let said = match said {
            LogEvent::Note(note) => limited(known(&log), note).map(LogEvent::Note),
            number => Some(number),
        };
        log.extend(said);
    }

    /// Removes and returns the log events of this round so far.
    pub fn take_log(&self) -> Vec<LogEvent> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_a_hundred_notes_at_a_time_and_all_its_numbers() {
        let round = Round::first();
        for at in 0..200 {
            round.note(format!("note {at}"));
            round.record("n", f64::from(at));
        }
        let log = round.take_log();
        let notes: Vec<_> = log
            .iter()
            .filter(|e| matches!(e, LogEvent::Note(_)))
            .collect();
        assert_eq!((notes.len(), log.len()), (101, 301));
        let LogEvent::Note(last) = notes[100] else {
            unreachable!()
        };
        assert!(last.contains("more than 100 notes"), "{last}");
        round.note("again");
        assert_eq!(round.take_log().len(), 1);
    }
}
