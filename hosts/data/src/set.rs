//! What a data set is, and how one is named in a spec. Every set stands in a file of its own below [`crate::sets`]: its
//! settings, what is known of it, and how it is read.
//!
//! ```
//! use fl_core::{Inputs, Labels, Task, TaskKind};
//! use fl_data::{DataSet, Facts, Folder, Rows, SetSpec};
//! fl_core::settings! {
//!     /// Two classes that a sign tells apart.
//!     pub struct Signs {
//!         /// Training rows, and as many test rows.
//!         rows: usize = 4, in 1..=1000;
//!     }
//! }
//! impl DataSet for Signs {
//!     fn facts(&self) -> Facts {
//!         Facts::made(self.rows, self.rows)
//!     }
//!     fn task(&self) -> Option<Task> {
//!         Some(Task { input: vec![1], kind: TaskKind::Classes(2) })
//!     }
//!     fn load(&self, _: &Folder<'_>) -> anyhow::Result<Rows> {
//!         let data = (0..self.rows).map(|i| if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
//!         let of = (0..self.rows).map(|i| (i % 2) as u32).collect();
//!         let part = (Inputs::Dense { shape: vec![1], data }, Labels::Classes { of, classes: 2 });
//!         Ok(Rows::new(part.clone(), part))
//!     }
//! }
//! fl_data::data_set!("signs" => Signs);
//! let set: SetSpec = fl_core::settings::read_yaml("{signs: {rows: 10}}").unwrap();
//! assert_eq!(set.task().unwrap().kind, TaskKind::Classes(2));
//! ```

use crate::folder::Folder;
use crate::spec::Normalise;
use anyhow::{Context, Result, ensure};
use fl_core::settings::{
    Reader, Setting, Settings, Step, Value, choice, choice_schema, choice_words, keyed,
    no_such_choice,
};
use fl_core::{Description, Inputs, Labels, Task};
use std::any::TypeId;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A data set: its settings, and what follows from them. [`data_set!`](crate::data_set!) gives it its name in specs.
pub trait DataSet: Settings + Clone + Debug + Send + Sync + 'static {
    /// What is known of it before any file is opened.
    fn facts(&self) -> Facts;

    /// What is to be learnt; `None` if only its files say.
    fn task(&self) -> Option<Task>;

    /// Reads its files in `folder`, or makes its rows; nothing is scaled here.
    ///
    /// # Errors
    /// If a file is missing or damaged: says which, where in it, and what would be right.
    fn load(&self, folder: &Folder<'_>) -> Result<Rows>;

    /// What is taken from each value unless the spec says otherwise.
    fn scale(&self, _train: &Inputs) -> Option<Normalise> {
        self.facts().statistics.map(|(mean, std)| Normalise {
            mean: mean.to_vec(),
            std: std.to_vec(),
        })
    }

    /// Paths among its settings are relative to `folder`, that of the spec; makes them absolute. Returns what is wrong with
    /// them: the setting and the mistake.
    fn locate(&mut self, _folder: &Path) -> Vec<Problem> {
        Vec::new()
    }

    /// How many files (or folders) with training rows its settings name, for `split: by-file`; `None` if the set is one
    /// whole.
    fn sources(&self) -> Option<usize> {
        None
    }

    /// The files that it reads, as far as they are there.
    fn paths(&self, folder: &Folder<'_>) -> Vec<PathBuf> {
        folder.found()
    }
}

/// Where in the settings, and what is wrong.
pub type Problem = (Vec<Step>, String);

/// What is known of a set before any file is opened.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its folder in the data directory; empty for a set that has none there.
    pub folder: &'static str,
    /// The files it is read from. Each is looked for under any of its names, plain, `.gz` or `.xz`; the first name
    /// is the one the set was published with.
    pub files: &'static [&'static [&'static str]],
    /// Where it comes from and what to search for.
    pub source: &'static str,
    /// Terms of use, as known.
    pub licence: &'static str,
    /// Training and test rows, as published or as made.
    pub rows: Option<(usize, usize)>,
    /// Mean and standard deviation of each channel, the training images', for sets of images.
    pub statistics: Option<(&'static [f32], &'static [f32])>,
    /// Are the rows mostly 0, so that a shift would fill them?
    pub sparse: bool,
}

impl Facts {
    /// A set that the program makes itself.
    pub const fn made(train: usize, test: usize) -> Self {
        Self {
            folder: "",
            files: &[],
            source: "made by this program",
            licence: "",
            rows: Some((train, test)),
            statistics: None,
            sparse: false,
        }
    }
}

/// Inputs and labels of one part of a set.
pub type Part = (Inputs, Labels);

