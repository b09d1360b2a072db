//! Labels that are numbers.

use crate::common::{alike_in_five_ways, fails, fl, flat, json, quick};
use crate::library;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Two columns from 0 to 1, and a number that nearly follows from them.
fn row(at: usize) -> ([f64; 2], f64) {
    let (a, b) = ((at * 7 % 31) as f64 / 31.0, (at * 11 % 29) as f64 / 29.0);
    ([a, b], 30.0 + 40.0 * a - 25.0 * b + (at * 13 % 7) as f64)
}

fn table(rows: std::ops::Range<usize>) -> String {
    let mut text = String::from("a,b,price\n");
    for at in rows {
        let ([a, b], price) = row(at);
        writeln!(text, "{a},{b},{price}").unwrap();
    }
    text
}

const SPEC: &str = "name: prices
seed: 1
data:
  set:
    files:
      format: csv
      train: train.csv
      test: test.csv
      label: { column: price, kind: { number: { centre: 40, spread: 20 } } }
      columns: { a: { number: { range: [0, 1] } }, b: { number: { range: [0, 1] } } }
  clients: 3
protocol: { use: fedavg, rounds: 6, local: { epochs: 1, batch: 1000 } }
parts: { model: { use: linear, lr: 0.2 }, aggregator: { use: mean } }
";

fn measured(run: &Path, name: &str) -> Vec<f64> {
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &Value| line["name"] == name);
    lines.map(|line| line["value"].as_f64().unwrap()).collect()
}

/// Least squares by plain gradient descent on all rows, and RMSE, MAE and R2 after each step, which
/// has `factor` times the rate of the one before.
fn descent(steps: usize, mut lr: f64, factor: f64) -> Vec<[f64; 3]> {
    let (train, test): (Vec<_>, Vec<_>) = ((0..60).map(row).collect(), (60..90).map(row).collect());
    let mut w = [0.0; 3];
    let out = |w: &[f64; 3], x: &[f64; 2]| w[0] * x[0] + w[1] * x[1] + w[2];
    let step = |_| {
        let mut slope = [0.0; 3];
        for (x, y) in &train {
            let off = 2.0 * (out(&w, x) - (y - 40.0) / 20.0) / train.len() as f64;
            slope = [slope[0] + off * x[0], slope[1] + off * x[1], slope[2] + off];
        }
        w = std::array::from_fn(|at| w[at] - lr * slope[at]);
        lr *= factor;
        let n = test.len() as f64;
        let off: Vec<f64> = test
            .iter()
            .map(|(x, y)| 40.0 + 20.0 * out(&w, x) - y)
            .collect();
        let squares = off.iter().map(|d| d * d).sum::<f64>();
        let mean = test.iter().map(|(_, y)| y).sum::<f64>() / n;
        let varied = test.iter().map(|(_, y)| (y - mean).powi(2)).sum::<f64>();
        let absolute = off.iter().map(|d| d.abs()).sum::<f64>();
        [(squares / n).sqrt(), absolute / n, 1.0 - squares / varied]
    };
    (0..steps).map(step).collect()
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("train.csv", &table(0..60));
    write("test.csv", &table(60..90));
    write("spec.yaml", SPEC);
    dir
}

/// The measures of `spec.yaml` are those of gradient descent, round by round, and every way of
/// running has one digest. Each round has `factor` times the rate of the one before.
fn is_gradient_descent(dir: &Path, factor: f64) {
    fs::remove_dir_all(dir.join("run")).ok();
    let rate = match factor {
        1.0 => "protocol.local={epochs: 1, batch: 1000}".to_string(),
        _ => format!("protocol.local.rate={{by-round: {{factor: {factor}}}}}"),
    };
    let plain = alike_in_five_ways(dir, &["spec.yaml", "--set", &rate], "3");
    let run = json(
        dir,
        &["run", "spec.yaml", "--set", &rate, "--json", "--out", "run"],
    );
    assert_eq!(run["digest"], plain["digest"]);
    let names = ["rmse", "mae", "r2"].map(|name| measured(&dir.join("run"), name));
    let due = descent(6, 0.2, factor);
    assert_eq!(names[0].len(), 6);
    for (round, due) in due.iter().enumerate() {
        // errors are in the unit of the label, of which 20 are 1 of the model's outputs
        for ((found, due), unit) in names.iter().zip(due).zip([20.0, 20.0, 1.0]) {
            let off = (found[round] - due).abs() / unit;
            assert!(
                off < 1e-6,
                "round {}: {} and {due}",
                round + 1,
                found[round]
            );
        }
    }
    // it learns: the labels' own deviation is above 15
    assert!(due[5][0] < due[0][0]);
}

