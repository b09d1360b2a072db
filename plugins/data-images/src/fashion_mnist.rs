//! `fashion-mnist`.

use crate::idx_pair::{GREY, MNIST_FILES, rows};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, class_task};

fl_core::settings! {
    /// Articles of clothing, 28 x 28 grey.
    pub struct FashionMnist {}
}
fl_data_kit::data_set!("fashion-mnist" => FashionMnist);

impl DataSet for FashionMnist {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "fashion-mnist",
            files: MNIST_FILES,
            source: "Fashion-MNIST, github.com/zalandoresearch/fashion-mnist",
            licence: "MIT (Zalando SE)",
            rows: Some((60_000, 10_000)),
            statistics: Some((&[0.2860], &[0.3530])),
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
