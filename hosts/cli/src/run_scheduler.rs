//! Many runs: small ones side by side, large ones alone.

use crate::say;
use anyhow::Context;
use fl_data::DataSpec;
use fl_engine::{ExecuteOptions, Folder};
use fl_registry::Spec;
use fl_sim::{Execution, RunFolder, StoppedRun};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, TryLockError};
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A run to be done.
pub struct Job {
    pub spec: Arc<Spec<DataSpec>>,
    /// Its run folder; what an earlier attempt left there is gone on with, or begun anew.
    pub folder: PathBuf,
    /// What it is called on the screen.
    pub name: String,
    /// Runs of one table take alike.
    pub table: String,
    /// Its number in the study.
    pub at: usize,
    /// It gets all threads, and nothing goes beside it.
    pub alone: bool,
}

/// What is shared by those who work.
struct State {
    next: usize,
    /// Begun by another process when they were to be begun here: looked at again once nothing else is left.
    elsewhere: VecDeque<usize>,
    working: usize,
    done: usize,
    failed: BTreeMap<usize, String>,
    /// How long runs of a table took: how many, and seconds in all.
    took: BTreeMap<String, (usize, f64)>,
}

/// What everybody who works sees.
struct Pool<'a> {
    jobs: &'a [Job],
    threads: usize,
    data_dir: &'a Path,
    command: &'a [String],
    /// Once this is set: runs stop after their step, and none is begun.
    stop: Arc<AtomicBool>,
    state: Mutex<State>,
    bars: MultiProgress,
    all: ProgressBar,
    /// Nobody sees bars, so every run that ends is a line.
    plain: bool,
}

