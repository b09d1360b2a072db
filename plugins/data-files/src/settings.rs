//! The settings of `files`.

use crate::class_key::{decimal, is_code, key};
use crate::column_kinds::Columns;
use crate::format::{Csv, Format};
use crate::label::{LabelKind, LabelSource};
use crate::literal::Literal;
use crate::paths::{Paths, Source, unread};
use fl_core::settings::between;
use fl_data_kit::NumberLabel;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) const GIVE_TEST: &str =
    "give `test`, or `holdout` (such as 0.2: that share of the training rows is for testing)";
const LABEL_IN_FORMAT: &str = "`label`: this format has its own labels; leave it out";
const LABELS_OF_IMAGES: &str = "labels of `images` are the names of their folders, or the column `label` of a table: `train: {inputs: FOLDER, labels: TABLE.csv}`, and so for `test`";
pub(crate) const IDX_LABELS: &str = "images of `idx` and their labels are in two files: `train: {inputs: .., labels: ..}`, and so for `test`";
pub(crate) const NPY_LABELS: &str = "`npy` needs `label` (a column's number), or labels of their own everywhere: `{inputs: x.npy, labels: y.npy}`";

/// The default of `max-bytes`.
pub const MAX_BYTES: u64 = 1 << 30;

fl_core::settings! {
    /// Your own files. Rows are scaled only by numbers in the spec, because means, ranges and
    /// categories that are computed from private rows would disclose something about them.
    /// `fl data show` reports everything that is inferred (kinds of columns, categories, classes).
    /// Nothing is inferred that the spec states.
    #[check(Files::check)]
    pub struct Files {
        /// How the files are written; plain, `.gz` or `.xz`.
        format: Format;
        /// Training rows, relative to the spec. One file is shared out over the clients. A list
        /// gives each client an entry of its own: a file, a folder, or a pattern such as
        /// `"a-*.csv"`. A pattern alone gives each client a match; a folder of tables alone, a
        /// file. Of `images`, a file is a folder with a folder per class. `idx` and `npy` can have
        /// labels of their own: `{inputs: x.npy, labels: y.npy}`, and `images` a table of labels.
        train: Paths;
        /// Test rows, in the same forms. A public set needs none, nor a node's.
        test: Option<Paths> = None;
        /// Instead of `test`: this share of the rows of every training file, drawn once and for all
        /// (not by the run's seed).
        holdout: Option<f64> = None, in between(0.0, 1.0);
        /// What holds the class: a column of `csv`, `jsonl` or `parquet`, an array of `npz`, a
        /// column of `npy` by its number from 1, a column of the table of `images`. Other formats have a place for it. Left away (or
        /// `labels` of `idx` and `npy`), the rows have no labels, as only a public set may. A number
        /// to predict says so: `{column: price, kind: number}`, without `column` where the format
        /// has a place for it.
        label: Option<LabelSource> = None;
        /// The classes in their order; if not given, those in the training rows, sorted. Labels that
        /// are equal as numbers or truth values are one class: `1`, `1.0` and `true`.
        classes: Option<Vec<Literal>> = None;
        /// In place of classes: labels of which a row can have several. Each is 1 (present), 0
        /// (absent), or -1 or missing (unknown). They are columns of `csv`, `jsonl` or `parquet`, or
        /// the columns of the array of labels of `npy` or `npz`, in its order.
        findings: Option<Vec<Literal>> = None;
        /// How columns are read:
        /// `{age: number, job: category, sex: {category: {of: [female, male]}}, notes: text, id: skip}`.
        /// The others are numbers if every row has one there, categories otherwise. A column of
        /// numbers with some texts in it is a mistake.
        columns: Columns = Columns::default();
        /// A field with one of these texts is missing: for a category no column is set; for a
        /// number `columns` must give a value.
        missing: Vec<Literal> = ["", "?", "NA", "NaN", "null"].map(Literal::from).to_vec();
        /// The memory that reading all files may take, in bytes: unpacked files, fields of tables
        /// and numbers. The text of a table is not held, but must not be longer than what is left
        /// of it. Files that need more are refused.
        max_bytes: u64 = MAX_BYTES, in 1..=1 << 40;
    }
}
impl Files {
    /// Does the spec name no place of labels?
    pub(crate) fn unlabelled(&self) -> bool {
        let pairs = self.train.sources().iter().all(Source::is_pair);
        match self.format {
            Format::Libsvm(_)
            | Format::Images(_)
            | Format::Leaf(_)
            | Format::Masks(_)
            | Format::Pairs => false,
            Format::Idx | Format::Npy(_) if pairs => false,
            _ if self.format.is_table() => self.label.is_none() && self.findings.is_none(),
            _ => self.label.is_none(),
        }
    }

