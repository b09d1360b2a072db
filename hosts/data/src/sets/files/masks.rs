//! Images in one folder, their masks in another.

use super::gather::{Divided, bare, divided};
use super::paths::{Paths, Source, inside};
use super::rows::{Part, joined};
use super::{Files, MaskPixels, Masks as How, images};
use crate::archive;
use crate::set::Rows;
use anyhow::{Context, Result, ensure};
use fl_core::{Inputs, Labels, Masks};
use ndarray::Array2;
use std::path::{Path, PathBuf};

/// All masks, in the order in which they were read.
struct Read<'a> {
    files: &'a Files,
    how: &'a How,
    masks: Vec<(PathBuf, Vec<u16>)>,
    limit: u64,
}

pub(super) fn read(files: &Files, how: &How) -> Result<Rows> {
    let mut all = Read {
        files,
        how,
        masks: Vec::new(),
        limit: files.max_bytes,
    };
    let mut train = Vec::new();
    for source in files.train.sources() {
        train.push((source.name().to_string(), all.source(source)?));
    }
    let learnt = all.masks.len();
    let mut test = Vec::new();
    for source in files.test.iter().flat_map(Paths::sources) {
        test.push(all.source(source)?);
    }
    let test = match test.is_empty() {
        true => None,
        false => Some(joined(test).context("the test images")?),
    };
    let (names, notes) = all.classes(learnt)?;
    let Divided {
        own,
        tested,
        sources,
    } = divided(files, train, test);
    let set = |parts: Vec<Part>, what: &str| -> Result<(Inputs, Labels)> {
        let part = joined(parts).with_context(|| format!("the {what} images"))?;
        ensure!(!part.of.is_empty(), "there are no {what} images");
        let labels = all.labels(&part, names.len())?;
        Ok((part.inputs, labels))
    };
    let (train, test) = (set(own, "training")?, set(tested, "test")?);
    ensure!(
        train.0.shape() == test.0.shape(),
        "training images have shape {:?}, test images {:?}; they must be equal",
        train.0.shape(),
        test.0.shape()
    );
    let mut inferred = notes.clone();
    inferred.extend(bare(files));
    Ok(Rows {
        sources,
        columns: vec![("inputs".into(), format!("shape {:?}", train.0.shape()))],
        classes: names,
        inferred,
        notes,
        ..Rows::new(train, test)
    })
}

impl Read<'_> {
    /// The images of a source; in place of a class each has the number of its mask.
    fn source(&mut self, source: &Source) -> Result<Part> {
        let Source::Pair { inputs, labels } = source else {
            anyhow::bail!(
                "{}: masks must stand in a folder of their own",
                source.name()
            );
        };
        let listed = |folder: &str| {
            let mut found = Vec::new();
            inside(Path::new(folder), &self.files.format, false, &mut found);
            found
        };
        let (paths, masks) = (listed(inputs), listed(labels));
        let stem = |path: &Path| path.file_stem().map(|name| name.to_os_string());
        let from = self.masks.len() as u32;
        let part = Part {
            inputs: images::stacked(&paths, &mut self.limit)
                .with_context(|| format!("the images in {inputs}"))?,
            of: (from..from + paths.len() as u32).collect(),
        };
        let shape = part.inputs.shape();
        for image in &paths {
            let mask = masks.iter().find(|mask| stem(mask) == stem(image));
            let mask = mask.with_context(|| {
                format!(
                    "{}: there is no mask of its name in {labels}; it would be {}.png",
                    image.display(),
                    stem(image).unwrap_or_default().to_string_lossy()
                )
            })?;
            let name = || mask.display().to_string();
            let file = archive::read_at_most(mask, self.limit.min(archive::MAX_BYTES))?;
            let (size, numbers) = images::numbers(&file).with_context(name)?;
            ensure!(
                size == shape[1..],
                "{}: {} x {} pixels, but {} has {} x {}",
                name(),
                size[0],
                size[1],
                image.display(),
                shape[1],
                shape[2]
            );
            let bytes = 2 * numbers.len() as u64;
            self.limit = self.limit.checked_sub(bytes).with_context(|| {
                format!("{}: with it the masks need more than `max-bytes`", name())
            })?;
            self.masks.push((mask.clone(), numbers));
        }
        if let Some(alone) = masks
            .iter()
            .find(|mask| !paths.iter().any(|image| stem(image) == stem(mask)))
        {
            anyhow::bail!(
                "{}: there is no image of its name in {inputs}",
                alone.display()
            );
        }
        Ok(part)
    }

    /// The names of the classes, of the spec or of the first `learnt` masks; what a user should know of them. Makes 255 a 1
    /// where masks hold 0 and 255.
    fn classes(&mut self, learnt: usize) -> Result<(Vec<String>, Vec<String>)> {
        let numbers = |masks: &[(PathBuf, Vec<u16>)]| {
            let all = masks.iter().flat_map(|(_, mask)| mask);
            all.copied().max().unwrap_or_default()
        };
        if self.how.pixels == MaskPixels::Objects {
            let names = ["background", "object"].map(String::from).to_vec();
            ensure!(
                self.files.classes.is_none(),
                "`classes`: masks of objects have two, background and object; leave it away"
            );
            ensure!(
                numbers(&self.masks[..learnt]) > 0,
                "no training mask has an object"
            );
            return Ok((names, Vec::new()));
        }
        let binary = self.masks.iter().flat_map(|(_, mask)| mask);
        if binary.clone().all(|n| [0, 255].contains(n)) && binary.clone().any(|n| *n == 255) {
            let all = self.masks.iter_mut().flat_map(|(_, mask)| mask);
            all.for_each(|n| *n = (*n).min(1));
        }
        let (names, notes) = match &self.files.classes {
            Some(names) => (names.iter().map(|name| name.0.clone()).collect(), vec![]),
            None => {
                let most = numbers(&self.masks[..learnt]);
                let note = format!(
                    "the {} classes of pixels were found in the clients' masks; say them in `classes` where that is private",
                    most + 1
                );
                let names: Vec<String> = (0..=most).map(|n| n.to_string()).collect();
                (names, vec![note])
            }
        };
        ensure!(
            (2..=256).contains(&names.len()),
            "the training masks hold {} classes; there must be 2 to 256 (numbers of objects need `pixels: objects`)",
            names.len()
        );
        for (path, mask) in &self.masks {
            if let Some(high) = mask.iter().find(|n| usize::from(**n) >= names.len()) {
                anyhow::bail!(
                    "{}: a pixel of class {high}, and there are {} classes, from 0",
                    path.display(),
                    names.len()
                );
            }
        }
        Ok((names, notes))
    }

    /// The masks of these images.
    fn labels(&self, part: &Part, classes: usize) -> Result<Labels> {
        let shape = part.inputs.shape();
        let (height, width) = (shape[1], shape[2]);
        let masks = part.of.iter().flat_map(|at| &self.masks[*at as usize].1);
        let size = (part.of.len(), height * width);
        let numbers = Array2::from_shape_vec(size, masks.copied().collect())?;
        let (of, objects) = match self.how.pixels {
            MaskPixels::Classes => (numbers.mapv(|n| n as u8), None),
            MaskPixels::Objects => (numbers.mapv(|n| u8::from(n > 0)), Some(numbers)),
        };
        Masks::new(classes, (height, width), of, objects).map(Labels::Pixels)
    }
}

#[cfg(test)]
#[path = "masks_tests.rs"]
mod tests;
