//! Which sets are linked, and what of their files is there.

use crate::dataset_decl::linked_sets;
use crate::dataset_spec::SetSpec;
use crate::download::Download;
use crate::facts::DataSetFacts;
use std::path::{Path, PathBuf};

/// One known set and what is there of it.
#[derive(Debug)]
pub struct Entry {
    /// Its name in a spec.
    pub name: &'static str,
    /// What it is.
    pub doc: String,
    /// What is known about it.
    pub facts: DataSetFacts,
    /// (training rows, test rows), where they are known without reading the set: it is made here,
    /// or its files have a header.
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
    /// Where it may be fetched.
    pub download: Option<Download>,
}

impl Entry {
    /// Is everything there?
    pub fn present(&self) -> bool {
        self.files.iter().all(|file| file.found.is_some())
    }
}

/// All sets that can be named without settings, and what is there of them in the data directory
/// `dir`.
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
        download: set
            .downloads()
            .iter()
            .find(|d| d.name() == names[0])
            .copied(),
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
