//! What a data set is: its settings, what is known of it, and how it is read.
//!
//! ```
//! # // ANCHOR: set
//! use fl_core::{Inputs, Labels, Task, TaskKind};
//! use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows};
//! fl_core::settings! {
//!     /// Two classes that a sign tells apart.
//!     pub struct Signs {
//!         /// Training rows, and as many test rows.
//!         rows: usize = 4, in 1..=1000;
//!     }
//! }
//! impl DataSet for Signs {
//!     fn facts(&self) -> DataSetFacts {
//!         DataSetFacts::made(self.rows, self.rows)
//!     }
//!     fn task(&self) -> Option<Task> {
//!         Some(Task { input: vec![1], kind: TaskKind::Classes(2) })
//!     }
//!     fn load(&self, _: &Folder<'_>) -> anyhow::Result<Rows> {
//!         let data = (0..self.rows).map(|i| if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
//!         let of = (0..self.rows).map(|i| (i % 2) as u32).collect();
//!         let part = (Inputs::Dense { shape: vec![1], data }, Labels::Classes { of, classes: 2 });
//!         Ok(Rows::new(part.clone(), part))
//!     }
//! }
//! fl_data_kit::data_set!("signs" => Signs);
//! # // ANCHOR_END: set
//! let set: fl_data_kit::SetSpec = fl_core::settings::read_yaml("{signs: {rows: 10}}").unwrap();
//! assert_eq!(set.task().unwrap().kind, TaskKind::Classes(2));
//! ```

use crate::download::Download;
use crate::facts::DataSetFacts;
use crate::folder::Folder;
use crate::normalise::Normalise;
use anyhow::Result;
use fl_core::settings::Step;
use fl_core::{Inputs, Labels, Task, TaskKind};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A data set: what follows from its settings. [`data_set!`](crate::data_set!) gives it its name in
/// specs.
pub trait DataSet: Debug + Send + Sync + 'static {
    /// What is known of it before any file is opened.
    fn facts(&self) -> DataSetFacts;

    /// What is to be learnt; `None` if only its files say.
    fn task(&self) -> Option<Task>;

    /// The largest number of a word or a letter in its rows, 0 if they hold other numbers; `None`
    /// if only its files say.
    fn vocabulary(&self) -> Option<usize> {
        None
    }

    /// Reads its files in `folder`, or makes its rows; nothing is scaled here.
    ///
    /// # Errors
    /// If a file is missing or damaged: says which, where in it, and what would be right.
    fn load(&self, folder: &Folder<'_>) -> Result<Rows>;

    /// Its files that may be fetched, and from where (`fl data get`).
    fn downloads(&self) -> &'static [Download] {
        &[]
    }

    /// What is taken from each value unless the spec says otherwise.
    fn scale(&self, _train: &Inputs) -> Option<Normalise> {
        self.facts().statistics.map(|(mean, std)| Normalise {
            mean: mean.to_vec(),
            std: std.to_vec(),
        })
    }

    /// Paths among its settings are relative to `folder`, that of the spec; makes them absolute.
    /// Returns what is wrong with them: the setting and the mistake.
    fn locate(&mut self, _folder: &Path) -> Vec<Problem> {
        Vec::new()
    }

    /// What clients could not learn from it without: labels, and, if models are `tested` on it,
    /// rows for that. Of public samples neither is needed.
    fn lacks(&self, _tested: bool) -> Option<&'static str> {
        None
    }

    /// How many files (or folders) with training rows its settings name, for `split: by-file`;
    /// `None` if the set is one whole, or if its rows name their users: see [`Rows::sources`].
    fn sources(&self) -> Option<usize> {
        None
    }

    /// The files that it reads, as far as they are there.
    fn paths(&self, folder: &Folder<'_>) -> Vec<PathBuf> {
        folder.found()
    }

    /// The folder of the run that made its rows from clients' rows. What that run released counts in
    /// the guarantees of every run with these rows.
    fn made_by(&self) -> Option<&Path> {
        None
    }

    /// Are the rows a user's own? Other settings may name the same rows, so a guarantee knows them by
    /// their content. Rows of other sets are known by their files, or by the set and the seed.
    fn own(&self) -> bool {
        false
    }

    /// The settings by which rows become numbers: those of a node must be those of the spec. Of
    /// `format.leaf` only where both have this format.
    fn readings(&self) -> &'static [&'static str] {
        &[]
    }

    /// The files of its training rows, from which no public samples may come.
    fn private(&self, folder: &Folder<'_>) -> Vec<PathBuf> {
        self.paths(folder)
    }
}

