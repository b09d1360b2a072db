//! A data set as a spec names it, whatever its type.

use crate::column_match::is_text;
use crate::dataset::{Problem, Rows};
use crate::dataset_decl::{AnySet, SetDecl, linked_sets};
use crate::download::Download;
use crate::facts::DataSetFacts;
use crate::file_hash::same;
use crate::folder::Folder;
use crate::normalise::Normalise;
use anyhow::{Context, Result, ensure};
use fl_core::settings::{
    Reader, Setting, Step, Value, ValueType, Word, choice, keyed, no_such_choice, to_json,
};
use fl_core::{Inputs, Labels, Task, TaskKind};
use std::any::TypeId;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What a set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Its inputs are public samples.
    Unlabelled,
    /// Its labels are used too.
    Labelled,
    /// As that, and models are tested on it.
    Tested,
}

/// A set and its settings, as a spec names them: its name alone stands for its defaults.
#[derive(Clone, Debug)]
pub struct SetSpec {
    decl: &'static SetDecl,
    set: Arc<dyn AnySet>,
    /// The rows of a set whose task only its files say: a check reads them, and the run that
    /// follows need not again.
    rows: Arc<OnceLock<Result<Rows, String>>>,
}

impl PartialEq for SetSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.set.settings() == other.set.settings()
    }
}

impl SetSpec {
    fn new(decl: &'static SetDecl, set: Arc<dyn AnySet>) -> Self {
        Self {
            decl,
            set,
            rows: Arc::default(),
        }
    }

    /// A registered set with these settings.
    ///
    /// # Errors
    /// If no [`data_set!`](crate::data_set!) names its type.
    pub fn of<S: AnySet>(set: S) -> Result<Self> {
        let decl = linked_sets()
            .into_iter()
            .find(|decl| (decl.type_id)() == TypeId::of::<S>());
        let decl = decl.with_context(|| {
            format!(
                "no `data_set!` names the type {}",
                std::any::type_name::<S>()
            )
        })?;
        Ok(Self::new(decl, Arc::new(set)))
    }

    /// The set of this name with its default settings.
    ///
    /// # Errors
    /// If no set has this name (says which there are), or some of its settings must be given.
    pub fn named(name: &str) -> Result<Self> {
        fl_core::settings::read_value(&name.into()).with_context(|| format!("data set `{name}`"))
    }

