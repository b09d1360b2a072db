//! Masks of images: the classes, or the objects, of their pixels.

use crate::content::{Budget, content};
use crate::format::{MaskPixels, Masks as How};
use crate::images::{self, Lost};
use crate::paired_images::Targets;
use crate::settings::Files;
use anyhow::{Context, Result, ensure};
use fl_core::{Labels, Masks};
use ndarray::Array2;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// All masks: where each was read, and its numbers.
pub(crate) struct MaskTargets<'a> {
    how: &'a How,
    masks: Vec<(PathBuf, Vec<u16>)>,
}

impl<'a> MaskTargets<'a> {
    pub(crate) fn new(how: &'a How) -> Self {
        Self {
            how,
            masks: Vec::new(),
        }
    }
}

impl Targets for MaskTargets<'_> {
    const WORD: &'static str = "mask";
    const ENDING: &'static str = ".png";

    fn len(&self) -> usize {
        self.masks.len()
    }

    fn read(
        &mut self,
        path: &Path,
        image: &Path,
        shape: &[usize],
        (_, budget): (&mut Lost, &mut Budget),
    ) -> Result<()> {
        let name = || path.display().to_string();
        let file = content(path, budget)?;
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
        budget.give(file.len() as u64);
        budget.take(2 * numbers.len() as u64, path)?;
        self.masks.push((path.to_path_buf(), numbers));
        Ok(())
    }

    /// Makes 255 a 1 where all masks hold 0 and 255, unless the spec lists other than two classes:
    /// then one client's pixel would decide what those of all others mean.
    fn classes(&mut self, files: &Files, learnt: usize) -> Result<(Vec<String>, Vec<String>)> {
        let numbers = |masks: &[(PathBuf, Vec<u16>)]| {
            let all = masks.iter().flat_map(|(_, mask)| mask);
            all.copied().max().unwrap_or_default()
        };
        if self.how.pixels == MaskPixels::Objects {
            let names = ["background", "object"].map(String::from).to_vec();
            ensure!(
                files.classes.is_none(),
                "`classes`: masks of objects have two, background and object; leave it out"
            );
            ensure!(
                numbers(&self.masks[..learnt]) > 0,
                "no training mask has an object"
            );
            return Ok((names, Vec::new()));
        }
        let binary = self.masks.iter().flat_map(|(_, mask)| mask);
        let two = |names: &Vec<_>| names.len() == 2;
        let white = files.classes.as_ref().is_none_or(two)
            && binary.clone().all(|n| [0, 255].contains(n))
            && binary.clone().any(|n| *n == 255);
        if white {
            let all = self.masks.iter_mut().flat_map(|(_, mask)| mask);
            all.for_each(|n| *n = (*n).min(1));
        }
        let (names, notes) = match &files.classes {
            Some(names) => (names.iter().map(|name| name.0.clone()).collect(), vec![]),
            None => {
                let most = numbers(&self.masks[..learnt]);
                let all = self.masks[..learnt].iter().flat_map(|(_, mask)| mask);
                let found: BTreeSet<u16> = all.copied().collect();
                let lacking = usize::from(most) + 1 - found.len();
                let mut note = format!(
                    "fl found the {} classes of pixels in the clients' masks; if they are private, list them in `classes`",
                    most + 1
                );
                if white {
                    note += "; it reads 255 as 1";
                } else if lacking > 0 {
                    note += &format!(
                        "; {lacking} of them have no pixel there: every number of a mask is a class, and {most} is no mark for pixels without one"
                    );
                }
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

    fn labels(&self, of: &[u32], shape: &[usize], classes: usize) -> Result<Labels> {
        let (height, width) = (shape[1], shape[2]);
        let masks = of.iter().flat_map(|at| &self.masks[*at as usize].1);
        let size = (of.len(), height * width);
        let numbers = Array2::from_shape_vec(size, masks.copied().collect())?;
        let (of, objects) = match self.how.pixels {
            MaskPixels::Classes => (numbers.mapv(|n| n as u8), None),
            MaskPixels::Objects => (numbers.mapv(|n| u8::from(n > 0)), Some(numbers)),
        };
        Masks::new(classes, (height, width), of, objects).map(Labels::Pixels)
    }
}
