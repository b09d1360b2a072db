//! Where the files of a set are, and what to say when they are not there.

use crate::set::{DataSetFacts, SetSpec, linked_sets};
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

/// The folder of one set in the data directory.
#[derive(Clone, Copy, Debug)]
pub struct Folder<'a> {
    set: &'static str,
    facts: DataSetFacts,
    dir: &'a Path,
}

impl<'a> Folder<'a> {
    /// That of the set with this name and these facts.
    pub fn new(set: &'static str, facts: DataSetFacts, dir: &'a Path) -> Self {
        Self { set, facts, dir }
    }

    /// The name of the set.
    pub fn set(&self) -> &'static str {
        self.set
    }

    fn path(&self) -> PathBuf {
        self.dir.join(self.facts.folder)
    }

    /// The file of the set whose published name is `name`, wherever it is.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let names = self.facts.files.iter().find(|names| names[0] == name)?;
        names
            .iter()
            .find_map(|name| archive::find(&self.path(), name))
    }

    /// All files of the set that are there.
    pub fn found(&self) -> Vec<PathBuf> {
        let files = self.facts.files.iter();
        files.filter_map(|names| self.find(names[0])).collect()
    }

    /// Reads and parses a file of the set; what is wrong with its content is said with its path.
    ///
    /// # Errors
    /// If it is missing, cannot be read, or `parse` fails.
    pub fn read<T>(&self, name: &str, parse: impl FnOnce(Vec<u8>) -> Result<T>) -> Result<T> {
        let Some(path) = self.find(name) else {
            bail!(self.missing(name))
        };
        parse(archive::read(&path)?).with_context(|| path.display().to_string())
    }

    /// What to say of the first of its files that is not there.
    pub(crate) fn lacks(&self) -> Option<String> {
        let mut names = self.facts.files.iter().map(|names| names[0]);
        let first = names.find(|name| self.find(name).is_none())?;
        Some(self.missing(first))
    }

    fn missing(&self, name: &str) -> String {
        let all: Vec<&str> = self.facts.files.iter().map(|names| names[0]).collect();
        let made = list(self.dir).into_iter();
        let made = made.filter(|entry| entry.files.is_empty() && entry.rows.is_some());
        let made: Vec<&str> = made.map(|entry| entry.name).collect();
        format!(
            "data set `{}`: there is no {} (plain, .gz or .xz). Get {}, put its files ({}) into {}, or say with \
             --data-dir or FL_DATA_DIR which directory holds the folder `{}`. Sets that need no files: {}",
            self.set,
            self.path().join(name).display(),
            self.facts.source,
            all.join(", "),
            self.path().display(),
            self.facts.folder,
            made.join(", "),
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
    /// Its name in a spec.
    pub name: &'static str,
    /// What it is.
    pub doc: String,
    /// What is known about it.
    pub facts: DataSetFacts,
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

/// All sets that can be named without settings, and what is there of them in the data directory `dir`.
pub fn list(dir: &Path) -> Vec<Entry> {
    let sets = linked_sets().into_iter();
    sets.filter_map(|decl| {
        let set = SetSpec::named(decl.name).ok()?;
        Some(entry(&set, (decl.describe)().doc, dir))
    })
    .collect()
}

fn entry(set: &SetSpec, doc: String, dir: &Path) -> Entry {
    let (facts, folder) = (set.facts(), set.folder(dir));
    let file = |names: &&[&str]| FileEntry {
        wanted: folder.path().join(names[0]),
        found: folder.find(names[0]),
    };
    let labels = |part: &str| {
        let is = |name: &&str| name.starts_with(part) && name.ends_with("-labels-idx1-ubyte");
        let mut names = facts.files.iter().map(|names| names[0]);
        names.find(is).and_then(|name| folder.rows(name))
    };
    let idx = || Some((labels("train")?, labels("t10k").or_else(|| labels("test"))?));
    Entry {
        name: set.name(),
        doc,
        rows: if facts.files.is_empty() {
            facts.rows
        } else {
            idx()
        },
        files: facts.files.iter().map(file).collect(),
        facts,
    }
}