/// The rows of a set.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Rows to learn from, in the order of the files.
    pub train: (Arc<Inputs>, Arc<Labels>),
    /// Rows to test with.
    pub test: (Arc<Inputs>, Arc<Labels>),
    /// Rows that the set itself sets aside for validation.
    pub validation: Option<(Arc<Inputs>, Arc<Labels>)>,
    /// Training rows of each source, in order, for `split: by-file`.
    pub sources: Vec<Source>,
    /// Names of the classes, if the files give them.
    pub classes: Vec<String>,
    /// What became of each column: its name, and how it is read.
    pub columns: Vec<(String, String)>,
    /// What a user should know: what was inferred, what is missing.
    pub notes: Vec<String>,
    /// What was taken from the clients' own rows, of all of them: kinds of columns, categories, classes, means. Whoever sees
    /// a run sees something of it.
    pub inferred: Vec<String>,
}

/// A file or folder with training rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Rows in it, those held out apart.
    pub rows: usize,
}

impl Rows {
    /// Rows about which there is nothing more to say.
    pub fn new(train: Part, test: Part) -> Self {
        let shared = |(inputs, labels)| (Arc::new(inputs), Arc::new(labels));
        Self {
            train: shared(train),
            test: shared(test),
            validation: None,
            sources: Vec::new(),
            classes: Vec::new(),
            columns: Vec::new(),
            notes: Vec::new(),
            inferred: Vec::new(),
        }
    }
}

/// A set as specs see it.
pub struct SetDecl {
    /// Its name in specs.
    pub name: &'static str,
    /// The crate that it comes from.
    pub origin: &'static str,
    /// What it says about itself.
    pub describe: fn() -> Description,
    #[doc(hidden)]
    pub read: fn(&Value, &mut Reader) -> Option<Arc<dyn AnySet>>,
    #[doc(hidden)]
    pub type_id: fn() -> TypeId,
}

impl Debug for SetDecl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from {}", self.name, self.origin)
    }
}

inventory::collect!(&'static SetDecl);

/// Every set that is linked into this program, by name.
pub fn linked_sets() -> Vec<&'static SetDecl> {
    let mut all: Vec<_> = inventory::iter::<&'static SetDecl>
        .into_iter()
        .copied()
        .collect();
    all.sort_by_key(|set| (set.name, set.origin));
    all
}

/// Registers a set: `data_set!("mnist" => Mnist);`
#[macro_export]
macro_rules! data_set {
    ($name:literal => $set:ty) => {
        const _: () = {
            static DECL: $crate::set::SetDecl = $crate::set::SetDecl {
                name: $name,
                origin: env!("CARGO_PKG_NAME"),
                describe: $crate::set::describe::<$set>,
                read: $crate::set::read::<$set>,
                type_id: std::any::TypeId::of::<$set>,
            };
            $crate::__private::inventory::submit! { &DECL }
        };
    };
}

/// Used by [`data_set!`](crate::data_set!).
#[doc(hidden)]
pub fn describe<S: Settings>() -> Description {
    Description {
        doc: S::doc(),
        fields: S::fields(),
        schema: S::schema(),
        signature: String::new(),
    }
}

/// Used by [`data_set!`](crate::data_set!).
#[doc(hidden)]
pub fn read<S: DataSet>(value: &Value, reader: &mut Reader) -> Option<Arc<dyn AnySet>> {
    <S as Setting>::read(value, reader).map(|set| Arc::new(set) as Arc<dyn AnySet>)
}

