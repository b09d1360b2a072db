//! Reads all files of a spec and puts their rows together.

use crate::arrays::ImageSides;
use crate::classes::{self, Classes, Meaning};
use crate::content::Budget;
use crate::encode::Plan;
use crate::format::{Format, Libsvm};
use crate::images::Lost;
use crate::paths::{Pair, Paths, Source, each};
use crate::rows::{Part, joined};
use crate::settings::Files;
use crate::table::Table;
use crate::train_test::{All, Notes, hold_out, with_inferred};
use crate::{arrays, images, leaf, read_table};
use anyhow::{Context, Result, bail, ensure};
use fl_core::Inputs;
use fl_data_kit::Rows;
use std::path::Path;

pub(crate) fn read(files: &Files) -> Result<Rows> {
    let mut classes = Classes::new(files);
    let All {
        train,
        test,
        columns,
        mut notes,
    } = match &files.format {
        Format::Leaf(how) => leaf::read(files, how, &mut classes)?,
        format if format.is_table() => tables(files, &mut classes)?,
        _ => parts(files, &mut classes)?,
    };
    notes.form.extend(files.train.listed_alone(&files.format));
    notes.hidden.extend(files.unread());
    let (names, mut labels) = classes.finish();
    let respelled = classes.respelled();
    if let Some(found) = found_classes(files, &classes, &train)? {
        notes.found.push(found);
    } else if let Some(respelled) = respelled {
        notes
            .hidden
            .push(format!("fl reads {respelled} of the `classes`"));
    }
    let held = hold_out(files, train, test);
    let of_own: Vec<u32> = held.own.iter().flat_map(|part| &part.of).copied().collect();
    let scale = labels.find_scale(&of_own, &files.label_name());
    notes.found.extend(scale);
    let rounded = labels.rounded(&of_own, &files.label_name());
    notes.hidden.extend(rounded);
    notes.hidden.extend(classes.doubts(&files.label_name()));
    let rows = Rows {
        classes: names,
        columns,
        ..held.labelled("rows", |of, _| labels.of(of))?
    };
    Ok(with_inferred(files, rows, notes))
}

/// What fl found of classes that the spec does not list.
///
/// # Errors
/// As [`classes::found`].
fn found_classes(
    files: &Files,
    classes: &Classes,
    train: &[(String, Part)],
) -> Result<Option<String>> {
    if classes.given || files.unlabelled() {
        return Ok(None);
    }
    let (names, labels) = classes.finish();
    let rows = rows_of_classes(&labels, names.len(), train);
    classes::found(&names, &rows, classes.respelled(), files).map(Some)
}

/// How many training rows each class has.
fn rows_of_classes(labels: &Meaning, classes: usize, train: &[(String, Part)]) -> Vec<usize> {
    let mut rows = vec![0; classes];
    if let Meaning::Classes(place, _) = labels {
        let of = train.iter().flat_map(|(_, part)| &part.of);
        of.for_each(|at| rows[place[*at as usize] as usize] += 1);
    }
    rows
}

fn tables(files: &Files, classes: &mut Classes) -> Result<All> {
    let mut budget = Budget::new(files.max_bytes);
    let mut read = |source: &Source| {
        let paths = source.files(&files.format);
        paths
            .iter()
            .map(|path| read_table::read(&files.format, path, &mut budget))
            .collect::<Result<Vec<_>>>()
    };
    let mut read_all = |paths: Option<&Paths>| -> Result<_> {
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        for (name, tables) in each(paths, &mut read)? {
            counts.push((name, tables.len()));
            all.extend(tables);
        }
        Ok((all, counts))
    };
    let (all, counts) = read_all(Some(&files.train))?;
    let (test, test_counts) = read_all(files.test.as_ref())?;
    ensure!(!all.is_empty(), "there are no training files");
    let bare = |table: &Table| format!("{}: holds no rows", table.path.display());
    if let Some(none) = test.iter().find(|table| table.len() == 0) {
        bail!(bare(none));
    }
    // what columns and classes are must follow from something
    let said = classes.given && all[0].names.iter().all(|name| files.says(name));
    ensure!(
        said || all.iter().any(|table| table.len() > 0),
        bare(&all[0])
    );
    let mut plan = Plan::new(files, &all)?;
    type Counts = Vec<(String, usize)>;
    let mut encoded = |tables: &[Table], counts: Counts, classes: &mut Classes| -> Result<_> {
        let (mut tables, mut sources) = (tables.iter(), Vec::new());
        for (name, count) in counts {
            let parts = tables.by_ref().take(count).map(|table| {
                let part = plan.encode(table, classes, &budget)?;
                budget.take(part.bytes(), &table.path)?;
                Ok(part)
            });
            sources.push((name, joined(parts.collect::<Result<Vec<Part>>>()?)?));
        }
        Ok(sources)
    };
    let train: Vec<(String, Part)> = encoded(&all, counts, classes)?;
    // before test rows have a number that no training row has
    found_classes(files, classes, &train)?;
    classes.closed = true;
    let test = encoded(&test, test_counts, classes)?;
    let tested = test.iter().map(|(_, part)| part.of.len()).sum();
    Ok(All {
        train,
        test,
        columns: std::mem::take(&mut plan.described),
        notes: Notes {
            form: [plan.unseen(tested), plan.reordered(&all)]
                .into_iter()
                .flatten()
                .collect(),
            found: std::mem::take(&mut plan.notes),
            hidden: [plan.lost(), plan.doubts, headless(files, &all)].concat(),
        },
    })
}

