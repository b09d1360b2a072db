//! Reads or makes a set, and scales its values.

use crate::dataset::{Inferred, Rows};
use crate::dataset_spec::{SetSpec, task_of};
use crate::normalise::Normalise;
use crate::ranges::check_ranges;
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Inputs, Samples};
use std::path::Path;
use std::sync::Arc;

/// A set, read and scaled.
pub type Set = Rows<Examples>;

/// What is taken from the values of a set.
#[derive(Clone, Copy, Debug)]
pub enum Scaling<'a> {
    /// What the set itself says.
    Own,
    /// What is taken from the values of the rows that it stands beside: `None` if nothing is.
    As(Option<&'a Normalise>),
}

/// Reads the set from its folder in `dir`, or makes it, with `normalise` instead of its own
/// normalisation.
///
/// # Errors
/// If a file is missing (says where it was looked for and how to get it) or damaged (says where and
/// how), a setting is out of its range, or `normalise` does not fit the set.
pub fn load(set: &SetSpec, dir: &Path, normalise: Option<&Normalise>) -> Result<Set> {
    let scaling = normalise.map_or(Scaling::Own, |of| Scaling::As(Some(of)));
    load_seen(set, dir, scaling, &mut |_, _| ())
}

/// As [`load`], scaled so; `see` sees the training and test rows as they were read, before they
/// are normalised.
///
/// # Errors
/// As [`load`].
pub fn load_seen(
    set: &SetSpec,
    dir: &Path,
    scaling: Scaling<'_>,
    see: &mut dyn FnMut(&Samples, &Samples),
) -> Result<Set> {
    check_ranges(set).context("data set")?;
    let mut rows = set.rows(dir)?;
    let [train, test] = [&rows.train, &rows.test].map(|(inputs, _)| Samples::all(inputs.clone()));
    see(&train, &test);
    drop((train, test));
    let own = || task_of(&rows.train.0, &rows.train.1);
    let task = set.task().unwrap_or_else(own);
    if let Scaling::As(Some(normalise)) = scaling {
        check_ranges(normalise)
            .and_then(|()| set.check_normalise(&task, normalise))
            .and_then(|()| {
                let sparse = matches!(&*rows.train.0, Inputs::Sparse { .. });
                ensure!(
                    !sparse,
                    "the rows are sparse and cannot be normalised; leave `normalise` out"
                );
                Ok(())
            })
            .context("normalise")?;
    }
    let (given, found) = match scaling {
        Scaling::As(given) => (given.cloned(), None),
        Scaling::Own => (None, set.scale(&rows.train.0)),
    };
    if found.is_some() && set.facts().statistics.is_none() {
        let text = "columns are scaled by the means and deviations of all clients' rows";
        rows.inferred.push(Inferred::new(text));
    }
    rows.normalise = given.or(found);
    let parts = [&mut rows.train, &mut rows.test].into_iter();
    for (inputs, _) in parts.chain(&mut rows.validation) {
        ensure!(
            inputs.shape() == task.input,
            "data set `{}`: its files have inputs of shape {:?}, those of the published files have {:?}",
            set.name(),
            inputs.shape(),
            task.input
        );
        if let Some(normalise) = &rows.normalise {
            normalise.apply(Arc::make_mut(inputs));
        }
    }
    let less = subset(set, rows.train.0.len(), rows.test.0.len());
    rows.notes.extend(less);
    rows.try_map(|(inputs, labels)| Examples::all(inputs, labels))
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
