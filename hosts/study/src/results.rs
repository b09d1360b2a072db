//! What a run came to, by name.

use crate::model::RunSpec;
use fl_core::Result;
use fl_core::privacy::Observer;
use fl_report::{Metric, Run};
use std::collections::BTreeMap;
use std::path::Path;

/// Everything of a run that a table may ask for.
#[derive(Clone, Debug)]
pub struct RunResult {
    run: Run,
}

impl RunResult {
    /// Of the run in this folder, which must be done.
    ///
    /// # Errors
    /// When it cannot be read, is not done, or something of it is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        let run = Run::open_brief(folder)?;
        if let Some(notice) = run.notices.first() {
            anyhow::bail!("{}: {notice}", folder.display());
        }
        Ok(Self { run })
    }

    /// The number of this name, last or in a round. Apart from what was measured there are
    /// `bytes.up`, `bytes.down`, `epsilon.server`, `epsilon.clients`, `epsilon.readers`, and, of
    /// the whole run only, `seconds`, `delta.` of the same observers, and `data-epsilon.` and
    /// `data-delta.` where nothing is guaranteed because the price follows the data.
    pub fn get(&self, name: &str, round: Option<u64>) -> Option<f64> {
        let outcome = || self.run.summary.as_ref().map(|s| &s.outcome);
        match (name.split_once('.'), round) {
            (Some(("bytes", "up")), None) => Some(self.run.bytes().up as f64),
            (Some(("bytes", "down")), None) => Some(self.run.bytes().down as f64),
            (Some((cost @ ("epsilon" | "delta" | "data-epsilon" | "data-delta"), whom)), None) => {
                let observer = Observer::ALL.into_iter().find(|o| o.name() == whom)?;
                let told = outcome()?.privacy.as_ref()?.get(&observer)?;
                match cost.strip_prefix("data-") {
                    Some(cost) => told.get("of_these_data")?.get(cost)?.as_f64(),
                    None => told.get(cost)?.as_f64(),
                }
            }
            (Some(("bytes" | "epsilon", _)), Some(round)) => {
                let numbers = self.run.cost_in(round)?.numbers();
                numbers
                    .into_iter()
                    .find(|(of, _)| of == name)
                    .map(|(_, n)| n)
            }
            _ if name == "seconds" && round.is_none() => Some(outcome()?.seconds),
            _ => self.measurement(name, round),
        }
    }

    /// The rounds in which one of these was measured, in order.
    pub fn rounds(&self, names: &[String]) -> Vec<u64> {
        let of = |name: &String| {
            let name = name.strip_suffix(".std").unwrap_or(name);
            let all = self.run.metrics.iter().filter(|m| m.name == name);
            let measured = all.map(|m| m.round);
            let costs = self.run.costs.iter().flatten();
            let costs = costs.filter(|c| c.numbers().iter().any(|(of, _)| of == name));
            measured.chain(costs.map(|c| c.round)).collect::<Vec<_>>()
        };
        let mut all = names.iter().map(of);
        all.find(|rounds| !rounds.is_empty()).unwrap_or_default()
    }

    fn measurement(&self, name: &str, round: Option<u64>) -> Option<f64> {
        let (name, std) = match name.strip_suffix(".std") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut all = self.run.metrics.iter().rev();
        let found = all.find(|m| m.name == name && round.is_none_or(|r| m.round == r))?;
        if std { found.std } else { found.value }
    }

    /// The last of everything that was measured, for a table of runs.
    pub fn all(&self) -> Vec<(String, f64)> {
        let last = self.run.last();
        let both = |m: &&Metric| {
            let std = m.std.map(|std| (format!("{}.std", m.name), std));
            m.value
                .map(|value| (m.name.clone(), value))
                .into_iter()
                .chain(std)
        };
        let mut all: Vec<(String, f64)> = last.iter().flat_map(both).collect();
        let others = [
            "bytes.up",
            "bytes.down",
            "seconds",
            "epsilon.server",
            "epsilon.clients",
            "epsilon.readers",
            "data-epsilon.readers",
        ];
        all.extend(
            others
                .iter()
                .filter_map(|name| Some((name.to_string(), self.get(name, None)?))),
        );
        all
    }

    /// The run.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// The run's digest.
    pub fn digest(&self) -> &str {
        self.run.summary.as_ref().map_or("", |s| &s.outcome.digest)
    }

    /// How long it took, in seconds.
    pub fn seconds(&self) -> f64 {
        self.run.summary.as_ref().map_or(0.0, |s| s.outcome.seconds)
    }
}

/// What each run came to, or why it failed; runs that have not been run are not in it.
pub type RunResults = BTreeMap<RunSpec, std::result::Result<RunResult, String>>;

/// Seed and number of every run that has it.
pub(crate) fn values(
    answers: &RunResults,
    runs: &[(u64, RunSpec)],
    names: &[String],
    round: Option<u64>,
) -> Vec<(u64, f64)> {
    let of = |(seed, run): &(u64, RunSpec)| {
        let measured = answers.get(run)?.as_ref().ok()?;
        let value = names.iter().find_map(|name| measured.get(name, round))?;
        value.is_finite().then_some((*seed, value))
    };
    runs.iter().filter_map(of).collect()
}
