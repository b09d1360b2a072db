//! Whether a case's answer is as it should be.

use crate::answer::{ask, broken, lost_state, run, words};
use crate::answers::{Answers, made_here, pretty};
use crate::compare::{compare, outside};
use crate::file::{Case, CaseFile};
use crate::named::part;
use fl_core::settings::{Reader, Setting, Value};
use fl_registry::Catalogue;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its answer is as it should be.
    Fine,
    /// It is not, or fl refused the case.
    Different,
    /// There is no accepted answer.
    New,
    /// Its answer was just accepted.
    Accepted,
}

impl Outcome {
    /// It in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Different => "different",
            Self::New => "new",
            Self::Accepted => "accepted",
        }
    }
}

/// A case after its part or its run has answered.
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// What is not as it should be.
    pub lines: Vec<String>,
    /// The answer, if it may be accepted.
    pub answer: Option<Json>,
}

impl Verdict {
    /// Of what is not as it should be: fine without it.
    fn of(lines: Vec<String>) -> Self {
        let outcome = if lines.is_empty() {
            Outcome::Fine
        } else {
            Outcome::Different
        };
        Self {
            outcome,
            lines,
            answer: None,
        }
    }
}

/// A tested case, or a part of `--conformance`.
pub struct CaseResult {
    /// The file of the case, and its line there.
    pub place: Option<(PathBuf, usize)>,
    /// Its name, or the rule that the part must keep.
    pub name: String,
    /// What its part or run was given, in lines of text.
    pub inputs: Vec<String>,
    /// How it ended, and why.
    pub verdict: Verdict,
}

impl CaseResult {
    /// For programs.
    pub fn json(&self) -> Json {
        let (file, line) = self.place.clone().unzip();
        json!({
            "file": file, "line": line, "case": self.name,
            "outcome": self.verdict.outcome.word(), "differences": self.verdict.lines,
        })
    }
}

/// Checks a part, such as `geometric-median` or `privacy clip-norm`, against its role and its
/// properties, on generated input.
///
/// # Errors
/// If there is no such part, its settings are wrong, or the kit cannot check its role.
pub fn fulfils(name: &str, settings: &Value, catalogue: &Catalogue) -> Result<CaseResult, String> {
    let decl = part(name, catalogue)?;
    let broken = broken(decl, settings)?;
    Ok(CaseResult {
        place: None,
        name: format!(
            "{} {}: fulfils its role and its properties",
            decl.role, decl.name
        ),
        inputs: Vec::new(),
        verdict: Verdict::of(broken.into_iter().collect()),
    })
}

/// The answer of a case, and what is not as it should be.
pub fn verdict(
    case: &Case,
    file: &CaseFile,
    held: Option<(&Json, Option<&str>)>,
    data: &Path,
) -> Verdict {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let found = match &case.run {
        Some(spec) => run(case, &folder.join(spec), data, &file.catalogue),
        None => ask(case, &file.catalogue),
    };
    verdict_on(case, found, held, &file.catalogue)
}

fn verdict_on(
    case: &Case,
    found: Result<Json, String>,
    held: Option<(&Json, Option<&str>)>,
    catalogue: &Catalogue,
) -> Verdict {
    match found {
        Ok(answer) => {
            let faults = lost_state(case, &answer, catalogue);
            judge(case, answer, held, faults)
        }
        Err(text) => judge_refusal(case, text),
    }
}

/// How a snapshot ended, and what is not as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// `fine`, `different`, `new` or `accepted`.
    pub outcome: &'static str,
    /// One line for each difference.
    pub lines: Vec<String>,
}

/// Holds one case, which another program gives as in a file of cases, to the answer that was
/// accepted under its name in the file `answers`. With a `value` there is no part: the value is the
/// answer.
///
/// # Errors
/// If the case has a mistake, or the file cannot be read or written.
pub fn snapshot(
    case: &Value,
    value: Option<Json>,
    answers: &Path,
    accept: bool,
    catalogue: &Catalogue,
) -> Result<Snapshot, String> {
    let mut reader = Reader::default();
    let case = Case::read(case, &mut reader);
    let mistakes = reader.mistakes.iter().map(ToString::to_string);
    let case = case.ok_or_else(|| mistakes.collect::<Vec<_>>().join("\n"))?;
    let mut held = Answers::open(answers).map_err(words)?;
    let found = match value {
        Some(value) => Ok(value),
        None => match case.faults().first() {
            Some((field, text)) => return Err(format!("{field}: {text}")),
            None => ask(&case, catalogue),
        },
    };
    let verdict = verdict_on(&case, found, held.get(&case.name), catalogue);
    let open = matches!(verdict.outcome, Outcome::Different | Outcome::New);
    let outcome = match verdict.answer {
        Some(answer) if accept && open => {
            held.accept(&case.name, answer);
            held.write().map_err(words)?;
            Outcome::Accepted
        }
        _ => verdict.outcome,
    };
    Ok(Snapshot {
        outcome: outcome.word(),
        lines: verdict.lines,
    })
}

/// The names in a file of answers that are not among `used`; `remove` deletes them.
///
/// # Errors
/// If the file cannot be read or written.
pub fn unused_answers(
    answers: &Path,
    used: &BTreeSet<String>,
    remove: bool,
) -> Result<Vec<String>, String> {
    let mut held = Answers::open(answers).map_err(words)?;
    let unused = held.names().filter(|name| !used.contains(*name));
    let unused: Vec<String> = unused.cloned().collect();
    if remove && !unused.is_empty() {
        unused.iter().for_each(|name| held.remove(name));
        held.write().map_err(words)?;
    }
    Ok(unused)
}

fn judge_refusal(case: &Case, text: String) -> Verdict {
    let line = match &case.refused {
        Some(wanted) if text.contains(wanted) => None,
        Some(wanted) => Some(format!("refused, but `{wanted}` is not in: {text}")),
        None if case.conformance => Some(text),
        None => Some(format!("refused: {text}")),
    };
    Verdict::of(line.into_iter().collect())
}

/// Judges an answer. `faults` are wrong whatever the accepted answer is.
fn judge(
    case: &Case,
    answer: Json,
    held: Option<(&Json, Option<&str>)>,
    faults: Vec<String>,
) -> Verdict {
    if case.refused.is_some() {
        return Verdict::of(vec![format!("not refused: {answer}")]);
    }
    let mut lines = faults;
    if !case.has_answer() {
        lines.extend(outside(case, &answer));
    }
    if !lines.is_empty() || !case.has_answer() {
        return Verdict::of(lines);
    }
    let verdict = match held {
        Some((expected, made)) => {
            let found = compare(case, expected, &answer);
            let mut lines = found.lines;
            let here = made_here();
            match made {
                Some(made) if !lines.is_empty() && found.rounding && made != here => {
                    lines.push(format!(
                        "the expected answer was made with {made}, and this is {here}; if only rounding differs, a `tolerance` accepts it"
                    ));
                }
                _ => {}
            }
            Verdict::of(lines)
        }
        None => {
            let mut text = String::new();
            pretty(&answer, 0, &mut text);
            Verdict {
                outcome: Outcome::New,
                ..Verdict::of(text.lines().map(String::from).collect())
            }
        }
    };
    Verdict {
        answer: Some(answer),
        ..verdict
    }
}
