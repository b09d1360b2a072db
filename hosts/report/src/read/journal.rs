//! The requests of a run, and what each step costs.

use super::Traffic;
use crate::files::lines;
use fl_core::ClientId;
use fl_core::privacy::{Epsilons, Observer};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

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

/// Bytes of messages.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Of the numbers.
    pub values: u64,
    /// Of their row ids.
    pub keys: u64,
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

/// Reads all requests; with `brief`, without the digests of messages and answers.
pub(super) fn journal(path: &Path, notices: &mut Vec<String>, brief: bool) -> Vec<Entry> {
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
pub(super) fn journalled(journal: &[Entry]) -> Traffic {
    let add = |sum: Traffic, e: &Entry| Traffic {
        up: sum.up.saturating_add(e.received()),
        down: sum.down.saturating_add(e.sent()),
    };
    journal.iter().fold(Traffic::default(), add)
}
