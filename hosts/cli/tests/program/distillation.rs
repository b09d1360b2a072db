//! Federated distillation as a user runs it: bytes, filters, privacy, and mistakes reported
//! clearly.

use crate::common::{fails, fl, json, out, quick, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Five clients that agree to label blobs; `protocol` and `parts` are added to.
fn spec(dir: &Path, protocol: &str, parts: &str) -> String {
    let text = format!(
        "name: distill
seed: 1
data:
  set: {{ blobs: {{ classes: 4 }} }}
  clients: 4
  split: {{ classes: 1 }}
  public: {{ from: {{ count: 100 }} }}
protocol:
  use: co-distill
  rounds: 3
  warm-up: {{ epochs: 2, batch: 16 }}
  local: {{ steps: 2, batch: 16 }}
  distil: {{ steps: 5, batch: 50 }}
{protocol}
parts:
  model: {{ use: linear }}
{parts}
"
    );
    let path = dir.join("spec.yaml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

const MEAN: &str = "  ensemble: { use: mean-labels }";

fn run(dir: &Path, protocol: &str, parts: &str) -> Value {
    let spec = spec(dir, protocol, parts);
    let _ = fs::remove_dir_all(dir.join("out"));
    json(dir, &["run", &spec, "--json", "--out", "out"])
}

/// The journal's lines about a question, of the last round.
fn entry(dir: &Path, question: &str) -> Value {
    let journal = fs::read_to_string(dir.join("out/journal.jsonl")).unwrap();
    let mut lines = journal
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let last = lines.rfind(|l| l["question"] == question);
    last.unwrap_or_else(|| panic!("`{question}` was not asked:\n{journal}"))
}

fn bytes(entry: &Value, way: &str) -> (u64, u64) {
    let of = |key: &str| entry[way][key].as_u64().unwrap();
    (of("values"), of("keys"))
}

#[test]
fn exact_bytes_are_those_of_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // 4 clients, 50 samples, 4 classes of 4 bytes; see plugins/co-distill/README.md
    run(dir, "", MEAN);
    let said = entry(dir, "soft labels of public samples");
    assert_eq!(bytes(&said, "bytes_up"), (4 * 50 * 4 * 4, 0));
    assert_eq!(bytes(&said, "bytes_down"), (4 * 50 * 4, 0), "indices");
    let learnt = entry(dir, "learning from soft labels");
    assert_eq!(bytes(&learnt, "bytes_down"), (4 * 50 * 4 * 4, 0));
    run(dir, "  labels: hard\n  reply: hard", MEAN);
    let said = entry(dir, "hard labels of public samples");
    // two bits each: ceil(50 * 2 / 8) bytes
    assert_eq!(bytes(&said, "bytes_up"), (4 * 13, 0));
    let learnt = entry(dir, "learning from hard labels");
    assert_eq!(bytes(&learnt, "bytes_down"), (4 * 13, 0));
    // with filters a bit mask says which samples are meant
    let filters = "  client-filter: { use: density-ratio, width: 2.0, uniform: 30, share: 0.3 }
  server-filter: { use: unambiguous, max-distance: 0.5 }";
    let answer = run(dir, "", &format!("{MEAN}\n{filters}"));
    let known = entry(dir, "public samples that a client knows");
    assert_eq!(
        bytes(&known, "bytes_up"),
        (4 * 13, 0),
        "100 bits for each client"
    );
    let (values, keys) = bytes(&entry(dir, "soft labels of public samples"), "bytes_up");
    assert!(
        values < 4 * 50 * 4 * 4 && keys == 4 * 7,
        "{values} and {keys}"
    );
    // a plan counts the mask, of all rows and for each client
    let path = spec(dir, "", &format!("{MEAN}\n{filters}"));
    let plan = json(dir, &["plan", &path, "--json"]);
    let planned = |exchange: &str, way: &str| {
        let mut all = plan["questions"].as_array().unwrap().iter();
        let found = all.find(|planned| planned["question"] == exchange);
        found.unwrap()[way]["bytes"].as_u64()
    };
    let most = Some(50 * 4 * 4 + 7);
    assert_eq!(planned("soft labels of public samples", "up"), most);
    assert_eq!(planned("learning from soft labels", "down"), most);
    let kept = answer["metrics"]["taught.samples"].as_f64().unwrap() as u64;
    let learnt = bytes(&entry(dir, "learning from soft labels"), "bytes_down");
    assert!(kept < 50, "{answer}");
    assert_eq!(learnt, (4 * kept * 4 * 4, 4 * 7));
}

#[test]
fn bounded_a_filter_that_looks_at_the_samples_is_right_about_what_a_client_knows() {
    let dir = tempfile::tempdir().unwrap();
    let mut accuracy = Vec::new();
    let filter = "  client-filter: { use: density-ratio, width: 2.0, uniform: 100, share: 0.3 }";
    for parts in [MEAN.to_string(), format!("{MEAN}\n{filter}")] {
        let answer = run(dir.path(), "  order: own-before-labels", &parts);
        accuracy.push(answer["metrics"]["clients.accuracy"].as_f64().unwrap());
        if parts.contains("filter") {
            let auroc = answer["metrics"]["filter.auroc"].as_f64().unwrap();
            let precision = answer["metrics"]["filter.precision"].as_f64().unwrap();
            assert!(auroc > 0.9 && precision > 0.8, "{answer}");
        }
    }
    assert!(accuracy[1] > accuracy[0] + 0.03, "{accuracy:?}");
}

#[test]
fn exact_a_round_without_anything_to_learn_is_counted_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // no score is certain to the last bit
    let parts = format!("{MEAN}\n  server-filter: {{ use: unambiguous, max-distance: 0.0 }}");
    let spec = spec(dir, "", &parts);
    let o = fl(dir, &["run", &spec, "--json", "--out", "silent"]);
    let said = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.success(), "{said}");
    assert!(
        said.contains("in 3 of 3 rounds nothing was left to learn from the others: every label was filtered out"),
        "{said}"
    );
    let answer: Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(answer["metrics"]["taught.samples"], 0.0);
    assert_eq!(answer["rounds"], 4);
    // what every client alone has learnt: one class
    assert_eq!(
        answer["metrics"]["clients.accuracy"]
            .as_f64()
            .unwrap()
            .to_string(),
        alone(dir)
    );
}

