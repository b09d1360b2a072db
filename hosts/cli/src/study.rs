//! `fl study`: the runs that a study asks for, each once, and tables of them.

use crate::cached_runs::CachedRuns;
use crate::run::number_of_threads;
use crate::run_scheduler::{self, Job};
use crate::{DataDir, Done, Failure, Overrides, capture, print, say};
use anyhow::Context;
use clap::Args;
use fl_data::DataSpec;
use fl_engine::Signals;
use fl_registry::{Catalogue, Spec};
use fl_study::{BuiltTable, RunResults, RunSpec, Study, Table};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many mistakes are shown.
const SHOWN: usize = 40;

#[derive(Args)]
pub struct StudyArgs {
    /// The study.
    file: PathBuf,
    /// Only this table, or only rows of it whose names have a text: `adult`, `adult/SOLO`. May be given several times.
    #[arg(long, value_name = "TABLE[/ROW]")]
    only: Vec<String>,
    /// Name the tables, and how many of their runs are there; runs nothing.
    #[arg(long)]
    list: bool,
    /// Check everything, and say what would be run; runs nothing.
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,
    /// Threads in all: so many runs go side by side, one thread each; otherwise one per processor. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = number_of_threads)]
    threads: Option<usize>,
    /// Where runs are kept, each under the digest of its resolved spec, and tables are written.
    #[arg(long, value_name = "DIR", default_value = "runs/studies")]
    out: PathBuf,
    /// Leave READMEs as they are; exit code 1 if a table in one is not what the runs say, or, before
    /// any run, if nothing stands between its marks. With `--dry-run` only the latter is checked.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    set: Overrides,
    #[command(flatten)]
    data: DataDir,
}

/// A run that has been checked.
struct CheckedRun {
    /// Under what it is kept.
    key: String,
    spec: Arc<Spec<DataSpec>>,
    /// Where it stands for the first time: table, row and seed.
    place: String,
    table: String,
    /// Its number in the study.
    at: usize,
}

pub fn study(args: &StudyArgs, catalogue: &Catalogue, command: &[String]) -> Done {
    if args.set.set.iter().any(|set| set.starts_with("seed=")) {
        return Err(Failure::usage("--set seed: a study has its own `seeds`"));
    }
    let study = Study::read(&args.file).map_err(|error| Failure::usage(format!("{error:#}")))?;
    let mut tables = chosen(&study, &args.only)?;
    for (_, run) in tables
        .iter_mut()
        .flat_map(|t| t.runs.iter_mut().flatten().flatten())
    {
        run.set.extend(args.set.set.iter().cloned());
    }
    // a part of a study, or one that was changed, is not what a README holds
    let as_written = args.only.iter().all(|only| !only.contains('/')) && args.set.set.is_empty();
    let runs = checked(&tables, as_written, catalogue)?;
    if args.check && as_written {
        none_empty(&tables)?;
    }
    let folder = |run: &RunSpec| {
        runs.get(run)
            .map_or(PathBuf::new(), |r| kept(&args.out, &r.key))
    };
    let mut answers = RunResults::new();
    let dir = args.data.path();
    let mut kept = CachedRuns::new(&dir, command);
    for (run, checked) in &runs {
        if folder(run).join("outcome.json").exists() {
            if !args.list
                && let Err(error) = fl_engine::tidy(&folder(run))
            {
                say(format_args!("note: {}: {error:#}", folder(run).display()));
            }
            answers.insert(run.clone(), kept.read(&folder(run), &checked.spec));
        }
    }
    if args.list {
        return print(listed(&tables, &answers));
    }
    let mut jobs: BTreeMap<&str, Job> = BTreeMap::new();
    let mut open: Vec<_> = runs
        .iter()
        .filter(|(run, _)| !answers.contains_key(run))
        .collect();
    open.sort_by_key(|(_, checked)| checked.at);
    for (run, checked) in open {
        jobs.entry(&checked.key).or_insert_with(|| Job {
            spec: checked.spec.clone(),
            folder: folder(run),
            name: checked.place.clone(),
            table: checked.table.clone(),
            at: checked.at,
            alone: run.alone,
        });
    }
    if args.dry_run {
        return print(planned(&runs, &jobs));
    }
    // said once, and before the first run
    let missing = jobs.values().filter_map(|job| job.spec.data.missing(&dir));
    let missing: BTreeSet<String> = missing.collect();
    if !missing.is_empty() {
        let all: Vec<String> = missing.into_iter().collect();
        return Err(Failure::Failed(anyhow::anyhow!(all.join("\n"))));
    }
    let place = args.out.join("kept");
    std::fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    let known: Vec<(String, f64)> = answers
        .iter()
        .filter_map(|(run, answer)| {
            Some((
                runs.get(run)?.table.clone(),
                answer.as_ref().ok()?.seconds(),
            ))
        })
        .collect();
    let mut all: Vec<(&str, Job)> = jobs.into_iter().collect();
    all.sort_by_key(|(_, job)| (job.alone, job.at));
    let keys: Vec<String> = all.iter().map(|(key, _)| key.to_string()).collect();
    let jobs: Vec<Job> = all.into_iter().map(|(_, job)| job).collect();
    // from here on a signal is a wish, not the end; where this is part of another program, signals are that one's
    let asked = match capture::keeps() {
        true => Signals::default(),
        false => Signals::listen().context("listening to signals")?,
    };
    let failed = run_scheduler::run_all(
        &jobs,
        fl_engine::threads(args.threads),
        &dir,
        command,
        &known,
        asked.stop.clone(),
    )?;
    if let Some(code) = asked.exit_code() {
        let done = |job: &&Job| job.folder.join("outcome.json").exists();
        say(format_args!(
            "stopped: {} of {} runs are done; the same command goes on",
            jobs.iter().filter(done).count(),
            jobs.len()
        ));
        return Err(Failure::Stopped(code));
    }
    let failed: BTreeMap<&str, &String> = failed
        .iter()
        .map(|(at, why)| (&keys[*at][..], why))
        .collect();
    for (run, checked) in &runs {
        if answers.contains_key(run) {
            continue;
        }
        let answer = match failed.get(&checked.key[..]) {
            Some(why) => Err((*why).clone()),
            None => kept.read(&folder(run), &checked.spec),
        };
        answers.insert(run.clone(), answer);
    }
    written(args, &study.name, &tables, &answers, &runs, as_written)
}

