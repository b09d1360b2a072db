//! The page.

use crate::read::Run;
use crate::widgets::whole;
use crate::{comparison_page, run_page, svg};
use anyhow::ensure;
use fl_core::Result;

/// So many runs can be told apart on one page.
pub const MOST: usize = svg::STYLES;

/// The page of a run, or of several beside each other: HTML that needs no other file.
///
/// # Errors
/// When there is no run, or there are more than [`MOST`].
pub fn page(runs: &[Run]) -> Result<String> {
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
        runs => comparison_page::page(runs),
    };
    Ok(whole(&title, &body))
}
