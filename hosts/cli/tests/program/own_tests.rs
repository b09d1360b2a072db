//! Test rows of a client's own, from the spec to the results.

use crate::common::{fails, fl, flat, json, out, quick, root};
use crate::library;
use serde_json::Value;

const SPEC: &str = "name: own
seed: 3
data:
  set: { blobs: { classes: 4, features: 8, train: 400, test: 80 } }
  clients: 12
  split: { dirichlet: { alpha: 0.5, min-size: 4 } }
  test: { own: 0.25, of: all }
protocol: { use: PROTOCOL, rounds: 10, local: { epochs: 1, batch: 16 } }
parts:
  model: { use: linear }
  aggregator: { use: mean }
";

const MEAN: &str = "aggregator: { use: mean }";
/// A network with features.
const NET: &str = "model: { use: dfdx, net: [linear: 6, relu, outputs] }";

fn spec(dir: &std::path::Path, text: &str) {
    std::fs::write(dir.join("own.yaml"), text).unwrap();
}

fn number(of: &Value, name: &str) -> f64 {
    let found = of["metrics"][name].as_f64();
    found.unwrap_or_else(|| panic!("{name}: {}", of["metrics"]))
}

#[test]
fn exact_own_test_rows_give_one_digest_on_threads_wire_processes_and_after_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for protocol in [
        "fedavg",
        "solo",
        "ifca",
        "fedper",
        "lg-fedavg",
        "fedbn",
        "fedrep",
        "fedbabu",
        "ditto",
        "apfl",
        "per-fedavg",
        "feddyn",
        "moon",
        "fedproto",
        "fedtgp",
        "fedgh",
        "fedamp",
    ] {
        let text = SPEC.replace("PROTOCOL", protocol);
        let text = match protocol {
            "lg-fedavg" | "fedbabu" | "moon" | "fedproto" | "fedtgp" | "fedgh" => {
                text.replace("model: { use: linear }", NET)
            }
            // layers that normalise stay at the clients
            "fedbn" => text.replace(
                "model: { use: linear }",
                &NET.replace("relu", "batch-norm, relu"),
            ),
            _ => text,
        };
        let half = || text.clone() + "  cohort: { use: uniform, share: 0.5 }\n";
        let text = match protocol {
            "fedper" | "fedrep" => half().replace("rounds: 10", "rounds: 10, share: [weight]"),
            "ditto" | "feddyn" | "moon" | "lg-fedavg" | "fedbn" => half(),
            "apfl" => half().replace("rounds: 10", "rounds: 10, adaptive: true"),
            "fedbabu" | "per-fedavg" => {
                half().replace("rounds: 10", "rounds: 10, tune: { steps: 2, batch: 16 }")
            }
            "fedamp" => half().replace(MEAN, "aggregator: { use: fed-adam }"),
            "fedtgp" => half().replace(MEAN, "prototypes: { use: trainable-prototypes }"),
            "fedgh" => half().replace(&format!("  {MEAN}\n"), ""),
            "fedproto" => half().replace(MEAN, "prototypes: { use: mean-of-features }"),
            "ifca" => text.replace("rounds: 10", "rounds: 10, clusters: 2"),
            "solo" => text
                .replace(", rounds: 10", "")
                .replace(&format!("  {MEAN}\n"), ""),
            _ => text,
        };
        spec(dir, &text);
        let run = ["run", "own.yaml", "--json"];
        let plain = json(dir, &run);
        for how in [
            &["--threads", "1"][..],
            &["--threads", "3", "--wire"],
            &["--processes", "2"],
        ] {
            let other = json(dir, &[&run[..], how].concat());
            assert_eq!(plain["digest"], other["digest"], "{protocol} {how:?}");
            assert_eq!(plain["metrics"], other["metrics"], "{protocol} {how:?}");
        }
        if protocol != "solo" {
            let stop = ["--stop-after", "3", "--out", protocol];
            out(dir, &[&run[..2], &stop].concat());
            let resumed = json(dir, &["run", "--resume", protocol, "--json"]);
            assert_eq!(plain["digest"], resumed["digest"], "{protocol}");
            assert_eq!(plain["metrics"], resumed["metrics"], "{protocol}");
        }
        let of = match protocol {
            "fedavg" | "feddyn" | "moon" => "own",
            _ => "clients",
        };
        let named = |name: &str| number(&plain, &format!("{of}.{name}accuracy"));
        let folder = dir.join(plain["out"].as_str().unwrap());
        let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        let lines = metrics
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let mut lines = lines.filter(|line: &Value| line["name"] == format!("{of}.accuracy"));
        let last = lines.next_back().unwrap();
        let each = last["each"].as_array().unwrap().iter();
        let mut each: Vec<f64> = each.map(|score| score.as_f64().unwrap()).collect();
        assert_eq!(each.len(), 12, "{protocol}");
        each.sort_by(f64::total_cmp);
        // the worst tenth of twelve are two
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(
            named("worst-tenth."),
            f64::midpoint(each[0], each[1])
        ));
        assert!(close(named("best."), each[11]), "{protocol}");
        assert!(
            close(named(""), each.iter().sum::<f64>() / 12.0),
            "{protocol}"
        );
        assert!(each[0] < each[11], "{protocol}: the clients are not alike");
        if protocol == "fedavg" {
            // the common test rows are those of all clients, so it is their mean over rows
            assert!(close(named("over-rows."), number(&plain, "accuracy")));
        }
    }
}

#[test]
fn close_the_error_over_rows_is_that_of_all_rows_together() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = SPEC
        .replace("PROTOCOL", "fedavg")
        .replace("blobs: { classes: 4, features: 8,", "friedman: {")
        .replace(
            "dirichlet: { alpha: 0.5, min-size: 4 }",
            "size: { dirichlet: 2.0 }",
        );
    spec(dir, &text);
    let run = json(dir, &["run", "own.yaml", "--json"]);
    // the common test rows are those of all clients
    let all = number(&run, "rmse");
    assert!(
        (number(&run, "own.over-rows.rmse") / all - 1.0).abs() < 1e-6,
        "{run}"
    );
}

