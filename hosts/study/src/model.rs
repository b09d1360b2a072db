//! A study that has been read: its tables, rows and runs.

use crate::columns::{Column, Measured};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A run: a spec, with changed values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunSpec {
    /// The spec's file.
    pub base: PathBuf,
    /// `protocol.rounds=5`; later ones override earlier ones, and the seed is last.
    pub set: Vec<String>,
    /// Whether it is large, so that it gets all threads.
    pub alone: bool,
}

/// A row, or an item of the second direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// The expected hours of a run, if it may be open.
    pub hours: Option<f64>,
    /// The published result.
    pub published: Option<String>,
    /// The values of text columns.
    pub text: BTreeMap<String, String>,
    /// The position of a grid's row.
    pub grid: Vec<Position>,
}

/// A table and its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The rows.
    pub rows: Vec<Item>,
    /// The second direction; one item without a name if there is none.
    pub across: Vec<Item>,
    /// Columns with the same values for all of `across`.
    pub lead: Vec<Column>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The pictures.
    pub plots: Vec<Plot>,
    /// The row of comparison.
    pub against: Option<usize>,
    /// Largest difference of published numbers without a deviation that does not count as a
    /// difference.
    pub published_spread: f64,
    /// The README that contains it.
    pub into: Option<PathBuf>,
    /// Seed and run, by row and by the second direction.
    pub runs: Vec<Vec<Vec<(u64, RunSpec)>>>,
}

impl Table {
    /// Returns the names of each measure that a column or a plot shows; of several names, the first
    /// that a run has is used.
    pub fn measures(&self) -> Vec<&[String]> {
        let columns = self.measured().map(|of| &of.names[..]);
        let plots = self.plots.iter().map(|plot| &plot.names[..]);
        let mut all: Vec<_> = columns.chain(plots).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns what its columns measure.
    pub fn measured(&self) -> impl Iterator<Item = &Measured> {
        let columns = self.lead.iter().chain(&self.columns);
        columns.filter_map(Column::measured)
    }

    /// Returns the table with these rows only.
    pub fn part(&self, rows: &BTreeSet<usize>) -> Self {
        let mut part = self.clone();
        let kept: Vec<usize> = rows
            .iter()
            .copied()
            .filter(|at| *at < self.rows.len())
            .collect();
        part.rows = kept.iter().map(|at| self.rows[*at].clone()).collect();
        // a study with too many runs has none
        let runs = kept.iter().map(|at| self.runs.get(*at).cloned());
        part.runs = runs.map(Option::unwrap_or_default).collect();
        part.against = self
            .against
            .and_then(|of| kept.iter().position(|at| *at == of));
        part
    }
}

/// A parsed study.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Prefix of its files.
    pub name: String,
    /// The file of results that last.
    pub results: Option<PathBuf>,
    /// Its tables.
    pub tables: Vec<Table>,
}

/// The horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub enum By {
    /// The round, with a line for each row.
    Round,
    /// A value of the grid, by its path, with a line for each combination of the others.
    Value(String),
}

/// A plot to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The horizontal axis.
    pub by: By,
    /// The measures; the first that a run has is used.
    pub names: Vec<String>,
    /// Factor of the numbers.
    pub scale: f64,
}

/// The position of a row in the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// The path of the value that was set.
    pub path: String,
    /// The text of the value: `rounds = 20`.
    pub name: String,
    /// The value, if it is a number.
    pub number: Option<f64>,
}
