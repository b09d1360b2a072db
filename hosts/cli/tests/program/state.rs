//! What a part of a library keeps is the same in every way of running: plain, over the wire, in
//! processes, with a bound on memory, and stopped and resumed. Parts in Rust and in C, one of each
//! role that keeps something; hosts/python/tests/test_state.py has those in Python.

use crate::common::{alike_in_five_ways, json, quick, root};
use crate::library;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// What is run for a role: its slot, and the settings of the protocol.
const ROLES: [(&str, &str, &str); 5] = [
    ("trainer", "model", "fresh: true"),
    ("trainer", "model", "fresh: false"),
    ("aggregator", "aggregator", "fresh: true"),
    ("selector", "cohort", "fresh: true"),
    ("privacy", "privacy", "fresh: true"),
];

fn rounds(library: &Path, slot: &str, part: &str, protocol: &str) -> String {
    let fill = |name: &str, other: &str| {
        if name == slot {
            format!("  {slot}: {part}\n")
        } else {
            other.to_string()
        }
    };
    let parts = [
        fill("model", "  model: { use: linear, lr: 0.1 }\n"),
        fill("aggregator", "  aggregator: { use: mean }\n"),
        fill("cohort", ""),
        fill("privacy", ""),
        fill("accountant", ""),
    ];
    format!(
        "name: keeps\nseed: 1\nplugins: [{{ path: {} }}]\ndata: {{ set: blobs, clients: 5 }}\n\
         protocol: {{ use: fedavg, rounds: 5, local: {{ epochs: 1, batch: 16 }}, {protocol} }}\n\
         parts:\n{}",
        library.display(),
        parts.concat()
    )
}

/// A generator learns at the server, from what other parts say of its inputs.
fn generator(library: &Path, part: &str) -> String {
    format!(
        "name: keeps\nseed: 1\nplugins: [{{ path: {} }}]\n\
         data: {{ set: {{ glyphs: {{ train: 150, test: 30 }} }}, clients: 3 }}\n\
         protocol: {{ use: generate-and-distill, local: {{ epochs: 1, batch: 16 }}, rounds: 4, steps: 2, batch: 8 }}\n\
         parts:\n  teacher: {{ use: linear }}\n  discriminator: {{ use: linear }}\n  student: {{ use: linear }}\n  \
         generator: {part}\n",
        library.display()
    )
}

/// What a run comes to: its digest, and what it guarantees.
fn result(outcome: &Value) -> String {
    let digest = outcome["digest"].as_str().expect("a digest");
    format!("{} {}", &digest[..12], outcome["privacy"])
}

/// By the way of running.
pub fn ways(dir: &Path, spec: &str) -> Vec<(&'static str, String)> {
    let run = |args: &[&str]| json(dir, &[&["run"], args, &["--json"]].concat());
    let whole = |way: &'static str, more: &[&str]| {
        let args = [&[spec, "--out", way], more].concat();
        (way, result(&run(&args)))
    };
    let mut all = vec![
        whole("plain", &[]),
        whole("wire", &["--wire"]),
        whole("processes", &["--processes", "2"]),
        whole("memory", &["--memory", "1B"]),
    ];
    run(&[spec, "--out", "resumed", "--stop-after", "2"]);
    all.push(("resumed", result(&run(&["--resume", "resumed"]))));
    for (way, _) in &all {
        fs::remove_dir_all(dir.join(way)).expect("the run's folder");
    }
    all
}

fn libraries(dir: &Path) -> Vec<(&'static str, &'static str, PathBuf)> {
    let mut all = vec![("Rust", "rs", library::beside("fl_stateful"))];
    if library::cc() {
        let out = dir.join("stateful.so");
        let source = root().join("hosts/cli/tests/program/stateful.c");
        library::compile(&source, &out, &["-Werror"]);
        all.push(("C", "c", out));
    }
    all
}

