//! A user's own files, from the spec to the run.

use crate::common::{fails, fl, flat, json, out, root};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const SPEC: &str = "name: people
data:
  set:
    files:
      format: csv
      train: people.csv
      holdout: 0.2
      label: income
      classes: [low, high]
      columns: { age: { number: { range: [0, 100] } }, job: { category: { of: [cook, nurse] } } }
  clients: 5
protocol: { use: fedavg, rounds: 2, local: { epochs: 1, batch: 8 } }
parts: { model: { use: linear }, aggregator: { use: mean } }
";

fn people(dir: &Path) {
    let row = |i: usize| {
        let (age, job) = (20 + i * 7 % 50, ["cook", "nurse"][i % 2]);
        let income = if age + 20 * (i % 2) > 50 {
            "high"
        } else {
            "low"
        };
        format!("{age},{job},{income}\n")
    };
    let file = |rows: &mut dyn Iterator<Item = usize>| {
        rows.fold("age,job,income\n".to_string(), |mut text, i| {
            let _ = write!(text, "{}", row(i));
            text
        })
    };
    fs::create_dir(dir.join("towns")).unwrap();
    fs::write(dir.join("people.csv"), file(&mut (0..200))).unwrap();
    for k in 0..5 {
        let rows = file(&mut (k..200).step_by(5));
        fs::write(dir.join(format!("towns/{k}.csv")), rows).unwrap();
    }
    fs::write(dir.join("people.yaml"), SPEC).unwrap();
}

#[test]
fn a_table_of_ones_own_runs_as_one_file_and_as_five() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    people(dir);
    let five = ["--set", "data.set.files.train=towns/*.csv"];
    let mut digests = Vec::new();
    for set in [&[][..], &five] {
        let shown = json(
            dir,
            &[&["data", "show", "people.yaml", "--json"], set].concat(),
        );
        let clients = shown["clients"].as_array().unwrap();
        assert!(clients.len() == 5 && clients.iter().all(|client| client["rows"] == 32));
        assert_eq!(
            (&shown["test"]["rows"], &shown["classes"]),
            (&40.into(), &["low", "high"].into())
        );
        let run = json(dir, &[&["run", "people.yaml", "--json"], set].concat());
        digests.push(run["digest"].clone());
    }
    assert_ne!(digests[0], digests[1], "others own the rows");
    // the resolved spec knows where the files are, wherever it is read
    let again = json(dir, &["run", "runs/people-2/spec.yaml", "--json"]);
    assert_eq!(again["digest"], digests[1]);
}

#[test]
fn mistakes_in_the_files_are_found_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    people(dir);
    assert!(out(dir, &["check", "people.yaml"]).contains("fine"));
    let (code, error) = fails(
        dir,
        &[
            "check",
            "people.yaml",
            "--set",
            "data.set.files.train=[people.csv, nowhere.csv]",
        ],
    );
    assert!(
        code == 2 && error.contains("data.set.files.train[1]: there is no file"),
        "{error}"
    );
    fs::write(
        dir.join("wrong.yaml"),
        SPEC.replace("people.csv", "peeple.csv"),
    )
    .unwrap();
    let (_, error) = fails(dir, &["check", "wrong.yaml"]);
    assert!(
        error.starts_with("wrong.yaml:6:14  data.set.files.train: there is no file"),
        "{error}"
    );
    fs::write(
        dir.join("people.csv"),
        "age,job,income\n30,cook,low\nabc,cook,high\n",
    )
    .unwrap();
    let (_, error) = fails(dir, &["check", "people.yaml"]);
    assert!(
        error.starts_with("people.yaml:10:23  data.set.files.columns.age: "),
        "{error}"
    );
    assert!(
        error.contains("people.csv:3: column `age`: `abc` is not a number"),
        "{error}"
    );
}

