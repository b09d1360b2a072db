//! [`RunRecord`]: the outcome of a finished run without its folder.

use super::origin::{FileHash, Origin};
use super::{Cost, Metric, MetricDetails, Outcome, Run, Summary, Traffic, of_some_clients};
use fl_core::metrics::is_score;
use fl_core::privacy::{Epsilons, Observer};
use fl_core::{ClientId, Result};
use fl_registry::Document;
use serde::{Deserialize, Serialize};
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The outcome of a finished run without its folder: what tables show of it, and what made it. It
/// has no path, and no name of a user or a machine. Numbers of single clients are in it only if the
/// rows are of a published data set and there is no accountant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// The digest of the run.
    pub digest: String,
    /// Version of fl; of several processes that worked on the run, each.
    pub version: String,
    /// The first digits of the SHA-256 of the program; of several, each.
    pub program: String,
    /// Model and cores of the processor; of several, each.
    pub machine: String,
    /// Its start: RFC 3339; with an accountant the day alone.
    pub began: String,
    /// Wall-clock seconds. None if the run has an accountant: clients with more data take longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Bytes that crossed.
    pub bytes: Traffic,
    /// The guarantee against each observer, if the run has an accountant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<BTreeMap<Observer, serde_json::Value>>,
    /// The releases that have a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    releases: Option<serde_json::Value>,
    /// Its rows, by sealed hashes, and all that it may spend.
    #[serde(skip_serializing_if = "Option::is_none")]
    book: Option<serde_json::Value>,
    /// The data files by name and SHA-256. None if the run has an accountant and a file of the
    /// user's own: who can guess a file could check the guess.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    data: Vec<FileHash>,
    /// What a reader should know of the data.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    data_notes: Vec<String>,
    /// What a reader should know of means that leave out clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partial: Vec<String>,
    /// The SHA-256 of each loaded library.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    libraries: Vec<String>,
    /// The measurements by name.
    metrics: Vec<(String, Vec<Measured>)>,
    /// The last scores of each client on its own test rows, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scores: Vec<(String, Vec<ClientId>, Vec<Option<f64>>)>,
    /// The total cost after each step.
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<Vec<StepCost>>,
}

/// Round, number, and deviation over clients.
type Measured = (u64, Option<f64>, Option<f64>);

/// Round, bytes up, bytes down, and epsilons.
type StepCost = (u64, u64, u64, Option<Epsilons>);

impl RunRecord {
    /// Describes the run, if it is done.
    pub fn of(run: &Run) -> Option<Self> {
        let Summary {
            outcome,
            releases,
            data_notes,
            notes,
            ..
        } = run.summary.as_ref()?;
        let mut metrics: Vec<(String, Vec<Measured>)> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for metric in &run.metrics {
            let at = *places.entry(&metric.name).or_insert_with(|| {
                metrics.push((metric.name.to_string(), Vec::new()));
                metrics.len() - 1
            });
            let (_, all) = &mut metrics[at];
            all.push((metric.round, metric.value, metric.std));
        }
        let costs = run.costs.iter().flatten();
        let cost = |c: &Cost| (c.round, c.bytes_up, c.bytes_down, c.privacy.clone());
        let files = run.origin.data.iter();
        let named = |file: &FileHash| FileHash {
            path: file_name(&file.path),
            sha256: file.sha256.clone(),
        };
        let published = !run.has_own_files() && outcome.privacy.is_none();
        let own = run
            .last()
            .into_iter()
            .filter(|m| published && is_last_score(run, m));
        let scores = own.filter_map(|metric| {
            let details = metric.details.as_ref().filter(|of| !of.each.is_empty())?;
            let (clients, each) = (details.clients.clone(), details.each.clone());
            Some((metric.name.to_string(), clients, each))
        });
        Some(Self {
            scores: scores.collect(),
            digest: outcome.digest.clone(),
            version: run.origin.fact("version of fl"),
            program: run.origin.program.clone(),
            machine: run.origin.machine(),
            began: run.origin.started.clone(),
            seconds: outcome.seconds,
            bytes: run.bytes(),
            privacy: outcome.privacy.clone(),
            releases: releases.clone(),
            book: run.origin.book.clone(),
            data: files.map(named).collect(),
            data_notes: data_notes.clone(),
            partial: (notes.iter().filter(|note| of_some_clients(note).is_some()))
                .cloned()
                .collect(),
            libraries: hashes(&run.origin.libraries),
            metrics,
            costs: run.costs.is_some().then(|| costs.map(cost).collect()),
        })
    }

