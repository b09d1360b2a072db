//! The sections of a spec that do not belong to a part or to the host.

use crate::package::{is_version, normalised};
use crate::sealed_memfd::is_sha256;
use crate::sinks::Sink;
use fl_core::privacy::Noise;
use fl_core::settings::{Reader, Setting, Settings, Value, ValueType};
use fl_core::{Budget, Checkpoints, ClientId, Faults, IdRanges, StopWhen};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

fl_core::settings! {
    /// One run: its data, a protocol, and a part for each of the protocol's slots.
    pub(crate) struct Top {
        /// Names the run and its folder: letters, digits, `-`, `_` and `.`.
        name: Name;
        /// Every random draw of the run follows from it.
        seed: u64 = 0;
        /// What is learnt from, and who has which part of it.
        data: Raw;
        /// The method that server and clients follow: `use` names it, the rest are its settings.
        protocol: Raw = Raw;
        /// In place of `protocol`: methods that follow one another in one run. A slot that several
        /// of them have is one slot, so a model goes on from stage to stage.
        stages: Vec<StageSection> = Vec::new();
        /// A part for each slot of the protocol: `use` names it, the rest are its settings. A list
        /// gives different parts to different clients.
        parts: Raw = Raw;
        /// Libraries and modules of Python with parts that are not linked into this program; they
        /// are loaded before anything else is read.
        plugins: Vec<Plugin> = Vec::new();
        /// When to measure: accuracy and, for tasks of two classes, the area under the curve
        /// (`auc`); for numbers, errors in their unit (`rmse`, `mae`) and `r2`; where pixels have
        /// classes or values, the measures that `plugins/dense-prediction` lists.
        evaluate: Evaluate = Evaluate { every: 1 };
        /// Ends the rounds early, when a measure no longer improves. Not with an accountant.
        stop_when: Option<StopWhen> = None;
        /// Where the events of the run go while it runs.
        sinks: Vec<Sink> = Vec::new();
        /// What to do with answers that cannot be used.
        faults: Faults = fl_core::settings::defaults();
        /// Where the noise of releases comes from.
        noise: Noise = Noise::Seeded;
        /// When the run is written down, so that it can go on after a stop. Results do not depend
        /// on it.
        checkpoint: Checkpoints = fl_core::settings::defaults();
        /// What the run may spend; it stops before it would spend more. Needs an accountant.
        budget: Option<Budget> = None;
        /// The ledger of what all runs on these data have released: its path, relative to the spec,
        /// or `{path, data}` with a name for the data. `fl ledger init` makes it. A run that would
        /// exceed the ledger's limit is refused before it releases anything.
        ledger: Option<LedgerUse> = None;
        /// What the run folder keeps besides results. `messages`: the messages of all aggregations,
        /// so that `fl verify` can repeat them. Who can read them has seen what the server saw.
        keep: Option<Keep> = None;
    }
}

/// Is this a key of a spec?
pub fn is_spec_key(name: &str) -> bool {
    Top::names().iter().any(|known| known == name)
}

fl_core::settings! {
    /// One method of a run that has several.
    pub(crate) struct StageSection {
        /// The method of this stage: `use` names it, the rest are its settings.
        protocol: Raw;
        /// Parts for this stage alone. What several stages share, and the accountant, is in the
        /// spec's `parts`.
        parts: Raw = Raw;
    }
}

fl_core::choices! {
    /// What a run folder keeps besides results.
    pub enum Keep {
        /// The messages of all aggregations, in `messages/`, for the owner only.
        Messages = "messages",
    }
}

/// The ledger of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerUse {
    /// The ledger's file.
    pub path: String,
    /// The user's name for the data; if not given, that of the set.
    pub data: Option<String>,
}

fl_core::settings! {
    /// The ledger of a run.
    struct LedgerSection {
        /// The ledger's file, relative to the spec.
        path: String;
        /// A name for the data, if not that of the set. Runs with one name, or with the same rows,
        /// count together.
        data: Option<String> = None;
    }
}

const KIND: &str = "a path, or `{path, data}`";

