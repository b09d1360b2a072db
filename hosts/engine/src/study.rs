//! A study: the runs that it asks for, each once, and the tables of them.

use crate::cached_runs::CachedRuns;
use crate::events::WITHHELD;
use crate::recorded_runs::{RecordedRuns, RunKey};
use crate::run_scheduler::{Job, JobEvent, OnJob, RunCount, SchedulerOptions, run_all};
use crate::{NotRun, prepare, tidy};
use anyhow::Context;
use fl_core::privacy::Noise;
use fl_core::settings::nearest;
use fl_core::{Certainty, PartDecl, Stream};
use fl_data::DataSpec;
use fl_privacy::AccountantId;
use fl_privacy::{accountant, own_parts};
use fl_registry::{Catalogue, Document, Mistake, Mistakes, SourcePosition, Spec};
use fl_report::{NEGATIVE_TRANSFER, Run};
use fl_study::{BuiltTable, COSTS, Cell, RunResult, RunResults, RunSpec, Study, StudyFile, Table};
use sha2::{Digest, Sha256};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;

/// Which study, and where its runs are.
pub struct StudyRequest {
    /// The study's file.
    pub file: PathBuf,
    /// Only these tables, or only rows of them whose names have a text: `adult`, `adult/SOLO`.
    /// Empty: all.
    pub only: Vec<String>,
    /// Overrides of every spec, such as `protocol.rounds=5`.
    pub set: Vec<String>,
    /// Where runs are kept, each under the digest of its resolved spec, and tables are written.
    pub out: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The command line, for `run.json`.
    pub command: Vec<String>,
}

/// A run that has been checked.
struct CheckedRun {
    /// Under what it is recorded and, by its first digits, kept.
    key: RunKey,
    spec: Arc<Spec<DataSpec>>,
    /// Where it stands for the first time: table, row and seed.
    place: String,
    table: String,
    /// Its number in the study.
    at: usize,
}

/// A study whose specs have been checked, and the results of its runs as far as they are known.
pub struct CheckedStudy<'a> {
    request: &'a StudyRequest,
    name: String,
    tables: Vec<Table>,
    runs: BTreeMap<RunSpec, CheckedRun>,
    results: RunResults,
    /// The runs whose results come from the file of results.
    from_record: BTreeSet<RunSpec>,
    record: Option<RecordedRuns>,
    cached: CachedRuns<'a>,
    /// Every table has all its rows, and no spec is overridden: what a README holds.
    as_written: bool,
}

/// The tables of a study.
pub struct BuiltStudy {
    /// All of them, in Markdown.
    pub text: String,
    tables: Vec<BuiltTable>,
    /// The joint guarantees of runs on the same rows.
    totals: Option<BuiltTable>,
}

/// What was written of a study.
pub struct WrittenStudy {
    /// The tables as a page, as Markdown, LaTeX and CSV, the runs as CSV, the papers of the methods
    /// as BibTeX, and each picture as SVG.
    pub files: Vec<PathBuf>,
    /// Every table is whole and, where READMEs are only checked, is what its README says.
    pub fine: bool,
}

impl<'a> CheckedStudy<'a> {
    /// Reads a study, and every spec of every run: all mistakes at once, before anything runs.
    ///
    /// # Errors
    /// [`NotRun`] when the request, the study, a spec or a library is wrong.
    pub fn read(request: &'a StudyRequest, catalogue: &Catalogue) -> anyhow::Result<Self> {
        if request.set.iter().any(|set| set.starts_with("seed=")) {
            return Err(NotRun::usage("--set seed: a study has its own `seeds`"));
        }
        let file = StudyFile::read(&request.file).map_err(|error| match error.downcast() {
            Ok(mistakes) => NotRun::Mistakes(mistakes).into(),
            Err(error) => NotRun::usage(format!("{error:#}")),
        })?;
        // of a study with mistakes, everything is checked
        let only: &[String] = if file.mistakes.is_empty() {
            &request.only
        } else {
            &[]
        };
        let mut chosen = chosen(&file.study, only)?;
        let tables = chosen.iter_mut().map(|chosen| &mut chosen.table);
        for (_, run) in tables.flat_map(|t| t.runs.iter_mut().flatten().flatten()) {
            run.set.extend(request.set.iter().cloned());
        }
        let record = file.study.results.as_deref();
        let record = record.map(RecordedRuns::read).transpose();
        let record = record.map_err(|error| NotRun::usage(format!("{error:#}")))?;
        let whole_tables = request.only.iter().all(|only| !only.contains('/'));
        let as_written = whole_tables && request.set.is_empty();
        Ok(Self {
            request,
            runs: checked(&file, &chosen, &request.set, as_written, catalogue)?,
            name: file.study.name,
            tables: chosen.into_iter().map(|chosen| chosen.table).collect(),
            results: RunResults::new(),
            from_record: BTreeSet::new(),
            record,
            cached: CachedRuns::new(&request.data_dir, &request.command),
            as_written,
        })
    }