    /// The run with this resolved spec; `place` says where the record stands.
    ///
    /// # Errors
    /// If the spec is no YAML.
    pub fn run(self, spec: String, place: PathBuf) -> Result<Run> {
        let mut metrics = Vec::new();
        for (name, all) in self.metrics {
            let name: Arc<str> = name.into();
            metrics.extend(all.into_iter().map(|(round, value, std)| Metric {
                round,
                name: name.clone(),
                value,
                std,
                ..Metric::default()
            }));
        }
        for (name, clients, each) in self.scores {
            let mut of_name = metrics.iter_mut().rev().filter(|m| *m.name == *name);
            if let Some(last) = of_name.next() {
                let details = MetricDetails {
                    each,
                    clients,
                    ..MetricDetails::default()
                };
                last.details = Some(details.into());
            }
        }
        let cost = |(round, bytes_up, bytes_down, privacy)| Cost {
            round,
            bytes_up,
            bytes_down,
            privacy,
            ..Cost::default()
        };
        let library = |sha256| FileHash {
            sha256,
            ..FileHash::default()
        };
        Ok(Run {
            label: place.display().to_string(),
            path: place,
            spec: Document::values_of("spec", spec.as_bytes())?,
            spec_text: spec,
            journal: Vec::new(),
            metrics,
            costs: self.costs.map(|all| all.into_iter().map(cost).collect()),
            summary: Some(Summary {
                outcome: Outcome {
                    bytes: Some(self.bytes),
                    privacy: self.privacy,
                    digest: self.digest,
                    seconds: self.seconds,
                    ..Outcome::default()
                },
                releases: self.releases,
                data_notes: self.data_notes,
                notes: self.partial,
                ..Summary::default()
            }),
            pictures: Vec::new(),
            notices: Vec::new(),
            origin: Origin {
                version: self.version,
                program: self.program,
                machine: self.machine,
                started: self.began,
                libraries: self.libraries.into_iter().map(library).collect(),
                data: self.data,
                book: self.book,
                ..Origin::default()
            },
        })
    }

    /// Returns what differs from these present hashes: "data files", "libraries". Data files that
    /// are not present, or not recorded, are not compared.
    pub fn other_files(&self, data: &[String], libraries: &[String]) -> Option<&'static str> {
        let known: Vec<&String> = self.data.iter().map(|file| &file.sha256).collect();
        let compared = !data.is_empty() && !known.is_empty();
        match (&self.libraries[..] == libraries, compared) {
            (false, _) => Some("libraries"),
            (true, true) if !data.iter().eq(known) => Some("data files"),
            _ => None,
        }
    }
}

/// Returns whether a measurement is of a score of each client on its own test rows, in the last
/// step that has it.
fn is_last_score(run: &Run, metric: &Metric) -> bool {
    let mut of = ["clients.", "own."].into_iter();
    let score = of.find_map(|of| metric.name.strip_prefix(of));
    let score = score.filter(|score| is_score(score) && !score.contains('.'));
    let last = score.and_then(|score| run.last_of_each(score));
    last.is_some_and(|last| last.step == metric.step)
}

fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name();
    name.map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

fn hashes(files: &[FileHash]) -> Vec<String> {
    files.iter().map(|file| file.sha256.clone()).collect()
}

impl Run {
    /// Returns whether the spec names files of the user's own as clients' or as public rows.
    pub fn has_own_files(&self) -> bool {
        let data = self.spec.get("data");
        let public = data.and_then(|data| data.get("public")?.get("from")?.get("set"));
        let own = |set: &Value| set.get("files").is_some();
        self.set() == "files" || public.is_some_and(own)
    }

    /// Returns what made the run, on one line: the version of fl, the program and the machine;
    /// empty if the folder does not say.
    pub fn made_by(&self) -> String {
        let origin = &self.origin;
        if origin.version.is_empty() {
            return String::new();
        }
        let program = match &origin.program[..] {
            "" => String::new(),
            program => format!(" ({program})"),
        };
        let machine = match &origin.machine()[..] {
            "" => String::new(),
            machine => format!(", {machine}"),
        };
        format!("fl {}{program}{machine}", origin.fact("version of fl"))
    }
}