#[test]
fn close_rounds_of_whole_batches_are_gradient_descent() {
    is_gradient_descent(folder().path(), 1.0);
}

#[test]
fn close_rates_by_round_are_those_of_gradient_descent() {
    is_gradient_descent(folder().path(), 0.75);
}

/// A run's folder with a trainer in C, and its spec, which names the library.
fn with_library() -> (tempfile::TempDir, String) {
    let dir = folder();
    let library = dir.path().join("least_squares.so");
    let source = crate::common::root().join("hosts/cli/tests/program/least_squares.c");
    library::compile(&source, &library, &["-Werror"]);
    let spec = SPEC.replace("use: linear", "use: c-least-squares");
    let spec = format!("{spec}plugins: [{{ path: least_squares.so }}]\n");
    fs::write(dir.path().join("spec.yaml"), &spec).unwrap();
    (dir, spec)
}

#[test]
fn close_a_trainer_in_c_learns_a_number_by_gradient_descent() {
    if !library::cc() {
        return;
    }
    let (dir, spec) = with_library();
    let dir = dir.path();
    is_gradient_descent(dir, 1.0);
    is_gradient_descent(dir, 0.75);
    let run = |spec: &str, set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["run", spec, "--json"].into_iter().chain(set).collect();
        json(dir, &args)
    };
    // in the program's own process
    let here = spec.replace("squares.so }", "squares.so, isolate: false }");
    fs::write(dir.join("here.yaml"), here).unwrap();
    assert_eq!(
        run("here.yaml", &[])["digest"],
        run("spec.yaml", &[])["digest"]
    );
    // mini-batches, the last of which is shorter
    let r2 = |set: &[&str], name: &str| run("spec.yaml", set)["metrics"][name].as_f64().unwrap();
    let whole = r2(&["protocol.local={epochs: 1, batch: 1000}"], "r2");
    let batches = r2(&["protocol.local={epochs: 1, batch: 7}"], "r2");
    assert!(whole < batches && 0.6 < batches, "{whole} {batches}");
    let alone = [
        "protocol={use: solo, local: {epochs: 200, batch: 1000}}",
        "parts={model: {use: c-least-squares, lr: 0.2}}",
    ];
    assert!(0.9 < r2(&alone, "clients.r2"));
}

/// The loss that a trainer reports is that of its last epoch, as `linear` has it.
#[test]
fn close_a_trainer_in_c_reports_the_loss_of_its_last_epoch() {
    if !library::cc() {
        return;
    }
    let (dir, _) = with_library();
    let loss = |model: &str| {
        let model = format!("parts.model={{use: {model}, lr: 0.2}}");
        let epochs = "protocol.local={epochs: 4, batch: 1000}";
        let args = [
            "run",
            "spec.yaml",
            "--json",
            "--set",
            &model,
            "--set",
            epochs,
        ];
        let done = json(dir.path(), &args);
        done["metrics"]["training-loss"].as_f64().unwrap()
    };
    let (here, there) = (loss("linear"), loss("c-least-squares"));
    assert!((here - there).abs() < 1e-5, "{here} {there}");
}