    /// The tables that were asked for.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The results that are known, by run.
    pub fn results(&self) -> &RunResults {
        &self.results
    }

    /// How many different runs there are.
    pub fn count(&self) -> usize {
        let keys: BTreeSet<&String> = self.runs.values().map(|run| &run.key.spec).collect();
        keys.len()
    }

    /// Fails if nothing stands between the marks of a table in its README.
    ///
    /// # Errors
    /// Names every such README.
    pub fn check_readmes(&self) -> anyhow::Result<()> {
        let mut empty = Vec::new();
        for table in self.tables.iter().filter(|_| self.as_written) {
            let Some(into) = &table.into else { continue };
            let text = read(into)?;
            if let Err(error) = fl_study::table(&text, &table.name) {
                empty.push(format!("{}: {error:#}", into.display()));
            }
        }
        anyhow::ensure!(empty.is_empty(), empty.join("\n"));
        Ok(())
    }

    fn folder(&self, key: &RunKey) -> PathBuf {
        self.request.out.join("kept").join(short(&key.spec))
    }

    /// Reads the results of the runs that are done: those of the file of results, and those of the
    /// folder. `complete` also completes folders of runs whose process was killed at the end.
    pub fn find_results(&mut self, complete: bool) {
        for (run, checked) in &self.runs {
            let record = self.record.as_ref();
            let recorded =
                record.and_then(|of| of.result(&checked.key, &checked.spec, &mut self.cached));
            if let Some(result) = recorded {
                self.results.insert(run.clone(), result);
                self.from_record.insert(run.clone());
                continue;
            }
            let folder = self.folder(&checked.key);
            if !folder.join("outcome.json").exists() {
                continue;
            }
            if complete && let Err(error) = tidy(&folder) {
                log::info!("note: {}: {error:#}", folder.display());
            }
            let result = self.cached.read(&folder, &checked.spec);
            self.results.insert(run.clone(), result);
        }
        let Some(record) = &self.record else { return };
        let here = record.path().display();
        let (taken, all) = (self.recorded().len(), self.count());
        if taken > 0 {
            log::info!("note: {taken} of {all} results are from {here}");
        }
        if self.as_written {
            let rows = self.runs.values().map(|run| (&run.place[..], &run.key));
            record.note_outdated(&rows.collect());
        }
    }

    /// The runs whose results come from the file of results, each once.
    fn recorded(&self) -> BTreeMap<&str, (&RunSpec, &CheckedRun)> {
        let all = self.from_record.iter().rev();
        let all = all.filter_map(|run| Some((run, self.runs.get(run)?)));
        all.map(|(run, checked)| (&checked.key.spec[..], (run, checked)))
            .collect()
    }

    /// Whether a result comes from the file of results.
    pub fn has_recorded(&self) -> bool {
        !self.from_record.is_empty()
    }

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
            job(run, checked, folders.path().join(short(&checked.key.spec)))
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
                    let why = if checked.spec.parts.has("accountant") {
                        WITHHELD
                    } else {
                        why
                    };
                    let text = format!("{} failed: {why}", job.name);
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

    /// The runs without a result, in the order of the study.
    pub fn jobs(&self) -> Vec<Job> {
        let open = self.runs.iter();
        let open = open.filter(|(run, _)| !self.results.contains_key(*run));
        let mut open: Vec<_> = open.collect();
        open.sort_by_key(|(_, checked)| checked.at);
        // specs that come to the same are one run
        let mut seen = BTreeSet::new();
        open.retain(|(_, checked)| seen.insert(&checked.key.spec));
        let open = open.into_iter();
        open.map(|(run, checked)| job(run, checked, self.folder(&checked.key)))
            .collect()
    }

    /// Whether finished runs add lines to a file of results. Those with other values do not.
    fn records(&self) -> bool {
        self.record.is_some() && self.request.set.is_empty()
    }