#[test]
fn a_mean_that_leaves_out_clients_says_so_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // the dirichlet split leaves some clients with test rows of one class
    let two = SPEC
        .replace("PROTOCOL", "fedper")
        .replace("rounds: 10", "rounds: 3, share: [weight]")
        .replace("classes: 4", "classes: 2")
        .replace("alpha: 0.5", "alpha: 0.2");
    spec(dir, &two);
    let notes = |at: &str| {
        out(dir, &["run", "own.yaml", "--out", at]);
        let outcome = std::fs::read_to_string(dir.join(at).join("outcome.json")).unwrap();
        let outcome: Value = serde_json::from_str(&outcome).unwrap();
        let notes = outcome["notes"].as_array().unwrap().iter();
        let notes = notes.map(|note| note.as_str().unwrap().to_string());
        notes
            .filter(|note| note.contains("clients: it is"))
            .collect::<Vec<_>>()
    };
    let told = notes("two");
    let metrics = std::fs::read_to_string(dir.join("two/metrics.jsonl")).unwrap();
    let of = |name: &str| {
        let mut lines = metrics
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = lines.find(|line| line["name"] == name).unwrap();
        line["each"].as_array().unwrap().len()
    };
    let (some, all) = (of("clients.auc"), of("clients.accuracy"));
    assert!(some < all && all == 12, "{some} of {all}");
    let begins = format!("round 1: `clients.auc` is of {some} of 12 clients: ");
    assert!(told.len() == 1 && told[0].starts_with(&begins), "{told:?}");
    // of four classes there is no AUC, and nothing to say
    spec(dir, &two.replace("classes: 2", "classes: 4"));
    assert!(notes("four").is_empty());
}

/// Six clients with a file each, of numbers; those of one are so large that its training diverges.
const DIVERGES: &str = "name: own
seed: 1
data:
  set: { files: { format: csv, train: 'train/*.csv', test: 'test/*.csv', label: { column: z, kind: { number: { centre: 4, spread: 7 } } }, columns: { a: number, b: number } } }
  test: { own: files }
protocol: { use: PROTOCOL, rounds: 3, local: { epochs: 3, batch: 8 } }
parts: { model: { use: linear, lr: 0.1 }, aggregator: { use: mean } }
faults: { FAULTS }
";

#[test]
fn a_model_that_diverged_is_the_worst_and_no_missing_score() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for set in ["train", "test"] {
        std::fs::create_dir(dir.join(set)).unwrap();
        for k in 0..6 {
            let scale = if k == 3 && set == "train" { 1e5 } else { 1.0 };
            let rows = (0..12).map(|i| {
                let (a, b) = ((i * 7 % 5) as f64 - 2.0, (i * 3 % 4) as f64 - 1.5);
                format!("{},{b},{}\n", a * scale, 4.0 + 2.0 * a - b + f64::from(k))
            });
            let text: String = std::iter::once("a,b,z\n".to_string()).chain(rows).collect();
            std::fs::write(dir.join(format!("{set}/0{k}.csv")), text).unwrap();
        }
    }
    let text = DIVERGES.replace("PROTOCOL", "fedavg, share: [weight]");
    for faults in ["on-nan: drop", "on-nan: { retry: 1 }"] {
        spec(dir, &text.replace("FAULTS", faults));
        let run = json(dir, &["run", "own.yaml", "--json", "--out", "run"]);
        let metrics = run["metrics"].as_object().unwrap();
        for name in ["mae", "rmse", "over-rows.rmse", "worst-tenth.rmse"] {
            let found = metrics.get(&format!("clients.{name}"));
            assert!(found.is_some_and(Value::is_null), "{name}: {run}");
        }
        assert!(number(&run, "clients.best.rmse") > 0.0);
        assert!(!run.to_string().contains("is not defined"), "{run}");
        let solo = "protocol={use: solo, local: {epochs: 3, batch: 8}}";
        let still = ["parts.model.lr=0.0000001", "parts.aggregator=null", solo];
        let still = still.iter().flat_map(|set| ["--set", set]);
        let alone: Vec<&str> = ["run", "own.yaml", "--out", "alone"]
            .into_iter()
            .chain(still)
            .collect();
        out(dir, &alone);
        let compared = fl(dir, &["compare", "alone", "run"]).stdout;
        let compared = flat(&String::from_utf8(compared).unwrap());
        assert!(compared.contains(" of 6 clients ("), "{compared}");
        // what begins with a model of a federation is not alone
        let from = "protocol.initial=alone/models/model-0";
        let solo = "protocol={use: solo, local: {epochs: 3, batch: 8}, keep-clients: true}";
        let again = |name: &str, more: &[&str]| {
            let sets = [
                &["parts.model.lr=0.0000001", "parts.aggregator=null", solo],
                more,
            ]
            .concat();
            let sets = sets.iter().flat_map(|set| ["--set", set]);
            let run: Vec<&str> = ["run", "own.yaml", "--out", name]
                .into_iter()
                .chain(sets)
                .collect();
            out(dir, &run);
        };
        std::fs::remove_dir_all(dir.join("alone")).unwrap();
        again("alone", &[]);
        again("begun", &[from]);
        for (name, shown) in [("alone", true), ("begun", false)] {
            let compared = fl(dir, &["compare", name, "run"]).stdout;
            let compared = flat(&String::from_utf8(compared).unwrap());
            let said = compared.contains(" of 6 clients (");
            assert!(said == shown && compared.contains("protocol"), "{compared}");
        }
        std::fs::remove_dir_all(dir.join("begun")).unwrap();
        std::fs::remove_dir_all(dir.join("alone")).unwrap();
        std::fs::remove_dir_all(dir.join("run")).unwrap();
    }
    spec(dir, &text.replace("FAULTS", "on-error: drop"));
    let (_, error) = fails(dir, &["run", "own.yaml", "--out", "run"]);
    assert!(flat(&error).contains("client 3: the loss is"), "{error}");
}

