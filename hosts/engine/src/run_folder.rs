//! The folder of a run, once the run is done.

use fl_sim::RunFolder;
use std::path::Path;

/// The folder of clients in other processes: the leader's name, and what the processes share.
pub(crate) const CLIENTS: &str = "elsewhere";

/// The name of a run's page in its folder.
pub const RUN_PAGE: &str = "report.html";

/// Completes the folder of a run that is done, if its process was killed before it could: removes
/// what it left, and writes the page. Says whether there was anything to do.
pub(crate) fn complete(folder: &Path) -> anyhow::Result<bool> {
    let left = RunFolder::is_done(folder)
        && (RunFolder::has_leftovers(folder, CLIENTS)? || !folder.join(RUN_PAGE).exists());
    left.then(|| finish(folder)).transpose()?;
    Ok(left)
}

pub(crate) fn finish(folder: &Path) -> anyhow::Result<()> {
    RunFolder::complete(folder, CLIENTS, || write_page(folder))
}

/// Removes what the process of a run that is done has left in its folder because it was killed.
pub(crate) fn tidy(folder: &Path) -> anyhow::Result<()> {
    let left =
        || anyhow::Ok(folder.join("lock").exists() || RunFolder::has_leftovers(folder, CLIENTS)?);
    if RunFolder::is_done(folder) && left()? {
        RunFolder::complete(folder, CLIENTS, || Ok(()))
    } else {
        Ok(())
    }
}

/// Writes the page of the run in a folder.
fn write_page(folder: &Path) -> anyhow::Result<()> {
    let page = fl_report::page(&[fl_report::Run::open_brief(folder)?])?;
    fl_files::write_unlinked(&folder.join(RUN_PAGE), page.as_bytes())
}
