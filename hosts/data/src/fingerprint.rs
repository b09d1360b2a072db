//! Hashes of the files that a run read, so that its folder can keep them.

use crate::section::DataSpec;
use anyhow::{Context, Result};
use fl_data_kit::sha256;
use std::path::{Path, PathBuf};

/// The SHA-256 of every file that the data of a spec are read from, as it is stored (compressed or
/// not), in the order of reading; `dir` is the data directory. A set that is made here has none.
///
/// # Errors
/// If a file cannot be read.
pub fn fingerprints(spec: &DataSpec, dir: &Path) -> Result<Vec<(PathBuf, String)>> {
    let hashed = |path: PathBuf| {
        let hash = sha256(&path).with_context(|| path.display().to_string())?;
        Ok((path, hash))
    };
    spec.paths(dir).into_iter().map(hashed).collect()
}