    /// Adds every finished run that is not there to the file of results.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn record_results(&mut self) -> anyhow::Result<()> {
        let records = self.records();
        let Some(record) = self.record.as_mut().filter(|_| records) else {
            return Ok(());
        };
        let mut runs: Vec<_> = self.runs.iter().collect();
        runs.sort_by_key(|(_, checked)| checked.at);
        for (run, checked) in runs {
            if record.line(&checked.key).is_some() {
                continue;
            }
            if let Some(Ok(result)) = self.results.get(run) {
                let added = record.add(&checked.place, &checked.key, &checked.spec, result);
                added.context("the runs are kept, and the same command records their results")?;
            }
        }
        Ok(())
    }

    /// Says which data of these runs are not there, once and before the first run; and makes the
    /// folder of runs.
    ///
    /// # Errors
    /// Names all that is missing.
    pub fn prepare<'j>(&self, jobs: impl Iterator<Item = &'j Job>) -> anyhow::Result<()> {
        let dir = &self.request.data_dir;
        let missing = jobs.filter_map(|job| job.spec.data.missing(dir));
        let missing: BTreeSet<String> = missing.collect();
        let missing: Vec<String> = missing.into_iter().collect();
        anyhow::ensure!(missing.is_empty(), missing.join("\n"));
        let place = self.request.out.join("kept");
        std::fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))
    }

    fn options<'o>(
        &'o self,
        threads: usize,
        stop: Arc<AtomicBool>,
        on_run: &'o OnJob<'o>,
    ) -> SchedulerOptions<'o> {
        SchedulerOptions {
            threads,
            data_dir: &self.request.data_dir,
            command: &self.request.command,
            stop,
            on_run,
        }
    }

    /// Does these runs: small ones side by side, large ones alone. Once `stop` is set, runs stop
    /// after their step, and their results stay unknown. With `record`, each run that ends adds its
    /// line to the file of results.
    pub fn run(
        &mut self,
        mut jobs: Vec<Job>,
        threads: usize,
        stop: Arc<AtomicBool>,
        record: bool,
        on_run: &OnJob<'_>,
    ) -> RunCount {
        if jobs.is_empty() {
            return RunCount { done: 0, of: 0 };
        }
        jobs.sort_by_key(|job| (job.run.alone, job.at));
        let took = |(run, result): (&RunSpec, &Result<fl_study::RunResult, String>)| {
            let table = self.runs.get(run)?.table.clone();
            Some((table, result.as_ref().ok()?.seconds()?))
        };
        let known: Vec<(String, f64)> = self.results.iter().filter_map(took).collect();
        let recording = record && self.records();
        let file = self.record.take_if(|_| recording);
        let fresh = CachedRuns::new(&self.request.data_dir, &self.request.command);
        let cached = std::mem::replace(&mut self.cached, fresh);
        let recorder = Mutex::new((file, cached));
        let on_end = |job: &Job, event: JobEvent<'_>| {
            let ended = matches!(&event, JobEvent::Ended(end) if end.result.is_ok());
            if ended && recording && job.folder.join("outcome.json").exists() {
                let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
                // what fails here fails again in `record_results`, which says why
                let _ = self.record_end(job, &mut recorder);
            }
            on_run(job, event);
        };
        let failed = run_all(&jobs, &known, self.options(threads, stop.clone(), &on_end));
        let recorder = recorder
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        self.cached = recorder.1;
        if recording {
            self.record = recorder.0;
        }
        let done = |job: &&Job| job.folder.join("outcome.json").exists();
        let count = RunCount {
            done: jobs.iter().filter(done).count(),
            of: jobs.len(),
        };
        if stop.load(Ordering::Relaxed) {
            return count;
        }
        let failed = failed.into_iter();
        let failed: BTreeMap<PathBuf, String> = failed
            .map(|(at, why)| (jobs[at].folder.clone(), why))
            .collect();
        for (run, checked) in &self.runs {
            if self.results.contains_key(run) {
                continue;
            }
            let folder = self.folder(&checked.key);
            let result = match failed.get(&folder) {
                // tables are for readers; the terminal has shown the error
                Some(_) if checked.spec.parts.has("accountant") => Err(WITHHELD.into()),
                Some(why) => Err(why.clone()),
                None => self.cached.read(&folder, &checked.spec),
            };
            self.results.insert(run.clone(), result);
        }
        count
    }

    /// Adds a run that has ended to the file of results.
    fn record_end(
        &self,
        job: &Job,
        (file, cached): &mut (Option<RecordedRuns>, CachedRuns<'_>),
    ) -> anyhow::Result<()> {
        let (Some(file), Some(checked)) = (file, self.runs.get(&job.run)) else {
            return Ok(());
        };
        let result = cached.read(&job.folder, &checked.spec);
        let result = result.map_err(anyhow::Error::msg)?;
        file.add(&checked.place, &checked.key, &checked.spec, &result)
    }

    /// The linked parts, and those of the libraries of the specs.
    fn parts(&self) -> Vec<&'static PartDecl> {
        let own = self.runs.values().flat_map(|run| own_parts(&run.spec));
        fl_core::linked_parts().into_iter().chain(own).collect()
    }

    /// Makes the tables from the results.
    pub fn build(&self) -> BuiltStudy {
        let tables = self.tables.iter();
        let tables: Vec<_> = tables.map(|t| fl_study::made(t, &self.results)).collect();
        let place = |run: &RunSpec| {
            let checked = self.runs.get(run)?;
            let (place, _) = checked.place.rsplit_once(", seed ")?;
            Some(place.to_string())
        };
        let parts = self.parts();
        let make = |id: &AccountantId| accountant(&parts, id);
        // one that is not done may have released all that it may
        let begun = self.runs.iter().filter_map(|(run, checked)| {
            let folder = self.folder(&checked.key);
            let open = !self.results.contains_key(run) && folder.join("run.json").exists();
            open.then(|| {
                let opened = Run::open_brief(&folder);
                (folder, (place(run).unwrap_or_default(), opened))
            })
        });
        let begun = begun.collect();
        let totals = fl_study::totals(&self.tables, &self.results, &begun, &place, &make);
        let text = tables.iter().chain(&totals).map(|made| &made.markdown);
        let text: Vec<&str> = text.map(|text| text.trim_end()).collect();
        BuiltStudy {
            text: text.join("\n\n"),
            tables,
            totals,
        }
    }

    /// Writes the tables into the folder and, unless they are only to `check`, into READMEs.
    ///
    /// # Errors
    /// When a file cannot be written, or a README has no place for its table.
    pub fn write(&self, built: BuiltStudy, check: bool) -> anyhow::Result<WrittenStudy> {
        let (name, tables) = (&self.name, &built.tables);
        // a part of a study does not take its place
        let part = if self.as_written && self.request.only.is_empty() {
            ""
        } else {
            "-part"
        };
        let to = |ending: &str| self.request.out.join(format!("{name}{part}{ending}"));
        let endings = [".html", ".md", ".tex", ".csv", "-runs.csv", ".bib"];
        let mut files = endings.map(to).to_vec();
        let all = || tables.iter().chain(&built.totals);
        let sections: Vec<_> = all().map(|made| made.section.clone()).collect();
        let key = |run: &RunSpec| {
            let checked = self.runs.get(run);
            checked.map_or(String::new(), |run| short(&run.key.spec).into())
        };
        let lines = fl_study::run_lines(&self.tables, &self.results, &key);
        let [html, markdown, tex, csv, runs, bib] = endings.map(to);
        let (page, parts) = (fl_report::study(name, &sections, &lines), self.parts());
        let parts: Vec<&PartDecl> = parts.iter().map(|part| &**part).collect();
        let specs = self.results.values().flatten().map(RunResult::spec);
        fl_files::write(&bib, fl_report::bibliography(specs, &parts).as_bytes())?;
        for (table, made) in self.tables.iter().zip(tables) {
            let page = fl_report::study(name, std::slice::from_ref(&made.section), &[]);
            for picture in fl_report::picture_files(&page, &made.section.notes) {
                for (ending, content) in picture.files() {
                    let file = to(&format!("-{}-{}.{ending}", table.name, picture.name));
                    fl_files::write(&file, content)?;
                    files.push(file);
                }
                if let Some(note) = picture.note() {
                    log::info!("note: {note}");
                }
            }
        }
        fl_files::write(&markdown, format!("{}\n", built.text).as_bytes())?;
        fl_files::write(&html, page.as_bytes())?;
        fl_files::write(&tex, fl_report::tables_tex(&sections).as_bytes())?;
        fl_files::write(
            &csv,
            &fl_study::tables_csv(&all().cloned().collect::<Vec<_>>())?,
        )?;
        let rows = fl_study::runs_csv(&self.tables, &self.results, &key)?;
        fl_files::write(&runs, &rows)?;
        let mut fine = tables.iter().all(|made| made.whole);
        let mut unchanged: BTreeMap<&Path, Vec<String>> = BTreeMap::new();
        for (table, made) in self.tables.iter().zip(tables).filter(|_| self.as_written) {
            let Some(into) = &table.into else { continue };
            let (place, name) = (into.display(), &table.name);
            if !made.whole {
                unchanged.entry(into).or_default().push(format!("`{name}`"));
                continue;
            }
            let old = read(into)?;
            let new = fl_study::replaced(&old, name, &made.markdown)?;
            match (check, old == new) {
                (_, true) => {}
                (false, false) => fl_files::write(into, new.as_bytes())?,
                (true, false) => {
                    fine = false;
                    log::info!(
                        "{place}: the table `{name}` differs from the runs; run without --check to write it"
                    );
                }
            }
        }
        for (into, names) in unchanged {
            let (place, all) = (into.display(), names.join(", "));
            match names.len() {
                1 => log::info!(
                    "note: {place} keeps its table {all}: the new one has a fault, named below it"
                ),
                n => log::info!(
                    "note: {place} keeps {n} tables, whose new ones have faults, named below them: {all}"
                ),
            }
        }
        Ok(WrittenStudy { files, fine })
    }
}

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

