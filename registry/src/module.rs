//! Modules of Python, for the host that has Python in it.

use crate::load::{Library, Refusal, other_hash};
use fl_core::PartDecl;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const NO_PYTHON: &str = "it is a module of Python, and this program has no Python in it: run the spec with the `fl` that comes with \
    the Python package fl-federated (`pip install`), or with `fl.run` in Python";

const NOT_APART: &str =
    "it is a module of Python, which cannot have processes of its own: leave out `isolate`";

/// A module of Python that was imported.
pub struct Module {
    /// The parts that it has.
    pub parts: Vec<&'static PartDecl>,
    /// The folder in which it was found, and would be found again.
    pub folder: PathBuf,
    /// The SHA-256 of its source, in hexadecimal.
    pub sha256: String,
}

/// Imports the module of this name, looked for in a folder first, or says why it cannot.
pub type Import = fn(&str, &Path) -> Result<Module, String>;

static IMPORT: OnceLock<Import> = OnceLock::new();

/// Says how modules of Python are imported: for the host that has Python. The first call counts.
pub fn on_module(import: Import) {
    let _ = IMPORT.set(import);
}

/// The parts of a module that somebody named, and where it was found.
pub(crate) fn load(
    library: &Library,
    name: &str,
    isolated: bool,
) -> Result<(Vec<&'static PartDecl>, Library), Refusal> {
    let refused = |text: String| Refusal {
        place: None,
        path: name.into(),
        text,
    };
    if isolated {
        return Err(refused(NOT_APART.into()));
    }
    let import = IMPORT.get().ok_or_else(|| refused(NO_PYTHON.into()))?;
    let module = import(name, &library.path).map_err(refused)?;
    if let Some(wanted) = &library.sha256
        && !module.sha256.eq_ignore_ascii_case(wanted)
    {
        return Err(refused(other_hash(&module.sha256, wanted)));
    }
    let found = Library {
        path: module.folder,
        module: Some(name.into()),
        sha256: Some(module.sha256),
        isolate: None,
    };
    Ok((module.parts, found))
}
