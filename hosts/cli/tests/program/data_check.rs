//! What a check finds in a spec together with its data: kept models of other classes or columns,
//! steps that draw no row, and trainings that end too early.

use crate::common::{fails, fl, flat, json, out};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A table in which `buys` is `yes` where `hours` exceeds 50.
fn table(dir: &Path, name: &str, columns: [&str; 3], rows: usize) {
    let mut text = format!("{}\n", columns.join(","));
    for row in 0..rows {
        let (age, hours) = (row * 37 % 100, row * 61 % 100);
        let buys = if hours > 50 { "yes" } else { "no" };
        let field = |name: &&str| match *name {
            "age" => age.to_string(),
            "hours" => hours.to_string(),
            _ => buys.to_string(),
        };
        let fields: Vec<String> = columns.iter().map(field).collect();
        writeln!(text, "{}", fields.join(",")).unwrap();
    }
    fs::write(dir.join(name), text).unwrap();
}

const RANGES: &str =
    "{ age: { number: { range: [0, 100] } }, hours: { number: { range: [0, 100] } } }";

/// A spec on that table.
fn spec(
    dir: &Path,
    name: &str,
    file: &str,
    columns: &str,
    classes: &str,
    protocol: &str,
) -> String {
    let text = format!(
        "name: {name}\nseed: 1\ndata:\n  set: {{ files: {{ format: csv, train: {file}, test: {file}, label: buys, columns: {columns}, classes: {classes} }} }}\n  clients: 4\nprotocol: {{ use: fedavg, {protocol} }}\nparts: {{ model: {{ use: linear, lr: 1 }}, aggregator: {{ use: mean }} }}\n"
    );
    let file = format!("{name}.yaml");
    fs::write(dir.join(&file), text).unwrap();
    file
}

/// The notes of a run that is done.
fn notes(dir: &Path, run: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.join(run).join("outcome.json")).unwrap();
    let outcome: Value = serde_json::from_str(&text).unwrap();
    let notes = outcome["notes"].as_array().unwrap().iter();
    notes.map(|note| note.as_str().unwrap().into()).collect()
}

#[test]
fn rounds_without_clients_are_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let told = |rate: f64, name: &str| {
        let text = format!(
            "name: poisson\nseed: 1\ndata: {{ set: {{ blobs: {{ train: 100 }} }}, clients: 5 }}\n\
             protocol: {{ use: fedavg, rounds: 12, local: {{ epochs: 1, batch: 8 }} }}\n\
             parts: {{ model: {{ use: linear }}, aggregator: {{ use: mean }}, cohort: {{ use: poisson, rate: {rate} }} }}\n"
        );
        fs::write(dir.join("poisson.yaml"), text).unwrap();
        out(dir, &["run", "poisson.yaml", "--out", name]);
        let mut notes = notes(dir, name);
        notes.retain(|note| note.contains("it picks no client for this round"));
        notes
    };
    let rare = told(0.05, "rare");
    assert!(
        rare.len() == 1 && rare[0].starts_with("round 1: parts.cohort: "),
        "{rare:?}"
    );
    assert!(told(0.9, "often").is_empty());
    // and before the run, from the rate alone
    let before = "`rate` 0.05 of 5 clients is 0.25: most rounds have no client";
    told(0.05, "again");
    let checked = fl(dir, &["check", "poisson.yaml"]);
    let checked = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.matches(before).count(), 1, "{checked}");
}

