//! Reads or makes a set, and scales its values.

use crate::dataset::{Inferred, Rows, Source};
use crate::dataset_spec::{SetSpec, task_of};
use crate::normalise::Normalise;
use crate::ranges::check_ranges;
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Inputs, Samples};
use std::path::Path;
use std::sync::Arc;

/// A set: training, test and perhaps validation rows, each with a storage of its own.
#[derive(Clone, Debug)]
pub struct Set {
    /// Rows to learn from, in the order of the files.
    pub train: Examples,
    /// Rows to test with.
    pub test: Examples,
    /// Rows that the set itself sets aside for validation.
    pub validation: Option<Examples>,
    /// What was taken from each value; `None` if the values are as in the files.
    pub normalise: Option<Normalise>,
    /// Training rows of each source, in order: see [`Rows::sources`].
    pub sources: Vec<Source>,
    /// Test rows of each source, in order: see [`Rows::test_sources`].
    pub test_sources: Vec<Source>,
    /// Names of the classes, if the files give them.
    pub classes: Vec<String>,
    /// What became of each column: its name, and how it is read.
    pub columns: Vec<(String, String)>,
    /// What a user should know.
    pub notes: Vec<String>,
    /// Properties inferred from all rows of the clients: kinds of columns, categories,
    /// classes, means. Observers of a run see some of them.
    pub inferred: Vec<Inferred>,
    /// As `notes`, for runs without an accountant: see [`Rows::hidden_notes`].
    pub hidden_notes: Vec<String>,
}

/// Reads the set from its folder in `dir`, or makes it, with `normalise` instead of its own
/// normalisation.
///
/// # Errors
/// If a file is missing (says where it was looked for and how to get it) or damaged (says where and
/// how), a setting is out of its range, or `normalise` does not fit the set.
pub fn load(set: &SetSpec, dir: &Path, normalise: Option<&Normalise>) -> Result<Set> {
    load_seen(set, dir, normalise, &mut |_, _| ())
}

/// As [`load`]; `see` sees the training and test rows as they were read, before they are
/// normalised.
///
/// # Errors
/// As [`load`].
pub fn load_seen(
    set: &SetSpec,
    dir: &Path,
    normalise: Option<&Normalise>,
    see: &mut dyn FnMut(&Samples, &Samples),
) -> Result<Set> {
    check_ranges(set).context("data set")?;
    let Rows {
        mut train,
        mut test,
        mut validation,
        sources,
        test_sources,
        classes,
        columns,
        mut notes,
        mut inferred,
        hidden_notes,
    } = set.rows(dir)?;
    see(
        &Samples::all(train.0.clone()),
        &Samples::all(test.0.clone()),
    );
    let task = set.task().unwrap_or_else(|| task_of(&train.0, &train.1));
    if let Some(normalise) = normalise {
        check_ranges(normalise)
            .and_then(|()| set.check_normalise(&task, normalise))
            .and_then(|()| {
                let sparse = matches!(&*train.0, Inputs::Sparse { .. });
                ensure!(
                    !sparse,
                    "the rows are sparse and cannot be normalised; leave `normalise` out"
                );
                Ok(())
            })
            .context("normalise")?;
    }
    let found = match normalise {
        Some(_) => None,
        None => set.scale(&train.0),
    };
    if found.is_some() && set.facts().statistics.is_none() {
        let text = "columns are scaled by the means and deviations of all clients' rows";
        inferred.push(Inferred::new(text));
    }
    let normalise = normalise.cloned().or(found);
    for (inputs, _) in [&mut train, &mut test].into_iter().chain(&mut validation) {
        ensure!(
            inputs.shape() == task.input,
            "data set `{}`: its files have inputs of shape {:?}, those of the published files have {:?}",
            set.name(),
            inputs.shape(),
            task.input
        );
        if let Some(normalise) = &normalise {
            normalise.apply(Arc::make_mut(inputs));
        }
    }
    notes.extend(subset(set, train.0.len(), test.0.len()));
    let examples = |(inputs, labels)| Examples::all(inputs, labels);
    Ok(Set {
        train: examples(train)?,
        test: examples(test)?,
        validation: validation.map(examples).transpose()?,
        normalise,
        sources,
        test_sources,
        classes,
        columns,
        notes,
        inferred,
        hidden_notes,
    })
}

/// Says so if there is less than was published.
fn subset(set: &SetSpec, train: usize, test: usize) -> Vec<String> {
    let Some((all_train, all_test)) = set.facts().rows else {
        return Vec::new();
    };
    let less = |what: &str, found: usize, all: usize| {
        (found < all).then(|| {
            format!(
                "the files of `{}` hold only {found} of the {all} {what} rows that were published: results are not \
                 comparable with published ones",
                set.name()
            )
        })
    };
    less("training", train, all_train)
        .into_iter()
        .chain(less("test", test, all_test))
        .collect()
}
