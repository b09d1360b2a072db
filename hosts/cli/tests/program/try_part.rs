//! `fl try`: every part of the three roles answers to JSON, and nothing that is in a file makes it
//! fail otherwise than with an error.

use crate::common::{fails, json};
use fl_conformance::{Case, Values, classes};
use fl_core::message::{message_type, to_json};
use fl_core::{PartDecl, Role, Stream, linked_parts};
use fl_plugins as _;
use serde_json::{Value as Json, json};
use std::fs;

/// Settings for parts that have none by default.
const SETTINGS: &[(&str, &str)] = &[
    ("laplace-counts", "{scale: 4}"),
    ("q-fair-mean", "{lr: 0.1}"),
    ("laplace-votes", "{gamma: 0.5}"),
    ("gaussian-votes", "{sigma: 2.0}"),
    ("confident-votes", "{threshold: 1, check: 0.5, sigma: 0.5}"),
    ("gaussian-labels", "{sigma: 2.0}"),
    ("laplace-labels", "{scale: 0.5}"),
    ("sample-examples", "{share: 0.5}"),
];

/// Three messages of this kind as `fl try` reads them.
fn letters(kind: &str) -> Vec<Json> {
    let of = message_type(kind).unwrap_or_else(|| panic!("no message `{kind}`"));
    let case = Case {
        number: 2,
        clients: 3,
        values: Values::Plain,
    };
    let mut draws = Stream::root(5).child("letters", 0).draws();
    let bodies = case.messages_of(of, &mut draws).into_iter().enumerate();
    bodies
        .map(|(k, m)| {
            let counts = vec![2; classes(&*m)];
            json!({"from": k, "weight": 1 + k, "class_counts": counts, "training_loss": 0.5, "tensors": to_json(&*m)})
        })
        .collect()
}

/// What to give a part of this role and signature.
fn input(role: Role, signature: &str) -> Json {
    let rows = json!([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2], [0.3, 0.7]]);
    let own = json!({"samples": rows, "classes": [1, 0, 0, 1]});
    match (role, signature) {
        (Role::Aggregator | Role::Attack, _) => {
            let kind = signature.split(" -> ").next().unwrap();
            let all = letters(kind);
            json!({"messages": all, "sent": all[0]["tensors"]})
        }
        (Role::Privacy, kind) => json!({"tensors": letters(kind)[0]["tensors"], "clients": 10}),
        (_, "clients") => {
            let told = |id, samples, loss| json!({"id": id, "samples": samples, "loss": loss});
            json!({"clients": [told(0, 100, 0.5), told(4, 50, 0.1), told(7, 1, 2.0)]})
        }
        (_, "samples") => json!({"samples": rows, "own": own}),
        (_, "soft-labels") => json!({"tensors": {"rows": [0, 1, 2, 3], "values": rows}}),
        (role, signature) => panic!("{role} `{signature}` has no input here"),
    }
}

#[test]
fn every_linked_aggregator_selector_and_mechanism_answers() {
    let dir = tempfile::tempdir().unwrap();
    let mut tried = 0;
    // the example is linked to these tests, not to the program
    let own = |part: &&PartDecl| part.origin != "fl-plugin-example-dynamic";
    for part in linked_parts().into_iter().filter(own) {
        let word = match part.role {
            Role::Aggregator => "aggregator",
            Role::Selector => "selector",
            Role::Privacy => "privacy",
            Role::Attack => "attack",
            _ => continue,
        };
        let signature = (part.describe)().signature;
        fs::write(
            dir.path().join("in.json"),
            input(part.role, &signature).to_string(),
        )
        .unwrap();
        let settings = SETTINGS.iter().find(|(name, _)| *name == part.name);
        let settings = settings.map_or("{}", |(_, yaml)| yaml);
        let rest = ["--settings", settings, "--input", "in.json"];
        let answer = json(dir.path(), &[&["try", word, part.name][..], &rest].concat());
        let field = match part.role {
            Role::Selector => "positions",
            _ => "tensors",
        };
        assert!(!answer[field].is_null(), "{word} `{}`: {answer}", part.name);
        tried += 1;
    }
    assert!(tried >= 25, "{tried}");
}

