//! Pages about runs for people: a self-contained page ([`page()`]), and the differences of two runs
//! ([`compare()`]). Both read run folders from the disk, so that they also work for runs that are
//! interrupted, still active or years old.
//!
//! Plots are drawn here, as SVG with colours from the page's style sheet. Plot crates write fixed
//! colours into the picture, which are wrong in dark mode or on paper, or put megabytes of script
//! into every page.

mod alone;
mod bibliography;
mod compare;
mod comparison_page;
mod costs;
mod curves;
mod export;
mod files;
mod latex;
mod page;
mod pdf;
mod picture_files;
mod read;
mod run_page;
mod specs;
mod study_page;
mod svg;
mod text;
mod watch_page;
mod widgets;

pub use alone::{NEGATIVE_TRANSFER, WorseThanAlone, is_alone, worse_than_alone};
pub use bibliography::{bibliography, known_papers};
pub use compare::{Comparison, compare};
pub use comparison_page::results_table;
pub use curves::{axis, positions};
pub use export::{CSV_HEAD, cell, csv, tensorboard};
pub use latex::{NOTES, notes_text, table_csv, tables_tex};
pub use page::{MOST, page, page_with};
pub use picture_files::{PictureFile, picture_files};
pub use read::{
    Bytes, Cost, Entry, Metric, MetricDetails, Outcome, Run, RunRecord, Summary, Traffic,
    observer_of, of_some_clients,
};
pub use specs::shown_models;
pub use study_page::{Picture, RunLine, Section, Spot, study};
pub use text::{digits_of, inline, is_bound};
pub use watch_page::watch_page;
