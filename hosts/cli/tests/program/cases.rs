//! `fl test`: parts held to files of cases.
use crate::common::{fails, fl, out, root};
use crate::library;
use std::fs;

const CASES: &str = "cases:
- name: exact
  part: aggregator trimmed-mean
  settings: { trim: 0.25 }
  input: &in { messages: [{ from: 0, tensors: { w: [1] } }, { from: 1, tensors: { w: [2] } }, { from: 2, tensors: { w: [4] } }, { from: 3, tensors: { w: [90] } }] }
- name: close
  part: aggregator geometric-median
  close: 0.01
  input: *in
- name: bound
  part: aggregator median
  input: *in
  within: { tensors.w: [1, 4] }
- name: refused
  part: aggregator mean
  input: { messages: [] }
  refused: no usable answer
";

#[test]
fn linked_parts_answer_as_they_did() {
    let update = std::env::var_os("FL_UPDATE").is_some();
    let more: &[&str] = if update { &["--accept"] } else { &[] };
    let said = fl(&root(), &[&["test", "tests/cases"], more].concat());
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.status.success(),
        "take what they answer now with FL_UPDATE=1\n{text}"
    );
    let files = [
        ("aggregator", "aggregators"),
        ("attack", "attacks"),
        ("selector", "selectors"),
        ("privacy", "privacy"),
        ("accountant", "accountants"),
    ];
    for (role, file) in files {
        let listed = out(&root(), &["list", role, "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let parts = listed["parts"].as_array().unwrap().iter();
        for name in parts.map(|p| p["name"].as_str().unwrap()) {
            let case = format!("{file}.cases.yaml: {name}");
            let mut titles = text.lines().filter_map(|line| line.split_once(&case));
            let found = titles.any(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
            assert!(found, "{role} `{name}` has no case");
        }
    }
}

#[test]
fn parts_are_held_to_their_claims_linked_or_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let kit = |more: &[&str]| {
        let done = fl(dir.path(), &[&["test"], more].concat());
        let text = [done.stdout, done.stderr].map(|t| String::from_utf8(t).unwrap());
        (done.status.code().unwrap(), text.concat())
    };
    let parts = [
        "--conformance",
        "median",
        "--conformance",
        "privacy laplace-labels",
    ];
    let (code, said) = kit(&[&parts[..], &["--settings", "{}"]].concat());
    assert!(code == 2 && said.contains("scale: is missing"), "{said}");
    let (code, said) = kit(&[
        "--conformance",
        "trimmed-mean",
        "--settings",
        "{trim: 0.25}",
    ]);
    assert_eq!(
        (code, &said[..]),
        (
            0,
            "fine       aggregator trimmed-mean: fulfils its role and its properties\n1 fine, 0 different, 0 taken as right\n"
        )
    );
    for (name, says) in [
        ("mediann", "did you mean `median`?"),
        (
            "param-rounds",
            "the conformance kit has nothing for a protocol",
        ),
    ] {
        let (code, said) = kit(&["--conformance", name]);
        assert!(code == 2 && said.contains(says), "{said}");
    }

    let library = library::beside("fl_plugin_example_dynamic");
    let loaded = ["--plugin", library.to_str().unwrap()];
    let listed = out(
        dir.path(),
        &[&loaded[..], &["list", "aggregator", "--json"]].concat(),
    );
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let parts = listed["parts"].as_array().unwrap().iter();
    let own = parts.filter(|p| p["origin"].as_str().unwrap().contains("example"));
    let names: Vec<&str> = own.map(|p| p["name"].as_str().unwrap()).collect();
    assert!(!names.is_empty(), "{listed}");
    for name in names {
        let (code, said) = kit(&[&loaded[..], &["--conformance", name]].concat());
        assert!(code == 0, "{said}");
    }

    // one that panics breaks what its role asks
    let library = library::beside("fl_hostile");
    let place = [
        "--settings",
        "{place: aggregate}",
        "--conformance",
        "panics",
    ];
    let (code, said) = kit(&[&["--plugin", library.to_str().unwrap()], &place[..]].concat());
    assert!(
        code == 1 && said.contains("never fails on a legal inbox: "),
        "{said}"
    );
    let cases = "cases: [{ name: broken, part: aggregator panics, settings: { place: aggregate }, conformance: true }]";
    fs::write(dir.path().join("a.cases.yaml"), cases).unwrap();
    let (code, said) = kit(&["--plugin", library.to_str().unwrap(), "a.cases.yaml"]);
    assert!(
        code == 1 && said.contains("never fails on a legal inbox: "),
        "{said}"
    );
}

#[test]
fn answers_are_taken_held_and_their_differences_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.cases.yaml");
    fs::write(&file, CASES).unwrap();
    let test = |more: &[&str]| {
        let done = fl(dir.path(), &[&["test", "."], more].concat());
        (
            done.status.code().unwrap(),
            String::from_utf8(done.stdout).unwrap(),
        )
    };
    let (code, said) = test(&[]);
    assert!(
        code == 1 && said.ends_with("2 fine, 2 different, 0 taken as right\n"),
        "{said}"
    );
    assert!(
        said.contains(
            r#"new: {"kind":"params","tensors":{"w":[3]}}; `--accept` takes it as right"#
        ),
        "{said}"
    );
    let (code, said) = test(&["--accept"]);
    assert!(
        code == 0 && said.ends_with("2 fine, 0 different, 2 taken as right\n"),
        "{said}"
    );
    assert_eq!(test(&[]).0, 0);

    // another part behind the same name of a case; a bound that does not hold; a refusal that does
    // not come
    let other = CASES
        .replace("trim: 0.25", "trim: 0.0")
        .replace("[1, 4]", "[1, 2]");
    let other = other.replace("{ messages: [] }", "*in");
    fs::write(&file, other).unwrap();
    let (code, said) = test(&[]);
    assert_eq!(code, 1, "{said}");
    for line in [
        "different  ./a.cases.yaml: exact\n    tensors.w[0]: 3 -> 24.25\n",
        "fine       ./a.cases.yaml: close\n",
        "different  ./a.cases.yaml: bound\n    tensors.w[0]: 3 is not within 1 and 2\n",
        "different  ./a.cases.yaml: refused\n    not refused: ",
    ] {
        assert!(said.contains(line), "`{line}` is not in\n{said}");
    }
    let (code, error) = fails(dir.path(), &["test", "nothing.cases.yaml"]);
    assert!(code == 2 && error.contains("nothing.cases.yaml"), "{error}");
    fs::write(&file, "cases: [{ nmae: a }]").unwrap();
    let (code, error) = fails(dir.path(), &["test", "."]);
    assert!(
        code == 2 && error.contains(".nmae: no such setting; did you mean `name`?"),
        "{error}"
    );
}

