//! Streams and events: which work is done before which.
//!
//! All work runs at its call, in one order. A card runs the streams side by side, so work of one
//! stream may use what another writes only when an event, or a wait of the host, is between them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// For each stream, how much of its work is known to be done.
type Clock = BTreeMap<u64, u64>;

fn merge(into: &mut Clock, other: &Clock) {
    for (stream, done) in other {
        let known = into.entry(*stream).or_default();
        *known = (*known).max(*done);
    }
}

/// One piece of work of a stream.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// The stream.
    pub stream: u64,
    /// What is done before it. Its own entry counts this work too.
    known: Clock,
}

impl Moment {
    fn time(&self) -> u64 {
        self.known.get(&self.stream).copied().unwrap_or_default()
    }

    fn follows(&self, stream: u64, time: u64) -> bool {
        stream == self.stream || self.known.get(&stream).is_some_and(|done| *done >= time)
    }
}

/// The latest uses of a buffer.
#[derive(Debug, Default)]
pub struct Uses {
    written: Option<(u64, u64)>,
    read: Clock,
}

impl Uses {
    /// Notes a read.
    ///
    /// # Errors
    /// When work of another stream writes the buffer, and may come later.
    pub fn read(&mut self, moment: &Moment) -> Result<(), String> {
        if let Some((stream, time)) = self.written
            && !moment.follows(stream, time)
        {
            return Err(unordered("reads", moment.stream, "writes", stream));
        }
        self.read.insert(moment.stream, moment.time());
        Ok(())
    }

    /// Notes a write.
    ///
    /// # Errors
    /// When work of another stream uses the buffer, and may come later.
    pub fn write(&mut self, moment: &Moment) -> Result<(), String> {
        if let Some((stream, time)) = self.written
            && !moment.follows(stream, time)
        {
            return Err(unordered("writes", moment.stream, "writes", stream));
        }
        let other = self.read.iter().find(|(s, t)| !moment.follows(**s, **t));
        if let Some((stream, _)) = other {
            return Err(unordered("writes", moment.stream, "reads", *stream));
        }
        self.written = Some((moment.stream, moment.time()));
        self.read.clear();
        Ok(())
    }
}

fn unordered(does: &str, stream: u64, did: &str, other: u64) -> String {
    format!(
        "stream {stream} {does} a buffer that stream {other} {did}, without an event between them"
    )
}

/// All streams and events of a process.
#[derive(Debug, Default)]
pub struct Order(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// What the host has waited for. Its threads count as one.
    host: Clock,
    streams: BTreeMap<u64, Clock>,
    events: BTreeMap<u64, Clock>,
}

impl Order {
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new stream or event.
    pub fn handle(&self) -> u64 {
        self.with(|s| {
            s.next += 1;
            s.next
        })
    }

    /// The next piece of work of a stream.
    pub fn work(&self, stream: u64) -> Moment {
        self.with(|s| {
            let clock = s.streams.entry(stream).or_default();
            merge(clock, &s.host);
            *clock.entry(stream).or_default() += 1;
            Moment {
                stream,
                known: clock.clone(),
            }
        })
    }

    /// The host waits for a stream.
    pub fn wait(&self, stream: u64) {
        self.with(|s| {
            let clock = s.streams.entry(stream).or_default();
            merge(&mut s.host, clock);
        });
    }

    /// An event happens after all work of a stream so far.
    pub fn record(&self, event: u64, stream: u64) {
        let known = self.work(stream).known;
        self.with(|s| s.events.insert(event, known));
    }

    /// Later work of a stream comes after an event; one that was never recorded is done.
    pub fn wait_for(&self, stream: u64, event: u64) {
        self.with(|s| {
            let known = s.events.get(&event).cloned().unwrap_or_default();
            merge(s.streams.entry(stream).or_default(), &known);
        });
    }
}
