//! The features of a model that one run kept as the inputs of another.

use crate::common::{fails, flat, json, out};
use serde_json::Value;
use std::fs;
use std::path::Path;

const NET: &str = "{ use: dfdx, net: [linear: 6, relu, outputs], optimiser: { sgd: { lr: 0.1 } } }";
const KEPT: &str = "features: { kept-model: { file: body/models/model } }";

/// Writes a spec on blobs; `data` is more of its `data`.
fn write(dir: &Path, name: &str, data: &str, protocol: &str, model: &str) -> String {
    let text = format!(
        "name: {name}\nseed: 1\ndata: {{ set: {{ blobs: {{ classes: 4, features: 8, spread: 1.5, train: 400, test: 200 }} }}, clients: 4, {data} }}\nprotocol: {{ {protocol} }}\nparts: {{ model: {model}, aggregator: {{ use: mean }} }}\n"
    );
    let text = match protocol {
        "use: solo" => text.replace(", aggregator: { use: mean }", ""),
        _ => text,
    };
    fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
    format!("{name}.yaml")
}

/// Trains a network and keeps it.
fn body(dir: &Path, model: &str) -> Value {
    let rounds = "use: fedavg, rounds: 10, local: { epochs: 2, batch: 16 }";
    let spec = write(dir, "body", "split: iid", rounds, model);
    json(dir, &["run", &spec, "--out", "body", "--json"])
}

fn accuracy(run: &Value) -> f64 {
    let found = &run["metrics"];
    let found = found["accuracy"]
        .as_f64()
        .or(found["clients.accuracy"].as_f64());
    found.unwrap_or_else(|| panic!("{run}"))
}

#[test]
fn exact_features_of_a_kept_model_give_one_digest_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let body = body(dir, NET);
    assert!(accuracy(&body) > 0.7, "{body}");
    let rounds = "use: fedavg, rounds: 6, local: { epochs: 2, batch: 16 }";
    for protocol in [rounds, "use: solo"] {
        let spec = write(dir, "head", KEPT, protocol, "{ use: linear, lr: 0.1 }");
        let run = ["run", &spec, "--json"];
        let plain = json(dir, &[&run[..], &["--out", "plain"]].concat());
        assert!(accuracy(&plain) > accuracy(&body) - 0.06, "{plain} {body}");
        if protocol == rounds {
            // six features and a bias for each of four classes, and a loss, by four clients
            assert_eq!(plain["bytes"]["up"], 6 * 4 * ((6 * 4 + 4) * 4 + 4));
        }
        for how in [&["--threads", "3", "--wire"][..], &["--processes", "2"]] {
            let other = json(dir, &[&run[..], how].concat());
            assert_eq!(plain["digest"], other["digest"], "{protocol} {how:?}");
        }
        if protocol == rounds {
            out(dir, &["run", &spec, "--out", "cut", "--stop-after", "2"]);
            let resumed = json(dir, &["run", "--resume", "cut", "--json"]);
            assert_eq!(plain["digest"], resumed["digest"]);
        }
        fs::remove_dir_all(dir.join("plain")).unwrap();
    }
    // of another model everything is other, and a stopped run refuses it
    let spec = write(dir, "head", KEPT, rounds, "{ use: linear, lr: 0.1 }");
    let first = json(dir, &["run", &spec, "--json"]);
    fs::remove_dir_all(dir.join("cut")).unwrap();
    out(dir, &["run", &spec, "--out", "cut", "--stop-after", "2"]);
    let (kept, whole) = (dir.join("body"), dir.join("whole"));
    fs::rename(&kept, &whole).unwrap();
    body_of_another_seed(dir);
    assert_ne!(
        json(dir, &["run", &spec, "--json"])["digest"],
        first["digest"]
    );
    let (_, said) = fails(dir, &["run", "--resume", "cut"]);
    assert!(
        said.contains("was begun with other data files") && said.contains("body/models/model"),
        "{said}"
    );
    fs::remove_dir_all(&kept).unwrap();
    fs::rename(&whole, &kept).unwrap();
    let resumed = json(dir, &["run", "--resume", "cut", "--json"]);
    assert_eq!(first["digest"], resumed["digest"]);
}

fn body_of_another_seed(dir: &Path) {
    out(
        dir,
        &["run", "body.yaml", "--out", "body", "--set", "seed=2"],
    );
}