/// FedDF's early stop. A single client is its own mean, so its model cannot gain from what it says
/// itself.
#[test]
fn exact_fusing_stops_after_its_patience_and_keeps_the_best_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let run = |clients: usize, protocol: &str| {
        let text = format!(
            "name: fused
seed: 1
data: {{ set: {{ blobs: {{ classes: 4 }} }}, clients: {clients}, split: iid, public: {{ from: {{ count: 100 }} }} }}
protocol: {{ {protocol}, rounds: 1, local: {{ epochs: 2, batch: 16 }} }}
parts: {{ model: {{ use: linear, lr: 0.1 }}, aggregator: {{ use: mean }} }}
"
        );
        let path = dir.path().join("fused.yaml");
        fs::write(&path, text).unwrap();
        let _ = fs::remove_dir_all(dir.path().join("out"));
        let path = path.display().to_string();
        json(dir.path(), &["run", &path, "--json", "--out", "out"])["metrics"].clone()
    };
    let fuse = |patience: &str| {
        format!("use: feddf, training: {{ steps: 60, batch: 16 }}, patience: {patience}")
    };
    let alone = run(1, &fuse("20"));
    assert!(alone["fuse.steps"].as_f64().unwrap() < 60.0, "{alone}");
    assert_eq!(
        alone["accuracy"],
        run(1, "use: fedavg")["accuracy"],
        "nothing gained"
    );
    let patient = run(4, &fuse("60"));
    assert_eq!(patient["fuse.steps"], 60.0, "as long as the training");
}

fn alone(dir: &Path) -> String {
    let parts = format!("{MEAN}\n  client-filter: {{ use: confidence, threshold: 1.0 }}");
    let answer = run(dir, "  filter-on: scores", &parts);
    answer["metrics"]["clients.accuracy"]
        .as_f64()
        .unwrap()
        .to_string()
}

