//! Files of cases: read, tested, and their answers kept.

use crate::answers::{Answers, remove, usage};
use crate::file::CaseFile;
use crate::inputs::inputs;
use crate::verdict::{CaseResult, Outcome, unused_answers, verdict};
use anyhow::Result;
use fl_core::settings::nearest;
use fl_engine::NotRun;
use fl_registry::{Catalogue, Mistakes};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How files of cases end, and files of their answers.
const ENDING: &str = ".cases.yaml";
const ANSWERS: &str = ".cases.answers.json";

/// What a test of files of cases does.
#[derive(Clone, Debug, Default)]
pub struct TestOptions {
    /// Files of cases, or folders with files that end in `.cases.yaml`.
    pub paths: Vec<PathBuf>,
    /// Only these cases, if there are any: the case of this name, or else all whose names contain
    /// it.
    pub only: Vec<String>,
    /// Accepts the present answers of these cases, as in `only`; an empty text stands for all.
    pub accept: Vec<String>,
    /// Removes answers that no case uses any more.
    pub delete: bool,
    /// Are the answers that differ written beside each file, as `NAME.cases.actual.json`?
    pub actual: bool,
    /// The data directory.
    pub data_dir: PathBuf,
}

/// What to do with an answer that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is right from now on.
    Accept,
    /// It is wrong.
    Reject,
    /// Later.
    Skip,
}

/// Decides about a case that differs, from its accepted answer and the present one.
pub type Ask<'a, E> = &'a mut dyn FnMut(&CaseResult, Option<&Json>, &Json) -> Result<Choice, E>;

/// What became of the cases.
pub struct Tested {
    /// Each tested case.
    pub cases: Vec<CaseResult>,
    /// Answers that no case uses: their file, and the name of the case; without one the whole file.
    pub unused: Vec<(PathBuf, Option<String>)>,
}

/// Files of cases without a mistake.
pub struct CaseFiles {
    files: Vec<CaseFile>,
    options: TestOptions,
    chosen: CaseFilter,
    /// `None`: all.
    accepted: Option<CaseFilter>,
}

impl CaseFiles {
    /// Reads these files, and every file of cases in these folders.
    ///
    /// # Errors
    /// All mistakes of all files at once, as [`NotRun`]; that there is no file, or no case of a
    /// name.
    pub fn read(options: TestOptions, catalogue: &Catalogue) -> Result<Self> {
        let files = checked_files(&options, catalogue)?;
        let names = || files.iter().flat_map(|f| f.cases.iter().map(|c| &*c.name));
        for wanted in options.only.iter().chain(&options.accept) {
            if !wanted.is_empty() && !names().any(|name| name.contains(wanted.as_str())) {
                let near = nearest(wanted, names());
                let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                return Err(usage(format!("no case is called `{wanted}`{near}")));
            }
        }
        let chosen = CaseFilter::new(&options.only, names());
        let all = options.accept.iter().any(String::is_empty);
        let accepted = (!all).then(|| CaseFilter::new(&options.accept, names()));
        Ok(Self {
            files,
            options,
            chosen,
            accepted,
        })
    }

    /// The cases to test: file, line and name of each.
    pub fn list(&self) -> impl Iterator<Item = (&Path, usize, &str)> {
        self.files.iter().flat_map(|file| {
            let cases = file.cases.iter().zip(&file.lines);
            let chosen = cases.filter(|(case, _)| self.chosen.has(&case.name));
            chosen.map(|(case, line)| (&*file.path, *line, &*case.name))
        })
    }