#[test]
fn a_client_whose_rows_define_no_score_of_labels_is_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = "name: own\nseed: 1\ndata:\n  set: { multi-label: { train: 60, test: 20 } }\n  clients: 6\n  test: { own: 0.2 }\nprotocol: { use: fedavg, rounds: 3, local: { epochs: 2, batch: 4 } }\nparts: { model: { use: linear, lr: 0.1 }, aggregator: { use: mean } }\n";
    spec(dir, text);
    let run = fl(dir, &["run", "own.yaml", "--json"]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    let note = "`own.mauc` is of 4 of 6 clients: it is not defined";
    assert!(said.contains(note), "{said}");
    assert!(number(&run, "own.mauc") > 0.0);
    // one test row each has no score
    let run = fl(
        dir,
        &["run", "own.yaml", "--json", "--set", "data.test.own=0.01"],
    );
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("`own.mauc` is of 0 of 6 clients"), "{said}");
    let run: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(run["metrics"].get("own.mauc").is_none(), "{run}");
}

#[test]
fn rows_of_many_files_are_dealt_with_their_test_rows() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    hospitals(dir);
    let text = FILES.replace(
        "test: { own: files }",
        "split: iid\n  clients: 5\n  test: { own: 0.3, of: all }",
    );
    assert!(text.contains("of: all"), "{text}");
    spec(dir, &text.replace("PROTOCOL", "fedavg"));
    out(dir, &["data", "show", "own.yaml"]);
    out(dir, &["run", "own.yaml"]);
}

#[test]
fn exact_only_what_clients_share_is_counted_and_planned() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = SPEC.replace("PROTOCOL", "fedper");
    let text = text.replace("use: mean", "use: mean, weigh: uniform");
    // 32 weights and 4 biases; both come to all 12 clients once
    for (share, bytes) in [("weight", 128), ("bias", 16), ("-bias", 128)] {
        spec(
            dir,
            &text.replace("rounds: 10", &format!("rounds: 10, share: [{share}]")),
        );
        let run = json(dir, &["run", "own.yaml", "--json"]);
        assert_eq!(run["bytes"]["up"], 10 * 12 * bytes, "{share}");
        assert_eq!(run["bytes"]["down"], 10 * 12 * bytes + 12 * 144, "{share}");
        let plan = json(dir, &["plan", "own.yaml", "--json"]);
        assert_eq!(plan["bytes"], run["bytes"], "{share}");
    }
}

#[test]
fn the_check_names_a_group_that_a_network_lacks_with_those_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = SPEC
        .replace("PROTOCOL", "fedavg")
        .replace("model: { use: linear }", NET);
    for (share, says) in [
        (
            "[haed]",
            "it has no parameters called `haed`; did you mean `head`?; its groups are `body`, `head`, `0`, `2`",
        ),
        (
            "[-body, -head]",
            "the groups `-body`, `-head` leave none of its parameters; it has `body`, `head`, `0`, `2`",
        ),
    ] {
        spec(
            dir,
            &text.replace("rounds: 10", &format!("rounds: 10, share: {share}")),
        );
        for command in ["check", "run"] {
            let (code, error) = fails(dir, &[command, "own.yaml"]);
            assert!(code != 0 && flat(&error).contains(says), "{error}");
        }
    }
    spec(
        dir,
        &text.replace("rounds: 10", "rounds: 10, freeze-rest: true"),
    );
    let (code, error) = fails(dir, &["check", "own.yaml"]);
    assert!(
        code != 0 && error.contains("has no effect without `share`"),
        "{error}"
    );
}

#[test]
fn what_is_measured_on_own_rows_is_known_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = SPEC.replace("PROTOCOL", "fedavg");
    let stop = |metric: &str| format!("{text}stop-when: {{ metric: {metric}, patience: 1 }}\n");
    for metric in ["own.accuracy", "own.worst-tenth.accuracy"] {
        spec(dir, &stop(metric));
        out(dir, &["check", "own.yaml"]);
        let run = json(dir, &["run", "own.yaml", "--json"]);
        assert!(number(&run, metric) > 0.0);
    }
    let common = text.replace("  test: { own: 0.25, of: all }\n", "");
    spec(dir, &stop("own.accuracy").replace(&text, &common));
    let (code, error) = fails(dir, &["check", "own.yaml"]);
    assert!(
        code != 0 && error.contains("nothing in this run measures `own.accuracy`"),
        "{error}"
    );
    spec(dir, &text);
    let shown = out(dir, &["data", "show", "own.yaml"]);
    assert!(shown.contains("rows of its own"), "{shown}");
    out(dir, &["plan", "own.yaml"]);
}

#[test]
fn the_check_names_a_client_with_too_few_rows_before_a_run_does() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = SPEC.replace("PROTOCOL", "fedavg");
    spec(
        dir,
        &text
            .replace("min-size: 4", "min-size: 0")
            .replace("alpha: 0.5", "alpha: 0.01"),
    );
    for command in ["check", "run"] {
        let (code, error) = fails(dir, &[command, "own.yaml"]);
        assert!(
            code != 0 && flat(&error).contains("one to train and one to test with"),
            "{error}"
        );
    }
    spec(
        dir,
        &text.replace(
            "split: { dirichlet: { alpha: 0.5, min-size: 4 } }",
            "split: own",
        ),
    );
    let (code, error) = fails(dir, &["check", "own.yaml"]);
    assert!(
        code != 0 && error.contains("the set's test rows are not the clients'"),
        "{error}"
    );
}