#[test]
fn every_order_and_every_kind_of_label_learns_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    let scores = "  ensemble: { use: mean-logits }";
    let student = "  student: { use: linear }";
    for (protocol, parts) in [
        ("  order: own-first", MEAN.to_string()),
        ("  order: own-before-labels", MEAN.into()),
        ("  order: public-first", MEAN.into()),
        ("  order: turns", MEAN.into()),
        ("  reply: hard", MEAN.into()),
        ("  labels: hard", MEAN.into()),
        ("  labels: scores", scores.into()),
        ("  labels: { scores: { loss: { kl: 2.0 } } }", scores.into()),
        ("  labels: { scores: { loss: mse } }", scores.into()),
        (
            "  samples: 80",
            "  ensemble: { use: entropy-reduction }".into(),
        ),
        ("  samples: 90", "  ensemble: { use: robust-labels }".into()),
        ("  teacher: student", format!("{MEAN}\n{student}")),
        (
            "  student: { steps: 3, batch: 20 }",
            format!("{MEAN}\n{student}"),
        ),
    ] {
        let answer = run(dir.path(), protocol, &parts);
        let accuracy = answer["metrics"]["clients.accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.26, "{protocol}: {answer}");
        assert_eq!(
            parts.contains(student),
            answer["metrics"]["accuracy"].is_f64()
        );
        digests.push(answer["digest"].to_string());
    }
    let n = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), n, "every one of them is another run");
}