/// Where in the settings, and what is wrong.
pub type Problem = (Vec<Step>, String);

/// Inputs and labels of one part of a set.
pub type Part = (Inputs, Labels);

/// A part whose storage may be shared.
pub type StoredPart = (Arc<Inputs>, Arc<Labels>);

/// The rows of a set, each part with a storage of its own.
#[derive(Clone, Debug)]
pub struct Rows<P = StoredPart> {
    /// Rows to learn from, in the order of the files.
    pub train: P,
    /// Rows to test with.
    pub test: P,
    /// Rows that the set itself sets aside for validation.
    pub validation: Option<P>,
    /// What was taken from each value; `None` if the values are as in the files.
    pub normalise: Option<Normalise>,
    /// Training rows of each source, in order: of each file, for `split: by-file`, or, for a set
    /// without [`DataSet::sources`], of each user, for `split: by-user`.
    pub sources: Vec<Source>,
    /// Test rows of each source, in order: those of file `k` (or of the user of a name) are of the
    /// client that owns the training rows of file `k` (or of that user). Empty if the test rows are
    /// one whole.
    pub test_sources: Vec<Source>,
    /// Names of the classes, if the files give them.
    pub classes: Vec<String>,
    /// What became of each column: its name, and how it is read.
    pub columns: Vec<(String, String)>,
    /// What a user should know: what was inferred, what is missing.
    pub notes: Vec<String>,
    /// Properties inferred from all rows of the clients: kinds of columns, categories,
    /// classes, means. Observers of a run see some of them.
    pub inferred: Vec<Inferred>,
    /// As `notes`, where no observer of a run sees anything of it: a run with an accountant does
    /// not show them.
    pub hidden_notes: Vec<String>,
}

/// What [`Inferred`] says of a set that holds test rows out of its training rows.
pub const HELD_OUT: &str =
    "test rows are held out of the clients' files, and how good models are on them is told";

/// Something that a set took from the clients' own rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inferred {
    /// What a user reads.
    pub text: String,
    /// It concerns test rows alone: a node uses its own only if the spec's `test` says so.
    pub of_test_rows: bool,
}

impl Inferred {
    /// Something that concerns rows to learn from.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            of_test_rows: false,
        }
    }
}

/// A file or folder with rows, or a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Rows in it, those held out apart.
    pub rows: usize,
}

impl Rows {
    /// Rows about which there is nothing more to say.
    pub fn new(train: Part, test: Part) -> Self {
        let shared = |(inputs, labels)| (Arc::new(inputs), Arc::new(labels));
        Self {
            train: shared(train),
            test: shared(test),
            validation: None,
            normalise: None,
            sources: Vec::new(),
            test_sources: Vec::new(),
            classes: Vec::new(),
            columns: Vec::new(),
            notes: Vec::new(),
            inferred: Vec::new(),
            hidden_notes: Vec::new(),
        }
    }
}

/// The task of a set whose rows have one class each.
pub fn class_task(shape: &[usize], classes: usize) -> Option<Task> {
    Some(Task::new(shape.to_vec(), TaskKind::Classes(classes)))
}

impl<P> Rows<P> {
    /// The same set with each part converted.
    pub(crate) fn try_map<Q>(self, mut convert: impl FnMut(P) -> Result<Q>) -> Result<Rows<Q>> {
        Ok(Rows {
            train: convert(self.train)?,
            test: convert(self.test)?,
            validation: self.validation.map(convert).transpose()?,
            normalise: self.normalise,
            sources: self.sources,
            test_sources: self.test_sources,
            classes: self.classes,
            columns: self.columns,
            notes: self.notes,
            inferred: self.inferred,
            hidden_notes: self.hidden_notes,
        })
    }
}
