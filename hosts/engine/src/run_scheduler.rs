//! Many runs: small ones side by side, large ones alone.

use crate::{ExecuteOptions, Folder, execute, prepare};
use anyhow::Context;
use fl_core::Problem;
use fl_data::DataSpec;
use fl_registry::Spec;
use fl_sim::{Execution, RunFolder, RunRecord, StepProgress, StoppedRun};
use fl_study::RunSpec;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A run to be done.
pub struct Job {
    /// What the study says of it.
    pub run: RunSpec,
    /// Its checked spec.
    pub spec: Arc<Spec<DataSpec>>,
    /// Its run folder; what an earlier attempt left there is gone on with, or begun anew.
    pub folder: PathBuf,
    /// Its name: table, row and seed.
    pub name: String,
    /// Its table. Runs of one table take about the same time.
    pub table: String,
    /// What its table measures, in the order of the columns.
    pub measures: Vec<String>,
    /// Its number in the study.
    pub at: usize,
}

/// What happens to one of many runs.
pub enum JobEvent<'a> {
    /// A worker takes the run.
    Taken,
    /// The worker waits for another process that does the run.
    Elsewhere,
    /// The worker begins the run.
    Begun,
    /// A step of the run begins.
    Step(StepProgress<'a>),
    /// The worker leaves the run, which has ended or is put off.
    Left,
    /// The run has ended.
    Ended(JobEnd<'a>),
}

/// How a run ended.
pub struct JobEnd<'a> {
    /// A line about its result, or why it failed.
    pub result: Result<&'a str, &'a str>,
    /// Its duration in seconds.
    pub seconds: f64,
    /// How many runs have ended.
    pub done: usize,
    /// How many runs there are.
    pub of: usize,
    /// How long the other runs will take, once that can be estimated.
    pub left: Option<Duration>,
}

/// Receives the events of many runs, from several threads.
pub type OnJob<'a> = dyn Fn(&Job, JobEvent<'_>) + Sync + 'a;

/// How many runs are done.
#[derive(Clone, Copy, Debug)]
pub struct RunCount {
    /// These.
    pub done: usize,
    /// Of these.
    pub of: usize,
}

/// How many runs are done side by side, and on which data.
pub(crate) struct SchedulerOptions<'a> {
    pub threads: usize,
    pub data_dir: &'a Path,
    pub command: &'a [String],
    /// Once this is set, runs stop after their step and none is begun.
    pub stop: Arc<AtomicBool>,
    pub on_run: &'a OnJob<'a>,
}

/// What the workers share.
struct State {
    next: usize,
    /// Runs that another process does; the workers look again once nothing else is left.
    elsewhere: VecDeque<usize>,
    working: usize,
    done: usize,
    failed: BTreeMap<usize, String>,
    /// How long runs of a table took: how many, and seconds in all.
    took: BTreeMap<String, (usize, f64)>,
}

struct Pool<'a> {
    jobs: &'a [Job],
    options: SchedulerOptions<'a>,
    state: Mutex<State>,
}

/// Does all jobs, those that run alone last, or as many as there is time for before `stop` is set.
/// Gives the numbers of those that failed, and why. `known` says how long other runs of a table
/// took.
pub(crate) fn run_all(
    jobs: &[Job],
    known: &[(String, f64)],
    options: SchedulerOptions<'_>,
) -> BTreeMap<usize, String> {
    let mut took: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for (table, seconds) in known {
        let of = took.entry(table.clone()).or_default();
        *of = (of.0 + 1, of.1 + seconds);
    }
    let pool = Pool {
        jobs,
        options,
        state: Mutex::new(State {
            next: 0,
            elsewhere: VecDeque::new(),
            working: 0,
            done: 0,
            failed: BTreeMap::new(),
            took,
        }),
    };
    let beside = jobs.iter().take_while(|job| !job.run.alone).count();
    std::thread::scope(|scope| {
        for _ in 0..pool.options.threads.min(beside) {
            // where the system gives no more threads, there are fewer
            let _ = std::thread::Builder::new().spawn_scoped(scope, || pool.work(beside));
        }
    });
    pool.work(jobs.len());
    let state = pool.state.into_inner();
    state.unwrap_or_else(PoisonError::into_inner).failed
}

