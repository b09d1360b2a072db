//! `cod-rna`.

use crate::scale::{Scale, standard};
use anyhow::Result;
use fl_core::{Inputs, Labels, Task};
use fl_data_kit::{
    DataSet, DataSetFacts, Folder, Normalise, Rows, class_task, dataset::Part, format::libsvm,
};

const WIDTH: u32 = 8;

fl_core::settings! {
    /// Eight numbers per pair of RNA sequences, non-coding or not, as published: not on one scale.
    pub struct CodRna {
        /// Scaling of the columns.
        scale: Scale = Scale::None;
    }
}
fl_data_kit::data_set!("cod-rna" => CodRna);

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
        class_task(&[WIDTH as usize], 2)
    }

    fn vocabulary(&self) -> Option<usize> {
        Some(0)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let part = |file: &str| -> Result<Part> {
            let rows = folder.read(file, |bytes| libsvm::rows(&bytes, WIDTH, libsvm::sign))?;
            Ok((
                rows.dense(WIDTH as usize),
                Labels::Classes {
                    of: rows.labels,
                    classes: 2,
                },
            ))
        };
        Ok(Rows::new(part("cod-rna")?, part("cod-rna.t")?))
    }

    fn scale(&self, train: &Inputs) -> Option<Normalise> {
        (self.scale == Scale::Standard).then(|| standard(train, train.width()))
    }
}