fn kept(out: &Path, key: &str) -> PathBuf {
    out.join("kept").join(key)
}

/// The tables that were asked for; of a part of a table, the row that others are compared with too.
fn chosen(study: &Study, only: &[String]) -> Result<Vec<Table>, Failure> {
    if only.is_empty() {
        return Ok(study.tables.clone());
    }
    let mut wanted: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for text in only {
        let (name, row) = text.split_once('/').unwrap_or((text, ""));
        let known = || study.tables.iter().map(|t| &t.name[..]).collect::<Vec<_>>();
        let Some(at) = study.tables.iter().position(|t| t.name == name) else {
            let near = fl_core::settings::nearest(name, known());
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(Failure::usage(format!(
                "--only {text}: no table is called `{name}`{near}; tables: {}",
                known().join(", ")
            )));
        };
        let rows = study.tables[at].rows.iter().enumerate();
        let found: Vec<usize> = rows
            .filter(|(_, item)| item.name.contains(row))
            .map(|(at, _)| at)
            .collect();
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "--only {text}: no row of `{name}` has `{row}` in its name"
            )));
        }
        let against = study.tables[at].against;
        wanted
            .entry(at)
            .or_default()
            .extend(found.into_iter().chain(against));
    }
    let part = |(at, rows): (usize, BTreeSet<usize>)| study.tables[at].part(&rows);
    Ok(wanted.into_iter().map(part).collect())
}

