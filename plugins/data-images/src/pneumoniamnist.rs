//! `pneumoniamnist`.

use crate::idx_pair::{GREY, images, rows};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, class_task};
use std::sync::Arc;

fl_core::settings! {
    /// Chest X-rays, 28 x 28 grey, normal or pneumonia; has validation rows.
    pub struct PneumoniaMnist {}
}
fl_data_kit::data_set!("pneumoniamnist" => PneumoniaMnist);

impl DataSet for PneumoniaMnist {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "pneumoniamnist",
            files: &[
                &["train-images-idx3-ubyte"],
                &["train-labels-idx1-ubyte"],
                &["val-images-idx3-ubyte"],
                &["val-labels-idx1-ubyte"],
                &["test-images-idx3-ubyte"],
                &["test-labels-idx1-ubyte"],
            ],
            source: "PneumoniaMNIST of MedMNIST v2, medmnist.com, its arrays written as IDX",
            licence: "CC BY 4.0 (Yang et al. 2023; Kermany et al. 2018)",
            rows: Some((4708, 624)),
            statistics: Some((&[0.5], &[0.5])),
            sparse: false,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&GREY, 2)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let rows = rows(folder, ["train", "test"], 2)?;
        let (inputs, labels) = images(folder, "val", 2)?;
        Ok(Rows {
            validation: Some((Arc::new(inputs), Arc::new(labels))),
            ..rows
        })
    }
}
