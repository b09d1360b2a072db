//! `fl test`: parts and runs held to files of cases.

mod answers;
mod compare;
mod file;
mod review;

use crate::part_trial::{Between, guarded, rounds, settings, trial};
use crate::{DataDir, Done, Failure, print};
use answers::{Answers, made_here, pretty};
use clap::{Args, ValueEnum};
use compare::{compare, outside};
use console::style;
pub use file::File;
use file::{Case, Checked};
use fl_core::settings::{Reader, Setting, Value, nearest, to_json};
use fl_core::{PartDecl, Role};
use fl_engine::{ExecuteOptions, NotRun, RunRequest, Source};
use fl_registry::{Catalogue, Mistakes};
use fl_sim::Execution;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How files of cases end, files of their answers, and those of what was found instead.
const ENDING: &str = ".cases.yaml";
const ANSWERS: &str = ".cases.answers.json";
/// The number of lines of a case that are shown.
const SHOWN: usize = 10;

#[derive(Args)]
pub struct TestArgs {
    /// Files of cases, or folders with files that end in `.cases.yaml`.
    #[arg(required_unless_present = "conformance")]
    paths: Vec<PathBuf>,
    /// Check this part against its role and its properties, on generated input:
    /// `geometric-median`, or with its role, `"privacy clip-norm"`. May be given several times.
    #[arg(long, value_name = "PART")]
    conformance: Vec<String>,
    /// The settings of those parts, as YAML: `{trim: 0.2}`.
    #[arg(long, default_value = "{}", requires = "conformance")]
    settings: String,
    /// Only this case; if no case has this name, all cases whose names contain it. May be given
    /// several times.
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// Accept the present answers of all cases, or with `--accept=CASE` of one. `--accept=CASE` may
    /// be given several times.
    #[arg(long, value_name = "CASE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    accept: Vec<String>,
    /// Show one difference after the other, and ask on the terminal what to do with it.
    #[arg(long, conflicts_with_all = ["accept", "json"])]
    review: bool,
    /// What to do with answers that no case uses any more.
    #[arg(long, value_enum, default_value = "warn")]
    unreferenced: Unreferenced,
    /// Where answers differ, write `NAME.cases.actual.json`: the answers as `--accept` would write
    /// them. Where none differ, remove it.
    #[arg(long, conflicts_with = "list")]
    actual: bool,
    /// List the cases and test nothing.
    #[arg(long, conflicts_with_all = ["accept", "review", "conformance"])]
    list: bool,
    #[command(flatten)]
    data: DataDir,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Unreferenced {
    /// Say nothing.
    Ignore,
    /// Name them.
    Warn,
    /// Name them, and end with exit code 1.
    Reject,
    /// Remove them.
    Delete,
}

/// How a case ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Fine,
    Different,
    /// There is no accepted answer.
    New,
    Accepted,
}

impl Outcome {
    fn word(self) -> &'static str {
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
struct Verdict {
    outcome: Outcome,
    /// What is not as it should be.
    lines: Vec<String>,
    /// The answer, if it may be accepted.
    answer: Option<Json>,
}

/// A tested case, or a part of `--conformance`.
struct Tested {
    /// `a.cases.yaml:4`, and the case's name.
    place: Option<(PathBuf, usize)>,
    name: String,
    verdict: Verdict,
}

impl Tested {
    fn title(&self) -> String {
        match &self.place {
            Some((file, line)) => format!("{}:{line}: {}", file.display(), self.name),
            None => self.name.clone(),
        }
    }

    fn headline(&self) -> String {
        format!("{}  {}", self.verdict.outcome.styled(), self.title())
    }