impl Setting for LedgerUse {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let read = match value {
            Value::String(path) => Self {
                path: path.clone(),
                data: None,
            },
            Value::Mapping(_) => {
                let LedgerSection { path, data } = LedgerSection::read(value, reader)?;
                Self { path, data }
            }
            _ => return reader.unlike(KIND, value),
        };
        let name = |name: &String| !name.trim().is_empty() && !name.contains(char::is_control);
        if name(&read.path) && read.data.as_ref().is_none_or(name) {
            Some(read)
        } else {
            reader.unlike(
                "a path and a name that are not empty, each on one line",
                value,
            )
        }
    }
    fn write(&self) -> Value {
        let Self { path, data } = self.clone();
        match data {
            None => path.into(),
            Some(_) => LedgerSection { path, data }.write(),
        }
    }
    fn value_type() -> ValueType {
        let path = ValueType::Text(Some(".".into()));
        ValueType::one_of([path, LedgerSection::value_type()]).described(KIND)
    }
}

fl_core::settings! {
    /// A library with parts, a module of Python, or a package that has one of them.
    #[check(one)]
    pub struct Plugin {
        /// The name of an installed package that announces a plugin: a wheel with the entry point
        /// group `fl.plugins`.
        package: Option<String> = None;
        /// The version of the package; `1.2` is met by each release 1.2.x. The newest if left out.
        version: Option<String> = None;
        /// Where the library is, relative to the spec; of a module, the folder in which it is
        /// looked for.
        path: Option<String> = None;
        /// The name of a Python module whose parts the spec uses. It is looked for in `path`, or
        /// else in the spec's folder, and then where Python looks.
        module: Option<String> = None;
        /// The SHA-256 that it must have; otherwise it is refused. Of a package of modules that
        /// is the hash of all its files, which `fl lock` writes.
        sha256: Option<String> = None;
        /// The processes of its own that a library has: `false` loads it into the program, and a
        /// mapping says what they may take. Results do not depend on it.
        isolate: Option<Isolation> = None;
        /// Whose place its parts take, for the whole run. Without it, a part that is called as one
        /// of the program's is refused.
        replaces: Option<Replaces> = None;
    }
}

fl_core::choices! {
    /// Whose place the parts of a library take.
    pub enum Replaces {
        /// That of the parts of the same role and name that are linked into the program.
        Linked = "linked",
    }
}

/// Where a library is.
#[derive(Clone, Debug, PartialEq)]
pub enum Isolation {
    /// In the program's process.
    Off,
    /// In processes of its own.
    On(Isolate),
}

impl Isolation {
    /// The same, with what may be read below this folder.
    pub(crate) fn read_from(self, folder: &Path) -> Self {
        let Self::On(isolate) = self else {
            return self;
        };
        let folder = real(folder);
        let place = |read: &String| real(&folder.join(read)).display().to_string();
        Self::On(Isolate {
            reads: isolate.reads.iter().map(place).collect(),
            ..isolate
        })
    }
}

const ISOLATION: &str = "true, false, or a mapping of limits";

impl Setting for Isolation {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Bool(false) => Some(Self::Off),
            Value::Bool(true) => Some(Self::On(fl_core::settings::defaults())),
            Value::Mapping(_) => Isolate::read(value, reader).map(Self::On),
            _ => reader.unlike(ISOLATION, value),
        }
    }
    fn write(&self) -> Value {
        let Self::On(isolate) = self else {
            return false.into();
        };
        let mut value = isolate.write();
        if let Value::Mapping(map) = &mut value {
            // as earlier versions wrote it
            let default = fl_core::settings::defaults::<Isolate>().write();
            for key in ["cpu-seconds", "reads", "sandbox", "threads"] {
                if map.get(key) == default.get(key) {
                    map.shift_remove(key);
                }
            }
        }
        value
    }
    fn value_type() -> ValueType {
        ValueType::one_of([ValueType::Bool, Isolate::value_type()]).described(ISOLATION)
    }
}

fl_core::settings! {
    /// What processes of a library may take and do.
    pub struct Isolate {
        /// A call that takes longer ends its process, in seconds.
        call_seconds: f64 = 600.0, in 0.001..=1e6;
        /// The memory that a process may have, in GiB; that of the machine if left out.
        memory_gib: Option<f64> = None, in 0.0625..=1e6;
        /// The processor time that a process may use, in seconds; no limit if left out.
        cpu_seconds: Option<u64> = None, in 1..=1_000_000_000;
        /// The threads that a process may have at a time. A process with more is ended; fl counts
        /// 20 times a second.
        threads: u32 = 1024, in 2..=65_536;
        /// Files and folders that a process may read, relative to the spec.
        reads: Vec<String> = Vec::new();
        /// Refuse files, the network, programs and other processes, as far as the kernel can.
        sandbox: bool = true;
    }
}

