//! `cifar10`.

use crate::cifar::{SHAPE, read};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, class_task};

const FILES: &[&[&str]] = &[
    &["data_batch_1.bin"],
    &["data_batch_2.bin"],
    &["data_batch_3.bin"],
    &["data_batch_4.bin"],
    &["data_batch_5.bin"],
    &["test_batch.bin"],
];

fl_core::settings! {
    /// Ten kinds of things, 32 x 32 in colour.
    pub struct Cifar10 {}
}
fl_data_kit::data_set!("cifar10" => Cifar10);

impl DataSet for Cifar10 {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "cifar10",
            files: FILES,
            source: "CIFAR-10 binary version, cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
            licence: "free use with citation",
            rows: Some((50_000, 10_000)),
            statistics: Some((&[0.4913, 0.4821, 0.4465], &[0.2452, 0.2428, 0.2606])),
            sparse: false,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&SHAPE, 10)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let (train, test) = FILES.split_at(5);
        Ok(Rows::new(
            read(folder, train, 1, 10)?,
            read(folder, test, 1, 10)?,
        ))
    }
}