    /// For people; not more than some lines.
    fn text(&self) -> String {
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

    fn json(&self) -> Json {
        let (file, line) = self.place.clone().unzip();
        json!({
            "file": file, "line": line, "case": self.name,
            "outcome": self.verdict.outcome.word(), "differences": self.verdict.lines,
        })
    }
}

pub fn test(args: &TestArgs, catalogue: &Catalogue) -> Done {
    if args.review {
        review::needs_a_terminal()?;
    }
    let files = checked_files(args, catalogue)?;
    let names = || files.iter().flat_map(|f| f.cases.iter().map(|c| &*c.name));
    for wanted in args.only.iter().chain(&args.accept) {
        if !wanted.is_empty() && !names().any(|name| name.contains(wanted.as_str())) {
            let near = nearest(wanted, names());
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(Failure::usage(format!(
                "no case is called `{wanted}`{near}"
            )));
        }
    }
    let chosen = Chosen::new(&args.only, names());
    if args.list {
        return list(&files, &chosen, args.json);
    }
    let accepted =
        (!args.accept.iter().any(String::is_empty)).then(|| Chosen::new(&args.accept, names()));
    let accepts = |name: &str| match &accepted {
        None => true,
        Some(chosen) => !args.accept.is_empty() && chosen.has(name),
    };
    let mut tested = conformance(args, catalogue)?;
    let mut unused = Vec::new();
    let mut review = review::Review::on_terminal();
    for file in &files {
        let mut answers = Answers::open(&Answers::beside(&file.path))?;
        let mut of_file = Vec::new();
        for (case, line) in file.cases.iter().zip(&file.lines) {
            if chosen.has(&case.name) {
                let verdict = verdict(case, file, answers.get(&case.name), args);
                of_file.push(Tested {
                    place: Some((file.path.clone(), *line)),
                    name: case.name.clone(),
                    verdict,
                });
            }
        }
        // with `--only` the other cases stay as they were found before
        let beside = file.path.with_extension("actual.json");
        let before = args.actual && !args.only.is_empty() && beside.exists();
        let mut actual = match before {
            true => Answers::open(&beside)?,
            false => answers.clone(),
        };
        actual.path = beside;
        let mut waits = false;
        for one in &mut of_file {
            let Some(answer) = one.verdict.answer.clone() else {
                continue;
            };
            if one.verdict.outcome == Outcome::Fine {
                continue;
            }
            let keep = match args.review {
                true => review.ask(one, answers.get(&one.name).map(|(held, _)| held), &answer)?,
                false if accepts(&one.name) => review::Choice::Accept,
                false => review::Choice::Skip,
            };
            if keep == review::Choice::Accept {
                answers.accept(&one.name, answer.clone());
                one.verdict.outcome = Outcome::Accepted;
                if args.review {
                    // what was accepted stays, whatever happens to the next one
                    answers.write()?;
                }
            }
            if keep != review::Choice::Reject {
                waits |= keep == review::Choice::Skip;
                actual.accept(&one.name, answer);
            }
        }
        if of_file
            .iter()
            .any(|t| t.verdict.outcome == Outcome::Accepted)
        {
            answers.write()?;
        }
        let used = file.cases.iter().filter(|case| case.has_answer());
        let used: BTreeSet<String> = used.map(|case| case.name.clone()).collect();
        let delete = args.unreferenced == Unreferenced::Delete;
        let of_none = unused_answers(&answers.path, &used, delete).map_err(Failure::usage)?;
        unused.extend(
            of_none
                .into_iter()
                .map(|name| (answers.path.clone(), Some(name))),
        );
        if args.actual {
            match waits {
                true => actual.write()?,
                false if args.only.is_empty() => answers::remove(&actual.path)?,
                false => {}
            }
        }
        tested.extend(of_file);
    }
    for path in orphans(&args.paths)? {
        if args.unreferenced == Unreferenced::Delete {
            answers::remove(&path)?;
        }
        unused.push((path, None));
    }
    report(args, &tested, &unused)
}

/// Every file that was named or is in a folder that was named; all their mistakes at once.
fn checked_files(args: &TestArgs, catalogue: &Catalogue) -> Result<Vec<Checked>, Failure> {
    let mut files = BTreeSet::new();
    for path in &args.paths {
        if path.is_dir() {
            below(path, ENDING, &mut files)?;
        } else {
            files.insert(path.clone());
        }
    }
    if files.is_empty() && args.conformance.is_empty() {
        return Err(Failure::usage(format!("no file there ends in `{ENDING}`")));
    }
    let (mut checked, mut mistakes) = (Vec::new(), Vec::new());
    for path in files {
        match Checked::read(&path, catalogue) {
            Ok(Ok(file)) => checked.push(file),
            Ok(Err(Mistakes(of_file))) => mistakes.extend(of_file),
            Err(error) if !path.exists() && args.accept.iter().any(String::is_empty) => {
                let case = path.display();
                let hint = format!("{error}; to accept one case, write --accept={case}");
                return Err(Failure::usage(hint));
            }
            Err(error) => return Err(error.into()),
        }
    }
    match mistakes.is_empty() {
        true => Ok(checked),
        false => Err(NotRun::Mistakes(Mistakes(mistakes)).into()),
    }
}

/// The cases that a user named.
struct Chosen(Option<BTreeSet<String>>);

impl Chosen {
    /// All if none is `wanted`; the case of a name, or else the cases whose names contain it.
    fn new<'n>(wanted: &[String], names: impl Iterator<Item = &'n str> + Clone) -> Self {
        if wanted.is_empty() {
            return Self(None);
        }
        let of = |wanted: &String| {
            let whole = names.clone().any(|name| name == wanted);
            let fits = move |name: &&str| match whole {
                true => name == wanted,
                false => name.contains(wanted.as_str()),
            };
            names
                .clone()
                .filter(fits)
                .map(String::from)
                .collect::<Vec<_>>()
        };
        Self(Some(wanted.iter().flat_map(of).collect()))
    }

    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }
}

