//! [`AppendLog`]: a file of lines that only grows, and its position in a checkpoint.

use crate::atomic_file;
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use fl_core::regular_file::sha256_of;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

/// The length of the file, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    length: u64,
    sha256: [u8; 32],
}

/// The file, open for appending.
pub struct AppendLog {
    path: PathBuf,
    file: File,
    length: u64,
    sum: Sha256,
}

impl AppendLog {
    /// Makes an empty file.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: PathBuf) -> Result<Self> {
        let mut options = OpenOptions::new();
        let file = atomic_file::open_unlinked(&path, options.create(true).append(true));
        Ok(Self {
            file: file.with_context(|| format!("opening {}", path.display()))?,
            path,
            length: 0,
            sum: Sha256::new(),
        })
    }

    /// Opens a file that begins with the `known` part. The rest stays until [`AppendLog::go_on`].
    ///
    /// # Errors
    /// If it does not begin so, or cannot be read.
    pub fn open(path: PathBuf, known: Option<LogPosition>) -> Result<Self> {
        let what = || format!("opening {}", path.display());
        let mut options = OpenOptions::new();
        let file = atomic_file::open_unlinked(&path, options.read(true).append(true));
        let mut file = file.with_context(what)?;
        let found = file.metadata().with_context(what)?.len();
        let length = known.map_or(0, |known| known.length);
        if found < length {
            bail!(
                "{} is cut short: it has {found} bytes, and had {length} when the run stopped; restore it, or start a new run",
                path.display()
            );
        }
        let sum = sha256_of((&mut file).take(length)).with_context(what)?;
        let same = known.is_none_or(|known| sum.clone().finalize().as_slice() == known.sha256);
        ensure!(
            same,
            "{} has changed since the run stopped: its checksum does not match; restore it, or start a new run",
            path.display()
        );
        Ok(Self {
            path,
            file,
            length,
            sum,
        })
    }

    /// Returns the length of the known part.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Removes everything after the known part.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn go_on(&self) -> Result<()> {
        let cut = self.file.set_len(self.length);
        cut.with_context(|| format!("undoing lines of {}", self.path.display()))
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, line: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        self.add_line(&line)
    }

    /// Writes a line, which ends in a line break.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add_line(&mut self, line: &[u8]) -> Result<()> {
        let written = self.file.write_all(line);
        written.with_context(|| format!("writing {}", self.path.display()))?;
        self.length += line.len() as u64;
        self.sum.update(line);
        Ok(())
    }

    /// Flushes the file to the disk, and returns its position.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&self) -> Result<LogPosition> {
        let synced = self.file.sync_all();
        synced.with_context(|| format!("syncing {}", self.path.display()))?;
        Ok(LogPosition {
            length: self.length,
            sha256: self.sum.clone().finalize().into(),
        })
    }
}
