//! Modules of Python, for the host that has Python in it.

use crate::library::{Library, Refusal, other_hash};
use crate::package::{ANY, Package};
use anyhow::anyhow;
use fl_core::PartDecl;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const NO_PYTHON: &str = "it is a Python module, and this program has no Python: run the spec with the `fl` that comes with \
    the Python package fl-federated (`pip install`), or with `fl.run` in Python";

const NOT_ISOLATED: &str =
    "it is a module of Python, which cannot have processes of its own: leave out `isolate`";

pub(crate) const UNHASHED: &str = "a hash is wanted, and nothing lists the files of the package: it has no RECORD with its module, \
    as an editable install has none";

/// A module of Python that was imported.
pub struct Module {
    /// The parts that it has.
    pub parts: Vec<&'static PartDecl>,
    /// The folder in which it was found, and would be found again.
    pub folder: PathBuf,
    /// The SHA-256 of its source, in hexadecimal.
    pub sha256: String,
}

/// The files of a package: the name of each below its folder, and its SHA-256 in hexadecimal.
pub type HashedFiles = [(String, String)];

/// Imports the module of this name, looked for in a folder first, or says why it cannot. If files
/// of a package are given, Python runs these and no others for it, and no bytecode.
pub type Import = fn(&str, &Path, Option<&HashedFiles>) -> Result<Module, String>;

static IMPORT: OnceLock<Import> = OnceLock::new();

/// Says how modules of Python are imported: for the host that has Python. The first call counts.
pub fn on_module(import: Import) {
    let _ = IMPORT.set(import);
}

/// The parts of a named module, and the place where it was found.
pub(crate) fn load(
    library: &Library,
    name: &str,
    package: Option<&Package>,
    isolated: bool,
) -> Result<(Vec<&'static PartDecl>, Library), Refusal> {
    let refused = |text: String| Refusal::new(name, text);
    if isolated {
        return Err(refused(NOT_ISOLATED.into()));
    }
    let import = IMPORT.get().ok_or_else(|| refused(NO_PYTHON.into()))?;
    let pinned = |hash: &str| match &library.sha256 {
        Some(wanted) if !hash.eq_ignore_ascii_case(wanted) => {
            Err(refused(other_hash(hash, wanted)))
        }
        _ => Ok(()),
    };
    #[cfg(unix)]
    if package.is_some() && library.sha256.is_none() {
        let about = library.path.metadata();
        let about = about.map_err(|e| refused(format!("{}: {e}", library.path.display())))?;
        crate::file_permissions::trusted(&library.path, &about)
            .map_err(|why| refused(format!("{}: {why}", library.path.display())))?;
    }
    // what a package has is known before it is run
    let hashed = package.map_or(Ok(None), Package::hashed).map_err(refused)?;
    match &hashed {
        Some(hashed) => pinned(&hashed.sha256)?,
        None if package.is_some() && library.sha256.is_some() => {
            return Err(refused(UNHASHED.into()));
        }
        None => {}
    }
    let files = hashed.as_ref().map(|hashed| &hashed.files[..]);
    let module = import(name, &library.path, files).map_err(refused)?;
    let (sha256, platform) = match hashed {
        Some(hashed) => (hashed.sha256, Some(hashed.platform)),
        None => {
            pinned(&module.sha256)?;
            (module.sha256, package.is_none().then(|| ANY.into()))
        }
    };
    let found = Library {
        path: module.folder,
        module: Some(name.into()),
        sha256: Some(sha256),
        platform,
        ..library.clone()
    };
    Ok((module.parts, found))
}

/// The SHA-256 of the source of a part that a program of Python has declared by itself, in
/// hexadecimal, and the version of Python; or why it is not known. `None`: the part is of no such
/// program.
pub type Fingerprint = fn(&'static PartDecl) -> Option<Result<(String, String), String>>;

static FINGERPRINT: OnceLock<Fingerprint> = OnceLock::new();

/// Says how the source of a part of this session is hashed: for the host that has Python. The first
/// call counts.
pub fn on_session(fingerprint: Fingerprint) {
    let _ = FINGERPRINT.set(fingerprint);
}

/// A measure that a program of Python has declared by itself: its name, where it is from, the
/// SHA-256 of its source in hexadecimal, and the version of Python.
pub type SessionMetric = (String, String, String, String);

/// The measures of this session, or why the source of one is not known.
pub type SessionMetrics = fn() -> Result<Vec<SessionMetric>, String>;

static METRICS: OnceLock<SessionMetrics> = OnceLock::new();

/// Says which measures this session has: for the host that has Python. The first call counts.
pub fn on_metrics(metrics: SessionMetrics) {
    let _ = METRICS.set(metrics);
}

/// A part or a measure that only this process has: no plugin of the spec brings it.
pub struct SessionPart {
    /// Such as ``trainer `net` from this session, by Python 3.12``.
    pub name: String,
    /// The SHA-256 of its source, in hexadecimal.
    pub sha256: String,
    /// Such as ``trainer `net` is from this session``, and what to do about it.
    pub alone: String,
}

/// The parts of a run that only this process has, each once, in the order of the spec.
///
/// # Errors
/// When the source of one is not known.
pub fn session_parts<'a>(
    parts: impl Iterator<Item = &'static PartDecl>,
    plugins: impl Iterator<Item = &'a Library> + Clone,
) -> fl_core::Result<Vec<SessionPart>> {
    let named = |origin: &str| {
        let mut modules = plugins
            .clone()
            .filter_map(|library| library.module.as_deref());
        modules.any(|module| {
            let rest = origin
                .strip_prefix("module ")
                .and_then(|o| o.strip_prefix(module));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let mut found = Vec::new();
    for part in parts.filter(|part| !named(part.origin)) {
        let who = format!("{} `{}`", part.role, part.name);
        let hashed = FINGERPRINT.get().and_then(|fingerprint| fingerprint(part));
        let Some(hashed) = hashed else { continue };
        let (sha256, version) =
            hashed.map_err(|why| anyhow!("{who} from {}: its source: {why}", part.origin))?;
        found.push((who, part.origin.to_string(), sha256, version));
    }
    let metrics = METRICS.get().map_or(Ok(Vec::new()), |metrics| metrics());
    let metrics = metrics.map_err(|why| anyhow!("a metric's source: {why}"))?;
    let metrics = metrics.into_iter().filter(|metric| !named(&metric.1));
    found.extend(metrics.map(|(name, origin, sha256, version)| {
        (format!("metric `{name}`"), origin, sha256, version)
    }));
    let mut all: Vec<SessionPart> = Vec::new();
    for (who, origin, sha256, version) in found {
        let name = format!("{who} from {origin}, by {version}");
        let advice = match origin.strip_prefix("module ") {
            Some(module) => format!("name it under `plugins`: `plugins: [{{ module: {module} }}]`"),
            None => "put it in a module and name it under `plugins`, such as \
                `plugins: [{ module: mine }]`"
                .into(),
        };
        let alone = format!("{who} is from {origin}: {advice}");
        if !all.iter().any(|other| other.name == name) {
            all.push(SessionPart {
                name,
                sha256,
                alone,
            });
        }
    }
    Ok(all)
}
