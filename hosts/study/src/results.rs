//! [`RunResult`]: the results of a run, by name.

use crate::columns::Rounds;
use crate::costs::COSTS;
use crate::model::RunSpec;
use anyhow::Context;
use fl_core::privacy::Observer;
use fl_core::{Better, Result};
use fl_report::{Cost, Metric, Run, RunRecord, observer_of, of_some_clients};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Everything of a run that a table may use.
#[derive(Clone, Debug)]
pub struct RunResult {
    run: Run,
    /// Why another program may come to other numbers, if it may.
    pub(crate) older: Option<String>,
}

impl RunResult {
    /// Reads the results of the run in this folder, which must be done.
    ///
    /// # Errors
    /// If it cannot be read, is not done, or is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        let run = Run::open_brief(folder)?;
        if let Some(notice) = run.notices.first() {
            anyhow::bail!("{}: {notice}", folder.display());
        }
        Ok(Self { run, older: None })
    }

    /// Takes the results from the record of a run with this resolved spec. `place` says where the
    /// record stands, and `older` why the present program may come to other numbers.
    ///
    /// # Errors
    /// If the spec is no YAML.
    pub fn recorded(
        record: RunRecord,
        spec: String,
        place: PathBuf,
        older: Option<String>,
    ) -> Result<Self> {
        let run = record.run(spec, place)?;
        Ok(Self { run, older })
    }

    /// Returns the same run as it is kept in a folder, which has more of it than a record: the
    /// scores of single clients. A run with another digest is another one, and is not taken.
    #[must_use]
    pub fn or_kept(self, kept: Self) -> Self {
        if kept.digest() == self.digest() {
            let older = self.older;
            Self { older, ..kept }
        } else {
            self
        }
    }

    /// Returns the record of the run.
    ///
    /// # Errors
    /// If the run is not done.
    pub fn record(&self) -> Result<RunRecord> {
        RunRecord::of(&self.run).context("the run is not done")
    }

    /// Returns the number called `name` of these rounds. Besides measurements
    /// there are `bytes.up`, `bytes.down`, `epsilon.server`, `epsilon.clients` and
    /// `epsilon.readers`. For the whole run only there are `seconds`, and `delta.` of the same
    /// observers. If nothing is guaranteed because the price depends on the data, there are
    /// `data-epsilon.` and `data-delta.`.
    pub fn get(&self, name: &str, of: Rounds) -> Option<f64> {
        let outcome = || self.run.summary.as_ref().map(|s| &s.outcome);
        match (name.split_once('.'), of) {
            (Some(("bytes", "up")), Rounds::Last) => Some(self.run.bytes().up as f64),
            (Some(("bytes", "down")), Rounds::Last) => Some(self.run.bytes().down as f64),
            (
                Some((cost @ ("epsilon" | "delta" | "data-epsilon" | "data-delta"), _)),
                Rounds::Last,
            ) => {
                let told = outcome()?.privacy.as_ref()?.get(&observer_of(name)?)?;
                match cost.strip_prefix("data-") {
                    Some(cost) => told.get("of_these_data")?.get(cost)?.as_f64(),
                    None => told.get(cost)?.as_f64(),
                }
            }
            (Some(("bytes" | "epsilon", _)), Rounds::One(round)) => {
                let numbers = self.run.cost_in(round)?.numbers();
                numbers
                    .into_iter()
                    .find(|(of, _)| of == name)
                    .map(|(_, n)| n)
            }
            _ if name == "seconds" && of == Rounds::Last => outcome()?.seconds,
            _ => self.measurement(name, of),
        }
    }

    /// Returns what a reader must know of an epsilon or a delta (`epsilon.readers`): that its noise
    /// is seeded, which libraries claim it, or why it is no guarantee.
    pub fn caveats(&self, name: &str) -> Vec<String> {
        let outcome = self.run.summary.as_ref().map(|summary| &summary.outcome);
        let outcome = outcome.zip(observer_of(name));
        outcome.map_or(Vec::new(), |(outcome, whom)| outcome.caveats(whom))
    }

    /// Returns what a reader should know of the run's data.
    pub fn data_notes(&self) -> &[String] {
        let summary = self.run.summary.as_ref();
        summary.map_or(&[], |summary| &summary.data_notes)
    }

    /// Returns what a reader should know of the attack, such as that it changes nothing.
    pub(crate) fn attack_notes(&self) -> Vec<String> {
        let notes = self.run.summary.iter().flat_map(|summary| &summary.notes);
        let said = notes.filter_map(|note| {
            let (slot, said) = note.split_once(": parts.")?.1.split_once(": ")?;
            let whole = slot.split_once(" of stage ").map_or(slot, |(name, _)| name);
            ["attack", "labels"].contains(&whole).then(|| said.into())
        });
        said.collect()
    }

    /// Returns what a reader should know of these measures whose means leave out clients, and of
    /// what is computed over the same clients, such as their worst tenth.
    pub(crate) fn partial_notes(&self, names: &BTreeSet<&String>) -> Vec<String> {
        let ends = |name: &str| {
            let name = name.strip_suffix(".std").unwrap_or(name);
            let (of, rest) = name.split_once('.')?;
            Some((of.to_string(), rest.rsplit('.').next()?.to_string()))
        };
        let asked: BTreeSet<_> = names.iter().filter_map(|name| ends(name)).collect();
        let notes = self.run.summary.iter().flat_map(|summary| &summary.notes);
        let partial = notes.filter_map(|note| {
            let (name, said) = of_some_clients(note)?;
            let shown = ends(name).is_some_and(|name| asked.contains(&name));
            shown.then(|| format!("`{name}` is of {said}"))
        });
        partial.collect()
    }

    /// Returns whether it has a number of this name that is a part of a guarantee, of the whole run
    /// or after a step.
    pub(crate) fn shows_cost(&self, name: &str) -> bool {
        let of_step = |cost: &Cost| cost.numbers().iter().any(|(of, _)| of == name);
        let after_steps = || self.run.costs.iter().flatten().any(of_step);
        observer_of(name).is_some() && (self.get(name, Rounds::Last).is_some() || after_steps())
    }

    /// Returns the rounds with a measurement of one of these names, in order.
    pub fn rounds(&self, names: &[String]) -> Vec<u64> {
        let of = |name: &String| {
            let name = name.strip_suffix(".std").unwrap_or(name);
            let all = self.run.metrics.iter().filter(|m| *m.name == *name);
            let measured = all.map(|m| m.round);
            let costs = self.run.costs.iter().flatten();
            let costs = costs.filter(|c| c.numbers().iter().any(|(of, _)| of == name));
            measured.chain(costs.map(|c| c.round)).collect::<Vec<_>>()
        };
        let mut all = names.iter().map(of);
        all.find(|rounds| !rounds.is_empty()).unwrap_or_default()
    }

    fn measurement(&self, name: &str, of: Rounds) -> Option<f64> {
        let (name, std) = match name.strip_suffix(".std") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut all = self.run.metrics.iter().rev().filter(|m| *m.name == *name);
        let found = match of {
            Rounds::Last => all.next(),
            Rounds::One(round) => all.find(|m| m.round == round),
            Rounds::Best => {
                let all = all.filter(|m| m.value.is_some_and(f64::is_finite));
                let order = |a: &&Metric, b: &&Metric| a.value.partial_cmp(&b.value);
                let order = |a: &&Metric, b: &&Metric| order(a, b).unwrap_or(Ordering::Equal);
                match fl_core::metrics::better(name) {
                    Some(Better::Lower) => all.min_by(order),
                    _ => all.max_by(order),
                }
            }
        }?;
        if std { found.std } else { found.value }
    }

    /// Returns the last number of every measure, for a table of runs.
    pub fn all(&self) -> Vec<(String, f64)> {
        let last = self.run.last();
        let both = |m: &&Metric| {
            let std = m.std.map(|std| (format!("{}.std", m.name), std));
            m.value
                .map(|value| (m.name.to_string(), value))
                .into_iter()
                .chain(std)
        };
        let mut all: Vec<(String, f64)> = last.iter().flat_map(both).collect();
        let costs = COSTS.iter();
        all.extend(
            costs.filter_map(|name| Some((name.to_string(), self.get(name, Rounds::Last)?))),
        );
        all
    }

    /// Returns the last number of every measure as text, with the guarantee that it is a part of.
    /// An epsilon that is no guarantee has no number.
    pub(crate) fn lines(&self) -> Vec<(String, String, String)> {
        let guarantee = |name: &str| self.run.guarantee_of(name).unwrap_or_default();
        let numbers = self.all().into_iter();
        let numbers = numbers.map(|(name, value)| {
            let guarantee = guarantee(&name);
            (name, value.to_string(), guarantee)
        });
        let names = Observer::ALL.map(|observer| format!("epsilon.{}", observer.name()));
        let without = names.into_iter().filter_map(|name| {
            let none = self.get(&name, Rounds::Last).is_none();
            let why = self.run.guarantee_of(&name).filter(|_| none)?;
            Some((name, String::new(), why))
        });
        numbers.chain(without).collect()
    }

    /// Returns the run.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the resolved spec of the run.
    pub fn spec(&self) -> &serde_yaml::Value {
        &self.run.spec
    }

    /// Returns the run's digest.
    pub fn digest(&self) -> &str {
        self.run.summary.as_ref().map_or("", |s| &s.outcome.digest)
    }

    /// Returns its duration in seconds, which a run with an accountant does not state.
    pub fn seconds(&self) -> Option<f64> {
        self.run.summary.as_ref()?.outcome.seconds
    }
}

/// The result of each run, or why it failed; without runs that have not been executed.
pub type RunResults = BTreeMap<RunSpec, std::result::Result<RunResult, String>>;

/// Returns seed and number of every run that has the number.
pub(crate) fn values(
    answers: &RunResults,
    runs: &[(u64, RunSpec)],
    names: &[String],
    of: Rounds,
) -> Vec<(u64, f64)> {
    let value = |(seed, run): &(u64, RunSpec)| {
        let measured = answers.get(run)?.as_ref().ok()?;
        let value = names.iter().find_map(|name| measured.get(name, of))?;
        value.is_finite().then_some((*seed, value))
    };
    runs.iter().filter_map(value).collect()
}
