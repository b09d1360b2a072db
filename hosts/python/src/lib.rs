//! The native half of the package `fl`: runs and commands, and parts that are written in Python.
#![allow(missing_docs, reason = "nobody links this; Python has the docs")]
// only Python can link it: `cargo test --workspace --lib` gets an empty program
#![cfg(not(test))]

mod buffer;
mod engine;
mod host;
mod interference;
mod library;
mod made;
mod marshal;
mod metrics;
mod model;
mod parts;
mod run;
mod sinks;
mod speed;

use fl_core::RoundTraining;
use fl_core::privacy::Protection;
use fl_engine::NotRun;
use fl_plugins as _;
use fl_registry::{Catalogue, Document};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

/// Every part: linked ones, and those of this session.
fn catalogue() -> anyhow::Result<Catalogue> {
    Catalogue::new([fl_core::linked_parts(), parts::of_session()].concat())
}

/// These, and the parts of `plugins`, as a spec has them, as JSON.
fn catalogue_with(plugins: &str) -> anyhow::Result<Catalogue> {
    // what a document cannot read, it leaves out
    fl_core::settings::read_yaml::<Vec<fl_registry::Plugin>>(plugins)?;
    let spec = format!("{{plugins: {plugins}}}");
    let spec = Document::parse("plugins", spec.as_bytes());
    Ok(catalogue()?.with_plugins(&spec)?)
}

/// What went wrong: of what kind it is, its text, and every mistake as JSON.
type Wrong = (&'static str, String, String);

fn wrong(error: &anyhow::Error) -> Wrong {
    match error.downcast_ref() {
        Some(NotRun::Mistakes(all)) => ("spec", all.to_string(), all.json().to_string()),
        Some(why) => ("spec", why.to_string(), "[]".into()),
        None => ("run", format!("{error:#}"), "[]".into()),
    }
}

/// A resolved spec as JSON and as YAML, and what a user should know of it.
type Resolved = (String, String, Vec<String>);

/// The resolved spec, or what is wrong with it; `with_data`: what its data tell too.
#[pyfunction]
fn check(
    py: Python<'_>,
    name: String,
    text: String,
    set: Vec<String>,
    with_data: bool,
) -> (Option<Resolved>, Option<Wrong>) {
    let checked = || -> anyhow::Result<Resolved> {
        let document = Document::parse(&name, text.as_bytes()).set(&set);
        let catalogue = catalogue()?;
        let spec = fl_engine::read(&document, &catalogue)?;
        let json = fl_core::settings::to_json(&spec.resolved);
        let yaml = spec.yaml()?;
        let of_data = if with_data {
            fl_engine::noted_data(&document, &spec, &fl_data_kit::data_dir(None), &catalogue)
        } else {
            Ok(Vec::new())
        };
        let of_data = of_data.map_err(NotRun::Mistakes)?;
        let cards = Vec::from_iter(
            fl_cli::missing_cards(&spec)
                .into_iter()
                .filter(|_| with_data),
        );
        let notes = [spec.notes, spec.foreseen, of_data, cards].concat();
        Ok((json.to_string(), yaml, notes))
    };
    match py.detach(checked) {
        Ok(resolved) => (Some(resolved), None),
        Err(error) => (None, Some(wrong(&error))),
    }
}

/// A guarantee, or why there is none, as the program prints it, with what a reader must know of its
/// epsilon.
#[pyfunction]
fn guarantee(json: &str) -> PyResult<(String, Vec<String>)> {
    let read: Result<Protection, _> = serde_json::from_str(json);
    let of = read.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((of.to_string(), of.caveats()))
}

/// The secret of this user for hashes of files with rows.
#[pyfunction]
fn key_of_files() -> PyResult<[u8; 32]> {
    let key = fl_privacy::RowKey::of_user();
    let key = key.map_err(|error| PyOSError::new_err(format!("{error:#}")))?;
    Ok(key.of_files())
}

/// The text of a file of a run folder, which another user may have made.
#[pyfunction]
fn run_text(path: PathBuf) -> PyResult<String> {
    fl_core::regular_file::read_text(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(path.display().to_string()),
        _ => PyOSError::new_err(format!("{}: {error}", path.display())),
    })
}

/// A command of the program, such as `["fl", "list"]`: its exit code, and what it would have
/// printed.
#[pyfunction]
fn command(py: Python<'_>, args: Vec<OsString>) -> (u8, String, String) {
    let answered = py.detach(|| fl_cli::answered(args, &parts::of_session()));
    (answered.code, answered.out, answered.err)
}

/// The program itself; gives its exit code.
#[pyfunction]
fn program(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| fl_cli::run_for_exit_code(args))
}

/// The rates that follow the round, as JSON, in a training of one epoch.
fn round_training(rates: &str) -> PyResult<RoundTraining> {
    let text = format!("{{epochs: 1, rate: {{by-round: {rates}}}}}");
    fl_core::settings::read_yaml(&text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The factor of a learning rate in a round, counted from 1.
#[pyfunction]
fn rate_in_round(rates: &str, round: usize) -> PyResult<f64> {
    Ok(round_training(rates)?.rate(round))
}

/// What is wrong with the rates of so many rounds, to be read after the name of their setting.
#[pyfunction]
fn rate_conflict(rates: &str, rounds: usize) -> PyResult<Option<String>> {
    let found = round_training(rates)?.conflict("rate", rounds);
    Ok(found.map(|conflict| conflict.text.replacen("`rate` ", "", 1)))
}

/// Fails if the program itself records a measure of this name.
#[pyfunction]
fn ensure_free(name: &str) -> PyResult<()> {
    let free = fl_core::metrics::ensure_free(name);
    free.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Libraries get processes of their own, which `command` begins.
#[pyfunction]
fn isolate_with(command: Vec<OsString>) {
    #[cfg(unix)]
    fl_registry::isolate_with(command);
    #[cfg(not(unix))]
    let _ = command;
}

/// What such a process does with its arguments; gives its exit code.
#[cfg(unix)]
#[pyfunction]
fn library_process(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| fl_cli::library_process(args.get(1..).unwrap_or_default()))
}

/// The native half of the package `fl`.
#[pymodule]
mod _fl {
    #[pymodule_export]
    use super::{
        buffer::Buffer, check, command, engine::Node, ensure_free, guarantee, host::Host,
        interference::interference, isolate_with, key_of_files, made::MadePart,
        metrics::metric_declared, model::Model, parts::columns, parts::conformance, parts::declare,
        parts::near_kind, parts::settings, parts::snapshot, parts::unused_answers, program,
        rate_conflict, rate_in_round, run::Run, run_text, speed::seconds,
    };

    #[cfg(unix)]
    #[pymodule_export]
    use super::library_process;

    use pyo3::types::{PyAnyMethods as _, PyModuleMethods as _};

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // clients in processes of their own are Python too, so that parts in Python can be theirs
        let sys = module.py().import("sys")?;
        if let Ok(python) = sys.getattr("executable")?.extract::<super::OsString>() {
            fl_engine::start_processes_with(vec![python, "-m".into(), "fl".into()]);
        }
        // what a run says is for whoever called it
        fl_cli::quiet();
        fl_registry::on_module(super::parts::import);
        fl_registry::on_session(super::parts::fingerprint);
        fl_registry::on_packages(super::parts::folders);
        fl_registry::on_metrics(super::metrics::fingerprints);
        fl_engine::on_sinks(super::sinks::open);
        Ok(())
    }
}