#[test]
fn a_trainer_of_numbers_in_c_refuses_what_it_does_not_learn() {
    if !library::cc() {
        return;
    }
    let (dir, _) = with_library();
    let dir = dir.path();
    let classes = "data.set={blobs: {train: 60, test: 30}}";
    let (_, said) = fails(dir, &["run", "spec.yaml", "--set", classes]);
    let why = "it learns one number, and the task is another";
    assert!(flat(&said).contains(why), "{said}");
    let why = "its gradients take no proximal term, no offset and no clipping, which protocol `";
    for change in [
        "protocol={use: fedprox, mu: 0.1, rounds: 1}",
        "protocol={use: scaffold, rounds: 1}",
        "protocol={use: fedavg, rounds: 1, local: {epochs: 1, clip: 1}}",
    ] {
        let (code, said) = fails(dir, &["check", "spec.yaml", "--set", change]);
        assert!(code == 2 && flat(&said).contains(why), "{change}: {said}");
    }
    let absolute = "data.set.files.label.kind.number.loss=mae";
    let (code, said) = fails(dir, &["check", "spec.yaml", "--set", absolute]);
    let why = "it cannot minimise the loss of the labels, mae, which protocol `fedavg` needs with these settings: use another trainer, or name this loss in what it `learns`";
    assert!(code == 2 && flat(&said).contains(why), "{said}");
}

/// `fl run` of a quick spec on numbers, with these values; short of the rounds that papers take.
fn learns(spec: &str, set: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let spec = quick(spec);
    let numbers = "data.set={friedman: {train: 400, test: 200}}";
    let mut args = vec![
        "run",
        &spec,
        "--json",
        "--set",
        numbers,
        "--set",
        "data.split=iid",
    ];
    set.iter().for_each(|set| args.extend(["--set", set]));
    json(dir.path(), &args)["metrics"].clone()
}

#[test]
fn methods_that_combine_models_or_outputs_learn_a_number() {
    let linear = "parts.model={use: linear, lr: 0.1}";
    let boosting = "parts.model={use: boosting}";
    let bare = ["parts.quantiser=null", "parts.privacy=null"];
    let taught = |teacher| {
        [
            &["parts.student={use: linear, lr: 0.1}", teacher],
            &bare[..],
        ]
        .concat()
    };
    let [alike, trees] = [
        taught("parts.teacher={use: linear, lr: 0.1}"),
        taught("parts.teacher={use: boosting}"),
    ];
    let fedmd = [
        linear,
        "parts.sampling=null",
        "parts.accountant=null",
        "protocol.rounds=8",
        "protocol.local.epochs=2",
    ];
    let dp_sgd = [
        "parts.model={use: linear, lr: 0.5}",
        "parts.example-privacy.noise-multiplier=0.2",
        "protocol.rounds=20",
    ];
    let cases: [(&str, &[&str], &str); 12] = [
        (
            "fedavg",
            &[linear, "protocol.use=fedprox", "protocol.mu=0.1"],
            "r2",
        ),
        ("scaffold", &[linear], "r2"),
        ("fednova", &[linear], "r2"),
        (
            "ifca",
            &[linear, "data.domains=null", "protocol.rounds=20"],
            "clients.r2",
        ),
        ("solo", &[linear], "clients.r2"),
        ("solo", &[boosting], "clients.r2"),
        ("solo", &["parts.model={use: forest}"], "clients.r2"),
        ("centralised", &[linear], "clients.r2"),
        ("fedmd-nfdp", &fedmd, "clients.r2"),
        ("fedkd", &alike, "r2"),
        ("fedkd", &trees, "r2"),
        ("dp-sgd", &dp_sgd, "r2"),
    ];
    for (spec, set, name) in cases {
        let metrics = learns(spec, set);
        let found = metrics[name].as_f64().unwrap_or(f64::NAN);
        // least squares on all rows has 0.7, and the mean of the labels 0
        assert!(
            found > 0.2 && found < 0.85,
            "{spec}: {name} {found}: {metrics}"
        );
        let prefix = name.trim_end_matches("r2");
        for error in ["rmse", "mae"] {
            assert!(
                metrics[format!("{prefix}{error}")].is_f64(),
                "{spec}: {metrics}"
            );
        }
        assert!(metrics.get("accuracy").is_none(), "{spec}: {metrics}");
    }
}

