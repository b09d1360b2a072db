//! [`Run`]: the readable content of a run folder.

mod damage;
mod journal;
mod metrics;
mod origin;
mod outcome;
mod record;

pub use journal::{Bytes, Cost, Entry};
pub use metrics::{Metric, MetricDetails};
pub(crate) use origin::{FileHash, Origin};
pub(crate) use outcome::UNFINISHED;
pub use outcome::{Outcome, Summary, Traffic, observer_of, of_some_clients};
pub use record::RunRecord;

use crate::files::{all_regular, lines, pictures, whole};
use crate::{svg, text};
use anyhow::{Context, bail};
use damage::{contradiction, not_done, other_costs};
use fl_core::Result;
use fl_core::privacy::Observer;
use fl_core::regular_file::read_text;
use fl_registry::Document;
use journal::{journal, journalled};
use metrics::{METRICS, measurements};
use origin::{program, sha256};
use serde_yaml::Value;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A run, read from its folder.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name among other runs.
    pub label: String,
    /// Its folder.
    pub path: PathBuf,
    /// The resolved spec.
    pub spec: Value,
    /// Its text.
    pub spec_text: String,
    /// Every request, in order.
    pub journal: Vec<Entry>,
    /// Every measurement, in order.
    pub metrics: Vec<Metric>,
    /// The total cost after each complete step; `None` if its file is missing.
    pub costs: Option<Vec<Cost>>,
    /// The outcome, if the run is done.
    pub summary: Option<Summary>,
    /// Its pictures, by name: PNG files.
    pub pictures: Vec<(String, Vec<u8>)>,
    /// Missing or unreadable files of the folder.
    pub notices: Vec<String>,
    pub(crate) origin: Origin,
}