fn job(run: &RunSpec, checked: &CheckedRun, folder: PathBuf) -> Job {
    Job {
        run: run.clone(),
        spec: checked.spec.clone(),
        folder,
        name: checked.place.clone(),
        table: checked.table.clone(),
        at: checked.at,
    }
}

/// The first digits of a digest, which name a folder.
fn short(digest: &str) -> &str {
    digest.get(..24).unwrap_or(digest)
}

fn read(readme: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(readme).with_context(|| format!("reading {}", readme.display()))
}

/// The tables that were asked for; of a part of a table, the row that others are compared with too.
fn chosen(study: &Study, only: &[String]) -> anyhow::Result<Vec<TablePart>> {
    let part = |(at, rows): (usize, BTreeSet<usize>)| TablePart {
        at,
        table: study.tables[at].part(&rows),
        rows: rows.into_iter().collect(),
    };
    if only.is_empty() {
        let all = study.tables.iter().enumerate();
        let all = all.map(|(at, table)| (at, (0..table.rows.len()).collect()));
        return Ok(all.map(part).collect());
    }
    let mut wanted: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for text in only {
        let (name, row) = text.split_once('/').unwrap_or((text, ""));
        let known = || study.tables.iter().map(|t| &t.name[..]).collect::<Vec<_>>();
        let Some(at) = study.tables.iter().position(|t| t.name == name) else {
            let near = fl_core::settings::nearest(name, known());
            let near = near.map_or(";".into(), |near| format!("; did you mean `{near}`?"));
            return Err(NotRun::usage(format!(
                "--only {text}: no table is called `{name}`{near} tables: {}",
                known().join(", ")
            )));
        };
        let rows = study.tables[at].rows.iter().enumerate();
        let found: Vec<usize> = rows
            .filter(|(_, item)| item.name.contains(row))
            .map(|(at, _)| at)
            .collect();
        if found.is_empty() {
            return Err(NotRun::usage(format!(
                "--only {text}: no row of `{name}` has `{row}` in its name"
            )));
        }
        let against = study.tables[at].against;
        wanted
            .entry(at)
            .or_default()
            .extend(found.into_iter().chain(against));
    }
    Ok(wanted.into_iter().map(part).collect())
}