/// Noise on outputs is in units of the label's spread: the more of it, the less is learnt, and the
/// price follows from the clip alone.
#[test]
fn noise_on_outputs_that_are_numbers_has_a_price() {
    let dir = tempfile::tempdir().unwrap();
    let spec = quick("fedkd-priced");
    let said = |gamma: &str| {
        let privacy = format!("parts.privacy={{use: laplace-logits, gamma: {gamma}, clip: 4.0}}");
        let sets = [
            "data.set={friedman: {train: 400, test: 200}}",
            "data.split=iid",
            "data.public={from: {count: 100}}",
            "parts.teacher={use: linear, lr: 0.1}",
            "parts.student={use: linear, lr: 0.02}",
            "parts.quantiser=null",
            "parts.ensemble={use: mean-logits}",
            "budget=null",
            &privacy,
        ];
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["run", &spec, "--json"].into_iter().chain(sets).collect();
        json(dir.path(), &args)
    };
    let (little, much) = (said("200"), said("0.05"));
    let r2 = |run: &Value| run["metrics"]["r2"].as_f64().unwrap();
    assert!(r2(&little) > 0.1 && r2(&much) < 0.0, "{little} {much}");
    let epsilon = |run: &Value| run["privacy"]["readers"]["epsilon"].as_f64().unwrap();
    assert!(epsilon(&much) < epsilon(&little), "{much}");
}

#[test]
fn what_is_about_classes_refuses_a_number_before_the_run() {
    let cases: [(&str, &[&str], &str); 10] = [
        (
            "fkd",
            &[],
            "it does not work for a number to predict: class means are of inputs with one class each",
        ),
        (
            "fedkt",
            &[],
            "votes are for one class of several for each input",
        ),
        ("feddf", &[], "FedDF takes the mean of class probabilities"),
        ("fedgen", &[], "FedGEN makes features of one class each"),
        (
            "fediod",
            &[],
            "the teachers' probabilities are those of classes",
        ),
        (
            "ds-fl",
            &[],
            "hard and soft labels need inputs with one class each",
        ),
        (
            "attacked",
            &[],
            "parts.labels changes the class of a whole input",
        ),
        (
            "fedavg",
            &["data.split={dirichlet: {alpha: 1}}"],
            "there are no classes to split by; set `label-groups: 10`",
        ),
        (
            "fedavg",
            &["data.label-groups=4"],
            "data.label-groups: has no effect on a split that does not look at labels",
        ),
        (
            "fedavg",
            &["data.set=blobs", "data.label-groups=4"],
            "data.label-groups: labels of `blobs` are no numbers",
        ),
    ];
    for (spec, set, why) in cases {
        let spec = quick(spec);
        let numbers = ["data.set=friedman", "data.split=iid"];
        let mut args = vec!["check", &spec];
        numbers
            .iter()
            .chain(set)
            .for_each(|set| args.extend(["--set", set]));
        let done = fl(&crate::common::root(), &args);
        let said = flat(&String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(2), "{spec}: {said}");
        assert!(said.contains(why), "{spec}: {said}");
    }
}

#[test]
fn a_column_of_decimals_is_refused_with_both_ways_out() {
    let dir = folder();
    let one = "label: { column: price, kind: { number: { centre: 40, spread: 20 } } }";
    fs::write(
        dir.path().join("bare.yaml"),
        SPEC.replace(one, "label: price"),
    )
    .unwrap();
    let (code, said) = fails(dir.path(), &["check", "bare.yaml"]);
    let said = flat(&said);
    assert_eq!(code, 2, "{said}");
    let number = "if they are numbers to predict, say `label: { column: price, kind: number }`";
    assert!(said.contains(number), "{said}");
    assert!(
        said.contains("if they are classes, list them in `classes`"),
        "{said}"
    );
}
