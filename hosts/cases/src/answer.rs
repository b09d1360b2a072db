//! What the part or the run of a case answers.

use crate::compare::compare;
use crate::file::Case;
use crate::named::part;
use crate::trial::{Between, guarded, rounds, settings, trial};
use fl_core::settings::Value;
use fl_core::{PartDecl, Role};
use fl_engine::{ExecuteOptions, RunRequest, Source};
use fl_registry::Catalogue;
use fl_sim::Execution;
use serde_json::{Map, Value as Json, json};
use std::path::Path;

/// An error in one line.
pub fn words(error: anyhow::Error) -> String {
    format!("{error:#}")
}

/// What the part of a case without mistakes answers, or why it does not.
pub fn ask(case: &Case, catalogue: &Catalogue) -> Result<Json, String> {
    let decl = part(case.part.as_deref().unwrap_or_default(), catalogue)?;
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

/// Where the answers of several rounds differ if something saves and loads the part between them.
pub fn lost_state(case: &Case, answer: &Json, catalogue: &Catalogue) -> Vec<String> {
    if case.rounds.as_ref().is_none_or(|rounds| rounds.len() < 2) || case.refused.is_some() {
        return Vec::new();
    }
    let stopped = part(case.part.as_deref().unwrap_or_default(), catalogue).and_then(|decl| {
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
pub fn run(case: &Case, spec: &Path, data: &Path, catalogue: &Catalogue) -> Result<Json, String> {
    let folder = tempfile::tempdir().map_err(|e| words(e.into()))?;
    let out = folder.path().join("run");
    let execution = Execution {
        threads: fl_engine::threads(None),
        ..Execution::default()
    };
    let command = vec!["fl".into(), "test".into()];
    let request = RunRequest {
        source: Source::File(spec.into()),
        set: case.changes(),
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
    name: &str,
    settings: Value,
    input: Json,
    seed: u64,
    catalogue: &Catalogue,
) -> Result<Json, String> {
    trial(part(name, catalogue)?, &settings, input, seed).map_err(words)
}

/// The rule of its role, or its own claim, that the part breaks; an error if the kit cannot try it.
pub fn broken(decl: &'static PartDecl, given: &Value) -> Result<Option<String>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::CaseFile;
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
            let file = CaseFile::read(&path, &catalogue).unwrap().unwrap();
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
