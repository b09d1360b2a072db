//! A study that has been read: its tables, rows and runs.

use crate::columns::Column;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A run: a spec, and what is set in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunSpec {
    /// The spec's file.
    pub base: PathBuf,
    /// `protocol.rounds=5`, later ones win; the seed is the last.
    pub set: Vec<String>,
    /// It is large: it gets all threads.
    pub alone: bool,
}

/// A row, or one of the second direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// What others published.
    pub published: Option<String>,
    /// What stands in columns of text.
    pub text: BTreeMap<String, String>,
    /// Where a row of a grid stands in it.
    pub grid: Vec<Position>,
}

/// A table and its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names it.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The rows.
    pub rows: Vec<Item>,
    /// The second direction; one without a name if there is none.
    pub across: Vec<Item>,
    /// Columns that are the same for all of `across`.
    pub lead: Vec<Column>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The pictures.
    pub plots: Vec<Plot>,
    /// The row that others are compared with.
    pub against: Option<usize>,
    /// How far apart published numbers without a deviation may be and still not be told apart.
    pub published_spread: f64,
    /// The README that holds it.
    pub into: Option<PathBuf>,
    /// Seed and run, by row and by the second direction.
    pub runs: Vec<Vec<Vec<(u64, RunSpec)>>>,
}

impl Table {
    /// These rows of it.
    pub fn part(&self, rows: &BTreeSet<usize>) -> Self {
        let mut part = self.clone();
        let kept: Vec<usize> = rows
            .iter()
            .copied()
            .filter(|at| *at < self.rows.len())
            .collect();
        part.rows = kept.iter().map(|at| self.rows[*at].clone()).collect();
        part.runs = kept.iter().map(|at| self.runs[*at].clone()).collect();
        part.against = self
            .against
            .and_then(|of| kept.iter().position(|at| *at == of));
        part
    }
}

/// A study that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Names what is written.
    pub name: String,
    /// Its tables.
    pub tables: Vec<Table>,
}

/// What stands from left to right.
#[derive(Clone, Debug, PartialEq)]
pub enum By {
    /// The round: a line for each row.
    Round,
    /// A value of the grid, by its path: a line for each combination of the others.
    Value(String),
}

/// A picture that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// From left to right.
    pub by: By,
    /// What is measured; the first that a run has counts.
    pub names: Vec<String>,
    /// What numbers are multiplied by.
    pub scale: f64,
}

/// Where a row stands in the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// The path of the value that was set.
    pub path: String,
    /// What the value is called: `rounds = 20`.
    pub name: String,
    /// The value, if it is a number.
    pub number: Option<f64>,
}
