//! Runs of a study whose results stand in its file of results.

use crate::cached_runs::CachedRuns;
use crate::quick_digests::UsedParts;
use anyhow::bail;
use fl_data::DataSpec;
use fl_receipts::program;
use fl_registry::Spec;
use fl_study::{ResultLine, ResultsFile, RunResult};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The identity of a run among recorded ones.
pub(crate) struct RunKey {
    /// SHA-256 of the resolved spec.
    pub spec: String,
    /// SHA-256 of the spec before defaults are filled in. A later fl may have further defaults.
    pub asked: String,
}

/// Formats `, and 2 more`; nothing for 0.
fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        n => format!(", and {n} more"),
    }
}

/// The lines of a file of results, by run.
pub(crate) struct RecordedRuns {
    file: ResultsFile,
    by_spec: BTreeMap<String, usize>,
    by_asked: BTreeMap<String, usize>,
}

impl RecordedRuns {
    /// Reads the file.
    ///
    /// # Errors
    /// As [`ResultsFile::read`].
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let file = ResultsFile::read(path)?;
        let here = path.display();
        if file.is_cut() {
            log::info!("note: {here}: its last line is cut short, and is left out");
        }
        let (mut by_spec, mut by_asked) = (BTreeMap::new(), BTreeMap::new());
        let mut replaced = Vec::new();
        for (at, (number, line)) in file.lines().iter().enumerate() {
            // of several programs' results the last counts
            let before: Option<usize> = by_spec.insert(line.spec.clone(), at);
            replaced.extend(before.map(|before| (file.lines()[before].0, *number)));
            by_asked.insert(line.asked.clone(), at);
        }
        if let Some((first, by)) = replaced.first() {
            let more = and_more(replaced.len() - 1);
            log::info!(
                "note: {here}: line {by} replaces line {first}, which has another digest{more}"
            );
        }
        Ok(Self {
            file,
            by_spec,
            by_asked,
        })
    }

    /// Where the lines stand.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The line of a run with its number.
    pub fn line(&self, key: &RunKey) -> Option<&(usize, ResultLine)> {
        let at = self.by_spec.get(&key.spec);
        let at = at.or_else(|| self.by_asked.get(&key.asked))?;
        self.file.lines().get(*at)
    }

    /// Notes which lines of these rows, by name, stand for other specs than the rows now have.
    pub fn note_outdated(&self, rows: &BTreeMap<&str, &RunKey>) {
        let lines = self.file.lines().iter();
        let other = lines.filter(|(_, line)| {
            let row = rows.get(&line.run[..]);
            row.is_some_and(|key| line.spec != key.spec && line.asked != key.asked)
        });
        let other: Vec<&(usize, ResultLine)> = other.collect();
        if let Some((number, line)) = other.first() {
            let (here, more) = (self.path().display(), and_more(other.len() - 1));
            let run = &line.run;
            log::info!(
                "note: {here}: line {number} ({run}) is not used, because the row has another spec now{more}"
            );
        }
    }

    /// The recorded result of a run; an error says why it is not used.
    pub fn result(
        &self,
        key: &RunKey,
        spec: &Spec<DataSpec>,
        cached: &mut CachedRuns<'_>,
    ) -> Option<Result<RunResult, String>> {
        let (number, line) = self.line(key)?;
        let place = format!("{}:{number}", self.path().display());
        let mut read = || {
            let now = cached.present(spec)?;
            let hashes = |files: &[fl_files::FileHash]| -> Vec<String> {
                files.iter().map(|file| file.sha256.clone()).collect()
            };
            let (data, libraries) = (hashes(&now.data), hashes(&now.libraries));
            if let Some(what) = line.record.other_files(&data, &libraries) {
                bail!(
                    "it is a run with other {what}; restore them, or remove the line, and it is run again"
                );
            }
            let changed = UsedParts::of(&spec.resolved).changed(&line.quick);
            let older = match (line.quick.is_empty(), changed.is_empty()) {
                (false, true) => None,
                (true, _) => Some("of a program whose other digests are not known".to_string()),
                (false, false) => {
                    let all: Vec<&str> = changed.into_iter().collect();
                    let all = all.join(", ");
                    Some(format!(
                        "of an older program; since then digests of quick specs changed: {all}"
                    ))
                }
            };
            let record = line.record.clone();
            RunResult::recorded(record, spec.yaml()?, PathBuf::from(&place), older)
        };
        let result: anyhow::Result<RunResult> = read();
        Some(result.map_err(|error| format!("{place}: {error:#}")))
    }

    /// Adds the result of a run, which `name` calls by table, row and seed.
    ///
    /// # Errors
    /// As [`ResultsFile::add`].
    pub fn add(
        &mut self,
        name: &str,
        key: &RunKey,
        spec: &Spec<DataSpec>,
        result: &RunResult,
    ) -> anyhow::Result<()> {
        let record = result.record()?;
        let own = program().and_then(|file| file.sha256.get(..12));
        // only this program knows its digests
        let quick = if own == Some(&record.program) {
            UsedParts::of(&spec.resolved).digests()
        } else {
            BTreeMap::new()
        };
        let line = ResultLine {
            run: name.into(),
            spec: key.spec.clone(),
            asked: key.asked.clone(),
            quick,
            record,
        };
        self.file.add(line)?;
        // another process may have added lines
        let lines = self.file.lines().iter().enumerate();
        for (at, (_, line)) in lines {
            self.by_spec.insert(line.spec.clone(), at);
            self.by_asked.insert(line.asked.clone(), at);
        }
        Ok(())
    }
}