#[test]
fn true_labels_teach_whatever_the_clients_say() {
    let dir = tempfile::tempdir().unwrap();
    let learnt = |protocol: &str, parts: &str| {
        let path = spec(dir.path(), protocol, parts);
        let _ = fs::remove_dir_all(dir.path().join("out"));
        let set = ["--set", "data.public.labelled=true"];
        let run = [&["run", &path, "--json", "--out", "out"], &set[..]].concat();
        json(dir.path(), &run)["metrics"]["clients.accuracy"].clone()
    };
    let noise = format!("{MEAN}\n  privacy: {{ use: laplace-labels, scale: 10.0 }}");
    let truth = learnt("  teacher: truth", MEAN);
    assert_eq!(truth, learnt("  teacher: truth", &noise));
    assert_ne!(learnt("", MEAN), learnt("", &noise));
    assert!(truth.as_f64().unwrap() > 0.8, "{truth}");
    // the server's student learns what the clients say
    let student = |parts: &str| {
        let parts = format!("{parts}\n  student: {{ use: linear }}");
        learnt("  teacher: truth", &parts);
        fs::read(dir.path().join("out/models/student")).unwrap()
    };
    assert!(student(MEAN) != student(&noise));
    let path = spec(dir.path(), "  teacher: truth", MEAN);
    let (code, said) = fails(dir.path(), &["check", &path]);
    assert!(
        code == 2 && said.contains("set `data.public.labelled: true`"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_guaranteed_is_said_and_a_budget_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let noise = "  privacy: { use: laplace-labels, scale: 10.0 }\n  accountant: { use: basic }";
    let answer = run(dir, "", &format!("{MEAN}\n{noise}"));
    // three rounds of 50 labels, 2 / 10 each
    let epsilon = answer["privacy"]["clients"]["epsilon"].as_f64().unwrap();
    assert!((epsilon - 30.0).abs() < 1e-9, "{answer}");
    assert_eq!(answer["privacy"]["clients"]["unit"], "party");
    let path = spec(dir, "", &format!("{MEAN}\n{noise}"));
    let args = [
        "run",
        &path,
        "--json",
        "--set",
        "budget={epsilon: 22, against: clients}",
        "--out",
        "cut",
    ];
    let (code, said) = {
        let o = fl(dir, &args);
        (
            o.status.code(),
            String::from_utf8_lossy(&o.stderr).into_owned(),
        )
    };
    // two rounds fit, and ten labels of the third; then no label is released
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("10 of 50 queries were released"), "{said}");

    let filter = "  client-filter: { use: density-ratio, width: 2.0, uniform: 30, share: 0.3 }";
    let answer = run(dir, "", &format!("{MEAN}\n{noise}\n{filter}"));
    for observer in ["server", "clients", "readers"] {
        let why = answer["privacy"][observer]["nothing"][0].as_str();
        assert!(
            why.is_some_and(|why| why.contains("without noise") || why.contains("own models")),
            "{answer}"
        );
    }
    // clients send scores of their own models, which no noise has touched, and readers see them
    let path = spec(dir, "", &format!("{MEAN}\n{noise}"));
    for (against, name) in [
        ("readers", "readers of the results"),
        ("server", "the server"),
    ] {
        let budget = format!("budget={{epsilon: 22, against: {against}}}");
        let set = ["check", &path, "--set", &budget];
        let (code, said) = fails(dir, &set);
        assert_eq!(code, 2);
        let who = format!(
            "cannot be kept against {name}: data that this observer sees have no price: results show the clients' own models (`model`)"
        );
        assert!(said.contains(&who), "{said}");
        let unseen = [&set[..], &["--set", "protocol.evaluate-clients=false"]].concat();
        out(dir, &unseen);
    }
}

#[test]
fn exact_a_private_sample_costs_what_the_paper_says_and_every_draw_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sampling = |k: &str| {
        format!(
            "{MEAN}\n  sampling: {{ use: sample-examples, {k} }}\n  accountant: {{ use: nfdp }}"
        )
    };
    // 1,000 rows, of which 100 are public; a quarter of the rest each
    let known = "k: 20, min-examples: 224";
    let once = run(dir, "", &sampling(known));
    let again = run(dir, "  resample: true", &sampling(known));
    let get = |answer: &Value, key: &str| answer["privacy"]["readers"][key].as_f64().unwrap();
    let n = fl_core::privacy::sampled(20, 224, false);
    assert!(
        (get(&once, "epsilon") - n.0).abs() < 1e-12 && (get(&once, "delta") - n.1).abs() < 1e-12,
        "{once}"
    );
    assert_eq!(once["privacy"]["readers"]["unit"], "example");
    // once before the first round and once in each of three
    assert!(
        (get(&again, "epsilon") - 4.0 * n.0).abs() < 1e-12,
        "{again}"
    );
    let path = spec(dir, "", &sampling(known));
    let (code, said) = fails(
        dir,
        &["run", &path, "--set", "budget.epsilon=0.01", "--out", "no"],
    );
    assert_eq!(code, 1);
    assert!(said.contains("epsilon"), "{said}");
    // a client's true count is private: a price would disclose it
    let own = run(dir, "", &sampling("k: 20"));
    let n = fl_core::privacy::sampled(20, 225, false);
    for observer in ["server", "clients", "readers"] {
        let told = &own["privacy"][observer];
        assert_eq!(
            told["nothing"][0],
            "its price depends on the data, and so discloses something about them"
        );
        assert!(
            told["epsilon"].is_null() && told["of_these_data"]["epsilon"] == n.0,
            "{told}"
        );
    }
    let costs = fs::read_to_string(dir.join("out/costs.jsonl")).unwrap();
    assert!(costs.contains(r#""readers":null"#), "{costs}");
    let path = spec(dir, "", &sampling("k: 20"));
    let (code, said) = fails(dir, &["check", &path, "--set", "budget.epsilon=0.5"]);
    let refused = "its price depends on the data, so no budget can be kept: set `data-dependent: false` of votes, or `min-examples` of a sample of examples";
    assert!(code == 2 && said.contains(refused), "{said}");
    // a client with exactly as many has fewer without one of them
    let path = spec(dir, "", &sampling("k: 20, min-examples: 225"));
    let (code, said) = fails(dir, &["check", &path]);
    assert!(
        code == 2 && said.contains("for more than 225 examples, and a client has no more"),
        "{said}"
    );
    let path = spec(dir, "", &sampling("k: 20, min-examples: 19"));
    let (code, said) = fails(dir, &["check", &path]);
    assert!(
        code == 2 && said.contains("and `min-examples` only 19"),
        "{said}"
    );
    let path = spec(dir, "", &sampling("k: 20, share: 0.5"));
    let (code, said) = fails(dir, &["check", &path]);
    assert_eq!(code, 2);
    assert!(said.contains("give `k` or `share`"), "{said}");
}

#[test]
fn exact_a_client_that_could_not_draw_its_sample_does_not_train_on_all_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sampling = "  sampling: { use: sample-examples, k: 100 }\n  accountant: { use: nfdp }";
    let path = spec(dir, "", &format!("{MEAN}\n{sampling}"));
    // 900 examples, unevenly shared out
    let sets = [
        "data.split={dirichlet: {alpha: 0.2}}",
        "faults.on-error=drop",
    ];
    let mut command = vec!["run", &path, "--json", "--out", "out"];
    sets.iter().for_each(|set| command.extend(["--set", set]));
    json(dir, &command);
    let dropped = |question: &str| entry(dir, question)["dropped"].clone();
    let few = dropped("warm-up").as_array().unwrap().len();
    assert!(few > 0 && few < 4, "{few} of 4 have fewer than 100");
    let (before, then) = (dropped("warm-up"), dropped("learning from soft labels"));
    assert_eq!(then.as_array().unwrap().len(), few, "{then}");
    assert_eq!(before[0][0], then[0][0], "the same clients");
    assert!(
        then[0][1].as_str().unwrap().contains("withholds the text"),
        "{then}"
    );
}

#[test]
fn mistakes_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let refused = |protocol: &str, parts: &str| {
        let path = spec(dir, protocol, parts);
        let (code, said) = fails(dir, &["check", &path]);
        assert_eq!(code, 2, "{said}");
        said
    };
    let said = refused("  labels: scores", MEAN);
    assert!(
        said.contains("must be logits -> logits, but `mean-labels` is soft-labels -> soft-labels"),
        "{said}"
    );
    let said = refused(
        "  labels: scores\n  teacher: student",
        "  ensemble: { use: mean-logits }",
    );
    assert!(said.contains("use `labels: soft` or `hard`"), "{said}");
    let said = refused("  teacher: student", MEAN);
    assert!(said.contains("student"), "{said}");
    let said = refused(
        "",
        &format!("{MEAN}\n  privacy: {{ use: randomised-response }}"),
    );
    assert!(
        said.contains("votes") && said.contains("soft-labels"),
        "{said}"
    );
    let said = refused("  labels: soft\n  score-loss: mae", MEAN);
    assert!(said.contains("score-loss: no such setting"), "{said}");
    let path = spec(dir, "  pretrain: { epochs: 1, batch: 10 }", MEAN);
    let (code, said) = fails(dir, &["run", &path, "--out", "unlabelled"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("set `data.public.labelled: true`"), "{said}");
    let parts = format!("{MEAN}\n  client-filter: {{ use: confidence }}");
    let path = spec(dir, "", &parts);
    let (code, said) = fails(dir, &["run", &path, "--out", "inputs"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("set `protocol.filter-on: scores`"), "{said}");
    assert!(!root().join("unlabelled").exists());
}

#[test]
fn settings_without_an_effect_are_refused_before_anything_is_trained() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (protocol, what) in [
        ("  filter-on: scores", "parts.client-filter"),
        ("  student: { steps: 3, batch: 20 }", "parts.student"),
        ("  resample: true", "parts.sampling"),
    ] {
        let path = spec(dir, protocol, MEAN);
        let (_, said) = fails(dir, &["run", &path, "--out", "idle"]);
        let right = format!("while `{what}` is empty: fill that, or leave");
        assert!(said.contains(&right), "{said}");
    }
}

/// As `spec`, by class means and without public samples.
fn class_spec(dir: &Path, protocol: &str, parts: &str) -> String {
    let text = format!(
        "name: classes
seed: 1
data: {{ set: {{ blobs: {{ classes: 4 }} }}, clients: 4, split: {{ dirichlet: {{ alpha: 0.5 }} }} }}
protocol: {{ use: class-distill, rounds: 3, local: {{ steps: 3, batch: 16 }}{protocol} }}
parts: {{ model: {{ use: linear }}, {parts} }}
"
    );
    let path = dir.join("classes.yaml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn class_means_are_exchanged_in_several_ways() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut digests = Vec::new();
    let mean = "ensemble: { use: mean-of-classes }";
    let sampled =
        format!("{mean}, sampling: {{ use: sample-examples, k: 20 }}, accountant: {{ use: nfdp }}");
    for (protocol, parts) in [
        ("", mean),
        (", leave-one-out: true", mean),
        (", weight: 0.0", mean),
        (", warm-up: { steps: 5 }", mean),
        ("", "ensemble: { use: mean-of-classes, which: agreeing }"),
        ("", &sampled),
        (", resample: true", &sampled),
    ] {
        let path = class_spec(dir, protocol, parts);
        let _ = fs::remove_dir_all(dir.join("out"));
        let answer = json(dir, &["run", &path, "--json", "--out", "out"]);
        let accuracy = answer["metrics"]["clients.accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.3, "{protocol}: {answer}");
        assert_eq!(
            bytes(&entry(dir, "learning from class means"), "bytes_up").0,
            0
        );
        digests.push(answer["digest"].to_string());
    }
    let n = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), n, "every one of them is another run");
}

#[test]
fn exact_a_client_alone_is_shown_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mean = "ensemble: { use: mean-of-classes }";
    let accuracy = |protocol: &str| {
        let path = class_spec(dir, protocol, mean);
        let _ = fs::remove_dir_all(dir.join("out"));
        let command = [
            "run",
            &path,
            "--json",
            "--out",
            "out",
            "--set",
            "data.clients=1",
            "--set",
            "data.split=iid",
        ];
        json(dir, &command)["metrics"]["clients.accuracy"].clone()
    };
    assert_eq!(
        accuracy(", leave-one-out: true"),
        accuracy(", weight: 0.0"),
        "its labels are all that it learns"
    );
}

