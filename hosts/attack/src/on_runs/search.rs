//! How attacks run specs, and search.

use super::{AttackRun, Overrides, Stopped, usage};
use crate::{Search, Tell};
use anyhow::{Context, Result};
use fl_core::Samples;
use fl_core::privacy::Observer;
use fl_data::{DataSpec, Split};
use fl_engine::{ExecuteOptions, Folder, ProtocolOverride, Signals};
use fl_registry::{Catalogue, Spec};
use fl_sim::{Execution, Watch};
use ndarray::{ArrayView2, Axis, concatenate};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Can a picture be put there? A search of minutes comes before it.
pub(super) fn drawable(picture: Option<&Path>) -> Result<()> {
    let Some(path) = picture else {
        return Ok(());
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_none_or(Path::is_dir) && !path.is_dir() {
        Ok(())
    } else {
        Err(usage(format!(
            "--picture: {} cannot be written: it must be a file in a folder that is there",
            path.display()
        )))
    }
}

/// Draws rows of images of this shape: each row holds the same number of images, and the blocks of
/// `rows` stand below each other.
pub(super) fn draw(
    picture: Option<&Path>,
    rows: &[ArrayView2<'_, f32>],
    shape: &[usize],
    columns: usize,
) -> Result<()> {
    let Some(path) = picture else {
        return Ok(());
    };
    let all = concatenate(Axis(0), rows).context("images of one size")?;
    let all = Samples::fresh(all, shape.to_vec())?;
    fl_files::write(path, &fl_sim::picture(&all, Some(columns))?)
}

/// The spec in a file, or that of a run in a folder, with these changes.
pub(super) fn spec_of(
    path: &Path,
    changes: &Overrides,
    catalogue: &Catalogue,
) -> Result<Spec<DataSpec>> {
    let file = if path.is_dir() {
        path.join("spec.yaml")
    } else {
        path.into()
    };
    let spec = fl_engine::read(&fl_engine::parse(&file)?.set(&changes.set), catalogue)?;
    match spec.data.split() {
        Split::Own => Err(usage(
            "the clients of this spec own their data, so this machine cannot run them",
        )),
        // an attack's runs are thrown away, and its results follow the data in any case
        _ => Ok(Spec {
            ledger: None,
            ..spec
        }),
    }
}

/// Runs a spec, with its own protocol or another, in a temporary folder. Shows `watch` what crosses
/// until `watch` gives `false`.
pub(super) fn watched(
    spec: &Spec<DataSpec>,
    run: &AttackRun<'_>,
    asked: &Signals,
    protocol: Option<ProtocolOverride<'_>>,
    mut watch: impl FnMut(Observer, &str, &[u8]) -> bool,
) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("fl-attack-{}", std::process::id()));
    let _folder = RemovedOnDrop(&folder);
    // not the signals' own: were that set, the first signal would end the program at once
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let execution = Execution {
        stop,
        listeners: vec![Box::new(Watch(
            move |observer, what: &str, bytes: &[u8]| {
                if !watch(observer, what, bytes) || asked.stop.load(Ordering::Relaxed) {
                    stopping.store(true, Ordering::Relaxed);
                }
            },
        ))],
        ..Execution::default()
    };
    let options = ExecuteOptions {
        protocol,
        ..ExecuteOptions::new(run.data_dir.clone(), run.line.to_vec(), execution)
    };
    let data = fl_engine::data(spec, &options.data_dir)?;
    fl_engine::execute(spec, data, Folder::New(folder.clone()), options)?;
    not_stopped(asked)
}

/// A search with these steps and this smoothness, which a signal ends.
pub(super) fn searching<T>(
    (steps, smooth): (u32, f64),
    run: &AttackRun<'_>,
    asked: &Signals,
    search: impl FnOnce(&Search, Tell) -> Result<T>,
) -> Result<T> {
    let how = Search {
        steps: steps as usize,
        rate: 0.1,
        smooth,
    };
    let bar = (run.progress)(u64::from(steps));
    let (counting, signals) = (bar.clone(), asked.clone());
    let tell = move || {
        counting.step();
        signals.exit_code().is_none()
    };
    let found = search(&how, Box::new(tell));
    bar.end();
    not_stopped(asked)?;
    found
}

/// A folder that goes with this.
pub(super) struct RemovedOnDrop<'a>(pub &'a Path);

impl Drop for RemovedOnDrop<'_> {
    fn drop(&mut self) {
        // what is left of it is in the folder for what may go
        let _ = std::fs::remove_dir_all(self.0);
    }
}

/// An error if a signal has stopped the program.
pub(super) fn not_stopped(signals: &Signals) -> Result<()> {
    match signals.exit_code() {
        Some(code) => Err(Stopped(code).into()),
        None => Ok(()),
    }
}
