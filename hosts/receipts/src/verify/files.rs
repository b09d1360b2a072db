//! The files of a run folder that its receipts name.

use super::differs;
use anyhow::{Context, ensure};
use fl_core::regular_file::MOST_BINARY;
use fl_files::FileHash;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

/// The most bytes of files in a folder that are hashed, unless the user knows the key that signed
/// their names: a file with a hole takes no space, and long to hash.
const MOST_HASHED: u64 = 1 << 36;

/// The files whose hashes are still to be checked: each once, and no more bytes than these.
pub(super) struct FilesLeft<'a> {
    pub(super) folder: &'a Path,
    seen: BTreeSet<String>,
    bytes: u64,
}

impl<'a> FilesLeft<'a> {
    /// `known`: the user knows the key that signed the names.
    pub(super) fn new(folder: &'a Path, known: bool) -> Self {
        Self {
            folder,
            seen: BTreeSet::new(),
            bytes: if known { u64::MAX } else { MOST_HASHED },
        }
    }

    /// Checks the hash of a file that `by` names.
    pub(super) fn check(&mut self, file: &FileHash, by: &str) -> anyhow::Result<()> {
        // a name in a receipt stays in the folder, and each file has one
        let mut parts = Path::new(&file.path).components();
        let plain = parts.all(|part| matches!(part, Component::Normal(_)));
        ensure!(
            plain
                && file.path.split('/').all(|part| !matches!(part, "" | "."))
                && !file.path.contains(char::is_control),
            "{by}: {:?} is no name in the folder",
            file.path
        );
        ensure!(
            self.seen.insert(file.path.clone()),
            "{by}: {:?} is named twice",
            file.path
        );
        let expected = || format!("the SHA-256 {} ({by})", file.sha256);
        let path = self.folder.join(&file.path);
        let about = path.metadata().ok().filter(fs::Metadata::is_file);
        let Some(about) = about else {
            return differs(&file.path, "no file", expected());
        };
        if about.len() > MOST_BINARY {
            let found = format!("{} bytes, more than are hashed", about.len());
            return differs(&file.path, found, expected());
        }
        let Some(left) = self.bytes.checked_sub(about.len()) else {
            let most = MOST_HASHED >> 30;
            let found = format!("more than {most} GiB of files with the ones before");
            let key = "; --key with the key that signed the run allows any number";
            return differs(&file.path, found, expected() + key);
        };
        self.bytes = left;
        let found = FileHash::of(&path)?.sha256;
        if found == file.sha256 {
            Ok(())
        } else {
            differs(
                &file.path,
                format!("the SHA-256 {found}"),
                format!("{} ({by})", file.sha256),
            )
        }
    }
}

/// The files in `folder`, by their names from there.
pub(super) fn files(folder: &Path, below: &str) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    let here = folder.join(below);
    let what = || format!("reading {}", here.display());
    for entry in fs::read_dir(&here).with_context(what)? {
        let entry = entry.with_context(what)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = match below {
            "" => name,
            below => format!("{below}/{name}"),
        };
        if entry.file_type().with_context(what)?.is_dir() {
            all.extend(files(folder, &name)?)
        } else {
            all.push(name)
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_hashed_once_and_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            fs::write(&path, "abc").unwrap();
            FileHash {
                path: name.into(),
                ..FileHash::of(&path).unwrap()
            }
        };
        let (a, b) = (file("a"), file("b"));
        let mut files = FilesLeft {
            folder: dir.path(),
            seen: BTreeSet::new(),
            bytes: 5,
        };
        files.check(&a, "a line").unwrap();
        for (file, due) in [
            (a.clone(), "\"a\" is named twice"),
            (b, "found more than 64 GiB of files"),
            (
                FileHash {
                    path: "./a".into(),
                    ..a.clone()
                },
                "is no name",
            ),
            (
                FileHash {
                    path: "a\nb".into(),
                    ..a.clone()
                },
                "\"a\\nb\" is no name",
            ),
            (
                FileHash {
                    path: "../a".into(),
                    ..a
                },
                "is no name",
            ),
        ] {
            let error = files.check(&file, "a line").unwrap_err().to_string();
            assert!(error.contains(due), "{error}");
        }
    }
}
