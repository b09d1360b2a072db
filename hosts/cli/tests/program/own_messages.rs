//! A message that only a library declares, in Rust and in C: `fl try`, `fl test`, the conformance
//! kit and `fl inspect` treat it like any other.

use crate::common::{fails, fl, flat, json, out};
use crate::library;
use serde_json::json;
use std::fs;
use std::path::Path;

/// The libraries: language, first part of the names of its parts, file.
fn libraries(dir: &Path) -> Vec<(&'static str, &'static str, String)> {
    let path = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let mut all = vec![("Rust", "rs", path(&library::beside("fl_stateful")))];
    if library::cc() {
        let made = dir.join("spreads.so");
        let source = crate::common::root().join("hosts/cli/tests/program/spreads.c");
        library::compile(&source, &made, &["-Werror"]);
        all.push(("C", "c", path(&made)));
    }
    all
}

fn message(from: u32, spread: serde_json::Value, moves: serde_json::Value) -> serde_json::Value {
    json!({ "from": from, "tensors": { "spread": spread, "moves": moves } })
}

#[test]
fn exact_try_answers_with_a_message_of_a_library() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (language, short, library) in libraries(dir) {
        let asked = |role: &str, part: &str, input: serde_json::Value| {
            fs::write(dir.join("in.json"), input.to_string()).unwrap();
            let part = format!("{short}-{part}");
            let args = ["try", role, &part, "--input", "in.json"];
            json(
                dir,
                &[&args[..], &["--seed", "3", "--plugin", &library]].concat(),
            )
        };
        let messages = json!({ "messages": [
            message(0, json!([[-1, 2.5], [0.25, 0.5]]), json!([3, -1])),
            message(4, json!([[-0.5, 4], [-7, 0]]), json!([-1, 1])),
        ] });
        let found = asked("aggregator", "widest", messages);
        let tensors = json!({ "spread": [[-1.0, 4.0], [-7.0, 0.5]], "moves": [2, 0] });
        let due = json!({ "kind": "test-spreads", "tensors": tensors });
        assert_eq!(found, due, "{language}");
        let release = json!({ "tensors": { "spread": [[-3, 0.5]], "moves": [9] } });
        let found = asked("privacy", "blur", release);
        let bounded = json!({ "spread": [[-1.0, 0.5]], "moves": [0] });
        assert_eq!(found["bounded"], bounded, "{language}");
        let event = json!({ "Laplace": { "sensitivity": 4.0, "scale": 1.0, "unit": "party" } });
        assert_eq!(found["event"], event, "{language}");
        let noisy = found["tensors"]["spread"].to_string();
        assert_ne!(noisy, "[[-1.0,0.5]]", "{language}");
    }
}

#[test]
fn mistakes_in_a_message_of_a_library_are_named() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let ragged = json!({ "spread": [[1, 2, 3]], "moves": [1] });
    let long = json!({ "spread": [[1, 2]], "moves": [1, 2] });
    let broken = json!({ "spread": [[1, 2]], "moves": [1.5] });
    let short_of = json!({ "spread": [[1, 2]] });
    let other = json!({ "spread": [[1, 2]], "moves": [1], "turns": [1] });
    let endless = json!({ "spread": [["inf", 2]], "moves": [1] });
    for (language, short, library) in libraries(dir) {
        for (tensors, why) in [
            (&ragged, "`spread` is [1, 3] where `rows x 2` was due"),
            (&long, "`moves` is [2] where `rows` was due"),
            (
                &broken,
                "tensor `moves`: 64-bit whole numbers are due, found 1.5",
            ),
            (&short_of, "no tensor `moves`"),
            (&other, "tensor `turns`: there is no such tensor"),
            (&endless, "`spread` holds inf at position 0"),
        ] {
            let input = json!({ "messages": [{ "from": 0, "tensors": tensors }] });
            fs::write(dir.join("in.json"), input.to_string()).unwrap();
            let part = format!("{short}-widest");
            let args = ["try", "aggregator", &part, "--input", "in.json"];
            let (code, error) = fails(dir, &[&args[..], &["--plugin", &library]].concat());
            assert!(
                code == 2 && flat(&error).contains(why),
                "{language}: {tensors}: {error}"
            );
        }
    }
}

#[test]
fn the_kit_and_files_of_cases_take_a_message_of_a_library() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (language, short, library) in libraries(dir) {
        for part in ["widest", "blur"] {
            let part = format!("{short}-{part}");
            let text = out(dir, &["test", "--conformance", &part, "--plugin", &library]);
            assert!(text.contains("1 fine, 0 different"), "{language}: {text}");
        }
        let low = |low: &str| {
            format!(
                "plugins: [{{ path: {library} }}]\ncases:\n  - name: two\n    part: aggregator {short}-widest\n    tolerance: {{ tensors.spread: {{ abs: 0.1 }} }}\n    input:\n      messages:\n        - {{ from: 0, tensors: {{ spread: [[{low}, 2]], moves: [1] }} }}\n        - {{ from: 1, tensors: {{ spread: [[0, 3]], moves: [2] }} }}\n"
            )
        };
        let case = |text: &str| fs::write(dir.join("a.cases.yaml"), text).unwrap();
        case(&low("-1.0"));
        assert!(
            out(dir, &["test", ".", "--accept"]).contains("1 accepted"),
            "{language}"
        );
        assert!(out(dir, &["test", "."]).contains("1 fine"), "{language}");
        case(&low("-1.05"));
        assert!(out(dir, &["test", "."]).contains("1 fine"), "{language}");
        case(&low("-2.0"));
        let differs = fl(dir, &["test", "."]);
        let text = String::from_utf8_lossy(&differs.stdout).into_owned();
        assert_eq!(differs.status.code(), Some(1), "{language}: {text}");
        let due =
            "tensors.spread: 1 of 2 numbers differs; worst at [0, 0]: expected -1.0, found -2.0";
        assert!(text.contains(due), "{language}: {text}");
        let shown = out(
            dir,
            &["inspect", &format!("{short}-widest"), "--plugin", &library],
        );
        assert!(
            shown.contains("test-spreads -> test-spreads"),
            "{language}: {shown}"
        );
        let kind = ["inspect", "test-spreads", "--plugin", &library];
        let kind = flat(&out(dir, &kind));
        assert!(
            kind.contains("test-spreads: a kind of message, from"),
            "{language}: {kind}"
        );
        assert!(kind.contains("spread f64 [rows x 2]"), "{language}: {kind}");
        fs::remove_file(dir.join("a.cases.answers.json")).unwrap();
    }
}
