//! Test rows of a client's own: those that its model is judged on, and that no client trains with.

use crate::split::Groups;
use crate::split_spec::Split;
use anyhow::{Context, Result, ensure};
use fl_core::settings::{Range, Ranged, Reader, Setting, Value, ValueType, between};
use fl_core::{Examples, Stream, first_names, floor_share};
use fl_data_kit::dataset::Source;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

/// Pairs of files that an error lists.
const LISTED: usize = 5;

fl_core::settings! {
    /// Each client tests with rows of its own: its own model, and the server's model for each
    /// client.
    pub struct OwnTests {
        /// Share of a client's rows that it tests with: `floor(own * rows)` of them, but at least
        /// one, drawn at random. It trains with the others. Or `files`: it tests with its own part
        /// of the set's test rows. With `split: by-file` that is the test file (or folder) of the
        /// same number, or what `holdout` holds out of its training file; with `by-user` the rows
        /// of its users; with `own` the test rows of its node file.
        own: OwnRows, in between(0.0, 1.0);
        /// The rows that clients own before that.
        of: OwnTestsOf = OwnTestsOf::Train;
        /// Take the rows from every class in proportion; otherwise whatever their class.
        by_class: bool = true;
    }
}

/// The rows that a client tests with.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnRows {
    /// This share of its rows.
    Share(f64),
    /// Its part of the set's test rows.
    Files,
}

/// The word of [`OwnRows::Files`] in specs.
const FILES: &str = "files";

impl Setting for OwnRows {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        if value.as_str() == Some(FILES) {
            return Some(Self::Files);
        }
        let before = reader.mistakes.len();
        let share = f64::read(value, reader).map(Self::Share);
        share.or_else(|| {
            reader.mistakes.truncate(before);
            reader.unlike(&Self::kind(), value)
        })
    }
    fn write(&self) -> Value {
        match self {
            Self::Share(share) => share.write(),
            Self::Files => FILES.into(),
        }
    }
    fn value_type() -> ValueType {
        let files = ValueType::Text(Some(format!("^{FILES}$")));
        let share = f64::value_type().within(Range::of(&between(0.0, 1.0)));
        ValueType::one_of([share, files])
            .described("a share above 0 and below 1, or the word `files`")
    }
}

impl Ranged for OwnRows {
    type Number = f64;
    fn numbers(&self) -> Vec<&f64> {
        match self {
            Self::Share(share) => vec![share],
            Self::Files => Vec::new(),
        }
    }
}

fl_core::choices! {
    /// The rows that are shared out to clients who test with rows of their own.
    pub enum OwnTestsOf {
        /// The training rows of the set. Its test rows stay common to all.
        Train = "train",
        /// Training and test rows together, as in PFLlib. The common test rows are those of all
        /// clients together.
        All = "all",
    }
}

impl OwnTests {
    /// Whether each client has test rows in files of its own.
    pub(crate) fn in_files(&self) -> bool {
        self.own == OwnRows::Files
    }

    /// Positions of the rows that client `k` of these rows tests with, ascending; none if its test
    /// rows are in files of their own.
    ///
    /// # Errors
    /// If it owns less than two rows.
    pub(crate) fn draw(&self, k: usize, own: &Examples, stream: &Stream) -> Result<Vec<usize>> {
        let OwnRows::Share(share) = self.own else {
            return Ok(Vec::new());
        };
        let rows = own.len();
        ensure!(
            rows >= 2,
            "`data.test.own`: client {k} owns {rows} of the rows, and needs two, one to train and one to test with; \
             take fewer clients, or a split that gives each client more"
        );
        let aside = floor_share(share, rows).clamp(1, rows - 1);
        let draws = |group, n, count| stream.child("class", group as u64).draws().choose(n, count);
        if self.by_class {
            Groups::of(own).take(aside, draws)
        } else {
            Ok(draws(0, rows, aside))
        }
    }
}

/// The number of the training file or user that each test file or user belongs to: files by their
/// place in the list, users by their names. With a note on files whose names do not say it.
///
/// # Errors
/// If a test file or user belongs to none, or a file has the name of another client's.
pub(crate) fn owners_of_tests(
    train: &[Source],
    tests: &[Source],
    split: &Split,
) -> Result<(Vec<usize>, Option<String>)> {
    ensure!(
        !tests.is_empty(),
        "`data.test.own: files`: the test rows are one whole; give each client its own: a list, a pattern or a folder of files in `test`, or `holdout`"
    );
    if matches!(split, Split::ByUser) {
        let numbers = train.iter().map(|source| &source.name[..]).zip(0..);
        let numbers: HashMap<&str, usize> = numbers.collect();
        let owner = |test: &Source| {
            numbers.get(&test.name[..]).copied().with_context(|| {
                format!(
                    "`data.test.own: files`: user `{}` has test rows and no training rows, so no client has its rows; take it out of the test files",
                    test.name
                )
            })
        };
        let owners: Result<_> = tests.iter().map(owner).collect();
        return Ok((owners?, None));
    }
    ensure!(
        train.len() == tests.len(),
        "`data.test.own: files`: there are {} test files for {} training files, and each needs one, in the same order: {}",
        tests.len(),
        train.len(),
        beside(train, tests)
    );
    fn name(of: &Source) -> Option<&OsStr> {
        Path::new(&of.name).file_name()
    }
    let mut named: HashMap<Option<&OsStr>, Vec<usize>> = HashMap::new();
    for (k, source) in train.iter().enumerate() {
        named.entry(name(source)).or_default().push(k);
    }
    for (k, test) in tests.iter().enumerate() {
        // a name that several training files have says nothing
        if let Some([of]) = named.get(&name(test)).map(Vec::as_slice) {
            ensure!(
                *of == k,
                "`data.test.own: files`: {} is test file {k}, and the training file of its name is file {of}; list both in one order",
                test.name
            );
        }
    }
    let told = train
        .iter()
        .zip(tests)
        .all(|(of, test)| name(of) == name(test));
    let note = (!told).then(|| {
        let pairs = beside(train, tests);
        format!("test files belong to training files in their order: {pairs}")
    });
    Ok(((0..tests.len()).collect(), note))
}

/// The first files of both lists, side by side.
fn beside(train: &[Source], tests: &[Source]) -> String {
    let name = |all: &[Source], at: usize| {
        let name = all.get(at).map(|source| source.name.clone());
        name.unwrap_or_else(|| "none".into())
    };
    let all = train.len().max(tests.len());
    let pair = |at| format!("{} beside {}", name(tests, at), name(train, at));
    let pairs: Vec<String> = (0..all).map(pair).collect();
    first_names(&pairs, LISTED)
}