    /// Its name in a spec.
    pub fn name(&self) -> &'static str {
        self.decl.name
    }

    /// What is known of it before any file is opened.
    pub fn facts(&self) -> DataSetFacts {
        self.set.facts()
    }

    /// See [`crate::DataSet::vocabulary`].
    pub fn vocabulary(&self) -> Option<usize> {
        self.set.vocabulary()
    }

    /// See [`crate::DataSet::downloads`].
    pub fn downloads(&self) -> &'static [Download] {
        self.set.downloads()
    }

    /// See [`crate::DataSet::own`].
    pub fn own(&self) -> bool {
        self.set.own()
    }

    /// Does the program make its rows from the seed?
    pub fn generated(&self) -> bool {
        self.facts().files.is_empty() && self.paths(Path::new("")).is_empty()
    }

    /// Fails unless rows become the same numbers by these settings as by those of a spec.
    ///
    /// # Errors
    /// Names the setting that differs.
    pub fn reads_as(&self, spec: &Self) -> Result<()> {
        let same = self.name() == spec.name();
        let (here, there) = (self.set.settings(), spec.set.settings());
        for key in self.set.readings().iter().filter(|_| same) {
            let of = |all: &Value| {
                key.split('.')
                    .try_fold(all.clone(), |of, key| of.get(key).cloned())
            };
            let (here, there) = (of(&here), of(&there));
            let (Some(here), Some(there)) = (here, there) else {
                continue;
            };
            ensure!(
                here == there,
                "its `{key}` is {}, and the spec's {}",
                to_json(&here),
                to_json(&there)
            );
        }
        Ok(())
    }

    /// What is to be learnt from it, if that is known without its files, or these have been read;
    /// [`crate::load()`] refuses files with inputs of another shape.
    pub fn task(&self) -> Option<Task> {
        let read = || {
            let rows = self.once_read()?;
            Some(task_of(&rows.train.0, &rows.train.1))
        };
        self.set.task().or_else(read)
    }

    /// How the columns of a set of files are read, once they have been.
    pub fn columns(&self) -> &[(String, String)] {
        self.once_read().map_or(&[], |rows| &rows.columns)
    }

    /// The classes of a set of files that names them, once they have been read.
    pub fn classes(&self) -> &[String] {
        self.once_read().map_or(&[], |rows| &rows.classes)
    }

    fn once_read(&self) -> Option<&Rows> {
        self.rows.get()?.as_ref().ok()
    }

    /// Are its rows sparse, or numbers of words or characters, so that no shift has a meaning?
    pub fn is_sparse(&self) -> bool {
        let read = |rows: &Rows| {
            let text = |(_, how): &(String, String)| is_text(how);
            matches!(*rows.train.0, Inputs::Sparse { .. }) || rows.columns.iter().any(text)
        };
        self.facts().sparse || self.once_read().is_some_and(read)
    }

    /// Have its rows been read?
    pub fn is_read(&self) -> bool {
        self.once_read().is_some()
    }

    /// How many files with training rows it names, for `split: by-file`.
    pub fn sources(&self) -> Option<usize> {
        self.set.sources()
    }

    /// How many users its rows name, for `split: by-user`, once they have been read.
    pub fn users(&self) -> Option<usize> {
        let rows = self.once_read().filter(|_| self.set.sources().is_none())?;
        Some(rows.sources.len()).filter(|users| *users > 0)
    }

    /// The files that it reads, as far as they are there.
    pub fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        self.set.paths(&self.folder(dir))
    }

    /// The folder of the run that made its rows: see [`crate::DataSet::made_by`].
    pub fn made_by(&self) -> Option<&Path> {
        self.set.made_by()
    }

    /// Are they a user's own files, of which only the files say what is to be learnt?
    pub fn of_a_user(&self) -> bool {
        self.set.task().is_none()
    }

    /// The set or the file with rows to learn from that this set and `other` have in common.
    pub fn shared_source(&self, other: &Self, dir: &Path) -> Option<String> {
        if self == other {
            return Some(format!("`{}`", self.name()));
        }
        let [mut files, theirs] = [self, other].map(|set| set.set.private(&set.folder(dir)));
        let own = files.len();
        files.extend(theirs);
        let shared = same(&files, true);
        let between = |(first, again): &&(usize, usize)| *first < own && *again >= own;
        let (first, _) = shared.iter().find(between)?;
        Some(files[*first].display().to_string())
    }

    /// What is taken from each value unless the spec says otherwise.
    pub(crate) fn scale(&self, train: &Inputs) -> Option<Normalise> {
        self.set.scale(train)
    }

    /// What to say of the first of its files that is not in the data directory `dir`.
    pub fn lacks_file(&self, dir: &Path) -> Option<String> {
        self.folder(dir).lacks()
    }

    pub(crate) fn folder<'a>(&self, dir: &'a Path) -> Folder<'a> {
        Folder::new(self.name(), self.facts(), dir)
            .or_synthetic(synthetic)
            .fetched(!self.downloads().is_empty())
    }

    /// See [`crate::DataSet::locate`]; says what the set lacks for what it is for; also reads a set
    /// of which only the files say what is to be learnt.
    pub fn resolve(&mut self, folder: &Path, how: Use) -> Vec<Problem> {
        let (set, mut problems) = self.set.located(folder);
        let lacks = match how {
            Use::Unlabelled => None,
            Use::Labelled => self.set.lacks(false),
            Use::Tested => self.set.lacks(true),
        };
        problems.extend(lacks.map(|text| (Vec::new(), text.to_string())));
        *self = Self::new(self.decl, set);
        if problems.is_empty()
            && self.set.task().is_none()
            && let Err(error) = self.rows(Path::new(""))
        {
            let text = format!("{error:#}");
            let at = column(&text).and_then(|name| named(&self.set.settings(), name));
            problems.push((at.unwrap_or_default(), text));
        }
        if problems.is_empty()
            && how != Use::Unlabelled
            && let Some(TaskKind::Classes(..2)) = self.task().map(|task| task.kind)
        {
            let text = "all training rows are of one class; there is nothing to learn";
            problems.push((Vec::new(), text.into()));
        }
        let below = |(path, text): Problem| {
            let path = [Step::Key(self.name().into())].into_iter().chain(path);
            (path.collect(), text)
        };
        problems.into_iter().map(below).collect()
    }

    /// Its rows, not scaled.
    pub(crate) fn rows(&self, dir: &Path) -> Result<Rows> {
        let read = || self.set.load(&self.folder(dir));
        if self.set.task().is_some() {
            return read();
        }
        let rows = self
            .rows
            .get_or_init(|| read().map_err(|error| format!("{error:#}")));
        rows.clone().map_err(anyhow::Error::msg)
    }

    /// Fails unless this many means and standard deviations fit the set, whose task is `own`.
    ///
    /// # Errors
    /// Says how many there must be, or that its rows cannot be normalised.
    pub fn check_normalise(&self, own: &Task, Normalise { mean, std }: &Normalise) -> Result<()> {
        ensure!(
            !self.is_sparse(),
            "the rows of `{}` are sparse, or hold numbers of words, and cannot be normalised; leave `normalise` out",
            self.name()
        );
        let wanted = own.input[0];
        ensure!(
            mean.len() == wanted && std.len() == wanted,
            "{} means and {} standard deviations; there must be {wanted} of each, one per channel or column",
            mean.len(),
            std.len()
        );
        Ok(())
    }
}