#[test]
fn own_test_rows_that_clients_train_on_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rows = |from: usize, times: usize| -> String {
        let row = |i: usize| format!("{i},{},{}\n", i * i % 7, i % 2);
        (from..from + 20).map(|i| row(i).repeat(times)).collect()
    };
    for of in ["train", "all"] {
        for (times, repeats) in [(4, true), (1, false)] {
            let file = |name: &str, rows: String| {
                std::fs::write(dir.join(name), format!("a,b,y\n{rows}")).unwrap();
            };
            file("u.csv", rows(0, times));
            file("t.csv", rows(50, 1));
            let text = format!(
                "name: own\nseed: 1\ndata:\n  set: {{ files: {{ format: csv, train: u.csv, test: t.csv, label: y, classes: [0, 1] }} }}\n  clients: 2\n  test: {{ own: 0.25, of: {of} }}\nprotocol: {{ use: solo, local: {{ epochs: 1, batch: 4 }} }}\nparts: {{ model: {{ use: linear }} }}\n"
            );
            spec(dir, &text);
            let said = fl(dir, &["check", "own.yaml"]);
            let notes = flat(&String::from_utf8_lossy(&said.stderr));
            let told = notes.contains("test rows of the clients' own are training rows too");
            assert!(said.status.success() && told == repeats, "{of}: {notes}");
        }
    }
}

#[test]
fn measures_on_a_clients_own_rows_leave_no_guarantee() {
    let dir = tempfile::tempdir().unwrap();
    let own = ["--set", "data.test={own: 0.25}"];
    let spec = quick("fedavg-private");
    let plan = ["plan", &spec, own[0], own[1]];
    let plan = flat(&out(dir.path(), &plan));
    assert!(
        plan.contains("models are measured on rows of each client (`data.test`)"),
        "{plan}"
    );
}

/// Why `fl check` refuses the spec.
fn refused(dir: &std::path::Path) -> String {
    let (code, said) = fails(dir, &["check", "own.yaml"]);
    assert_eq!(code, 2, "{said}");
    flat(&said)
}

#[test]
fn the_check_refuses_what_prototypes_and_contrasts_cannot_learn() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let prototypes = "prototypes: { use: mean-of-features }";
    let trains = "it has no layers before the last one that a loss on features could train";
    let features = "it has no layer of features before its scores";
    for (protocol, part, lacks) in [
        ("moon", MEAN, trains),
        ("fedproto", prototypes, trains),
        ("fedgh", "", features),
    ] {
        let text = SPEC.replace("PROTOCOL", protocol);
        let text = text.replace(&format!("  {MEAN}\n"), &format!("  {part}\n"));
        spec(dir, &text);
        let said = refused(dir);
        assert!(said.contains(lacks), "{protocol}: {said}");
        let deep = text.replace("model: { use: linear }", NET);
        spec(dir, &deep);
        out(dir, &["check", "own.yaml"]);
        let blobs = "blobs: { classes: 4, features: 8, train: 400, test: 80 }";
        let number = deep.replace(blobs, "friedman: { train: 400, test: 80 }");
        let number = number.replace("dirichlet: { alpha: 0.5, min-size: 4 }", "iid");
        spec(dir, &number.replace("split: { iid }", "split: iid"));
        if protocol == "moon" {
            out(dir, &["check", "own.yaml"]);
            continue;
        }
        let said = refused(dir);
        assert!(
            said.contains("of inputs with one class each"),
            "{protocol}: {said}"
        );
    }
    let text = SPEC.replace("PROTOCOL", "moon");
    for (more, says) in [
        ("freeze-rest: true, share: [body]", "freeze-rest"),
        ("attacker-trainings: 2", "leave it at 1"),
    ] {
        let text = text.replace("rounds: 10", &format!("rounds: 10, {more}"));
        spec(dir, &text.replace("model: { use: linear }", NET));
        let said = refused(dir);
        assert!(said.contains(says), "{more}: {said}");
    }
}

#[test]
fn the_check_refuses_what_would_move_or_count_a_frozen_group() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (protocol, more, says) in [
        (
            "fedrep",
            "fresh: false",
            "by one optimiser, which must not go on from the other",
        ),
        (
            "fedrep",
            "head: { epochs: 1, batch: 8, clip: 1.0 }",
            "would count the gradients of what this training leaves as it is",
        ),
        (
            "fedavg",
            "share: [body], freeze-rest: true, fresh: false, tune: { epochs: 1, batch: 8 }",
            "which must not go on from that",
        ),
    ] {
        let text = SPEC.replace("PROTOCOL", protocol);
        let text = text.replace("rounds: 10", &format!("rounds: 10, {more}"));
        spec(dir, &text.replace("model: { use: linear }", NET));
        let said = refused(dir);
        assert!(said.contains(says), "{more}: {said}");
    }
}

#[test]
fn exact_a_run_beside_solo_tells_who_is_worse_than_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let each = |name: &str, protocol: &str, rounds: &str, part: &str, measure: &str| {
        let text = SPEC.replace("PROTOCOL", protocol);
        let text = text.replace(", rounds: 10", rounds);
        spec(dir, &text.replace(&format!("  {MEAN}\n"), part));
        out(dir, &["run", "own.yaml", "--out", name]);
        let metrics = std::fs::read_to_string(dir.join(name).join("metrics.jsonl")).unwrap();
        let mut lines = metrics.lines().map(|l| serde_json::from_str(l).unwrap());
        let last = lines.rfind(|line: &Value| line["name"] == measure);
        let scores = last.unwrap()["each"].as_array().unwrap().clone();
        let scores = scores.iter().map(|score| score.as_f64().unwrap());
        scores.collect::<Vec<f64>>()
    };
    let mean = format!("  {MEAN}\n");
    let alone = each("alone", "solo", "", "", "clients.accuracy");
    let own = each("ours", "fedavg", ", rounds: 1", &mean, "own.accuracy");
    let losses = alone.iter().zip(&own).map(|(alone, own)| alone - own);
    let worse: Vec<f64> = losses.filter(|loss| *loss > 0.0).collect();
    assert!(!worse.is_empty() && worse.len() < 12, "{worse:?}");
    let differ = |args: &[&str]| {
        let done = fl(dir, args);
        assert_eq!(done.status.code(), Some(1));
        String::from_utf8(done.stdout).unwrap()
    };
    for pair in [["alone", "ours"], ["ours", "alone"]] {
        let found = differ(&["compare", pair[0], pair[1], "--json"]);
        let found: Value = serde_json::from_str(&found).unwrap();
        let found = &found["alone"][0];
        assert_eq!(found["name"], "own.accuracy");
        assert_eq!(
            (&found["clients"], &found["worse"]),
            (&12.into(), &worse.len().into())
        );
        let due = worse.iter().sum::<f64>() / worse.len() as f64;
        assert!(
            (found["loss"].as_f64().unwrap() - due).abs() < 1e-12,
            "{found}"
        );
        // the share of clients, and the loss over all of them
        let rate = worse.len() as f64 / 12.0;
        let number = |name: &str| found[name].as_f64().unwrap();
        assert!((number("rate") - rate).abs() < 1e-12, "{found}");
        assert!((number("burden") - rate * due).abs() < 1e-12, "{found}");
    }
    let said = flat(&differ(&["compare", "alone", "ours"]));
    let part = format!(
        "worse than alone own.accuracy {} of 12 clients (",
        worse.len()
    );
    assert!(said.contains(&part), "{said}");
    out(dir, &["report", "alone", "ours", "--out", "page.html"]);
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.contains("worse than alone, own.accuracy"));
    // clients of another split are others
    spec(
        dir,
        &SPEC
            .replace("PROTOCOL", "fedavg")
            .replace("seed: 3", "seed: 4"),
    );
    out(dir, &["run", "own.yaml", "--out", "other"]);
    let said = flat(&differ(&["compare", "alone", "other"]));
    assert!(
        said.contains("unknown: `seed` differs, so the clients are not the same"),
        "{said}"
    );
}

