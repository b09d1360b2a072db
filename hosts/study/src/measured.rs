//! What a run came to, by name.

use crate::expand::RunSpec;
use crate::tables::Answers;
use fl_core::Result;
use fl_report::{Metric, Run};
use std::path::Path;

/// Everything of a run that a table may ask for.
#[derive(Clone, Debug)]
pub struct Measured {
    run: Run,
}

impl Measured {
    /// Of the run in this folder, which must be done.
    ///
    /// # Errors
    /// When it cannot be read, is not done, or something of it is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        let run = Run::open(folder)?;
        if let Some(notice) = run.notices.first() {
            anyhow::bail!("{}: {notice}", folder.display());
        }
        Ok(Self { run })
    }

    /// The number of this name, last or in a round. Apart from what was measured there are `bytes.up`, `bytes.down`, `seconds`,
    /// `epsilon.server`, `epsilon.clients`, `epsilon.readers` and `delta.` of the same.
    pub fn get(&self, name: &str, round: Option<u64>) -> Option<f64> {
        let outcome = || self.run.summary.as_ref().map(|s| &s.outcome);
        match (name.split_once('.'), round) {
            (Some(("bytes", "up")), None) => Some(self.run.bytes().1 as f64),
            (Some(("bytes", "down")), None) => Some(self.run.bytes().0 as f64),
            (Some((cost @ ("epsilon" | "delta"), whom)), None) => {
                let all = outcome()?.privacy.as_ref()?;
                let (_, found) = all.iter().find(|(o, _)| {
                    serde_json::to_value(o).is_ok_and(|o| o.as_str() == Some(whom))
                })?;
                found.get(cost)?.as_f64()
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
            all.map(|m| m.round).collect::<Vec<_>>()
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
        ];
        all.extend(
            others
                .iter()
                .filter_map(|name| Some((name.to_string(), self.get(name, None)?))),
        );
        all
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

/// Seed and number of every run that has it.
pub(crate) fn values(
    answers: &Answers,
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
