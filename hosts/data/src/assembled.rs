//! [`Assembled`]: the data of a run.

use crate::features::FeatureMap;
use crate::shared_rows::{RowHash, RowSet, hashes};
use fl_core::{Examples, PrivacyEvent, Samples, Task};
use fl_data_kit::Normalise;

/// The data of a run. All views of one part of a set share its storage.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// What each client trains with; some may own nothing.
    pub clients: Vec<Examples>,
    /// What each client sets aside for validation: one per client, or empty if the spec asks for
    /// none.
    pub client_validation: Vec<Examples>,
    /// Samples that all may see.
    pub public: Option<PublicSamples>,
    /// Examples for all tests.
    pub test: Examples,
    /// What each client's own model is tested with, if clients belong to domains or test with rows
    /// of their own: one per client, or empty.
    pub client_tests: Vec<Examples>,
    /// Are these rows of the clients' own?
    pub own_tests: bool,
    /// The set's own validation rows, if it has any.
    pub validation: Option<Examples>,
    /// What is to be learned.
    pub task: Task,
    /// The file or user of each client, if each has one of its own; empty otherwise.
    pub owners: Vec<String>,
    /// Names of the classes, if the files give them.
    pub classes: Vec<String>,
    /// What became of each column of the files: its name, and how it is read.
    pub columns: Vec<(String, String)>,
    /// Warnings about an extreme split. They disclose how much a client has, so they are not
    /// shown in runs with an accountant.
    pub uneven: Vec<String>,
    /// As `notes`, but they tell of single rows, such as one that is a test row too. Runs with an
    /// accountant do not show them.
    pub hidden_notes: Vec<String>,
    /// What a user should know before a run: what was inferred from the rows, what is missing.
    pub notes: Vec<String>,
    /// As `notes`, for runs in which a part crops images: which of them get no black border.
    pub no_black: Vec<String>,
    /// Properties inferred from all rows of the clients: kinds of columns, categories,
    /// classes, means. Observers of a run see some of them.
    pub inferred: Vec<String>,
    /// The hash of the rows of the clients' set ([`build_identified`](crate::build_identified)).
    pub digest: Option<String>,
    /// The hashes of single rows ([`build_identified`](crate::build_identified)).
    pub identity: Option<RowIdentity>,
    /// What was taken from each value; `None` if the values are as in the files.
    pub normalise: Option<Normalise>,
    /// Were the inputs images of bytes? Their values are divided by 255, and others are not.
    pub bytes: bool,
    /// What the inputs were put through after that, if the spec has `features`.
    pub features: Option<FeatureMap>,
    /// The test and the public rows before these features.
    pub(crate) plain: Option<[RowSet; 2]>,
    /// What the runs released that made some of these rows from clients' rows.
    pub inherited: Vec<PrivacyEvent>,
    /// A row that two clients have. A guarantee for one example assumes that it is one client's.
    pub twice: Option<String>,
}

impl Assembled {
    /// How many of these rows are test rows, and how many of them are public. Features do not
    /// matter, by which different rows may become the same: `rows` are without.
    pub fn shared_rows(&self, rows: &Samples) -> [usize; 2] {
        let now = || self.row_sets();
        let sets = self.plain.clone().unwrap_or_else(now);
        sets.map(|set| set.count(hashes(rows)))
    }

    /// The test and the public rows, as they are now.
    pub(crate) fn row_sets(&self) -> [RowSet; 2] {
        let public = self.public.as_ref().map(|public| &public.samples);
        [Some(&self.test.samples), public].map(|rows| RowSet::of(rows.into_iter().flat_map(hashes)))
    }
}

/// The hashes of rows as they were decoded.
#[derive(Clone, Debug)]
pub struct RowIdentity {
    /// Those of each client, of all its rows.
    pub clients: Vec<Vec<RowHash>>,
    /// Those of public rows, and of the test rows of a user's own set.
    pub public: Vec<RowHash>,
}

/// The public samples.
#[derive(Clone, Debug)]
pub struct PublicSamples {
    /// The inputs.
    pub samples: Samples,
    /// The same rows with their labels, if the spec makes them public.
    pub labelled: Option<Examples>,
    /// The same rows with their labels, for measurements only; `None` if they come from another
    /// set, whose classes mean something else.
    pub truth: Option<Examples>,
}
