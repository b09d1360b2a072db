//! What attacks take from the command line, and how they run and search.

use crate::{DataDir, Failure, Overrides, not_stopped};
use clap::Args;
use fl_attack::{Search, Tell};
use fl_core::privacy::Observer;
use fl_data::{DataSpec, Split};
use fl_engine::{ExecuteOptions, Folder, ProtocolOverride, Signals};
use fl_registry::{Catalogue, Spec};
use fl_sim::{Execution, Watch};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What all attacks take.
#[derive(Args)]
pub struct Common {
    /// What the attack draws follows from it.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataDir,
}

pub fn weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok();
    let weight = weight.filter(|w: &f64| w.is_finite() && *w >= 0.0);
    weight.ok_or_else(|| "must be a number, at least 0".into())
}

/// Can a picture be put there? A search of minutes comes before it.
pub fn drawable(picture: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = picture else {
        return Ok(());
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) && !path.is_dir() {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "--picture: {} cannot be written: it must be a file in a folder that is there",
            path.display()
        ))),
    }
}

/// The spec in a file, or that of a run in a folder.
pub fn spec_of(
    path: &Path,
    set: &Overrides,
    catalogue: &Catalogue,
) -> Result<Spec<DataSpec>, Failure> {
    let spec = match path.is_dir() {
        true => set.read(&path.join("spec.yaml"), catalogue)?,
        false => set.read(path, catalogue)?,
    };
    match spec.data.split() {
        Split::Own => Err(Failure::usage(
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
pub fn watched(
    spec: &Spec<DataSpec>,
    data: &DataDir,
    line: &[String],
    asked: &Signals,
    protocol: Option<ProtocolOverride<'_>>,
    mut watch: impl FnMut(Observer, &str, &[u8]) -> bool,
) -> Result<(), Failure> {
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
        ..ExecuteOptions::new(data.path(), line.to_vec(), execution)
    };
    let data = fl_engine::data(spec, &options.data_dir)?;
    fl_engine::execute(spec, data, Folder::New(folder.clone()), options)?;
    not_stopped(asked)
}

/// A search with these steps and this smoothness, which a signal ends.
pub fn searching<T, E: Into<Failure>>(
    (steps, smooth): (u32, f64),
    asked: &Signals,
    search: impl FnOnce(&Search, Tell) -> Result<T, E>,
) -> Result<T, Failure> {
    let how = Search {
        steps: steps as usize,
        rate: 0.1,
        smooth,
    };
    let bar = crate::log::bar(indicatif::ProgressBar::new(u64::from(steps)));
    let (counting, signals) = (bar.clone(), asked.clone());
    let tell = move || {
        counting.inc(1);
        signals.exit_code().is_none()
    };
    let found = search(&how, Box::new(tell));
    bar.finish_and_clear();
    not_stopped(asked)?;
    found.map_err(Into::into)
}

/// A folder that goes with this.
pub struct RemovedOnDrop<'a>(pub &'a Path);

impl Drop for RemovedOnDrop<'_> {
    fn drop(&mut self) {
        // what is left of it is in the folder for what may go
        let _ = std::fs::remove_dir_all(self.0);
    }
}