#[test]
fn exact_a_study_says_what_compare_says_of_those_who_are_worse_than_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let solo = "protocol={use: solo, local: {epochs: 1, batch: 16}}";
    let alone = ["--set", solo, "--set", "parts.aggregator=null"];
    spec(
        dir,
        &SPEC
            .replace("PROTOCOL", "fedavg")
            .replace("rounds: 10", "rounds: 1"),
    );
    out(
        dir,
        &[&["run", "own.yaml", "--out", "alone"], &alone[..]].concat(),
    );
    out(dir, &["run", "own.yaml", "--out", "ours"]);
    let found = fl(dir, &["compare", "alone", "ours", "--json"]).stdout;
    let found: Value = serde_json::from_slice(&found).unwrap();
    let due = ["rate", "loss", "burden"].map(|of| found["alone"][0][of].as_f64().unwrap());
    assert!(due.iter().all(|number| *number > 0.0), "{due:?}");
    let study = |column: &str, solo: &str| {
        let text = format!(
            "name: s\nresults: s.results.jsonl\ndefaults: {{ base: own.yaml, seeds: 3 }}\ntables:\n- name: t\n  \
             columns: [{{ measure: negative-transfer.rate }}, {{ measure: negative-transfer.size }}, {{ measure: {column} }}]\n  \
             rows:\n  - {{ name: FedAvg }}\n  - {{ name: other, set: {{ {solo} }} }}\n"
        );
        std::fs::write(dir.join("s.yaml"), text).unwrap();
    };
    let set = "protocol: { use: solo, local: { epochs: 1, batch: 16 } }, parts.aggregator: null";
    study("negative-transfer.burden", set);
    let table = || {
        out(dir, &["study", "s.yaml"]);
        let csv = std::fs::read_to_string(dir.join("runs/studies/s.csv")).unwrap();
        ["rate", "size", "burden"].map(|of| {
            let line = csv.lines().find(|line| line.contains(&format!(".{of},")));
            let line = line.unwrap_or_else(|| panic!("{of}: {csv}"));
            assert!(line.starts_with("t,FedAvg,"), "{line}");
            line.split(',').nth(5).unwrap().parse::<f64>().unwrap()
        })
    };
    assert_eq!(table(), due);
    // a list is tried in its order
    study("[own.accuracy, negative-transfer.burden]", set);
    out(dir, &["study", "s.yaml"]);
    let csv = std::fs::read_to_string(dir.join("runs/studies/s.csv")).unwrap();
    let listed = "own.accuracy or negative-transfer.burden";
    let of = |name: &str| {
        let lines = csv.lines().filter(|line| line.starts_with("t,FedAvg,"));
        let mut found = lines.filter_map(|line| line.split_once(&format!("{name},1,")));
        let (_, numbers) = found.next_back().unwrap_or_else(|| panic!("{name}: {csv}"));
        numbers.split(',').next().unwrap().parse::<f64>().unwrap()
    };
    let runs = std::fs::read_to_string(dir.join("runs/studies/s-runs.csv")).unwrap();
    let own = format!(",own.accuracy,{},", of(listed));
    assert!(runs.contains(&own), "{own}: {runs}");
    study("negative-transfer.burden", set);
    // the recorded results have what it takes
    std::fs::remove_dir_all(dir.join("runs")).unwrap();
    assert_eq!(table(), due);
    // without a row of solo there is none, and check finds it
    study("negative-transfer.burden", "seed: 3");
    let (code, error) = fails(dir, &["study", "s.yaml", "--dry-run"]);
    assert!(
        code == 2 && error.contains("measures `negative-transfer.rate`; it needs a row of `solo`"),
        "{error}"
    );
    // the row that it compares with may stay out of a part of the table
    study("negative-transfer.burden", set);
    out(dir, &["study", "s.yaml", "--dry-run", "--only", "t/FedAvg"]);
    // it compares last scores, and no best ones
    study("negative-transfer.burden, best: true", set);
    let (_, error) = fails(dir, &["study", "s.yaml", "--dry-run"]);
    let why = "`negative-transfer.burden` compares the last scores of clients; leave `best`";
    assert!(error.contains(why), "{error}");
    // it has no plot
    study("negative-transfer.burden", set);
    let text = std::fs::read_to_string(dir.join("s.yaml")).unwrap();
    let plot = "- name: t\n  plots: [{ by: round, measure: negative-transfer.burden }]\n";
    std::fs::write(dir.join("s.yaml"), text.replace("- name: t\n", plot)).unwrap();
    let (_, error) = fails(dir, &["study", "s.yaml", "--dry-run"]);
    let why =
        "`negative-transfer.burden` compares a whole run with one of `solo`, and no plot has both";
    assert!(error.contains(why), "{error}");
    // a slip is named
    study("negative-transfer.burdens", set);
    let (_, error) = fails(dir, &["study", "s.yaml", "--dry-run"]);
    let hint = "did you mean `negative-transfer.burden`?";
    assert!(error.contains(hint), "{error}");
}

