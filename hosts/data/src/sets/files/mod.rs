//! `files`: a user's own data.

mod arrays;
mod beside;
mod columns;
mod encode;
mod gather;
#[doc(hidden)]
pub use gather::of_test_rows;
mod images;
mod masks;
mod pairs;
mod paths;
mod rows;
mod table;
mod word;

#[cfg(feature = "parquet")]
mod parquet;

pub use columns::{Category, Column, Columns, Number, Text};
pub use paths::{Paths, Source};
pub use word::Word;

use crate::folder::Folder;
use crate::set::{DataSet, DataSetFacts, Problem, Rows};
use anyhow::Result;
use fl_core::Task;
use fl_core::settings::between;
use std::path::{Path, PathBuf};

const GIVE_TEST: &str = "give `test`, or `holdout` (such as 0.2: that share of the training rows is for testing), and not both";
const LABEL_ELSEWHERE: &str = "`label`: this format has a place for labels; leave it away";
const IDX_LABELS: &str = "images of `idx` and their labels stand in two files: `train: {inputs: .., labels: ..}`, and so for `test`";
const NPY_LABELS: &str = "`npy` needs `label` (a column's number), or labels of their own everywhere: `{inputs: x.npy, labels: y.npy}`";

/// Files may hold so much unless a spec allows more.
pub const MAX_BYTES: u64 = 1 << 28;

fl_core::settings! {
    /// Your own files. Rows are scaled by nothing but what the spec says: means, ranges and categories that are computed
    /// from private rows would tell something about them, so what is inferred (kinds of columns, categories, classes) is
    /// reported by `fl data show`, and goes away when the spec says it.
    #[check(Files::check)]
    pub struct Files {
        /// How the files are written; plain, `.gz` or `.xz`.
        format: Format;
        /// Training rows, relative to the spec. One file is shared out over the clients. A list gives each client an entry of
        /// its own: a file, a folder, or a pattern such as `"a-*.csv"`. A pattern alone gives each client a match; a folder of
        /// tables alone, a file. Of `images`, a file is a folder with a folder per class. `idx` and `npy` can have labels of
        /// their own: `{inputs: x.npy, labels: y.npy}`.
        train: Paths;
        /// Test rows, in the same forms. A public set needs none, nor a node's.
        test: Option<Paths> = None;
        /// Instead of `test`: this share of the rows of every training file, drawn once and for all (not by the run's seed).
        holdout: Option<f64> = None, in between(0.0, 1.0);
        /// What holds the class: a column of `csv`, `jsonl` or `parquet`, an array of `npz`, a column of `npy` by its number
        /// from 1. Other formats have a place for it. Left away (or `labels` of `idx` and `npy`), the rows have no labels, as only
        /// a public set may.
        label: Option<Word> = None;
        /// The classes in their order; if not given, those in the training rows, sorted.
        classes: Option<Vec<Word>> = None;
        /// How columns are read: `{age: number, job: category, sex: {category: {of: [female, male]}}, notes: text, id: skip}`. The others are numbers if every row has
        /// one there, categories otherwise.
        columns: Columns = Columns::default();
        /// A field with one of these texts is missing: a category without a column, a number only where `columns` says which.
        missing: Vec<Word> = ["", "?", "NA", "NaN", "null"].map(Word::from).to_vec();
        /// Files that hold more, decompressed, are refused, and so are rows that would need more as numbers.
        max_bytes: u64 = MAX_BYTES, in 1..=(1 << 32) - 1;
    }
}
crate::data_set!("files" => Files);

fl_core::choices! {
    /// How files are written.
    pub enum Format {
        /// A table: one row a line, fields separated by commas, names of the columns in the first line.
        Csv(Csv) = "csv",
        /// Images and labels as MNIST has them: unsigned bytes.
        Idx = "idx",
        /// One row a line: `label index:value ..`.
        Libsvm(Libsvm) = "libsvm",
        /// An array of NumPy: a row per sample; bytes of three or four dimensions are images.
        Npy = "npy",
        /// Several arrays of NumPy.
        Npz(Npz) = "npz",
        /// A table in Apache's column format. Needs a program built with the feature `parquet`.
        Parquet = "parquet",
        /// A table: one JSON object a line.
        Jsonl = "jsonl",
        /// PNG or JPEG files of one size, a folder per class; or all in one folder, as only a public set may have them.
        Images = "images",
        /// PNG or JPEG files of one size in a folder, and in another a PNG of the same name for each, whose pixels have
        /// classes: `{inputs: images, labels: masks}`.
        Masks(Masks) = "masks",
        /// PNG or JPEG files of one size in a folder, and in another the image of the same name that is to be made of each, all of
        /// one size, which may be another: `{inputs: noisy, labels: clean}`.
        Pairs = "pairs",
    }
}

fl_core::settings! {
    /// How a table of text is written.
    pub struct Csv {
        /// Between two fields, one character; if not given a comma, in `.tsv` files a tab.
        separator: Option<String> = None;
        /// Is the first line the names of the columns? If not, columns are called by their number, from 1.
        header: bool = true;
    }
}

fl_core::settings! {
    /// Rows of LIBSVM.
    pub struct Libsvm {
        /// Features; if not given, the largest index in any file.
        width: Option<u32> = None, in 1..=MAX_WIDTH;
    }
}

fl_core::settings! {
    /// Arrays of NumPy.
    pub struct Npz {
        /// The array with a row per sample.
        inputs: String = "x".into();
    }
}

