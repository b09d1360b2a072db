//! What the program writes of itself is current: the schema, which accepts what the reader accepts,
//! and two pages.

use crate::common::{out, root, specs};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Files that the program writes, and the commands that print them.
const MADE: [(&str, &[&str]); 5] = [
    ("specs/schema.json", &["schema"]),
    ("specs/study.schema.json", &["schema", "--study"]),
    ("specs/cases.schema.json", &["schema", "--cases"]),
    ("specs/README.md", &["schema", "--markdown"]),
    ("plugins/PARTS.md", &["list", "--markdown"]),
];

#[test]
fn exact_the_committed_schema_and_pages_are_current() {
    let mut stale = Vec::new();
    let made = MADE.map(|(file, command)| (file.to_string(), command.to_vec()));
    let index = out(&root(), &["schema", "--markdown"]);
    let names = index.split("](book/fields/").skip(1);
    let names: BTreeSet<&str> = names.filter_map(|t| t.split(".md").next()).collect();
    assert!(names.len() > 10, "{names:?}");
    let files = fs::read_dir(root().join(FIELDS)).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(names.contains(&*name), "no page is {}", file.display());
    }
    let pages = names.iter().map(|name| {
        let command = vec!["schema", "--markdown", *name];
        (format!("{FIELDS}/{name}.md"), command)
    });
    for (file, command) in made.into_iter().chain(pages) {
        let (path, now) = (root().join(&file), out(&root(), &command));
        if std::env::var_os("FL_UPDATE").is_some() {
            fs::write(&path, &now).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != now {
            stale.push(format!(
                "{file} is not what `fl {}` prints",
                command.join(" ")
            ));
        }
    }
    assert!(
        stale.is_empty(),
        "{}; update with: FL_UPDATE=1 cargo test -p fl-cli --test program schema",
        stale.join("; ")
    );
}

/// The pages that the index of fields links to, each of `fl schema --markdown NAME`.
const FIELDS: &str = "specs/book/fields";

/// Every part that is linked cites its papers so that the index finds them, or is in this list.
#[test]
fn every_part_of_a_paper_is_in_the_index_by_paper() {
    const OF_NO_PAPER: [&str; 6] = [
        "centralised",
        "public-only",
        "solo",
        "dfdx",
        "linear",
        "loss-weighted-mean",
    ];
    let page = out(&root(), &["list", "--markdown"]);
    let (_, by_paper) = page.split_once("## By paper").unwrap();
    let parts: Value = serde_json::from_str(&out(&root(), &["list", "--json"])).unwrap();
    for part in parts["parts"].as_array().unwrap() {
        let name = part["name"].as_str().unwrap();
        assert_ne!(
            by_paper.contains(&format!("[`{name}`]")),
            OF_NO_PAPER.contains(&name),
            "{name}: cite its paper in the doc comment of its settings, as `McMahan et al. 2017`"
        );
    }
}

#[test]
fn every_spec_fulfils_the_schema_and_a_wrong_one_does_not() {
    let schema: Value = serde_json::from_str(&out(&root(), &["schema"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for folder in fs::read_dir(root().join("specs"))
        .unwrap()
        .map(|e| e.unwrap().path())
        // a study is no spec, and neither is the book
        .filter(|p| p.is_dir() && !p.ends_with("studies") && !p.ends_with("book"))
    {
        for spec in specs(&folder.file_name().unwrap().to_string_lossy()) {
            let text = fs::read_to_string(&spec).unwrap();
            let line = "# yaml-language-server: $schema=../schema.json\n";
            assert!(
                text.starts_with(line),
                "{}: editors read {line}",
                spec.display()
            );
            let value: Value = serde_yaml::from_str(&text).unwrap();
            let errors: Vec<String> = schema
                .iter_errors(&value)
                .map(|e| format!("{}: {e}", e.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{}: {errors:#?}", spec.display());
        }
    }
    let valid = |protocol: &str, parts: &str| {
        let text =
            format!("{{name: x, data: {{set: blobs}}, protocol: {protocol}, parts: {parts}}}");
        schema.is_valid(&serde_yaml::from_str::<Value>(&text).unwrap())
    };
    let (rounds, distil) = ("{use: fedavg}", "{use: co-distill, labels: hard}");
    assert!(!valid("{use: fedavg, rounds: 0}", "{}"));
    assert!(valid(
        rounds,
        "{model: {use: linear}, aggregator: {use: mean}}"
    ));
    assert!(valid(
        distil,
        "{privacy: {use: randomised-response, epsilon: 1}}"
    ));
    // a slot that the protocol has not, and a part that fits none of its messages
    assert!(!valid(
        rounds,
        "{model: {use: linear}, ensemble: {use: mean}}"
    ));
    assert!(!valid(rounds, "{aggregator: {use: mean-logits}}"));
    assert!(!valid(distil, "{privacy: {use: laplace-votes, gamma: 1}}"));
}

#[test]
fn every_study_and_every_file_of_cases_fulfils_its_schema() {
    let yaml = |path: &std::path::Path| -> Value {
        serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    for (flag, folder, wrong) in [
        ("--study", "specs/studies", "{name: s, tables: [{nmae: t}]}"),
        (
            "--cases",
            "tests/cases",
            "{cases: [{name: c, tolerance: {w: 3}}]}",
        ),
    ] {
        let schema: Value = serde_json::from_str(&out(&root(), &["schema", flag])).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let mut files = 0;
        for file in fs::read_dir(root().join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "yaml") {
                let value = yaml(&path);
                let errors: Vec<String> = schema
                    .iter_errors(&value)
                    .map(|e| format!("{}: {e}", e.instance_path()))
                    .collect();
                assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
                files += 1;
            }
        }
        assert!(files > 4, "{files} files in {folder}");
        assert!(!schema.is_valid(&serde_yaml::from_str::<Value>(wrong).unwrap()));
    }
}
