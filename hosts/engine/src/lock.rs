//! `fl lock`: pins the plugins of specs.

use crate::{NotRun, prepare};
use anyhow::Context;
use fl_registry::{Catalogue, Lock, Refusal};
use std::path::{Path, PathBuf};

/// Checks specs of one folder, and pins their plugins in the `fl.lock` beside them. Pins of other
/// specs stay. Returns the path of the file and the number of pins that were written.
///
/// # Errors
/// [`NotRun`] when a spec or a plugin is wrong, or is older or other than what is pinned. Then the
/// file is as it was.
pub fn lock(
    specs: &[PathBuf],
    set: &[String],
    catalogue: &Catalogue,
) -> anyhow::Result<(PathBuf, usize)> {
    if let Some(library) = catalogue.libraries().first() {
        return Err(NotRun::usage(format!(
            "--plugin {}: a lock file pins what specs name; name it under `plugins`",
            library.path.display()
        )));
    }
    let folder = |spec: &PathBuf| spec.parent().unwrap_or(Path::new("")).to_path_buf();
    let first = specs.first().map(folder).unwrap_or_default();
    if let Some(other) = specs.iter().find(|spec| folder(spec) != first) {
        return Err(NotRun::usage(format!(
            "{} is in another folder than {}; each folder has its own lock file",
            other.display(),
            specs[0].display()
        )));
    }
    let mut lock = Lock::beside(&first).map_err(NotRun::usage)?;
    let mut count = 0;
    for spec in specs {
        let document = prepare::parse(spec)?.set(set);
        prepare::read(&document, catalogue)?;
        for named in document.libraries() {
            // it is loaded already, as the spec wants
            let loaded = catalogue.with(std::slice::from_ref(&named));
            let loaded = loaded.map_err(NotRun::Refused)?;
            let loaded = loaded.libraries().last().context("a plugin")?;
            let pinned = lock.add(&named, loaded);
            pinned.map_err(|text| {
                let package = loaded.package.as_ref().map(|p| PathBuf::from(&p.name));
                NotRun::Refused(Refusal {
                    place: Some(spec.display().to_string()),
                    path: package.unwrap_or_else(|| loaded.path.clone()),
                    text,
                })
            })?;
            count += 1;
        }
    }
    fl_files::write(lock.path(), lock.yaml()?.as_bytes())?;
    Ok((lock.path().into(), count))
}
