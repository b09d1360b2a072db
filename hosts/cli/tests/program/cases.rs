//! `fl test`: parts held to files of cases.
use crate::common::{fails, fl, out, root};
use std::collections::BTreeSet;
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
fn linked_aggregators_answer_as_they_did() {
    let update = std::env::var_os("FL_UPDATE").is_some();
    let more: &[&str] = if update { &["--accept"] } else { &[] };
    let said = fl(&root(), &[&["test", "tests/cases"], more].concat());
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.status.success(),
        "take what they answer now with FL_UPDATE=1\n{text}"
    );
    let listed = out(&root(), &["list", "aggregator", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let names: BTreeSet<&str> = listed["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    for name in names {
        assert!(
            text.contains(&format!("aggregators.cases.yaml: {name}\n")),
            "`{name}` has no case"
        );
    }
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

    // another part behind the same name of a case; a bound that does not hold; a refusal that does not come
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
        code == 2 && error.contains("unknown field `nmae`"),
        "{error}"
    );
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
        said.ends_with("3 fine, 0 different, 0 taken as right\n"),
        "{said}"
    );
}