/// Part of a table, with its place in the study's file.
struct TablePart {
    /// The number of the table.
    at: usize,
    /// The numbers of its rows.
    rows: Vec<usize>,
    table: Table,
}

/// Where a mistake of a spec occurs.
struct Occurrence {
    table: String,
    row: String,
    /// Further rows.
    more: usize,
}

/// The check of the specs of a study.
struct SpecCheck<'a> {
    file: &'a StudyFile,
    /// Overrides from outside the study.
    set: &'a [String],
    catalogue: &'a Catalogue,
    runs: BTreeMap<RunSpec, CheckedRun>,
    /// The seeds of a row have the same mistakes, and rows have many in common.
    mistakes: Vec<(Mistake, Option<Occurrence>)>,
    parsed: BTreeMap<PathBuf, Document>,
    /// Specs that are not checked for want of a library.
    left: BTreeSet<PathBuf>,
    /// What is wrong with libraries, by its text.
    refused: BTreeMap<String, NotRun>,
}

/// Checks the study, and the specs of all its runs.
///
/// # Errors
/// Every mistake of the study's file and of the specs at once.
fn checked(
    file: &StudyFile,
    chosen: &[TablePart],
    set: &[String],
    as_written: bool,
    catalogue: &Catalogue,
) -> anyhow::Result<BTreeMap<RunSpec, CheckedRun>> {
    let own = file.mistakes.iter().cloned();
    let mut check = SpecCheck {
        file,
        set,
        catalogue,
        runs: BTreeMap::new(),
        mistakes: own.map(|mistake| (mistake, None)).collect(),
        parsed: BTreeMap::new(),
        left: BTreeSet::new(),
        refused: BTreeMap::new(),
    };
    for part in chosen {
        let (at, table) = (part.at, &part.table);
        let marked = as_written && !table.name.is_empty();
        let into = table.into.as_ref().filter(|into| marked && into.is_file());
        if let Some(into) = into {
            let held = std::fs::read_to_string(into).map_err(anyhow::Error::from);
            if let Err(error) =
                held.and_then(|text| fl_study::section(&text, &table.name).map(drop))
            {
                let text = format!("{}: {error:#}", into.display());
                check.mistakes.push((file.of_readme(at, text), None));
            }
        }
        check.specs(part)?;
        for (names, text) in unmeasured(table, &check.runs) {
            let mistake = file.of_measure(at, names, text);
            // that of the defaults is one for all tables
            if !check.mistakes.iter().any(|(known, _)| *known == mistake) {
                check.mistakes.push((mistake, None));
            }
        }
    }
    let libraries = |(mistake, _): &(Mistake, _)| check.refused.contains_key(&mistake.text);
    let only_libraries = check.mistakes.iter().all(libraries);
    match check.refused.pop_first() {
        None if check.mistakes.is_empty() => Ok(check.runs),
        // what is wrong with a library alone is no mistake of a spec
        Some((_, why)) if only_libraries => Err(why.into()),
        _ => Err(NotRun::Mistakes(check.sorted()).into()),
    }
}

