//! `fl test`: parts and runs held to files of cases.

mod review;

use crate::sanitize::plain;
use crate::{DataDir, Done, Failure, print, print_coloured};
use clap::{Args, ValueEnum};
use console::style;
use fl_cases::{CaseFiles, CaseResult, Outcome, TestOptions, Tested};
use fl_core::settings::Value;
use fl_registry::Catalogue;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

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

impl TestArgs {
    fn options(&self) -> TestOptions {
        TestOptions {
            paths: self.paths.clone(),
            only: self.only.clone(),
            accept: self.accept.clone(),
            delete: self.unreferenced == Unreferenced::Delete,
            actual: self.actual,
            data_dir: self.data.path(),
        }
    }
}

pub fn test(args: &TestArgs, catalogue: &Catalogue) -> Done {
    if args.review {
        review::needs_a_terminal()?;
    }
    let files = CaseFiles::read(args.options(), catalogue)?;
    if args.list {
        return list(&files, args.json);
    }
    let mut parts = conformance(args, catalogue)?;
    let mut review = review::Review::on_terminal();
    let mut ask =
        |case: &CaseResult, held: Option<&Json>, found: &Json| review.ask(case, held, found);
    let Tested { cases, unused } = if args.review {
        files.test(Some(&mut ask))
    } else {
        files.test::<Failure>(None)
    }?;
    parts.extend(cases);
    report(
        args,
        &Tested {
            cases: parts,
            unused,
        },
    )
}

fn list(files: &CaseFiles, json: bool) -> Done {
    let all = files.list();
    if json {
        let one = |(file, line, case): (&Path, _, _)| json!({ "file": file.display().to_string(), "line": line, "case": case });
        print(json!({ "cases": all.map(one).collect::<Vec<_>>() }))
    } else {
        let lines = all.map(|(file, line, case)| format!("{}:{line}: {case}", file.display()));
        print(lines.collect::<Vec<_>>().join("\n"))
    }
}

fn conformance(args: &TestArgs, catalogue: &Catalogue) -> Result<Vec<CaseResult>, Failure> {
    let given: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    let one = |part: &String| fl_cases::fulfils(part, &given, catalogue).map_err(Failure::usage);
    args.conformance.iter().map(one).collect()
}

/// How a case ended, its place and its name.
fn headline(case: &CaseResult) -> String {
    let word = style(format!("{:9}", case.verdict.outcome.word()));
    let word = match case.verdict.outcome {
        Outcome::Fine => word.green(),
        Outcome::Different => word.red(),
        Outcome::New | Outcome::Accepted => word.yellow(),
    };
    let name = plain(&case.name);
    match &case.place {
        Some((file, line)) => {
            let file = plain(&file.display().to_string());
            format!("{word}  {file}:{line}: {name}")
        }
        None => format!("{word}  {name}"),
    }
}

/// As [`headline`], with some lines of what differs.
fn text(case: &CaseResult) -> String {
    let mut text = headline(case);
    for line in case.verdict.lines.iter().take(SHOWN) {
        text += &format!("\n    {}", plain(line));
    }
    match case.verdict.lines.len().saturating_sub(SHOWN) {
        0 => {}
        more => text += &format!("\n    and {more} more"),
    }
    text
}

fn report(
    args: &TestArgs,
    Tested {
        cases: tested,
        unused,
    }: &Tested,
) -> Done {
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
        let line = |tested: &CaseResult| {
            if args.review && tested.verdict.answer.is_some() {
                // the differences have been shown
                headline(tested)
            } else {
                text(tested)
            }
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
            let about = plain(&format!("{}: {why}{hint}", path.display()));
            lines.push(format!("{word}  {about}"));
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
        print_coloured(&lines.join("\n"))?;
    }
    let rejects = args.unreferenced == Unreferenced::Reject && !unused.is_empty();
    match count(Outcome::Different) + count(Outcome::New) {
        0 if !rejects => Ok(()),
        _ => Err(Failure::Differs),
    }
}