#[test]
fn exact_parts_that_keep_something_have_one_digest_in_five_ways() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let (mut table, mut wrong) = (Vec::new(), Vec::new());
    for (language, short, library) in libraries(dir) {
        let mut rows = Vec::new();
        for (role, slot, protocol) in ROLES {
            let spec = |settings: &str| {
                let part = format!("{{ use: {short}-{role}{settings} }}");
                rounds(&library, slot, &part, protocol)
            };
            rows.push((
                format!("{role}, {protocol}"),
                spec(""),
                spec(", forgets: true"),
            ));
        }
        let made = |settings: &str| {
            generator(&library, &format!("{{ use: {short}-generator{settings} }}"))
        };
        rows.push(("generator".into(), made(""), made(", forgets: true")));
        // a linked mechanism, so that its events have a price; Rust's accountant is linked too
        let private = |part: &str| {
            let spec = rounds(&library, "accountant", part, "fresh: true");
            let spec = spec.replace("use: mean", "use: mean, weigh: uniform");
            spec + "  privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 1.0 }\n"
        };
        rows.push(match short {
            "c" => (
                "accountant".into(),
                private("{ use: c-accountant }"),
                private("{ use: c-accountant, forgets: true }"),
            ),
            _ => (
                "accountant".into(),
                private("{ use: analytic-gaussian, delta: 1e-5 }"),
                private("{ use: analytic-gaussian, delta: 1e-3 }"),
            ),
        });
        for (role, spec, forgets) in rows {
            let file = |text: &str| {
                let file = dir.join("spec.yaml");
                fs::write(&file, text).unwrap();
                file.display().to_string()
            };
            let found = ways(dir, &file(&spec));
            let digests: Vec<&str> = found.iter().map(|(_, result)| &result[..8]).collect();
            table.push(format!("| {language} | {role} | {} |", digests.join(" | ")));
            if found.iter().any(|(_, result)| *result != found[0].1) {
                wrong.push(format!("{language}, {role}: {found:?}"));
            }
            let args = ["run", &file(&forgets), "--json", "--out", "forgets"];
            if result(&json(dir, &args)) == found[0].1 {
                wrong.push(format!("{language}, {role}: what it keeps does not count"));
            }
            fs::remove_dir_all(dir.join("forgets")).unwrap();
        }
    }
    eprintln!("{}", table.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_centre_has_a_state_of_its_aggregator() {
    let d = tempfile::tempdir().unwrap();
    let set = |rounds: usize, beta: f64| {
        let part = format!("{{ use: fed-avg-m, beta: {beta}, weigh: uniform }}");
        let part = format!("parts.aggregator={part}");
        [format!("protocol.rounds={rounds}"), part]
    };
    for name in ["fesem", "ifca"] {
        let spec = quick(name);
        let args =
            |[rounds, part]: &[String; 2]| ["--set", rounds, "--set", part].map(String::from);
        let digest = |rounds: usize, beta: f64| {
            let set = args(&set(rounds, beta));
            let set = set.iter().map(String::as_str);
            let to = format!("{name}-{rounds}-{beta}");
            let how = ["run", &spec, "--json", "--out", &to];
            let ran = json(d.path(), &how.into_iter().chain(set).collect::<Vec<_>>());
            ran["digest"].as_str().unwrap().to_string()
        };
        // the first step of a centre has no momentum yet: in IFCA that is in round 2
        let first = 1 + usize::from(name == "ifca");
        assert_eq!(digest(first, 0.0), digest(first, 0.9), "{name}");
        assert_ne!(digest(first + 1, 0.0), digest(first + 1, 0.9), "{name}");
        // clients belong to centres from that round on, and only those that were asked
        let file = d.path().join(format!("{name}-{first}-0/metrics.jsonl"));
        let text = fs::read_to_string(file).unwrap();
        let all = text.lines().map(serde_json::from_str::<Value>);
        let sizes = all.map(Result::unwrap).filter(|metric| {
            let of = metric["name"].as_str().unwrap();
            of.starts_with("cluster.") && of.ends_with(".clients")
        });
        let sizes: Vec<Value> = sizes.collect();
        assert!(sizes.iter().all(|size| size["round"] == first), "{sizes:?}");
        let members = sizes.iter().map(|size| size["value"].as_f64().unwrap());
        let asked = if name == "ifca" { 6.0 } else { 8.0 };
        assert_eq!(members.sum::<f64>(), asked, "{name}");
        let set = args(&set(4, 0.9));
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        alike_in_five_ways(d.path(), &[&[&spec[..]][..], &set].concat(), "2");
    }
}
