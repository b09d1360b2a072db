//! The records of a [`DataLedger`](crate::DataLedger).

use fl_core::privacy::{Noise, Observer, Unit};
use fl_sim::Releases;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The limit on the releases of each data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The largest epsilon over all runs.
    pub epsilon: f64,
    /// The observer that it limits.
    pub against: Observer,
    /// The largest delta over all runs, if there is a limit.
    pub delta: Option<f64>,
}

/// The rows of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataId {
    /// The user's name for the data set.
    pub name: String,
    /// Hash of the decoded rows, in any order.
    pub rows: String,
    /// Hash of the split: which client has which of the rows.
    pub split: String,
    /// Whether a spec dealt the rows to the clients.
    pub dealt: bool,
    /// Some of the clients' rows ([`DataLedger::sample`](crate::DataLedger::sample)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample: Vec<String>,
    /// Some of the run's public and test rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub public: Vec<String>,
}

impl DataId {
    /// Returns whether a public row of a run with these data is a row of the clients of `other`.
    pub fn publishes(&self, other: &Self) -> bool {
        // of one choice of public rows in one set, rows may be equal by chance
        let same = self.rows == other.rows && self.public == other.public;
        let sample: BTreeSet<&String> = other.sample.iter().collect();
        !same && self.public.iter().any(|row| sample.contains(row))
    }
}

/// An accountant and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountantId {
    /// Its name in specs.
    pub name: String,
    /// All its settings.
    pub settings: serde_json::Value,
}

impl std::fmt::Display for AccountantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.settings {
            serde_json::Value::Object(all) if !all.is_empty() => {
                write!(f, "{} {}", self.name, self.settings)
            }
            _ => f.write_str(&self.name),
        }
    }
}

/// What a run spends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// These releases, or fewer.
    Releases(Releases),
    /// At most this much, by the run's own budget.
    AtMost {
        /// Epsilon.
        epsilon: f64,
        /// Delta.
        delta: f64,
        /// The unit that the budget protects, if it is known before the run.
        #[serde(default)]
        unit: Option<Unit>,
    },
    /// Known only at the end of the run.
    Unknown,
}

/// What a run spends, and what it shows without a price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spending {
    /// Its releases.
    pub amount: Amount,
    /// For each observer without a guarantee against it: the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nothing: BTreeMap<Observer, Vec<String>>,
}

/// Names a run and its spec: a copy of a run folder that continues with another spec draws other
/// noise, so it spends anew.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunId {
    /// Drawn when the run began.
    pub run: String,
    /// SHA-256 of its resolved spec.
    pub spec: String,
}

/// A run that may spend this much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// The run.
    pub id: RunId,
    /// When, in the form of RFC 3339.
    pub time: String,
    /// The run's name and seed.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Its rows.
    pub data: DataId,
    /// Its accountant; without one nothing is guaranteed.
    pub accountant: Option<AccountantId>,
    /// The source of its noise.
    pub noise: Noise,
    /// The libraries that its guarantee rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claimed_by: Vec<String>,
    /// What it may spend.
    pub most: Spending,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Record {
    /// The first record.
    Begun {
        version: u32,
        /// Tells ledgers apart.
        ledger: String,
        limit: Option<Limit>,
        /// Digest of the key of the row hashes.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        key: String,
    },
    /// A run begins, or resumes.
    Reserved(Box<Reservation>),
    /// An observer saw something without a price.
    Seen {
        id: RunId,
        observer: Observer,
        why: String,
    },
    /// A run stopped at a checkpoint; no release came after it.
    Stopped { id: RunId },
    /// A run is done.
    Settled { id: RunId, spent: Spending },
}