#[test]
fn exact_a_class_of_one_client_is_taught_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = class_spec(
        dir,
        ", leave-one-out: true",
        "ensemble: { use: mean-of-classes }",
    );
    let run = |split: &str| {
        let split = format!("data.split={split}");
        let _ = fs::remove_dir_all(dir.join("out"));
        let args = ["run", &path, "--json", "--out", "out", "--set", &split];
        let done = fl(dir, &args);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
        (answer["metrics"]["taught.classes"].as_f64(), said)
    };
    let (taught, said) = run("{classes: 1}");
    let due = "in 3 rounds no client was sent the mean of a class that it has";
    assert!(taught == Some(0.0) && said.contains(due), "{said}");
    let (taught, said) = run("iid");
    assert!(
        taught == Some(4.0) && !said.contains("class mean"),
        "{said}"
    );
}

#[test]
fn what_class_means_have_no_use_for_is_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (protocol, parts, right) in [
        (
            ", filter-on: scores",
            "",
            "filter-on: no such setting; known: rounds",
        ),
        (
            ", samples: 80",
            "",
            "samples: no such setting; known: rounds",
        ),
        (
            ", score-loss: mae",
            "",
            "score-loss: no such setting; known: rounds",
        ),
        (
            "",
            ", client-filter: { use: confidence }",
            "has no slot `client-filter`; its slots: model, sampling, ensemble",
        ),
    ] {
        let parts = format!("ensemble: {{ use: mean-of-classes }}{parts}");
        let path = class_spec(dir, protocol, &parts);
        let (code, said) = fails(dir, &["check", &path]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(right), "{said}");
    }
}

