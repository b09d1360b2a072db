//! Files that are the same: by name, by link or by content.

use fl_core::hex;
use fl_core::regular_file::{open_regular, sha256_of};
use sha2::Digest;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The files that are one of the files before them: (that one, this one). A file under another
/// name, or behind a link, is the same; where `copies` count, so is one with the same content. What
/// cannot be read is only what its name says.
pub fn same(files: &[PathBuf], copies: bool) -> Vec<(usize, usize)> {
    let real: Vec<PathBuf> = files
        .iter()
        .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()))
        .collect();
    // only files of one size can be copies, so few are read
    let mut sizes: HashMap<u64, HashSet<&PathBuf>> = HashMap::new();
    for path in real.iter().filter(|_| copies) {
        if let Ok(meta) = path.metadata()
            && meta.is_file()
            && meta.len() > 0
        {
            sizes.entry(meta.len()).or_default().insert(path);
        }
    }
    let alike = sizes.into_values().filter(|alike| alike.len() > 1);
    let content: HashMap<&PathBuf, String> = alike
        .flatten()
        .filter_map(|path| Some((path, sha256(path).ok()?)))
        .collect();
    let mut seen: HashMap<&OsStr, usize> = HashMap::new();
    let mut twice = Vec::new();
    for (at, path) in real.iter().enumerate() {
        let key = content
            .get(path)
            .map_or(path.as_os_str(), |hash| hash.as_ref());
        match seen.get(key) {
            Some(first) => twice.push((*first, at)),
            None => {
                seen.insert(key, at);
            }
        }
    }
    twice
}

/// The SHA-256 of a file, in hexadecimal digits.
///
/// # Errors
/// If it cannot be read.
pub fn sha256(path: &Path) -> std::io::Result<String> {
    Ok(hex(&sha256_of(open_regular(path)?)?.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_under_another_name_behind_a_link_and_as_a_copy() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("sub"))?;
        for (name, text) in [
            ("a", "1,2"),
            ("b", "1,3"),
            ("copy", "1,2"),
            ("e", ""),
            ("f", ""),
        ] {
            std::fs::write(path(name), text)?;
        }
        let mut files: Vec<PathBuf> = ["a", "b", "sub/../a", "copy", "e", "f", "gone"]
            .map(path)
            .into();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(path("b"), path("link"))?;
            files.push(path("link"));
        }
        let links = if cfg!(unix) { vec![(1, 7)] } else { vec![] };
        assert_eq!(same(&files, false), [vec![(0, 2)], links.clone()].concat());
        assert_eq!(same(&files, true), [vec![(0, 2), (0, 3)], links].concat());
        Ok(())
    }
}
