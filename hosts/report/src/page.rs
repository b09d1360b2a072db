//! The HTML page.

use crate::read::Run;
use crate::study_page::Section;
use crate::widgets::whole;
use crate::{comparison_page, run_page, svg};
use anyhow::ensure;
use fl_core::Result;

/// The most runs on one page, so that their lines can be distinguished.
pub const MOST: usize = svg::STYLES;

/// Returns the page of a run, or of several runs side by side: HTML that needs no other file.
///
/// # Errors
/// If there is no run, or there are more than [`MOST`].
pub fn page(runs: &[Run]) -> Result<String> {
    page_with(runs, None)
}

/// As [`page`]; of several runs with their joint guarantees.
///
/// # Errors
/// As [`page`].
pub fn page_with(runs: &[Run], joint: Option<&Section>) -> Result<String> {
    ensure!(
        (1..=MOST).contains(&runs.len()),
        "a page has 1 to {MOST} runs, got {}",
        runs.len()
    );
    let title = match runs {
        [run] => run.name().to_string(),
        runs => format!("{} runs", runs.len()),
    };
    let body = match runs {
        [run] => run_page::page(run),
        runs => comparison_page::page(runs, joint),
    };
    Ok(whole(&title, &body))
}