    /// Does the spec say how this column is read, or that it holds the class?
    pub(crate) fn says(&self, column: &str) -> bool {
        let label = self.label_column().is_some_and(|label| label.0 == column);
        let finding = self
            .findings
            .iter()
            .flatten()
            .any(|label| label.0 == column);
        label || finding || self.columns.0.iter().any(|(name, _)| name == column)
    }

    /// The column or array that holds the label.
    pub(crate) fn label_column(&self) -> Option<&Literal> {
        self.label.as_ref()?.0.column.as_ref()
    }

    /// How labels are numbers, if they are.
    pub(crate) fn number(&self) -> Option<&NumberLabel> {
        match &self.label.as_ref()?.0.kind {
            LabelKind::Number(how) => Some(how),
            LabelKind::Class => None,
        }
    }

    /// What messages call that which holds the label.
    pub(crate) fn label_name(&self) -> String {
        let named = self.label_column().map(|label| label.to_string());
        named.unwrap_or_else(|| "the label".into())
    }

    /// What a spec says whose label is a number to predict.
    pub(crate) fn as_number(&self) -> String {
        match self.label_column() {
            Some(Literal(column)) => format!("label: {{ column: {column}, kind: number }}"),
            None => "label: { kind: number }".into(),
        }
    }

    /// What stands in folders and is not read.
    pub(crate) fn unread(&self) -> Option<String> {
        let all: Vec<&Paths> = [&self.train].into_iter().chain(&self.test).collect();
        unread(&all, &self.format)
    }

    /// Does a field mean that nothing is known? Numbers are compared as such: -999.0 is -999.
    /// Codes with leading zeros are no numbers.
    pub(crate) fn is_missing(&self, field: &str) -> bool {
        let number =
            |word: &&Literal| !word.0.starts_with(char::is_alphabetic) && !is_code(&word.0);
        self.missing.iter().any(|word| word.0 == field)
            || !is_code(field)
                && self.missing.iter().filter(number).any(|word| {
                    decimal(&word.0).is_some_and(|word| decimal(field.trim()) == Some(word))
                })
    }