#[test]
fn a_kept_model_of_other_classes_or_columns_is_refused_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    table(dir, "rows.csv", ["age", "hours", "buys"], 200);
    table(dir, "turned.csv", ["hours", "age", "buys"], 200);
    let first = spec(
        dir,
        "first",
        "rows.csv",
        RANGES,
        "[no, yes]",
        "rounds: 20, local: { epochs: 5, batch: 16 }",
    );
    let kept = json(dir, &["run", &first, "--out", "first", "--json"]);
    let again = "rounds: 1, local: { steps: 1, batch: 16 }, initial: first/models/model";
    let plain = "{ age: { number: { range: [0, 100] } }, hours: number }";
    for (name, file, columns, classes, due) in [
        (
            "order",
            "rows.csv",
            RANGES,
            "[yes, no]",
            "is for the classes no, yes, and this run has the classes yes, no; give this run the order of the model",
        ),
        (
            "names",
            "rows.csv",
            RANGES,
            "[no, yes, maybe]",
            "is for the classes no, yes, and this run has the classes no, yes, maybe; give this run the classes",
        ),
        (
            "columns",
            "turned.csv",
            RANGES,
            "[no, yes]",
            "is for the columns age (a number from 0 to 100, scaled to 0..1), hours (a number from 0 to 100, scaled to 0..1), and this run has the columns hours (",
        ),
        (
            "range",
            "rows.csv",
            plain,
            "[no, yes]",
            "this run has the columns age (a number from 0 to 100, scaled to 0..1), hours (a number, not scaled); give this run the columns",
        ),
        (
            "number",
            "rows.csv",
            "{ age: skip, hours: { number: { range: [0, 100] } } }",
            "[no, yes]",
            "this run has the columns hours (a number from 0 to 100",
        ),
    ] {
        let spec = spec(dir, name, file, columns, classes, again);
        for args in [&["check", &spec][..], &["run", &spec, "--out", name]] {
            let (code, said) = fails(dir, args);
            assert_eq!(code, 2, "{said}");
            assert!(flat(&said).contains(due), "{said}");
            assert!(
                said.contains("protocol.initial: first/models/model is for"),
                "{said}"
            );
        }
        assert!(!dir.join(name).exists(), "nothing is left of the run");
    }
    let same = spec(dir, "same", "rows.csv", RANGES, "[no, yes]", again);
    assert_eq!(out(dir, &["check", &same]), "same.yaml: fine\n");
    let run = json(dir, &["run", &same, "--out", "same", "--json"]);
    let accuracy = |of: &Value| of["metrics"]["accuracy"].as_f64().unwrap();
    assert!(accuracy(&run) > 0.9 && accuracy(&kept) > 0.9, "{run}");
    assert!(
        notes(dir, "same")
            .iter()
            .all(|note| !note.contains("initial"))
    );
    // of a file elsewhere nothing is known
    fs::copy(dir.join("first/models/model"), dir.join("kept")).unwrap();
    let copied = spec(
        dir,
        "copied",
        "rows.csv",
        RANGES,
        "[yes, no]",
        &again.replace("first/models/model", "kept"),
    );
    out(dir, &["run", &copied, "--out", "copied"]);
    let note =
        "protocol.initial: kept is not in the folder of a run that says what its models learnt";
    assert!(
        notes(dir, "copied")
            .iter()
            .any(|said| said.starts_with(note)),
        "{:?}",
        notes(dir, "copied")
    );
}

#[test]
fn a_kept_model_of_another_scale_or_order_of_numbers_is_refused_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let spec = |name: &str, data: &str, protocol: &str| {
        let text = format!(
            "name: {name}\nseed: 1\ndata: {{ set: {{ blobs: {{ features: 2, classes: 3, train: 90, test: 30 }} }}, clients: 2, {data} }}\nprotocol: {{ use: fedavg, rounds: 1, {protocol} }}\nparts: {{ model: {{ use: linear }}, aggregator: {{ use: mean }} }}\n"
        );
        fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
        format!("{name}.yaml")
    };
    let scaled = "normalise: { mean: [1, 2], std: [3, 4] }";
    out(
        dir,
        &[
            "run",
            &spec("first", scaled, "fresh: true"),
            "--out",
            "first",
        ],
    );
    let again = "initial: first/models/model";
    for (data, due) in [
        (
            "normalise: { mean: [1, 2], std: [3, 5] }",
            "is for inputs normalised by { mean: [1.0, 2.0], std: [3.0, 4.0] }, and this run has inputs normalised by { mean: [1.0, 2.0], std: [3.0, 5.0] }; write the `data.normalise` of the model",
        ),
        (
            "split: iid",
            "and this run has inputs that are not normalised",
        ),
        (
            "normalise: { mean: [1, 2], std: [3, 4] }, class-order: [2, 0, 1]",
            "is for the classes 0, 1, 2, and this run has the classes 2, 0, 1",
        ),
    ] {
        let (code, said) = fails(dir, &["check", &spec("other", data, again)]);
        assert!(code == 2 && flat(&said).contains(due), "{said}");
    }
    out(dir, &["check", &spec("same", scaled, again)]);
    // principal components are those of the public samples
    let of = |share: f64| {
        format!(
            "{scaled}, public: {{ from: {{ share: {share} }} }}, features: {{ principal-components: {{ width: 2 }} }}"
        )
    };
    let first = spec("components", &of(0.3), "fresh: true");
    out(dir, &["run", &first, "--out", "components"]);
    let again = "initial: components/models/model";
    out(dir, &["check", &spec("same", &of(0.3), again)]);
    let (code, said) = fails(dir, &["check", &spec("other", &of(0.4), again)]);
    let said = flat(&said);
    assert!(
        code == 2
            && said.contains("components/models/model is for features with the SHA-256 ")
            && said.contains("give this run the public samples, or the kept model,"),
        "{said}"
    );
}

