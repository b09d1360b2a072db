//! `fl test`: parts held to files of cases.

use crate::try_part::{guarded, settings, trial};
use crate::{Done, Failure, print};
use clap::Args;
use console::style;
use fl_core::settings::{Reader, Setting, Step, Value, ValueType, nearest, to_json};
use fl_core::{PartDecl, Role};
use fl_engine::NotRun;
use fl_registry::{Catalogue, Mistakes};
use serde_json::{Map, Value as Json};
use serde_yaml::Mapping;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How files of cases end.
const ENDING: &str = ".cases.yaml";
/// The most differences of a case that are shown.
const SHOWN: usize = 10;

#[derive(Args)]
pub struct TestArgs {
    /// Files of cases, or folders with files that end in `.cases.yaml`.
    #[arg(required_unless_present = "conformance")]
    paths: Vec<PathBuf>,
    /// Check this part against its role and its claims, on generated input:
    /// `geometric-median`, or with its role, `"privacy clip-norm"`. May be given several times.
    #[arg(long, value_name = "PART")]
    conformance: Vec<String>,
    /// The settings of those parts, as YAML: `{trim: 0.2}`.
    #[arg(long, default_value = "{}", requires = "conformance")]
    settings: String,
    /// Accept the present answers of the parts, and print them.
    #[arg(long)]
    accept: bool,
}

fl_core::settings! {
    /// Cases: what a part must answer to an input.
    pub struct File {
        /// The cases.
        cases: Vec<Case>;
    }
}

fl_core::settings! {
    /// One input to one part, and what is expected of the answer.
    pub struct Case {
        /// Its name; no other case of the file has it.
        name: String;
        /// Role and name of the part: `aggregator trimmed-mean`.
        part: String;
        /// The settings of the part.
        settings: Option<Value> = None;
        /// The input, as `fl try` reads it.
        input: Option<Value> = None;
        /// Instead of an input: check the part against its role and its properties.
        conformance: bool = false;
        /// The seed of everything random.
        seed: u64 = 0;
        /// Numbers may differ this much, relative to 1 and to their size; otherwise all bits count.
        close: Option<f64> = None, in 0.0..;
        /// Bounds by path instead of an answer: `{ tensors.w: [0, 1] }`.
        within: Bounds = Bounds::default();
        /// The part refuses the input, with an error that contains this text.
        refused: Option<String> = None;
    }
}

/// The least and the largest number at a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds(BTreeMap<String, [f64; 2]>);

impl Setting for Bounds {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let mut all = BTreeMap::new();
        for (path, bounds) in Mapping::read(value, reader)? {
            let path = path.as_str().unwrap_or_default().to_string();
            let read = reader.below(Step::Key(path.clone()), |reader| {
                match Vec::<f64>::read(&bounds, reader)?[..] {
                    [low, high] => Some([low, high]),
                    _ => reader.unlike("two numbers, [low, high]", &bounds),
                }
            });
            all.insert(path, read?);
        }
        Some(Self(all))
    }
    fn write(&self) -> Value {
        let both =
            |(path, both): (&String, &[f64; 2])| (path.as_str().into(), both.to_vec().write());
        Value::Mapping(self.0.iter().map(both).collect())
    }
    fn value_type() -> ValueType {
        let both = ValueType::List {
            items: f64::value_type().into(),
            length: (2, Some(2)),
            distinct: false,
        };
        ValueType::Map(both.into()).described("bounds by path")
    }
}

/// What the cases came to.
#[derive(Default)]
struct Tally {
    lines: Vec<String>,
    fine: usize,
    different: usize,
    taken: usize,
}

impl Tally {
    fn judged(&mut self, fine: bool, title: &str) {
        let word = match fine {
            true => style("fine     ").green(),
            false => style("different").red(),
        };
        self.fine += usize::from(fine);
        self.different += usize::from(!fine);
        self.lines.push(format!("{word}  {title}"));
    }
}

pub fn test(args: &TestArgs, catalogue: &Catalogue) -> Done {
    let mut files = BTreeSet::new();
    for path in &args.paths {
        if path.is_dir() {
            below(path, &mut files)?;
        } else {
            files.insert(path.clone());
        }
    }
    if files.is_empty() && args.conformance.is_empty() {
        return Err(Failure::usage(format!("no file there ends in `{ENDING}`")));
    }
    let mut tally = Tally::default();
    let given: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    for part in &args.conformance {
        let decl = named(part, catalogue).map_err(Failure::usage)?;
        let broken = broken(decl, &given).map_err(Failure::usage)?;
        let title = format!(
            "{} {}: fulfils its role and its properties",
            decl.role, decl.name
        );
        tally.judged(broken.is_none(), &title);
        tally.lines.extend(broken.map(|text| format!("    {text}")));
    }
    for path in &files {
        one_file(path, args.accept, catalogue, &mut tally)?;
    }
    tally.lines.push(format!(
        "{} fine, {} different, {} taken as right",
        tally.fine, tally.different, tally.taken
    ));
    print(tally.lines.join("\n"))?;
    match tally.different {
        0 => Ok(()),
        _ => Err(Failure::Differs),
    }
}