fl_core::settings! {
    /// Images whose pixels have classes.
    pub struct Masks {
        /// What stands in a pixel of a mask.
        pixels: MaskPixels = MaskPixels::Classes;
    }
}

fl_core::choices! {
    /// What stands in a pixel of a mask, a PNG of one channel with 8 or 16 bits.
    pub enum MaskPixels {
        /// Its class, from 0, the background; or, if there are two classes, 0 and 255.
        Classes = "classes",
        /// The number of its object, 0 for none. There are two classes: background, and objects.
        Objects = "objects",
    }
}

/// More features than this are a slip of the pen.
const MAX_WIDTH: u32 = crate::text::MAX_WIDTH as u32;

impl Format {
    fn is_table(&self) -> bool {
        matches!(self, Self::Csv(_) | Self::Jsonl | Self::Parquet)
    }

    /// Does a file hold many rows? Then one with the same content is the same; images are alike more easily.
    fn of_many_rows(&self) -> bool {
        !matches!(self, Self::Images | Self::Masks(_) | Self::Pairs)
    }

    /// Endings of the files that count in a folder; any if there are none.
    fn endings(&self) -> &'static [&'static str] {
        match self {
            Self::Csv(_) => &["csv", "tsv"],
            Self::Jsonl => &["jsonl", "ndjson"],
            Self::Parquet => &["parquet"],
            Self::Npy => &["npy"],
            Self::Npz(_) => &["npz"],
            Self::Images | Self::Masks(_) | Self::Pairs => &["png", "jpg", "jpeg"],
            Self::Idx | Self::Libsvm(_) => &[],
        }
    }
}

impl Files {
    /// Has nobody said where labels are?
    fn unlabelled(&self) -> bool {
        let pairs = self.train.sources().iter().all(Source::is_pair);
        match self.format {
            Format::Libsvm(_) | Format::Images | Format::Masks(_) | Format::Pairs => false,
            Format::Idx | Format::Npy if pairs => false,
            _ => self.label.is_none(),
        }
    }

    /// Does the spec say how this column is read, or that it holds the class?
    fn says(&self, column: &str) -> bool {
        let label = self.label.iter().any(|label| label.0 == column);
        label || self.columns.0.iter().any(|(name, _)| name == column)
    }

    /// The files that rows stand in.
    fn rows_of(&self, paths: &Paths) -> Vec<PathBuf> {
        let sources = paths.sources().iter();
        sources
            .flat_map(|source| source.inputs(&self.format))
            .collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.test.is_some() && self.holdout.is_some() {
            return Err(GIVE_TEST.into());
        }
        let pairs = |paths: &Paths| paths.sources().iter().all(Source::is_pair);
        let paths = || {
            [Some(&self.train), self.test.as_ref()]
                .into_iter()
                .flatten()
        };
        let all_pairs = paths().all(pairs);
        let any_pair = paths().any(|p| p.sources().iter().any(Source::is_pair));
        let (label, format) = (self.label.is_some(), &self.format);
        match format {
            Format::Idx if any_pair != all_pairs => return Err(IDX_LABELS.into()),
            Format::Idx if label => return Err(LABEL_ELSEWHERE.into()),
            Format::Npy if (any_pair && label) || any_pair != all_pairs => {
                return Err(NPY_LABELS.into());
            }
            Format::Masks(_) if !all_pairs || label => {
                return Err("images and their `masks` stand in two folders: `train: {inputs: .., labels: ..}`, and so for `test`; `label` is not used".into());
            }
            Format::Pairs if !all_pairs || label => {
                return Err("images and those to be made of them (`pairs`) stand in two folders: `train: {inputs: .., labels: ..}`, and so for `test`; `label` is not used".into());
            }
            Format::Idx | Format::Npy | Format::Masks(_) | Format::Pairs => {}
            _ if any_pair => {
                return Err(
                    "only `idx`, `npy`, `masks` and `pairs` have labels in a place of their own"
                        .into(),
                );
            }
            Format::Libsvm(_) | Format::Images if label => {
                return Err(LABEL_ELSEWHERE.into());
            }
            _ => {}
        }
        if !format.is_table() && self.columns != Columns::default() {
            return Err("`columns` is for tables: csv, jsonl and parquet".into());
        }
        if let Format::Csv(Csv {
            separator: Some(text),
            ..
        }) = format
            && (text.len() != 1 || ["\"", "\n", "\r"].contains(&text.as_str()))
        {
            return Err(format!(
                "`separator` must be one ASCII character (`\"\\t\"` is a tab), got {text:?}"
            ));
        }
        let classes = self.classes.iter().flatten();
        let mut seen = std::collections::BTreeSet::new();
        match classes.clone().find(|class| !seen.insert(*class)) {
            Some(twice) => Err(format!("`classes` names {twice} twice")),
            None if self.classes.is_some() && classes.count() < 2 => {
                Err("`classes` must name at least two".into())
            }
            None => Ok(()),
        }
    }
}

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
            Format::Masks(how) => beside::read(&found, &mut masks::Read::new(how)),
            Format::Pairs => beside::read(&found, &mut pairs::Read::default()),
            _ => gather::read(&found),
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
            Format::Npy => Some(NPY_LABELS),
            Format::Npz(_) => Some("`label` is missing: the name of the array with the classes"),
            _ => Some("`label` is missing: the name of the column with the classes"),
        }
    }

    fn sources(&self) -> Option<usize> {
        self.train.clients()
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

#[cfg(test)]
mod tests;
