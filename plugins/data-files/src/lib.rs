#![doc = include_str!("../README.md")]

mod arrays;
mod class_key;
mod classes;
mod column_kinds;
mod content;
mod encode;
mod format;
mod images;
mod label;
mod leaf;
mod literal;
mod load;
mod masks;
pub mod npy;
mod paired_images;
mod pairs;
mod parquet;
mod paths;
mod read_table;
mod rows;
mod seen_column;
mod seen_numbers;
mod settings;
mod table;
mod train_test;

pub use column_kinds::{Category, Column, Columns, Number, Text};
pub use format::{
    Channels, Csv, Format, ImageFiles, Leaf, Libsvm, MaskPixels, Masks, Npy, Npz, Resize, ResizeBy,
};
pub use label::{Label, LabelKind, LabelSource};
pub use literal::Literal;
pub use paths::{Pair, Paths, Source};
pub use settings::{Files, MAX_BYTES};

use anyhow::Result;
use fl_core::Task;
use fl_data_kit::dataset::Problem;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows};
use masks::MaskTargets;
use pairs::ImageTargets;
use settings::{GIVE_TEST, IDX_LABELS, NPY_LABELS};
use std::path::{Path, PathBuf};

fl_data_kit::data_set!("files" => Files);

impl DataSet for Files {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            source: "your own files",
            rows: None,
            ..DataSetFacts::made(0, 0)
        }
    }

    fn task(&self) -> Option<Task> {
        None
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        let mut found = self.clone();
        if let Some((_, text)) = found.locate(Path::new("")).into_iter().next() {
            anyhow::bail!(text);
        }
        match &self.format {
            Format::Masks(how) => paired_images::read(&found, &mut MaskTargets::new(how)),
            Format::Pairs => paired_images::read(&found, &mut ImageTargets::default()),
            _ => load::read(&found),
        }
    }

    fn locate(&mut self, folder: &Path) -> Vec<Problem> {
        let mut problems = self.train.locate(folder, &self.format, "train");
        if let Some(test) = &mut self.test {
            problems.extend(test.locate(folder, &self.format, "test"));
        }
        problems
    }

    fn lacks(&self, tested: bool) -> Option<&'static str> {
        match self.format {
            _ if tested && self.test.is_none() && self.holdout.is_none() => Some(GIVE_TEST),
            _ if !self.unlabelled() => None,
            Format::Idx => Some(IDX_LABELS),
            Format::Npy(_) => Some(NPY_LABELS),
            Format::Npz(_) => Some("`label` is missing: the name of the array with the classes"),
            _ => Some(
                "`label` is missing: the name of the column with the classes, or `{ column: NAME, kind: number }` for a number to predict",
            ),
        }
    }

    fn sources(&self) -> Option<usize> {
        // only the files say how many users there are
        self.train.clients().filter(|_| !self.format.names_users())
    }

    fn own(&self) -> bool {
        true
    }

    fn readings(&self) -> &'static [&'static str] {
        &[
            "label",
            "classes",
            "columns",
            "missing",
            "format.leaf",
            "format.npy",
            "format.npz.channels",
            "format.images.resize",
            "format.images.colours",
            "format.masks",
        ]
    }

    fn private(&self, _: &Folder<'_>) -> Vec<PathBuf> {
        self.rows_of(&self.train)
    }

    fn paths(&self, _: &Folder<'_>) -> Vec<PathBuf> {
        let sources = self.train.sources().iter();
        let tests = self.test.iter().flat_map(Paths::sources);
        sources
            .chain(tests)
            .flat_map(|source| source.files(&self.format))
            .collect()
    }
}