#[test]
fn sets_splits_and_networks_can_be_inspected() {
    let dir = tempfile::tempdir().unwrap();
    for (name, parts) in [
        (
            "mnist",
            [
                "a data set, from fl-plugin-data-images",
                "train-images-idx3-ubyte",
            ],
        ),
        ("files", ["Your own files", "holdout"]),
        ("dirichlet", ["a choice of `data.split`", "alpha"]),
        ("lenet", ["a choice of `net` of trainer `dfdx`", ""]),
        ("group-norm", ["a choice of `net[]` of trainer `dfdx`", ""]),
        ("adam", ["`optimiser`", "lr"]),
    ] {
        let text = out(dir.path(), &["inspect", name]);
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{name}: {text}"
        );
        let all = json(dir.path(), &["inspect", name, "--json"]);
        assert_eq!(all["others"][0]["name"], name);
    }
    let (_, error) = fails(dir.path(), &["inspect", "minst"]);
    assert!(error.contains("did you mean `mnist`?"), "{error}");
}

#[test]
fn a_network_is_shown_with_its_layers_for_an_input() {
    let dir = tempfile::tempdir().unwrap();
    let shown = flat(&out(dir.path(), &["inspect", "cnn-mcmahan"]));
    for row in [
        " 0 conv 32x28x28 832 ",
        " 5 pool 64x7x7 6 linear",
        " 8 outputs 10 5130 ",
        " input 1x28x28 ",
        " parameters 1663370 ",
        " steps a second on this machine",
    ] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    assert!(!shown.contains("no settings"), "{shown}");
    let all = json(
        dir.path(),
        &["inspect", "lenet", "--input", "3x32x32", "--json"],
    );
    let lenet = &all["others"][0]["network"];
    assert_eq!(lenet["parameters"], 62_006);
    assert_eq!(lenet["input"], serde_json::json!([3, 32, 32]));
    assert_eq!(lenet["layers"][3]["gives"], serde_json::json!([16, 10, 10]));
    assert!(lenet["speed"]["steps-per-second"].as_f64().unwrap() > 0.0);
    for (args, why) in [
        (["lenet", "--input", "1x4x4"], "--input: net `lenet`: layer"),
        (["mnist", "--input", "1x4x4"], "`mnist` is no network"),
        (["lenet", "--input", "3x"], "a shape is numbers from 1"),
    ] {
        let (code, said) = fails(dir.path(), &[&["inspect"], &args[..]].concat());
        assert!(code == 2 && flat(&said).contains(why), "{said}");
    }
}

#[test]
fn sets_splits_and_networks_can_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    let said = |what: &str| out(dir.path(), &["list", what]);
    let networks = said("networks");
    assert!(networks.contains("  cnn-mcmahan  ") && networks.contains("1,663,370"));
    assert!(!networks.contains("max-pool"), "layers are no networks");
    let splits = said("splits");
    assert!(splits.contains("  shards  ") && splits.contains("choices of `data.split`"));
    assert!(said("optimiser").contains("  adam  "));
    assert_eq!(said("data"), out(dir.path(), &["data", "list"]));
    let all = json(dir.path(), &["list", "networks", "--json"]);
    let all = all["choices"].as_array().unwrap();
    assert!(all.iter().any(|of| of["name"] == "resnet-18-gn"), "{all:?}");
    let (_, error) = fails(dir.path(), &["list", "network-cards"]);
    assert!(
        error.contains("or data, networks, splits, or a setting"),
        "{error}"
    );
}

#[test]
fn a_role_and_a_slot_lead_to_the_list_of_their_parts() {
    let dir = tempfile::tempdir().unwrap();
    let list = out(dir.path(), &["list", "selector"]);
    assert_eq!(out(dir.path(), &["list", "selectors"]), list);
    for (name, hint) in [
        ("aggregator", "`fl list aggregator`"),
        (
            "cohort",
            "it is a slot, whose parts `fl list selector` shows",
        ),
        (
            "attacks",
            "it is a role, whose parts `fl list attack` shows",
        ),
    ] {
        let (_, error) = fails(dir.path(), &["inspect", name]);
        assert!(error.contains(hint), "{error}");
    }
}

/// A part called `mean` is meant more often than the words of that name.
#[test]
fn a_part_is_shown_with_all_its_settings_and_without_words_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let mean = out(dir.path(), &["inspect", "mean"]);
    assert!(mean.starts_with("mean: an aggregator"), "{mean}");
    assert!(
        mean.contains("`mean` is also a choice of `discriminators`"),
        "{mean}"
    );
    assert!(!mean.contains("mean: a choice of"), "{mean}");
    assert!(mean.trim_end().ends_with("shows these too"), "{mean}");
    let fedavg = out(dir.path(), &["inspect", "fedavg"]);
    for setting in ["local.epochs", "local.batch", "sampling"] {
        assert!(
            fedavg.contains(&format!("  {setting}  ")),
            "{setting}: {fedavg}"
        );
    }
    let all = json(dir.path(), &["inspect", "fedavg", "--json"]);
    let settings = all["parts"][0]["settings"].as_array().unwrap();
    let local = settings.iter().find(|s| s["name"] == "local").unwrap();
    assert_eq!(local["settings"][0]["name"], "epochs");
}