#[test]
fn what_cannot_be_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let messages = |all: Json| json!({ "messages": all });
    let scores = |counts: Json| json!({"from": 0, "class_counts": counts, "tensors": {"rows": [5], "values": [[4, 4]]}});
    let other = |counts: Json| json!({"from": 1, "class_counts": counts, "tensors": {"rows": [5], "values": [[0, 8]]}});
    let votes = |classes: u64| json!({"from": 0, "tensors": {"rows": [0, 1], "labels": [[0], [0]], ".classes": [classes]}});
    let heavy = |k: u32| json!({"from": k, "weight": 1e308, "tensors": {"w": [3.0]}});
    let counts = |about: Json| json!({"tensors": {"rows": [0], "values": [[1e308, -1e308]], ".about": about}});
    let laplace = "{gamma: 0.5}";
    for (role, name, settings, input, says) in [
        (
            "aggregator",
            "class-weighted",
            "{}",
            messages(json!([scores(json!([1, 2])), other(json!([1]))])),
            "client 1: examples of 1 classes",
        ),
        (
            "aggregator",
            "class-weighted",
            "{}",
            messages(json!([scores(json!([1, 2, 3]))])),
            "there are 2",
        ),
        (
            "aggregator",
            "class-weighted",
            "{}",
            messages(json!([scores(json!(null))])),
            "it needs the examples per class of each client",
        ),
        (
            "aggregator",
            "majority-vote",
            "{}",
            messages(json!([votes(4_294_967_295)])),
            "at most 67108864 counts",
        ),
        (
            "aggregator",
            "consistent-vote",
            "{}",
            messages(json!([votes(0)])),
            "there are 0 classes",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            messages(json!([heavy(0), heavy(1)])),
            "beyond 64-bit floats",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            messages(json!([heavy(0)])),
            "its output: `w` holds inf",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            messages(json!([])),
            "messages: must have an answer of at least one client",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            messages(json!([{"from": 0, "tensors": {"w": [1e300]}}])),
            "holds inf",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            messages(json!([{"from": 0, "tensors": {"w": [[1], [2, 3]]}}])),
            "differ in length",
        ),
        (
            "privacy",
            "laplace-votes",
            laplace,
            counts(json!([1, 0])),
            "four numbers",
        ),
        (
            "privacy",
            "laplace-votes",
            laplace,
            counts(json!([1, 0, 0, -1])),
            "whole numbers",
        ),
        (
            "privacy",
            "laplace-votes",
            laplace,
            json!({"tensors": {"rows": [0], "values": [[1]]}, "clients": 0}),
            "at least 1",
        ),
        (
            "privacy",
            "laplace-votes",
            laplace,
            json!({"tensors": {"rows": [0, 1], "values": [[1]]}}),
            "2 ids for 1 rows",
        ),
        (
            "privacy",
            "sample-examples",
            "{k: 5}",
            json!({"tensors": {"ids": [1, 2.5]}}),
            "found 2.5",
        ),
        (
            "selector",
            "unambiguous",
            "{}",
            json!({"tensors": {"rows": [0], "values": [["nan", 1]]}}),
            "holds NaN",
        ),
        (
            "selector",
            "density-ratio",
            "{}",
            json!({"samples": 3}),
            "is one number",
        ),
        (
            "selector",
            "density-ratio",
            "{}",
            json!({"samples": [[1], [2]], "own": {"samples": [[1]], "classes": [4_000_000_000u32]}}),
            "at most 65536",
        ),
        (
            "selector",
            "uniform",
            "{}",
            json!({"clients": [{"id": 0, "samples": -1}]}),
            "invalid value",
        ),
        (
            "trainer",
            "linear",
            "{}",
            json!({}),
            "missing field `samples`",
        ),
        (
            "trainer",
            "linear",
            "{}",
            json!({"samples": [[1]], "classes": [0], "scores": [[1]]}),
            "one target: `classes`, `labels` or `scores`",
        ),
        (
            "trainer",
            "linear",
            "{}",
            json!({"samples": [[1], [2]], "classes": [0]}),
            "2 samples and 1 targets",
        ),
        (
            "trainer",
            "linear",
            "{}",
            json!({"samples": [[1]], "classes": [0], "loss": "mea"}),
            "`loss` must be cross-entropy, mae, mse, huber, norm or kl, got `mea`",
        ),
        (
            "trainer",
            "linear",
            "{}",
            json!({"samples": [[1]], "classes": [4_000_000_000u32]}),
            "`outputs` must be in 1..=65536",
        ),
        (
            "generator",
            "noise-to-input",
            "{net: affine}",
            json!({"count": 4_000_000_000u32}),
            "`count` must be in 1..=65536",
        ),
        (
            "generator",
            "noise-to-input",
            "{net: affine}",
            json!({"count": 1, "shape": [4_000_000_000u32, 4_000_000_000u32, 4]}),
            "`shape` must be the sizes of one input",
        ),
        (
            "generator",
            "noise-to-input",
            "{net: affine}",
            json!({"count": 1, "shape": [2], "slopes": [[1]]}),
            "`slopes` must have a number for each number",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            json!({"rounds": []}),
            "there is no round",
        ),
        (
            "aggregator",
            "mean",
            "{}",
            json!({"rounds": [{"messages": [{"from": 0, "tensors": {"w": [1]}}]}, {"messages": [{"form": 0}]}]}),
            "round 2: messages[0].form: unknown field `form`",
        ),
        (
            "protocol",
            "fedavg",
            "{}",
            json!({}),
            "no input for a protocol",
        ),
    ] {
        fs::write(dir.path().join("in.json"), input.to_string()).unwrap();
        let (code, error) = fails(
            dir.path(),
            &[
                "try",
                role,
                name,
                "--settings",
                settings,
                "--input",
                "in.json",
            ],
        );
        assert_eq!(code, 2, "{name} {input}: {error}");
        assert!(
            error.contains(says) && !error.contains("panicked"),
            "{name} {input}: {error}"
        );
    }
    // whatever else is in a file: an answer or an error, and no crash
    for text in [
        "",
        "[",
        "null",
        "[1]",
        "{\"messages\": 3}",
        &"[".repeat(10_000),
        "{\"tensors\": {}}",
        "{\"messages\": [{\"from\": 0, \"tensors\": {}}]}",
    ] {
        fs::write(dir.path().join("in.json"), text).unwrap();
        for (role, name) in [
            ("aggregator", "mean"),
            ("privacy", "laplace-logits"),
            ("selector", "uniform"),
            ("accountant", "basic"),
        ] {
            let done = crate::common::fl(dir.path(), &["try", role, name, "--input", "in.json"]);
            let error = String::from_utf8_lossy(&done.stderr);
            assert!(
                matches!(done.status.code(), Some(0 | 2)),
                "{name} {text}: {error}"
            );
        }
    }
}

