//! [`Run`]: the readable content of a run folder.

use crate::files::{lines, pictures, text_of, whole};
use crate::text;
use anyhow::{Context, bail};
use fl_core::privacy::{Epsilons, Observer, Protection};
use fl_core::{ClientId, Result};
use serde::{Deserialize, Deserializer};
use serde_yaml::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io::{BufRead, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of the measurements.
const METRICS: &str = "metrics.jsonl";

fn shared<'de, D: Deserializer<'de>>(text: D) -> std::result::Result<Arc<str>, D::Error> {
    String::deserialize(text).map(Arc::from)
}

/// A line of `journal.jsonl`: one request. Lines share equal texts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// The step.
    #[serde(deserialize_with = "shared")]
    pub step: Arc<str>,
    /// The label of the exchange.
    #[serde(deserialize_with = "shared")]
    pub question: Arc<str>,
    /// Kind of the messages to the clients.
    #[serde(deserialize_with = "shared")]
    pub down: Arc<str>,
    /// Kind of the answers.
    #[serde(deserialize_with = "shared")]
    pub up: Arc<str>,
    /// The number of clients that got the request.
    pub clients: u64,
    /// The clients whose answers were dropped, and why.
    pub dropped: Vec<(ClientId, String)>,
    /// Bytes to the clients.
    pub bytes_down: Bytes,
    /// Bytes of the answers.
    pub bytes_up: Bytes,
    /// Bytes of their envelopes.
    pub bytes_envelope: u64,
    /// Digest of all messages and answers.
    pub digest: String,
    /// The clients that answered, with the beginning of each answer's digest.
    pub answers: Vec<(ClientId, String)>,
    /// Epsilon after this request, before any release of the server.
    pub privacy: Option<Epsilons>,
}

/// A line of `costs.jsonl`: the total cost of a run after a step.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// The step.
    pub step: String,
    /// Number of the round; 0 for a step that runs once.
    pub round: u64,
    /// Bytes from the clients, envelopes included.
    pub bytes_up: u64,
    /// Bytes to the clients.
    pub bytes_down: u64,
    /// Epsilon of all releases, if the spec has an accountant.
    pub privacy: Option<Epsilons>,
}

impl Cost {
    /// Returns epsilon against this observer, if there is a guarantee.
    pub fn epsilon(&self, observer: Observer) -> Option<f64> {
        *self.privacy.as_ref()?.get(&observer)?
    }

    /// Returns every number, by its name in studies and exports.
    pub fn numbers(&self) -> Vec<(String, f64)> {
        let bytes = [("bytes.up", self.bytes_up), ("bytes.down", self.bytes_down)];
        let bytes = bytes.map(|(name, n)| (name.to_string(), n as f64));
        let epsilon = |o: Observer| Some((format!("epsilon.{}", o.name()), self.epsilon(o)?));
        let epsilons = Observer::ALL.into_iter().filter_map(epsilon);
        bytes.into_iter().chain(epsilons).collect()
    }
}

/// Bytes of messages.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Of the numbers.
    pub values: u64,
    /// Of their row ids.
    pub keys: u64,
}

impl Entry {
    /// Returns the bytes from the server.
    pub fn sent(&self) -> u64 {
        self.bytes_down.values.saturating_add(self.bytes_down.keys)
    }

    /// Returns the bytes from the clients, envelopes included.
    pub fn received(&self) -> u64 {
        (self.bytes_up.values)
            .saturating_add(self.bytes_up.keys)
            .saturating_add(self.bytes_envelope)
    }
}

/// A line of `metrics.jsonl`: one measured number; `None` if it is not finite.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "MetricLine")]
pub struct Metric {
    /// The step. Lines of one step share it.
    pub step: Arc<str>,
    /// Number of the round; 0 for a step that runs once.
    pub round: u64,
    /// The name of the measure. Lines of one name share it.
    pub name: Arc<str>,
    /// The number, or the mean over clients.
    pub value: Option<f64>,
    /// Standard deviation over clients.
    pub std: Option<f64>,
    /// The numbers that it was made from; boxed because few lines have any.
    pub details: Option<Box<MetricDetails>>,
}