/// Says of the first CSV file without a header that it seems to have none.
fn headless(files: &Files, tables: &[Table]) -> Vec<String> {
    if !matches!(&files.format, Format::Csv(of) if of.header) {
        return Vec::new();
    }
    let name = |table: &Table| {
        table
            .path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
    };
    let said = |table: &Table| Some(format!("{}: {}", name(table)?, table.headless()?));
    tables.iter().find_map(said).into_iter().collect()
}

fn parts(files: &Files, classes: &mut Classes) -> Result<All> {
    let mut budget = Budget::new(files.max_bytes);
    let (mut sides, mut lost) = (ImageSides::of(&files.format), Lost::default());
    let mut read = |source: &Source, classes: &mut Classes| -> Result<Part> {
        let mut one = |path: &Path, budget: &mut Budget| {
            let found = (&mut *classes, &mut sides);
            match &files.format {
                Format::Libsvm(_) => arrays::libsvm(path, found.0, budget),
                Format::Npy(_) => arrays::npy_column(path, files, found, budget),
                Format::Npz(how) => arrays::npz(path, how, files, found, budget),
                _ => bail!("{}: labels must be in a file of their own", path.display()),
            }
        };
        match (source, &files.format) {
            (Source::Pair(Pair { inputs, labels }), Format::Idx) => {
                arrays::idx(inputs.as_ref(), labels.as_ref(), classes, &mut budget)
            }
            (Source::Path(_), Format::Idx) => {
                let paths = source.files(&files.format);
                let parts = paths
                    .iter()
                    .map(|path| arrays::idx_inputs(path, &mut budget));
                joined(parts.collect::<Result<_>>()?)
            }
            (_, Format::Images(how)) => {
                images::read(source, files, how, classes, (&mut lost, &mut budget))
            }
            (Source::Pair(Pair { inputs, labels }), _) => {
                let found = (classes, &mut sides);
                arrays::npy_pair(inputs.as_ref(), labels.as_ref(), found, &mut budget)
            }
            (Source::Path(_), _) => {
                let paths = source.files(&files.format);
                let parts: Result<Vec<Part>> =
                    paths.iter().map(|path| one(path, &mut budget)).collect();
                joined(parts?).with_context(|| source.name().to_string())
            }
        }
    };
    let mut train = each([&files.train], |source| read(source, classes))?;
    found_classes(files, classes, &train)?;
    classes.closed = true;
    let mut test = each(&files.test, |source| read(source, classes))?;
    let mut found = Vec::new();
    if let Format::Libsvm(how) = &files.format {
        let all = || train.iter().chain(&test).map(|(_, part)| part);
        let most = |of: &[(String, Part)]| of.iter().map(|(_, part)| part.inputs.width()).max();
        let widest = most(&train).max(most(&test)).unwrap_or(1);
        found.extend(widths(how, most(&train).unwrap_or(1), widest));
        let width = how.width.map_or(widest, |width| width as usize);
        ensure!(
            widest <= width,
            "an index is {widest}, above the `width` {width} of the spec"
        );
        let values: u64 = all().map(|part| part.bytes() / 8).sum();
        let cells = all().map(|part| part.of.len() as u64).sum::<u64>() * width as u64;
        // rows that are mostly there are smaller and faster as plain numbers
        let dense = values * 2 > cells && cells * 4 <= budget.left();
        for (_, part) in train.iter_mut().chain(&mut test) {
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
        test,
        notes: Notes {
            found,
            hidden: [lost.notes(), sides.rounded().into_iter().collect()].concat(),
            form: sides.notes.into_iter().collect(),
        },
    })
}

/// What fl found of the width of LIBSVM's rows if the spec does not say it: the largest index in
/// the clients' rows and in all.
fn widths(how: &Libsvm, own: usize, all: usize) -> Option<String> {
    let more = if all > own {
        format!(
            "; but test rows go up to {all}, so there are {all} features, of which the last {} are 0 in all rows of clients",
            all - own
        )
    } else {
        String::new()
    };
    how.width.is_none().then(|| {
        format!(
            "the largest index in the clients' rows, {own}, says how many features there are; say `width` where they are private{more}"
        )
    })
}

fn empty() -> Inputs {
    Inputs::Dense {
        shape: vec![1],
        data: Vec::new(),
    }
}