impl Run {
    /// Reads a run folder. Missing or damaged files become notices; only the spec is required.
    ///
    /// # Errors
    /// If there is no such folder, or no run has begun in it.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(path, false)
    }

    /// As [`Run::open`], without what only comparisons use: the digests of messages and answers,
    /// which are most of a journal, and the details of all but the last measurement of each name.
    ///
    /// # Errors
    /// As [`Run::open`].
    pub fn open_brief(path: &Path) -> Result<Self> {
        Self::read(path, true)
    }

    fn read(path: &Path, brief: bool) -> Result<Self> {
        let here = path.display();
        let about = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{here}: there is no such folder")
            }
            about => about.with_context(|| format!("looking at {here}"))?,
        };
        if !about.is_dir() {
            bail!("{here} is a file; give a run folder, such as runs/quick-fedkd-1");
        }
        all_regular(path)?;
        let spec_text = match read_text(&path.join("spec.yaml")) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let empty = path.read_dir().is_ok_and(|mut all| all.next().is_none());
                let found = if empty {
                    "it is empty"
                } else {
                    "it has no spec.yaml"
                };
                bail!("{here} is not a run folder: {found}; `fl run SPEC` makes one");
            }
            Err(error) => return Err(error).context(format!("reading {here}/spec.yaml")),
        };
        let spec = Document::values_of(&format!("{here}/spec.yaml"), spec_text.as_bytes())?;
        let mut notices = Vec::new();
        let journal = journal(path, &mut notices, brief);
        let metrics = measurements(path, &mut notices, brief);
        let costs = path.join("costs.jsonl").exists();
        let costs = costs.then(|| {
            let mut all = Vec::new();
            let mut take = |cost: Cost| all.push(cost);
            lines(path, "costs.jsonl", &mut notices, &mut take);
            all
        });
        let mut origin: Origin = whole(path, "run.json", &mut notices).unwrap_or_default();
        origin.program = program(path, !origin.resumed.is_empty());
        let summary: Option<Summary> = if path.join("outcome.json").exists() {
            whole(path, "outcome.json", &mut notices)
        } else {
            notices.push(not_done(path, &journal));
            None
        };
        if !origin.spec_sha256.is_empty() && origin.spec_sha256 != sha256(&spec_text) {
            notices.push("spec.yaml has changed since the run began: its SHA-256 differs from that in run.json.".into());
        }
        if let Some(summary) = &summary {
            notices.extend(contradiction(&summary.outcome, &metrics));
            notices.extend(other_costs(&summary.outcome, &journal, costs.as_deref()));
        }
        let pictures = pictures(&path.join("pictures"), &mut notices);
        let name = path.canonicalize().unwrap_or_else(|_| path.into());
        let name = name.file_name().map(|n| n.to_string_lossy().into_owned());
        let mut run = Self {
            label: name.unwrap_or_else(|| here.to_string()),
            path: path.into(),
            spec,
            spec_text,
            journal,
            metrics,
            costs,
            summary,
            pictures,
            notices,
            origin,
        };
        let guaranteed = |of: &Summary| of.outcome.privacy.is_some();
        if run.book().is_some() || run.summary.as_ref().is_some_and(guaranteed) {
            run.hide_rows();
        }
        Ok(run)
    }

    /// Forgets what `run.json` tells its owner alone: the hashes of the user's own files, by which
    /// who guesses a file could check the guess, and the time of day, as two of them, of runs one
    /// after the other, show how long clients trained.
    fn hide_rows(&mut self) {
        if self.origin.keyed.is_some() || self.has_own_files() {
            self.origin.data.clear();
        }
        let day = self.origin.started.chars().take("2026-01-01".len());
        self.origin.started = day.collect();
    }

    /// Reads several as [`Run::open_brief`] does; runs with one name are labelled by their paths.
    ///
    /// # Errors
    /// Those of [`Run::open`].
    pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Self>> {
        let runs = paths.iter().map(|p| Self::open_brief(p));
        Ok(Self::named(runs.collect::<Result<_>>()?))
    }

    /// Labels several runs; those with one name by their paths.
    pub fn named(mut runs: Vec<Self>) -> Vec<Self> {
        let mut seen = BTreeSet::new();
        if !runs.iter().all(|run| seen.insert(run.label.clone())) {
            for run in &mut runs {
                run.label = run.path.display().to_string();
            }
        }
        runs
    }

    /// Returns the name in its spec.
    pub fn name(&self) -> &str {
        let name = self.spec.get("name").and_then(Value::as_str);
        name.unwrap_or(&self.label)
    }

    /// Returns its protocol, or those that followed one another.
    pub fn protocol(&self) -> String {
        let used = self.of_protocols("use").map(|name| name.unwrap_or("?"));
        used.collect::<Vec<_>>().join(", then ")
    }

    /// Returns whether the run began with a model that another run kept.
    pub fn is_continued(&self) -> bool {
        self.of_protocols("initial").any(|model| model.is_some())
    }

    /// Returns this text of the settings of each protocol that followed one another.
    fn of_protocols<'r>(&'r self, setting: &'r str) -> impl Iterator<Item = Option<&'r str>> {
        let stages = self.spec.get("stages").and_then(Value::as_sequence);
        let sections = stages.map_or(std::slice::from_ref(&self.spec), |all| all);
        let of = move |section: &'r Value| section.get("protocol")?.get(setting)?.as_str();
        sections.iter().map(of)
    }

    /// Returns the files of its data, without a model that its protocol begins with.
    pub(crate) fn data_files(&self) -> impl Iterator<Item = &FileHash> {
        // a record has the names of files alone
        let begins = |file: &FileHash| {
            let mut models = self.of_protocols("initial").flatten();
            models.any(|model| Path::new(model).ends_with(&file.path))
        };
        self.origin.data.iter().filter(move |file| !begins(file))
    }

    /// Returns its seed.
    pub fn seed(&self) -> String {
        let seed = self.spec.get("seed");
        seed.map_or("?".into(), text::inline)
    }

    /// Hands over every measurement with its details, read from the folder one at a time.
    pub(crate) fn each_metric(&self, take: &mut dyn FnMut(Metric)) {
        // what is wrong with the file was noticed when the run was opened
        lines(&self.path, METRICS, &mut Vec::new(), take);
    }

    /// Returns what it wrote of its rows and of all that it may spend; none without an accountant.
    pub fn book(&self) -> Option<&serde_json::Value> {
        self.origin.book.as_ref()
    }

    /// Returns the name of its data set for a run that wrote nothing of its rows.
    pub fn data_name(&self) -> String {
        let named = self
            .spec
            .get("ledger")
            .and_then(|ledger| ledger.get("data"));
        match named.and_then(Value::as_str) {
            Some(name) => name.into(),
            None if self.data_files().next().is_none() && !self.has_own_files() => {
                format!("{}, seed {}", self.set(), self.seed())
            }
            None => self.set().into(),
        }
    }

    /// Returns the name of its data set.
    pub fn set(&self) -> &str {
        let set = self.spec.get("data").and_then(|data| data.get("set"));
        let named = set.and_then(Value::as_str);
        named
            .or_else(|| set?.as_mapping()?.keys().next()?.as_str())
            .unwrap_or("?")
    }

    /// Returns its start: RFC 3339, if the folder contains it; with an accountant the day alone.
    pub fn began(&self) -> &str {
        &self.origin.started
    }

    /// Returns the bytes to and from clients: from the outcome, or from the journal so far.
    pub fn bytes(&self) -> Traffic {
        let outcome = self.summary.as_ref().and_then(|s| s.outcome.bytes);
        outcome.unwrap_or_else(|| journalled(&self.journal))
    }

    /// Returns the total cost after the last complete step of this round.
    pub fn cost_in(&self, round: u64) -> Option<&Cost> {
        let mut costs = self.costs.iter().flatten().rev();
        costs.find(|cost| cost.round == round)
    }

    /// Returns the guarantee that a measure such as `epsilon.readers` is a part of, as text, or why
    /// there is none; `None` of any other measure, and without an accountant.
    pub fn guarantee_of(&self, measure: &str) -> Option<String> {
        let observer = observer_of(measure)?;
        let Some(summary) = &self.summary else {
            return self.accounts().then(|| UNFINISHED.into());
        };
        Some(summary.outcome.protection(observer)?.to_string())
    }

    /// Returns what a reader must know of the epsilons of the run against this observer; empty if
    /// none is known, after a step or at the end.
    pub fn caveats(&self, observer: Observer) -> Vec<String> {
        let after_step = |cost: &Cost| cost.epsilon(observer).is_some();
        let after_steps = || self.costs.iter().flatten().any(after_step);
        match &self.summary {
            None if after_steps() => vec!["no guarantee: the run is not done".into()],
            Some(Summary { outcome, .. })
                if outcome.epsilon(observer).flatten().is_some() || after_steps() =>
            {
                outcome.caveats(observer)
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether the run has an accountant.
    pub fn accounts(&self) -> bool {
        let parts = self.spec.get("parts");
        let accountant = parts.and_then(|parts| parts.get("accountant"));
        accountant.is_some_and(|part| !part.is_null())
            || self.journal.iter().any(|e| e.privacy.is_some())
    }

    /// Returns the last measurement of this score of each client: that of its own model, or of the
    /// server's on its own test rows. Of two in one step it is the first.
    pub(crate) fn last_of_each(&self, score: &str) -> Option<&Metric> {
        let last = |of: &str| {
            let name = format!("{of}.{score}");
            let found = self.metrics.iter().enumerate();
            let found = found.rev().find(|(_, metric)| *metric.name == *name);
            found.filter(|(_, metric)| !metric.each().is_empty())
        };
        match (last("clients"), last("own")) {
            // a record has no steps, and the scores of the last alone
            (Some((at, clients)), Some((then, own))) if then > at && own.step != clients.step => {
                Some(own)
            }
            (clients, own) => Some(clients.or(own)?.1),
        }
    }

    /// Returns the last measurement of each name: scores, by which models are compared, first, and
    /// else in order of their first.
    pub fn last(&self) -> Vec<&Metric> {
        let mut last: Vec<&Metric> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for metric in &self.metrics {
            match places.entry(&metric.name) {
                btree_map::Entry::Occupied(at) => last[*at.get()] = metric,
                btree_map::Entry::Vacant(at) => {
                    at.insert(last.len());
                    last.push(metric);
                }
            }
        }
        last.sort_by_key(|metric| !svg::is_share(&metric.name));
        last
    }
}
