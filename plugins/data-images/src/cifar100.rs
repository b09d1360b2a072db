//! `cifar100`.

use crate::cifar::{SHAPE, read};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, class_task};

fl_core::settings! {
    /// A hundred kinds of things, 32 x 32 in colour.
    pub struct Cifar100 {}
}
fl_data_kit::data_set!("cifar100" => Cifar100);

impl DataSet for Cifar100 {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            folder: "cifar100",
            files: &[&["train.bin"], &["test.bin"]],
            source: "CIFAR-100 binary version, cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
            licence: "free use with citation",
            rows: Some((50_000, 10_000)),
            statistics: Some((&[0.5071, 0.4865, 0.4409], &[0.2673, 0.2564, 0.2762])),
            sparse: false,
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&SHAPE, 100)
    }

    /// A coarse class stands before the class.
    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        Ok(Rows::new(
            read(folder, &[&["train.bin"]], 2, 100)?,
            read(folder, &[&["test.bin"]], 2, 100)?,
        ))
    }
}
