//! What people look at of runs: a page that stands by itself ([`page()`]), and what tells two runs apart ([`compare()`]). Both read
//! run folders as they are on disk, so that a run that is cut short, still works or is years old can be looked at too.
//!
//! Pictures are drawn here, as SVG whose colours come from the page's style sheet: plot crates write colours into the picture,
//! which then is wrong in the dark or on paper, or put megabytes of a script into every page.

mod compare;
mod comparison_page;
mod costs;
mod curves;
mod export;
mod files;
mod page;
mod read;
mod run_page;
mod specs;
mod study_page;
mod svg;
mod text;
mod widgets;

pub use compare::{Comparison, compare};
pub use export::{cell, csv, tensorboard};
pub use page::{MOST, page};
pub use read::{Bytes, Cost, Entry, Metric, Outcome, Run, Summary, Traffic};
pub use study_page::{Picture, Section, Spot, study};
