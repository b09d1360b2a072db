//! Images to be made of others.

use crate::content::Budget;
use crate::format::ImageFiles;
use crate::images::{self, Lost};
use crate::paired_images::Targets;
use crate::settings::Files;
use anyhow::{Result, ensure};
use fl_core::{Images, Inputs, Labels};
use ndarray::Array2;
use std::path::{Path, PathBuf};

/// All that are to be made, one after the other, and their shape.
#[derive(Default)]
pub(crate) struct ImageTargets {
    shape: Option<([usize; 3], PathBuf)>,
    data: Vec<u8>,
    number: usize,
}

impl Targets for ImageTargets {
    const WORD: &'static str = "second image";
    const ENDING: &'static str = ".png, .jpg or .jpeg";

    fn len(&self) -> usize {
        self.number
    }

    fn read(
        &mut self,
        path: &Path,
        _: &Path,
        _: &[usize],
        (lost, budget): (&mut Lost, &mut Budget),
    ) -> Result<()> {
        let Inputs::Bytes { shape, data, .. } =
            images::stacked(&[path.to_path_buf()], &ImageFiles::AS_STORED, lost, budget)?
        else {
            anyhow::bail!("{}: not an image of bytes", path.display());
        };
        let (due, first) = self.shape.get_or_insert((shape, path.to_path_buf()));
        ensure!(
            shape == *due,
            "{}: {}, but {} is {}; all target images must be alike",
            path.display(),
            images::described(shape),
            first.display(),
            images::described(*due)
        );
        self.data.extend(data);
        self.number += 1;
        Ok(())
    }

    fn classes(&mut self, files: &Files, _: usize) -> Result<(Vec<String>, Vec<String>)> {
        ensure!(
            files.classes.is_none(),
            "`classes`: target images have none; leave it out"
        );
        Ok((Vec::new(), Vec::new()))
    }

    fn labels(&self, of: &[u32], _: &[usize], _: usize) -> Result<Labels> {
        let shape = self.shape.as_ref().map_or([0; 3], |(shape, _)| *shape);
        let volume: usize = shape.iter().product();
        let start = |at: &u32| *at as usize * volume;
        let bytes = of
            .iter()
            .flat_map(|at| &self.data[start(at)..start(at) + volume]);
        let bytes = Array2::from_shape_vec((of.len(), volume), bytes.copied().collect())?;
        Images::new(shape, bytes).map(Labels::Images)
    }
}