/// The numbers that a measurement was made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricDetails {
    /// One number for each of `clients`.
    pub each: Vec<Option<f64>>,
    /// The clients that have a number; empty in a folder of an older fl.
    pub clients: Vec<ClientId>,
    /// Examples by true and by predicted class.
    pub confusion: Vec<Vec<u64>>,
}

impl Metric {
    /// Returns one number for each client that has one; none if it is not a mean over clients.
    pub fn each(&self) -> &[Option<f64>] {
        self.details.as_ref().map_or(&[], |of| &of.each)
    }

    /// Returns examples by true and by predicted class; none if they were not counted.
    pub fn confusion(&self) -> &[Vec<u64>] {
        self.details.as_ref().map_or(&[], |of| &of.confusion)
    }
}

/// A measurement as it is written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MetricLine {
    step: String,
    round: u64,
    name: String,
    value: Option<f64>,
    std: Option<f64>,
    each: Vec<Option<f64>>,
    clients: Vec<ClientId>,
    confusion: Vec<Vec<u64>>,
}

impl From<MetricLine> for Metric {
    fn from(line: MetricLine) -> Self {
        let details = MetricDetails {
            each: line.each,
            clients: line.clients,
            confusion: line.confusion,
        };
        Self {
            step: line.step.into(),
            round: line.round,
            name: line.name.into(),
            value: line.value,
            std: line.std,
            details: (details != MetricDetails::default()).then(|| details.into()),
        }
    }
}

/// Reads all measurements. Texts that are equal are kept once. With `brief`, only the last
/// measurement of each name keeps its details.
fn measurements(path: &Path, notices: &mut Vec<String>, brief: bool) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    let mut last: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    lines(path, METRICS, notices, &mut |mut metric: Metric| {
        if let Some(before) = all.last().filter(|before| before.step == metric.step) {
            metric.step = before.step.clone();
        }
        match last.get_mut(&metric.name) {
            Some(at) => {
                let before = &mut all[*at];
                metric.name = before.name.clone();
                if brief {
                    before.details = None;
                }
                *at = all.len();
            }
            None => {
                last.insert(metric.name.clone(), all.len());
            }
        }
        all.push(metric);
    });
    all
}

/// `outcome.json` of a run that is done.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The outcome.
    pub outcome: Outcome,
    /// Examples of each class at each client.
    pub held: BTreeMap<ClientId, Vec<u64>>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Releases that no accountant covers.
    pub unaccounted: Option<String>,
    /// The releases that have a price; `None` in a folder of an older fl.
    pub releases: Option<serde_json::Value>,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Steps done.
    pub rounds: u64,
    /// The last measurement of each name.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Bytes that crossed.
    pub bytes: Option<Traffic>,
    /// The guarantee against each observer.
    pub privacy: Option<BTreeMap<Observer, serde_json::Value>>,
    /// Digest of the run.
    pub digest: String,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// Bytes that crossed in a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// From clients, envelopes included.
    pub up: u64,
    /// To clients.
    pub down: u64,
}

impl Outcome {
    /// Returns epsilon against this observer: `Some(None)` without a guarantee, `None` without an
    /// accountant.
    pub fn epsilon(&self, observer: Observer) -> Option<Option<f64>> {
        let found = self.privacy.as_ref()?.get(&observer)?;
        Some(found.get("epsilon").and_then(serde_json::Value::as_f64))
    }

    /// Returns the guarantee against this observer; `None` if the spec has no accountant.
    pub fn protection(&self, observer: Observer) -> Option<Protection> {
        serde_json::from_value(self.privacy.as_ref()?.get(&observer)?.clone()).ok()
    }

    /// Returns what a reader must know of an epsilon against this observer
    /// ([`Protection::caveats`]).
    pub fn caveats(&self, observer: Observer) -> Vec<String> {
        let found = self.protection(observer);
        found.map_or(Vec::new(), |protection| protection.caveats())
    }

