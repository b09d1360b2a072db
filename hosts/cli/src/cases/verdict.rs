//! Whether a case's answer is as it should be.

use super::answer::{ask, lost_state, run};
use super::answers::{Answers, made_here, pretty};
use super::compare::{compare, outside};
use super::file::{Case, CaseFile};
use crate::Failure;
use console::style;
use fl_core::settings::{Reader, Setting, Value};
use fl_registry::Catalogue;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The number of lines of a case that are shown.
const SHOWN: usize = 10;

/// How a case ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Fine,
    Different,
    /// There is no accepted answer.
    New,
    Accepted,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Different => "different",
            Self::New => "new",
            Self::Accepted => "accepted",
        }
    }

    fn styled(self) -> String {
        let word = style(format!("{:9}", self.word()));
        match self {
            Self::Fine => word.green(),
            Self::Different => word.red(),
            Self::New | Self::Accepted => word.yellow(),
        }
        .to_string()
    }
}

/// A case after its part or its run has answered.
pub struct Verdict {
    pub outcome: Outcome,
    /// What is not as it should be.
    pub lines: Vec<String>,
    /// The answer, if it may be accepted.
    pub answer: Option<Json>,
}

/// A tested case, or a part of `--conformance`.
pub struct CaseResult {
    /// `a.cases.yaml:4`, and the case's name.
    pub place: Option<(PathBuf, usize)>,
    pub name: String,
    pub verdict: Verdict,
}

impl CaseResult {
    fn title(&self) -> String {
        match &self.place {
            Some((file, line)) => format!("{}:{line}: {}", file.display(), self.name),
            None => self.name.clone(),
        }
    }

    pub fn headline(&self) -> String {
        format!("{}  {}", self.verdict.outcome.styled(), self.title())
    }

    /// For people; not more than some lines.
    pub fn text(&self) -> String {
        let mut text = self.headline();
        for line in self.verdict.lines.iter().take(SHOWN) {
            text += &format!("\n    {line}");
        }
        match self.verdict.lines.len().saturating_sub(SHOWN) {
            0 => {}
            more => text += &format!("\n    and {more} more"),
        }
        text
    }

    pub fn json(&self) -> Json {
        let (file, line) = self.place.clone().unzip();
        json!({
            "file": file, "line": line, "case": self.name,
            "outcome": self.verdict.outcome.word(), "differences": self.verdict.lines,
        })
    }
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
    let mut held = Answers::open(answers).map_err(Failure::text)?;
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
            held.write().map_err(Failure::text)?;
            Outcome::Accepted
        }
        _ => verdict.outcome,
    };
    Ok(Snapshot {
        outcome: outcome.word(),
        lines: verdict.lines,
    })
}

/// The names in a file of answers that are not among `used`; they are removed on request.
///
/// # Errors
/// If the file cannot be read or written.
pub fn unused_answers(
    answers: &Path,
    used: &BTreeSet<String>,
    remove: bool,
) -> Result<Vec<String>, String> {
    let mut held = Answers::open(answers).map_err(Failure::text)?;
    let unused = held.names().filter(|name| !used.contains(*name));
    let unused: Vec<String> = unused.cloned().collect();
    if remove && !unused.is_empty() {
        unused.iter().for_each(|name| held.remove(name));
        held.write().map_err(Failure::text)?;
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
    Verdict {
        outcome: if line.is_none() {
            Outcome::Fine
        } else {
            Outcome::Different
        },
        lines: line.into_iter().collect(),
        answer: None,
    }
}

/// Judges an answer. `faults` are wrong whatever was accepted.
fn judge(
    case: &Case,
    answer: Json,
    held: Option<(&Json, Option<&str>)>,
    faults: Vec<String>,
) -> Verdict {
    let verdict = |outcome, lines| Verdict {
        outcome,
        lines,
        answer: None,
    };
    if case.refused.is_some() {
        return verdict(Outcome::Different, vec![format!("not refused: {answer}")]);
    }
    let mut lines = faults;
    if !case.has_answer() {
        lines.extend(outside(case, &answer));
    }
    if !lines.is_empty() {
        return verdict(Outcome::Different, lines);
    }
    if !case.has_answer() {
        return verdict(Outcome::Fine, lines);
    }
    let (outcome, lines) = match held {
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
            match lines.is_empty() {
                true => (Outcome::Fine, lines),
                false => (Outcome::Different, lines),
            }
        }
        None => {
            let mut text = String::new();
            pretty(&answer, 0, &mut text);
            (Outcome::New, text.lines().map(String::from).collect())
        }
    };
    Verdict {
        outcome,
        lines,
        answer: Some(answer),
    }
}
