//! [`FileHash`]: a file and the hash of its content.

use crate::atomic_file;
use anyhow::Context;
use fl_core::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A file, with the hash of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHash {
    /// Its path.
    pub path: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

impl FileHash {
    /// Hashes the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Self {
            sha256: atomic_file::hash(path)
                .with_context(|| format!("reading {}", path.display()))?,
            path: path.display().to_string(),
        })
    }
}