#[test]
fn kept_models_without_features_or_with_other_inputs_are_refused_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rounds = "use: fedavg, rounds: 1";
    let refused = |data: &str, due: &str| {
        let spec = write(dir, "head", data, rounds, "{ use: linear }");
        let (code, said) = fails(dir, &["check", &spec]);
        assert!(code == 2 && flat(&said).contains(due), "{data}: {said}");
    };
    refused(
        KEPT,
        "cannot be read: name a model that a run kept, RUN/models/NAME",
    );
    body(dir, "{ use: linear }");
    refused(
        KEPT,
        "body/models/model: trainer `linear` has no layer of features before its scores; name a network",
    );
    fs::remove_dir_all(dir.join("body")).unwrap();
    body(dir, NET);
    refused(
        &KEPT.replace("models/model", "models/none"),
        "cannot be read: name a model",
    );
    refused(
        &format!(
            "normalise: {{ mean: [0, 0, 0, 0, 0, 0, 0, 1], std: [1, 1, 1, 1, 1, 1, 1, 1] }}, {KEPT}"
        ),
        "is for inputs that are not normalised, and this run has inputs normalised by",
    );
    let spec = write(dir, "head", KEPT, rounds, "{ use: linear }");
    let (code, said) = fails(dir, &["check", &spec, "--set", "data.set=glyphs"]);
    let due = "the kept model takes inputs of shape [8], and rows of this run have [1, 28, 28]";
    assert!(code == 2 && flat(&said).contains(due), "{said}");
    // a model of features has no inputs that another run has
    let of = write(dir, "on-head", KEPT, rounds, NET);
    out(dir, &["run", &of, "--out", "on-head"]);
    refused(
        &KEPT.replace("body", "on-head"),
        "the kept model takes inputs of shape [6], and rows of this run have [8]; give this run the inputs of the model",
    );
    let path = dir.join("body/spec.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("use: dfdx", "use: my-net")).unwrap();
    refused(KEPT, "body/models/model: no trainer is called `my-net`");
    fs::write(&path, text).unwrap();
    fs::remove_file(dir.join("body/run.json")).unwrap();
    refused(
        KEPT,
        "it must stay in the folder of its run, which has no run.json",
    );
    // where it is right, all see which features there are
    fs::remove_dir_all(dir.join("body")).unwrap();
    body(dir, NET);
    let spec = write(dir, "head", KEPT, rounds, "{ use: linear }");
    for args in [
        &["check", &spec][..],
        &["plan", &spec],
        &["data", "show", &spec],
    ] {
        out(dir, args);
    }
}

#[test]
fn features_of_a_private_model_cost_what_its_run_released() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    body(dir, NET);
    let protocol =
        "use: fedavg, rounds: 2, local: { steps: 5, batch: 20 }, sampling: { rate: 0.1 }";
    let private = "{ use: linear }, example-privacy: { use: gaussian-gradients, noise-multiplier: 2 }, accountant: { use: pld }";
    let run = |name: &str, data: &str| {
        let spec = write(dir, name, data, protocol, private);
        let spec_path = dir.join(&spec);
        let text = fs::read_to_string(&spec_path).unwrap();
        fs::write(
            spec_path,
            text.replace("use: mean }", "use: mean, weigh: uniform }"),
        )
        .unwrap();
        json(dir, &["run", &spec, "--out", name, "--json"])["privacy"].clone()
    };
    let plain = run("plain", "split: iid");
    // releases without a price have no guarantee
    let of = run("unpriced", KEPT);
    for observer in ["server", "clients", "readers"] {
        let why = of[observer]["nothing"].to_string();
        let due = "come from clients' rows, without an accountant";
        assert!(why.contains(due), "{of}");
    }
    let public = run(
        "public",
        &KEPT.replace("model }", "model, is-public: true }"),
    );
    assert_eq!(public["readers"]["epsilon"], plain["readers"]["epsilon"]);
    assert!(public["readers"]["epsilon"].as_f64().unwrap() > 0.0);
    // a model of DP-SGD costs its steps
    let net = private.replace("{ use: linear }", NET);
    let spec = write(dir, "body", "split: iid", protocol, &net);
    let text = fs::read_to_string(dir.join(&spec)).unwrap();
    fs::write(
        dir.join(&spec),
        text.replace("use: mean }", "use: mean, weigh: uniform }"),
    )
    .unwrap();
    fs::remove_dir_all(dir.join("body")).unwrap();
    out(dir, &["run", &spec, "--out", "body"]);
    let both = run("both", KEPT);
    let account = "account gaussian --sigma 2 --rate 0.1 --times 20 --json";
    let account = json(dir, &account.split(' ').collect::<Vec<_>>());
    let mut all = account["all"].as_array().unwrap().iter();
    let due = &all.find(|one| one["accountant"] == "pld").unwrap()["epsilon"];
    assert_eq!(&both["readers"]["epsilon"], due, "{both}");
}