#[test]
fn a_release_of_more_clients_than_a_spec_may_have_is_refused_by_every_mechanism() {
    let d = tempfile::tempdir().unwrap();
    let mechanisms = linked_parts().into_iter();
    // the example is linked to these tests, not to the program
    let own = |part: &&PartDecl| part.origin != "fl-plugin-example-dynamic";
    let mechanisms = mechanisms
        .filter(|part| part.role == Role::Privacy)
        .filter(own);
    let mut tried = 0;
    for part in mechanisms {
        let kind = (part.describe)().signature;
        let tensors = letters(&kind)[0]["tensors"].clone();
        for clients in [1_000_001, u64::from(u32::MAX), u64::MAX] {
            let input = json!({"tensors": tensors, "clients": clients}).to_string();
            fs::write(d.path().join("in.json"), input).unwrap();
            let settings = SETTINGS.iter().find(|(name, _)| *name == part.name);
            let settings = settings.map_or("{}", |(_, settings)| settings);
            let args = ["try", "privacy", part.name, "--settings", settings];
            let (code, error) = fails(d.path(), &[&args[..], &["--input", "in.json"]].concat());
            let says = "`clients` must be in 1..=1000000";
            assert!(
                code == 2 && error.contains(says),
                "{}: {code}: {error}",
                part.name
            );
        }
        tried += 1;
    }
    assert!(tried > 10);
}