#[test]
fn attackers_mislead_the_ensemble_and_only_attacks_on_its_labels_fit() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let judged = "  judge-labels: true";
    let misled = |labels: &str, ensemble: &str, attack: &str| {
        let protocol = format!("  labels: {labels}\n{judged}");
        let spec = spec(dir, &protocol, &format!("  ensemble: {ensemble}\n{attack}"));
        let _ = fs::remove_dir_all(dir.join("out"));
        let iid = ["--set", "data.split=iid", "--json", "--out", "out"];
        let answer = json(dir, &[&["run", &spec][..], &iid].concat());
        let report = fs::read_to_string(dir.join("out/report.md")).unwrap();
        assert_eq!(
            report.contains("attackers: "),
            !attack.is_empty(),
            "{report}"
        );
        answer["metrics"]["taught.p1"].as_f64().unwrap()
    };
    for (labels, ensemble, flip) in [
        ("soft", "{ use: mean-labels }", "soft-label-flip"),
        ("hard", "{ use: mean-labels }", "label-flip"),
        ("scores", "{ use: mean-logits }", "score-flip"),
    ] {
        let attack = format!("  attack: {{ use: {flip}, flip: next, clients: 0-2 }}");
        let (honest, attacked) = (
            misled(labels, ensemble, ""),
            misled(labels, ensemble, &attack),
        );
        assert!(
            honest < 0.2 && attacked > 0.6,
            "{labels}: {honest} {attacked}"
        );
    }
    let parts = format!("{MEAN}\n  attack: {{ use: sign-flip, clients: [0] }}");
    let (code, said) = fails(dir, &["check", &spec(dir, "", &parts)]);
    assert!(code == 2 && said.contains("soft-label-flip"), "{said}");
    // without the true classes there is nothing to judge by
    let spec = spec(dir, judged, MEAN);
    let public = "data.public={from: {set: {blobs: {classes: 4, seed: 9}}}}";
    for public in [
        public,
        "data.public.mix={set: {blobs: {classes: 4, seed: 9}}, share: 0.5}",
    ] {
        let (code, said) = fails(dir, &["check", &spec, "--set", public]);
        let due = "protocol.judge-labels: `judge-labels` needs the classes of the public samples";
        assert!(code == 2 && said.contains(due), "{said}");
    }
}