fn list(files: &[Checked], chosen: &Chosen, json: bool) -> Done {
    let all = files.iter().flat_map(|file| {
        let cases = file.cases.iter().zip(&file.lines);
        let chosen = cases.filter(|(case, _)| chosen.has(&case.name));
        chosen.map(|(case, line)| (file.path.display(), *line, &case.name))
    });
    match json {
        true => {
            let one = |(file, line, case): (std::path::Display<'_>, _, _)| json!({ "file": file.to_string(), "line": line, "case": case });
            print(json!({ "cases": all.map(one).collect::<Vec<_>>() }))
        }
        false => {
            let lines = all.map(|(file, line, case)| format!("{file}:{line}: {case}"));
            print(lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn conformance(args: &TestArgs, catalogue: &Catalogue) -> Result<Vec<Tested>, Failure> {
    let given: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    let one = |part: &String| {
        let decl = named(part, catalogue).map_err(Failure::usage)?;
        let broken = broken(decl, &given).map_err(Failure::usage)?;
        Ok(Tested {
            place: None,
            name: format!(
                "{} {}: fulfils its role and its properties",
                decl.role, decl.name
            ),
            verdict: Verdict {
                outcome: if broken.is_none() {
                    Outcome::Fine
                } else {
                    Outcome::Different
                },
                lines: broken.into_iter().collect(),
                answer: None,
            },
        })
    };
    args.conformance.iter().map(one).collect()
}

/// Files in a folder and those below.
fn below(folder: &Path, ending: &str, files: &mut BTreeSet<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            below(&path, ending, files)?;
        } else if path.to_string_lossy().ends_with(ending) {
            files.insert(path);
        }
    }
    Ok(())
}

/// Files of answers in these folders without a file of cases.
fn orphans(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = BTreeSet::new();
    for folder in paths.iter().filter(|path| path.is_dir()) {
        below(folder, ANSWERS, &mut files)?;
    }
    let cases = |path: &PathBuf| {
        let name = path.to_string_lossy();
        let start = name.strip_suffix(ANSWERS).unwrap_or_default();
        PathBuf::from(format!("{start}{ENDING}"))
    };
    Ok(files
        .into_iter()
        .filter(|path| !cases(path).exists())
        .collect())
}

fn report(args: &TestArgs, tested: &[Tested], unused: &[(PathBuf, Option<String>)]) -> Done {
    let count = |outcome| {
        tested
            .iter()
            .filter(|t| t.verdict.outcome == outcome)
            .count()
    };
    if args.json {
        let unreferenced = unused
            .iter()
            .map(|(file, case)| json!({ "file": file, "case": case }));
        print(json!({
            "cases": tested.iter().map(Tested::json).collect::<Vec<_>>(),
            "unreferenced": unreferenced.collect::<Vec<_>>(),
        }))?;
    } else {
        let line = |tested: &Tested| match args.review {
            // the differences have been shown
            true if tested.verdict.answer.is_some() => tested.headline(),
            _ => tested.text(),
        };
        let mut lines: Vec<String> = tested.iter().map(line).collect();
        let shown = args.unreferenced != Unreferenced::Ignore;
        for (path, case) in unused.iter().filter(|_| shown) {
            let (word, hint) = match args.unreferenced {
                Unreferenced::Delete => ("deleted", ""),
                _ => ("unused", "; --unreferenced=delete removes it"),
            };
            let why = match case {
                Some(case) => format!("no case has the answer `{case}`"),
                None => "there is no file of cases beside it".into(),
            };
            let word = style(format!("{word:9}")).yellow();
            lines.push(format!("{word}  {}: {why}{hint}", path.display()));
        }
        let [fine, different, new, accepted] = [
            Outcome::Fine,
            Outcome::Different,
            Outcome::New,
            Outcome::Accepted,
        ]
        .map(count);
        let mut total = format!("{fine} fine, {different} different");
        for (n, word) in [(new, "new"), (accepted, "accepted")] {
            if n > 0 {
                total += &format!(", {n} {word}");
            }
        }
        lines.push(total);
        if new + different > 0 && !args.review {
            let held = tested.iter().any(|t| {
                t.verdict.answer.is_some()
                    && matches!(t.verdict.outcome, Outcome::Different | Outcome::New)
            });
            if held {
                lines.push("`--review` asks about each answer; `--accept=CASE` accepts one, `--accept` all".into());
            }
        }
        print(lines.join("\n"))?;
    }
    let rejects = args.unreferenced == Unreferenced::Reject && !unused.is_empty();
    match count(Outcome::Different) + count(Outcome::New) {
        0 if !rejects => Ok(()),
        _ => Err(Failure::Differs),
    }
}

/// The answer of a case, and what is not as it should be.
fn verdict(
    case: &Case,
    file: &Checked,
    held: Option<(&Json, Option<&str>)>,
    args: &TestArgs,
) -> Verdict {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let found = match &case.run {
        Some(spec) => run(case, &folder.join(spec), &args.data.path(), &file.catalogue),
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

/// The names in a file of answers that are not among `used`; they are removed on request.
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
                        "made with {made}, this is {here}: if its rounding is to blame, a `tolerance` accepts it"
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

/// What the part of a case without mistakes answers, or why it does not.
fn ask(case: &Case, catalogue: &Catalogue) -> Result<Json, String> {
    let decl = named(case.part.as_deref().unwrap_or_default(), catalogue)?;
    if case.conformance {
        return match broken(decl, &case.settings())? {
            Some(broken) => Err(broken),
            None => Ok(Json::Null),
        };
    }
    let inputs = case.inputs();
    let answers = rounds(decl, &case.settings(), &inputs, case.seed, Between::Nothing);
    let mut answers = answers.map_err(words)?;
    Ok(match case.rounds {
        Some(_) => json!({ "rounds": answers }),
        None => answers.pop().unwrap_or_default(),
    })
}

/// Where the answers of several rounds are others if the part is saved and loaded between them.
fn lost_state(case: &Case, answer: &Json, catalogue: &Catalogue) -> Vec<String> {
    if case.rounds.as_ref().is_none_or(|rounds| rounds.len() < 2) || case.refused.is_some() {
        return Vec::new();
    }
    let stopped = named(case.part.as_deref().unwrap_or_default(), catalogue).and_then(|decl| {
        let (settings, inputs) = (case.settings(), case.inputs());
        rounds(decl, &settings, &inputs, case.seed, Between::Stops).map_err(words)
    });
    let stopped = match stopped {
        Ok(stopped) => json!({ "rounds": stopped }),
        Err(text) => {
            return vec![format!(
                "saved and loaded between rounds, it is refused: {text}"
            )];
        }
    };
    let mut lines = compare(&case.with_all_bits(), answer, &stopped).lines;
    if !lines.is_empty() {
        let text = "saved and loaded between rounds, it gives other answers: `save` leaves out some of its state, or `load` does";
        lines.insert(0, text.into());
    }
    lines
}

/// What a run of this spec comes to, or why it does not.
fn run(case: &Case, spec: &Path, data: &Path, catalogue: &Catalogue) -> Result<Json, String> {
    let words = |error: anyhow::Error| words(error.into());
    let folder = tempfile::tempdir().map_err(|e| words(e.into()))?;
    let out = folder.path().join("run");
    let set = case.set.iter().map(|(path, value)| {
        let path = path.as_str().unwrap_or_default();
        format!("{path}={}", to_json(value))
    });
    let execution = Execution {
        threads: fl_engine::threads(None),
        ..Execution::default()
    };
    let command = vec!["fl".into(), "test".into()];
    let request = RunRequest {
        source: Source::File(spec.into()),
        set: set.collect(),
        locked: false,
        out: Some(out.clone()),
        options: ExecuteOptions::new(data.into(), command, execution),
    };
    let outcome = fl_engine::run(request, catalogue, |_, _| Ok(())).map_err(words)?;
    let outcome = outcome.ok_or("it was stopped before it began")?;
    let mut answer = Map::new();
    answer.insert("steps".into(), json!(outcome.rounds));
    answer.insert("metrics".into(), json!(outcome.metrics));
    answer.insert("bytes".into(), json!(outcome.bytes));
    if let Some(privacy) = &outcome.privacy {
        answer.insert("privacy".into(), json!(privacy));
    }
    if case.exact() {
        let journal = fl_report::Run::open(&out).map_err(words)?.journal;
        let one = |entry: &fl_report::Entry| {
            let digest = entry.digest.get(..16).unwrap_or_default();
            format!("{}, {}: {digest}", entry.step, entry.question)
        };
        let exchanges: Vec<String> = journal.iter().map(one).collect();
        answer.insert("digest".into(), json!(outcome.digest));
        answer.insert("exchanges".into(), json!(exchanges));
    }
    Ok(Json::Object(answer))
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
                    "; whole runs test a protocol: a case with `run`, or the tests that `fl new protocol` writes"
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
        [] => Err(catalogue.unknown(part)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::prelude::*;

    settings! {
        /// The number of the round, counted by the part itself.
        pub struct Counted {
            /// Is the count saved?
            saves: bool = true;
        }
    }

    struct Counter {
        saves: bool,
        count: u8,
    }

    impl From<Counted> for Counter {
        fn from(settings: Counted) -> Self {
            let saves = settings.saves;
            Self { saves, count: 0 }
        }
    }

    impl Aggregator for Counter {
        type In = Params;
        type Out = Params;

        fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
            self.count += 1;
            Ok(inbox.per_coordinate(|_| f32::from(self.count)))
        }

        fn save(&self) -> Vec<u8> {
            vec![self.count; usize::from(self.saves)]
        }

        fn load(&mut self, state: &[u8]) -> Result<()> {
            self.count = state.first().copied().unwrap_or_default();
            Ok(())
        }
    }
    fl_core::plugin!(aggregator "counter" => Counted as Counter);

    #[test]
    fn a_part_that_does_not_save_its_state_fails_a_case_of_several_rounds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cases.yaml");
        let catalogue = Catalogue::linked().unwrap();
        let lost = |saves: bool| {
            let round = "{ messages: [{ from: 0, tensors: { w: [1] } }] }";
            let text = format!(
                "cases: [{{ name: a, part: aggregator counter, settings: {{ saves: {saves} }}, rounds: [&r {round}, *r, *r] }}]"
            );
            std::fs::write(&path, text).unwrap();
            let file = Checked::read(&path, &catalogue).unwrap().unwrap();
            let answer = ask(&file.cases[0], &catalogue).unwrap();
            assert_eq!(answer["rounds"][2]["tensors"]["w"], json!([3]));
            lost_state(&file.cases[0], &answer, &catalogue)
        };
        assert_eq!(lost(true), Vec::<String>::new());
        let lines = lost(false);
        assert!(lines[0].starts_with("saved and loaded between rounds, it gives other answers"));
        assert!(
            lines[1].starts_with(
                "round 2, tensors.w: 1 of 1 numbers differs; worst at [0]: expected 2, found 1,"
            ),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 3, "{lines:?}");
    }
}