#[test]
fn runs_on_other_data_files_tell_nobody_worse_than_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    hospitals(dir);
    let solo = "protocol={use: solo, local: {epochs: 1, batch: 8}}";
    let alone = ["--set", solo, "--set", "parts.aggregator=null"];
    spec(dir, &FILES.replace("PROTOCOL", "fedavg"));
    out(
        dir,
        &[&["run", "own.yaml", "--out", "alone"], &alone[..]].concat(),
    );
    let said = |run: &str| {
        out(dir, &["run", "own.yaml", "--out", run]);
        let compared = fl(dir, &["compare", "alone", run]).stdout;
        flat(&String::from_utf8(compared).unwrap())
    };
    let same = said("same");
    assert!(!same.contains("unknown"), "{same}");
    std::fs::write(dir.join("train/b.csv"), rows(1, 7, 30)).unwrap();
    let other = said("other");
    let due = "train/b.csv differs, so the clients are not the same";
    let unknown = "worse than alone unknown: the data file ";
    assert!(other.contains(unknown) && other.contains(due), "{other}");
    out(dir, &["report", "alone", "other", "--out", "page.html"]);
    let page = std::fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.contains(due));
}

#[test]
fn a_study_of_own_files_says_why_nobody_is_told_worse_than_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    hospitals(dir);
    spec(dir, &FILES.replace("PROTOCOL", "fedavg"));
    let set = "protocol: { use: solo, local: { epochs: 1, batch: 8 } }, parts.aggregator: null";
    let text = format!(
        "name: s\nresults: s.results.jsonl\ntables:\n- name: t\n  base: own.yaml\n  seeds: 3\n  \
         measure: negative-transfer.rate\n  rows:\n  - {{ name: fa }}\n  - {{ name: solo, set: {{ {set} }} }}\n"
    );
    std::fs::write(dir.join("s.yaml"), text).unwrap();
    let study = |more: &[&str]| {
        let done = fl(dir, &[&["study", "s.yaml"], more].concat());
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let first = study(&[]);
    assert_eq!(first.0, Some(0), "{}", first.1);
    // the kept runs have the scores that the lines have not
    assert_eq!(study(&[]), first);
    let (_, said) = study(&["--only", "t/fa"]);
    let due = "No run has a number for `negative-transfer.rate`: ";
    let no_row = format!(
        "{due}no row here has a finished run of `solo` with seed 3 that begins without `initial`"
    );
    assert!(said.contains(&no_row), "{said}");
    std::fs::remove_dir_all(dir.join("runs")).unwrap();
    let (code, said) = study(&[]);
    let no_scores = format!("{due}it and the run of `solo` have no scores of the same clients");
    assert!(code == Some(1) && said.contains(&no_scores), "{said}");
}

