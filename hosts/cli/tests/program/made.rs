//! A run's made inputs as the public samples of another run, and what that costs.

use crate::common::{fails, json, out};
use fl_core::privacy::UpperBound;
use serde_json::Value;
use std::fs;
use std::path::Path;

const TRAIN: &str = "local: { steps: 10, batch: 10 }, sampling: { rate: 0.1 }";
const PRIVATE: &str =
    "example-privacy: { use: gaussian-gradients, noise-multiplier: 2 }, accountant: { use: pld }";

fn write(dir: &Path, name: &str, data: &str, protocol: &str, parts: &str) {
    let linear = "{ use: linear, lr: 0.5 }";
    let text = format!(
        "name: {name}\nseed: 1\ndata: {{ set: {{ blobs: {{ features: 2, train: 600, test: 100 }} }}, clients: 4, split: iid{data} }}\nprotocol: {{ {protocol} }}\nparts: {{ teacher: {linear}, student: {linear}, {parts} }}\n"
    );
    fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
}

/// A run whose generator makes inputs of teachers that learnt by DP-SGD, or without privacy.
fn maker(dir: &Path, name: &str, private: bool) {
    let (train, parts) = if private {
        (TRAIN, PRIVATE)
    } else {
        ("local: { epochs: 2, batch: 10 }", "ensemble: null")
    };
    let protocol = format!(
        "use: generate-and-distill, rounds: 2, steps: 2, batch: 8, terms: {{ gan: 0, balance: 1 }}, weights: uniform, equal-weights: true, {train}"
    );
    let generator = "generator: { use: noise-to-input, noise: 2, net: affine }";
    write(
        dir,
        name,
        "",
        &protocol,
        &format!("{generator}, {parts}").replace(", ensemble: null", ""),
    );
    out(
        dir,
        &["run", &format!("{name}.yaml"), "--out", name, "--quiet"],
    );
    out(dir, &["export", name, "--made", "150"]);
}

fn user(dir: &Path, name: &str, run: &str, more: &str) -> Vec<String> {
    let data =
        format!(", public: {{ from: {{ set: {{ made: {{ run: {run} }} }} }}, size: 100{more} }}");
    let protocol = format!("use: one-shot-distill, student: {{ epochs: 2, batch: 32 }}, {TRAIN}");
    let parts = format!("ensemble: {{ use: mean-logits }}, {PRIVATE}");
    write(dir, name, &data, &protocol, &parts);
    ["run", &format!("{name}.yaml"), "--out", name, "--json"]
        .map(String::from)
        .to_vec()
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Ten steps of DP-SGD made the inputs, and ten more steps answer about them.
#[test]
fn made_inputs_cost_what_their_run_released() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    maker(dir, "maker", true);
    let args = user(dir, "user", "maker", "");
    let answer = json(dir, &strs(&args));
    let account = "account gaussian --sigma 2 --rate 0.1 --times 20 --json";
    let account = json(dir, &account.split(' ').collect::<Vec<_>>());
    let mut all = account["all"].as_array().unwrap().iter();
    let due = &all.find(|one| one["accountant"] == "pld").unwrap()["epsilon"];
    for observer in ["server", "clients", "readers"] {
        assert_eq!(
            &answer["privacy"][observer]["epsilon"], due,
            "{observer}: {answer}"
        );
    }
    let epsilon = format!("epsilon {}", UpperBound(due.as_f64().unwrap()));
    let plan = out(dir, &["plan", "user.yaml"]);
    assert_eq!(plan.matches(&epsilon).count(), 3, "{plan}");
    let page = fs::read_to_string(dir.join("user/report.md")).unwrap();
    assert!(page.contains(&epsilon), "{page}");
    // a study or a ledger over runs finds both in the releases of the second
    let outcome = fs::read_to_string(dir.join("user/outcome.json")).unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    let releases = outcome["releases"]["clients"][0]["events"]
        .as_array()
        .unwrap();
    let times: u64 = releases.iter().map(|e| e[0].as_u64().unwrap()).sum();
    assert_eq!(times, 20, "{releases:?}");
    // a stopped run counts them once
    let stop = [
        "run",
        "user.yaml",
        "--out",
        "cut",
        "--quiet",
        "--stop-after",
        "1",
    ];
    out(dir, &stop);
    let resumed = json(dir, &["run", "--resume", "cut", "--json", "--wire"]);
    assert_eq!(answer["privacy"], resumed["privacy"]);
    // a reader of the first run's spec can draw its noise again
    let hidden = ["--set", "noise=system", "--out", "hidden", "--json"];
    let hidden = json(dir, &[&["run", "user.yaml"], &hidden[..]].concat());
    for observer in ["server", "clients", "readers"] {
        let nothing = hidden["privacy"][observer]["nothing"].to_string();
        assert!(nothing.contains("with noise from its seed"), "{hidden}");
    }
}

