//! Hashes of the files that a run read, so that its folder can keep them.

use crate::spec::DataSpec;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The SHA-256 of every file that the data of a spec are read from, as it is stored (compressed or not), in the order of
/// reading; `dir` is the data directory. A set that is made here has none.
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

fn sha256(path: &Path) -> std::io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut file = BufReader::new(File::open(path)?);
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => break,
            n => hash.update(&block[..n]),
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    }))
}