    /// The files that rows stand in.
    pub(crate) fn rows_of(&self, paths: &Paths) -> Vec<PathBuf> {
        let sources = paths.sources().iter();
        sources
            .flat_map(|source| source.inputs(&self.format))
            .collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.test.is_some() && self.holdout.is_some() {
            return Err(format!("{GIVE_TEST}, and not both"));
        }
        let pairs = |paths: &Paths| paths.sources().iter().all(Source::is_pair);
        let paths = || {
            [Some(&self.train), self.test.as_ref()]
                .into_iter()
                .flatten()
        };
        let all_pairs = paths().all(pairs);
        let any_pair = paths().any(|p| p.sources().iter().any(Source::is_pair));
        let (label, format) = (self.label_column().is_some(), &self.format);
        if self.number().is_some() {
            self.check_number()?;
        }
        match format {
            Format::Idx if any_pair != all_pairs => return Err(IDX_LABELS.into()),
            Format::Idx if label => return Err(LABEL_IN_FORMAT.into()),
            Format::Npy(_) if (any_pair && label) || any_pair != all_pairs => {
                return Err(NPY_LABELS.into());
            }
            Format::Masks(_) if !all_pairs || label => {
                return Err("images and their `masks` are in two folders: `train: {inputs: .., labels: ..}`, and so for `test`; `label` is not used".into());
            }
            Format::Pairs if !all_pairs || label => {
                return Err("images and their `pairs` are in two folders: `train: {inputs: .., labels: ..}`, and so for `test`; `label` is not used".into());
            }
            Format::Images(_) if any_pair != all_pairs || label != all_pairs => {
                return Err(LABELS_OF_IMAGES.into());
            }
            Format::Images(_) | Format::Idx | Format::Npy(_) | Format::Masks(_) | Format::Pairs => {
            }
            _ if any_pair => {
                return Err(
                    "only `idx`, `npy`, `images`, `masks` and `pairs` have labels in a place of their own"
                        .into(),
                );
            }
            Format::Libsvm(_) | Format::Leaf(_) if label => {
                return Err(LABEL_IN_FORMAT.into());
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
        if let Some(findings) = &self.findings {
            self.check_findings(findings, all_pairs)?;
        }
        if let Format::Leaf(how) = format {
            let mut seen = std::collections::BTreeSet::new();
            if let Some(twice) = how.characters().find(|c| !seen.insert(*c)) {
                return Err(format!("`alphabet` has {twice:?} twice"));
            }
            if seen.len() < 2 {
                return Err("`alphabet` must have at least two characters".into());
            }
        }
        if let Some(label) = self.label_column()
            && self.columns.0.iter().any(|(name, _)| *name == label.0)
        {
            return Err(format!(
                "`columns` says how {label} is read, and `label` says that it is the label: leave one of them out"
            ));
        }
        let classes = self.classes.iter().flatten();
        let mut seen = BTreeMap::new();
        for class in classes.clone() {
            match seen.insert(key(&class.0), class) {
                Some(same) if same == class => {
                    return Err(format!("`classes` names {class} twice"));
                }
                Some(same) => {
                    return Err(format!(
                        "`classes` names {same} and {class}, which are equal"
                    ));
                }
                None => {}
            }
        }
        if self.classes.is_some() && classes.count() < 2 {
            Err("`classes` must name at least two".into())
        } else {
            Ok(())
        }
    }

    /// A number to predict, where it can be.
    fn check_number(&self) -> Result<(), String> {
        let wrong = match &self.format {
            Format::Masks(_) | Format::Pairs => {
                "`label`: rows of this format have images, and no numbers to predict"
            }
            _ if self.classes.is_some() => {
                "`classes` are for labels that are classes, and `label` has a number; leave one of them out"
            }
            _ if self.findings.is_some() => {
                "`findings` are labels of 0 and 1, and `label` has a number; leave one of them out"
            }
            format
                if (format.is_table() || matches!(format, Format::Npz(_)))
                    && self.label_column().is_none() =>
            {
                "`label` must name the `column` with the number"
            }
            _ => return Ok(()),
        };
        Err(wrong.into())
    }

    /// Labels of which a row can have several, where they can be.
    fn check_findings(&self, findings: &[Literal], pairs: bool) -> Result<(), String> {
        let label = self.label_column().is_some();
        let wrong = match &self.format {
            _ if findings.is_empty() => Some("`findings` must name at least one label"),
            _ if self.classes.is_some() => {
                Some("`findings` and `classes`: rows have labels or a class; give one of them")
            }
            format if format.is_table() => label.then_some(
                "`findings` are the columns of the labels, and `label` is that of the class; give one of them",
            ),
            Format::Npy(_) => (!pairs).then_some(
                "`findings` of `npy` are in a file of their own: `{inputs: x.npy, labels: y.npy}`",
            ),
            Format::Npz(_) => (!label)
                .then_some("`findings` of `npz`: `label` must name the array of the labels"),
            _ => Some("`findings`: rows of this format have classes; leave it out"),
        };
        if let Some(text) = wrong {
            return Err(text.into());
        }
        let mut seen = std::collections::BTreeSet::new();
        match findings.iter().find(|name| !seen.insert(*name)) {
            Some(twice) => Err(format!("`findings` names {twice} twice")),
            None => Ok(()),
        }
    }
}