#[test]
fn exact_inputs_that_a_run_without_a_guarantee_made_leave_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    maker(dir, "open", false);
    let made = || fs::read(dir.join("open/made.safetensors")).unwrap();
    let first = made();
    out(dir, &["export", "open", "--made", "150"]);
    assert_eq!(first, made(), "the same seed makes the same inputs");
    let args = user(dir, "user", "open", "");
    let answer = json(dir, &strs(&args));
    for observer in ["server", "clients", "readers"] {
        let why = &answer["privacy"][observer]["nothing"][0];
        let why = why.as_str().unwrap_or_default();
        assert!(
            why.ends_with("come from clients' rows, without an accountant"),
            "{answer}"
        );
    }
    // without an accountant nothing is promised
    let plain = fs::read_to_string(dir.join("user.yaml")).unwrap();
    let plain = plain
        .replace(&format!(", {PRIVATE}"), "")
        .replace(TRAIN, "local: { epochs: 2, batch: 10 }");
    fs::write(dir.join("plain.yaml"), plain).unwrap();
    let run = |out: &str| json(dir, &["run", "plain.yaml", "--out", out, "--json"]);
    let (one, two) = (run("one"), run("two"));
    assert_eq!(one["digest"], two["digest"]);
    // other inputs are other data
    out(
        dir,
        &[
            "run",
            "plain.yaml",
            "--out",
            "cut",
            "--quiet",
            "--stop-after",
            "1",
        ],
    );
    out(dir, &["export", "open", "--made", "150", "--seed", "7"]);
    assert_ne!(first, made());
    let (_, text) = fails(dir, &["run", "--resume", "cut"]);
    assert!(text.contains("made.safetensors"), "{text}");
}

#[test]
fn exact_mistakes_with_made_inputs_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    maker(dir, "maker", true);
    let said = |name: &str, run: &str, change: (&str, &str)| {
        let mut args = user(dir, name, run, "");
        args.retain(|arg| arg != "--json");
        let file = dir.join(format!("{name}.yaml"));
        let text = fs::read_to_string(&file)
            .unwrap()
            .replace(change.0, change.1);
        fs::write(file, text).unwrap();
        let text = fails(dir, &strs(&args)).1;
        assert!(!dir.join(name).exists(), "{text}");
        text
    };
    let none = said("a", "nowhere", ("", ""));
    assert!(
        none.contains("nowhere: there is no such run folder"),
        "{none}"
    );
    let budget = said(
        "b",
        "maker",
        (
            "name: b",
            "budget: { epsilon: 9, against: readers }\nname: b",
        ),
    );
    assert!(budget.contains("leave `budget` out"), "{budget}");
    let set = (
        "set: { blobs: { features: 2, train: 600, test: 100 } }",
        "set: { made: { run: maker } }",
    );
    let tested = said("c", "maker", set);
    assert!(
        tested.contains("made inputs are public samples"),
        "{tested}"
    );
    let wide = said("d", "maker", ("features: 2", "features: 3"));
    assert!(wide.contains("[2]") && wide.contains("[3]"), "{wide}");
    let many = said("e", "maker", ("size: 100", "size: 151"));
    assert!(many.contains("150"), "{many}");
    fs::remove_file(dir.join("maker/made.safetensors")).unwrap();
    let empty = said("f", "maker", ("", ""));
    assert!(empty.contains("--made 1000"), "{empty}");
    fs::write(dir.join("maker/made.safetensors"), [0; 9]).unwrap();
    let damaged = said("g", "maker", ("", ""));
    assert!(damaged.contains("is damaged; `fl export"), "{damaged}");
    // what has no generator makes nothing
    out(dir, &["export", "maker", "--made", "150"]);
    let args = user(dir, "user", "maker", "");
    json(dir, &strs(&args));
    let (_, text) = fails(dir, &["export", "user", "--made", "10"]);
    assert!(
        text.contains("no generator that makes inputs from noise"),
        "{text}"
    );
}