#[test]
fn exact_clients_models_are_results_if_the_spec_keeps_them() {
    let kept = |out: &Path| {
        let models = fs::read_dir(out.join("models")).into_iter().flatten();
        let models = models.map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, fs::read(file.path()).unwrap())
        });
        models.collect::<BTreeMap<_, _>>()
    };
    for (name, slot, clients) in [
        ("solo", "model", 5),
        ("centralised", "model", 1),
        ("fedkd", "teacher", 5),
        ("fedkt", "student", 5),
        ("fediod", "teacher", 3),
    ] {
        let (dir, path) = (tempfile::tempdir().unwrap(), quick(name));
        let run = |out: &str, more: &[&str]| {
            let mut args = vec!["run", &path, "--json", "--quiet", "--out", out];
            if name == "fediod" {
                args.extend(["--set", "protocol.rounds=1", "--set", "protocol.steps=1"]);
            }
            args.extend(more);
            let digest = json(dir.path(), &args)["digest"].clone();
            (digest, kept(&dir.path().join(out)))
        };
        let keep = ["--set", "protocol.keep-clients=true"];
        let (plain, all) = (run("plain", &[]), run("all", &keep));
        assert_eq!(plain.0, all.0, "{name}");
        let mut more = all.1.clone();
        more.retain(|model, _| !plain.1.contains_key(model));
        let names: Vec<_> = (0..clients).map(|id| format!("{slot}-{id}")).collect();
        assert_eq!(
            more.keys().collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>()
        );
        let apart = run("apart", &[&keep[..], &["--processes", "2"]].concat());
        assert!(
            all == apart,
            "{name}: models of clients in processes differ"
        );
    }
}

#[test]
fn kept_models_of_parties_leave_readers_no_guarantee() {
    let dir = tempfile::tempdir().unwrap();
    let path = quick("fedkt-l1");
    let run = |keep: &str| {
        let keep = format!("protocol.keep-clients={keep}");
        let unseen = "protocol.evaluate-clients=false";
        let args = [
            "run", &path, "--json", "--set", unseen, "--set", &keep, "--out", &keep,
        ];
        json(dir.path(), &args)["privacy"]["readers"].clone()
    };
    assert!(run("false")["epsilon"].as_f64().is_some_and(|e| e > 0.0));
    let why = "results show the clients' own models (`student`)";
    assert_eq!(run("true")["nothing"], serde_json::json!([why]));
}

#[test]
fn clients_that_did_not_train_are_neither_scored_nor_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path();
    let crash = "faults={on-error: drop, inject: [{what: crash, clients: 0, rounds: 0}]}";
    let short: &[&str] = &[
        "data.split={size: {shares: [300, 300, 2, 2, 300]}}",
        "protocol.short-party=skip",
    ];
    let votes: &[&str] = &["protocol.send=votes", crash];
    let brief: &[&str] = &["protocol.rounds=1", "protocol.steps=1", crash];
    let cases = [
        ("fedkt", "student", short, &[0, 1, 4][..]),
        ("fedkt", "student", &[crash], &[1, 2, 3, 4]),
        ("fedkt", "student", votes, &[1, 2, 3, 4]),
        ("fedkd", "teacher", &[crash], &[1, 2, 3, 4]),
        ("dense", "teacher", brief, &[1, 2]),
        ("fediod", "teacher", brief, &[1, 2]),
    ];
    for (at, (name, slot, set, due)) in cases.into_iter().enumerate() {
        let (path, out) = (quick(name), at.to_string());
        let keep = [
            "protocol.keep-clients=true",
            "protocol.evaluate-clients=true",
        ];
        let set = set.iter().chain(&keep).flat_map(|set| ["--set", *set]);
        let args = ["run", &path, "--json", "--out", &out].into_iter();
        json(dir, &args.chain(set).collect::<Vec<_>>());
        let metrics = fs::read_to_string(dir.join(&out).join("metrics.jsonl")).unwrap();
        let lines = metrics.lines();
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let scored = lines
            .find(|line| line["name"] == "clients.accuracy")
            .unwrap();
        assert_eq!(
            scored["clients"],
            serde_json::json!(due),
            "{name}: {scored}"
        );
        let models = fs::read_dir(dir.join(&out).join("models")).unwrap();
        let models = models.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut kept: Vec<_> = models.filter(|model| model.starts_with(slot)).collect();
        kept.sort();
        let due: Vec<_> = due.iter().map(|id| format!("{slot}-{id}")).collect();
        kept.retain(|name| name != slot);
        assert_eq!(kept, due, "{name}");
    }
}

