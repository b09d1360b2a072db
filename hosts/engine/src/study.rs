//! A study: the runs that it asks for, each once, and the tables of them.

mod repeats;
mod spec_check;

pub use repeats::{Repeated, Repeats};

use crate::NotRun;
use crate::cached_runs::CachedRuns;
use crate::events::unpriced;
use crate::recorded_runs::{RecordedRuns, RunKey};
use crate::run_folder::tidy;
use crate::run_scheduler::{Job, JobEvent, OnJob, RunCount, SchedulerOptions, run_all};
use anyhow::Context;
use fl_core::PartDecl;
use fl_data::DataSpec;
use fl_privacy::AccountantId;
use fl_privacy::{accountant, own_parts};
use fl_registry::{Catalogue, Spec};
use fl_report::Run;
use fl_study::{BegunRun, BuiltTable, RunResult, RunResults, RunSpec, StudyFile, Table};
use spec_check::{checked, chosen};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
            let folder = self.folder(&checked.key);
            let is_kept = folder.join("outcome.json").exists();
            if is_kept
                && complete
                && let Err(error) = tidy(&folder)
            {
                log::info!("note: {}: {error:#}", folder.display());
            }
            let kept = is_kept.then(|| self.cached.read(&folder, &checked.spec));
            if recorded.is_some() {
                self.from_record.insert(run.clone());
            }
            let result = match (recorded, kept) {
                (Some(Ok(recorded)), Some(Ok(kept))) => Ok(recorded.or_kept(kept)),
                (Some(result), _) | (None, Some(result)) => result,
                (None, None) => continue,
            };
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
        open.map(|(run, checked)| self.job(run, checked, self.folder(&checked.key)))
            .collect()
    }

    fn job(&self, run: &RunSpec, checked: &CheckedRun, folder: PathBuf) -> Job {
        let table = self.tables.iter().filter(|of| of.name == checked.table);
        let names = table.flat_map(Table::measured).flat_map(|of| &of.names);
        Job {
            run: run.clone(),
            spec: checked.spec.clone(),
            folder,
            name: checked.place.clone(),
            table: checked.table.clone(),
            measures: names.cloned().collect(),
            at: checked.at,
        }
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
                // the terminal has shown it
                Some(why) => Err(unpriced(&checked.spec).error(why).into()),
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
        // one that is not done, or failed, may have released all that it may
        let begun = self.runs.iter().filter_map(|(run, checked)| {
            let folder = self.folder(&checked.key);
            let failed = self.results.get(run).map(Result::is_err);
            failed
                .unwrap_or_else(|| folder.join("run.json").exists())
                .then(|| {
                    let begun = BegunRun {
                        name: place(run).unwrap_or_default(),
                        run: Run::open_brief(&folder),
                        failed: failed.is_some(),
                    };
                    (folder, begun)
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

/// The first digits of a digest, which name a folder.
fn short(digest: &str) -> &str {
    digest.get(..24).unwrap_or(digest)
}

fn read(readme: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(readme).with_context(|| format!("reading {}", readme.display()))
}