/// DP-SGD on clients of 40 and 10 rows.
fn steps(dir: &Path, name: &str, sampling: &str) -> String {
    let text = format!(
        "name: {name}\nseed: 1\ndata: {{ set: {{ blobs: {{ features: 2, classes: 2, train: 50, test: 20 }} }}, clients: 2, split: {{ size: {{ shares: [4, 1] }} }} }}\nprotocol: {{ use: fedavg, rounds: 1, local: {{ steps: 5, batch: 2 }}, sampling: {sampling} }}\nparts:\n  model: {{ use: linear }}\n  aggregator: {{ use: mean, weigh: uniform }}\n  example-privacy: {{ use: gaussian-gradients }}\n  accountant: {{ use: pld }}\n"
    );
    fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
    format!("{name}.yaml")
}

#[test]
fn steps_that_draw_no_row_are_refused_or_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let none = steps(dir, "none", "{ rate: 0.02, draw: fixed }");
    for args in [
        &["check", &none][..],
        &["run", &none, "--out", "none"],
        &["plan", &none],
    ] {
        let (code, said) = fails(dir, args);
        let due = "parts.example-privacy: no client ever draws a row, so noise alone would train the model: a step draws the share 0.02 of a client's rows, rounded down, and the largest client has 40 (40 x 0.02 = 0.80); set the `rate` of `sampling` to at least 2.5";
        assert!(code == 2 && flat(&said).contains(due), "{said}");
    }
    let some = steps(dir, "some", "{ rate: 0.05, draw: fixed }");
    let due = "parts.example-privacy: no step of client 1 draws a row, so noise alone trains there: a step draws the share 0.05 of a client's rows, rounded down, which is 0 of 10 or fewer";
    let noted = |args: &[&str]| flat(&String::from_utf8_lossy(&fl(dir, args).stderr));
    assert!(noted(&["check", &some]).contains(due));
    out(dir, &["run", &some, "--out", "some"]);
    // it tells a client's number of rows, which a run keeps secret
    assert_eq!(notes(dir, "some"), Vec::<String>::new());
    let poisson = steps(dir, "poisson", "{ rate: 0.05 }");
    let due = "parts.example-privacy: a step of client 1 draws less than one row on average (at most 10 rows x 0.05 = 0.50)";
    for command in ["check", "plan"] {
        assert!(
            noted(&[command, &poisson]).contains(due),
            "{}",
            noted(&[command, &poisson])
        );
    }
    assert!(!noted(&["run", &poisson, "--out", "poisson"]).contains("on average"));
    let enough = steps(dir, "enough", "{ rate: 0.1, draw: fixed }");
    assert_eq!(noted(&["check", &enough]), "");
}

