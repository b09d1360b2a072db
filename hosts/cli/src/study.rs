//! `fl study`: its arguments, and what it prints.

use crate::progress::line;
use crate::run::{at_least_one, number_of_threads};
use crate::{DataDir, Done, Failure, Overrides, capture, print, say};
use anyhow::Context;
use clap::Args;
use fl_engine::{CheckedStudy, Job, JobEnd, JobEvent, Repeated, Signals, StudyRequest};
use fl_registry::Catalogue;
use fl_study::{RunSpec, Table};
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

#[derive(Args)]
pub struct StudyArgs {
    /// The study.
    file: PathBuf,
    /// Only this table, or only rows of it whose names have a text: `adult`, `adult/SOLO`. May be
    /// given several times.
    #[arg(long, value_name = "TABLE[/ROW]")]
    only: Vec<String>,
    /// Name the tables, and how many of their runs are there; runs nothing.
    #[arg(long)]
    list: bool,
    /// Check everything and list the runs; run nothing.
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,
    /// Run nothing: make the tables from the results that are there.
    #[arg(long, conflicts_with_all = ["list", "dry_run"])]
    no_runs: bool,
    /// Threads in total; each run in parallel has one thread. The default is one per processor.
    /// Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = number_of_threads)]
    threads: Option<usize>,
    /// Where runs are kept, each under the digest of its resolved spec, and tables are written.
    #[arg(long, value_name = "DIR", default_value = "runs/studies")]
    out: PathBuf,
    /// Leave READMEs as they are; exit code 1 if a table in one differs from the runs, or,
    /// before any run, if it is empty. With `--dry-run` only the latter is
    /// checked.
    #[arg(long)]
    check: bool,
    /// With `--check`: do N of the recorded results again, drawn at random; exit code 1 if a digest
    /// differs.
    #[arg(long, value_name = "N", requires = "check", conflicts_with_all = ["list", "dry_run"], value_parser = at_least_one)]
    repeat: Option<usize>,
    /// With `--repeat`: the seed of the draw. The default is another one each time.
    #[arg(long, value_name = "SEED", requires = "repeat")]
    draw: Option<u64>,
    /// Says where a study puts what a paper needs.
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "", value_parser = no_paper)]
    paper: Option<String>,
    #[command(flatten)]
    set: Overrides,
    #[command(flatten)]
    data: DataDir,
}

fn no_paper(_: &str) -> Result<String, &'static str> {
    Err(
        "a study always writes what a paper needs, NAME.tex, NAME.csv, NAME.bib and pictures, into the folder of --out [default: runs/studies]; leave this out",
    )
}

/// The one seed of all runs, if a person may have meant their number.
fn lone_seed(tables: &[Table]) -> Option<u64> {
    let all = tables.iter().flat_map(|table| table.runs.iter().flatten());
    let seeds: BTreeSet<u64> = all.flatten().map(|(seed, _)| *seed).collect();
    let mut seeds = seeds.into_iter();
    let first = seeds.next().filter(|seed| (2..=20).contains(seed));
    first.filter(|_| seeds.next().is_none())
}

pub fn study(args: &StudyArgs, catalogue: &Catalogue, command: &[String]) -> Done {
    let request = StudyRequest {
        file: args.file.clone(),
        only: args.only.clone(),
        set: args.set.set.clone(),
        out: args.out.clone(),
        data_dir: args.data.path(),
        command: command.to_vec(),
    };
    let mut study = CheckedStudy::read(&request, catalogue)?;
    if args.check {
        study.check_readmes()?;
    }
    if let Some(seed) = lone_seed(study.tables()) {
        say(format_args!(
            "note: every run has seed {seed} and no other; `seeds: 1-{seed}` are {seed} seeds"
        ));
    }
    study.find_results(!args.list);
    if args.list {
        return print(list(&study));
    }
    let jobs = if args.no_runs {
        Vec::new()
    } else {
        study.jobs()
    };
    if args.dry_run {
        return print(plan(&study, &jobs));
    }
    if args.check && args.repeat.is_none() && study.has_recorded() {
        say("note: recorded results are not done again; --repeat N does N of them");
    }
    let repeats = args.repeat.map(|number| {
        let seed = args.draw.unwrap_or_else(any_seed);
        let repeats = study.draw_repeats(number, seed)?;
        let left = match repeats.with_system_noise {
            0 => String::new(),
            n => format!("; {n} with `noise: system` cannot be"),
        };
        say(format_args!(
            "{} of {} recorded results are done again: --draw {seed}{left}",
            repeats.jobs.len(),
            repeats.of
        ));
        anyhow::Ok(repeats)
    });
    let repeats = repeats.transpose()?;
    study.prepare(jobs.iter().chain(repeats.iter().flat_map(|r| &r.jobs)))?;
    // from here on a signal is a wish, not the end; inside another program, signals are that one's
    let signals = if capture::keeps() {
        Signals::default()
    } else {
        Signals::listen().context("listening to signals")?
    };
    let view = RunsView::new(jobs.len())?;
    let threads = fl_engine::threads(args.threads);
    let on_run = |job: &Job, event: JobEvent<'_>| view.show(job, event);
    let count = study.run(jobs, threads, signals.stop.clone(), !args.check, &on_run);
    view.all.finish_and_clear();
    let stopped = |said: std::fmt::Arguments<'_>| {
        signals.exit_code().map_or(Ok(()), |code| {
            say(said);
            Err(Failure::Stopped(code))
        })
    };
    stopped(format_args!(
        "stopped: {} of {} runs are done; the same command continues",
        count.done, count.of
    ))?;
    let repeated = repeats.map(|repeats| {
        let view = RunsView::new(repeats.jobs.len())?;
        let on_run = |job: &Job, event: JobEvent<'_>| view.show(job, event);
        let repeated = study.repeat(repeats, threads, signals.stop.clone(), &on_run);
        view.all.finish_and_clear();
        repeated
    });
    let repeated = repeated.transpose()?;
    stopped(format_args!("stopped: not every drawn run was done again"))?;
    let recorded = if args.check {
        Ok(())
    } else {
        study.record_results()
    };
    let built = study.build();
    print(&built.text)?;
    let written = study.write(built, args.check)?;
    let files = written.files.iter();
    let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
    say(format_args!("tables: {}", files.join(", ")));
    recorded?;
    let same = repeated.is_none_or(|repeated| same(&repeated));
    if written.fine && same {
        Ok(())
    } else {
        Err(Failure::Differs)
    }
}

