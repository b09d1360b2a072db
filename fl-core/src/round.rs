//! One step of a run, as its parts see it.

use crate::message::{AnyMessage, Message};
use crate::{SharedExecutor, Stream};
use std::sync::{Arc, Mutex, PoisonError};

/// One step of a run: a round, or something that is done once.
#[derive(Clone)]
pub struct Round {
    /// `round 3`, `teachers`.
    pub name: String,
    /// From 1; 0 for a step that is done once.
    pub number: usize,
    /// Is it the last of its kind?
    pub last: bool,
    /// Its randomness: at the server that of the step, for a part that of its slot in this step.
    pub stream: Stream,
    /// For work that gives the same bits however it is cut.
    pub exec: SharedExecutor,
    sent: Option<Arc<dyn AnyMessage>>,
    log: Arc<Mutex<Vec<LogEvent>>>,
}

/// What a part says about its work.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// A sentence for the user.
    Note(String),
    /// A number for the measurements.
    Number(String, f64),
}

impl Round {
    /// A round without anything shown or said.
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
            log: Arc::default(),
        }
    }

    /// Round 1 of a run with seed 0, on one thread: for tests.
    pub fn first() -> Self {
        let stream = Stream::root(0).child("round", 1);
        Self::new("round 1", 1, true, stream, Arc::new(crate::Serial))
    }

    /// The same round with another stream and a log of its own: what a part in a slot sees of it.
    pub fn with_stream(&self, stream: Stream) -> Self {
        Self {
            stream,
            log: Arc::default(),
            ..self.clone()
        }
    }

    /// The same round, in which clients were sent `message`.
    pub fn showing(&self, message: impl Message) -> Self {
        Self {
            sent: Some(Arc::new(message)),
            ..self.clone()
        }
    }

    /// As [`Round::showing`], of a message whatever its Rust type is.
    pub fn showing_any(&self, message: Arc<dyn AnyMessage>) -> Self {
        Self {
            sent: Some(message),
            ..self.clone()
        }
    }

    /// What the clients were sent, if it is an `M` and the aggregator's [`crate::RequiredInputs`] ask for it.
    pub fn sent<M: Message>(&self) -> Option<&M> {
        self.sent.as_deref().and_then(|m| m.as_any().downcast_ref())
    }

    /// What the clients were sent, whatever its Rust type is.
    pub fn sent_any(&self) -> Option<&dyn AnyMessage> {
        self.sent.as_deref()
    }

    /// Tells the user something, in the report.
    pub fn note(&self, text: impl Into<String>) {
        self.say(LogEvent::Note(text.into()));
    }

    /// Records a number, such as how many messages were left out: it is among the run's measurements as `SLOT.name`.
    pub fn record(&self, name: impl Into<String>, value: f64) {
        self.say(LogEvent::Number(name.into(), value));
    }

    pub(crate) fn say(&self, said: LogEvent) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(said);
    }

    /// Everything that was said in this round since it was last asked for.
    pub fn said(&self) -> Vec<LogEvent> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
