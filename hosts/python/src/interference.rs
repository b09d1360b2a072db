//! Does an observer who is promised something see what one client has? A run is done twice with
//! other data of one client, and every observer's view is compared.

use crate::{Wrong, catalogue, wrong};
use anyhow::{Context, ensure};
use fl_core::privacy::Observer;
use fl_data::DataSpec;
use fl_engine::{ExecuteOptions, Folder, execute};
use fl_registry::{Document, Spec};
use fl_sim::{Execution, Outcome, Watch};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each observer sees, in order: a description, and its bytes.
type Views = BTreeMap<Observer, Vec<(String, Vec<u8>)>>;

/// What [`compared`] found.
type Interference = (Vec<String>, Vec<String>);

/// Runs the spec; with `changed`, this client has every second one of its examples only.
fn world(
    spec: &Spec<DataSpec>,
    data_dir: &Path,
    out: PathBuf,
    changed: Option<usize>,
) -> anyhow::Result<(Outcome, Views)> {
    let mut data = fl_engine::data(spec, data_dir)?;
    if let Some(client) = changed {
        let own = &mut data.clients[client];
        *own = own.pick(&(0..own.len()).step_by(2).collect::<Vec<_>>());
    }
    let mut views = Views::new();
    let watch = |observer: Observer, what: &str, bytes: &[u8]| {
        let seen = views.entry(observer).or_default();
        seen.push((what.to_string(), bytes.to_vec()));
    };
    let execution = Execution {
        listeners: vec![Box::new(Watch(watch))],
        ..Execution::default()
    };
    let options = ExecuteOptions::new(data_dir.into(), Vec::new(), execution);
    let outcome = execute(spec, data, Folder::New(out), options)?;
    Ok((outcome, views))
}

/// Observers who are promised something, and what those of them see that they should not.
fn compared(spec: &Spec<DataSpec>, data_dir: &Path, folder: &Path) -> anyhow::Result<Interference> {
    let clients = fl_engine::data(spec, data_dir)?.clients;
    let client = clients.iter().position(|own| own.len() > 1);
    let client = client.context("this check gives one client other examples, and no client has two or more; give a client at least two")?;
    let (outcome, here) = world(spec, data_dir, folder.join("here"), None)?;
    let (_, there) = world(spec, data_dir, folder.join("there"), Some(client))?;
    let protections = outcome.privacy.context("the run has no accountant")?;
    let promised = protections.into_iter();
    let promised: Vec<Observer> = promised
        .filter(|(_, protection)| protection.guarantee().is_some())
        .map(|(observer, _)| observer)
        .collect();
    ensure!(
        here.values().map(Vec::len).sum::<usize>() > 0,
        "nobody saw anything"
    );
    let mut found = Vec::new();
    for observer in &promised {
        let (one, other) = (here.get(observer), there.get(observer));
        if one != other {
            let mut pairs = one.into_iter().flatten().zip(other.into_iter().flatten());
            let first = pairs.find(|(a, b)| a != b).map(|(a, _)| a.0.as_str());
            found.push(format!("{observer}: {}", first.unwrap_or("more or less")));
        }
    }
    let named = promised.iter().map(ToString::to_string).collect();
    Ok((named, found))
}

/// Who is promised something in a run of this spec, and what those of them see of one client's
/// data.
#[pyfunction]
#[pyo3(signature = (name, text, set, folder, data_dir))]
pub fn interference(
    py: Python<'_>,
    name: String,
    text: String,
    set: Vec<String>,
    folder: PathBuf,
    data_dir: Option<PathBuf>,
) -> (Option<Interference>, Option<Wrong>) {
    let both = || -> anyhow::Result<_> {
        let spec = Document::parse(&name, text.as_bytes()).set(&set);
        let spec = fl_engine::read(&spec, &catalogue()?)?;
        compared(&spec, &fl_data_kit::data_dir(data_dir.as_deref()), &folder)
    };
    match py.detach(both) {
        Ok(found) => (Some(found), None),
        Err(error) => (None, Some(wrong(&error))),
    }
}
