//! What a budget does to a run.

use crate::common::{fails, fl, flat, json, root};
use serde_json::Value;
use std::fs;

#[test]
fn a_budget_ends_the_run_with_the_last_model_that_was_paid_for() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root()
        .join("specs/quick/dp-fedavg.yaml")
        .display()
        .to_string();
    let run = |name: &str, set: &str| {
        let args = ["run", &spec, "--out", name, "--json", "--set", set];
        json(dir.path(), &args)
    };
    let model = |name: &str| fs::read(dir.path().join(name).join("models/model")).unwrap();
    let five = run("five", "protocol.rounds=5");
    let epsilon = five["privacy"]["readers"]["epsilon"].as_f64().unwrap();
    let ended = run("ended", &format!("budget.epsilon={}", epsilon + 1e-6));
    assert_eq!(
        ended["privacy"]["readers"]["epsilon"].as_f64().unwrap(),
        epsilon
    );
    assert_eq!(model("five"), model("ended"));
    // a client without a payment is not asked either
    assert_eq!(five["bytes"], ended["bytes"]);
    // the model that is kept is the one that was measured last, whenever that was due
    assert_eq!(five["metrics"], ended["metrics"]);
    let budget = format!("budget.epsilon={}", epsilon + 1e-6);
    let args = [
        "run",
        &spec,
        "--out",
        "seldom",
        "--json",
        "--set",
        &budget,
        "--set",
        "evaluate.every=4",
    ];
    assert_eq!(five["metrics"], json(dir.path(), &args)["metrics"]);
    let curve = fs::read_to_string(dir.path().join("seldom/metrics.jsonl")).unwrap();
    let last = curve.lines().last().unwrap();
    assert!(last.starts_with("{\"step\":\"round 5\""), "{curve}");
    let report = fs::read_to_string(dir.path().join("ended/report.md")).unwrap();
    assert!(
        report.contains("the budget ends the run before round 6"),
        "{report}"
    );
}

#[test]
fn a_budget_ends_dp_sgd_with_the_last_model_that_was_paid_for() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/dp-sgd.yaml");
    let spec = spec.to_str().unwrap();
    let run = |name: &str, set: &str| {
        let args = ["run", spec, "--out", name, "--json", "--set", set];
        json(dir.path(), &args)
    };
    let model = |name: &str| fs::read(dir.path().join(name).join("models/model")).unwrap();
    let three = run("three", "protocol.rounds=3");
    let epsilon = three["privacy"]["server"]["epsilon"].as_f64().unwrap();
    let ended = run("ended", &format!("budget.epsilon={}", epsilon * 1.0001));
    assert_eq!(
        ended["privacy"]["server"]["epsilon"].as_f64().unwrap(),
        epsilon
    );
    assert_eq!(model("three"), model("ended"));
    let report = fs::read_to_string(dir.path().join("ended/report.md")).unwrap();
    assert!(
        report.contains("the budget ends the run before round 4"),
        "{report}"
    );
}

