//! A study is a YAML file with base specs, rows of changed values or a grid of them, seeds, and
//! tables. This crate expands it to runs ([`Study`]), and makes tables from their results
//! ([`made`]); the program executes the runs.
//!
//! ```yaml
//! name: trimming
//! tables:
//! - name: shares
//!   title: The cost of trimming without attackers
//!   base: ../quick/robust.yaml
//!   seeds: 1-5
//!   grid: { parts.aggregator.trim: [0.0, 0.1, 0.3] }
//!   against: trim = 0.0
//!   measure: accuracy
//!   scale: 100
//!   digits: 1
//!   columns: [mean, range, minus]
//!   into: README.md
//! ```
//!
//! A table has `rows` or a `grid`, and may have `across`: a second direction. `defaults` apply to
//! every table that does not override them. Values are set by their paths, as `--set` does; a value
//! may be a whole part.

mod cells;
mod columns;
mod costs;
mod csv;
mod expand;
mod file;
mod grid;
mod model;
mod plots;
mod readme_tables;
mod results;
mod results_file;
mod seeds;
mod stats;
mod study_file;
mod tables;
mod totals;

pub use columns::{Column, ColumnKind, Measured, Rounds, Show};
pub use costs::{COSTS, cost_of};
pub use csv::{run_lines, runs_csv, tables_csv};
pub use file::File;
pub use model::{By, Item, Plot, Position, RunSpec, Study, Table};
pub use plots::pictures;
pub use readme_tables::{replaced, section, table};
pub use results::{RunResult, RunResults};
pub use results_file::{ResultLine, ResultsFile};
pub use stats::{Paired, Sample, paired};
pub use study_file::{Cell, StudyFile};
pub use tables::{BuiltTable, made};
pub use totals::{BegunRun, joint, totals};

/// The most runs of one study.
const MAX_RUNS: usize = 100_000;
