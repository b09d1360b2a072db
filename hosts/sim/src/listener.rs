//! [`Listener`]: takes the events of a run. What is done with them, from the journal to the bar on
//! a terminal, is a listener each.

use crate::event_log::EventLog;
use crate::folder::{COSTS, JOURNAL, METRICS, RunFolder};
use crate::image_grid::picture;
use crate::manifest::Manifest;
use crate::run_record::{RunRecord, StepReport};
#[cfg(doc)]
use crate::unpriced::Unpriced;
use fl_core::privacy::Observer;
use fl_core::{Result, RunEvent, StopWhen};

/// How a run goes on after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the spec says.
    GoOn,
    /// With what follows the rounds, for this reason.
    EndRounds(String),
}

/// Takes the events of a run, in the order in which they happen. What it gets it may tell the
/// readers of the run's results, but for messages and warnings; of all else [`Unpriced`] decides.
pub trait Listener {
    /// Takes an event. `run` is the run before it. The verdict counts after
    /// [`RunEvent::StepEnds`].
    ///
    /// # Errors
    /// If the run must not go on. No later listener then has the event. The error of a
    /// [`RunEvent::Note`] is ignored.
    fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) -> Result<Verdict>;

    /// Returns whether its verdict may end the rounds.
    fn may_end_rounds(&self) -> bool {
        false
    }

    /// Returns whether it takes [`RunEvent::Request`] and [`RunEvent::Answer`], which it must not
    /// tell readers.
    fn sees_messages(&self) -> bool {
        false
    }

    /// Returns the log that it writes, if it writes one.
    fn log(&self) -> Option<&EventLog> {
        None
    }
}

/// A function that only looks.
impl<F: FnMut(&RunEvent<'_>, &RunRecord)> Listener for F {
    fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) -> Result<Verdict> {
        self(event, run);
        Ok(Verdict::GoOn)
    }
}

/// The listeners of a run. An event goes to those that may refuse it, then into the run folder, then
/// to all others: no file tells what was refused.
pub(crate) struct Listeners<'a> {
    pub guards: Vec<Box<dyn Listener + 'a>>,
    pub folder: Option<RunFolder>,
    pub others: Vec<Box<dyn Listener + 'a>>,
}

impl<'a> Listeners<'a> {
    /// Passes an event to all. Returns the first verdict that ends the rounds.
    pub fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) -> Result<Verdict> {
        let mut verdict = Verdict::GoOn;
        let message = matches!(event, RunEvent::Request(..) | RunEvent::Answer(..));
        let mut tell = |listener: &mut (dyn Listener + 'a)| -> Result<()> {
            if message && !listener.sees_messages() {
                return Ok(());
            }
            let said = listener.on(event, run)?;
            if verdict == Verdict::GoOn {
                verdict = said;
            }
            Ok(())
        };
        for guard in &mut self.guards {
            tell(&mut **guard)?;
        }
        if let Some(folder) = &mut self.folder {
            tell(folder)?;
        }
        for other in &mut self.others {
            tell(&mut **other)?;
        }
        Ok(verdict)
    }

    /// Opens the logs of all.
    pub fn open_logs(&mut self) -> Result<()> {
        let Some(folder) = &mut self.folder else {
            return Ok(());
        };
        let all = self.guards.iter().chain(&self.others);
        let mut logs = all.filter_map(|listener| listener.log());
        logs.try_for_each(|log| folder.open_log(log))
    }

    pub fn any(&self, does: impl Fn(&(dyn Listener + 'a)) -> bool) -> bool {
        let mut all = self.guards.iter().chain(&self.others);
        all.any(|listener| does(&**listener))
    }
}

/// Writes the files of the run.
impl Listener for RunFolder {
    fn on(&mut self, event: &RunEvent<'_>, _: &RunRecord) -> Result<Verdict> {
        match *event {
            RunEvent::ExchangeEnds(entry) => self.log(JOURNAL, entry)?,
            RunEvent::Measured(metric) => self.log(METRICS, metric)?,
            RunEvent::Cost(cost) => self.log(COSTS, cost)?,
            RunEvent::Model { name, bytes } => self.model(name, bytes)?,
            RunEvent::Images { name, images } => self.picture(name, &picture(images, None)?)?,
            RunEvent::Stops => Manifest::stops(self.path())?,
            _ => {}
        }
        Ok(Verdict::GoOn)
    }
}

/// Ends the rounds as the spec's `stop-when` says.
impl Listener for StopWhen {
    fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) -> Result<Verdict> {
        let RunEvent::StepEnds { number, of } = *event else {
            return Ok(Verdict::GoOn);
        };
        let why = self.reason(&run.metrics);
        let why = why.filter(|_| (1..of).contains(&number));
        Ok(why.map_or(Verdict::GoOn, Verdict::EndRounds))
    }

    fn may_end_rounds(&self) -> bool {
        true
    }
}

