//! `stop-when`: rounds that end early.
use crate::common::{fails, fl, flat, json, out, quick};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// FedAvg that would take 40 rounds, and ends when its accuracy no longer improves by 0.02.
const STOPS: [&str; 4] = [
    "--set",
    "protocol.rounds=40",
    "--set",
    "stop-when={metric: accuracy, patience: 2, min-change: 0.02}",
];

fn args<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &["run", "--json", "--out", "run"],
        &STOPS[..],
        more,
        &[name],
    ]
    .concat()
}

fn accuracies(run: &Path) -> Vec<(u64, f64)> {
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let measured = lines.filter(|m: &Value| m["name"] == "accuracy");
    measured
        .map(|m| (m["round"].as_u64().unwrap(), m["value"].as_f64().unwrap()))
        .collect()
}

#[test]
fn rounds_end_when_the_measure_no_longer_improves() {
    let d = tempfile::tempdir().unwrap();
    let spec = quick("fedavg");
    let ran = json(d.path(), &args(&spec, &[]));
    let measured = accuracies(&d.path().join("run"));
    // the rule, once more: two evaluations in a row without a gain of 0.02 over the best
    let (mut best, mut since, mut last) = (f64::NEG_INFINITY, 0, 0);
    for (round, value) in &measured {
        last = *round;
        if *value - best >= 0.02 {
            (best, since) = (*value, 0)
        } else {
            since += 1
        }
        if since == 2 {
            break;
        }
    }
    assert!(last > 2 && last < 40, "{measured:?}");
    assert_eq!(
        (ran["rounds"].as_u64(), measured.last().unwrap().0),
        (Some(last), last)
    );
    let summary = fs::read_to_string(d.path().join("run/outcome.json")).unwrap();
    assert!(summary.contains(&format!(
        "round {last} of 40 is the last: `accuracy` did not improve by 0.02 in 2 evaluations"
    )));
    // a run of that many rounds sends and measures the same
    let rounds = format!("protocol.rounds={last}");
    let short = json(d.path(), &["run", &spec, "--json", "--set", &rounds]);
    assert_eq!(short["digest"], ran["digest"]);
}

#[test]
fn a_run_that_ends_early_does_so_too_after_a_stop() {
    let d = tempfile::tempdir().unwrap();
    let spec = quick("fedavg");
    let whole = json(d.path(), &args(&spec, &[]));
    let last = whole["rounds"].as_u64().unwrap();
    for stop in 1..=last + 1 {
        let (folder, stop) = (format!("at-{stop}"), stop.to_string());
        let first = [
            &["run", &spec, "--stop-after", &stop, "--out", &folder],
            &STOPS[..],
        ]
        .concat();
        out(d.path(), &first);
        if !d.path().join(&folder).join("outcome.json").exists() {
            out(d.path(), &["run", "--resume", &folder]);
        }
        let text = fs::read_to_string(d.path().join(&folder).join("outcome.json")).unwrap();
        let done: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            done["outcome"]["digest"], whole["digest"],
            "stopped after {stop}"
        );
    }
}

#[test]
fn evaluations_that_are_skipped_do_not_count_and_the_last_round_has_one() {
    let d = tempfile::tempdir().unwrap();
    let spec = quick("fedavg");
    let ran = json(d.path(), &args(&spec, &["--set", "evaluate.every=3"]));
    let measured = accuracies(&d.path().join("run"));
    assert!(
        measured
            .iter()
            .all(|(round, _)| round % 3 == 0 || *round == 1),
        "{measured:?}"
    );
    assert_eq!(
        ran["rounds"].as_u64(),
        measured.last().map(|(round, _)| *round)
    );
}

#[test]
fn a_measure_that_rounds_lack_is_said_and_an_accountant_refuses_the_rule() {
    let d = tempfile::tempdir().unwrap();
    let spec = quick("fedavg");
    // a part may measure it, and this one does not
    let rule = "stop-when={metric: aggregator.left-out, patience: 1}";
    let o = fl(d.path(), &["run", &spec, "--set", rule]);
    let error = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success());
    let told = "no round measured `aggregator.left-out`; rounds measured accuracy";
    assert!(flat(&error).contains(told), "{error}");
    let rule = "stop-when={metric: acuracy, patience: 1}";
    let (code, error) = fails(d.path(), &["run", &spec, "--set", rule]);
    assert!(code == 2 && error.contains("measures `acuracy`"), "{error}");

    let private = quick("dp-fedavg");
    let (code, error) = fails(d.path(), &["check", &private, "--set", rule]);
    assert_eq!(code, 2, "{error}");
    assert!(
        flat(&error).contains("stop-when: does not go with parts.accountant"),
        "{error}"
    );
    let (code, error) = fails(
        d.path(),
        &[
            "check",
            &spec,
            "--set",
            "stop-when={metric: accuracy, patience: 0}",
        ],
    );
    assert_eq!(code, 2);
    assert!(error.contains("patience"), "{error}");
}