#[test]
fn a_run_whose_budget_cannot_be_kept_leaves_nothing_behind() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    people(dir);
    // what kinds the columns have is found in private rows, which no accountant prices
    let columns = SPEC.lines().find(|l| l.contains("columns:")).unwrap();
    let private = "aggregator: { use: mean, weigh: uniform },
  privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 1.0 }, accountant: { use: analytic-gaussian, delta: 1e-5 } }
budget: { epsilon: 1000, against: readers }";
    let spec = SPEC
        .replace(columns, "")
        .replace("aggregator: { use: mean } }", private);
    fs::write(dir.join("private.yaml"), spec).unwrap();
    let (code, error) = fails(dir, &["run", "private.yaml", "--out", "r"]);
    assert!(
        code == 1 && error.contains("no budget can be kept against readers"),
        "{error}"
    );
    assert!(!dir.join("r").exists(), "{error}");
}

const APART: &str = "name: apart
data:
  set: { glyphs: { train: 600, test: 50 } }
  clients: 3
  split: iid
  public: { from: { count: 300 } }
protocol: { use: one-shot-distill, local: { epochs: 1, batch: 16 }, student: { epochs: 1, batch: 32 } }
parts:
  teacher: { use: linear }
  student: { use: linear }
  ensemble: { use: mean-logits }
";

#[test]
fn a_distance_says_how_far_public_samples_are_from_the_clients() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("apart.yaml"), APART).unwrap();
    let measure = ["data", "distance", "apart.yaml", "--json", "--clients"];
    let near = json(dir, &measure);
    let noisy = "data.public={from: {set: {glyphs: {train: 300, noise: 0.5, seed: 5}}}}";
    let far = json(dir, &[&measure[..], &["--set", noisy]].concat());
    let of = |found: &serde_json::Value| found["distance"].as_f64().unwrap();
    assert!(of(&near["distance"]).abs() < 0.4, "{near}");
    assert!(of(&far["distance"]) > 1.8, "{far}");
    assert!(near["mean"].as_f64().unwrap().abs() < 0.6, "{near}");
    let each = far["clients"].as_array().unwrap();
    assert!(each.len() == 3 && each.iter().all(|client| of(client) > 1.8));
    // half of the public samples are of the clients' kind, and these come first: of 300 and 300, a
    // good judge takes 150 for the other kind, which is a distance of 1
    let mixed = "data.public.mix={set: {glyphs: {train: 300, noise: 0.5, seed: 5}}, share: 0.5}";
    let mixed = json(dir, &[&measure[..], &["--set", mixed]].concat());
    assert!(
        (0.5..1.3).contains(&of(&mixed["distance"])),
        "{mixed}, rows of which the order must not matter"
    );
    assert_eq!(json(dir, &measure), near, "the same seed, the same numbers");
}

#[test]
fn a_distance_that_cannot_be_measured_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("apart.yaml"), APART).unwrap();
    fs::write(dir.join("plain.yaml"), SPEC).unwrap();
    people(dir);
    for (more, says) in [
        (&["people.yaml"][..], "no public samples; add `data.public`"),
        (
            &["apart.yaml", "--samples", "5"],
            "invalid value '5' for '--samples <N>': 5 is not in 20..=1000000000",
        ),
        (
            &["apart.yaml", "--repeats", "0"],
            "invalid value '0' for '--repeats <N>': 0 is not in 1..=1000000",
        ),
        (
            &["apart.yaml", "--model", "{use: lineal}"],
            "did you mean `linear`?",
        ),
        (
            &["apart.yaml", "--model", "{use: linear, lr: -1}"],
            "--model: lr: must be above 0",
        ),
        (
            &["apart.yaml", "--model", "linear"],
            "must be a trainer with its settings",
        ),
        (
            &["apart.yaml", "--set", "data.public.from.count=10"],
            "at least 20 of each",
        ),
    ] {
        let (code, error) = fails(dir, &[&["data", "distance"], more].concat());
        assert!(code == 2 && error.contains(says), "{more:?}: {error}");
    }
}

