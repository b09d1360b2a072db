//! The format of a file of cases, and the check of one.

use crate::named::part;
use crate::trial::{Input, read_settings};
use fl_core::settings::{Reader, Setting, Settings, Step, Value, ValueType, to_json};
use fl_engine::NotRun;
use fl_registry::{Catalogue, Mistake, Mistakes, Places, Plugin, ReadableSettings, SourcePosition};
use serde_json::Value as Json;
use serde_yaml::Mapping;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fl_core::settings! {
    /// Cases: what a part answers to an input, or what a run comes to.
    pub struct File {
        /// Libraries and modules of Python with the parts of the cases, as in a spec. A path is
        /// relative to this file.
        plugins: Vec<Plugin> = Vec::new();
        /// The cases.
        cases: Vec<Case>;
    }
}

fl_core::settings! {
    /// One input to one part, an input for each of several rounds, or one run, and what is expected
    /// of the answer.
    pub struct Case {
        /// Its name; no other case of the file has it.
        name: String;
        /// Role and name of the part: `aggregator trimmed-mean`.
        part: Option<String> = None;
        /// The settings of the part.
        settings: Option<Value> = None;
        /// The input, as `fl try` reads it.
        input: Option<Value> = None;
        /// Instead of one input: an input for each round. The part keeps its state from round to
        /// round. It must give the same bits if it is saved after each round and another part goes
        /// on with its state.
        rounds: Option<Vec<Value>> = None;
        /// Instead of an input: check the part against its role and its properties.
        conformance: bool = false;
        /// Instead of a part: a spec, relative to this file. The answer has the run's digest,
        /// exchanges, measurements, bytes and guarantee. With `close` or `tolerance` it has no
        /// digests, which stand for all bits.
        run: Option<String> = None;
        /// Changes to the spec, by path: `{ protocol.rounds: 2 }`.
        set: Mapping = Mapping::new();
        /// The seed of everything random. A run has that of its spec.
        seed: u64 = 0;
        /// Numbers may differ this much, relative to 1 and to their size; otherwise all bits count.
        close: Option<f64> = None, in 0.0..;
        /// How far numbers may differ, by path: `{ tensors.w: { ulp: 4 } }`. A path stands for all
        /// that is below it, the longest path counts, and it counts instead of `close`. In `rounds`
        /// it stands for each round.
        tolerance: ByPath<Tolerance> = ByPath::default();
        /// Bounds by path instead of an answer: `{ tensors.w: [0, 1] }`.
        within: ByPath<Bounds> = ByPath::default();
        /// The part refuses the input, or the run fails, with an error that contains this text.
        refused: Option<String> = None;
    }
}

fl_core::settings! {
    /// How far two numbers may differ. One of the limits that are given must hold.
    #[check(some_limit)]
    pub struct Tolerance {
        /// Their distance.
        abs: Option<f64> = None, in 0.0..;
        /// Their distance divided by the expected number's size.
        rel: Option<f64> = None, in 0.0..;
        /// Steps from one to the other through the numbers of the tensor's type.
        ulp: Option<u64> = None;
    }
}

fn some_limit(of: &Tolerance) -> Result<(), String> {
    match (of.abs, of.rel, of.ulp) {
        (None, None, None) => Err("must have `abs`, `rel` or `ulp`".into()),
        _ => Ok(()),
    }
}

/// The least and the largest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub low: f64,
    pub high: f64,
}

impl Setting for Bounds {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match Vec::<f64>::read(value, reader)?[..] {
            [low, high] => Some(Self { low, high }),
            _ => reader.unlike("two numbers, [low, high]", value),
        }
    }
    fn write(&self) -> Value {
        vec![self.low, self.high].write()
    }
    fn value_type() -> ValueType {
        let both = ValueType::List {
            items: f64::value_type().into(),
            length: (2, Some(2)),
            distinct: false,
        };
        both.described("two numbers")
    }
}

/// Something for paths of an answer, such as `tensors.w`.
#[derive(Clone, Debug, PartialEq)]
pub struct ByPath<T>(pub BTreeMap<String, T>);

impl<T> Default for ByPath<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Setting> Setting for ByPath<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let mut all = BTreeMap::new();
        for (path, value) in Mapping::read(value, reader)? {
            let path = path.as_str().unwrap_or_default().to_string();
            let read = reader.below(Step::Key(path.clone()), |reader| T::read(&value, reader));
            all.insert(path, read?);
        }
        Some(Self(all))
    }
    fn write(&self) -> Value {
        let one = |(path, value): (&String, &T)| (path.as_str().into(), value.write());
        Value::Mapping(self.0.iter().map(one).collect())
    }
    fn value_type() -> ValueType {
        let of = T::value_type();
        let kind = format!("{} by path", of.kind());
        ValueType::Map(of.into()).described(&kind)
    }
}

impl Case {
    /// Does its answer have an accepted one to equal?
    pub fn has_answer(&self) -> bool {
        self.within.0.is_empty() && self.refused.is_none() && !self.conformance
    }

