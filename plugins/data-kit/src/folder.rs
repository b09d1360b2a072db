//! Where the files of a set are, and what to say when they are not there.

use crate::facts::DataSetFacts;
use crate::{archive, format::idx};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The data directory: `given` (from `--data-dir`), else what `FL_DATA_DIR` says, else `fl` in the
/// platform's data folder, else the folder `data` where the program was started.
pub fn data_dir(given: Option<&Path>) -> PathBuf {
    given
        .map(Path::to_path_buf)
        .or_else(|| variable("FL_DATA_DIR"))
        .or_else(user_dir)
        .unwrap_or_else(|| PathBuf::from("data"))
}

fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Returns the folder `fl` in the platform's data folder of this user.
pub fn user_dir() -> Option<PathBuf> {
    let home = |folder: &str| variable("HOME").map(|home| home.join(folder));
    let platform = if cfg!(windows) {
        variable("APPDATA")
    } else if cfg!(target_os = "macos") {
        home("Library/Application Support")
    } else {
        variable("XDG_DATA_HOME").or_else(|| home(".local/share"))
    };
    platform.map(|dir| dir.join("fl"))
}

/// The folder of one set in the data directory.
#[derive(Clone, Copy, Debug)]
pub struct Folder<'a> {
    set: &'static str,
    facts: DataSetFacts,
    dir: &'a Path,
    /// Names of the sets that a user can take instead, as they need no files.
    synthetic: fn() -> Vec<&'static str>,
    /// Does `fl data get` fetch its files?
    fetched: bool,
}

impl<'a> Folder<'a> {
    /// That of the set with this name and these facts.
    pub fn new(set: &'static str, facts: DataSetFacts, dir: &'a Path) -> Self {
        Self {
            set,
            facts,
            dir,
            synthetic: Vec::new,
            fetched: false,
        }
    }

    /// Errors about missing files name these sets, which need none.
    pub(crate) fn or_synthetic(self, synthetic: fn() -> Vec<&'static str>) -> Self {
        Self { synthetic, ..self }
    }

    /// Errors about missing files say whether `fl data get` fetches them.
    pub(crate) fn fetched(self, fetched: bool) -> Self {
        Self { fetched, ..self }
    }

    /// The name of the set.
    pub fn set(&self) -> &'static str {
        self.set
    }

    pub(crate) fn path(&self) -> PathBuf {
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

    /// Reads and parses a file of the set; errors about its content name its path.
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
        let instead = match &(self.synthetic)()[..] {
            [] => String::new(),
            names => format!(". Sets that need no files: {}", names.join(", ")),
        };
        let fetch = if self.fetched {
            format!("`fl data get {}` fetches it. Or get", self.set)
        } else {
            "Get".into()
        };
        format!(
            "data set `{}`: there is no {} (plain, .gz or .xz). {fetch} {}, put its files ({}) into {}, or say with \
             --data-dir or FL_DATA_DIR which directory holds the folder `{}`{instead}",
            self.set,
            self.path().join(name).display(),
            self.facts.source,
            all.join(", "),
            self.path().display(),
            self.facts.folder,
        )
    }

    /// Rows of an IDX file, from its header alone.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        idx::claimed_rows(&archive::read_start(&self.find(name)?, 8).ok()?)
    }
}