/// The measures of a table that no run of it has, each with what is wrong with it.
fn unmeasured<'t>(
    table: &'t Table,
    runs: &BTreeMap<RunSpec, CheckedRun>,
) -> Vec<(&'t [String], String)> {
    let of_table = table.runs.iter().flatten().flatten();
    let specs = of_table.filter_map(|(_, run)| Some(&runs.get(run)?.spec));
    let specs: Vec<_> = specs.collect();
    let has = |name: &String| {
        specs.iter().any(|spec| {
            if NEGATIVE_TRANSFER.contains(&name.as_str()) {
                return spec.protocol_name == "solo";
            }
            let cost = fl_study::cost_of(name, spec.parts.has("accountant"));
            cost.unwrap_or_else(|| spec.measured.has_number(name) != Certainty::No)
        })
    };
    let scores = fl_core::metrics::names(None);
    let known = specs.iter().flat_map(|spec| spec.measured.names());
    let mut known: BTreeSet<&str> = known.chain(COSTS).chain(NEGATIVE_TRANSFER).collect();
    if specs.is_empty() {
        known.extend(scores.iter().map(String::as_str));
    }
    let wrong = |names: &'t [String]| {
        let mut missing: Vec<&String> = names.iter().filter(|name| !has(name)).collect();
        let near = |name: &String| {
            let plain = name.strip_suffix(".std").unwrap_or(name);
            let near = nearest(plain, known.iter().copied());
            near.filter(|near| *near != plain)
        };
        // runs of another table with the same names may have the others, and of runs with mistakes
        // nothing is known
        if missing.len() < names.len() || specs.is_empty() {
            missing.retain(|name| near(name).is_some());
        }
        if missing.is_empty() {
            return None;
        }
        let hints = missing.iter().filter_map(|name| near(name));
        let hints: Vec<String> = hints.map(|near| format!("`{near}`")).collect();
        let hint = if hints.is_empty() {
            let known: Vec<&str> = known.iter().copied().collect();
            format!("they have {}", known.join(", "))
        } else {
            format!("did you mean {}?", hints.join(" and "))
        };
        let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        let text = format!(
            "no run of this table measures {}; {hint}",
            missing.join(" or ")
        );
        Some((names, text))
    };
    table.measures().into_iter().filter_map(wrong).collect()
}

