//! `cod-rna`.

use super::Scale;
use super::shared::{classes, dense, task};
use crate::folder::Folder;
use crate::format::libsvm;
use crate::load::standard;
use crate::set::{DataSet, DataSetFacts, Part, Rows};
use crate::spec::Normalise;
use anyhow::Result;
use fl_core::{Inputs, Task};

const WIDTH: u32 = 8;

fl_core::settings! {
    /// Eight numbers per pair of RNA sequences, non-coding or not, as published: not on one scale.
    pub struct CodRna {
        /// What is done to its columns.
        scale: Scale = Scale::None;
    }
}
crate::data_set!("cod-rna" => CodRna);

impl DataSet for CodRna {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "cod-rna",
            files: &[&["cod-rna"], &["cod-rna.t"]],
            source: "cod-rna of the LIBSVM data sets, csie.ntu.edu.tw/~cjlin/libsvmtools/datasets",
            licence: "none stated; cite Uzilov, Keegan, Mathews 2006",
            rows: Some((59_535, 271_617)),
            statistics: None,
            sparse: false,
        }
    }

    fn task(&self) -> Option<Task> {
        task(&[WIDTH as usize], 2)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let part = |file: &str| -> Result<Part> {
            let rows = folder.read(file, |bytes| libsvm::rows(&bytes, WIDTH, libsvm::sign))?;
            Ok((dense(&rows, WIDTH as usize), classes(rows.labels, 2)))
        };
        Ok(Rows::new(part("cod-rna")?, part("cod-rna.t")?))
    }

    fn scale(&self, train: &Inputs) -> Option<Normalise> {
        (self.scale == Scale::Standard).then(|| standard(train, train.width()))
    }
}