/// The column that a mistake in rows is about: ``..: column `age`: ..``, or `` `age` has .. ``.
fn column(text: &str) -> Option<&str> {
    let after = text.split_once("column `").map(|(_, after)| after);
    let name = after.or_else(|| text.strip_prefix('`'))?;
    name.split_once('`').map(|(name, _)| name)
}

/// Where settings name a column: as a value, or else as a key.
fn named(settings: &Value, name: &str) -> Option<Vec<Step>> {
    let below = |step: Step, path: Vec<Step>| [step].into_iter().chain(path).collect();
    match settings {
        Value::String(text) => (text == name).then(Vec::new),
        Value::Sequence(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(at, item)| Some(below(Step::Item(at), named(item, name)?)))
        }
        Value::Mapping(map) => {
            let keys = || {
                map.iter()
                    .filter_map(|(key, value)| Some((key.as_str()?, value)))
            };
            let value = keys()
                .find_map(|(key, value)| Some(below(Step::Key(key.into()), named(value, name)?)));
            let key = || keys().find(|(key, _)| *key == name);
            value.or_else(|| Some(vec![Step::Key(key()?.0.into())]))
        }
        _ => None,
    }
}

/// What a model for these rows is to learn.
pub(crate) fn task_of(inputs: &Inputs, labels: &Labels) -> Task {
    Task::new(inputs.shape(), labels.task())
}

/// The sets that the program can make without files.
fn synthetic() -> Vec<&'static str> {
    let sets = linked_sets().into_iter();
    let sets = sets.filter_map(|decl| SetSpec::named(decl.name).ok());
    sets.filter(|set| set.facts().files.is_empty() && set.facts().rows.is_some())
        .map(|set| set.name())
        .collect()
}

impl Setting for SetSpec {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let (word, inner) = choice(value);
        let fits = |decl: &&SetDecl| {
            Some(decl.name) == word && (inner.is_none() || !(decl.describe)().fields.is_empty())
        };
        let Some(decl) = linked_sets().into_iter().find(fits) else {
            return no_such_choice(value, reader, &Self::value_type());
        };
        let settings = inner.unwrap_or(&Value::Null);
        let set = reader.below(Step::Key(decl.name.into()), |r| (decl.read)(settings, r))?;
        Some(Self::new(decl, set))
    }

    fn write(&self) -> Value {
        match self.set.settings() {
            Value::Mapping(map) if map.is_empty() => self.name().into(),
            settings => keyed(self.name(), settings),
        }
    }

    fn value_type() -> ValueType {
        let words = linked_sets().into_iter().map(|decl| {
            let about = (decl.describe)();
            Word {
                name: decl.name.into(),
                value: (!about.fields.is_empty()).then(|| about.group()),
                doc: about.doc,
            }
        });
        ValueType::Choice {
            doc: "A set and its settings; its name alone stands for its defaults.".into(),
            words: words.collect(),
            others: Vec::new(),
        }
    }
}