impl Pool<'_> {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does jobs up to number `end` until there are no more.
    fn work(&self, end: usize) {
        loop {
            let (at, fresh, threads) = {
                let mut state = self.state();
                if self.options.stop.load(Ordering::Relaxed) {
                    return;
                }
                let fresh = state.next < end;
                let at = if fresh {
                    state.next
                } else {
                    match state.elsewhere.pop_front() {
                        Some(at) => at,
                        None => return,
                    }
                };
                state.next += usize::from(fresh);
                state.working += 1;
                // when fewer runs are left than threads, each gets more of them
                let left = end - state.next + state.elsewhere.len() + state.working;
                let beside = if self.jobs[at].run.alone {
                    1
                } else {
                    left.min(self.options.threads)
                };
                (at, fresh, (self.options.threads / beside).max(1))
            };
            let job = &self.jobs[at];
            let began = Instant::now();
            self.tell(job, JobEvent::Taken);
            let ended = catch_unwind(AssertUnwindSafe(|| self.run(job, threads, fresh)));
            self.tell(job, JobEvent::Left);
            let ended = ended.unwrap_or_else(|panic| {
                let text = fl_core::panic_text(&*panic);
                let text = text.unwrap_or_else(|| "without a word".into());
                anyhow::bail!("it panicked: {text}")
            });
            match ended.transpose() {
                Some(ended) => self.end(at, ended, began.elapsed()),
                None => {
                    let mut state = self.state();
                    state.working -= 1;
                    state.elsewhere.push_back(at);
                }
            }
        }
    }

    fn tell(&self, job: &Job, event: JobEvent<'_>) {
        (self.options.on_run)(job, event);
    }

    /// A line about the result; `None` if another process does the run and there may be others to
    /// begin (`fresh`).
    fn run(&self, job: &Job, threads: usize, fresh: bool) -> anyhow::Result<Option<String>> {
        // of all studies that share a folder one does this run, and what it comes to serves all
        let turn = job.folder.with_extension("turn");
        // nothing that a link leads to is emptied
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(&turn);
        let turn = file.with_context(|| format!("making {}", turn.display()))?;
        while let Err(TryLockError::WouldBlock) = turn.try_lock() {
            if fresh {
                return Ok(None);
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(Some("not begun".into()));
            }
            self.tell(job, JobEvent::Elsewhere);
            std::thread::sleep(Duration::from_millis(100));
        }
        if job.folder.join("outcome.json").exists() {
            return Ok(Some("done by another process".into()));
        }
        self.tell(job, JobEvent::Begun);
        let folder = match StoppedRun::open(&job.folder, false) {
            Ok(paused) => Folder::Stopped(Box::new(paused)),
            // one that is in use, or done by now, is left alone
            Err(_) => {
                RunFolder::remove_unfinished(&job.folder)?;
                Folder::New(job.folder.clone())
            }
        };
        let data_dir = self.options.data_dir;
        let data = prepare::data(&job.spec, data_dir)?;
        // what a run warns of is in its folder
        let execution = Execution {
            threads,
            stop: self.options.stop.clone(),
            listeners: vec![Box::new(
                |event: &fl_core::RunEvent<'_>, run: &RunRecord| {
                    if let Some(step) = run.progress(event) {
                        self.tell(job, JobEvent::Step(step));
                    }
                },
            )],
            ..Execution::default()
        };
        let command = self.options.command.to_vec();
        let options = ExecuteOptions::new(data_dir.into(), command, execution);
        let outcome = match execute(&job.spec, data, folder, options) {
            Err(error) if matches!(error.downcast_ref(), Some(Problem::Interrupted(_))) => {
                return Ok(Some("stopped".into()));
            }
            outcome => outcome?,
        };
        if let Some(after) = outcome.stopped {
            return Ok(Some(format!("stopped after {after}")));
        }
        let mut asked = job.measures.iter();
        let asked = asked.find_map(|name| outcome.metrics.get_key_value(name));
        let score = |(name, _): &(&String, _)| fl_core::metrics::is_score(name);
        let shown = asked.or_else(|| outcome.metrics.iter().find(score));
        let shown = shown.map(|(name, value)| format!("{name} {value:.4}"));
        Ok(Some(shown.unwrap_or("done".into())))
    }

    fn end(&self, at: usize, ended: anyhow::Result<String>, took: Duration) {
        let job = &self.jobs[at];
        let seconds = took.as_secs_f64();
        let ended = ended.map_err(|error| format!("{error:#}"));
        let mut state = self.state();
        state.working -= 1;
        state.done += 1;
        match &ended {
            Ok(_) => {
                let of = state.took.entry(job.table.clone()).or_default();
                *of = (of.0 + 1, of.1 + seconds);
            }
            Err(why) => _ = state.failed.insert(at, why.clone()),
        }
        let (done, left) = (state.done, self.left(&state));
        drop(state);
        let end = JobEnd {
            result: ended.as_deref().map_err(String::as_str),
            seconds,
            done,
            of: self.jobs.len(),
            left,
        };
        self.tell(job, JobEvent::Ended(end));
    }

    /// How long it will take, once a few are done.
    fn left(&self, state: &State) -> Option<Duration> {
        let took = state.took.values();
        let (count, sum) = took.fold((0, 0.0), |all, of| (all.0 + of.0, all.1 + of.1));
        if count < 3 || state.done == self.jobs.len() {
            return None;
        }
        let mean = sum / count as f64;
        let one = |job: &Job| {
            let of = state.took.get(&job.table);
            of.map_or(mean, |of| of.1 / of.0 as f64)
        };
        // those that work are half done
        let working = &self.jobs[state.next.saturating_sub(state.working)..state.next];
        let rest: f64 = self.jobs[state.next..].iter().map(one).sum();
        let rest = rest + working.iter().map(one).sum::<f64>() / 2.0;
        let open = self.jobs.len() - state.done;
        let beside = self.options.threads.min(open).max(1) as f64;
        Some(Duration::from_secs((rest / beside).ceil() as u64))
    }
}