    /// Returns the guarantee against each observer, as text.
    pub fn guarantees(&self) -> Option<Vec<(Observer, String)>> {
        let all = self.privacy.as_ref()?.iter();
        let words = all.map(|(observer, found)| {
            let read = serde_json::from_value::<Protection>(found.clone());
            (*observer, read.map_or(found.to_string(), |p| p.to_string()))
        });
        Some(words.collect())
    }
}

/// The origin of a run, from `run.json`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub version: String,
    pub started: String,
    pub spec_sha256: String,
    pub command: Vec<String>,
    pub processor: String,
    pub plugins_trust: String,
    pub libraries: Vec<FileHash>,
    pub data: Vec<FileHash>,
    pub rows: Option<String>,
    pub resumed: Vec<ProcessSpan>,
    /// SHA-256 of the program, from the receipts.
    #[serde(skip)]
    pub program: String,
}

/// A process that went on with a run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessSpan {
    pub version: String,
    pub processor: String,
}

impl Origin {
    /// Names what made a run: each input, with its values in order.
    pub fn facts(&self) -> [(&'static str, String); 5] {
        let hashes = |files: &[FileHash]| {
            let all: Vec<&str> = files.iter().map(|file| &file.sha256[..]).collect();
            match &all[..] {
                [] => String::new(),
                [one] => one.chars().take(12).collect(),
                all => sha256(&all.join(" ")).chars().take(12).collect(),
            }
        };
        let each = |first: &String, of: fn(&ProcessSpan) -> &String| {
            let mut all: Vec<&str> = vec![first];
            all.extend(self.resumed.iter().map(|worked| &of(worked)[..]));
            all.dedup();
            all.join(", then ")
        };
        [
            ("set of data files", hashes(&self.data)),
            ("set of libraries", hashes(&self.libraries)),
            ("version of fl", each(&self.version, |w| &w.version)),
            ("processor", each(&self.processor, |w| &w.processor)),
            ("program", self.program.clone()),
        ]
    }

    /// Returns one of [`Origin::facts`].
    pub fn fact(&self, name: &str) -> String {
        let found = self.facts().into_iter().find(|(known, _)| *known == name);
        found.map_or(String::new(), |(_, value)| value)
    }
}

/// Returns the first digits of the hash of the program that made a run, if its receipts have it.
fn program(folder: &Path) -> Option<String> {
    let mut line = String::new();
    let file = std::fs::File::open(folder.join("receipts.jsonl")).ok()?;
    std::io::BufReader::new(file).read_line(&mut line).ok()?;
    let record: serde_json::Value = serde_json::from_str(line.get(65..)?).ok()?;
    let hash = record["session"]["program"]["sha256"].as_str()?;
    Some(hash.get(..12)?.into())
}

/// A file and the hash of its content.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FileHash {
    pub path: String,
    pub sha256: String,
}

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
    /// The total cost after each complete step; `None` in a folder of an older fl.
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
        let spec_text = match text_of(&path.join("spec.yaml")) {
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
        let spec = serde_yaml::from_str(&spec_text)
            .with_context(|| format!("reading {here}/spec.yaml"))?;
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
        origin.program = program(path).unwrap_or_default();
        let summary: Option<Summary> = match path.join("outcome.json").exists() {
            true => whole(path, "outcome.json", &mut notices),
            false => {
                notices.push(not_done(path, &journal));
                None
            }
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
        Ok(Self {
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
        })
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

    /// Returns its protocol.
    pub fn protocol(&self) -> &str {
        let of = self.spec.get("protocol").and_then(|p| p.get("use"));
        of.and_then(Value::as_str).unwrap_or("?")
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

    /// Returns the names of the clients that have a number in `metric`. An older fl did not write
    /// them: then they are all clients if all have a number, and otherwise `1.`, `2.`, .., the
    /// position of the number.
    pub fn clients_of(&self, metric: &Metric) -> Vec<String> {
        let each = metric.each().len();
        let clients = metric.details.as_ref().map_or(&[][..], |of| &of.clients);
        if clients.len() == each {
            return clients.iter().map(u32::to_string).collect();
        }
        let held = self.summary.iter().flat_map(|s| s.held.keys());
        let ids: Vec<String> = held.map(u32::to_string).collect();
        match ids.len() == each {
            true => ids,
            false => (1..=each).map(|n| format!("{n}.")).collect(),
        }
    }

    /// Returns identifiers of the rows that it learnt from: the SHA-256 of every data file and of
    /// the decoded rows in any order, or the set and the seed of generated rows. Runs with an
    /// identifier in common may have learnt from the same rows.
    pub fn data(&self) -> Vec<String> {
        if !self.origin.data.is_empty() {
            let files = self.origin.data.iter().map(|f| &f.sha256);
            return files.chain(&self.origin.rows).cloned().collect();
        }
        vec![format!("{}, seed {}", self.set(), self.seed())]
    }

    /// Returns identifiers of the sources of its clients' rows, and of its public and test rows: the
    /// name of a set that fl knows, or the hash of a file.
    pub fn sources<'r>(&'r self) -> (BTreeSet<&'r str>, BTreeSet<&'r str>) {
        let data = self.spec.get("data");
        let own = data.and_then(|data| data.get("set"));
        let other = data.and_then(|data| data.get("public")?.get("from")?.get("set"));
        let of = |set: Option<&'r Value>, parts: &[&str]| -> BTreeSet<&'r str> {
            let named = set
                .and_then(Value::as_str)
                .filter(|_| parts.contains(&"train"));
            let settings = set.and_then(|set| set.as_mapping()?.values().next());
            let files = parts.iter().filter_map(|part| settings?.get(part));
            let files = files.flat_map(|found| match found {
                Value::Sequence(all) => all.iter().collect(),
                one => vec![one],
            });
            let files: Vec<&Path> = files.filter_map(|f| f.as_str().map(Path::new)).collect();
            let read = self.origin.data.iter();
            let read = read.filter(|f| files.iter().any(|end| Path::new(&f.path).ends_with(end)));
            let mut all: BTreeSet<&str> = read.map(|f| &*f.sha256).collect();
            all.extend(named);
            all
        };
        let mut public = of(other, &["train"]);
        public.extend(of(own, &["test", "validation"]));
        (of(own, &["train"]), public)
    }

    /// Returns the inputs that determine each client's rows: the data section of its spec, and the
    /// seed.
    pub fn deal(&self) -> (String, Option<&Value>) {
        (self.seed(), self.spec.get("data"))
    }

    /// Returns the name of its data set.
    pub fn set(&self) -> &str {
        let set = self.spec.get("data").and_then(|data| data.get("set"));
        let named = set.and_then(Value::as_str);
        named
            .or_else(|| set?.as_mapping()?.keys().next()?.as_str())
            .unwrap_or("?")
    }

    /// Returns its start: RFC 3339, if the folder contains it.
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
        self.journal.iter().any(|e| e.privacy.is_some())
    }

    /// Returns the last measurement of each name, in order of their first.
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
        last
    }
}