    /// Tests the cases. `ask` gets each that differs, with its accepted answer and the present one,
    /// and says what to do; without it `accept` says that.
    ///
    /// # Errors
    /// If a file of answers cannot be read or written, or `ask` fails.
    pub fn test<E: From<anyhow::Error>>(&self, mut ask: Option<Ask<'_, E>>) -> Result<Tested, E> {
        let (mut cases, mut unused) = (Vec::new(), Vec::new());
        for file in &self.files {
            let mut answers = Answers::open(&Answers::beside(&file.path))?;
            let mut of_file = self.verdicts(file, &answers);
            let mut actual = self.actual(file, &answers)?;
            let mut waits = false;
            for one in &mut of_file {
                let Some(answer) = one.verdict.answer.clone() else {
                    continue;
                };
                if one.verdict.outcome == Outcome::Fine {
                    continue;
                }
                let choice = match &mut ask {
                    Some(ask) => ask(one, answers.get(&one.name).map(|(held, _)| held), &answer)?,
                    None if self.accepts(&one.name) => Choice::Accept,
                    None => Choice::Skip,
                };
                if choice == Choice::Accept {
                    answers.accept(&one.name, answer.clone());
                    one.verdict.outcome = Outcome::Accepted;
                    if ask.is_some() {
                        // what was accepted stays, whatever happens to the next one
                        answers.write()?;
                    }
                }
                if choice != Choice::Reject {
                    waits |= choice == Choice::Skip;
                    actual.accept(&one.name, answer);
                }
            }
            let accepted = |one: &CaseResult| one.verdict.outcome == Outcome::Accepted;
            if of_file.iter().any(accepted) {
                answers.write()?;
            }
            let of_none = self.unused(file, &answers.path)?;
            unused.extend(of_none.map(|name| (answers.path.clone(), Some(name))));
            if self.options.actual {
                match waits {
                    true => actual.write()?,
                    false if self.options.only.is_empty() => remove(&actual.path)?,
                    false => {}
                }
            }
            cases.extend(of_file);
        }
        for path in orphans(&self.options.paths)? {
            if self.options.delete {
                remove(&path)?;
            }
            unused.push((path, None));
        }
        Ok(Tested { cases, unused })
    }

    fn verdicts(&self, file: &CaseFile, answers: &Answers) -> Vec<CaseResult> {
        let cases = file.cases.iter().zip(&file.lines);
        let chosen = cases.filter(|(case, _)| self.chosen.has(&case.name));
        let result = |(case, line): (&crate::file::Case, &usize)| CaseResult {
            place: Some((file.path.clone(), *line)),
            name: case.name.clone(),
            inputs: inputs(case),
            verdict: verdict(case, file, answers.get(&case.name), &self.options.data_dir),
        };
        chosen.map(result).collect()
    }

    /// The answers that go into `NAME.cases.actual.json`; with `only` the others stay as they were
    /// found before.
    fn actual(&self, file: &CaseFile, answers: &Answers) -> Result<Answers> {
        let beside = file.path.with_extension("actual.json");
        let before = self.options.actual && !self.options.only.is_empty() && beside.exists();
        let mut actual = if before {
            Answers::open(&beside)?
        } else {
            answers.clone()
        };
        actual.path = beside;
        Ok(actual)
    }

    fn accepts(&self, name: &str) -> bool {
        let chosen = |chosen: &CaseFilter| !self.options.accept.is_empty() && chosen.has(name);
        self.accepted.as_ref().is_none_or(chosen)
    }

    /// The names in the file of answers that no case of the file has.
    fn unused(&self, file: &CaseFile, answers: &Path) -> Result<impl Iterator<Item = String>> {
        let used = file.cases.iter().filter(|case| case.has_answer());
        let used: BTreeSet<String> = used.map(|case| case.name.clone()).collect();
        let unused = unused_answers(answers, &used, self.options.delete).map_err(usage)?;
        Ok(unused.into_iter())
    }
}

/// Every file, or all their mistakes at once.
fn checked_files(options: &TestOptions, catalogue: &Catalogue) -> Result<Vec<CaseFile>> {
    let mut files = BTreeSet::new();
    for path in &options.paths {
        if path.is_dir() {
            below(path, ENDING, &mut files)?;
        } else {
            files.insert(path.clone());
        }
    }
    if files.is_empty() && !options.paths.is_empty() {
        return Err(usage(format!("no file there ends in `{ENDING}`")));
    }
    let (mut checked, mut mistakes) = (Vec::new(), Vec::new());
    for path in files {
        match CaseFile::read(&path, catalogue) {
            Ok(Ok(file)) => checked.push(file),
            Ok(Err(Mistakes(of_file))) => mistakes.extend(of_file),
            Err(error) if !path.exists() && options.accept.iter().any(String::is_empty) => {
                let case = path.display();
                let hint = format!("{error}; to accept one case, write --accept={case}");
                return Err(usage(hint));
            }
            Err(error) => return Err(error),
        }
    }
    if mistakes.is_empty() {
        Ok(checked)
    } else {
        Err(NotRun::Mistakes(Mistakes(mistakes)).into())
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
            let fits = move |name: &&str| {
                if whole {
                    name == wanted
                } else {
                    name.contains(wanted.as_str())
                }
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

/// Files in a folder and those below.
fn below(folder: &Path, ending: &str, files: &mut BTreeSet<PathBuf>) -> Result<()> {
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
fn orphans(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
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
