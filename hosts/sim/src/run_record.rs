//! [`RunRecord`]: what has happened in a run so far.

use crate::unpriced::Unpriced;
use fl_core::{JournalEntry, Metric, RunEvent, StepCost, metrics};
use std::collections::HashSet;
use std::time::Instant;

/// What has happened in a run so far, also before it stopped and resumed.
pub struct RunRecord {
    /// The exchanges.
    pub entries: Vec<JournalEntry>,
    /// The measurements.
    pub metrics: Vec<Metric>,
    /// The total cost after the last complete step.
    pub cost: Option<StepCost>,
    /// Notes to the user, and notes for the report only.
    pub notes: Vec<String>,
    /// The notes on the data, of all processes of the run.
    pub data_notes: Vec<String>,
    /// Those that came by now.
    told: HashSet<String>,
    /// Bytes of all exchanges, in both directions.
    pub crossed: u64,
    /// What the run tells beside an accountant.
    pub unpriced: Unpriced,
    pub(crate) began: Instant,
    /// Seconds before this process.
    pub(crate) before: f64,
    /// Seconds when the last step ended: all listeners are told the same.
    pub(crate) step_ended: f64,
}

/// A step that begins, and the progress of the run.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress<'a> {
    /// The step's name.
    pub step: &'a str,
    /// Its number.
    pub number: usize,
    /// The number of steps; 0 if unknown.
    pub of: usize,
    /// The name and value of the last measured score ([`RunRecord::score`]).
    pub score: Option<(&'a str, f64)>,
    /// Bytes that have crossed so far, in both directions.
    pub bytes: u64,
}

/// A step that is done.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Its number; 0 if it runs once.
    pub number: usize,
    /// The number of rounds; 0 if unknown.
    pub of: usize,
    /// What was measured in it.
    pub metrics: &'a [Metric],
    /// The last measured score ([`RunRecord::score`]). `None` if that is an error.
    pub accuracy: Option<f64>,
    /// Bytes and epsilon of the run so far, and the step's name.
    pub cost: &'a StepCost,
    /// Wall-clock seconds of the run so far; `None` with an accountant.
    pub seconds: Option<f64>,
}

impl RunRecord {
    pub(crate) fn new(before: f64, notes: Vec<String>, unpriced: Unpriced) -> Self {
        Self {
            entries: Vec::new(),
            metrics: Vec::new(),
            cost: None,
            told: notes.iter().cloned().collect(),
            notes,
            data_notes: Vec::new(),
            crossed: 0,
            unpriced,
            began: Instant::now(),
            before,
            step_ended: 0.0,
        }
    }

    /// Adds notes on the data. They do not become notes of the run when they are told.
    pub(crate) fn tell_of_data(&mut self, notes: &[String]) {
        self.told.extend(notes.iter().cloned());
        self.data_notes.extend_from_slice(notes);
    }

    pub(crate) fn add(&mut self, event: &RunEvent<'_>) {
        match *event {
            RunEvent::ExchangeEnds(entry) => self.add_exchange(entry.clone()),
            RunEvent::Measured(metric) => self.metrics.push(metric.clone()),
            RunEvent::Cost(cost) => self.cost = Some(cost.clone()),
            // notes at the start of a run repeat when it resumes
            RunEvent::Note(text) if self.told.insert(text.into()) => self.notes.push(text.into()),
            _ => {}
        }
    }

    pub(crate) fn add_exchange(&mut self, entry: JournalEntry) {
        for bytes in [
            entry.bytes_up.total(),
            entry.bytes_down.total(),
            entry.bytes_envelope,
        ] {
            self.crossed = self.crossed.saturating_add(bytes);
        }
        self.entries.push(entry);
    }

    /// Returns name and value of the last measured score: accuracy, mAUC, or what the task has. Of
    /// those of one step it is the one whose name has the fewest parts (`accuracy`, or else
    /// `clients.accuracy`, and never `own.best.accuracy` beside `own.accuracy`); of equals, the last.
    pub fn score(&self) -> Option<(&str, f64)> {
        let measured = self.metrics.iter().rev();
        let mut scores = measured.filter(|m| metrics::is_score(&m.name)).peekable();
        let step = &scores.peek()?.step;
        let of_step = scores.take_while(|m| m.step == *step);
        let score = of_step.min_by_key(|m| m.name.matches('.').count())?;
        Some((&score.name, score.value))
    }

    /// Returns the wall-clock seconds of the run; those between a stop and its resumption do not
    /// count.
    pub(crate) fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    /// Returns the progress of the run, if the event is the begin of a step.
    pub fn progress<'a>(&'a self, event: &RunEvent<'a>) -> Option<StepProgress<'a>> {
        let RunEvent::StepBegins { step, number, of } = *event else {
            return None;
        };
        Some(StepProgress {
            step,
            number,
            of,
            score: self.score(),
            bytes: self.crossed,
        })
    }

    /// Returns a report of the step, if the event is its end.
    pub fn step_report(&self, event: &RunEvent<'_>) -> Option<StepReport<'_>> {
        let (RunEvent::StepEnds { number, of }, Some(cost)) = (*event, &self.cost) else {
            return None;
        };
        let accuracy = self
            .score()
            .filter(|(name, _)| !metrics::lower_is_better(name));
        let of_step = self.metrics.iter().rev();
        let measured = of_step.take_while(|m| m.step == cost.step).count();
        Some(StepReport {
            number,
            of,
            metrics: &self.metrics[self.metrics.len() - measured..],
            accuracy: accuracy.map(|(_, value)| value),
            cost,
            seconds: self.unpriced.tell(|| self.step_ended),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_the_common_model_or_a_mean_and_not_the_best_client() {
        let shown = |all: &[(&str, &str, f64)]| {
            let mut run = RunRecord::new(0.0, Vec::new(), Unpriced::Told);
            for (step, name, value) in all {
                let text = serde_json::json!({
                    "step": step, "round": 1, "name": name, "value": value, "std": null
                });
                run.metrics.push(serde_json::from_value(text).unwrap());
            }
            run.score().map(|(name, value)| (name.to_string(), value))
        };
        let own = [("a", "own.accuracy", 0.6), ("a", "own.best.accuracy", 1.0)];
        assert_eq!(shown(&own), Some(("own.accuracy".into(), 0.6)));
        let common = [("a", "accuracy", 0.7), own[0], own[1]];
        assert_eq!(shown(&common), Some(("accuracy".into(), 0.7)));
        let later = [("a", "accuracy", 0.7), ("b", "clients.accuracy", 0.8)];
        assert_eq!(shown(&later), Some(("clients.accuracy".into(), 0.8)));
        assert_eq!(shown(&[("a", "training-loss", 0.8)]), None);
    }
}