fn sha256(text: &str) -> String {
    fl_core::hex(&Sha256::digest(text))
}

/// Reads all requests; with `brief`, without the digests of messages and answers.
fn journal(path: &Path, notices: &mut Vec<String>, brief: bool) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
    lines(path, "journal.jsonl", notices, &mut |mut entry: Entry| {
        if let Some(before) = all.last().filter(|before| before.step == entry.step) {
            entry.step = before.step.clone();
        }
        for text in [&mut entry.question, &mut entry.down, &mut entry.up] {
            match known.get(text) {
                Some(found) => *text = found.clone(),
                None => _ = known.insert(text.clone()),
            }
        }
        if brief {
            entry.answers = Vec::new();
            entry.digest = String::new();
        }
        all.push(entry);
    });
    all
}

/// Returns the bytes of all requests.
fn journalled(journal: &[Entry]) -> Traffic {
    let add = |sum: Traffic, e: &Entry| Traffic {
        up: sum.up.saturating_add(e.received()),
        down: sum.down.saturating_add(e.sent()),
    };
    journal.iter().fold(Traffic::default(), add)
}

/// What a run with an accountant guarantees before its end.
pub(crate) const UNFINISHED: &str = "nothing: the run is not done";

/// Returns the observer of an epsilon or a delta (`epsilon.readers`, `data-epsilon.readers`).
pub fn observer_of(measure: &str) -> Option<Observer> {
    let (what, whom) = measure.split_once('.')?;
    let cost = what.strip_prefix("data-").unwrap_or(what);
    let cost = matches!(cost, "epsilon" | "delta");
    cost.then(|| Observer::ALL.into_iter().find(|o| o.name() == whom))?
}

