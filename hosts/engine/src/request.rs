//! A request to run something, from a command line or from another program.

use crate::execute::{ExecuteOptions, Folder, execute};
use crate::run_folder::{complete, finish};
use crate::{NotRun, prepare, resume, sinks};
use fl_data::DataSpec;
use fl_registry::{Catalogue, Document, Lock, Spec};
use fl_sim::Outcome;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// What to run, and how.
pub struct RunRequest<'a> {
    /// What to run.
    pub source: Source,
    /// Overrides of the spec, such as `protocol.rounds=5`.
    pub set: Vec<String>,
    /// Load only the plugins that the `fl.lock` beside the spec pins.
    pub locked: bool,
    /// The run folder; otherwise `runs/NAME-1`, `runs/NAME-2`, ..
    pub out: Option<PathBuf>,
    /// How to run it.
    pub options: ExecuteOptions<'a>,
}

/// Where the spec of a run is.
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// In a text; the first string is what mistakes call it, and paths in it are relative to the
    /// folder of that name.
    Text(String, Vec<u8>),
    /// In the folder of a stopped run, which goes on.
    Stopped(PathBuf),
}

/// Carries out a request. `on_spec` sees the checked spec and may add listeners to the options.
/// Gives `None` when the run was stopped before it began.
///
/// # Errors
/// [`NotRun`] when the request, the spec or a library is wrong; otherwise the error of the run.
pub fn run<'a>(
    mut request: RunRequest<'a>,
    catalogue: &Catalogue,
    on_spec: impl FnOnce(&Spec<DataSpec>, &mut ExecuteOptions<'a>) -> anyhow::Result<()>,
) -> anyhow::Result<Option<Outcome>> {
    let (set, locked) = (&request.set, request.locked);
    let options = &mut request.options;
    let read = |document: Document| -> Result<_, NotRun> {
        let document = document.set(set);
        let spec = if locked {
            let folder = Path::new(document.file()).parent();
            let lock = Lock::beside(folder.unwrap_or(Path::new(""))).map_err(NotRun::Usage)?;
            prepare::read(&document, &catalogue.clone().locked(lock))
        } else {
            prepare::read(&document, catalogue)
        }?;
        sinks::check(&document, &spec).map_err(NotRun::Mistakes)?;
        Ok(spec)
    };
    let (spec, folder) = match request.source {
        Source::Stopped(dir) => {
            if complete(&dir)? && set.is_empty() {
                log::info!(
                    "the run in {} was done, but its folder was incomplete; it is complete now",
                    dir.display()
                );
                return Ok(Some(Outcome::of(&dir)?));
            }
            let stop_after = options.execution.stop_after;
            let (paused, spec) = resume::open(&dir, stop_after, set, catalogue)?;
            (spec, Folder::Stopped(Box::new(paused)))
        }
        Source::File(path) => (read(prepare::parse(&path)?)?, new_folder(request.out)),
        Source::Text(name, text) => {
            let document = Document::parse(&name, &text);
            (read(document)?, new_folder(request.out))
        }
    };
    on_spec(&spec, options)?;
    let sinks = sinks::open(&spec, options)?;
    let mut warn = |note: &str| options.execution.warn(note);
    let data = prepare::data_with_notes(&spec, &options.data_dir, &mut warn)?;
    if options.execution.stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let outcome = execute(&spec, data, folder, request.options);
    sinks.end(&outcome);
    let outcome = outcome?;
    if let (None, Some(out)) = (&outcome.stopped, &outcome.out)
        && let Err(error) = finish(Path::new(out))
    {
        // the run is worth more than its page
        log::info!("note: the run's page could not be written: {error:#}");
    }
    Ok(Some(outcome))
}

fn new_folder(out: Option<PathBuf>) -> Folder {
    out.map_or(Folder::Next, Folder::New)
}