#[test]
fn a_case_that_cannot_fail_is_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let input = "input: { messages: [{ from: 0, tensors: { w: [1] } }] }";
    let mean = format!("name: a, part: aggregator mean, {input}");
    for (case, says) in [
        (
            format!("{mean}, close: .inf"),
            "cases[0].close: must be a finite number",
        ),
        (
            format!("{mean}, close: -1"),
            "cases[0].close: must be at least 0",
        ),
        (
            format!("{mean}, refused: ''"),
            "refused: must be a text that the error contains",
        ),
        (
            format!("{mean}, refused: x, within: {{ tensors.w: [0, 1] }}"),
            "no answer that could be",
        ),
        (
            format!("{mean}, conformance: true"),
            "either an `input` or `conformance: true`",
        ),
        (
            "name: a, part: aggregator mean, refused: input".into(),
            "either an `input`",
        ),
        (
            format!("name: a, part: aggregator maen, refused: maen, {input}"),
            "did you mean `mean`?",
        ),
        (
            "name: a, part: mean, conformance: true, close: 0.1".into(),
            "has no answer",
        ),
    ] {
        fs::write(
            dir.path().join("a.cases.yaml"),
            format!("cases: [{{ {case} }}]"),
        )
        .unwrap();
        let (code, error) = fails(dir.path(), &["test", "."]);
        assert!(code == 2 && error.contains(says), "{case}: {error}");
    }
    fs::write(dir.path().join("a.cases.yaml"), "cases: []").unwrap();
    let (code, error) = fails(dir.path(), &["test", "."]);
    assert!(code == 2 && error.contains("it has no cases"), "{error}");
    let cases = "cases:\n- { name: a, part: aggregator mena, input: {} }\n\
                 - { name: a, part: aggregator mean }\n- { name: b, part: aggregator mean, sede: 1 }\n";
    fs::write(dir.path().join("a.cases.yaml"), cases).unwrap();
    let (_, error) = fails(dir.path(), &["test", "."]);
    assert!(
        error.contains("a.cases.yaml:4:37  cases[2].sede: no such setting; did you mean `seed`?"),
        "{error}"
    );
    fs::write(
        dir.path().join("a.cases.yaml"),
        cases.replace("sede", "seed"),
    )
    .unwrap();
    let (code, error) = fails(dir.path(), &["test", "."]);
    for said in [
        "a.cases.yaml:2:20  cases[0].part: no aggregator is called `mena`; did you mean `mean`?",
        "a.cases.yaml:3:11  cases[1].name: two cases are called `a`",
        "a.cases.yaml:4:11  cases[2].name: a case has either an `input` or `conformance: true`",
    ] {
        assert!(code == 2 && error.contains(said), "no {said} in\n{error}");
    }
}

#[test]
fn a_new_aggregator_comes_with_cases_that_hold() {
    let dir = tempfile::tempdir().unwrap();
    let core = root().display().to_string();
    out(dir.path(), &["new", "aggregator", "mine", "--core", &core]);
    let file = dir.path().join("mine/aggregator.cases.yaml");
    // the part that the template is a copy of; `mine` has to be built first
    let cases = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        cases.replace("part: aggregator mine", "part: aggregator trimmed-mean"),
    )
    .unwrap();
    let said = out(dir.path(), &["test", "mine"]);
    assert!(
        said.ends_with("4 fine, 0 different, 0 taken as right\n"),
        "{said}"
    );
}
