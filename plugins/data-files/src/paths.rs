//! The files that a spec names: one, a list, a folder, a pattern.

use crate::format::Format;
use anyhow::Result;
use fl_core::first_names;
use fl_core::settings::{Reader, Setting, Step, Value, ValueType};
use fl_data_kit::dataset::Problem;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// More files than this are a slip of the pen, such as `/**`.
const MAX_FILES: usize = 1_000_000;

/// What one client reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file, a folder, or a pattern.
    Path(String),
    /// Inputs and labels in two files.
    Pair(Pair),
}

fl_core::settings! {
    /// Inputs and labels in two files, in the images of two folders, or in images and a table.
    pub struct Pair {
        /// The inputs.
        inputs: String;
        /// The labels, a table with them, or the images of the targets.
        labels: String;
    }
}

/// One or several sources.
#[derive(Clone, Debug, PartialEq)]
pub enum Paths {
    /// One whole.
    One(Source),
    /// One for each client.
    Each(Vec<Source>),
    /// The files of a folder, one for each client.
    Inside(PathBuf, Vec<Source>),
}

impl Source {
    pub(crate) fn is_pair(&self) -> bool {
        matches!(self, Self::Pair(_))
    }

    /// What errors and tables call it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Path(path) | Self::Pair(Pair { inputs: path, .. }) => path,
        }
    }

    fn texts(&mut self) -> Vec<(Option<&'static str>, &mut String)> {
        match self {
            Self::Path(path) => vec![(None, path)],
            Self::Pair(Pair { inputs, labels }) => {
                vec![(Some("inputs"), inputs), (Some("labels"), labels)]
            }
        }
    }

    /// The files that its rows stand in, sorted; not their labels, if these have files of their
    /// own.
    pub(crate) fn inputs(&self, format: &Format) -> Vec<PathBuf> {
        match self {
            Self::Path(_) => self.files(format),
            Self::Pair(Pair { inputs, .. }) => Self::Path(inputs.clone()).files(format),
        }
    }

    /// The files and folders that it names.
    fn named(&self) -> Vec<PathBuf> {
        match self {
            Self::Path(path) => matches(path),
            Self::Pair(Pair { inputs, labels }) => vec![inputs.into(), labels.into()],
        }
    }

    /// The files that are read for it, sorted.
    pub(crate) fn files(&self, format: &Format) -> Vec<PathBuf> {
        let files = |path: PathBuf| {
            if path.is_dir() {
                inside(&path, format)
            } else {
                vec![path]
            }
        };
        self.named().into_iter().flat_map(files).collect()
    }
}

/// The files of a folder that are of this format, sorted; of `images` those of the folders in it,
/// one for each class, or its own if they are not sorted by class.
pub(crate) fn inside(folder: &Path, format: &Format) -> Vec<PathBuf> {
    let all = entries(folder);
    let mut files = Vec::new();
    if matches!(format, Format::Images(_)) {
        let classes = all.iter().filter(|path| path.is_dir());
        files.extend(classes.flat_map(|class| entries(class)));
    }
    files.retain(|path| of(path, format));
    if files.is_empty() {
        files.extend(all.into_iter().filter(|path| of(path, format)));
    }
    files
}

/// What stands in the folders of these sources beside the files that are read: other endings,
/// folders in folders.
pub(crate) fn unread(all: &[&Paths], format: &Format) -> Option<String> {
    let images = matches!(format, Format::Images(_) | Format::Masks(_) | Format::Pairs);
    let (mut read, mut named_folders) = (BTreeSet::new(), BTreeSet::new());
    let mut folders = BTreeSet::new();
    for paths in all {
        if let Paths::Inside(folder, _) = paths {
            named_folders.insert(folder.clone());
        }
    }
    for source in all.iter().flat_map(|paths| paths.sources()) {
        let named = source.named().into_iter();
        named_folders.extend(named.filter(|path| path.is_dir()));
        // beside a table stands what has nothing to do with it
        let inputs = if images {
            source.inputs(format)
        } else {
            Vec::new()
        };
        let parents = inputs.iter().filter_map(|file| file.parent());
        folders.extend(parents.map(Path::to_path_buf));
        read.extend(source.files(format));
    }
    folders.extend(named_folders.iter().cloned());
    let all = folders.iter().flat_map(|folder| entries(folder));
    // beside a file that is named, others of its kind may be another set's
    let beside = |path: &PathBuf| {
        of(path, format)
            && !path
                .ancestors()
                .skip(1)
                .any(|up| named_folders.contains(up))
    };
    let left: BTreeSet<PathBuf> = all
        .filter(|path| !read.contains(path) && !folders.contains(path) && !beside(path))
        .collect();
    let shown = |path: &PathBuf| {
        let inside = [path.parent().and_then(Path::file_name), path.file_name()];
        let inside: PathBuf = inside.into_iter().flatten().collect();
        format!("`{}`", inside.display())
    };
    let names: Vec<String> = left.iter().map(shown).collect();
    let (of, more) = if images {
        (
            "image ",
            ", and those in folders of classes if there are any",
        )
    } else {
        ("", ", and none in folders inside")
    };
    let ends = match format.endings() {
        [] => String::new(),
        endings => format!(" that end in {}", endings.join(", ")),
    };
    (!names.is_empty()).then(|| {
        format!(
            "{} entries of {of}folders are not read: {}; fl reads files{ends}{more}",
            names.len(),
            first_names(&names, 3),
        )
    })
}

