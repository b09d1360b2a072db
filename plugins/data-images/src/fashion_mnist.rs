//! `fashion-mnist`.

use crate::idx_pair::{GREY, MNIST_FILES, downloads, rows};
use anyhow::Result;
use fl_core::Task;
use fl_data_kit::{DataSet, DataSetFacts, Download, Folder, Rows, class_task};

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

    fn downloads(&self) -> &'static [Download] {
        const {
            &downloads(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                [
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ],
            )
        }
    }

    fn load(&self, folder: &Folder<'_>) -> Result<Rows> {
        rows(folder, ["train", "t10k"], 10)
    }
}
