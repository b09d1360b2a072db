//! The published sets of this crate.

use crate::cifar::{self, SHAPE};
use crate::idx_pair::{GREY, MNIST_FILES, downloads, images, rows};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Download, Folder, Rows, class_task};
use std::sync::Arc;

/// Declares a set of images without settings: its name, its type, the shape of an image, the
/// number of classes, what is known of it, its files that `fl data get` fetches, and its reader.
macro_rules! published {
    (
        $(#[doc = $doc:literal])+
        $name:literal => $set:ident, $shape:expr, $classes:literal;
        $files:expr, $source:literal, $licence:literal, $rows:expr, $statistics:expr;
        $downloads:expr;
        $load:expr
    ) => {
        fl_core::settings! {
            $(#[doc = $doc])+
            pub struct $set {}
        }
        fl_data_kit::data_set!($name => $set);

        impl DataSet for $set {
            fn facts(&self) -> DataSetFacts {
                DataSetFacts {
                    folder: $name,
                    files: $files,
                    source: $source,
                    licence: $licence,
                    rows: Some($rows),
                    statistics: Some($statistics),
                    sparse: false,
                }
            }

            fn task(&self) -> Option<Task> {
                class_task(&$shape, $classes)
            }

            fn downloads(&self) -> &'static [Download] {
                const { &$downloads }
            }

            fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
                let load: fn(&Folder<'_>) -> Result<Rows> = $load;
                load(folder)
            }
        }
    };
}

published! {
    /// Handwritten digits, 28 x 28 grey.
    "mnist" => Mnist, GREY, 10;
    MNIST_FILES,
    "MNIST (LeCun, Cortes, Burges)",
    "CC BY-SA 3.0",
    (60_000, 10_000),
    (&[0.1307], &[0.3081]);
    downloads(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        [
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ],
    );
    |folder| rows(folder, ["train", "t10k"], 10)
}

published! {
    /// Articles of clothing, 28 x 28 grey.
    "fashion-mnist" => FashionMnist, GREY, 10;
    MNIST_FILES,
    "Fashion-MNIST, github.com/zalandoresearch/fashion-mnist",
    "MIT (Zalando SE)",
    (60_000, 10_000),
    (&[0.2860], &[0.3530]);
    downloads(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        [
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ],
    );
    |folder| rows(folder, ["train", "t10k"], 10)
}

const CIFAR10_FILES: &[&[&str]] = &[
    &["data_batch_1.bin"],
    &["data_batch_2.bin"],
    &["data_batch_3.bin"],
    &["data_batch_4.bin"],
    &["data_batch_5.bin"],
    &["test_batch.bin"],
];

published! {
    /// Ten kinds of things, 32 x 32 in colour.
    "cifar10" => Cifar10, SHAPE, 10;
    CIFAR10_FILES,
    "CIFAR-10 binary version, cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
    "free use with citation",
    (50_000, 10_000),
    (&[0.4913, 0.4821, 0.4465], &[0.2452, 0.2428, 0.2606]);
    [];
    |folder| cifar::rows(folder, CIFAR10_FILES.split_at(5), 1, 10)
}

const CIFAR100_FILES: &[&[&str]] = &[&["train.bin"], &["test.bin"]];

published! {
    /// A hundred kinds of things, 32 x 32 in colour.
    "cifar100" => Cifar100, SHAPE, 100;
    CIFAR100_FILES,
    "CIFAR-100 binary version, cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
    "free use with citation",
    (50_000, 10_000),
    (&[0.5071, 0.4865, 0.4409], &[0.2673, 0.2564, 0.2762]);
    [];
    // a coarse class stands before the class
    |folder| cifar::rows(folder, CIFAR100_FILES.split_at(1), 2, 100)
}

published! {
    /// Chest X-rays, 28 x 28 grey, normal or pneumonia; has validation rows.
    "pneumoniamnist" => PneumoniaMnist, GREY, 2;
    &[
        &["train-images-idx3-ubyte"],
        &["train-labels-idx1-ubyte"],
        &["val-images-idx3-ubyte"],
        &["val-labels-idx1-ubyte"],
        &["test-images-idx3-ubyte"],
        &["test-labels-idx1-ubyte"],
    ],
    "PneumoniaMNIST of MedMNIST v2, medmnist.com, its arrays written as IDX",
    "CC BY 4.0 (Yang et al. 2023; Kermany et al. 2018)",
    (4708, 624),
    (&[0.5], &[0.5]);
    [];
    |folder| {
        let rows = rows(folder, ["train", "test"], 2)?;
        let (inputs, labels) = images(folder, "val", 2)?;
        Ok(Rows {
            validation: Some((Arc::new(inputs), Arc::new(labels))),
            ..rows
        })
    }
}