    /// Do all bits count?
    pub fn exact(&self) -> bool {
        self.close.is_none() && self.tolerance.0.is_empty()
    }

    /// The same case, in which all bits count.
    pub fn with_all_bits(&self) -> Self {
        Self {
            close: None,
            tolerance: ByPath::default(),
            ..self.clone()
        }
    }

    /// The inputs of its part, one for each round.
    pub fn inputs(&self) -> Vec<Json> {
        let one = self.input.iter();
        one.chain(self.rounds.iter().flatten())
            .map(to_json)
            .collect()
    }

    /// The changes to its spec, as `--set` takes them.
    pub fn changes(&self) -> Vec<String> {
        let set = self.set.iter().map(|(path, value)| {
            let path = path.as_str().unwrap_or_default();
            format!("{path}={}", to_json(value))
        });
        set.collect()
    }

    pub fn settings(&self) -> Value {
        let nothing = || Value::Mapping(Mapping::new());
        self.settings.clone().unwrap_or_else(nothing)
    }

    /// A case that asks for nothing, for two things at once, or for what every answer fulfils, is a
    /// mistake: the fields, and why.
    pub fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let bounded = !self.exact() || !self.within.0.is_empty();
        let asks = [
            self.input.is_some(),
            self.rounds.is_some(),
            self.conformance,
        ];
        let asks = asks.into_iter().filter(|asks| *asks).count();
        let mut faults = Vec::new();
        match (&self.part, &self.run) {
            (Some(_), None) if asks != 1 => faults.push((
                "name",
                "a case of a part has either an `input`, `rounds` or `conformance: true`",
            )),
            (None, Some(_)) if asks > 0 || self.settings.is_some() => faults.push((
                "run",
                "a case of a run has no `settings`, `input`, `rounds` or `conformance`; `set` changes its spec",
            )),
            (None, Some(_)) if self.seed != 0 => faults.push((
                "seed",
                "a run has the seed of its spec: `set: { seed: 1 }`",
            )),
            (Some(_), None) | (None, Some(_)) => {}
            _ => faults.push(("name", "a case has either a `part` or a `run`")),
        }
        if self.run.is_none() && !self.set.is_empty() {
            faults.push(("set", "`set` changes the spec of a `run`"));
        }
        if self.rounds.as_ref().is_some_and(Vec::is_empty) {
            faults.push(("rounds", "there is no round"));
        }
        if self.refused.as_ref().is_some_and(String::is_empty) {
            faults.push(("refused", "must be a text that the error contains"));
        }
        if self.conformance && bounded {
            faults.push((
                "conformance",
                "a case of `conformance` has no answer that could be `close` or `within`",
            ));
        }
        if self.refused.is_some() && bounded {
            faults.push((
                "refused",
                "a case that is `refused` has no answer that could be `close` or `within`",
            ));
        }
        if !self.within.0.is_empty() && !self.tolerance.0.is_empty() {
            faults.push((
                "tolerance",
                "a case with `within` has no answer that `tolerance` could be about",
            ));
        }
        faults
    }
}

/// A file of cases that has no mistake.
pub struct CaseFile {
    pub path: PathBuf,
    /// With the parts of its plugins.
    pub catalogue: Catalogue,
    pub cases: Vec<Case>,
    /// Of each case.
    pub lines: Vec<usize>,
}

impl CaseFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every mistake at once, unless the file or one of its plugins cannot be read.
    pub fn read(path: &Path, catalogue: &Catalogue) -> anyhow::Result<Result<Self, Mistakes>> {
        let document = fl_engine::parse(path)?;
        let what = "a file of cases is a mapping with `cases`, a list";
        let ReadableSettings {
            settings: file,
            places,
            mut mistakes,
        } = match document.readable_settings::<File>(what) {
            Ok(read) => read,
            Err(mistakes) => return Ok(Err(mistakes)),
        };
        let catalogue = match catalogue.with_plugins(&document) {
            Ok(catalogue) => catalogue,
            Err(why) if mistakes.is_empty() => return Err(NotRun::Refused(why).into()),
            Err(why) => {
                let plugins = [Step::Key("plugins".into())];
                mistakes.push(places.mistake(&plugins, why.to_string()));
                return Ok(Err(Mistakes::sorted(mistakes)));
            }
        };
        #[cfg(unix)]
        fl_registry::opening_notes(catalogue.libraries())
            .for_each(|note| fl_engine::note_once(&note));
        let folder = path.parent().unwrap_or(Path::new(""));
        mistakes.extend(check(&file.cases, folder, &catalogue, &places));
        if !mistakes.is_empty() {
            // what is wrong in an anchored value is wrong in every case that uses it
            let name = document.file();
            let key = |m: &Mistake| {
                (
                    m.file != name,
                    m.file.clone(),
                    m.place.clone(),
                    m.text.clone(),
                )
            };
            mistakes.sort_by_key(key);
            mistakes.dedup_by_key(|m| key(m));
            return Ok(Err(Mistakes(mistakes)));
        }
        let line = |at| match places.mistake(&[Step::Key("cases".into()), Step::Item(at)], "") {
            Mistake {
                place: SourcePosition::Text { line, .. },
                ..
            } => line,
            _ => 1,
        };
        Ok(Ok(Self {
            path: path.into(),
            catalogue,
            lines: (0..file.cases.len()).map(line).collect(),
            cases: file.cases,
        }))
    }
}