/// A leak is told wherever a reader looks; what an accountant hides of single rows it tells of as a
/// reason.
#[test]
fn rows_in_two_places_are_told_by_check_run_page_and_study() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    people(dir);
    let rows = fs::read_to_string(dir.join("people.csv")).unwrap();
    let mut sorted: Vec<&str> = rows.lines().skip(1).collect();
    sorted.sort_unstable();
    let sorted = format!("age,job,income\n{}\n", sorted.join("\n"));
    fs::write(dir.join("sorted.csv"), sorted).unwrap();
    let spec = SPEC.replace("holdout: 0.2", "test: sorted.csv");
    fs::write(dir.join("leak.yaml"), &spec).unwrap();
    let twin = spec
        .replace("train: people.csv", "train: [people.csv, sorted.csv]")
        .replace("  clients: 5\n", "");
    fs::write(dir.join("twin.yaml"), twin).unwrap();
    let study = "name: s\ntables: [{ name: t, base: leak.yaml, rows: [{ name: one }] }]\n";
    fs::write(dir.join("s.yaml"), study).unwrap();
    let said = |args: &[&str]| {
        let done = fl(dir, args);
        assert!(done.status.success());
        [done.stdout, done.stderr]
            .map(|text| String::from_utf8(text).unwrap())
            .concat()
    };
    let leak = "200 of 200 test rows are rows of the clients too";
    let check = said(&["check", "leak.yaml"]);
    assert!(
        check.contains(leak) && check.contains("leak.yaml: fine"),
        "{check}"
    );
    assert!(said(&["run", "leak.yaml", "--out", "leak"]).contains(leak));
    for page in ["leak/report.md", "leak/report.html"] {
        let page = fs::read_to_string(dir.join(page)).unwrap();
        assert!(page.contains(leak), "{page}");
    }
    let study = said(&["study", "s.yaml"]);
    assert!(study.contains(&format!("Data: {leak}")), "{study}");
    let check = said(&["check", "twin.yaml"]);
    let twice = "200 rows of DIR/sorted.csv are rows of DIR/people.csv as well";
    let check = check.replace(&dir.canonicalize().unwrap().display().to_string(), "DIR");
    let check = check.replace(&dir.display().to_string(), "DIR");
    assert!(check.contains(twice), "{check}");
    // with an accountant it is the reason
    let private = spec.replace(
        "aggregator: { use: mean }",
        "aggregator: { use: mean, weigh: uniform }, privacy: { use: gaussian-update, clip: 1, noise-multiplier: 1 }, accountant: { use: rdp }",
    );
    fs::write(dir.join("private.yaml"), private).unwrap();
    let check = said(&["check", "private.yaml"]);
    assert!(!check.contains("note"), "{check}");
    let run = said(&["run", "private.yaml"]);
    assert!(
        run.contains("rows of the clients' files are test rows as well"),
        "{run}"
    );
    assert!(!run.contains("200 of 200"), "{run}");
}

/// What a run would find in its data, a check finds before it.
#[test]
fn a_check_shares_out_the_rows_that_it_has_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    people(dir);
    let check = |args: &[&str]| {
        let done = fl(dir, &[&["check"], args].concat());
        String::from_utf8(done.stderr).unwrap()
    };
    let said = check(&["people.yaml", "--set", "data.clients=200"]);
    assert!(
        said.contains("note: people.yaml: 40 of 200 clients own no sample"),
        "{said}"
    );
    let glyphs = root().join("specs/quick/fedavg.yaml");
    let said = check(&[&glyphs.to_string_lossy(), "--set", "data.clients=5000"]);
    assert!(said.contains("clients own no sample: there are"), "{said}");
    let said = check(&[
        "people.yaml",
        "--set",
        "data.split={dirichlet: {alpha: 1, min-size: 99}}",
    ]);
    let wrong = "data.split: splitting `files`: 5 clients with at least 99 samples each need more than the 160 samples there are";
    assert!(
        said.starts_with("--set data.split  ") && said.contains(wrong),
        "{said}"
    );
}