/// Reads every spec of every run: all mistakes at once, before anything runs.
fn checked(
    tables: &[Table],
    as_written: bool,
    catalogue: &Catalogue,
) -> Result<BTreeMap<RunSpec, CheckedRun>, Failure> {
    let mut runs = BTreeMap::new();
    // seeds of a row have the same mistakes
    let mut wrong: Vec<String> = Vec::new();
    for table in tables {
        if let Some(into) = table.into.as_ref().filter(|_| as_written) {
            let held = std::fs::read_to_string(into).map_err(anyhow::Error::from);
            if let Err(error) =
                held.and_then(|text| fl_study::section(&text, &table.name).map(|_| ()))
            {
                wrong.push(format!(
                    "table `{}`, into {}: {error:#}",
                    table.name,
                    into.display()
                ));
            }
        }
        for (item, of_row) in table.rows.iter().zip(&table.runs) {
            for (across, of_cell) in table.across.iter().zip(of_row) {
                for (seed, run) in of_cell {
                    if runs.contains_key(run) {
                        continue;
                    }
                    let cell = match across.name.is_empty() {
                        true => item.name.clone(),
                        false => format!("{}, {}", item.name, across.name),
                    };
                    match fl_engine::check(&fl_engine::parse(&run.base)?.set(&run.set), catalogue)?
                    {
                        Ok(spec) => {
                            let digest = Sha256::digest(spec.yaml()?);
                            let key = digest.iter().take(12).map(|b| format!("{b:02x}")).collect();
                            let checked = CheckedRun {
                                key,
                                spec: Arc::new(spec),
                                place: format!("{}, {cell}, seed {seed}", table.name),
                                table: table.name.clone(),
                                at: runs.len(),
                            };
                            runs.insert(run.clone(), checked);
                        }
                        Err(mistakes) => wrong.extend(
                            mistakes
                                .0
                                .iter()
                                .map(|m| format!("table `{}`, row `{cell}`: {m}", table.name)),
                        ),
                    }
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    wrong.retain(|text| seen.insert(text.clone()));
    if wrong.is_empty() {
        return Ok(runs);
    }
    let more = wrong.len().saturating_sub(SHOWN);
    wrong.truncate(SHOWN);
    if more > 0 {
        wrong.push(format!("... and {more} more mistakes"));
    }
    Err(Failure::usage(wrong.join("\n")))
}

/// Fails if nothing stands between the marks of a table.
fn none_empty(tables: &[Table]) -> Done {
    let mut empty = Vec::new();
    for table in tables {
        let Some(into) = &table.into else { continue };
        let text =
            std::fs::read_to_string(into).with_context(|| format!("reading {}", into.display()))?;
        if let Err(error) = fl_study::table(&text, &table.name) {
            empty.push(format!("{}: {error:#}", into.display()));
        }
    }
    match empty.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(anyhow::anyhow!(empty.join("\n")))),
    }
}

fn listed(tables: &[Table], answers: &RunResults) -> String {
    let wide = tables.iter().map(|t| t.name.len()).max().unwrap_or(0);
    let line = |t: &Table| {
        let runs: BTreeSet<&RunSpec> = t
            .runs
            .iter()
            .flatten()
            .flatten()
            .map(|(_, run)| run)
            .collect();
        let there = runs
            .iter()
            .filter(|run| answers.contains_key(**run))
            .count();
        format!(
            "{:<wide$}  {there} of {} runs  {}",
            t.name,
            runs.len(),
            t.title
        )
    };
    tables.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn planned(runs: &BTreeMap<RunSpec, CheckedRun>, jobs: &BTreeMap<&str, Job>) -> String {
    let mut open: Vec<_> = runs
        .iter()
        .filter(|(_, c)| jobs.get(&c.key[..]).is_some_and(|job| job.at == c.at))
        .collect();
    open.sort_by_key(|(_, checked)| checked.at);
    let quoted = |set: &String| format!(" --set '{}'", set.replace('\'', "'\\''"));
    let line = |(run, checked): (&RunSpec, &CheckedRun)| {
        let sets: String = run.set.iter().map(quoted).collect();
        format!("{}: fl run {}{sets}\n", checked.place, run.base.display())
    };
    let lines: String = open.into_iter().map(line).collect();
    let keys: BTreeSet<&String> = runs.values().map(|c| &c.key).collect();
    format!(
        "{lines}{} of {} runs are to be done; all specs are fine",
        jobs.len(),
        keys.len()
    )
}

/// Prints and writes what the runs came to.
fn written(
    args: &StudyArgs,
    name: &str,
    tables: &[Table],
    answers: &RunResults,
    runs: &BTreeMap<RunSpec, CheckedRun>,
    as_written: bool,
) -> Done {
    let made: Vec<BuiltTable> = tables.iter().map(|t| fl_study::made(t, answers)).collect();
    let totals = fl_study::totals(tables, answers);
    let text = made.iter().map(|m| &m.markdown);
    let text = text.chain(totals.iter().map(|(markdown, _)| markdown));
    let text: Vec<&str> = text.map(|text| text.trim_end()).collect();
    let text = text.join("\n\n");
    let key = |run: &RunSpec| runs.get(run).map_or(String::new(), |r| r.key.clone());
    print(&text)?;
    // a part of a study does not take its place
    let part = if as_written && args.only.is_empty() {
        ""
    } else {
        "-part"
    };
    let to = |ending: &str| args.out.join(format!("{name}{part}{ending}"));
    fl_sim::write(&to(".md"), format!("{text}\n").as_bytes())?;
    let sections = made.iter().map(|m| m.section.clone());
    let sections = sections.chain(totals.map(|(_, section)| section));
    let sections: Vec<fl_report::Section> = sections.collect();
    fl_sim::write(&to(".html"), fl_report::study(name, &sections).as_bytes())?;
    fl_sim::write(&to(".csv"), &fl_study::tables_csv(&made)?)?;
    fl_sim::write(
        &to("-runs.csv"),
        &fl_study::runs_csv(tables, answers, &key)?,
    )?;
    let mut fine = made.iter().all(|m| m.whole);
    for (table, made) in tables.iter().zip(&made).filter(|_| as_written) {
        let Some(into) = &table.into else { continue };
        if !made.whole {
            say(format_args!(
                "note: {} keeps its table `{}`: the new one has a fault, named below it",
                into.display(),
                table.name
            ));
            continue;
        }
        let old =
            std::fs::read_to_string(into).with_context(|| format!("reading {}", into.display()))?;
        let new = fl_study::replaced(&old, &table.name, &made.markdown)?;
        match (args.check, old == new) {
            (_, true) => {}
            (false, false) => fl_sim::write(into, new.as_bytes())?,
            (true, false) => {
                fine = false;
                say(format_args!(
                    "{}: the table `{}` is not what the runs say; without --check it is written",
                    into.display(),
                    table.name
                ));
            }
        }
    }
    say(format_args!(
        "tables: {}, {}, {}, {}",
        to(".html").display(),
        to(".md").display(),
        to(".csv").display(),
        to("-runs.csv").display()
    ));
    match fine {
        true => Ok(()),
        false => Err(Failure::Differs),
    }
}
