//! One part alone, of any role, and its answers to inputs in JSON, round by round.

mod input;
mod part;

pub use input::Input;
pub use part::{Part, SLOT, aggregated, released};

use anyhow::{Context, bail};
use fl_core::settings::{Mistake, Reader, Step, Value};
use fl_core::{
    BuildContext, CheckedSettings, PartDecl, Parts, Result, Round, Serial, SlotAssignment, Stream,
};
use fl_engine::NotRun;
use input::task;
use serde_json::{Value as Json, json};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Arc;

/// Calls a part; that it panics is an error like any other, and no news for the screen.
///
/// # Errors
/// As `f`; that the part panicked, with its text.
pub fn guarded<T>(decl: &PartDecl, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(f));
    set_hook(hook);
    outcome.unwrap_or_else(|panic| {
        let text = fl_core::panic_text(&*panic).unwrap_or_else(|| "without a text".into());
        bail!("{} `{}` panicked: {text}", decl.role, decl.name)
    })
}

/// The part's settings as it reads them, or every mistake in them, below `at`.
pub fn read_settings(
    decl: &PartDecl,
    given: &Value,
    at: Vec<Step>,
) -> std::result::Result<CheckedSettings, Vec<Mistake>> {
    let mut reader = Reader::at(at);
    let read = (decl.check)(given, &mut reader);
    match read {
        Some(read) if reader.mistakes.is_empty() => Ok(read),
        _ => Err(reader.mistakes),
    }
}

/// As [`read_settings`]; the mistakes are one error.
pub fn settings(decl: &PartDecl, given: &Value) -> Result<CheckedSettings> {
    read_settings(decl, given, Vec::new()).map_err(|mistakes| {
        let all = mistakes.iter().map(|m| format!("settings: {m}"));
        NotRun::Usage(all.collect::<Vec<_>>().join("\n")).into()
    })
}

/// Is the part saved between two rounds, and another one loaded with its state?
#[derive(Clone, Copy, PartialEq)]
pub enum Between {
    Nothing,
    Stops,
}

/// What the part answers to the input of each round.
///
/// # Errors
/// Everything that is wrong: settings, or what it says against an input.
pub fn rounds(
    decl: &'static PartDecl,
    given: &Value,
    inputs: &[Json],
    seed: u64,
    between: Between,
) -> Result<Vec<Json>> {
    let parts = Parts::new(vec![SlotAssignment {
        slot: SLOT.into(),
        clients: None,
        decl,
        settings: settings(decl, given)?,
    }]);
    let read = |(at, input): (usize, &Json)| {
        Input::read(decl, input)
            .map_err(|mistake| anyhow::anyhow!("{}{mistake}", numbered(at, inputs.len())))
    };
    let inputs = inputs.iter().enumerate().map(read);
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let answers = || {
        let first = inputs.first().context("there is no round")?;
        let context = BuildContext::new(task(first)?, Stream::root(seed));
        let mut part = Part::make(&parts, decl.role, &context)?;
        let last = inputs.len();
        let mut answers = Vec::with_capacity(last);
        for (at, input) in inputs.into_iter().enumerate() {
            if at > 0
                && between == Between::Stops
                && let Some(state) = part.save()?
            {
                part = Part::make(&parts, decl.role, &context)?;
                part.load(&state)
                    .with_context(|| format!("round {}: loading its state", at + 1))?;
            }
            let stream = match at {
                0 => context.stream.clone(),
                _ => context.stream.child("round", at as u64 + 1),
            };
            let number = at + 1;
            let name = format!("round {number}");
            let round = Round::new(name, number, number == last, stream, Arc::new(Serial));
            let answer = part.answer(&round, input);
            answers.push(match last {
                1 => answer?,
                _ => answer.with_context(|| format!("round {number}"))?,
            });
        }
        Ok(answers)
    };
    guarded(decl, answers)
}

/// `round 2: `, where there is more than one.
fn numbered(at: usize, of: usize) -> String {
    match of {
        1 => String::new(),
        _ => format!("round {}: ", at + 1),
    }
}

/// What the part answers to `input`, or to each input in its `rounds`.
///
/// # Errors
/// Everything that is wrong: settings, or what the part says against an input.
pub fn trial(decl: &'static PartDecl, given: &Value, input: Json, seed: u64) -> Result<Json> {
    match input {
        Json::Object(mut map)
            if map.len() == 1 && map.get("rounds").is_some_and(Json::is_array) =>
        {
            let inputs = map.remove("rounds");
            let inputs = inputs
                .as_ref()
                .and_then(Json::as_array)
                .into_iter()
                .flatten();
            let inputs: Vec<Json> = inputs.cloned().collect();
            let answers = rounds(decl, given, &inputs, seed, Between::Nothing)?;
            Ok(json!({ "rounds": answers }))
        }
        input => {
            let mut answers = rounds(decl, given, &[input], seed, Between::Nothing)?;
            Ok(answers.pop().unwrap_or_default())
        }
    }
}
