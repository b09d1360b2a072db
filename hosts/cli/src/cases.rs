//! `fl test`: parts held to files of cases.

use crate::try_part::trial;
use crate::{Done, Failure, print};
use clap::Args;
use console::style;
use fl_core::settings::Value;
use fl_registry::Catalogue;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How files of cases end.
const ENDING: &str = ".cases.yaml";
/// So many differences of a case are shown.
const SHOWN: usize = 10;

#[derive(Args)]
pub struct TestArgs {
    /// Files of cases, or folders with files that end in `.cases.yaml`.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Take what parts answer now as right; it is shown.
    #[arg(long)]
    accept: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cases: Vec<Case>,
}

/// One question to one part.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Role and name: `aggregator trimmed-mean`.
    part: String,
    settings: Option<Value>,
    /// As `fl try` reads it.
    input: Json,
    #[serde(default)]
    seed: u64,
    /// So far apart numbers may be, relative to 1 and to their size; otherwise all bits count.
    close: Option<f64>,
    /// Bounds by path, such as `tensors.w: [0, 1]`, instead of an answer.
    #[serde(default)]
    within: BTreeMap<String, [f64; 2]>,
    /// It is refused, with this in the error's text.
    refused: Option<String>,
}

/// What the cases came to.
#[derive(Default)]
struct Tally {
    lines: Vec<String>,
    fine: usize,
    different: usize,
    taken: usize,
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
    if files.is_empty() {
        return Err(Failure::usage(format!("no file there ends in `{ENDING}`")));
    }
    let mut tally = Tally::default();
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
    let text = crate::open(path).and_then(std::io::read_to_string);
    let text = text.map_err(|e| wrong(path, &e))?;
    let file: File = serde_yaml::from_str(&text).map_err(|e| wrong(path, &e))?;
    let held = path.with_extension("answers.json");
    let mut answers: Map<String, Json> = match std::fs::read_to_string(&held) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| wrong(&held, &e))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(wrong(&held, &error)),
    };
    let mut names = BTreeSet::new();
    let mut changed = false;
    for case in file.cases {
        if !names.insert(case.name.clone()) {
            let error = format!("two cases are called `{}`", case.name);
            return Err(wrong(path, &error));
        }
        let found = ask(&case, catalogue);
        let different = judge(&case, &found, answers.get(&case.name));
        let answered = case.within.is_empty() && case.refused.is_none();
        let word = match (different.is_empty(), &found) {
            (true, _) => {
                tally.fine += 1;
                style("fine     ").green()
            }
            (false, Ok(answer)) if accept && answered => {
                answers.insert(case.name.clone(), answer.clone());
                changed = true;
                tally.taken += 1;
                style("taken    ").yellow()
            }
            _ => {
                tally.different += 1;
                style("different").red()
            }
        };
        tally
            .lines
            .push(format!("{word}  {}: {}", path.display(), case.name));
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

/// What the part answers, or why it does not.
fn ask(case: &Case, catalogue: &Catalogue) -> Result<Json, String> {
    let settings = case.settings.clone();
    let settings = settings.unwrap_or(Value::Mapping(Default::default()));
    answer_of(
        &case.part,
        settings,
        case.input.clone(),
        case.seed,
        catalogue,
    )
}

/// What `fl try` and `fl test` say of a part, such as `aggregator trimmed-mean`, or why it has no answer.
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
    let part = part.split_once(' ');
    let part = part.ok_or("`part` must be a role and a name, as in `aggregator trimmed-mean`")?;
    trial(part, settings, input, seed, catalogue).map_err(|failure| match failure {
        Failure::Usage(text) => text,
        Failure::Failed(error) => format!("{error:#}"),
        Failure::Refused(refusal) => refusal.to_string(),
        Failure::Differs | Failure::Stopped(_) => String::new(),
    })
}

/// What is not as it should be, line by line.
fn judge(case: &Case, found: &Result<Json, String>, held: Option<&Json>) -> Vec<String> {
    let answer = match (found, &case.refused) {
        (Err(text), Some(wanted)) if text.contains(wanted) => return Vec::new(),
        (Err(text), Some(wanted)) => {
            return vec![format!("refused, but `{wanted}` is not in: {text}")];
        }
        (Ok(answer), Some(_)) => return vec![format!("not refused: {answer}")],
        (Err(text), None) => return vec![format!("refused: {text}")],
        (Ok(answer), None) => answer,
    };
    let mut different = Vec::new();
    for (path, bounds) in &case.within {
        outside(answer, path, *bounds, &mut different);
    }
    match held {
        _ if !case.within.is_empty() => {}
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
