//! The text format of a study.

use serde::Deserialize;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeMap;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    /// Prefix of its files.
    pub name: String,
    /// The defaults of all tables.
    #[serde(default)]
    pub defaults: RawTable,
    /// The tables.
    pub tables: Vec<RawTable>,
}

/// A table, or the defaults of all tables.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawTable {
    /// Its name: for `--only`, and for the marks in a README.
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
    /// Values by path; every combination is a row. `base` sets the spec.
    pub grid: Mapping,
    /// The name of a grid's row: `t = {protocol.subsets}`.
    pub label: Option<String>,
    /// The second direction.
    pub across: Vec<RawItem>,
    /// The measure; of several, the first that a run has.
    pub measure: Option<OneOrMany>,
    /// Factor of the numbers.
    pub scale: Option<f64>,
    /// Digits after the point.
    pub digits: Option<usize>,
    /// Columns with the same values for all of `across`.
    pub lead: Vec<RawColumn>,
    /// The columns.
    pub columns: Vec<RawColumn>,
    /// The pictures.
    pub plots: Vec<RawPlot>,
    /// The row of comparison, seed by seed.
    pub against: Option<String>,
    /// Published results, by row.
    pub published: BTreeMap<String, Value>,
    /// Largest difference of published numbers without a deviation that does not count as a
    /// difference.
    pub published_spread: Option<f64>,
    /// Whether these runs are large, so that each gets all threads, one after the other.
    pub alone: Option<bool>,
    /// The README that contains the table between marks, relative to the study's file.
    pub into: Option<String>,
}

/// A picture.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawPlot {
    /// `round`, or a path of the grid.
    pub by: String,
    /// The measure, if not the table's.
    pub measure: Option<OneOrMany>,
    pub scale: Option<f64>,
}

/// A row, or an item of `across`.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawItem {
    pub name: String,
    pub base: Option<String>,
    pub seeds: Option<Value>,
    pub set: Mapping,
    pub published: Option<Value>,
    /// The values of text columns.
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

/// A column: a known name, or its content.
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
    /// The measure, if not the table's.
    pub measure: Option<OneOrMany>,
    /// The round, if not the last.
    pub round: Option<u64>,
    /// How several seeds are combined: the name of a known column.
    pub show: Option<String>,
    pub scale: Option<f64>,
    pub digits: Option<usize>,
    /// The name of the row's text.
    pub text: Option<String>,
}
