//! `fl test`: parts and runs held to files of cases.

mod answer;
mod answers;
mod compare;
mod file;
mod review;
mod verdict;

use crate::{DataDir, Done, Failure, print};
pub use answer::answer_of;
use answers::Answers;
use clap::{Args, ValueEnum};
use console::style;
use file::CaseFile;
pub use file::File;
use fl_core::settings::{Value, nearest};
use fl_engine::NotRun;
use fl_registry::{Catalogue, Mistakes};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use verdict::{CaseResult, Outcome, Verdict, verdict};
pub use verdict::{Snapshot, snapshot, unused_answers};

/// How files of cases end, files of their answers, and those of what was found instead.
const ENDING: &str = ".cases.yaml";
const ANSWERS: &str = ".cases.answers.json";

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
    let chosen = CaseFilter::new(&args.only, names());
    if args.list {
        return list(&files, &chosen, args.json);
    }
    let accepted =
        (!args.accept.iter().any(String::is_empty)).then(|| CaseFilter::new(&args.accept, names()));
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
                let verdict = verdict(case, file, answers.get(&case.name), &args.data.path());
                of_file.push(CaseResult {
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
fn checked_files(args: &TestArgs, catalogue: &Catalogue) -> Result<Vec<CaseFile>, Failure> {
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
        match CaseFile::read(&path, catalogue) {
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
struct CaseFilter(Option<BTreeSet<String>>);

impl CaseFilter {
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

fn list(files: &[CaseFile], chosen: &CaseFilter, json: bool) -> Done {
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

fn conformance(args: &TestArgs, catalogue: &Catalogue) -> Result<Vec<CaseResult>, Failure> {
    let given: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    let one = |part: &String| {
        let decl = crate::show::part(part, catalogue).map_err(Failure::usage)?;
        let broken = answer::broken(decl, &given).map_err(Failure::usage)?;
        Ok(CaseResult {
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

fn report(args: &TestArgs, tested: &[CaseResult], unused: &[(PathBuf, Option<String>)]) -> Done {
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
            "cases": tested.iter().map(CaseResult::json).collect::<Vec<_>>(),
            "unreferenced": unreferenced.collect::<Vec<_>>(),
        }))?;
    } else {
        let line = |tested: &CaseResult| match args.review {
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
