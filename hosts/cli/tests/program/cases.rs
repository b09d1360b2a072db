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
  input: { messages: [{ from: 0, tensors: { w: [1e300] } }] }
  refused: holds inf
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
        ("generator", "generators"),
        ("trainer", "trainers"),
    ];
    for (role, file) in files {
        let listed = out(&root(), &["list", role, "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let parts = listed["parts"].as_array().unwrap().iter();
        for name in parts.map(|p| p["name"].as_str().unwrap()) {
            let titles = text.lines().filter_map(|line| {
                let (_, title) = line.split_once(&format!("{file}.cases.yaml:"))?;
                title.split_once(": ")
            });
            let of_part = |case: &str| case == name || case.starts_with(&format!("{name} "));
            let found = titles.into_iter().any(|(_, case)| of_part(case));
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
            "fine       aggregator trimmed-mean: fulfils its role and its properties\n1 fine, 0 different\n"
        )
    );
    for (name, says) in [
        ("mediann", "did you mean `median`?"),
        ("fedavg", "the conformance kit has nothing for a protocol"),
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
        code == 1 && said.contains("\n2 fine, 0 different, 2 new\n"),
        "{said}"
    );
    let new = "new        ./a.cases.yaml:2: exact\n    {\n      \"kind\": \"params\",\n      \"tensors\": {\n        \"w\": [3]\n";
    assert!(said.contains(new), "{said}");
    let (code, said) = test(&["--accept"]);
    assert!(
        code == 0 && said.ends_with("2 fine, 0 different, 2 accepted\n"),
        "{said}"
    );
    assert_eq!(test(&[]).0, 0);

    // another part behind the same name of a case; a bound that does not hold; a refusal that does
    // not come
    let other = CASES
        .replace("trim: 0.25", "trim: 0.0")
        .replace("[1, 4]", "[1, 2]");
    let other = other.replace(
        "{ messages: [{ from: 0, tensors: { w: [1e300] } }] }",
        "*in",
    );
    fs::write(&file, other).unwrap();
    let (code, said) = test(&[]);
    assert_eq!(code, 1, "{said}");
    for line in [
        "different  ./a.cases.yaml:2: exact\n    tensors.w: 1 of 1 numbers differs; worst at [0]: expected 3, found 24.25, \
         21.2 apart (relative 7.08, 25296896 ulp)\n",
        "fine       ./a.cases.yaml:6: close\n",
        "different  ./a.cases.yaml:10: bound\n    tensors.w: 1 of 1 numbers is outside [1, 2]; worst at [0]: 3\n",
        "different  ./a.cases.yaml:14: refused\n    not refused: ",
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
            "either an `input`, `rounds` or `conformance: true`",
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
        "a.cases.yaml:4:11  cases[2].name: a case of a part has either an `input`, `rounds` or `conformance: true`",
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
    let cases = cases.replace("part: aggregator mine", "part: aggregator trimmed-mean");
    let lines = cases.lines().filter(|line| !line.starts_with("plugins:"));
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let said = out(dir.path(), &["test", "mine"]);
    assert!(said.ends_with("4 fine, 0 different\n"), "{said}");
}

/// A mean of two clients in each of `n` rounds, by a part with momentum.
fn momentum(name: &str, beta: f64, n: usize) -> String {
    let round = |at: usize| {
        let (one, two) = (at * at, at + 1);
        format!(
            "    - {{ messages: [{{ from: 0, tensors: {{ w: [{one}, 1], v: [0.1] }} }}, \
             {{ from: 1, tensors: {{ w: [{two}, 1], v: [0.3] }} }}] }}\n"
        )
    };
    let rounds: String = (0..n).map(round).collect();
    format!(
        "- name: {name}\n  part: aggregator momentum-mean\n  settings: {{ beta: {beta} }}\n  rounds:\n{rounds}"
    )
}

#[test]
fn several_rounds_test_state_and_name_the_worst_number() {
    let dir = tempfile::tempdir().unwrap();
    let library = library::beside("fl_plugin_example_dynamic");
    let library = library.to_str().unwrap();
    let file = dir.path().join("a.cases.yaml");
    let test = |beta: f64, more: &str, args: &[&str]| {
        let plugins = format!("plugins: [{{ path: {library} }}]\n");
        let cases = format!("{plugins}cases:\n{}{more}", momentum("five", beta, 5));
        fs::write(&file, cases).unwrap();
        let done = fl(dir.path(), &[&["test", "."], args].concat());
        let text = [done.stdout, done.stderr].map(|t| String::from_utf8(t).unwrap());
        (done.status.code().unwrap(), text.concat())
    };
    assert_eq!(test(0.5, "", &["--accept"]).0, 0);
    let (code, said) = test(0.5, "", &[]);
    assert!(
        code == 0 && said.ends_with("1 fine, 0 different\n"),
        "{said}"
    );
    let (code, said) = test(0.25, "", &[]);
    assert_eq!(code, 1, "{said}");
    assert!(!said.contains("round 1,"), "{said}");
    assert!(!said.contains("round 2,"), "no momentum before: {said}");
    assert!(
        said.contains(
            "    round 3, tensors.w: 1 of 2 numbers differs; worst at [0]: expected 4, found 3.75, 0.25 apart (relative 0.0625, "
        ),
        "{said}"
    );
    // a tolerance by path counts for its tensor in every round, and for nothing else
    for (tolerance, fine) in [
        ("tensors: { abs: 10 }", true),
        ("tensors.w: { rel: 0.5 }", true),
        ("tensors.w: { rel: 1.0e-9, ulp: 1000000000 }", true),
        ("tensors.w: { abs: 0.0001 }", false),
        ("tensors: { abs: 10 }, tensors.w: { ulp: 1 }", false),
        ("tensors.v: { abs: 10 }", false),
    ] {
        let (code, said) = test(0.25, &format!("  tolerance: {{ {tolerance} }}\n"), &[]);
        assert_eq!(code == 0, fine, "{tolerance}: {said}");
    }
    let (code, said) = test(0.5, "  tolerance: { tensors.x: { abs: 1 } }\n", &[]);
    let says = "tolerance: the answer has no `tensors.x`";
    assert!(code == 1 && said.contains(says), "{said}");
    let (code, said) = test(0.5, "  tolerance: { tensors.w: {} }\n", &[]);
    let says = "cases[0].tolerance.tensors.w: must have `abs`, `rel` or `ulp`";
    assert!(code == 2 && said.contains(says), "{said}");
}

#[test]
fn some_cases_are_chosen_accepted_listed_and_told_to_programs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.cases.yaml"), CASES).unwrap();
    let test = |args: &[&str]| {
        let done = fl(dir.path(), &[&["test", "."], args].concat());
        let text = [done.stdout, done.stderr].map(|t| String::from_utf8(t).unwrap());
        (done.status.code().unwrap(), text.concat())
    };
    let listed = "./a.cases.yaml:2: exact\n./a.cases.yaml:6: close\n./a.cases.yaml:10: bound\n./a.cases.yaml:14: refused\n";
    assert_eq!(test(&["--list"]), (0, listed.into()));
    // of one name, or of a part of it
    let (code, said) = test(&["--only", "bound"]);
    assert!(
        code == 0 && said.ends_with("1 fine, 0 different\n"),
        "{said}"
    );
    let (code, said) = test(&["--only", "o", "--list"]);
    assert!(code == 0 && said.lines().count() == 2, "{said}");
    let (code, said) = test(&["--only", "exakt"]);
    assert!(
        code == 2 && said.contains("did you mean `exact`?"),
        "{said}"
    );
    // of two that are new, one is accepted
    let (code, said) = test(&["--accept=exact"]);
    assert!(
        code == 1 && said.contains("2 fine, 0 different, 1 new, 1 accepted\n"),
        "{said}"
    );
    let answers = dir.path().join("a.cases.answers.json");
    let held = fs::read_to_string(&answers).unwrap();
    let held: serde_json::Value = serde_json::from_str(&held).unwrap();
    assert_eq!(held.as_object().unwrap().len(), 1, "{held}");
    assert_eq!(held["exact"]["answer"]["tensors"]["w"][0], 3, "{held}");
    let made = held["exact"]["made-with"].as_str().unwrap();
    for part in [
        "fl ",
        "interface ",
        std::env::consts::ARCH,
        std::env::consts::OS,
    ] {
        assert!(made.contains(part), "{made}");
    }
    let (code, said) = test(&["--accept", "exact"]);
    assert!(code == 2 && said.contains("write --accept=exact"), "{said}");
    // for programs
    let (code, said) = test(&["--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let outcomes = said["cases"].as_array().unwrap().iter();
    let outcomes: Vec<&str> = outcomes.map(|c| c["outcome"].as_str().unwrap()).collect();
    assert_eq!((code, outcomes), (1, vec!["fine", "new", "fine", "fine"]));
    assert_eq!(said["cases"][1]["line"], 6, "{said}");
    // without a terminal
    let (code, said) = test(&["--review"]);
    assert!(
        code == 2 && said.contains("--review needs a terminal"),
        "{said}"
    );
}

#[test]
fn unused_answers_are_named_and_removed_and_found_ones_are_written_beside() {
    let dir = tempfile::tempdir().unwrap();
    let (file, held) = ("a.cases.yaml", "a.cases.answers.json");
    let at = |name: &str| dir.path().join(name);
    fs::write(at(file), CASES).unwrap();
    let test = |args: &[&str]| {
        let done = fl(dir.path(), &[&["test", "."], args].concat());
        (
            done.status.code().unwrap(),
            String::from_utf8(done.stdout).unwrap(),
        )
    };
    assert_eq!(test(&["--accept"]).0, 0);
    // an answer of an earlier version, which stands alone
    let mut old: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(at(held)).unwrap()).unwrap();
    old["exact"] = old["exact"]["answer"].take();
    fs::write(at(held), old.to_string()).unwrap();
    assert_eq!(test(&[]).0, 0);

    fs::write(at(file), CASES.replace("name: close", "name: near")).unwrap();
    fs::write(at("gone.cases.answers.json"), "{}").unwrap();
    let (code, said) = test(&["--accept"]);
    assert_eq!(code, 0, "{said}");
    for line in [
        "unused     ./a.cases.answers.json: no case has the answer `close`; --unreferenced=delete removes it\n",
        "unused     ./gone.cases.answers.json: there is no file of cases beside it; --unreferenced=delete removes it\n",
    ] {
        assert!(said.contains(line), "no {line} in {said}");
    }
    assert!(!test(&["--unreferenced", "ignore"]).1.contains("unused"));
    assert_eq!(test(&["--unreferenced", "reject"]).0, 1);
    let (code, said) = test(&["--unreferenced", "delete"]);
    assert!(
        code == 0 && said.contains("deleted    ./a.cases.answers.json"),
        "{said}"
    );
    assert_eq!(test(&["--unreferenced", "reject"]).0, 0);
    assert!(!at("gone.cases.answers.json").exists());

    // the answers that were found are complete: they can take the place of the accepted ones
    let before = fs::read(at(held)).unwrap();
    let changed = CASES
        .replace("name: close", "name: near")
        .replace("trim: 0.25", "trim: 0.0");
    fs::write(at(file), changed).unwrap();
    assert_eq!(test(&["--actual"]).0, 1);
    assert_eq!(fs::read(at(held)).unwrap(), before);
    fs::rename(at("a.cases.actual.json"), at(held)).unwrap();
    assert_eq!(test(&[]).0, 0);
    // one case after the other adds to them
    let changed = CASES
        .replace("name: close", "name: near")
        .replace("geometric-median", "mean");
    fs::write(at(file), changed).unwrap();
    for case in ["exact", "near"] {
        assert_eq!(test(&["--actual", "--only", case]).0, 1, "{case}");
    }
    let found = fs::read_to_string(at("a.cases.actual.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["exact"]["answer"]["tensors"]["w"][0], 3);
    assert!(found["near"]["answer"].is_object(), "{found}");
    let changed = CASES
        .replace("name: close", "name: near")
        .replace("trim: 0.25", "trim: 0.0");
    fs::write(at(file), changed).unwrap();
    assert_eq!(test(&["--accept"]).0, 0);
    assert_eq!(test(&["--actual"]).0, 0);
    assert!(!at("a.cases.actual.json").exists());
}

#[test]
fn a_run_is_held_to_its_digest_and_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let spec = fs::read_to_string(root().join("specs/quick/fedavg.yaml")).unwrap();
    fs::write(dir.path().join("spec.yaml"), spec).unwrap();
    let case = |more: &str, set: &str| {
        let case = format!(
            "cases: [{{ name: run, run: spec.yaml, set: {{ protocol.rounds: 5{set} }}{more} }}]"
        );
        fs::write(dir.path().join("a.cases.yaml"), case).unwrap();
    };
    let test = |args: &[&str]| {
        let done = fl(dir.path(), &[&["test", "."], args].concat());
        let text = [done.stdout, done.stderr].map(|t| String::from_utf8(t).unwrap());
        (done.status.code().unwrap(), text.concat())
    };
    case("", "");
    assert_eq!(test(&["--accept"]).0, 0);
    let held = fs::read_to_string(dir.path().join("a.cases.answers.json")).unwrap();
    let held: serde_json::Value = serde_json::from_str(&held).unwrap();
    let answer = &held["run"]["answer"];
    let digest = {
        let set = ["--set", "protocol.rounds=5", "--json"];
        let run = [&["run", "spec.yaml", "--out", "run"], &set[..]].concat();
        crate::common::json(dir.path(), &run)["digest"].clone()
    };
    assert_eq!(answer["digest"], digest, "{answer}");
    assert!(answer["metrics"]["accuracy"].is_number(), "{answer}");
    assert_eq!(answer["exchanges"].as_array().unwrap().len(), 5, "{answer}");
    assert_eq!(test(&[]).0, 0);
    // the same up to the second round, whose result clients see in the third
    case("", ", parts.aggregator: { use: fed-avg-m }");
    let (code, said) = test(&[]);
    assert!(
        code == 1
            && said.contains(
                "exchanges: 3 of 5 differ; the first is [2]: expected \"round 3, parameters"
            ),
        "{said}"
    );
    // with a tolerance the digest, which stands for all bits, does not count
    case(", tolerance: { metrics: { abs: 0.5 } }", ", seed: 2");
    let (_, said) = test(&["--accept"]);
    assert!(
        said.contains("digest: expected, and not in the answer"),
        "{said}"
    );
    case(", tolerance: { metrics: { abs: 1 } }", ", seed: 3");
    assert_eq!(test(&[]).0, 0);
    case(", within: { metrics.accuracy: [0.1, 1] }", "");
    assert_eq!(test(&[]).0, 0);
    case(", refused: did you mean", ", parts.aggregator.use: maen");
    assert_eq!(test(&[]).0, 0);
    case(", seed: 3", "");
    let (code, said) = test(&[]);
    assert!(
        code == 2 && said.contains("a run has the seed of its spec"),
        "{said}"
    );
    // nothing of a run stays
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 4, "spec, cases, answers, and the run of this test");
}

#[test]
fn every_mistake_of_all_files_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let one = "cases:
- name: a
  part: aggregator trimmed-mean
  settings: { trim: 0.75, trom: 1 }
  input: { messages: [{ form: 0, tensors: { w: [1] } }] }
- name: b
  part: trainer linear
  input: { samples: [[1]], klasses: [0] }
- name: c
  run: nowhere.yaml
- name: d
  part: aggregator mean
  run: nowhere.yaml
- name: e
  part: aggregator mean
  rounds: [{ messages: [] }, { messages: [{ from: x, tensors: {} }] }]
";
    fs::write(dir.path().join("one.cases.yaml"), one).unwrap();
    fs::write(dir.path().join("two.cases.yaml"), "cases: []").unwrap();
    let (code, error) = fails(dir.path(), &["test", "."]);
    assert_eq!(code, 2, "{error}");
    for said in [
        "./one.cases.yaml:4:21  cases[0].settings.trim: must be in 0.0..0.5",
        "./one.cases.yaml:4:27  cases[0].settings.trom: no such setting; did you mean `trim`?",
        "./one.cases.yaml:5:25  cases[0].input.messages[0].form: unknown field `form`, expected one of `from`",
        "./one.cases.yaml:8:28  cases[1].input.klasses: unknown field `klasses`",
        "./one.cases.yaml:10:8  cases[2].run: there is no spec ./nowhere.yaml",
        "cases[3].name: a case has either a `part` or a `run`",
        "./one.cases.yaml:16:24  cases[4].rounds[0].messages: must have an answer of at least one client",
        "./one.cases.yaml:16:51  cases[4].rounds[1].messages[0].from: invalid type: string",
        "./two.cases.yaml:1:8  cases: it has no cases",
    ] {
        assert!(error.contains(said), "no {said} in\n{error}");
    }
}

#[test]
fn mistakes_of_every_kind_come_at_once_each_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let spec = fs::read_to_string(root().join("specs/quick/fedavg.yaml")).unwrap();
    fs::write(dir.path().join("spec.yaml"), spec).unwrap();
    let cases = "cases:
- name: a
  part: aggregator mena
  input: {}
- name: b
  part: aggregator trimmed-mean
  settings: { trim: 0.75, trom: 1 }
  input: { messages: [{ form: 0, tensors: { w: [1] } }] }
- name: b
  part: aggregator mean
- name: c
  sede: 1
  part: aggregator mean
  conformance: maybe
- name: d
  run: nowhere.yaml
- name: e
  run: spec.yaml
  set: { protocol.rounds: 0, parts.agregator.trim: 0.1 }
- close: -1
";
    fs::write(dir.path().join("a.cases.yaml"), cases).unwrap();
    let (code, error) = fails(dir.path(), &["test", "."]);
    assert_eq!(code, 2, "{error}");
    let lines: Vec<&str> = error.trim_end().lines().collect();
    let begin = [
        "./a.cases.yaml:3:9  cases[0].part: no aggregator is called `mena`; did you mean `mean`?",
        "./a.cases.yaml:7:21  cases[1].settings.trim: must be in 0.0..0.5, got 0.75",
        "./a.cases.yaml:7:27  cases[1].settings.trom: no such setting; did you mean `trim`?",
        "./a.cases.yaml:8:25  cases[1].input.messages[0].form: unknown field `form`",
        "./a.cases.yaml:9:9  cases[2].name: a case of a part has either an `input`, `rounds` or",
        "./a.cases.yaml:9:9  cases[2].name: two cases are called `b`",
        "./a.cases.yaml:12:3  cases[3].sede: no such setting; did you mean `seed`?",
        "./a.cases.yaml:14:16  cases[3].conformance: must be true or false, got `maybe`",
        "./a.cases.yaml:16:8  cases[4].run: there is no spec ./nowhere.yaml",
        "./a.cases.yaml:19:27  protocol `fedavg`: rounds: must be in 1..=1000000, got 0",
        "./a.cases.yaml:19:30  parts.agregator: protocol `fedavg` has no slot `agregator`; did you mean",
        "./a.cases.yaml:20:3  cases[6].name: is missing (text)",
        "./a.cases.yaml:20:10  cases[6].close: must be at least 0.0, got -1.0",
    ];
    for (line, begin) in lines.iter().zip(begin) {
        assert!(line.starts_with(begin), "{begin}\nnot in\n{error}");
    }
    assert_eq!(lines.len(), begin.len(), "{error}");
}

