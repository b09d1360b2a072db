//! `mnist`.

use crate::idx_pair::{GREY, MNIST_FILES, downloads, rows};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Download, Folder, Rows, class_task};

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

    fn downloads(&self) -> &'static [Download] {
        const {
            &downloads(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                [
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ],
            )
        }
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        rows(folder, ["train", "t10k"], 10)
    }
}
