//! The parts that Python has declared in this process.

use crate::library::{DESCRIPTION, PythonLibrary};
use anyhow::{Context, Result};
use fl_conformance::check;

use fl_core::{CheckedSettings, PartDecl, abi};
use fl_registry::{Catalogue, HashedFiles, Module};
use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last part of each role, name and origin, in the order in which they were declared: in a
/// notebook a class is declared again and again.
static DECLARED: Mutex<Vec<PythonPart>> = Mutex::new(Vec::new());

/// A part, and its number in `fl._parts.classes.CLASSES`.
#[derive(Clone, Copy)]
struct PythonPart {
    part: &'static PartDecl,
    index: usize,
}

fn declared() -> MutexGuard<'static, Vec<PythonPart>> {
    DECLARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every part that Python has declared, the last of each role and name.
pub fn of_session() -> Vec<&'static PartDecl> {
    let all = declared();
    let later = |at: usize, p: &PartDecl| {
        let mut later = all[at + 1..].iter().map(|d| d.part);
        later.any(|q| (q.role, q.name) == (p.role, p.name))
    };
    let last = all.iter().enumerate().filter(|(at, d)| !later(*at, d.part));
    last.map(|(_, d)| d.part).collect()
}

/// The hash of the source of a part that Python has declared, and which Python it is.
pub fn fingerprint(part: &'static PartDecl) -> Option<Result<(String, String), String>> {
    let found = declared()
        .iter()
        .find(|d| std::ptr::eq(d.part, part))
        .copied()?;
    let ask = |py: Python<'_>| -> PyResult<(String, String)> {
        let parts = py.import("fl._parts.classes")?;
        parts.call_method1("fingerprint", (found.index,))?.extract()
    };
    let hashed = Python::try_attach(|py| ask(py).map_err(|error| error.to_string()));
    Some(hashed.unwrap_or_else(|| Err("Python is shutting down".into())))
}

/// Declares the part that `json` describes, which has this number; `origin` says where it is from.
#[pyfunction]
pub fn declare(json: String, origin: &str, index: usize) -> PyResult<()> {
    DESCRIPTION.set(json);
    let parts = abi::import_library::<PythonLibrary>(origin);
    for part in parts.map_err(|e| PyValueError::new_err(e.to_string()))? {
        let twin = |p: &&PartDecl| (p.role, p.name) == (part.role, part.name);
        if let Some(other) = fl_core::linked_parts().into_iter().find(|p| twin(p)) {
            return Err(PyValueError::new_err(format!(
                "there is {} `{name}` already, from {}; try my-{name}",
                part.role.with_article(),
                other.origin,
                name = part.name
            )));
        }
        let mut all = declared();
        all.retain(|d| !twin(&d.part) || d.part.origin != part.origin);
        all.push(PythonPart { part, index });
    }
    Ok(())
}

/// Imports a module, for specs that name it.
pub fn import(name: &str, folder: &Path, files: Option<&HashedFiles>) -> Result<Module, String> {
    let found = Python::try_attach(|py| {
        let bridge = py.import("fl._parts.classes")?;
        let found = bridge.call_method1("load", (name, folder, files))?;
        found.extract::<(Option<String>, String, String, Vec<String>, bool)>()
    });
    let (error, folder, sha256, origins, measures) = found
        .ok_or("Python is shutting down")?
        .map_err(|error: PyErr| error.to_string())?;
    if let Some(error) = error {
        return Err(error);
    }
    let of_module = |p: &&'static PartDecl| origins.iter().any(|origin| origin == p.origin);
    let parts = declared()
        .iter()
        .map(|d| d.part)
        .filter(of_module)
        .collect::<Vec<_>>();
    if parts.is_empty() && !measures {
        Err(
        "it declares no part: put `@fl.aggregator(\"my-mean\")`, or what your part is, before a class of it".into(),
    )
    } else {
        Ok(Module {
            parts,
            folder: folder.into(),
            sha256,
        })
    }
}

/// The folders that Python looks for modules and packages in.
pub fn folders() -> Vec<PathBuf> {
    let path = |py: Python<'_>| -> PyResult<Vec<PathBuf>> {
        let all: Vec<String> = py.import("sys")?.getattr("path")?.extract()?;
        let named = all.into_iter().filter(|folder| !folder.is_empty());
        Ok(named.map(PathBuf::from).collect())
    };
    Python::try_attach(|py| path(py).unwrap_or_default()).unwrap_or_default()
}

