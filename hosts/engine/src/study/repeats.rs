//! Recorded runs of a study, done again.

use super::{CheckedRun, CheckedStudy, short};
use crate::events::unpriced;
use crate::run_scheduler::{Job, OnJob, run_all};
use anyhow::Context;
use fl_core::Stream;
use fl_core::privacy::Noise;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Recorded results that were drawn to be done again.
pub struct Repeats {
    /// Their runs.
    pub jobs: Vec<Job>,
    /// How many results are recorded.
    pub of: usize,
    /// How many of them are not drawn, because their noise is the system's.
    pub with_system_noise: usize,
    folders: TempDir,
}

/// What came of repeated runs.
#[derive(Default)]
pub struct Repeated {
    /// How many were done.
    pub done: usize,
    /// The runs whose results differ, or that failed: each with both digests.
    pub different: Vec<String>,
    /// Where the repeated runs are, if one differs.
    pub folder: Option<PathBuf>,
}

impl CheckedStudy<'_> {
    /// Draws this number of recorded results, to be done again with [`CheckedStudy::repeat`].
    ///
    /// # Errors
    /// If there is no place for their folders.
    pub fn draw_repeats(&self, number: usize, seed: u64) -> anyhow::Result<Repeats> {
        let all: Vec<_> = self.recorded().into_values().collect();
        let of = all.len();
        // no run has the same noise of the system again
        let seeded = |(_, checked): &(_, &CheckedRun)| checked.spec.noise == Noise::Seeded;
        let all: Vec<_> = all.into_iter().filter(seeded).collect();
        std::fs::create_dir_all(&self.request.out)
            .with_context(|| format!("making {}", self.request.out.display()))?;
        let folders = tempfile::Builder::new()
            .prefix("repeated-")
            .tempdir_in(&self.request.out)
            .with_context(|| format!("making a folder in {}", self.request.out.display()))?;
        let mut draws = Stream::root(seed).child("repeat", 0).draws();
        let chosen = draws.choose(all.len(), number.min(all.len()));
        let job = |at: usize| {
            let (run, checked) = all[at];
            self.job(run, checked, folders.path().join(short(&checked.key.spec)))
        };
        Ok(Repeats {
            jobs: chosen.into_iter().map(job).collect(),
            of,
            with_system_noise: of - all.len(),
            folders,
        })
    }

    /// Does drawn runs again, and compares their digests with the recorded ones; also those of kept
    /// runs whose results are recorded.
    ///
    /// # Errors
    /// If a recorded result is gone.
    pub fn repeat(
        &self,
        repeats: Repeats,
        threads: usize,
        stop: Arc<AtomicBool>,
        on_run: &OnJob<'_>,
    ) -> anyhow::Result<Repeated> {
        let Repeats { jobs, folders, .. } = repeats;
        let failed = run_all(&jobs, &[], self.options(threads, stop.clone(), on_run));
        let record = self.record.as_ref().context("no file of results")?;
        let digest = |folder: &Path| fl_sim::Outcome::of(folder).map(|outcome| outcome.digest);
        let mut repeated = Repeated::default();
        let differs = |checked: &CheckedRun, found: &str| {
            let (number, line) = record.line(&checked.key)?;
            let due = &line.record;
            (found != due.digest).then(|| {
                let here = record.path().display();
                format!(
                    "{}: digest {}; {here}:{number} has {}, of fl {} ({}), {}",
                    checked.place,
                    short(found),
                    short(&due.digest),
                    due.version,
                    due.program,
                    due.machine
                )
            })
        };
        for (at, job) in jobs.iter().enumerate() {
            let Some(checked) = self.runs.get(&job.run) else {
                continue;
            };
            match (failed.get(&at), digest(&job.folder)) {
                (Some(why), _) => {
                    let text = format!(
                        "{} failed: {}",
                        job.name,
                        unpriced(&checked.spec).error(why)
                    );
                    repeated.different.push(text);
                }
                (None, Ok(found)) => {
                    repeated.different.extend(differs(checked, &found));
                    repeated.done += 1;
                }
                // stopped
                (None, Err(_)) => {}
            }
        }
        for (_, checked) in self.recorded().into_values() {
            let folder = self.folder(&checked.key);
            if let Ok(found) = digest(&folder) {
                let of_kept = differs(checked, &found);
                let named = |text| format!("{text}; the run is kept in {}", folder.display());
                repeated.different.extend(of_kept.map(named));
            }
        }
        if !repeated.different.is_empty() && repeated.done > 0 {
            repeated.folder = Some(folders.keep());
        }
        Ok(repeated)
    }
}
