//! The records of a [`DataLedger`](crate::DataLedger).

use crate::rows::{DataId, RowKey, UserKey};
use fl_core::Result;
use fl_core::privacy::{Neighbours, Noise, Observer, Unit};
use fl_sim::Releases;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// An accountant and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// What the own budget of a run allows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnBudget {
    /// Epsilon.
    pub epsilon: f64,
    /// Delta.
    pub delta: f64,
    /// The observer that it limits. Those who see less are limited as well.
    pub against: Observer,
    /// The unit and the pairs of data sets that it is about, if they are known before the run.
    pub protects: Option<(Unit, Neighbours)>,
}

/// What a run spends, and what it shows without a price.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spending {
    /// Its releases, or fewer; `None` if only its end tells.
    pub releases: Option<Releases>,
    /// Its own budget, if the releases may come to more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<OwnBudget>,
    /// For each observer without a guarantee against it: the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nothing: BTreeMap<Observer, Vec<String>>,
}

/// What bounds the price of a run against an observer.
pub(crate) enum Bound<'a> {
    Releases(&'a Releases),
    Budget(&'a OwnBudget),
    /// Known only at the end of the run.
    Unknown,
}

impl Spending {
    pub(crate) fn bound(&self, observer: Observer) -> Bound<'_> {
        // in the order of observers each sees no more than the one before
        let budget = self.budget.as_ref();
        match (budget.filter(|own| own.against <= observer), &self.releases) {
            (Some(own), _) => Bound::Budget(own),
            (None, Some(releases)) => Bound::Releases(releases),
            (None, None) => Bound::Unknown,
        }
    }
}

/// Names a run and its spec: a copy of a run folder that continues with another spec draws other
/// noise, so it spends anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The number of the stop that it goes on from. The first run that does so replaces the stopped
    /// one; every other is a run beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<u64>,
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

impl Reservation {
    /// Describes the run for a place that others may read: only `key`, with which its rows were
    /// hashed, opens their hashes.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn sealed(self, key: &RowKey) -> Result<Self> {
        Ok(Self {
            data: self.data.seal(key)?,
            ..self
        })
    }

    /// Reads what [`sealed`](Self::sealed) made. Only the user whose key it was opens the hashes.
    pub(crate) fn of_book(book: &serde_json::Value, user: &UserKey) -> Option<Self> {
        let mut read = Self::deserialize(book).ok()?;
        if read.data.is_sealed()
            && let Some(key) = user.as_ref()
        {
            read.data = read.data.open(key);
        }
        Some(read)
    }
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
        /// Names the key of the row hashes.
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
    /// A run stopped at a checkpoint; no release came after it. The number of this record is that of
    /// the stop.
    Stopped { id: RunId },
    /// A run is done.
    Settled { id: RunId, spent: Spending },
}