#[test]
fn a_training_whose_loss_still_falls_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = |name: &str, lr: f64, local: &str, student: &str| {
        let text = format!(
            "name: {name}\nseed: 1\ndata: {{ set: {{ blobs: {{ features: 4, classes: 3, train: 600, test: 60 }} }}, clients: 3, public: {{ from: {{ share: 0.5 }} }} }}\nprotocol: {{ use: fedkd, local: {local}, student: {student} }}\nparts: {{ teacher: {{ use: linear, lr: {lr} }}, student: {{ use: linear, lr: 0.05 }}, ensemble: {{ use: mean-logits }} }}\n"
        );
        fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
        out(dir, &["run", &format!("{name}.yaml"), "--out", name]);
        let mut notes = notes(dir, name);
        notes.retain(|note| note.contains("the loss still fell"));
        notes
    };
    let advice = "train longer, or raise the learning rate";
    let notes = run(
        "short",
        0.5,
        "{ steps: 500, batch: 30 }",
        "{ steps: 60, batch: 30 }",
    );
    assert_eq!(
        notes,
        [format!(
            "parts.student: the loss still fell when training ended (60 steps): {advice}"
        )]
    );
    let notes = run(
        "teachers",
        0.005,
        "{ epochs: 4, batch: 10 }",
        "{ steps: 5000, batch: 30 }",
    );
    assert_eq!(
        notes,
        [format!(
            "clients 0, 1, 2: parts.teacher: the loss still fell when training ended (4 epochs): {advice}"
        )]
    );
}

#[test]
fn a_kept_model_of_bytes_is_refused_for_numbers_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let npy = |name: &str, kind: &str, shape: &str, content: Vec<u8>| {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        let all = [
            b"\x93NUMPY\x01\x00",
            &length[..],
            header.as_bytes(),
            &content,
        ];
        fs::write(dir.join(name), all.concat()).unwrap();
    };
    let bytes: Vec<u8> = (0..160).map(|at| (at * 7 % 251) as u8).collect();
    let floats = bytes.iter().flat_map(|byte| f32::from(*byte).to_le_bytes());
    npy("floats.npy", "<f4", "(40, 1, 2, 2)", floats.collect());
    npy("bytes.npy", "|u1", "(40, 1, 2, 2)", bytes);
    npy("y.npy", "|u1", "(40,)", [0, 1].repeat(20));
    let spec = |name: &str, inputs: &str, protocol: &str| {
        let text = format!(
            "name: {name}\ndata: {{ set: {{ files: {{ format: npy, train: {{ inputs: {inputs}, labels: y.npy }}, holdout: 0.25, classes: [0, 1] }} }}, clients: 2 }}\nprotocol: {{ use: fedavg, rounds: 1, {protocol} }}\nparts: {{ model: {{ use: linear }}, aggregator: {{ use: mean }} }}\n"
        );
        fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
        format!("{name}.yaml")
    };
    let first = spec("first", "bytes.npy", "fresh: true");
    out(dir, &["run", &first, "--out", "first"]);
    let again = "initial: first/models/model";
    out(dir, &["check", &spec("same", "bytes.npy", again)]);
    let (code, said) = fails(dir, &["check", &spec("other", "floats.npy", again)]);
    let due = "is for inputs that are images of bytes, which are divided by 255, and this run has inputs that are numbers, which are not divided";
    assert!(code == 2 && flat(&said).contains(due), "{said}");
}

#[test]
fn what_a_folder_holds_besides_is_told_again_when_a_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("h")).unwrap();
    for name in ["a.csv", "b.csv", "c.txt"] {
        let rows: String = (0..8).map(|i| format!("{i},{}\n", i % 2)).collect();
        fs::write(dir.join("h").join(name), format!("x,y\n{rows}")).unwrap();
    }
    let text = "name: folder\nseed: 1\ndata: { set: { files: { format: csv, train: h, label: y, classes: [0, 1], holdout: 0.25 } } }\nprotocol: { use: fedavg, rounds: 2, local: { epochs: 1, batch: 4 } }\nparts: { model: { use: linear }, aggregator: { use: mean } }\n";
    fs::write(dir.join("folder.yaml"), text).unwrap();
    let stop = [
        "run",
        "folder.yaml",
        "--out",
        "stopped",
        "--stop-after",
        "1",
    ];
    let due = "1 entries of folders are not read: `h/c.txt`";
    for args in [&stop[..], &["run", "--resume", "stopped"]] {
        let said = flat(&String::from_utf8_lossy(&fl(dir, args).stderr));
        assert_eq!(said.matches(due).count(), 1, "{said}");
    }
    let report = fs::read_to_string(dir.join("stopped/report.md")).unwrap();
    assert_eq!(flat(&report).matches(due).count(), 1, "{report}");
}
