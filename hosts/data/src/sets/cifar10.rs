//! `cifar10`.

use super::shared::{cifar, task};
use crate::folder::Folder;
use crate::format::cifar::SHAPE;
use crate::set::{DataSet, DataSetFacts, Rows};
use anyhow::Result;
use fl_core::Task;

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
crate::data_set!("cifar10" => Cifar10);

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
        task(&SHAPE, 10)
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        let (train, test) = FILES.split_at(5);
        Ok(Rows::new(
            cifar(folder, train, 1, 10)?,
            cifar(folder, test, 1, 10)?,
        ))
    }
}