/// Files of cases in a folder and those below.
fn below(folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            below(&path, files)?;
        } else if path.to_string_lossy().ends_with(ENDING) {
            files.insert(path);
        }
    }
    Ok(())
}

fn one_file(
    path: &Path,
    accept: bool,
    catalogue: &Catalogue,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let wrong = |at: &Path, error: &dyn std::fmt::Display| {
        Failure::usage(format!("{}: {error}", at.display()))
    };
    let document = fl_engine::parse(path)?;
    let what = "a file of cases is a mapping with `cases`, a list";
    let (file, places) = document.settings::<File>(what).map_err(NotRun::Mistakes)?;
    let held = path.with_extension("answers.json");
    let mut answers: Map<String, Json> = match std::fs::read_to_string(&held) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| wrong(&held, &e))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(wrong(&held, &error)),
    };
    let mut names = BTreeSet::new();
    let mut mistakes = Vec::new();
    let mut note = |path: &[Step], text: String| mistakes.push(places.mistake(path, text));
    if file.cases.is_empty() {
        note(&[Step::Key("cases".into())], "it has no cases".into());
    }
    for (at, case) in file.cases.iter().enumerate() {
        let here = |field: &str| {
            [
                Step::Key("cases".into()),
                Step::Item(at),
                Step::Key(field.into()),
            ]
        };
        if !names.insert(case.name.clone()) {
            note(
                &here("name"),
                format!("two cases are called `{}`", case.name),
            );
        }
        if let Err(text) = named(&case.part, catalogue) {
            note(&here("part"), text);
        }
        if let Err((field, text)) = sound(case) {
            note(&here(field), text.into());
        }
    }
    if !mistakes.is_empty() {
        return Err(NotRun::Mistakes(Mistakes::sorted(mistakes)).into());
    }
    let mut changed = false;
    for case in file.cases {
        let found = ask(&case, catalogue);
        let different = judge(&case, &found, answers.get(&case.name));
        let answered = case.within.0.is_empty() && case.refused.is_none();
        let title = format!("{}: {}", path.display(), case.name);
        match &found {
            Ok(answer) if accept && answered && !different.is_empty() => {
                answers.insert(case.name.clone(), answer.clone());
                changed = true;
                tally.taken += 1;
                let word = style("taken    ").yellow();
                tally.lines.push(format!("{word}  {title}"));
            }
            _ => tally.judged(different.is_empty(), &title),
        }
        let more = different.len().saturating_sub(SHOWN);
        let shown = different.into_iter().take(SHOWN);
        tally.lines.extend(shown.map(|line| format!("    {line}")));
        if more > 0 {
            tally.lines.push(format!("    and {more} more"));
        }
    }
    if changed {
        answers.retain(|name, _| names.contains(name));
        let mut text = serde_json::to_vec_pretty(&answers)?;
        text.push(b'\n');
        fl_sim::write(&held, &text)?;
    }
    Ok(())
}

/// A case that expects nothing, or what every answer fulfils, is a mistake: the field, and why.
fn sound(case: &Case) -> Result<(), (&'static str, &'static str)> {
    let bounded = case.close.is_some() || !case.within.0.is_empty();
    Err(match (&case.input, case.conformance) {
        (Some(_), true) | (None, false) => (
            "name",
            "a case has either an `input` or `conformance: true`",
        ),
        _ if case.refused.as_ref().is_some_and(String::is_empty) => {
            ("refused", "must be a text that the error contains")
        }
        (None, true) if bounded => (
            "conformance",
            "a case of `conformance` has no answer that could be `close` or `within`",
        ),
        _ if case.refused.is_some() && bounded => (
            "refused",
            "a case that is `refused` has no answer that could be `close` or `within`",
        ),
        _ => return Ok(()),
    })
}

/// What the part of a case that is [`sound`] answers, or why it does not.
fn ask(case: &Case, catalogue: &Catalogue) -> Result<Json, String> {
    let settings = case.settings.clone().unwrap_or_else(nothing);
    let Some(input) = &case.input else {
        return match broken(named(&case.part, catalogue)?, &settings)? {
            Some(broken) => Err(broken),
            None => Ok(Json::Null),
        };
    };
    answer_of(&case.part, settings, to_json(input), case.seed, catalogue)
}

fn nothing() -> Value {
    Value::Mapping(Default::default())
}

/// What `fl try` and `fl test` say of a part, such as `aggregator trimmed-mean`, or why it has no
/// answer.
///
/// # Errors
/// As `fl try` prints them.
pub fn answer_of(
    part: &str,
    settings: Value,
    input: Json,
    seed: u64,
    catalogue: &Catalogue,
) -> std::result::Result<Json, String> {
    trial(named(part, catalogue)?, &settings, input, seed).map_err(words)
}