/// What stands in a folder, sorted, without hidden files; nothing if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let hidden = |path: &PathBuf| {
        path.file_name()
            .is_none_or(|name| name.to_string_lossy().starts_with('.'))
    };
    let Ok(read) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let found = read.flatten().map(|entry| entry.path()).take(MAX_FILES);
    let mut found: Vec<PathBuf> = found.filter(|path| !hidden(path)).collect();
    found.sort();
    found
}

/// Is it a file with the ending of its format, compressed or not?
fn of(path: &Path, format: &Format) -> bool {
    path.is_file() && (format.endings().is_empty() || has_ending(path, format))
}

/// Does its name end as those of a format, compressed or not?
pub(crate) fn has_ending(path: &Path, format: &Format) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".xz");
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    format.endings().contains(&ending)
}

fn is_pattern(path: &str) -> bool {
    has_signs(path) && !Path::new(path).exists()
}

/// Has it a sign of patterns?
fn has_signs(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// The path itself, or what the pattern matches, sorted.
fn matches(path: &str) -> Vec<PathBuf> {
    if !is_pattern(path) {
        return vec![path.into()];
    }
    let mut found: Vec<PathBuf> = glob::glob(path)
        .map(|found| found.flatten().take(MAX_FILES).collect())
        .unwrap_or_default();
    found.sort();
    found
}

/// What `read` makes of each source, with its name.
pub(crate) fn each<'p, T>(
    paths: impl IntoIterator<Item = &'p Paths>,
    mut read: impl FnMut(&'p Source) -> Result<T>,
) -> Result<Vec<(String, T)>> {
    let sources = paths.into_iter().flat_map(Paths::sources);
    let named = sources.map(|source| Ok((source.name().to_string(), read(source)?)));
    named.collect()
}

impl Paths {
    pub(crate) fn sources(&self) -> &[Source] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Each(all) | Self::Inside(_, all) => all,
        }
    }

    /// How many clients have a source of their own; `None` if all share one.
    pub(crate) fn clients(&self) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Each(all) | Self::Inside(_, all) => Some(all.len()),
        }
    }

    /// What a user should know of a list whose one entry stands for several files.
    pub(crate) fn listed_alone(&self, format: &Format) -> Option<String> {
        let Self::Each(all) = self else { return None };
        let [only @ Source::Path(_)] = &all[..] else {
            return None;
        };
        let files = only.files(format).len();
        let one = files < 2 || matches!(format, Format::Images(_)) || format.names_users();
        (!one).then(|| {
            format!(
                "`train` is a list with one entry, so its {files} files are one whole; without the brackets each file is a \
                 client's"
            )
        })
    }

    /// Makes paths absolute, and a folder of tables or a pattern that stands alone a list.
    pub(crate) fn locate(&mut self, folder: &Path, format: &Format, key: &str) -> Vec<Problem> {
        let base = vec![Step::Key(key.into())];
        let mut problems = Vec::new();
        let listed = !matches!(self, Self::One(_));
        let sources = match self {
            Self::One(one) => std::slice::from_mut(one),
            Self::Each(all) | Self::Inside(_, all) => all,
        };
        let folder = std::path::absolute(folder).unwrap_or(folder.into());
        // the folder of the spec is no pattern, whatever it is called
        let plain = glob::Pattern::escape(&folder.to_string_lossy());
        for (at, source) in sources.iter_mut().enumerate() {
            for (part, text) in source.texts() {
                let mut path = base.clone();
                path.extend(listed.then_some(Step::Item(at)));
                path.extend(part.map(|part| Step::Key(part.into())));
                let absolute = |folder: &Path| {
                    let joined = folder.join(text.as_str());
                    let absolute = std::path::absolute(&joined).unwrap_or(joined);
                    absolute.to_string_lossy().into_owned()
                };
                let shown = absolute(&folder);
                let pattern = has_signs(text) && !Path::new(&shown).exists();
                *text = if pattern {
                    absolute(Path::new(&plain))
                } else {
                    shown.clone()
                };
                let table = part == Some("labels") && matches!(format, Format::Images(_));
                let missing = if table {
                    missing_table(text)
                } else {
                    missing(text, pattern.then_some(&shown), format)
                };
                problems.extend(missing.map(|text| (path, text)));
            }
        }
        if let Self::One(Source::Path(path)) = self {
            let alone = PathBuf::from(path.as_str());
            let each = |found: Vec<PathBuf>| {
                let source = |path: PathBuf| Source::Path(path.to_string_lossy().into_owned());
                found.into_iter().map(source).collect::<Vec<Source>>()
            };
            let found = if is_pattern(path) {
                matches(path)
            } else if alone.is_dir() && !matches!(format, Format::Images(_)) {
                inside(&alone, format)
            } else {
                Vec::new()
            };
            if !found.is_empty() {
                *self = if alone.is_dir() {
                    Self::Inside(alone, each(found))
                } else {
                    Self::Each(each(found))
                };
            }
        }
        problems
    }
}

