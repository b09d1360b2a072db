//! Which rows are for training and which for testing, and what a run shows of them.

use crate::paths::Paths;
use crate::rows::{Part, joined};
use crate::settings::Files;
use anyhow::{Context, Result, ensure};
use fl_core::{Labels, Stream};
use fl_data_kit::dataset::{HELD_OUT, Source as Owner};
use fl_data_kit::{Inferred, Rows, same};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Rows to learn from and rows to test with.
pub(crate) struct TrainTest {
    pub own: Vec<Part>,
    pub tested: Vec<Part>,
    /// The owners of the first rows; empty if they have none.
    pub sources: Vec<Owner>,
    /// The same of the test rows.
    pub test_sources: Vec<Owner>,
}

impl TrainTest {
    /// Puts all together, with what `labels` makes of the numbers beside rows of a shape. A public
    /// set may have none to test with.
    pub fn labelled(
        self,
        rows: &str,
        labels: impl Fn(&[u32], &[usize]) -> Result<Labels>,
    ) -> Result<Rows> {
        let all = |parts: Vec<Part>, what: &str| -> Result<Part> {
            joined(parts).with_context(|| format!("the {what} {rows}"))
        };
        let own = all(self.own, "training")?;
        let no_test = self.tested.is_empty();
        let tested = if no_test {
            own.pick(&[])
        } else {
            all(self.tested, "test")?
        };
        ensure!(no_test || !tested.of.is_empty(), "there are no test {rows}");
        let (shape, other) = (own.inputs.shape(), tested.inputs.shape());
        ensure!(
            shape == other,
            "training {rows} have shape {shape:?}, test {rows} {other:?}; they must be equal"
        );
        let (of, of_tested) = (labels(&own.of, &shape)?, labels(&tested.of, &shape)?);
        Ok(Rows {
            sources: self.sources,
            test_sources: self.test_sources,
            ..Rows::new((own.inputs, of), (tested.inputs, of_tested))
        })
    }
}

/// Holds rows of every source out for testing, if the spec says so.
pub(crate) fn hold_out(
    files: &Files,
    train: Vec<(String, Part)>,
    test: Vec<(String, Part)>,
) -> TrainTest {
    let owner = |name: &str, part: &Part| Owner {
        name: name.into(),
        rows: part.of.len(),
    };
    let (mut own, mut tested) = (Vec::new(), Vec::new());
    let (mut sources, mut test_sources) = (Vec::new(), Vec::new());
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
        sources.push(owner(&name, &kept));
        own.push(kept);
        test_sources.extend(held.as_ref().map(|held| owner(&name, held)));
        tested.extend(held);
    }
    for (name, part) in test {
        test_sources.push(owner(&name, &part));
        tested.push(part);
    }
    let whole = |paths: &Paths| matches!(paths, Paths::One(_)) && !files.format.names_users();
    if whole(&files.train) {
        sources.clear();
    }
    if whole(files.test.as_ref().unwrap_or(&files.train)) {
        test_sources.clear();
    }
    TrainTest {
        own,
        tested,
        sources,
        test_sources,
    }
}

/// Training and test rows, source by source.
pub(crate) struct All {
    pub train: Vec<(String, Part)>,
    pub test: Vec<(String, Part)>,
    pub columns: Vec<(String, String)>,
    pub notes: Notes,
}

/// What a user should know of the rows.
#[derive(Default)]
pub(crate) struct Notes {
    /// What was found in the clients' rows: an observer sees some of it.
    pub found: Vec<String>,
    /// How files and test rows were read.
    pub form: Vec<String>,
    /// As `found`, where no observer sees anything of it.
    pub hidden: Vec<String>,
}

/// The rows of these files, with what a run shows of them besides what is learnt from them.
pub(crate) fn with_inferred(files: &Files, mut rows: Rows, notes: Notes) -> Rows {
    let mut all: Vec<Inferred> = notes.found.iter().cloned().map(Inferred::new).collect();
    rows.notes = [notes.found, notes.form].concat();
    rows.hidden_notes = notes.hidden;
    if files.holdout.is_some() {
        // one row more draws others, so this concerns the rows that stay as well
        all.push(Inferred::new(HELD_OUT));
    }
    let own = files.rows_of(&files.train);
    let tested = files.test.iter().flat_map(|test| files.rows_of(test));
    let both: Vec<PathBuf> = own.iter().cloned().chain(tested).collect();
    let mut shared = BTreeMap::new();
    for (first, again) in same(&both, files.format.of_many_rows()) {
        let (path, other) = (both[first].display(), both[again].display());
        let name = if both[first] == both[again] {
            path.to_string()
        } else {
            format!("{path}, which is {other} too,")
        };
        match (first < own.len(), again < own.len()) {
            (_, true) => shared.insert(
                format!(
                    "{name} is among the clients' files more than once: its rows count as often"
                ),
                false,
            ),
            (true, false) => shared.insert(
                format!("{name} is a client's file and test rows as well"),
                true,
            ),
            (false, false) => None,
        };
    }
    all.extend(
        shared
            .into_iter()
            .map(|(text, of_test_rows)| Inferred { text, of_test_rows }),
    );
    rows.inferred = all;
    rows
}
