//! `fl try`: one part's answer to numbers given in JSON.

use crate::{Done, Failure, print};
use clap::Args;
use fl_cases::trial;
use fl_core::settings::Value;
use fl_engine::NotRun;
use fl_registry::Catalogue;
use serde_json::Value as Json;
use std::path::PathBuf;

#[derive(Args)]
pub struct TryArgs {
    /// aggregator, attack, selector, privacy, accountant, trainer or generator.
    role: String,
    /// The part's name in specs.
    name: String,
    /// Its settings, as YAML: `{trim: 0.2}`.
    #[arg(long, default_value = "{}")]
    settings: String,
    /// A JSON file with what the part gets.
    ///
    /// Tensors are nested lists of numbers, with the names of fl-core/MESSAGES.md. By role:
    ///
    /// aggregator: `{"messages": [{"from": 0, "weight": 10, "class_counts": [4, 6],
    /// "training_loss": 0.5, "tensors": {"w": [1, 2]}}]}`, with `"sent": {"w": [0, 0]}` for one
    /// that needs the message sent to clients
    ///
    /// privacy: `{"tensors": {..}, "clients": 10}`
    ///
    /// selector of clients: `{"clients": [{"id": 0, "samples": 100, "loss": 0.5}]}`; of samples:
    /// `{"samples": [[..], ..]}`; of soft labels: `{"tensors": {..}}`. The last two also take a
    /// client's own examples: `"own": {"samples": [[..], ..], "classes": [0, 1, ..]}`
    ///
    /// accountant: `{"events": [{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}]}`
    ///
    /// trainer: `{"samples": [[..], ..], "classes": [0, 1, ..], "epochs": 1, "batch": 32}`, where
    /// `labels` or `scores` may stand for `classes`, and with other samples to `predict`
    ///
    /// generator: `{"count": 4, "shape": [1, 8, 8], "slopes": [[..], ..]}`
    ///
    /// `{"rounds": [.., ..]}` asks the part several times, and it keeps its state.
    #[arg(long)]
    input: PathBuf,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub fn try_part(args: &TryArgs, catalogue: &Catalogue) -> Done {
    let role = fl_cases::role(&args.role).map_err(Failure::usage)?;
    let decl = catalogue.find(role, &args.name).map_err(Failure::usage)?;
    let settings: Value = serde_yaml::from_str(&args.settings)
        .map_err(|e| Failure::usage(format!("--settings: {e}")))?;
    let file = args.input.display();
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{file}: {error}"));
    let text = fl_engine::open(&args.input).and_then(std::io::read_to_string);
    let text = text.map_err(|e| wrong(&e))?;
    let input: Json = serde_json::from_str(&text).map_err(|e| wrong(&format!("not JSON: {e}")))?;
    match trial(decl, &settings, input, args.seed).map_err(Failure::from) {
        Ok(answer) => print(serde_json::to_string(&answer)?),
        Err(Failure::Failed(error)) => Err(wrong(&format!("{error:#}"))),
        Err(Failure::NotRun(NotRun::Usage(text))) => {
            Err(Failure::usage(text.replace("settings: ", "--settings: ")))
        }
        Err(other) => Err(other),
    }
}