/// Does all of them, or those there is time for before `stop` is set; gives the numbers of those that failed, and why. `known`
/// says how long other runs of a table took.
pub fn run_all(
    jobs: &[Job],
    threads: usize,
    data_dir: &Path,
    command: &[String],
    known: &[(String, f64)],
    stop: Arc<AtomicBool>,
) -> anyhow::Result<BTreeMap<usize, String>> {
    let mut took: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for (table, seconds) in known {
        let of = took.entry(table.clone()).or_default();
        *of = (of.0 + 1, of.1 + seconds);
    }
    let bars = match crate::log::quiet() {
        true => MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        false => MultiProgress::new(),
    };
    let all = bars.add(ProgressBar::new(jobs.len() as u64));
    all.set_style(ProgressStyle::with_template(
        "{bar:30} {pos} of {len} runs, {elapsed} {msg}",
    )?);
    let pool = Pool {
        jobs,
        threads,
        data_dir,
        command,
        stop,
        state: Mutex::new(State {
            next: 0,
            elsewhere: VecDeque::new(),
            working: 0,
            done: 0,
            failed: BTreeMap::new(),
            took,
        }),
        bars,
        all,
        plain: !std::io::stderr().is_terminal(),
    };
    let beside = jobs.iter().take_while(|job| !job.alone).count();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(beside) {
            // where the system gives no more threads, there are fewer
            let _ = std::thread::Builder::new().spawn_scoped(scope, || pool.work(beside));
        }
    });
    pool.work(jobs.len());
    pool.all.finish_and_clear();
    let state = pool
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(state.failed)
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
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                let fresh = state.next < end;
                let at = match fresh {
                    true => state.next,
                    false => match state.elsewhere.pop_front() {
                        Some(at) => at,
                        None => return,
                    },
                };
                state.next += usize::from(fresh);
                state.working += 1;
                // when fewer runs are left than threads, each gets more of them
                let left = end - state.next + state.elsewhere.len() + state.working;
                let beside = if self.jobs[at].alone {
                    1
                } else {
                    left.min(self.threads)
                };
                (at, fresh, (self.threads / beside).max(1))
            };
            let job = &self.jobs[at];
            let began = Instant::now();
            let ended = catch_unwind(AssertUnwindSafe(|| self.one(job, threads, fresh)));
            let ended = ended.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied());
                anyhow::bail!("it panicked: {}", text.unwrap_or("without a word"))
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

    fn one(&self, job: &Job, threads: usize, fresh: bool) -> anyhow::Result<Option<String>> {
        let bar = self.bars.add(ProgressBar::no_length());
        bar.set_style(ProgressStyle::with_template("  {spinner} {msg}")?);
        bar.set_message(job.name.clone());
        let ended = self.run(job, threads, fresh, &bar);
        bar.finish_and_clear();
        ended
    }

    /// What it came to; `None` if another process is at it and there may be others to begin (`fresh`).
    fn run(
        &self,
        job: &Job,
        threads: usize,
        fresh: bool,
        bar: &ProgressBar,
    ) -> anyhow::Result<Option<String>> {
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
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Some("not begun".into()));
            }
            bar.set_message(format!("{}: another process does it", job.name));
            std::thread::sleep(Duration::from_millis(100));
        }
        if job.folder.join("outcome.json").exists() {
            return Ok(Some("done by another process".into()));
        }
        bar.set_message(job.name.clone());
        let folder = match StoppedRun::open(&job.folder, false) {
            Ok(paused) => Folder::Stopped(Box::new(paused)),
            // one that is in use, or done by now, is left alone
            Err(_) => {
                RunFolder::remove_unfinished(&job.folder)?;
                Folder::New(job.folder.clone())
            }
        };
        let data = fl_engine::data(&job.spec, self.data_dir)?;
        // what a run warns of is in its folder
        let execution = Execution {
            threads,
            stop: self.stop.clone(),
            progress: Box::new(|step| {
                bar.set_message(format!("{}: {}", job.name, crate::progress::line(step)));
                bar.tick();
            }),
            ..Execution::default()
        };
        let command = self.command.to_vec();
        let options = ExecuteOptions::new(self.data_dir.into(), command, execution);
        let outcome = fl_engine::execute(&job.spec, data, folder, options)?;
        if let Some(after) = outcome.stopped {
            return Ok(Some(format!("stopped after {after}")));
        }
        let metrics = outcome.metrics.iter();
        let best = metrics.filter(|(name, _)| fl_core::metrics::is_score(name));
        let best = best
            .map(|(name, value)| format!("{name} {value:.4}"))
            .next();
        Ok(Some(best.unwrap_or("done".into())))
    }

    fn end(&self, at: usize, ended: anyhow::Result<String>, took: Duration) {
        let job = &self.jobs[at];
        let mut state = self.state();
        state.working -= 1;
        state.done += 1;
        let line = match ended {
            Ok(what) => {
                let of = state.took.entry(job.table.clone()).or_default();
                *of = (of.0 + 1, of.1 + took.as_secs_f64());
                format!("{}: {what} ({:.1} s)", job.name, took.as_secs_f64())
            }
            Err(error) => {
                let why = format!("{error:#}");
                let line = format!("{} failed: {why}", job.name);
                state.failed.insert(at, why);
                line
            }
        };
        let (done, of) = (state.done, self.jobs.len());
        let left = self.left(&state);
        let failed = state.failed.contains_key(&at);
        drop(state);
        self.all.set_message(left.clone());
        self.all.inc(1);
        match self.plain {
            true => say(format_args!(
                "[{done} of {of}] {line}{}",
                if left.is_empty() {
                    String::new()
                } else {
                    format!("; {left}")
                }
            )),
            false if failed => self.bars.suspend(|| say(&line)),
            false => crate::log::note(&line),
        }
    }

    /// How long it will take, once a few are done.
    fn left(&self, state: &State) -> String {
        let (count, sum) = state
            .took
            .values()
            .fold((0, 0.0), |all, of| (all.0 + of.0, all.1 + of.1));
        if count < 3 || state.done == self.jobs.len() {
            return String::new();
        }
        let mean = sum / count as f64;
        let one = |job: &Job| {
            state
                .took
                .get(&job.table)
                .map_or(mean, |of| of.1 / of.0 as f64)
        };
        // those that work are half done
        let working = &self.jobs[state.next.saturating_sub(state.working)..state.next];
        let rest: f64 = self.jobs[state.next..].iter().map(one).sum();
        let rest = rest + working.iter().map(one).sum::<f64>() / 2.0;
        let beside = self.threads.min(self.jobs.len() - state.done).max(1) as f64;
        let seconds = Duration::from_secs((rest / beside).ceil() as u64);
        format!("about {} left", indicatif::HumanDuration(seconds))
    }
}