#[test]
fn a_client_that_did_not_train_does_not_teach() {
    let tmp = tempfile::tempdir().unwrap();
    let (dir, path) = (tmp.path(), quick("fedkd"));
    let crash = "faults={on-error: drop, inject: [{what: crash, clients: 0, rounds: 0}]}";
    json(
        dir,
        &["run", &path, "--json", "--out", "out", "--set", crash],
    );
    let asked = entry(dir, "scores of the public samples");
    let answers = asked["answers"].as_array().unwrap().iter();
    let by: Vec<_> = answers.map(|answer| answer[0].as_u64().unwrap()).collect();
    assert_eq!(by, [1, 2, 3, 4]);
}

#[test]
fn what_would_fail_or_do_nothing_is_found_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let linear = [
        "data.set=blobs",
        "parts.teacher={use: linear}",
        "parts.student={use: linear}",
        "protocol.passes=3",
    ];
    let other = [
        "data.public={from: {set: glyphs}, labelled: true}",
        "protocol.public-labels=true",
    ];
    let tested = [
        "data.public={from: half-of-test, labelled: true}",
        "protocol.public-labels=true",
    ];
    let one = ["data.public={from: {count: 1}}", "protocol.patience=5"];
    let steps = [
        "protocol.passes=4",
        "protocol.student={steps: 20, batch: 32}",
    ];
    let still = [
        "protocol.adversarial=0",
        "protocol.adversarial-temperature=2",
    ];
    let constant = ["protocol.weight-step=0", "protocol.weight-decay=0.5"];
    let normal = "parts.discriminator.net=[{conv: {out: 8, kernel: 4, stride: 2, pad: 1}}, batch-norm, outputs]";
    let random = "parts.discriminator.net=[{conv: {out: 8, kernel: 4, stride: 2, pad: 1}}, {dropout: 0.5}, outputs]";
    let cases: [(&str, &[&str], &str); 12] = [
        (
            "fedkd",
            &["protocol.passes=31"],
            "the others would only cost",
        ),
        ("fedkd", &steps, "give `student.epochs` in place of steps"),
        ("fedkd", &linear, "which needs images"),
        ("fedkd", &other, "or of another data set"),
        ("fedkd", &tested, "these are test rows"),
        ("feddf", &one, "there is at most 1"),
        ("feddf", &["protocol.validation=0.3"], "without `patience`"),
        ("co-boosting", &still, "while `adversarial` is 0"),
        ("co-boosting", &constant, "while `weight-step` is 0"),
        (
            "fediod",
            &["protocol.game=linear", normal],
            "it has batch normalisation",
        ),
        (
            "fediod",
            &["protocol.game=linear", random],
            "its training is not by its gradient alone",
        ),
        (
            "fediod",
            &["protocol.terms.gan=0", "protocol.discriminators=mean"],
            "`terms.gan` is 0",
        ),
    ];
    for (name, set, due) in cases {
        let path = quick(name);
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let args: Vec<&str> = ["check", &path].into_iter().chain(set).collect();
        let (code, said) = fails(dir, &args);
        assert!(code == 2 && said.contains(due), "{args:?}: {said}");
    }
}

#[test]
fn a_range_that_clients_cannot_agree_on_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let parts = |z_max: &str| {
        format!(
            "  ensemble: {{ use: mean-logits }}\n  privacy: {{ use: quantise, levels: 4{z_max} }}"
        )
    };
    let path = spec(dir, "  labels: scores", &parts(""));
    let (code, said) = fails(dir, &["check", &path]);
    assert!(
        code == 2 && said.contains("protocol `co-distill` has no exchange for that"),
        "{said}"
    );
    for own in [", z-max: per-client", ", z-max: { fixed: 3.0 }"] {
        out(dir, &["check", &spec(dir, "  labels: scores", &parts(own))]);
    }
}

#[test]
fn exact_a_finished_run_that_makes_inputs_gets_more_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["dense", "co-boosting", "fediod"] {
        let path = quick(name);
        let run = |args: &[&str], rounds: &str| {
            let rounds = format!("protocol.rounds={rounds}");
            let steps = ["--json", "--quiet", "--set", &rounds];
            json(dir, &[args, &steps].concat())["digest"].clone()
        };
        let (whole, grown) = (format!("{name}-whole"), format!("{name}-grown"));
        let few = ["--set", "protocol.steps=2"];
        let begin =
            |out: &str, rounds| run(&[&["run", &path, "--out", out], &few[..]].concat(), rounds);
        let due = begin(&whole, "3");
        begin(&grown, "2");
        assert_eq!(run(&["run", "--resume", &grown], "3"), due, "{name}");
    }
}