/// Three hospitals with training and test files of their own.
const FILES: &str = "name: own
seed: 3
data:
  set: { files: { format: csv, train: \"train/*.csv\", test: \"test/*.csv\", label: y, classes: [no, yes] } }
  test: { own: files }
protocol: { use: PROTOCOL, rounds: 4, local: { epochs: 2, batch: 8 } }
parts:
  model: { use: linear }
  aggregator: { use: mean }
";

/// Rows of client `k`, `count` of them from number `from`.
fn rows(k: usize, from: usize, count: usize) -> String {
    let row = |at: usize| {
        let x = ((at * 37 + k * 11) % 100) as f64 / 50.0 - 1.0;
        let y = ((at * 53 + k * 29) % 97) as f64 / 48.0 - 1.0;
        let class = if x + y * (k as f64 - 1.0) > 0.1 {
            "yes"
        } else {
            "no"
        };
        format!("{x},{y},{class}\n")
    };
    let rows: String = (from..from + count).map(row).collect();
    format!("a,b,y\n{rows}")
}

/// Writes training and test files of three clients; client `k` tests with `4 + 2 k` rows.
fn hospitals(dir: &std::path::Path) {
    for (k, name) in ["a", "b", "c"].into_iter().enumerate() {
        for (folder, from, count) in [("train", 0, 30), ("test", 30, 4 + 2 * k)] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
            let file = dir.join(folder).join(format!("{name}.csv"));
            std::fs::write(file, rows(k, from, count)).unwrap();
        }
    }
}

#[test]
fn exact_clients_of_a_protocol_in_c_see_the_rows_that_they_have_held_back() {
    if !library::cc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    hospitals(dir);
    let source = root().join("hosts/cli/tests/program/held_back.c");
    library::compile(&source, &dir.join("held.so"), &["-Werror"]);
    let (data, _) = FILES.split_once("protocol:").unwrap();
    let text = format!("{data}plugins: [{{ path: held.so }}]\nprotocol: {{ use: c-held-back }}\n");
    spec(dir, &text);
    let run = ["run", "own.yaml", "--json"];
    let plain = json(dir, &run);
    let folder = dir.join(plain["out"].as_str().unwrap());
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let each = |name: &str| -> Vec<f64> {
        let lines = metrics.lines().map(serde_json::from_str);
        let mut lines = lines.map(Result::<Value, _>::unwrap);
        let line = lines.find(|line| line["name"] == name).unwrap();
        let each = line["each"].as_array().unwrap().iter();
        each.map(|one| one.as_f64().unwrap()).collect()
    };
    let first = |client: &str| {
        let text = std::fs::read_to_string(dir.join(format!("test/{client}.csv"))).unwrap();
        text.lines().filter(|line| line.ends_with(",no")).count() as f64
    };
    assert_eq!(each("own"), [30.0; 3]);
    assert_eq!(each("held"), [4.0, 6.0, 8.0]);
    assert_eq!(each("held.first"), ["a", "b", "c"].map(first));
    for how in [&["--threads", "3", "--wire"][..], &["--processes", "2"]] {
        let other = json(dir, &[&run[..], how].concat());
        assert_eq!(plain["digest"], other["digest"], "{how:?}");
        assert_eq!(plain["metrics"], other["metrics"], "{how:?}");
    }
    let undeclared = ["run", "own.yaml", "--set", "protocol.declares=false"];
    let (_, said) = fails(dir, &undeclared);
    assert!(
        flat(&said).contains("does not declare that it uses held-out rows"),
        "{said}"
    );
    spec(dir, &text.replace("  test: { own: files }\n", ""));
    assert!(refused(dir).contains("data.test.own: is missing"));
}

#[test]
fn exact_clients_test_with_files_of_their_own_wherever_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    hospitals(dir);
    for (protocol, of) in [("fedavg", "own"), ("fedper", "clients")] {
        let text = FILES.replace("PROTOCOL", protocol);
        let text = match protocol {
            "fedper" => text.replace("rounds: 4", "rounds: 4, share: [weight]"),
            _ => text,
        };
        spec(dir, &text);
        let run = ["run", "own.yaml", "--json"];
        let plain = json(dir, &run);
        for how in [&["--threads", "3", "--wire"][..], &["--processes", "2"]] {
            let other = json(dir, &[&run[..], how].concat());
            assert_eq!(plain["digest"], other["digest"], "{protocol} {how:?}");
            assert_eq!(plain["metrics"], other["metrics"], "{protocol} {how:?}");
        }
        let folder = dir.join(plain["out"].as_str().unwrap());
        let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        let lines = metrics.lines();
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let last = lines.rfind(|line| line["name"] == format!("{of}.accuracy"));
        let last = last.unwrap();
        let each = last["each"].as_array().unwrap().iter();
        let right = each.zip([4.0, 6.0, 8.0]).map(|(score, rows)| {
            let right = score.as_f64().unwrap() * rows;
            assert!((right - right.round()).abs() < 1e-9, "{last}");
            right
        });
        let over_rows = right.sum::<f64>() / 18.0;
        let found = number(&plain, &format!("{of}.over-rows.accuracy"));
        assert!((found - over_rows).abs() < 1e-9, "{found} {over_rows}");
        if protocol == "fedavg" {
            // the common test rows are those of all clients
            assert!((number(&plain, "accuracy") - over_rows).abs() < 1e-9);
        }
    }
    let shown = out(dir, &["data", "show", "own.yaml"]);
    let says = "each client tests with 4 to 8 rows of its own";
    assert!(shown.contains(says), "{shown}");
    out(dir, &["plan", "own.yaml"]);
    // the same rows in one training file each, with test rows held out of it
    let text = FILES.replace("PROTOCOL", "fedavg");
    spec(dir, &text.replace("test: \"test/*.csv\"", "holdout: 0.2"));
    let shown = out(dir, &["data", "show", "own.yaml"]);
    let says = "each client tests with 6 to 6 rows of its own";
    assert!(shown.contains(says), "{shown}");
    let accountant = text + "  accountant: { use: rdp }\n";
    spec(dir, &accountant);
    let plan = flat(&out(dir, &["plan", "own.yaml"]));
    let says = "models are measured on rows of each client (`data.test`)";
    assert!(plan.contains(says), "{plan}");
}

#[test]
fn test_files_that_belong_to_no_client_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    hospitals(dir);
    let text = FILES.replace("PROTOCOL", "fedavg");
    let says = |text: &str, part: &str| {
        spec(dir, text);
        let said = refused(dir);
        assert!(said.contains(part), "{said}");
    };
    let list = |files: &str| text.replace("\"test/*.csv\"", files);
    says(
        &list("[test/a.csv, test/c.csv, test/b.csv]"),
        "c.csv is test file 1, and the training file of its name is file 2",
    );
    says(
        &list("[test/a.csv, test/b.csv, test/d.csv]"),
        "there is no file",
    );
    says(
        &list("\"test/[ab].csv\""),
        "there are 2 test files for 3 training files",
    );
    says(&list("test/a.csv"), "the test rows are one whole");
    let share = text.replace("own: files", "own: files, of: all");
    says(&share, "with `own: files` leave them out");
    let iid = text.replace("  test: {", "  split: iid\n  clients: 2\n  test: {");
    says(
        &iid,
        "take `split: by-file`, `by-user` or `own`, or a share",
    );
    says(
        &text.replace("own: files", "own: fils"),
        "or the word `files`",
    );
    spec(dir, &text);
    let noted = || {
        let done = fl(dir, &["check", "own.yaml"]);
        assert!(done.status.success());
        flat(&String::from_utf8(done.stderr).unwrap())
    };
    let order = "test files belong to training files in their order: ";
    assert!(!noted().contains(order), "{}", noted());
    std::fs::rename(dir.join("test/b.csv"), dir.join("test/bb.csv")).unwrap();
    let said = noted();
    assert!(
        said.contains(order) && said.contains("bb.csv beside "),
        "{said}"
    );
    std::fs::rename(dir.join("test/bb.csv"), dir.join("test/b.csv")).unwrap();
    std::fs::write(dir.join("test/b.csv"), "a,b,y\n").unwrap();
    says(&text, "b.csv: holds no rows");
    let short = rows(1, 20, 12);
    std::fs::write(dir.join("test/b.csv"), short).unwrap();
    spec(dir, &text);
    let shown = out(dir, &["data", "show", "own.yaml"]);
    let says = "10 of 24 test rows are rows of the clients too";
    assert!(shown.contains(says), "{shown}");
}

