//! Reads all files of a spec and puts their rows together.

use super::encode::{Plan, short};
use super::paths::{Paths, Source};
use super::rows::{Part, joined};
use super::{Files, Format, Libsvm, arrays, images, table};
use crate::fingerprint::same;
use crate::set::{Rows, Source as Owner};
use crate::shared_rows::{owned_twice, share_a_row};
use anyhow::{Context, Result, bail, ensure};
use fl_core::settings::show;
use fl_core::{Inputs, Labels, Samples, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// More classes than this are numbers to be predicted, or ids.
const MAX_CLASSES: usize = 10_000;

/// The classes, as they are found.
pub(super) struct Classes {
    index: BTreeMap<String, u32>,
    /// No class is added any more.
    closed: bool,
    given: bool,
}

impl Classes {
    fn new(files: &Files) -> Self {
        let given = files.classes.iter().flatten();
        Self {
            index: given
                .zip(0..)
                .map(|(word, at)| (word.0.clone(), at))
                .collect(),
            closed: files.classes.is_some(),
            given: files.classes.is_some(),
        }
    }

    /// The number of a class.
    pub fn of(&mut self, name: &str) -> Result<u32> {
        if let Some(at) = self.index.get(name) {
            return Ok(*at);
        }
        if self.closed {
            let known: Vec<&str> = self.index.keys().take(20).map(String::as_str).collect();
            let whose = if self.given {
                "of the spec"
            } else {
                "of the training rows"
            };
            bail!(
                "`{}` is none of the classes {whose}: {}",
                short(name),
                known.join(", ")
            );
        }
        ensure!(
            self.index.len() < MAX_CLASSES,
            "more than {MAX_CLASSES} classes: only classes can be learnt, not numbers"
        );
        let at = self.index.len() as u32;
        self.index.insert(name.into(), at);
        Ok(at)
    }

    /// Names in order (numbers by size, others by letters), and the place of each found class in it.
    fn finish(&self) -> (Vec<String>, Vec<u32>) {
        let mut names: Vec<(&String, &u32)> = self.index.iter().collect();
        let as_number = |name: &str| name.parse::<f64>().ok().filter(|n| n.is_finite());
        if self.given {
            names.sort_by_key(|(_, at)| **at);
        } else if names.iter().all(|(name, _)| as_number(name).is_some()) {
            names.sort_by(|a, b| {
                let number = |name: &str| as_number(name).unwrap_or(0.0);
                number(a.0).total_cmp(&number(b.0)).then(a.0.cmp(b.0))
            });
        }
        let mut place = vec![0; names.len()];
        for (new, (_, old)) in names.iter().enumerate() {
            place[**old as usize] = new as u32;
        }
        (
            names.into_iter().map(|(name, _)| name.clone()).collect(),
            place,
        )
    }
}

/// Training rows source by source, and test rows.
struct All {
    train: Vec<(String, Part)>,
    test: Option<Part>,
    columns: Vec<(String, String)>,
    notes: Vec<String>,
}

pub(super) fn read(files: &Files) -> Result<Rows> {
    let mut classes = Classes::new(files);
    let All {
        train,
        test,
        columns,
        mut notes,
    } = match files.format.is_table() {
        true => tables(files, &mut classes)?,
        false => parts(files, &mut classes)?,
    };
    if !classes.given && !files.unlabelled() {
        notes.push(format!(
            "the {} classes were found in the clients' rows; say them in `classes` where that is private",
            classes.index.len()
        ));
    }
    let (names, place) = classes.finish();
    let Divided {
        own,
        tested,
        sources,
    } = divided(files, train, test);
    // rows without a label are all of class 0, and nobody looks
    let labels = |of: &[u32], _: &[usize]| {
        let place = |class: &u32| place.get(*class as usize).copied().unwrap_or(0);
        Ok(Labels::Classes {
            of: of.iter().map(place).collect(),
            classes: names.len().max(1),
        })
    };
    let (train, test) = labelled(own, tested, "rows", labels)?;
    let rows = Rows {
        sources,
        classes: names,
        columns,
        notes,
        ..Rows::new(train, test)
    };
    Ok(with_inferred(files, rows))
}

/// Rows to learn from and rows to test with, with what `labels` makes of the numbers beside rows of a shape. A public set may
/// have none to test with.
pub(super) fn labelled(
    own: Vec<Part>,
    tested: Vec<Part>,
    rows: &str,
    labels: impl Fn(&[u32], &[usize]) -> Result<Labels>,
) -> Result<((Inputs, Labels), (Inputs, Labels))> {
    let all = |parts: Vec<Part>, what: &str| -> Result<Part> {
        joined(parts).with_context(|| format!("the {what} {rows}"))
    };
    let own = all(own, "training")?;
    let no_test = tested.is_empty();
    let tested = match no_test {
        true => own.pick(&[]),
        false => all(tested, "test")?,
    };
    ensure!(no_test || !tested.of.is_empty(), "there are no test {rows}");
    let (shape, other) = (own.inputs.shape(), tested.inputs.shape());
    ensure!(
        shape == other,
        "training {rows} have shape {shape:?}, test {rows} {other:?}; they must be equal"
    );
    let of = labels(&own.of, &shape)?;
    let of_tested = labels(&tested.of, &shape)?;
    Ok(((own.inputs, of), (tested.inputs, of_tested)))
}

/// Rows to learn from and rows to test with.
pub(super) struct Divided {
    pub own: Vec<Part>,
    pub tested: Vec<Part>,
    /// Whose the first are; empty if nobody's.
    pub sources: Vec<Owner>,
}

/// Holds rows of every source out for testing, if the spec says so.
pub(super) fn divided(files: &Files, train: Vec<(String, Part)>, test: Option<Part>) -> Divided {
    let (mut own, mut tested) = (Vec::new(), Vec::new());
    let mut sources = Vec::new();
    for (at, (name, part)) in train.into_iter().enumerate() {
        let rows = part.of.len();
        let (held, kept) = match files.holdout {
            // the same rows whatever the run's seed, so that runs can be compared
            Some(share) => {
                let draws = Stream::root(0).child("holdout", at as u64);
                let held = (share * rows as f64).round() as usize;
                let held = draws.draws().choose(rows, held.min(rows));
                let kept: Vec<usize> = (0..rows)
                    .filter(|r| held.binary_search(r).is_err())
                    .collect();
                (Some(part.pick(&held)), part.pick(&kept))
            }
            None => (None, part),
        };
        sources.push(Owner {
            name,
            rows: kept.of.len(),
        });
        own.push(kept);
        tested.extend(held);
    }
    tested.extend(test);
    if matches!(files.train, Paths::One(_)) {
        sources.clear();
    }
    Divided {
        own,
        tested,
        sources,
    }
}

/// What is told where test rows are the clients'.
const HELD_OUT: &str =
    "test rows are held out of the clients' files, and how good models are on them is told";

/// How the line ends that tells of clients' rows among the test rows.
const TESTED: &str = "test rows as well";

/// Is this of the test rows of files? A node does not use those of its own.
pub fn of_test_rows(told: &str) -> bool {
    told == HELD_OUT || told.ends_with(TESTED)
}

/// The rows of these files, with what a run shows of them besides what is learnt from them.
pub(super) fn with_inferred(files: &Files, mut rows: Rows) -> Rows {
    // whatever there is to say of the rows was found in them
    let mut all = rows.notes.clone();
    if files.holdout.is_some() {
        all.push(HELD_OUT.into());
    }
    let own = files.rows_of(&files.train);
    let tested = files.test.iter().flat_map(|test| files.rows_of(test));
    let both: Vec<PathBuf> = own.iter().cloned().chain(tested).collect();
    let mut said = BTreeSet::new();
    for (first, again) in same(&both, files.format.of_many_rows()) {
        let (path, other) = (both[first].display(), both[again].display());
        let name = match both[first] == both[again] {
            true => path.to_string(),
            false => format!("{path}, which is {other} too,"),
        };
        match (first < own.len(), again < own.len()) {
            (_, true) => said.insert(format!(
                "{name} is among the clients' files more than once: its rows count as often"
            )),
            (true, false) => said.insert(format!("{name} is a client's file and {TESTED}")),
            (false, false) => false,
        };
    }
    // a copy that was packed, sorted or added to has other bytes
    if said.is_empty() {
        let [own, tested] = [&rows.train, &rows.test].map(|(of, _)| Samples::all(of.clone()));
        if files.test.is_some() && share_a_row(&own, &tested) {
            said.insert(format!("rows of the clients' files are {TESTED}"));
        }
        if let Some((first, again)) = owned_twice(&own, &rows.sources) {
            rows.twice = Some(format!("a row of {first} is a row of {again} as well"));
        }
    }
    all.extend(said);
    if let Format::Libsvm(Libsvm { width: None, .. }) = &files.format {
        all.push("the number of features is the largest index in the clients' rows; say `width` where they are private".into());
    }
    rows.inferred = all;
    rows
}

fn tables(files: &Files, classes: &mut Classes) -> Result<All> {
    let mut limit = files.max_bytes;
    let mut read = |source: &Source| {
        let paths = source.files(&files.format);
        paths
            .iter()
            .map(|path| table::read(path, files, &mut limit))
            .collect::<Result<Vec<_>>>()
    };
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for source in files.train.sources() {
        let tables = read(source)?;
        counts.push((source.name().to_string(), tables.len()));
        all.extend(tables);
    }
    let mut test = Vec::new();
    for source in files.test.iter().flat_map(Paths::sources) {
        test.extend(read(source)?);
    }
    ensure!(!all.is_empty(), "there are no training files");
    let bare = |table: &table::Table| format!("{}: holds no rows", table.path.display());
    if let Some(none) = test.iter().find(|table| table.len() == 0) {
        bail!(bare(none));
    }
    // what columns and classes are must follow from something
    let said = files.classes.is_some() && all[0].names.iter().all(|name| files.says(name));
    ensure!(
        said || all.iter().any(|table| table.len() > 0),
        bare(&all[0])
    );
    let mut plan = Plan::new(files, &all)?;
    let mut left = files.max_bytes;
    let mut encoded = |table: &table::Table, classes: &mut Classes| {
        let part = plan.encode(table, classes, left)?;
        left = left.saturating_sub(part.bytes());
        Ok(part)
    };
    let mut tables = all.iter();
    let mut train = Vec::new();
    for (name, count) in counts {
        let parts: Result<Vec<Part>> = tables
            .by_ref()
            .take(count)
            .map(|table| encoded(table, classes))
            .collect();
        train.push((name, joined(parts?)?));
    }
    classes.closed = true;
    let test: Result<Vec<Part>> = test.iter().map(|table| encoded(table, classes)).collect();
    let test = test?;
    Ok(All {
        train,
        test: if test.is_empty() {
            None
        } else {
            Some(joined(test)?)
        },
        columns: std::mem::take(&mut plan.described),
        notes: std::mem::take(&mut plan.notes),
    })
}

fn parts(files: &Files, classes: &mut Classes) -> Result<All> {
    let mut limit = files.max_bytes;
    let mut read = |source: &Source, classes: &mut Classes| -> Result<Part> {
        let one = |path: &Path, classes: &mut Classes, limit: &mut u64| match &files.format {
            Format::Libsvm(_) => arrays::libsvm(path, classes, limit),
            Format::Npy => arrays::npy_column(path, files, classes, limit),
            Format::Npz(how) => arrays::npz(path, how, files, classes, limit),
            _ => bail!(
                "{}: labels must stand in a file of their own",
                path.display()
            ),
        };
        match (source, &files.format) {
            (Source::Pair { inputs, labels }, Format::Idx) => {
                arrays::idx(inputs.as_ref(), labels.as_ref(), classes, &mut limit)
            }
            (Source::Path(_), Format::Idx) => {
                let paths = source.files(&files.format);
                let parts = paths
                    .iter()
                    .map(|path| arrays::idx_inputs(path, &mut limit));
                joined(parts.collect::<Result<_>>()?)
            }
            (Source::Pair { inputs, labels }, _) => {
                arrays::npy_pair(inputs.as_ref(), labels.as_ref(), classes, &mut limit)
            }
            (Source::Path(_), Format::Images) => {
                images::read(&source.files(&files.format), classes, &mut limit)
            }
            (Source::Path(_), _) => {
                let paths = source.files(&files.format);
                let parts: Result<Vec<Part>> = paths
                    .iter()
                    .map(|path| one(path, classes, &mut limit))
                    .collect();
                joined(parts?).with_context(|| source.name().to_string())
            }
        }
    };
    let mut train = Vec::new();
    for source in files.train.sources() {
        train.push((source.name().to_string(), read(source, classes)?));
    }
    classes.closed = true;
    let mut test = Vec::new();
    for source in files.test.iter().flat_map(Paths::sources) {
        test.push(read(source, classes)?);
    }
    if let Format::Libsvm(how) = &files.format {
        let all = || train.iter().map(|(_, part)| part).chain(&test);
        let widest = all().map(|part| part.inputs.width()).max().unwrap_or(1);
        let width = how.width.map_or(widest, |width| width as usize);
        ensure!(
            widest <= width,
            "an index is {widest}, above the `width` {width} of the spec"
        );
        let values: u64 = all().map(|part| part.bytes() / 8).sum();
        let cells = all().map(|part| part.of.len() as u64).sum::<u64>() * width as u64;
        // rows that are mostly there are smaller and faster as plain numbers
        let dense = values * 2 > cells && cells * 4 <= files.max_bytes;
        for part in train.iter_mut().map(|(_, part)| part).chain(&mut test) {
            part.inputs =
                arrays::widened(std::mem::replace(&mut part.inputs, empty()), width, dense);
        }
    }
    let shape = train.first().map(|(_, part)| part.inputs.shape());
    Ok(All {
        columns: vec![(
            "inputs".into(),
            format!("shape {:?}", shape.unwrap_or_default()),
        )],
        train,
        test: if test.is_empty() {
            None
        } else {
            Some(joined(test)?)
        },
        notes: Vec::new(),
    })
}

fn empty() -> Inputs {
    Inputs::Dense {
        shape: vec![1],
        data: Vec::new(),
    }
}

/// The text of a number as a class: `1` for 1.0.
pub(super) fn class_name(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => format!("{}", number as i64),
        false => show(&number.into()),
    }
}
