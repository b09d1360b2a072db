//! The bytes of a file, within the memory that a spec allows.

use anyhow::{Error, Result, anyhow};
use fl_data_kit::archive;
use std::path::Path;

/// The memory that reading all files of a spec may take, as its `max-bytes` says.
pub(crate) struct Budget {
    most: u64,
    left: u64,
}

impl Budget {
    pub fn new(most: u64) -> Self {
        Self { most, left: most }
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// Counts `bytes` more of memory, for what was read of the file at `path`.
    ///
    /// # Errors
    /// If that is more than is left.
    pub fn take(&mut self, bytes: u64, path: &Path) -> Result<()> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or_else(|| self.exceeded(path))?;
        Ok(())
    }

    /// Gives `bytes` of memory back.
    pub fn give(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Returns the error of a file that needs more memory than is left.
    pub fn exceeded(&self, path: &Path) -> Error {
        anyhow!(
            "{}: with it, reading takes more than {} bytes of memory, all files together; raise \
             `max-bytes` if this machine has more",
            path.display(),
            self.most
        )
    }
}

/// The content of a file, which counts against `budget`.
pub(crate) fn content(path: &Path, budget: &mut Budget) -> Result<Vec<u8>> {
    let bytes = archive::read_start(path, budget.left().saturating_add(1))?;
    budget.take(bytes.len() as u64, path)?;
    Ok(bytes)
}