#[test]
fn every_line_of_the_page_of_personal_models_is_a_spec() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let page = include_str!("../../../../specs/book/src/personal.md");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("{ use: "));
    let mut checked = 0;
    for row in rows {
        let yaml = row.trim_end_matches(" |").rsplit_once("| ").unwrap().1;
        let mut codes = yaml.split('`').skip(1).step_by(2);
        let protocol = codes.next().unwrap();
        let part = match codes.next() {
            Some(part) => part,
            None if yaml.contains("no aggregator") => "",
            None => MEAN,
        };
        let by_gradient = ["apfl", "per-fedavg"]
            .iter()
            .any(|of| protocol.contains(of));
        let norm = if by_gradient {
            "layer-norm"
        } else {
            "batch-norm"
        };
        let layers = format!("[linear: 6, {norm}, relu, outputs]");
        let net =
            format!("model: {{ use: dfdx, net: {layers}, optimiser: {{ sgd: {{ lr: 0.1 }} }} }}");
        let text = SPEC.replace(
            "protocol: { use: PROTOCOL, rounds: 10, local: { epochs: 1, batch: 16 } }",
            protocol,
        );
        let text = text.replace("model: { use: linear }", &net);
        spec(
            dir,
            &text.replace(&format!("  {MEAN}\n"), &format!("  {part}\n")),
        );
        out(dir, &["check", "own.yaml"]);
        checked += 1;
    }
    assert!(checked >= 14, "{checked} rows");
}

#[test]
fn exact_a_frozen_body_of_another_run_stays_as_it_was_and_is_sent_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let public = SPEC
        .replace("PROTOCOL", "fedavg")
        .replace("model: { use: linear }", NET)
        .replace("  test: { own: 0.25, of: all }\n", "");
    spec(dir, &public);
    out(dir, &["run", "own.yaml", "--out", "public"]);
    let frozen = "share: [head], freeze-rest: true, keep-clients: true, initial-is-public: true, initial: public/models/model";
    let text = SPEC
        .replace("PROTOCOL", "fedavg")
        .replace("model: { use: linear }", NET)
        .replace("use: mean", "use: mean, weigh: uniform")
        .replace("rounds: 10", &format!("rounds: 3, {frozen}"));
    spec(dir, &text);
    let run = json(dir, &["run", "own.yaml", "--json", "--out", "frozen"]);
    // the head has 6 x 4 weights and 4 biases, the body 8 x 6 and 6
    assert_eq!(run["bytes"]["up"], 3 * 12 * 28 * 4);
    assert_eq!(run["bytes"]["down"], 12 * (3 * 28 + 28 + 54) * 4);
    stays(dir, "frozen");
}

/// Checks that each client of a run has the body of the public model, and a last layer of its own.
fn stays(dir: &std::path::Path, run: &str) {
    let tensors = |model: &str| -> std::collections::BTreeMap<String, Vec<u8>> {
        let bytes = std::fs::read(dir.join(model)).unwrap();
        let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let named = all
            .iter()
            .map(|(name, of)| (name.to_string(), of.data().to_vec()));
        named.collect()
    };
    let before = tensors("public/models/model");
    for k in 0..12 {
        let after = tensors(&format!("{run}/models/model-{k}"));
        assert_eq!(after.len(), 4);
        for (name, values) in &after {
            let same = before[name] == *values;
            assert_eq!(same, name.starts_with("0."), "{run}, client {k}: {name}");
        }
    }
}

#[test]
fn exact_methods_by_features_keep_a_frozen_body_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let begin = |text: &str| text.replace("model: { use: linear }", NET);
    let public = begin(&SPEC.replace("PROTOCOL", "fedavg"));
    spec(dir, &public.replace("  test: { own: 0.25, of: all }\n", ""));
    out(dir, &["run", "own.yaml", "--out", "public"]);
    let initial = "initial-is-public: true, initial: public/models/model";
    for (protocol, part) in [
        ("fedproto", "prototypes: { use: mean-of-features }"),
        ("fedtgp", "prototypes: { use: trainable-prototypes }"),
        ("fedgh", ""),
    ] {
        let text = begin(&SPEC.replace("PROTOCOL", protocol)).replace(MEAN, part);
        let with = |settings: &str| {
            let rounds = format!("rounds: 3, keep-clients: true, {settings}");
            spec(dir, &text.replace("rounds: 10", &rounds));
        };
        with("fresh: true");
        let plain = json(dir, &["run", "own.yaml", "--json"]);
        with(&format!("freeze: [body], {initial}"));
        let run = ["run", "own.yaml", "--json"];
        let frozen = json(dir, &[&run[..], &["--out", protocol]].concat());
        stays(dir, protocol);
        // the body has 8 x 6 weights and 6 biases, and is sent once
        let down = |run: &Value| run["bytes"]["down"].as_u64().unwrap();
        assert_eq!(down(&frozen) - down(&plain), 12 * 54 * 4, "{protocol}");
        for how in [&["--threads", "3", "--wire"][..], &["--processes", "2"]] {
            let other = json(dir, &[&run[..], how].concat());
            assert_eq!(frozen["digest"], other["digest"], "{protocol} {how:?}");
        }
        let stop = format!("{protocol}-stopped");
        out(
            dir,
            &["run", "own.yaml", "--stop-after", "1", "--out", &stop],
        );
        let resumed = json(dir, &["run", "--resume", &stop, "--json"]);
        assert_eq!(frozen["digest"], resumed["digest"], "{protocol}");
        with(&format!("freeze: [bdy], {initial}"));
        assert!(refused(dir).contains("did you mean `body`"), "{protocol}");
        with("freeze: [body], initial: nowhere");
        assert!(refused(dir).contains("cannot be read"), "{protocol}");
    }
    // a model that follows private rows leaves no guarantee
    let text = begin(&SPEC.replace("PROTOCOL", "fedproto"))
        .replace(
            MEAN,
            "prototypes: { use: mean-of-features }\n  accountant: { use: rdp }",
        )
        .replace("rounds: 10", "rounds: 3, initial: public/models/model");
    spec(dir, &text);
    let plan = flat(&out(dir, &["plan", "own.yaml"]));
    let says = "the run starts from a model that another run kept (`initial`)";
    assert!(plan.contains(says), "{plan}");
}