/// Every protocol of rounds ends so: here labels are paid for one by one, and the third round's
/// first is one too many.
#[test]
fn a_budget_ends_distillation_with_the_last_labels_that_were_paid_for() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/ds-fl.yaml");
    let run = |name: &str, sets: &[&str]| {
        let mut args = vec!["run", spec.to_str().unwrap(), "--out", name, "--json"];
        // the server gets labels only
        args.extend(["--set", "protocol.evaluate-clients=false"]);
        sets.iter().for_each(|set| args.extend(["--set", set]));
        json(dir.path(), &args)
    };
    let two = run("two", &["protocol.rounds=2"]);
    let epsilon = two["privacy"]["server"]["epsilon"].as_f64().unwrap();
    let budget = format!("budget={{epsilon: {}, against: server}}", epsilon + 0.1);
    let ended = run("ended", &[&budget, "evaluate.every=3"]);
    // also what is measured within a round only
    assert!(two["metrics"]["taught.samples"].is_number(), "{two}");
    assert_eq!(two["metrics"], ended["metrics"]);
    // the third round's request was sent, and no client answered it
    assert_eq!(two["bytes"]["up"], ended["bytes"]["up"]);
    assert!(two["bytes"]["down"].as_u64() < ended["bytes"]["down"].as_u64());
    assert_eq!(
        ended["privacy"]["server"]["epsilon"].as_f64().unwrap(),
        epsilon
    );
    let model = |name: &str| fs::read(dir.path().join(name).join("models/student")).unwrap();
    assert_eq!(model("two"), model("ended"));
    // not even one round is paid for: there is no result
    let sets = [
        "run",
        spec.to_str().unwrap(),
        "--set",
        "protocol.evaluate-clients=false",
        "--set",
        "budget={epsilon: 0.5, against: server}",
    ];
    let (code, said) = fails(dir.path(), &sets);
    assert!(
        code == 1 && said.contains("round 1: ") && said.contains("of a budget of 0.5"),
        "{said}"
    );
    // which going on would not change
    assert!(!said.contains("--resume"), "{said}");
}

/// Clients whose releases cost less are paid for in the round that ends the run as well: what they
/// sent was sent.
#[test]
fn what_was_sent_in_a_round_that_is_not_paid_for_is_charged() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/fedmd-nfdp.yaml");
    let run = |name: &str, sets: &[&str]| {
        let mut args = vec!["run", spec.to_str().unwrap(), "--out", name, "--json"];
        let unlike = [
            "parts.sampling=[{clients: 0-1, use: sample-examples, k: 4, min-examples: 139}, {use: sample-examples, k: 5, min-examples: 139}]",
            "protocol.resample=true",
            "budget.against=server",
        ];
        let sets = unlike.iter().chain(sets);
        sets.for_each(|set| args.extend(["--set", set]));
        json(dir.path(), &args)
    };
    let of = |run: &Value| run["privacy"]["server"]["epsilon"].as_f64().unwrap();
    let lines = |name: &str| -> Vec<Value> {
        let journal = fs::read_to_string(dir.path().join(name).join("journal.jsonl")).unwrap();
        let lines = journal.lines().map(|l| serde_json::from_str(l).unwrap());
        lines.collect()
    };
    let ended = run("ended", &["protocol.rounds=12", "budget.epsilon=0.14"]);
    let last = lines("ended").pop().unwrap();
    // clients 0 and 1 answered before the third refused
    assert_eq!(last["step"], "round 3");
    assert_eq!(last["dropped"][0][0], 2, "{last}");
    assert!(last["bytes_up"]["values"].as_u64().unwrap() > 0, "{last}");
    let two = run("two", &["protocol.rounds=2", "budget.epsilon=1"]);
    let three = run("three", &["protocol.rounds=3", "budget.epsilon=1"]);
    assert!(of(&two) < of(&ended) && of(&ended) < 0.14, "{ended}");
    // the dearest client that answered costs less than the dearest of all
    assert!(of(&ended) < of(&three), "{ended}");
    assert_eq!(two["metrics"], ended["metrics"]);
}

#[test]
fn a_budget_below_the_first_release_is_told_by_a_check() {
    let told = |spec: &str, epsilon: f64| {
        let spec = format!("specs/quick/{spec}.yaml");
        let set = format!("budget={{epsilon: {epsilon}}}");
        let said = fl(&root(), &["check", &spec, "--set", &set]);
        let notes = flat(&String::from_utf8_lossy(&said.stderr));
        assert!(said.status.success(), "{notes}");
        notes.contains("the run stops before it releases anything")
    };
    for spec in ["dp-fedavg", "dp-sgd"] {
        assert!(told(spec, 1e-3), "{spec}");
        assert!(!told(spec, 100.0), "{spec}");
    }
}
