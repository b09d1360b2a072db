//! `fl doctor`: what this machine has for a run.

use crate::{DataDir, Done, Failure, either};
use clap::Args;
use serde_json::{Value, json};
use std::process::Command;

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    place: DataDir,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Says what is there. Fails when a card does not give the processor's numbers.
pub fn doctor(args: &DoctorArgs) -> Done {
    let cards = cards();
    let wrong = cards["cards"].as_array().into_iter().flatten();
    let wrong = wrong.filter(|card| !card["wrong"].is_null()).count();
    let dir = args.place.path();
    let all = json!({
        "fl": env!("CARGO_PKG_VERSION"),
        "threads": fl_engine::threads(None),
        "data": { "folder": dir.display().to_string(), "there": dir.is_dir() },
        "cuda": cards,
        "python": python(),
    });
    either(args.json, &all, text(&all))?;
    match wrong {
        0 => Ok(()),
        n => Err(Failure::Failed(anyhow::anyhow!(
            "{n} cards do not give the processor's numbers; use `device: cpu`"
        ))),
    }
}

#[cfg(feature = "plugins")]
fn cards() -> Value {
    let one = |card: fl_plugin_trainer_dfdx::CardReport| {
        json!({
            "index": card.index,
            "name": card.name,
            "capability": format!("{}.{}", card.capability.0, card.capability.1),
            "driver": format!("{}.{}", card.version / 1000, card.version % 1000 / 10),
            "wrong": card.wrong,
        })
    };
    match fl_plugin_trainer_dfdx::cards() {
        Ok(found) => json!({ "cards": found.into_iter().map(one).collect::<Vec<_>>() }),
        Err(why) => json!({ "cards": [], "why": format!("{why:#}") }),
    }
}

/// No part that is linked uses a card.
#[cfg(not(feature = "plugins"))]
fn cards() -> Value {
    json!({ "cards": [], "why": "this program links no trainer that uses cards" })
}

/// Versions of Python, of the wheel and of Flower, where they are.
fn python() -> Value {
    const ASK: &str = "import json, platform\n\
        from importlib.metadata import version, PackageNotFoundError\n\
        def of(name):\n    \
            try: return version(name)\n    \
            except PackageNotFoundError: return None\n\
        print(json.dumps({'version': platform.python_version(), \
            'wheel': of('fl-federated'), 'flower': of('flwr')}))";
    let done = Command::new("python3").args(["-c", ASK]).output();
    let said = done.ok().filter(|done| done.status.success());
    said.and_then(|done| serde_json::from_slice(&done.stdout).ok())
        .unwrap_or(Value::Null)
}

fn text(all: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "not installed".into(),
        other => other.to_string(),
    };
    let data = &all["data"];
    let there = match data["there"].as_bool() {
        Some(true) => "",
        _ => " (not found; `fl data list` shows its contents)",
    };
    let mut lines = vec![
        format!("fl       {}, {} threads", word(&all["fl"]), all["threads"]),
        format!("data     {}{there}", word(&data["folder"])),
    ];
    for card in all["cuda"]["cards"].as_array().into_iter().flatten() {
        let [name, capability, driver] = ["name", "capability", "driver"].map(|k| word(&card[k]));
        let check = match card["wrong"].as_str() {
            None => "gives the processor's numbers".to_string(),
            Some(why) => format!("WRONG: {why}"),
        };
        lines.push(format!(
            "cuda:{}   {name}, compute capability {capability}, driver for CUDA {driver}: {check}",
            card["index"]
        ));
    }
    if let Some(why) = all["cuda"]["why"].as_str() {
        lines.push(format!("cuda     none: {why}"));
    }
    let python = &all["python"];
    if python.is_null() {
        lines.push("python   not found as `python3`".into())
    } else {
        lines.push(format!(
            "python   {}; wheel fl-federated: {}; Flower: {}",
            word(&python["version"]),
            word(&python["wheel"]),
            word(&python["flower"])
        ))
    }
    lines.join("\n")
}
