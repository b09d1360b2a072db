//! A run, whoever asks for it: a command line, or a program that this one is a part of.

use crate::processes::Apart;
use crate::run::{How, Place, assemble, check_text, execute, read, threads};
use crate::{DataDir, Failure, again};
use fl_data::DataSpec;
use fl_registry::{Catalogue, Spec};
use fl_sim::{Outcome, Progress, Warn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A run that a command line or another program asks for.
pub struct Ask {
    /// What is to be run.
    pub from: Source,
    /// Overrides, as `--set` has them.
    pub set: Vec<String>,
    /// The run folder; otherwise `runs/NAME-1`, `runs/NAME-2`, ..
    pub out: Option<PathBuf>,
    /// Clients that are served at the same time.
    pub threads: Option<usize>,
    /// Stop after so many steps.
    pub stop_after: Option<usize>,
    /// Send every message through its wire form.
    pub wire: bool,
    /// Let clients live in processes of their own.
    pub processes: Option<Apart>,
    /// Bytes of what clients keep that stay in memory.
    pub memory: Option<u64>,
    /// The data directory.
    pub data_dir: Option<PathBuf>,
    /// The command line, for `run.json`.
    pub command: Vec<String>,
    /// Once this is set: stop after the step that is going on.
    pub stop: Arc<AtomicBool>,
}

/// What a run is made from.
pub enum Source {
    /// A spec in a file.
    File(PathBuf),
    /// A spec's text, and what mistakes call it.
    Text(String, Vec<u8>),
    /// The folder of a run that was stopped.
    Stopped(PathBuf),
}

/// Who is told of a run while it goes on.
pub struct Told<'a> {
    /// Each step.
    pub progress: Progress<'a>,
    /// What the user should know.
    pub warn: Warn<'a>,
    /// The run folder, once it is there.
    pub begun: Box<dyn FnOnce(&Path) + 'a>,
}

/// Does a run; `told` makes those who are told of it. `None`: it was stopped before it began.
///
/// # Errors
/// When the spec is wrong, or the run fails.
pub fn carry_out<'a>(
    ask: &Ask,
    catalogue: &Catalogue,
    told: impl FnOnce(&Spec<DataSpec>) -> anyhow::Result<Told<'a>>,
) -> Result<Option<Outcome>, Failure> {
    let (spec, paused) = match &ask.from {
        Source::Stopped(dir) => {
            let paused = again::paused(dir, ask.stop_after, &ask.set)?;
            (
                again::spec(dir, &ask.set, catalogue, &paused)?,
                Some(paused),
            )
        }
        Source::File(path) => (read(path, &ask.set, catalogue)?, None),
        Source::Text(name, text) => {
            let spec = check_text(name, text, &ask.set, catalogue)?;
            (spec.map_err(Failure::Mistakes)?, None)
        }
    };
    let mut told = told(&spec)?;
    let dir = DataDir {
        data_dir: ask.data_dir.clone(),
    };
    let data = assemble(&spec, &dir, &mut told.warn)?;
    if ask.stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let place = match (paused, &ask.out) {
        (Some(paused), _) => Place::Stopped(Box::new(paused)),
        (None, Some(out)) => Place::At(out),
        (None, None) => Place::Next,
    };
    let how = How {
        data: &dir,
        command: &ask.command,
        threads: threads(ask.threads),
        wire: ask.wire,
        processes: ask.processes.clone(),
        stop_after: ask.stop_after,
        stop: ask.stop.clone(),
        memory: ask.memory,
        progress: told.progress,
        warn: told.warn,
        watch: None,
        instead: None,
        begun: told.begun,
    };
    let outcome = execute(&spec, data, place, how)?;
    if let (None, Some(out)) = (&outcome.stopped, &outcome.out) {
        crate::report::beside(Path::new(out));
    }
    Ok(Some(outcome))
}
