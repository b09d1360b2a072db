//! [`Runner`]: runs of a spec with secret randomness, and what observers see of each.

use crate::views::{self, View, Views, Watcher};
use anyhow::{Context, Result};
use fl_core::privacy::{Neighbours, NoiseSource, Observer, Unit};
use fl_core::{Examples, Stream};
use fl_data::{Assembled, DataSpec};
use fl_engine::{ExecuteOptions, Folder};
use fl_registry::Spec;
use fl_sim::{Execution, Outcome, Watch};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// The folder of runs that go on.
pub(crate) const WORK: &str = "work";

/// How the two data sets come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Many runs of each of two worlds: this number.
    Runs(usize),
    /// One run with this number of canaries.
    Canaries(usize),
}

/// What to audit, and how.
pub struct AuditOptions<'a> {
    /// The number of runs or of canaries.
    pub method: Method,
    /// The unit and the change of neighbours; otherwise those of the claim.
    pub unit: Option<Unit>,
    /// As `unit`.
    pub change: Option<Neighbours>,
    /// The client that has the unit; otherwise one is drawn.
    pub client: Option<usize>,
    /// The first rows of every client that are kept.
    pub rows: Option<usize>,
    /// A neighbour that the user gives, and its name.
    pub neighbour: Option<(Spec<DataSpec>, String)>,
    /// The probability that no bound of this audit is wrong.
    pub confidence: f64,
    /// All draws of the audit follow from it.
    pub seed: u64,
    /// The folder of the audit.
    pub out: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The number of runs at the same time.
    pub threads: usize,
    /// Once this is set, the audit stops.
    pub stop: Arc<AtomicBool>,
    /// Called after each run.
    pub progress: &'a (dyn Fn(AuditProgress) + Sync),
}

/// How far an audit is.
#[derive(Clone, Copy, Debug)]
pub struct AuditProgress {
    /// Number of runs done.
    pub done: usize,
    /// Number of runs in all.
    pub of: usize,
    /// How long the others will take, once a few are done.
    pub left: Option<Duration>,
}

/// What one run showed.
pub(crate) struct Observed {
    pub views: Views,
    pub outcome: Option<Outcome>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// What runs of an audit have in common.
pub(crate) struct Runner<'a> {
    pub spec: &'a Spec<DataSpec>,
    pub rows: Option<Examples>,
    pub options: &'a AuditOptions<'a>,
}

/// Secret randomness of one run.
pub(crate) fn key(stream: &Stream, what: &str, run: usize) -> Stream {
    stream.child(what, run as u64)
}

impl Runner<'_> {
    /// Runs the spec on these data with this secret randomness, in the folder `run` of the one that
    /// it returns with the outcome. Gives `None` when the audit was stopped.
    ///
    /// # Errors
    /// If the machine fails; that says nothing about the data.
    pub fn execute(
        &self,
        data: &Assembled,
        key: &Stream,
        watch: impl FnMut(Observer, &str, &[u8]),
    ) -> Result<Option<(TempDir, Result<Outcome>)>> {
        let stop = &self.options.stop;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let folder = tempfile::tempdir_in(self.options.out.join(WORK));
        let folder = folder.context("making a folder for a run")?;
        let execution = Execution {
            stop: stop.clone(),
            listeners: vec![Box::new(Watch(watch))],
            ..Execution::default()
        };
        let options = ExecuteOptions {
            noise: Some(NoiseSource::System(key.clone())),
            ..ExecuteOptions::new(self.options.data_dir.clone(), Vec::new(), execution)
        };
        let dir = Folder::New(folder.path().join("run"));
        match fl_engine::execute(self.spec, data.clone(), dir, options) {
            Ok(outcome) if outcome.stopped.is_some() => Ok(None),
            // a call that the signal ended says nothing about the data
            Err(_) if stop.load(Ordering::Relaxed) => Ok(None),
            Err(error) if error.chain().any(|e| e.is::<std::io::Error>()) => Err(error),
            outcome => Ok(Some((folder, outcome))),
        }
    }

    /// Runs the spec, and collects what observers see. A run that fails is a fact that all see.
    ///
    /// # Errors
    /// As [`Runner::execute`].
    pub fn run(&self, data: &Assembled, key: &Stream) -> Result<Option<Observed>> {
        let watcher = Arc::new(Mutex::new(Watcher::default()));
        let watching = watcher.clone();
        let watch = move |observer: Observer, what: &str, bytes: &[u8]| {
            let mut watcher = watching.lock().unwrap_or_else(PoisonError::into_inner);
            watcher.see(observer, what, bytes);
        };
        let Some((folder, outcome)) = self.execute(data, key, watch)? else {
            return Ok(None);
        };
        let watcher = std::mem::take(&mut *watcher.lock().unwrap_or_else(PoisonError::into_inner));
        let mut views = watcher.finish();
        let (outcome, failure) = match outcome {
            Ok(outcome) => {
                let (dir, rows) = (folder.path().join("run"), self.rows.as_ref());
                views::add_files(&mut views, &dir, self.spec, &data.task, (rows, &data.test))?;
                (Some(outcome), None)
            }
            Err(error) => {
                let why = format!("{error:#}");
                for observer in Observer::ALL {
                    let view: &mut View = views.entry(observer).or_default();
                    view.facts.insert("the run fails".into(), why.clone());
                }
                (None, Some(why))
            }
        };
        Ok(Some(Observed {
            views,
            outcome,
            failure,
        }))
    }
}
