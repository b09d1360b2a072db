//! [`Saver`]: when a run writes checkpoints, and when it stops.

use crate::client_side::ClientSide;
use crate::folder::{Checkpoint, CheckpointCost, RunFolder, SavedPosition};
use crate::partial_step::PartialStep;
use crate::run_record::RunRecord;
use anyhow::Context;
use fl_core::{CheckpointInterval, Checkpoints, Result, StepPosition};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(crate) struct Saver {
    pub checkpoints: Checkpoints,
    /// When the last checkpoint was written, and after how many steps; `None` if there is none.
    pub saved: Option<(Instant, usize)>,
    /// Its position.
    pub place: SavedPosition,
    pub written: CheckpointCost,
    pub stop_after: Option<usize>,
    pub stop: Arc<AtomicBool>,
    /// The step after which the run stops, if another follows.
    pub stopped: Option<String>,
}

impl Saver {
    /// Returns since when answers are not saved, and for how many seconds at most: a shorter step
    /// costs no more than a checkpoint would save.
    pub fn long_step(&self, began: Instant) -> Option<(Instant, f64)> {
        match self.checkpoints.every {
            CheckpointInterval::Seconds(s) => Some((self.saved.map_or(began, |(at, _)| at), s)),
            CheckpointInterval::Rounds(_) => None,
        }
    }

    /// Returns whether a checkpoint is due after `done` steps.
    fn due(&self, done: usize, place: StepPosition) -> bool {
        let due = match (self.saved, &self.checkpoints.every) {
            (None, _) => true,
            (Some((at, _)), CheckpointInterval::Seconds(s)) => at.elapsed().as_secs_f64() >= *s,
            (Some((_, then)), CheckpointInterval::Rounds(n)) => done >= then.saturating_add(*n),
        };
        match place {
            StepPosition::BeforeLast => due || self.checkpoints.keep,
            // little follows, and a run could not be extended from a checkpoint after it
            StepPosition::Last | StepPosition::Outside
                if self.checkpoints.keep && self.place == SavedPosition::BeforeLast =>
            {
                false
            }
            _ => due,
        }
    }

    /// Writes a checkpoint after step number `done`, if one is due. Decides whether the run stops.
    pub fn step_done(
        &mut self,
        (done, step, place): (usize, &str, StepPosition),
        server: &dyn Fn() -> Result<Vec<u8>>,
        (folder, side, record): (Option<&RunFolder>, &mut ClientSide<'_>, &RunRecord),
    ) -> Result<()> {
        let stop =
            self.stop_after.is_some_and(|steps| done >= steps) || self.stop.load(Ordering::Relaxed);
        // after the last round there is nothing to resume
        let stop = stop && place != StepPosition::Last;
        let due = stop || self.due(done, place);
        (side.done, side.asked) = (done, 0);
        if let Some(folder) = folder.filter(|_| due) {
            let began = Instant::now();
            let (clients, bytes) = side.here.checkpoint()?;
            let elsewhere = side.elsewhere.as_ref();
            let saved = Checkpoint {
                done,
                step: step.into(),
                place: place.into(),
                server: server()?,
                clients,
                elsewhere: elsewhere.map_or(Ok(Vec::new()), |e| e.save())?,
                seconds: record.seconds(),
                notes: record.notes.clone(),
                data_notes: record.data_notes.clone(),
                written: self.written,
                ..Checkpoint::default()
            };
            let state = folder.checkpoint(saved).context("writing a checkpoint")?;
            side.here.tidy()?;
            if let Some(elsewhere) = &mut side.elsewhere {
                elsewhere.saved();
            }
            side.answers.as_ref().map_or(Ok(()), PartialStep::forget)?;
            self.written = CheckpointCost {
                times: self.written.times + 1,
                seconds: self.written.seconds + began.elapsed().as_secs_f64(),
                bytes: state + bytes,
            };
            (self.saved, self.place) = (Some((Instant::now(), done)), place.into());
        }
        // a run that ends with this step ends without a stop
        self.stopped = stop.then(|| step.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_gets_more_rounds_is_saved_again_and_keeps_the_checkpoint_before_its_last() {
        let saver = |place| Saver {
            checkpoints: Checkpoints {
                every: CheckpointInterval::Rounds(1),
                keep: true,
            },
            saved: Some((Instant::now(), 3)),
            place,
            written: CheckpointCost::default(),
            stop_after: None,
            stop: Arc::default(),
            stopped: None,
        };
        let extended = saver(SavedPosition::BeforeLast);
        assert!(extended.due(4, StepPosition::Within));
        assert!(extended.due(5, StepPosition::BeforeLast));
        assert!(!extended.due(6, StepPosition::Last));
        assert!(!extended.due(7, StepPosition::Outside));
        assert!(saver(SavedPosition::Within).due(7, StepPosition::Outside));
    }
}
