//! The text of a study.

use serde::Deserialize;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeMap;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    /// Names what is written.
    pub name: String,
    /// What is every table's unless it says otherwise.
    #[serde(default)]
    pub defaults: RawTable,
    /// The tables.
    pub tables: Vec<RawTable>,
}

/// A table, or what all have.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawTable {
    /// Names it: `--only`, and the marks in a README.
    pub name: Option<String>,
    /// Its heading.
    pub title: Option<String>,
    /// The spec, relative to the study's file.
    pub base: Option<String>,
    /// `3`, `1-10`, or a list.
    pub seeds: Option<Value>,
    /// Values for every row.
    pub set: Mapping,
    /// The rows.
    pub rows: Vec<RawItem>,
    /// Values by path; every combination is a row. `base` stands for the spec.
    pub grid: Mapping,
    /// What a row of a grid is called: `t = {protocol.subsets}`.
    pub label: Option<String>,
    /// The second direction.
    pub across: Vec<RawItem>,
    /// What is measured; of several, the first that a run has.
    pub measure: Option<OneOrMany>,
    /// What numbers are multiplied by.
    pub scale: Option<f64>,
    /// Digits after the point.
    pub digits: Option<usize>,
    /// Columns that are the same for all of `across`.
    pub lead: Vec<RawColumn>,
    /// The columns.
    pub columns: Vec<RawColumn>,
    /// The pictures.
    pub plots: Vec<RawPlot>,
    /// The row that others are compared with, seed by seed.
    pub against: Option<String>,
    /// What others published, by row.
    pub published: BTreeMap<String, Value>,
    /// How far apart published numbers without a deviation may be and still not be told apart.
    pub published_spread: Option<f64>,
    /// These runs are large: each gets all threads, one after the other.
    pub alone: Option<bool>,
    /// The README that holds the table between marks, relative to the study's file.
    pub into: Option<String>,
}

/// A picture.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawPlot {
    /// `round`, or a path of the grid.
    pub by: String,
    /// What is measured, if not what the table measures.
    pub measure: Option<OneOrMany>,
    pub scale: Option<f64>,
}

/// A row, or one of `across`.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawItem {
    pub name: String,
    pub base: Option<String>,
    pub seeds: Option<Value>,
    pub set: Mapping,
    pub published: Option<Value>,
    /// What stands in columns of text.
    pub text: BTreeMap<String, Value>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn all(&self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one.clone()],
            Self::Many(many) => many.clone(),
        }
    }
}

/// A column: a name that is known, or what is in it.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum RawColumn {
    Known(String),
    Own(Box<OwnColumn>),
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct OwnColumn {
    /// Its head.
    pub title: Option<String>,
    /// What is measured, if not what the table measures.
    pub measure: Option<OneOrMany>,
    /// In this round, not last.
    pub round: Option<u64>,
    /// How several seeds are shown: as the columns that are known.
    pub show: Option<String>,
    pub scale: Option<f64>,
    pub digits: Option<usize>,
    /// The row's text of this name.
    pub text: Option<String>,
}