/// What is wrong with the path of a table of labels beside images.
fn missing_table(path: &str) -> Option<String> {
    (!Path::new(path).is_file()).then(|| {
        format!("there is no file {path}; the labels of images are in one table of csv, jsonl or parquet")
    })
}

/// What is wrong with a path, which errors show as `pattern` if it is one.
fn missing(path: &str, pattern: Option<&String>, format: &Format) -> Option<String> {
    if let Some(shown) = pattern {
        return match glob::glob(path) {
            Err(error) => Some(format!("`{shown}` is no pattern: {error}")),
            Ok(_) if matches(path).is_empty() => Some(format!("no file matches `{shown}`")),
            Ok(_) => None,
        };
    }
    let at = Path::new(path);
    if at.is_dir() {
        let endings = format.endings().join(", ");
        let none = || format!("the folder {path} holds no file of this format ({endings})");
        return inside(at, format).is_empty().then(none);
    }
    match at.metadata() {
        Err(_) => Some(format!("there is no file {path}")),
        Ok(_) if matches!(format, Format::Images(_)) => Some(format!(
            "{path} is a file; images must be in a folder with a folder per class"
        )),
        Ok(_) if matches!(format, Format::Masks(_) | Format::Pairs) => Some(format!(
            "{path} is a file; images must be in one folder, and their masks or pairs in another"
        )),
        Ok(data) if !data.is_file() => Some(format!("{path} is no ordinary file")),
        Ok(_) => None,
    }
}

impl Setting for Source {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(path) if !path.is_empty() => Some(Self::Path(path.clone())),
            Value::Mapping(_) => Pair::read(value, reader).map(Self::Pair),
            other => reader.unlike("a path, or {inputs: path, labels: path}", other),
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Path(path) => path.as_str().into(),
            Self::Pair(pair) => pair.write(),
        }
    }
    fn value_type() -> ValueType {
        ValueType::one_of([path(), Pair::value_type()]).described("path")
    }
}

fn path() -> ValueType {
    ValueType::Text(Some(".".into()))
}

impl Setting for Paths {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Sequence(all) if all.is_empty() => {
                reader.wrong("must be a path or a list of paths, got an empty list")
            }
            Value::Sequence(_) => Vec::read(value, reader).map(Self::Each),
            other => Source::read(other, reader).map(Self::One),
        }
    }
    /// A folder becomes the list of its files: what else stood in it is found when it is read
    /// first, and a run keeps that note.
    fn write(&self) -> Value {
        match self {
            Self::One(one) => one.write(),
            Self::Each(all) | Self::Inside(_, all) => all.write(),
        }
    }
    fn value_type() -> ValueType {
        let list = ValueType::list_of_some(Source::value_type());
        ValueType::one_of([path(), Pair::value_type(), list]).described("path or list of paths")
    }
}
