//! The outcome of a run that is done.

use fl_core::ClientId;
use fl_core::privacy::{Observer, Protection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `outcome.json` of a run that is done.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The outcome.
    pub outcome: Outcome,
    /// Examples of each class at each client.
    pub held: BTreeMap<ClientId, Vec<u64>>,
    /// What a reader should know of the data.
    pub data_notes: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Releases that no accountant covers.
    pub unaccounted: Option<String>,
    /// The releases that have a price.
    pub releases: Option<serde_json::Value>,
}

/// Splits the note of a mean that leaves out clients, after its step, into the measure and what is
/// said of it; `None` of any other note.
pub fn of_some_clients(note: &str) -> Option<(&str, &str)> {
    let (name, said) = note.split_once(": `")?.1.split_once("` is of ")?;
    said.contains(" clients: ").then_some((name, said))
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
    /// Wall-clock seconds; `None` with an accountant.
    pub seconds: Option<f64>,
}

/// Bytes that crossed in a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

    /// Returns why nothing is guaranteed, for every observer of whom that is so.
    pub fn nothing(&self) -> impl Iterator<Item = &str> {
        let all = self.privacy.iter().flat_map(|all| all.values());
        let reasons = all.filter_map(|found| found.get("nothing")?.as_array());
        reasons.flatten().filter_map(serde_json::Value::as_str)
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

/// What a run with an accountant guarantees before its end.
pub(crate) const UNFINISHED: &str = "nothing: the run is not done";

/// Returns the observer of an epsilon or a delta (`epsilon.readers`, `data-epsilon.readers`).
pub fn observer_of(measure: &str) -> Option<Observer> {
    let (what, whom) = measure.split_once('.')?;
    let cost = what.strip_prefix("data-").unwrap_or(what);
    let cost = matches!(cost, "epsilon" | "delta");
    cost.then(|| Observer::ALL.into_iter().find(|o| o.name() == whom))?
}
