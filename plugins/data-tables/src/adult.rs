//! `adult`: LIBSVM's form of the census rows.

use anyhow::Result;
use fl_core::{Labels, Task};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, class_task, dataset::Part, format::libsvm};

/// Terms of Adult.
pub(crate) const LICENCE: &str = "CC BY 4.0 (Becker, Kohavi 1996)";

const WIDTH: u32 = 123;

fl_core::settings! {
    /// Census rows as 123 yes/no features (LIBSVM's a9a), income above 50,000 or not.
    pub struct Adult {}
}
fl_data_kit::data_set!("adult" => Adult);

impl DataSet for Adult {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "adult",
            files: &[&["a9a"], &["a9a.t"]],
            source: "a9a of the LIBSVM data sets, csie.ntu.edu.tw/~cjlin/libsvmtools/datasets",
            licence: LICENCE,
            rows: Some((32_561, 16_281)),
            statistics: None,
            sparse: true,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&[WIDTH as usize], 2)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let part = |file: &str| -> Result<Part> {
            let mut rows = folder.read(file, |bytes| libsvm::rows(&bytes, WIDTH, libsvm::sign))?;
            let of = std::mem::take(&mut rows.labels);
            Ok((
                rows.sparse(WIDTH as usize),
                Labels::Classes { of, classes: 2 },
            ))
        };
        Ok(Rows::new(part("a9a")?, part("a9a.t")?))
    }
}
