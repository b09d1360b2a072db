//! A study is a YAML file: base specs, rows of changed values or a grid of them, seeds, and the tables wanted. This crate says
//! which runs it takes ([`Study`]), and makes tables of what they came to ([`made`]); running them is the program's.
//!
//! ```yaml
//! name: trimming
//! tables:
//! - name: shares
//!   title: What trimming costs where nobody attacks
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
//! A table has `rows` or a `grid`, and may have `across`: a second direction. What stands in `defaults` is every table's unless it
//! says otherwise. Values are set by their paths, as `--set` does; a value may be a whole part.

mod cells;
mod columns;
mod csv;
mod expand;
mod file;
mod grid;
mod plots;
mod readme_tables;
mod results;
mod stats;
mod tables;
mod totals;

pub use columns::{Column, ColumnKind, Show};
pub use csv::{runs_csv, tables_csv};
pub use expand::{Item, RunSpec, Study, Table};
pub use file::File;
pub use plots::{By, Plot, Position, pictures};
pub use readme_tables::{replaced, section, table};
pub use results::RunResult;
pub use stats::{Paired, Sample, paired};
pub use tables::{BuiltTable, RunResults, made};
pub use totals::totals;

/// The most runs that one study may ask for.
const MAX_RUNS: usize = 100_000;