/// Calls a function after each step. The rounds end once it gives `true`.
pub struct OnStep<F>(pub F);

impl<F: FnMut(StepReport<'_>) -> bool> Listener for OnStep<F> {
    fn on(&mut self, event: &RunEvent<'_>, run: &RunRecord) -> Result<Verdict> {
        Ok(match run.step_report(event) {
            Some(report) if (self.0)(report) => {
                Verdict::EndRounds("`on_step` ended the rounds".into())
            }
            _ => Verdict::GoOn,
        })
    }

    fn may_end_rounds(&self) -> bool {
        true
    }
}

/// Calls a function with everything that an observer sees, in that order: a description, and its
/// bytes.
pub struct Watch<F>(pub F);

impl<F: FnMut(Observer, &str, &[u8])> Listener for Watch<F> {
    fn on(&mut self, event: &RunEvent<'_>, _: &RunRecord) -> Result<Verdict> {
        let watch = &mut self.0;
        match *event {
            RunEvent::Request(_, request) => {
                watch(Observer::Clients, request.label, &request.payload.encode());
            }
            RunEvent::Answer(id, answer) => {
                let seen = match answer {
                    Ok(answer) => answer.seen()?,
                    Err(error) => format!("{error:#}").into_bytes(),
                };
                watch(Observer::Server, &format!("answer of client {id}"), &seen);
            }
            RunEvent::Measured(metric) => {
                watch(
                    Observer::Readers,
                    &metric.name,
                    &serde_json::to_vec(metric)?,
                );
            }
            RunEvent::Model { name, bytes } => watch(Observer::Readers, name, bytes),
            RunEvent::Note(text) => watch(Observer::Readers, "note", text.as_bytes()),
            _ => {}
        }
        Ok(Verdict::GoOn)
    }

    fn sees_messages(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Manifest, Session, Unpriced};
    use fl_core::Metric;
    use std::cell::RefCell;

    /// Refuses what was measured below 0.
    struct Guard;

    impl Listener for Guard {
        fn on(&mut self, event: &RunEvent<'_>, _: &RunRecord) -> Result<Verdict> {
            match event {
                RunEvent::Measured(metric) if metric.value < 0.0 => anyhow::bail!("below 0"),
                _ => Ok(Verdict::GoOn),
            }
        }
    }

    #[test]
    fn no_file_and_no_other_listener_has_an_event_that_a_guard_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let manifest = Manifest::new(Session::now("0", &[]), 1, "x", Vec::new(), Vec::new());
        let heard = RefCell::new(0);
        let mut listeners = Listeners {
            guards: vec![Box::new(Guard)],
            folder: Some(RunFolder::create(&path, "x", &manifest).unwrap()),
            others: vec![Box::new(|_: &RunEvent<'_>, _: &RunRecord| {
                *heard.borrow_mut() += 1;
            })],
        };
        let record = RunRecord::new(0.0, Vec::new(), Unpriced::Told);
        let mut measure = |value: f64| {
            let metric = serde_json::json!({"step": "round 1", "round": 1, "name": "m", "value": value, "std": null});
            let metric: Metric = serde_json::from_value(metric).unwrap();
            listeners.on(&RunEvent::Measured(&metric), &record)
        };
        assert_eq!(measure(1.0).unwrap(), Verdict::GoOn);
        assert!(measure(-1.0).is_err());
        assert_eq!(*heard.borrow(), 1);
        let written = std::fs::read_to_string(path.join("metrics.jsonl")).unwrap();
        assert_eq!(written.lines().count(), 1, "{written}");
    }

    #[test]
    fn only_a_listener_that_sees_messages_gets_them() {
        let (told, watched) = (RefCell::new(0), RefCell::new(0));
        let mut listeners = Listeners {
            guards: Vec::new(),
            folder: None,
            others: vec![
                Box::new(|_: &RunEvent<'_>, _: &RunRecord| *told.borrow_mut() += 1),
                Box::new(Watch(|_: Observer, _: &str, _: &[u8]| {
                    *watched.borrow_mut() += 1
                })),
            ],
        };
        let record = RunRecord::new(0.0, Vec::new(), Unpriced::Told);
        let answer = Err(anyhow::anyhow!("no answer"));
        for event in [RunEvent::Answer(0, &answer), RunEvent::Note("a note")] {
            listeners.on(&event, &record).unwrap();
        }
        assert_eq!((*told.borrow(), *watched.borrow()), (1, 2));
    }
}