#[test]
fn inputs_that_no_part_could_take_are_mistakes_with_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let cases = "cases:
- name: shapes
  part: aggregator mean
  input:
    messages:
    - { from: 0, tensors: { w: [1, 2] } }
    - { from: 1, tensors: { w: [1, 2, 3] } }
    - { from: 2, tensors: { v: [1, 2] } }
    - { from: 3, tensors: { w: [[1], [1, 2]] } }
- name: rounds
  part: aggregator mean
  rounds:
  - messages: [{ from: 0, tensors: { w: [1] } }]
  - messages: []
  - messages: [{ from: 0, tensors: { w: [1] } }, { from: 0, tensors: { w: [1] } }]
- name: lengths
  part: trainer linear
  input: { samples: [[1], [2]], classes: [0, 1, 1] }
- name: ragged
  part: selector density-ratio
  input: { samples: [[1], [1, 2]] }
- name: meant
  part: aggregator mean
  refused: '`w` is [3] here, [2] in the first answer'
  input: { messages: [{ from: 0, tensors: { w: [1, 2] } }, { from: 1, tensors: { w: [1, 2, 3] } }] }
";
    fs::write(dir.path().join("a.cases.yaml"), cases).unwrap();
    let (code, error) = fails(dir.path(), &["test", "."]);
    assert_eq!(code, 2, "{error}");
    let lines: Vec<&str> = error.trim_end().lines().collect();
    let begin = [
        "./a.cases.yaml:7:27  cases[0].input.messages[1].tensors: `w` is [3] here, [2] in the first",
        "./a.cases.yaml:8:27  cases[0].input.messages[2].tensors: other tensors: `v` here, `w` in",
        "./a.cases.yaml:9:27  cases[0].input.messages[3].tensors: a params message: ",
        "./a.cases.yaml:14:15  cases[1].rounds[1].messages: must have an answer of at least one client",
        "./a.cases.yaml:15:15  cases[1].rounds[2].messages: client 0 answered twice",
        "./a.cases.yaml:18:42  cases[2].input.classes: 2 samples and 3 targets",
        "./a.cases.yaml:21:21  cases[3].input.samples: ",
    ];
    for (line, begin) in lines.iter().zip(begin) {
        assert!(line.starts_with(begin), "{begin}\nnot in\n{error}");
    }
    assert_eq!(lines.len(), begin.len(), "{error}");
    // the last case means its input
    let meant = cases.split("- name: meant").nth(1).unwrap();
    let meant = format!("cases:\n- name: meant{meant}");
    fs::write(dir.path().join("a.cases.yaml"), meant).unwrap();
    out(dir.path(), &["test", "."]);
}

/// On a terminal colours are colours, and what a part says cannot have any.
#[cfg(target_os = "linux")]
#[test]
fn words_have_colours_on_a_terminal() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let cases = "cases: [{ name: \"a\\e[31mb\", part: aggregator mean, conformance: true }]";
    fs::write(dir.path().join("a.cases.yaml"), cases).unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let mut options = fs::File::options();
    let side = options.read(true).write(true).open(name.to_str().unwrap());
    let mut command = crate::common::program();
    command
        .args(["test", "a.cases.yaml"])
        .current_dir(dir.path());
    command.env_remove("NO_COLOR").env("TERM", "xterm");
    let mut fl = command.stdout(side.unwrap()).spawn().unwrap();
    // it has the terminal's other side too
    drop(command);
    let mut said = Vec::new();
    // it ends with an error when nobody has the other side any more
    let _ = fs::File::from(terminal).read_to_end(&mut said);
    fl.wait().unwrap();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("\u{1b}[32mfine     \u{1b}[0m"), "{said:?}");
    assert!(said.contains("a\\u001b[31mb"), "{said:?}");
}