impl SpecCheck<'_> {
    /// Checks the specs of all runs of a table.
    fn specs(&mut self, part: &TablePart) -> anyhow::Result<()> {
        let table = &part.table;
        for ((row, named), of_row) in part.rows.iter().zip(&table.rows).zip(&table.runs) {
            for (across, (other, runs)) in table.across.iter().zip(of_row).enumerate() {
                let cell = Cell {
                    table: part.at,
                    row: *row,
                    across,
                };
                let name = if other.name.is_empty() {
                    named.name.clone()
                } else {
                    format!("{}, {}", named.name, other.name)
                };
                for (seed, run) in runs {
                    self.spec(cell, &table.name, &name, *seed, run)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the spec of a run, unless that has been done.
    fn spec(
        &mut self,
        cell: Cell,
        table: &str,
        row: &str,
        seed: u64,
        run: &RunSpec,
    ) -> anyhow::Result<()> {
        // a spec that is not there is a mistake of the file, and a library that cannot be loaded is
        // not tried for each run
        let left = self.left.contains(&run.base) || !run.base.is_file();
        if left || self.runs.contains_key(run) {
            return Ok(());
        }
        let base = match self.parsed.entry(run.base.clone()) {
            Entry::Occupied(base) => base.into_mut(),
            Entry::Vacant(place) => place.insert(prepare::parse(&run.base)?),
        };
        let document = base.clone().set(&run.set);
        match prepare::check(&document, self.catalogue) {
            Ok(Ok(spec)) => {
                let sha256 = |text: String| fl_core::hex(&Sha256::digest(text));
                let asked = serde_json::to_value(document.values())?;
                let checked = CheckedRun {
                    key: RunKey {
                        spec: sha256(spec.yaml()?),
                        asked: sha256(asked.to_string()),
                    },
                    spec: Arc::new(spec),
                    place: format!("{table}, {row}, seed {seed}"),
                    table: table.into(),
                    at: self.runs.len(),
                };
                self.runs.insert(run.clone(), checked);
            }
            Ok(Err(mistakes)) => {
                for mistake in mistakes.0 {
                    self.note(cell, mistake, table, row);
                }
            }
            Err(why) => {
                let mistake = self.file.of_row(cell, why.to_string());
                self.note(cell, mistake, table, row);
                self.refused.insert(why.to_string(), why);
                self.left.insert(run.base.clone());
            }
        }
        Ok(())
    }

    /// Adds a mistake of a row's spec, at its place in the study if the study sets the value.
    fn note(&mut self, cell: Cell, mistake: Mistake, table: &str, row: &str) {
        let outside = |set: &str| {
            let mut all = self
                .set
                .iter()
                .filter_map(|set| Some(set.split_once('=')?.0));
            all.any(|path| path == set)
        };
        let mistake = match &mistake.place {
            SourcePosition::Set(set) if outside(set) => mistake,
            _ => self.file.place(cell, mistake),
        };
        let known = |(of, _): &&mut (Mistake, Option<Occurrence>)| {
            (&of.file, &of.place, &of.text) == (&mistake.file, &mistake.place, &mistake.text)
        };
        match self.mistakes.iter_mut().find(known) {
            Some((_, Some(first))) if (&first.table[..], &first.row[..]) != (table, row) => {
                first.more += 1;
            }
            Some(_) => {}
            None => {
                let first = Occurrence {
                    table: table.into(),
                    row: row.into(),
                    more: 0,
                };
                self.mistakes.push((mistake, Some(first)));
            }
        }
    }

    /// The mistakes of the study's file, then those of its specs, each with its row.
    fn sorted(self) -> Mistakes {
        let mut mistakes: Vec<Mistake> = Vec::new();
        for (mut mistake, first) in self.mistakes {
            if let Some(Occurrence { table, row, more }) = first {
                let more = match more {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                mistake.text += &format!(" (table `{table}`, row `{row}`{more})");
            }
            mistakes.push(mistake);
        }
        let study = self.file.name();
        mistakes.sort_by(|a, b| {
            let key = |m: &Mistake| (m.file != study, m.file.clone(), m.place.clone());
            key(a).cmp(&key(b))
        });
        Mistakes(mistakes)
    }
}
