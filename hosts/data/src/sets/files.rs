//! Where the files of a set are, and what to say when they are not there.

use super::{KNOWN, Known, SetSpec};
use crate::{archive, format::idx};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The data directory: `given` (from `--data-dir`), else what `FL_DATA_DIR` says, else `fl` in the platform's data
/// folder, else the folder `data` where the program was started.
pub fn data_dir(given: Option<&Path>) -> PathBuf {
    let var = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let home = |folder: &str| var("HOME").map(|home| home.join(folder));
    let platform = || {
        if cfg!(windows) {
            var("APPDATA")
        } else if cfg!(target_os = "macos") {
            home("Library/Application Support")
        } else {
            var("XDG_DATA_HOME").or_else(|| home(".local/share"))
        }
    };
    given
        .map(Path::to_path_buf)
        .or_else(|| var("FL_DATA_DIR"))
        .or_else(|| platform().map(|dir| dir.join("fl")))
        .unwrap_or_else(|| PathBuf::from("data"))
}

/// The folder of one set.
pub(super) struct Folder<'a> {
    known: &'static Known,
    dir: &'a Path,
}

impl<'a> Folder<'a> {
    pub(super) fn new(known: &'static Known, dir: &'a Path) -> Self {
        Self { known, dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(self.known.folder)
    }

    /// The file of the set whose published name is `name`, wherever it is.
    fn find(&self, name: &str) -> Option<PathBuf> {
        let names = self.known.files.iter().find(|names| names[0] == name)?;
        names
            .iter()
            .find_map(|name| archive::find(&self.path(), name))
    }

    /// Reads and parses a file of the set; what is wrong with its content is said with its path.
    pub(super) fn read<T>(
        &self,
        name: &str,
        parse: impl FnOnce(Vec<u8>) -> Result<T>,
    ) -> Result<T> {
        let Some(path) = self.find(name) else {
            bail!(self.missing(name))
        };
        parse(archive::read(&path)?).with_context(|| path.display().to_string())
    }

    fn missing(&self, name: &str) -> String {
        let Known {
            name: set,
            source,
            files,
            ..
        } = self.known;
        let all: Vec<&str> = files.iter().map(|names| names[0]).collect();
        format!(
            "data set `{set}`: there is no {} (plain, .gz or .xz). Get {source}, put its files ({}) into {}, or say with \
             --data-dir or FL_DATA_DIR which directory holds the folder `{}`. Sets that need no files: blobs, glyphs, \
             findings",
            self.path().join(name).display(),
            all.join(", "),
            self.path().display(),
            self.known.folder,
        )
    }

    /// Rows of an IDX file, from its header alone.
    fn rows(&self, name: &str) -> Option<usize> {
        idx::claimed_rows(&archive::read_start(&self.find(name)?, 8).ok()?)
    }
}

/// One known set and what is there of it.
#[derive(Debug)]
pub struct Entry {
    /// What is known about it.
    pub known: &'static Known,
    /// (training rows, test rows), where they are known without reading the set: it is made here, or its files have
    /// a header.
    pub rows: Option<(usize, usize)>,
    /// Its files; none for a set that the program makes itself.
    pub files: Vec<FileEntry>,
}

/// One file of a set.
#[derive(Debug)]
pub struct FileEntry {
    /// Where it is looked for, under its published name.
    pub wanted: PathBuf,
    /// Where it is, if it is there.
    pub found: Option<PathBuf>,
}

impl Entry {
    /// Is everything there?
    pub fn present(&self) -> bool {
        self.files.iter().all(|file| file.found.is_some())
    }
}

/// All known sets and what is there of them in the data directory `dir`.
pub fn list(dir: &Path) -> Vec<Entry> {
    let entry = |known: &'static Known| {
        let folder = Folder::new(known, dir);
        let file = |names: &&[&str]| FileEntry {
            wanted: folder.path().join(names[0]),
            found: folder.find(names[0]),
        };
        let made = SetSpec::named(known.name)
            .ok()
            .and_then(|set| set.made_rows());
        let labels = |part: &str| {
            let is = |name: &&str| name.starts_with(part) && name.ends_with("-labels-idx1-ubyte");
            known
                .files
                .iter()
                .map(|names| names[0])
                .find(is)
                .and_then(|name| folder.rows(name))
        };
        let idx = || Some((labels("train")?, labels("t10k").or_else(|| labels("test"))?));
        Entry {
            known,
            rows: made.or_else(idx),
            files: known.files.iter().map(file).collect(),
        }
    };
    KNOWN.iter().map(entry).collect()
}