/// [`DataSet`] without what only a type can say.
#[doc(hidden)]
pub trait AnySet: Debug + Send + Sync {
    fn facts(&self) -> Facts;
    fn task(&self) -> Option<Task>;
    fn rows(&self, folder: &Folder<'_>) -> Result<Rows>;
    fn scale(&self, train: &Inputs) -> Option<Normalise>;
    fn located(&self, folder: &Path) -> (Arc<dyn AnySet>, Vec<Problem>);
    fn sources(&self) -> Option<usize>;
    fn paths(&self, folder: &Folder<'_>) -> Vec<PathBuf>;
    fn settings(&self) -> Value;
}

impl<S: DataSet> AnySet for S {
    fn facts(&self) -> Facts {
        DataSet::facts(self)
    }
    fn task(&self) -> Option<Task> {
        DataSet::task(self)
    }
    fn rows(&self, folder: &Folder<'_>) -> Result<Rows> {
        DataSet::load(self, folder)
    }
    fn scale(&self, train: &Inputs) -> Option<Normalise> {
        DataSet::scale(self, train)
    }
    fn located(&self, folder: &Path) -> (Arc<dyn AnySet>, Vec<Problem>) {
        let mut set = self.clone();
        let problems = set.locate(folder);
        (Arc::new(set), problems)
    }
    fn sources(&self) -> Option<usize> {
        DataSet::sources(self)
    }
    fn paths(&self, folder: &Folder<'_>) -> Vec<PathBuf> {
        DataSet::paths(self, folder)
    }
    fn settings(&self) -> Value {
        self.write()
    }
}

/// A set and its settings, as a spec names them: its name alone stands for its defaults.
#[derive(Clone, Debug)]
pub struct SetSpec {
    decl: &'static SetDecl,
    set: Arc<dyn AnySet>,
    /// The rows of a set whose task only its files say: a check reads them, and the run that follows need not again.
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
    pub fn of<S: DataSet>(set: S) -> Result<Self> {
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
    pub fn facts(&self) -> Facts {
        self.set.facts()
    }

    /// What is to be learnt from it, if that is known without its files, or these have been read; [`crate::load()`] refuses
    /// files with inputs of another shape.
    pub fn task(&self) -> Option<Task> {
        let read = || {
            let rows = self.rows.get()?.as_ref().ok()?;
            Some(task_of(&rows.train.0, &rows.train.1))
        };
        self.set.task().or_else(read)
    }

    /// How many files with training rows it names, for `split: by-file`.
    pub fn sources(&self) -> Option<usize> {
        self.set.sources()
    }

    /// The files that it reads, as far as they are there.
    pub fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        self.set.paths(&self.folder(dir))
    }

    /// What is taken from each value unless the spec says otherwise.
    pub(crate) fn scale(&self, train: &Inputs) -> Option<Normalise> {
        self.set.scale(train)
    }

    pub(crate) fn folder<'a>(&self, dir: &'a Path) -> Folder<'a> {
        Folder::new(self.name(), self.facts(), dir)
    }

    /// See [`DataSet::locate`]; also reads a set of which only the files say what is to be learnt.
    pub(crate) fn resolve(&mut self, folder: &Path) -> Vec<Problem> {
        let (set, mut problems) = self.set.located(folder);
        *self = Self::new(self.decl, set);
        if problems.is_empty()
            && self.set.task().is_none()
            && let Err(error) = self.rows(Path::new(""))
        {
            problems.push((Vec::new(), format!("{error:#}")));
        }
        let below = |(path, text): Problem| {
            let path = [Step::Key(self.name().into())].into_iter().chain(path);
            (path.collect(), text)
        };
        problems.into_iter().map(below).collect()
    }

    /// Its rows, not scaled.
    pub(crate) fn rows(&self, dir: &Path) -> Result<Rows> {
        let read = || self.set.rows(&self.folder(dir));
        if self.set.task().is_some() {
            return read();
        }
        let rows = self
            .rows
            .get_or_init(|| read().map_err(|error| format!("{error:#}")));
        rows.clone().map_err(anyhow::Error::msg)
    }

    /// Do this many means and standard deviations fit the set?
    pub(crate) fn check_normalise(
        &self,
        own: &Task,
        Normalise { mean, std }: &Normalise,
    ) -> Result<()> {
        ensure!(
            !self.facts().sparse,
            "the rows of `{}` are mostly 0 and stay so; leave `normalise` away",
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

/// What a model for these rows is to learn.
pub(crate) fn task_of(inputs: &Inputs, labels: &Labels) -> Task {
    let kind = match labels {
        Labels::Classes { classes, .. } => fl_core::TaskKind::Classes(*classes),
        Labels::Multi(of) => fl_core::TaskKind::MultiLabel(of.ncols()),
    };
    Task {
        input: inputs.shape(),
        kind,
    }
}

/// The names of all sets, and whether each has settings.
fn words() -> Vec<(&'static str, bool)> {
    linked_sets()
        .into_iter()
        .map(|decl| (decl.name, !(decl.describe)().fields.is_empty()))
        .collect()
}

impl Setting for SetSpec {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let (word, inner) = choice(value);
        let fits = |decl: &&SetDecl| {
            Some(decl.name) == word && (inner.is_none() || !(decl.describe)().fields.is_empty())
        };
        let Some(decl) = linked_sets().into_iter().find(fits) else {
            return no_such_choice(value, reader, &words());
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

    fn schema() -> serde_json::Value {
        let all = linked_sets().into_iter().map(|decl| {
            let about = (decl.describe)();
            let inner = (!about.fields.is_empty()).then_some(about.schema);
            (decl.name, about.doc, inner)
        });
        choice_schema(
            &["A set and its settings; its name alone stands for its defaults."],
            all.collect(),
        )
    }

    fn kind() -> String {
        choice_words(&words())
    }
}