/// A part such as `aggregator my-mean`, and its settings, every default filled in.
pub fn find(
    all: &Catalogue,
    part: &str,
    settings: &str,
) -> Result<(&'static PartDecl, CheckedSettings)> {
    let (role, name) = part.split_once(' ').context("a role and a name")?;
    let named = all.named(name);
    let mut named = named.into_iter();
    let decl = named
        .find(|p| p.role.name().split(' ').next() == Some(role))
        .with_context(|| format!("no {role} is called `{name}`"))?;
    let settings = decl.read(&serde_yaml::from_str(settings)?)?;
    Ok((decl, settings))
}

fn tried(part: &str, settings: &str) -> Result<(), String> {
    let found = crate::catalogue().and_then(|all| find(&all, part, settings));
    let (decl, settings) = found.map_err(|e| format!("{e:#}"))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| check::declared(decl, &settings.value)));
    match outcome {
        Ok(Some(held)) => held.map_err(|broken| broken.to_string()),
        Ok(None) => Err(format!(
            "the kit cannot try {} of `{}`",
            decl.role.with_article(),
            (decl.describe)().signature
        )),
        Err(panic) => Err(fl_core::panic_text(&*panic).unwrap_or_else(|| "it panicked".into())),
    }
}

/// Holds a part, such as `aggregator my-mean`, to what its role asks and to what it claims.
#[pyfunction]
pub fn conformance(py: Python<'_>, part: String, settings: String) -> PyResult<()> {
    py.detach(|| tried(&part, &settings))
        .map_err(PyAssertionError::new_err)
}

/// The settings of a part, every default filled in, as JSON.
#[pyfunction]
pub fn settings(part: &str, given: &str) -> PyResult<String> {
    match crate::catalogue().and_then(|all| find(&all, part, given)) {
        Ok((_, settings)) => Ok(fl_core::settings::to_json(&settings.value).to_string()),
        Err(error) => Err(PyValueError::new_err(format!("{error:#}"))),
    }
}

/// Holds a case, or a value, to its accepted answer: the outcome, and the differences.
#[pyfunction]
pub fn snapshot(
    py: Python<'_>,
    case: &str,
    value: Option<&str>,
    answers: PathBuf,
    accept: bool,
) -> PyResult<(&'static str, Vec<String>)> {
    let held = || {
        let case = serde_yaml::from_str(case)?;
        let value = value.map(serde_json::from_str).transpose()?;
        let held = fl_cases::snapshot(&case, value, &answers, accept, &crate::catalogue()?);
        held.map_err(anyhow::Error::msg)
    };
    let held = py.detach(held);
    let held = held.map_err(|error| PyValueError::new_err(format!("{error:#}")))?;
    Ok((held.outcome, held.lines))
}

/// The names in a file of answers that are not `used`; they are removed on request.
#[pyfunction]
pub fn unused_answers(
    answers: PathBuf,
    used: BTreeSet<String>,
    remove: bool,
) -> PyResult<Vec<String>> {
    fl_cases::unused_answers(&answers, &used, remove).map_err(PyValueError::new_err)
}

/// The kind of messages whose name is nearest to an unknown one. `None`: `kind` is known, or none
/// is near.
#[pyfunction]
pub fn near_kind(kind: &str) -> Option<String> {
    // a short name is near to too many
    if kind.len() < 4 || fl_core::message::message_type(kind).is_some() {
        return None;
    }
    let known = fl_core::message::known_kinds();
    fl_core::settings::nearest(kind, known.split(", ")).map(String::from)
}

/// The tensors of messages of this kind, by name: the types of their numbers, such as `f32`.
#[pyfunction]
pub fn columns(kind: &str) -> PyResult<Vec<(&'static str, String)>> {
    let of = fl_core::message::message_type(kind);
    let of = of.ok_or_else(|| {
        let known = fl_core::message::known_kinds();
        PyValueError::new_err(format!(
            "no message is called `{kind}`; known: {known}, and those that `fl.message` declares"
        ))
    })?;
    let columns = of.columns.iter();
    Ok(columns.map(|c| (c.name, c.dtype.to_string())).collect())
}