#[test]
fn a_loss_that_falls_does_not_end_the_rounds() {
    let d = tempfile::tempdir().unwrap();
    let spec = quick("fedavg");
    let rounds = |rule: &str| {
        let rule = format!("stop-when={{metric: training-loss, patience: 2{rule}}}");
        let ran = json(
            d.path(),
            &[
                "run",
                "--json",
                &spec,
                "--set",
                "protocol.rounds=8",
                "--set",
                &rule,
            ],
        );
        ran["rounds"].as_u64().unwrap()
    };
    assert_eq!(rounds(""), rounds(", better: lower"));
    assert!(rounds("") > rounds(", better: higher"));
}

const TUNED: &str = "name: tuned
seed: 3
data: { set: { blobs: { classes: 4, features: 5, train: 60, test: 20 } }, clients: 4 }
stop-when: { metric: accuracy, patience: 1 }
protocol: { use: fedavg, rounds: 9, local: { epochs: 1, batch: 8 }, tune: { epochs: 1, batch: 8 } }
parts: { model: { use: linear, lr: 0.1 }, aggregator: { use: mean } }
";

#[test]
fn exact_a_run_that_ended_early_counts_the_steps_that_it_took() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    fs::write(dir.join("tuned.yaml"), TUNED).unwrap();
    let early = json(dir, &["run", "tuned.yaml", "--json"]);
    let folder = dir.join(early["out"].as_str().unwrap());
    let journal = fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    let steps: std::collections::BTreeSet<String> = journal
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["step"].to_string())
        .collect();
    let outcome = fs::read_to_string(folder.join("outcome.json")).unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    assert!(steps.len() < 10, "{steps:?}");
    assert_eq!(outcome["outcome"]["rounds"], steps.len());
    // the same after a stop at every step
    for after in 1..steps.len() {
        let (stop, out_dir) = (after.to_string(), format!("stopped-{after}"));
        let begun = [
            "run",
            "tuned.yaml",
            "--stop-after",
            &stop,
            "--out",
            &out_dir,
        ];
        out(dir, &begun);
        let resumed = json(dir, &["run", "--resume", &out_dir, "--json"]);
        assert_eq!(resumed["digest"], early["digest"], "{after}");
        let again = fs::read_to_string(dir.join(&out_dir).join("outcome.json")).unwrap();
        let again: Value = serde_json::from_str(&again).unwrap();
        assert_eq!(again["outcome"]["rounds"], steps.len(), "{after}");
    }
    let folder = folder.display().to_string();
    let more = ["run", "--resume", &folder, "--set", "protocol.rounds=20"];
    let (_, error) = fails(dir, &more);
    assert!(
        flat(&error).contains("if `stop-when` ended its rounds"),
        "{error}"
    );
}

#[test]
fn exact_a_run_with_a_step_after_its_rounds_gets_more_of_them_whatever_its_checkpoints() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let text = TUNED.replace("stop-when: { metric: accuracy, patience: 1 }\n", "");
    let text = text.replace("rounds: 9", "rounds: 6");
    fs::write(dir.join("six.yaml"), &text).unwrap();
    let six = json(dir, &["run", "six.yaml", "--json"]);
    for every in ["{ rounds: 1 }", "{ rounds: 2 }", "{ seconds: 20 }"] {
        let four = text.replace("rounds: 6", "rounds: 4");
        let four = format!("{four}checkpoint: {{ every: {every} }}\n");
        fs::write(dir.join("four.yaml"), four).unwrap();
        let run = json(dir, &["run", "four.yaml", "--json"]);
        let folder = run["out"].as_str().unwrap();
        let more = [
            "run",
            "--resume",
            folder,
            "--set",
            "protocol.rounds=6",
            "--json",
        ];
        assert_eq!(json(dir, &more)["digest"], six["digest"], "{every}");
    }
}