impl Isolate {
    /// What it may read that is not below `folder`.
    pub(crate) fn outside(&self, folder: &Path) -> Vec<&str> {
        let reads = self.reads.iter().map(String::as_str);
        reads.filter(|read| !is_below(read, folder)).collect()
    }

    /// The same in a sandbox that reads what is below `folder` alone.
    pub(crate) fn held_to(&self, folder: &Path) -> Self {
        let mut held = self.clone();
        held.sandbox = true;
        held.reads.retain(|read| is_below(read, folder));
        held
    }
}

fn is_below(path: &str, folder: &Path) -> bool {
    Path::new(path).starts_with(real(folder))
}

/// The path without links and from the root, if it is there. An empty one is the current folder.
fn real(path: &Path) -> PathBuf {
    let here = Path::new(".");
    let path = if path == Path::new("") { here } else { path };
    path.canonicalize().unwrap_or_else(|_| path.into())
}

fn one(plugin: &Plugin) -> Result<(), String> {
    match (&plugin.package, &plugin.version) {
        (Some(_), _) if plugin.path.is_some() || plugin.module.is_some() => {
            return Err("has a `package`, so it must have no `path` and no `module`".into());
        }
        (Some(name), _) => _ = normalised(name)?,
        (None, Some(_)) => return Err("`version` is that of a `package`, which is missing".into()),
        (None, None) if plugin.path.is_none() && plugin.module.is_none() => {
            return Err("must have a `path`, that of a library, a `module` or a `package`".into());
        }
        (None, None) => {}
    }
    if let Some(version) = plugin.version.as_ref().filter(|v| !is_version(v)) {
        return Err(format!(
            "`version` must be one such as \"1.2\", got {version:?}"
        ));
    }
    let word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .is_some_and(|c| c.is_alphabetic() || c == '_')
            && letters.all(|c| c.is_alphanumeric() || c == '_')
    };
    if let Some(module) = plugin
        .module
        .as_ref()
        .filter(|name| !name.split('.').all(word))
    {
        return Err(format!(
            "`module` must be a name as Python imports it, such as `mine` or `mine.parts`, got `{module}`"
        ));
    }
    plugin.sha256.as_deref().map_or(Ok(()), is_sha256)
}

fl_core::settings! {
    /// When to measure.
    pub(crate) struct Evaluate {
        /// Number of rounds between measurements; the last round is always measured.
        every: usize = 1, in 1..;
    }
}

/// A section that other code reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Raw;

impl Setting for Raw {
    fn read(_: &Value, _: &mut Reader) -> Option<Self> {
        Some(Self)
    }
    fn write(&self) -> Value {
        Value::Null
    }
    fn value_type() -> ValueType {
        ValueType::Any.described("mapping")
    }
}

/// A name that can be a folder on every system.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Name(pub String);

impl Setting for Name {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let name = String::read(value, reader)?;
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if (1..=100).contains(&name.len()) && name.chars().all(fine) && !name.starts_with('.') {
            Some(Self(name))
        } else {
            reader.unlike(
                "1 to 100 letters, digits, `-`, `_` or `.`, not starting with `.`",
                value,
            )
        }
    }
    fn write(&self) -> Value {
        self.0.as_str().into()
    }
    fn value_type() -> ValueType {
        ValueType::Text(Some("^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$".into()))
    }
}

/// Some clients: `5`, `0-3`, `[0, 2-4]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clients(pub Vec<RangeInclusive<ClientId>>);

impl Setting for Clients {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match IdRanges::parse(value) {
            Some(IdRanges(ranges)) => Some(Self(ranges)),
            None => reader.unlike(&Self::kind(), value),
        }
    }
    fn write(&self) -> Value {
        IdRanges(self.0.clone()).write()
    }
    fn value_type() -> ValueType {
        IdRanges::value_type()
            .described("a client, a range or a list of them, such as 5, 0-3 or [0, 2-4]")
    }
}
