//! `mnist`.

use crate::idx_pair::{GREY, MNIST_FILES, rows};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, class_task};

fl_core::settings! {
    /// Handwritten digits, 28 x 28 grey.
    pub struct Mnist {}
}
fl_data_kit::data_set!("mnist" => Mnist);

impl DataSet for Mnist {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "mnist",
            files: MNIST_FILES,
            source: "MNIST (LeCun, Cortes, Burges)",
            licence: "CC BY-SA 3.0",
            rows: Some((60_000, 10_000)),
            statistics: Some((&[0.1307], &[0.3081])),
            sparse: false,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&GREY, 10)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        rows(folder, ["train", "t10k"], 10)
    }
}