/// Says what came of repeated runs; whether they have the recorded digests.
fn same(repeated: &Repeated) -> bool {
    for different in &repeated.different {
        say(different);
    }
    match (&repeated.different[..], &repeated.folder) {
        ([], _) => say(format_args!(
            "{} repeated runs have the recorded digests",
            repeated.done
        )),
        (_, Some(folder)) => say(format_args!(
            "the repeated runs are in {}",
            folder.display()
        )),
        (_, None) => {}
    }
    repeated.different.is_empty()
}

/// Another seed each time, of digits that a user can type.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    random % 1_000_000
}

/// The tables, and how many of their runs are there.
fn list(study: &CheckedStudy<'_>) -> String {
    let tables = study.tables();
    let wide = tables.iter().map(|t| t.name.len()).max().unwrap_or(0);
    let line = |t: &Table| {
        let runs = t.runs.iter().flatten().flatten().map(|(_, run)| run);
        let runs: BTreeSet<&RunSpec> = runs.collect();
        let there = |run: &&&RunSpec| study.results().contains_key(**run);
        format!(
            "{:<wide$}  {} of {} runs  {}",
            t.name,
            runs.iter().filter(there).count(),
            runs.len(),
            t.title
        )
    };
    tables.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The runs that would be done, as commands.
fn plan(study: &CheckedStudy<'_>, jobs: &[Job]) -> String {
    let quoted = |set: &String| format!(" --set '{}'", set.replace('\'', "'\\''"));
    let line = |job: &Job| {
        let sets: String = job.run.set.iter().map(quoted).collect();
        format!("{}: fl run {}{sets}\n", job.name, job.run.base.display())
    };
    let lines: String = jobs.iter().map(line).collect();
    format!(
        "{lines}{} of {} runs are to be done; all specs are fine",
        jobs.len(),
        study.count()
    )
}

/// Shows a bar for each run that is going on, and one for all; without a terminal a line for each
/// run that has ended.
struct RunsView {
    bars: MultiProgress,
    all: ProgressBar,
    style: ProgressStyle,
    /// By the run's number.
    going: Mutex<BTreeMap<usize, ProgressBar>>,
    /// Without a terminal.
    plain: bool,
}

impl RunsView {
    fn new(runs: usize) -> anyhow::Result<Self> {
        let bars = if crate::log::quiet() {
            MultiProgress::with_draw_target(ProgressDrawTarget::hidden())
        } else {
            MultiProgress::new()
        };
        let all = bars.add(ProgressBar::new(runs as u64));
        let template = "{bar:30} {pos} of {len} runs, {elapsed} {msg}";
        all.set_style(ProgressStyle::with_template(template)?);
        Ok(Self {
            bars,
            all,
            style: ProgressStyle::with_template("  {spinner} {msg}")?,
            going: Mutex::default(),
            plain: !std::io::stderr().is_terminal(),
        })
    }

    fn show(&self, job: &Job, event: JobEvent<'_>) {
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &job.name;
        let message = match event {
            JobEvent::Taken => {
                let bar = self.bars.add(ProgressBar::no_length());
                bar.set_style(self.style.clone());
                going.insert(job.at, bar);
                name.clone()
            }
            JobEvent::Elsewhere => format!("{name}: another process does it"),
            JobEvent::Begun => name.clone(),
            JobEvent::Step(step) => format!("{name}: {}", line(step)),
            JobEvent::Left => {
                let bar = going.remove(&job.at);
                return bar.iter().for_each(ProgressBar::finish_and_clear);
            }
            JobEvent::Ended(end) => return self.end(name, &end),
        };
        if let Some(bar) = going.get(&job.at) {
            bar.set_message(message);
            bar.tick();
        }
    }

    fn end(&self, name: &str, end: &JobEnd<'_>) {
        let line = match end.result {
            Ok(result) => format!("{name}: {result} ({:.1} s)", end.seconds),
            Err(why) => format!("{name} failed: {why}"),
        };
        let left = end.left.map(HumanDuration);
        let left = left.map_or(String::new(), |left| format!("about {left} left"));
        self.all.set_message(left.clone());
        self.all.inc(1);
        let more = if left.is_empty() {
            left
        } else {
            format!("; {left}")
        };
        let (done, of) = (end.done, end.of);
        match self.plain {
            true => say(format_args!("[{done} of {of}] {line}{more}")),
            false if end.result.is_err() => self.bars.suspend(|| say(&line)),
            false => crate::log::note(&line),
        }
    }
}