fn check(cases: &[Case], folder: &Path, catalogue: &Catalogue, places: &Places) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let list = [Step::Key("cases".into())];
    if cases.is_empty() && !places.left_out(&list) {
        mistakes.push(places.mistake(&list, "it has no cases"));
    }
    let mut names = BTreeSet::new();
    for (at, case) in cases.iter().enumerate() {
        let here = |field: &str| {
            let field = Step::Key(field.into());
            vec![Step::Key("cases".into()), Step::Item(at), field]
        };
        let mut mistaken = Vec::new();
        let mut wrong = |path: &[Step], text: String| mistaken.push((path.to_vec(), text));
        if !names.insert(&case.name) {
            wrong(
                &here("name"),
                format!("two cases are called `{}`", case.name),
            );
        }
        if as_written(places, at) {
            for (field, text) in case.faults() {
                wrong(&here(field), text.into());
            }
        }
        if let Some(spec) = &case.run {
            let path = folder.join(spec);
            if path.is_file() {
                mistakes.extend(of_run(case, at, &path, catalogue, places))
            } else {
                wrong(&here("run"), format!("there is no spec {}", path.display()))
            }
        }
        let decl = case.part.as_deref().map(|name| part(name, catalogue));
        let decl = decl.and_then(|decl| decl.map_err(|text| wrong(&here("part"), text)).ok());
        mistaken.retain(|(path, _)| !places.left_out(path));
        mistakes.extend(
            mistaken
                .iter()
                .map(|(path, text)| places.mistake(path, text)),
        );
        let Some(decl) = decl.filter(|_| case.refused.is_none()) else {
            continue;
        };
        let inputs = [(&case.input, here("input"))].into_iter();
        let inputs = inputs.filter_map(|(input, path)| Some((input.as_ref()?, path)));
        let rounds = case.rounds.iter().flatten().enumerate();
        let rounds = rounds.map(|(at, input)| {
            let mut path = here("rounds");
            path.push(Step::Item(at));
            (input, path)
        });
        for (input, path) in inputs.chain(rounds) {
            let mut faults = match Input::read(decl, &to_json(input)) {
                Ok(input) => input.faults(decl),
                Err(mistake) => vec![mistake],
            };
            for fault in &mut faults {
                fault.path.splice(0..0, path.iter().cloned());
            }
            mistakes.extend(places.located(faults));
        }
        if let Err(all) = read_settings(decl, &case.settings(), here("settings")) {
            mistakes.extend(places.located(all));
        }
    }
    mistakes
}

/// Does a case ask for what its text says? It does not, if fl left out a field that it does not
/// know or cannot read.
fn as_written(places: &Places, at: usize) -> bool {
    let case = [Step::Key("cases".into()), Step::Item(at)];
    let asks = ["part", "run", "input", "rounds", "conformance"];
    let known = Case::names();
    let mut out = places.left_out_in(&case);
    let whole = out.all(|path| match path.first() {
        Some(Step::Key(field)) => {
            known.iter().any(|name| name == field) && !asks.contains(&field.as_str())
        }
        _ => true,
    });
    whole && !places.left_out(&case)
}

/// The mistakes of the spec that a case runs: those in the case's `set` at their places there.
fn of_run(
    case: &Case,
    at: usize,
    spec: &Path,
    catalogue: &Catalogue,
    places: &Places,
) -> Vec<Mistake> {
    // a spec with a mistake may be what the case is about
    if case.refused.is_some() {
        return Vec::new();
    }
    let here = |field: &str| {
        let keys = ["cases", field].map(|key| Step::Key(key.into()));
        let [cases, field] = keys;
        vec![cases, Step::Item(at), field]
    };
    let document = fl_engine::parse(spec);
    let checked = document.and_then(|document| {
        let checked = fl_engine::check(&document.set(&case.changes()), catalogue)?;
        Ok(checked.err())
    });
    let mistakes = match checked {
        Ok(mistakes) => mistakes.map_or(Vec::new(), |all| all.0),
        Err(error) => return vec![places.mistake(&here("run"), format!("{error:#}"))],
    };
    let placed = |mut mistake: Mistake| match &mistake.place {
        SourcePosition::Set(set) => {
            let path = [here("set"), vec![Step::Key(set.to_string())]].concat();
            places.of_change(&path, mistake)
        }
        SourcePosition::Text { .. } => {
            mistake.text += &format!(" (case `{}`)", case.name);
            mistake
        }
    };
    mistakes.into_iter().map(placed).collect()
}
