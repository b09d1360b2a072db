//! Images in one folder, and in another what belongs to each by its name.

use crate::content::Budget;
use crate::format::ImageFiles;
use crate::images::{self, Lost};
use crate::paths::{Pair, Source, each, inside};
use crate::rows::Part;
use crate::settings::Files;
use crate::train_test::{Notes, hold_out, with_inferred};
use anyhow::{Context, Result};
use fl_core::Labels;
use fl_data_kit::Rows;
use std::path::Path;

/// The targets of images, in the order in which they were read.
pub(crate) trait Targets {
    /// What one is called.
    const WORD: &'static str;
    /// How the name of one ends, where it is missing.
    const ENDING: &'static str;

    /// How many were read.
    fn len(&self) -> usize;

    /// Reads one, which belongs to `image` of this shape; `budget` is the memory that it may
    /// take.
    fn read(
        &mut self,
        path: &Path,
        image: &Path,
        shape: &[usize],
        counts: (&mut Lost, &mut Budget),
    ) -> Result<()>;

    /// The names of the classes, of the spec or of the first `learnt`; what a user should know of
    /// them.
    fn classes(&mut self, files: &Files, learnt: usize) -> Result<(Vec<String>, Vec<String>)>;

    /// Those with the numbers `of`, for images of this shape.
    fn labels(&self, of: &[u32], shape: &[usize], classes: usize) -> Result<Labels>;
}

pub(crate) fn read(files: &Files, targets: &mut impl Targets) -> Result<Rows> {
    let mut budget = Budget::new(files.max_bytes);
    let mut lost = Lost::default();
    let mut read =
        |from: &Source, targets: &mut _| source(files, from, targets, (&mut lost, &mut budget));
    let train = each([&files.train], |from| read(from, targets))?;
    let learnt = targets.len();
    let test = each(&files.test, |from| read(from, targets))?;
    let (names, notes) = targets.classes(files, learnt)?;
    let held = hold_out(files, train, test);
    let labels = |of: &[u32], shape: &[usize]| targets.labels(of, shape, names.len());
    let rows = held.labelled("images", labels)?;
    let rows = Rows {
        columns: vec![("inputs".into(), format!("shape {:?}", rows.train.0.shape()))],
        classes: names,
        ..rows
    };
    let notes = Notes {
        found: notes,
        hidden: lost.notes().into_iter().chain(files.unread()).collect(),
        ..Notes::default()
    };
    Ok(with_inferred(files, rows, notes))
}

/// The images of a source; in place of a class each has the number of its target.
fn source<T: Targets>(
    files: &Files,
    source: &Source,
    targets: &mut T,
    (lost, budget): (&mut Lost, &mut Budget),
) -> Result<Part> {
    let word = T::WORD;
    let Source::Pair(Pair { inputs, labels }) = source else {
        anyhow::bail!(
            "{}: {word}s must be in a folder of their own",
            source.name()
        );
    };
    let listed = |folder: &str| inside(Path::new(folder), &files.format);
    let (paths, others) = (listed(inputs), listed(labels));
    let stem = |path: &Path| path.file_stem().map(|name| name.to_os_string());
    let from = targets.len() as u32;
    let part = Part {
        inputs: images::stacked(&paths, &ImageFiles::AS_STORED, lost, budget)
            .with_context(|| format!("the images in {inputs}"))?,
        of: (from..from + paths.len() as u32).collect(),
    };
    for image in &paths {
        let other = others.iter().find(|other| stem(other) == stem(image));
        let other = other.with_context(|| {
            format!(
                "{}: there is no {word} of its name in {labels}; expected {}{}",
                image.display(),
                stem(image).unwrap_or_default().to_string_lossy(),
                T::ENDING
            )
        })?;
        targets.read(other, image, &part.inputs.shape(), (lost, budget))?;
    }
    if let Some(alone) = others
        .iter()
        .find(|other| !paths.iter().any(|image| stem(image) == stem(other)))
    {
        anyhow::bail!(
            "{}: there is no image of its name in {inputs}",
            alone.display()
        );
    }
    Ok(part)
}