/// Describes a contradiction between the files of a finished run about its bytes and epsilons.
/// `costs` are the lines of `costs.jsonl`, if the folder has it.
fn other_costs(outcome: &Outcome, journal: &[Entry], costs: Option<&[Cost]>) -> Option<String> {
    let said = outcome.bytes?;
    let bytes = |file: &str, found: Traffic| {
        (found != said).then(|| {
            format!(
                "{file} is damaged: it has {} bytes up and {} down, and outcome.json has {} and {}.",
                found.up, found.down, said.up, said.down
            )
        })
    };
    let epsilon = |cost: &Cost| {
        let differs = |o: &Observer| outcome.epsilon(*o).flatten() != cost.epsilon(*o);
        let observer = Observer::ALL.into_iter().find(differs)?;
        let shown = |e: Option<f64>| e.map_or("nothing".into(), |e| e.to_string());
        Some(format!(
            "costs.jsonl is damaged: its last epsilon against {observer} is {}, and outcome.json says {}.",
            shown(cost.epsilon(observer)),
            shown(outcome.epsilon(observer).flatten())
        ))
    };
    let crossed = |cost: &Cost| Traffic {
        up: cost.bytes_up,
        down: cost.bytes_down,
    };
    let of_costs = || match costs? {
        [] => Some("costs.jsonl is damaged: it is empty.".into()),
        [.., last] => bytes("costs.jsonl", crossed(last)).or_else(|| epsilon(last)),
    };
    bytes("journal.jsonl", journalled(journal)).or_else(of_costs)
}

/// Describes a contradiction between two files of a finished run about one number.
fn contradiction(outcome: &Outcome, metrics: &[Metric]) -> Option<String> {
    let last: BTreeMap<&str, &Metric> = metrics.iter().map(|m| (&m.name[..], m)).collect();
    let found = outcome.metrics.iter().find_map(|(name, said)| {
        let last = |name: &str| last.get(name).copied();
        // a deviation is on its mean's line
        let found = match (last(name), name.strip_suffix(".std").map(last)) {
            (Some(of), _) => of.value,
            (None, Some(Some(mean))) => mean.std,
            (None, _) => return Some((name, *said, None)),
        };
        (found != *said).then_some((name, *said, found))
    });
    let (name, said, last) = found?;
    let shown = |value: Option<f64>| value.map_or("nothing".into(), |v| v.to_string());
    Some(format!(
        "metrics.jsonl is damaged: its last `{name}` is {}, and outcome.json says {}.",
        shown(last),
        shown(said)
    ))
}

fn not_done(path: &Path, journal: &[Entry]) -> String {
    if path.join("report.md").exists() {
        return "There is no outcome.json: an older fl made this folder. Each client's classes are in report.md.".into();
    }
    let so_far = match journal.last() {
        Some(entry) => format!("the last exchange of its journal is of {}", entry.step),
        None => "no exchange has taken place yet".into(),
    };
    let how = match (path.join("lock").exists(), path.join("state").exists()) {
        (_, true) => "it is running, or was stopped and can go on with --resume",
        (true, false) => "it still works, or was ended",
        _ => "it has failed, or was ended",
    };
    format!("This run is not done: {so_far}; {how}. The page shows the results so far.")
}