/// What the part does not keep of what its role asks and of what it claims; an error if it cannot
/// be tried.
fn broken(decl: &'static PartDecl, given: &Value) -> Result<Option<String>, String> {
    let settings = settings(decl, given).map_err(words)?;
    match guarded(decl, || {
        Ok(fl_conformance::check::declared(decl, &settings.value))
    }) {
        Ok(Some(tried)) => Ok(tried.err().map(|broken| broken.to_string())),
        Ok(None) => {
            let what = (decl.describe)().signature;
            let of = if what.is_empty() { "" } else { " of " };
            let instead = match decl.role {
                Role::Protocol => {
                    "; whole runs test a protocol: `fl new protocol` writes such tests, in tests/same.rs"
                }
                _ => "",
            };
            Err(format!(
                "the conformance kit has nothing for {}{of}{what}{instead}",
                decl.role.with_article()
            ))
        }
        Err(error) => Ok(Some(format!("{error:#}"))),
    }
}

/// The part that `aggregator mean` or, where no other role has one of that name, `mean` stands for.
fn named(part: &str, catalogue: &Catalogue) -> Result<&'static PartDecl, String> {
    if let Some((role, name)) = part.split_once(' ') {
        let role = crate::show::role(role).map_err(words)?;
        return catalogue.find(role, name.trim());
    }
    match catalogue.named(part)[..] {
        [decl] => Ok(decl),
        [] => {
            let near = nearest(part, catalogue.parts().iter().map(|p| p.name));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            Err(format!("no part is called `{part}`{near}"))
        }
        ref several => {
            let all = several.iter().map(|d| format!("`{} {part}`", d.role));
            let all = all.collect::<Vec<_>>().join(" or ");
            Err(format!("several parts are called `{part}`: say {all}"))
        }
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::NotRun(why) => why.to_string(),
        Failure::Failed(error) => format!("{error:#}"),
        Failure::Differs | Failure::Stopped(_) => String::new(),
    }
}

/// What is not as it should be, line by line.
fn judge(case: &Case, found: &Result<Json, String>, held: Option<&Json>) -> Vec<String> {
    let answer = match (found, &case.refused) {
        (Err(text), Some(wanted)) if text.contains(wanted) => return Vec::new(),
        (Err(text), Some(wanted)) => {
            return vec![format!(
                "refused, but `{wanted}` is not in the error: {text}"
            )];
        }
        (Ok(answer), Some(_)) => return vec![format!("not refused: {answer}")],
        (Err(text), None) if case.conformance => return vec![text.clone()],
        (Err(text), None) => return vec![format!("refused: {text}")],
        (Ok(_), None) if case.conformance => return Vec::new(),
        (Ok(answer), None) => answer,
    };
    let mut different = Vec::new();
    for (path, bounds) in &case.within.0 {
        outside(answer, path, *bounds, &mut different);
    }
    match held {
        _ if !case.within.0.is_empty() => {}
        Some(held) => walk("", held, answer, case.close, &mut different),
        None => different.push(format!(
            "new: {}; `--accept` takes it as right",
            style(answer).green()
        )),
    }
    different
}

/// Numbers below `path` that are not within `low` and `high`.
fn outside(answer: &Json, path: &str, [low, high]: [f64; 2], different: &mut Vec<String>) {
    let found = path.split('.').try_fold(answer, |at, key| at.get(key));
    let Some(found) = found else {
        different.push(format!("{path}: is not there"));
        return;
    };
    let mut numbers = Vec::new();
    leaves(path, found, &mut numbers);
    for (at, value) in numbers {
        if !value.as_f64().is_some_and(|v| v >= low && v <= high) {
            let value = style(value).red();
            different.push(format!("{at}: {value} is not within {low} and {high}"));
        }
    }
}

fn leaves<'j>(path: &str, value: &'j Json, all: &mut Vec<(String, &'j Json)>) {
    match value {
        Json::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                leaves(&format!("{path}[{at}]"), value, all);
            }
        }
        Json::Object(map) => {
            for (key, value) in map {
                leaves(&format!("{path}.{key}"), value, all);
            }
        }
        leaf => all.push((path.into(), leaf)),
    }
}

fn walk(path: &str, held: &Json, found: &Json, close: Option<f64>, different: &mut Vec<String>) {
    // 2 and 2.0 are one number
    let near = |x: f64, y: f64| {
        let close = close.unwrap_or(0.0);
        x == y || (x - y).abs() <= close * (1.0 + x.abs().max(y.abs()))
    };
    match (held, found) {
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{at}]"), a, b, close, different);
            }
        }
        (Json::Object(a), Json::Object(b)) if a.keys().eq(b.keys()) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (key, a) in a {
                walk(&format!("{path}{dot}{key}"), a, &b[key], close, different);
            }
        }
        (a, b) if a == b => {}
        (a, b) if a.as_f64().zip(b.as_f64()).is_some_and(|(x, y)| near(x, y)) => {}
        (a, b) => {
            let (a, b) = (style(a).red(), style(b).green());
            different.push(format!("{path}: {a} -> {b}"));
        }
    }
}
