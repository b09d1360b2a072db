//! DP-FedAvg as a user runs it: what it guarantees to whom.

use crate::common::{fails, files, fl, flat, json, out, quick, root};
use fl_core::privacy::UpperBound;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;

fn spec() -> String {
    let spec = root().join("specs/quick/dp-fedavg.yaml");
    spec.to_str().unwrap().into()
}

/// Every number after `epsilon ` in a text.
fn printed(text: &str) -> Vec<f64> {
    let after = text.split("epsilon ").skip(1);
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | '-');
    let number = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c| !digits(c)).unwrap_or(text.len());
        text[..end].trim_end_matches('.').parse().ok()
    };
    after.filter_map(number).collect()
}

/// Wherever people read an epsilon, the printed number is no smaller than the exact one, which
/// programs get.
#[test]
fn every_printed_epsilon_is_rounded_up() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = "name: small\nseed: 1\nnoise: system\ndata: { set: blobs, clients: 2 }\n\
        protocol: { use: dp-fedavg, rounds: 1, local: { steps: 2, batch: 16 } }\n\
        parts:\n  model: { use: linear, lr: 0.05 }\n  aggregator: { use: mean, weigh: uniform }\n\
        \x20 server-privacy: { use: gaussian-update, clip: 1.0, noise-multiplier: 3317.6 }\n\
        \x20 accountant: { use: analytic-gaussian, delta: 1e-5 }\nledger: l\n";
    fs::write(dir.join("small.yaml"), spec).unwrap();
    out(dir, &["ledger", "init", "l"]);
    let plan = out(dir, &["plan", "small.yaml"]);
    let mut texts = vec![("plan", plan)];
    texts.push(("run", out(dir, &["run", "small.yaml", "--out", "r"])));
    let outcome: Value =
        serde_json::from_slice(&fs::read(dir.join("r/outcome.json")).unwrap()).unwrap();
    let exact = outcome["outcome"]["privacy"]["readers"]["epsilon"]
        .as_f64()
        .unwrap();
    // of which four digits after the point are too few to round to the nearest
    assert!(
        (0.001..0.01).contains(&exact) && exact * 1e4 % 1.0 < 0.5,
        "{exact}"
    );
    for file in ["report.md", "report.html"] {
        texts.push((file, fs::read_to_string(dir.join("r").join(file)).unwrap()));
    }
    out(
        dir,
        &[
            "run",
            "small.yaml",
            "--out",
            "s",
            "--set",
            "protocol.local.steps=1",
        ],
    );
    out(dir, &["report", "r", "s", "--out", "both.html"]);
    texts.push((
        "both.html",
        fs::read_to_string(dir.join("both.html")).unwrap(),
    ));
    texts.push(("ledger", out(dir, &["ledger", "show", "l"])));
    for (name, text) in &texts {
        let all = printed(text);
        assert!(!all.is_empty(), "{name}: {text}");
        assert!(
            all.iter().all(|printed| *printed >= exact),
            "{name}: {all:?}, exact {exact}"
        );
    }
    let page = &texts[3].1;
    assert!(!page.contains(&format!("{exact:.4}")), "{page}");
    // tables of studies, with any number of digits
    let study = "name: s\ndefaults: { base: small.yaml, seeds: 1 }\ntables:\n- name: t\n  grid: { protocol.rounds: [1] }\n  columns:\n\
        \x20 - { title: e, measure: epsilon.readers, digits: 3 }\n  - { title: d, measure: delta.readers, digits: 1 }\n\
        \x20 - { title: m, measure: epsilon.readers, digits: 0, scale: -1 }\n  plots: [{ by: round, measure: epsilon.readers }]\n";
    fs::write(dir.join("s.yaml"), study).unwrap();
    let table = out(dir, &["study", "s.yaml"]);
    let up = (exact * 1e3).ceil() / 1e3;
    assert!(
        table.contains(&format!("| {up:.3} | 0.1 | -1 |")),
        "{table}"
    );
    // prices without a run, and the noise that keeps a target
    for (args, exact) in [
        ("gaussian --sigma 1658.8", 0.001_048),
        ("laplace --scale 2999", 0.9 / 2999.0),
        ("nfdp --draws 200 --of 1000", libm::log(1001.0 / 801.0)),
    ] {
        let args: Vec<&str> = ["account"].into_iter().chain(args.split(' ')).collect();
        let json = json(dir, &[&args[..], &["--json"]].concat());
        let best = json["epsilon"].as_f64().unwrap();
        assert!(best >= 0.99 * exact, "{json}");
        let all = printed(&out(dir, &args));
        assert!(
            !all.is_empty() && all.iter().all(|printed| *printed >= best),
            "{all:?}, exact {best}"
        );
    }
    for (args, what) in [
        ("gaussian --target 0.7", "--sigma"),
        ("laplace --target 0.7", "--scale"),
        ("nfdp --of 1000 --target 0.25", "--draws"),
        ("randomised-response --target 0.7 --times 10", "--epsilon"),
    ] {
        let args: Vec<&str> = ["account"].into_iter().chain(args.split(' ')).collect();
        let target: f64 = args[args.len() - 1].parse().unwrap_or(0.7);
        let target = if what == "--epsilon" { 0.7 } else { target };
        let text = out(dir, &args);
        let found = text.split_whitespace().skip_while(|word| {
            *word != what.trim_start_matches("--") && !word.ends_with("of-each")
        });
        let found = found
            .skip(1)
            .find(|word| word.parse::<f64>().is_ok())
            .unwrap();
        // the printed number keeps the target
        let times = if what == "--epsilon" {
            &["--times", "10"][..]
        } else {
            &[]
        };
        let of = if what == "--draws" {
            &["--of", "1000"][..]
        } else {
            &[]
        };
        let again = [&["account", args[1], what, found, "--json"][..], times, of].concat();
        let epsilon = json(dir, &again)["epsilon"].as_f64().unwrap();
        assert!(
            epsilon <= target && epsilon > 0.9 * target,
            "{text}: {epsilon}"
        );
    }
}

/// A checkpoint has the clients' states: neither its size nor any time stands where readers look.
#[test]
fn readers_of_a_run_with_an_accountant_see_no_size_of_a_state_and_no_time() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let said = out(
        dir,
        &["run", &spec(), "--out", "r", "--set", "protocol.rounds=2"],
    );
    assert!(said.contains(" s)"), "the terminal shows the time: {said}");
    let report = fs::read_to_string(dir.join("r/report.md")).unwrap();
    assert!(report.contains("seed 1, 2 steps.\n"), "{report}");
    assert!(
        !report.contains("Checkpoints") && !report.contains(" s."),
        "{report}"
    );
    let outcome: Value =
        serde_json::from_slice(&fs::read(dir.join("r/outcome.json")).unwrap()).unwrap();
    assert!(outcome["outcome"]["seconds"].is_null(), "{outcome}");
    let page = fs::read_to_string(dir.join("r/report.html")).unwrap();
    assert!(page.contains("2 steps; "), "{page}");
    let without = json(
        dir,
        &[
            "run",
            &root().join("specs/quick/fedavg.yaml").display().to_string(),
            "--out",
            "f",
            "--json",
        ],
    );
    assert!(without["seconds"].as_f64().unwrap() > 0.0);
    let report = fs::read_to_string(dir.join("f/report.md")).unwrap();
    assert!(report.contains("Checkpoints: "), "{report}");
}

/// Who guesses a file of rows could check the guess by its hash. Only `run.json` has it, and its
/// owner alone reads that. There the hashes of single rows are sealed.
#[test]
fn no_page_and_no_result_shows_the_hash_of_a_users_file() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (name, own) in [("a.csv", 1), ("b.csv", 2), ("t.csv", 3)] {
        let rows = (0..40).map(|at| format!("{}.{own},{}\n", at % 7, at % 2));
        fs::write(dir.join(name), format!("x,y\n{}", rows.collect::<String>())).unwrap();
    }
    let set = "parts.accountant={use: rdp, delta: 1e-5}";
    let study = "name: s
results: s.results.jsonl
defaults: { base: s.yaml }
tables: [{ name: t, title: T, rows: [{ name: one }] }]
";
    fs::write(dir.join("study.yaml"), study).unwrap();
    let text = "name: s
data: { set: { files: { format: csv, train: [a.csv, b.csv], test: t.csv, label: y, classes: [0, 1], columns: { x: number } } } }
protocol: { use: fedavg, rounds: 1, local: { epochs: 1, batch: 16 } }
parts:
  model: { use: linear }
  aggregator: { use: mean, weigh: uniform }
  privacy: { use: gaussian-update, clip: 1.0, noise-multiplier: 2.0 }
";
    fs::write(dir.join("s.yaml"), text).unwrap();
    let hash = fl_core::hex(&Sha256::digest(fs::read(dir.join("a.csv")).unwrap()));
    let short = &hash[..12];
    out(dir, &["run", "s.yaml", "--out", "bare", "--quiet"]);
    let bare = fs::read_to_string(dir.join("bare/report.html")).unwrap();
    assert!(bare.contains(&hash), "the test would see it: {bare}");
    for seed in ["seed=1", "seed=2"] {
        out(
            dir,
            &[
                "run", "s.yaml", "--out", seed, "--watch", "--quiet", "--set", set, "--set", seed,
            ],
        );
    }
    out(dir, &["report", "seed=1", "seed=2", "--out", "both.html"]);
    let compared = fl(dir, &["compare", "seed=1", "seed=2", "--json"]).stdout;
    let compared = String::from_utf8(compared).unwrap();
    assert!(!compared.contains(short), "{compared}");
    fs::write(
        dir.join("s.yaml"),
        format!("{text}  accountant: {{ use: rdp, delta: 1e-5 }}\n"),
    )
    .unwrap();
    out(dir, &["study", "study.yaml"]);
    let line = fs::read_to_string(dir.join("s.results.jsonl")).unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let book = &line["book"]["data"];
    assert!(book["sealed"].is_object() && book["sample"].is_null() && book["rows"].is_null());
    assert_eq!(line["began"].as_str().unwrap().len(), "2026-01-01".len());
    for entry in files(dir) {
        let text = String::from_utf8_lossy(&fs::read(&entry).unwrap()).into_owned();
        let owners = entry.ends_with("run.json") || entry.starts_with(dir.join("bare"));
        assert!(owners || !text.contains(short), "{}", entry.display());
    }
}

#[test]
fn the_guarantee_is_that_of_a_sample_of_public_size_for_all_but_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let answer = json(dir.path(), &["run", &spec(), "--out", "run", "--json"]);
    let account = "account gaussian --sigma 1 --rate 0.2 --of 100 --times 20 --delta 1e-3 --level party --json";
    let due = json(dir.path(), &account.split(' ').collect::<Vec<_>>());
    // other accountants find less; the spec has this one
    let rdp = |due: &Value| {
        let mut all = due["all"].as_array().unwrap().iter();
        all.find(|a| a["accountant"] == "rdp").unwrap().clone()
    };
    // another client knows whether it is drawn itself: it sees a draw of the others
    let others = account.replace("--of 100", "--of 99");
    let others = json(dir.path(), &others.split(' ').collect::<Vec<_>>());
    let (due, others) = (&rdp(&due), &rdp(&others));
    assert_ne!(others["epsilon"], due["epsilon"]);
    for (observer, due) in [("clients", others), ("readers", due)] {
        let promised = &answer["privacy"][observer];
        assert_eq!(promised["epsilon"], due["epsilon"], "{answer}");
        assert_eq!(
            (&promised["unit"], &promised["neighbours"]),
            (&"party".into(), &"removed".into())
        );
    }
    let why = answer["privacy"]["server"]["nothing"][0].as_str().unwrap();
    assert!(why.contains("clipped update"), "{why}");
    // the journal says how many clients each round has drawn: a secret number would cost less
    let secret = account.replace(" --of 100", "");
    let secret = json(dir.path(), &secret.split(' ').collect::<Vec<_>>());
    let cost = |of: &Value| of["epsilon"].as_f64().unwrap();
    assert!(cost(due) > 1.5 * cost(&secret), "{due} {secret}");
    // what is planned is what comes
    let plan = out(dir.path(), &["plan", &spec()]);
    let epsilon = UpperBound(due["epsilon"].as_f64().unwrap());
    assert!(
        plan.contains(&format!(
            "against readers of the results at most epsilon {epsilon}"
        )),
        "{plan}"
    );
    // a cohort of fixed size has another price, and all clients yet another
    let epsilon = |cohort: &str, name: &str| {
        let set = format!("parts.cohort={cohort}");
        let args = ["run", &spec(), "--out", name, "--json", "--set", &set];
        json(dir.path(), &args)["privacy"]["readers"]["epsilon"]
            .as_f64()
            .unwrap()
    };
    let fixed = epsilon("{use: uniform, share: 0.2}", "fixed");
    let all = epsilon("~", "all");
    assert!(
        due["epsilon"].as_f64().unwrap() < fixed && fixed < all,
        "{fixed} {all}"
    );
}

/// A user who has seen results decides about no further release.
#[test]
fn a_stopped_run_with_an_accountant_gets_no_other_number_of_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spec = "name: s\nseed: 1\nnoise: system\n\
        data: { set: { blobs: { features: 5, classes: 3, train: 100 } }, clients: 4 }\n\
        protocol: { use: fedavg, rounds: 3, local: { steps: 2, batch: 10 }, sampling: { rate: 0.1 } }\n\
        parts:\n  model: { use: linear, lr: 0.5 }\n  aggregator: { use: mean, weigh: uniform }\n\
        \x20 example-privacy: { use: gaussian-gradients, clip: 1.0, noise-multiplier: 2.0 }\n\
        \x20 accountant: { use: rdp }\n";
    fs::write(d.join("s.yaml"), spec).unwrap();
    let whole = json(d, &["run", "s.yaml", "--out", "whole", "--json"]);
    out(d, &["run", "s.yaml", "--out", "k", "--stop-after", "2"]);
    let refused = |set: &str, due: &str| {
        let (code, error) = fails(d, &["run", "--resume", "k", "--set", set]);
        assert!(code == 2 && error.contains(due), "{code}: {error}");
    };
    let kept = "the run in k keeps the settings that it began with; only `checkpoint` and";
    refused(
        "protocol.rounds=40",
        "begin a new run with protocol.rounds=40",
    );
    refused(
        "protocol.rounds=2",
        "the run in k began with 3, and its guarantee",
    );
    refused("stop-when={metric: accuracy, patience: 1}", "stop-when");
    refused("budget={epsilon: 1}", kept);
    refused("parts.accountant.delta=0.1", kept);
    // the rest goes on as it was promised
    let resumed = json(
        d,
        &[
            "run",
            "--resume",
            "k",
            "--json",
            "--set",
            "checkpoint.keep=false",
        ],
    );
    assert_eq!(resumed["privacy"], whole["privacy"]);
    let (code, error) = fails(d, &["run", "--resume", "k", "--set", "protocol.rounds=40"]);
    assert!(code == 1 && error.contains("is done"), "{error}");
}

/// No client can drown the noise that protects it, nor the others' updates.
#[test]
fn who_sends_more_than_his_bound_is_cut_down_to_it() {
    let dir = tempfile::tempdir().unwrap();
    for spec in ["dp-fedavg", "dp-fedavg-adaptive"] {
        let path = root().join(format!("specs/quick/{spec}.yaml"));
        let accuracy = |name: &str, faults: &str| {
            let args = ["run", path.to_str().unwrap(), "--out", name, "--json"];
            let answer = json(dir.path(), &[&args[..], &["--set", faults]].concat());
            let privacy = &answer["privacy"]["readers"]["epsilon"];
            assert!(privacy.is_f64(), "{answer}");
            answer["metrics"]["accuracy"].as_f64().unwrap()
        };
        let honest = accuracy(&format!("{spec}-honest"), "faults.inject=[]");
        let huge = "faults.inject=[{what: huge, clients: 7}]";
        let huge = accuracy(&format!("{spec}-huge"), huge);
        assert!((honest - huge).abs() < 0.05, "{spec}: {honest} and {huge}");
    }
}

#[test]
fn adaptive_bounds_need_a_mechanism_of_norm_one() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/dp-fedavg-adaptive.yaml");
    for clip in ["0.5", "100"] {
        let set = format!("parts.server-privacy.clip={clip}");
        // a private run that failed keeps its folder
        let args = ["run", spec.to_str().unwrap(), "--out", clip, "--set", &set];
        let (code, said) = fails(dir.path(), &args);
        assert!(
            code == 1 && said.contains("set its `clip` to 1"),
            "{code}: {said}"
        );
    }
}

#[test]
fn counts_have_a_price_once_they_have_noise() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/fedavg-private.yaml");
    let run = |name: &str, more: &[&str]| {
        let mut args = vec!["run", spec.to_str().unwrap(), "--out", name, "--json"];
        for set in [
            "parts.accountant={use: rdp, delta: 1e-5}",
            "parts.aggregator.weigh=samples",
        ]
        .iter()
        .chain(more)
        {
            args.extend(["--set", set]);
        }
        json(dir.path(), &args)
    };
    let exact = run("exact", &[]);
    let why = exact["privacy"]["server"]["nothing"][0].as_str().unwrap();
    assert!(why.contains("its number of examples"), "{why}");
    let noisy = |scale: u32| {
        format!("parts.counts-privacy={{use: laplace-counts, scale: {scale}, max-count: 100}}")
    };
    let (little, much) = (run("little", &[&noisy(40)]), run("much", &[&noisy(4000)]));
    let epsilon =
        |answer: &serde_json::Value| answer["privacy"]["server"]["epsilon"].as_f64().unwrap();
    let alone = run("alone", &["parts.aggregator.weigh=uniform"]);
    // four counts of at most 100 each: an epsilon of 10 and of 0.1, once in ten rounds
    assert!(epsilon(&little) > epsilon(&alone) + 1.0, "{little} {alone}");
    assert!(
        epsilon(&little) < epsilon(&alone) + 10.1,
        "{little} {alone}"
    );
    assert!(epsilon(&much) > epsilon(&alone), "{much} {alone}");
    assert!(epsilon(&much) < epsilon(&alone) + 0.1, "{much} {alone}");
    assert_ne!(little["digest"], exact["digest"], "weights have noise");
    let refused = |sets: &[&str]| {
        let mut args = vec!["check", spec.to_str().unwrap()];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let (code, said) = fails(dir.path(), &args);
        assert_eq!(code, 2, "{said}");
        said
    };
    let unused = "no part uses the clients' numbers of examples";
    let rdp = "parts.accountant={use: rdp, delta: 1e-5}";
    let samples = "parts.aggregator.weigh=samples";
    let said = refused(&[rdp, &noisy(40)]);
    assert!(said.contains(unused), "{said}");
    // nor does a server that only sums, whatever its aggregator would like
    let sums = "parts={model: {use: linear}, aggregator: {use: mean}, \
                server-privacy: {use: gaussian-update, clip: 0.5, noise-multiplier: 2}}";
    let said = refused(&["protocol.use=dp-fedavg", sums, rdp, samples, &noisy(40)]);
    assert!(said.contains("has no slot `counts-privacy`"), "{said}");
    // one example here and a whole client there
    let example = "parts.counts-privacy={use: laplace-counts, scale: 4}";
    let said = refused(&[rdp, samples, example]);
    assert!(
        said.contains("parts.counts-privacy") && said.contains("do not add up"),
        "{said}"
    );
}

/// An added example with all findings raises every count of a finding and the number of examples.
#[test]
fn an_example_of_several_labels_moves_all_its_counts_and_the_number() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (first, file) in [(0, "a.csv"), (20, "b.csv"), (40, "test.csv")] {
        let line = |k: u32| format!("{}e-1,{},{},{}\n", k, k % 2, k / 2 % 2, k / 4 % 2);
        let rows: String = (first..first + 20).map(line).collect();
        fs::write(dir.join(file), format!("x,p,q,r\n{rows}")).unwrap();
    }
    for (labels, least) in [("p", 2.0), ("p, q", 3.0), ("p, q, r", 4.0)] {
        let spare = match labels.len() {
            1 => "q: skip, r: skip, ",
            4 => "r: skip, ",
            _ => "",
        };
        let spec = format!(
            "name: c\nseed: 1\ndata: {{ set: {{ files: {{ format: csv, train: [a.csv, b.csv], test: test.csv, findings: [{labels}], columns: {{ {spare}x: {{ number: {{ range: [-8, 8] }} }} }} }} }} }}\n\
             protocol: {{ use: fedavg, rounds: 1, local: {{ steps: 1, batch: 8 }}, sampling: {{ rate: 0.01 }} }}\n\
             parts:\n  model: {{ use: linear }}\n  aggregator: {{ use: mean, weigh: samples }}\n  example-privacy: {{ use: gaussian-gradients, clip: 1.0, noise-multiplier: 50.0 }}\n\
             \x20 counts-privacy: {{ use: laplace-counts, scale: 1.0 }}\n  accountant: {{ use: pld, delta: 1e-5 }}\n"
        );
        fs::write(dir.join("c.yaml"), spec).unwrap();
        let folder = format!("r{}", labels.len());
        let ran = json(dir, &["run", "c.yaml", "--json", "--out", &folder]);
        let epsilon = ran["privacy"]["server"]["epsilon"].as_f64().unwrap();
        assert!(
            epsilon >= least && epsilon < least + 1.1,
            "{labels}: {epsilon}"
        );
    }
}

/// DP-SGD: what a step sees of the examples is priced as it is drawn.
#[test]
fn the_steps_of_dp_sgd_cost_what_the_accountant_says_of_each_draw() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/dp-sgd.yaml");
    let spec = spec.to_str().unwrap();
    let epsilon = |name: &str, sets: &[&str]| {
        let mut args = vec!["run", spec, "--out", name, "--json"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let answer = json(dir.path(), &args);
        let server = answer["privacy"]["server"].clone();
        assert_eq!(server["unit"], "example", "{answer}");
        (
            server["epsilon"].as_f64().unwrap(),
            server["neighbours"].as_str().unwrap().to_string(),
        )
    };
    // 5 rounds of 10 steps
    let account = |how: &str| {
        let args = format!("account gaussian {how} --times 50 --json");
        let args: Vec<&str> = args.split(' ').collect();
        let all = json(dir.path(), &args);
        let of = |name: &str| {
            let mut all = all["all"].as_array().unwrap().iter();
            let found = all.find(|one| one["accountant"] == name);
            found.unwrap()["epsilon"].as_f64().unwrap()
        };
        (of("pld"), of("rdp"))
    };
    let (pld, rdp) = account("--sigma 2 --rate 0.1");
    assert!(pld < rdp);
    assert_eq!(epsilon("poisson", &[]), (pld, "removed".into()));
    let use_rdp = "parts.accountant={use: rdp}";
    let found = epsilon("rdp", &[use_rdp]).0;
    assert!((found / rdp - 1.0).abs() < 1e-9, "{found} {rdp}");
    // one example becomes another: twice as far
    let (pld, _) = account("--sigma 2 --sensitivity 2 --draw 10 --of 100");
    let fixed = "protocol.sampling={rate: 0.1, draw: fixed}";
    assert_eq!(epsilon("fixed", &[fixed]), (pld, "replaced".into()));
    // what is planned is what comes
    let plan = out(dir.path(), &["plan", spec]);
    let epsilon = epsilon("again", &[]).0;
    let due = format!("against the server at most epsilon {}", UpperBound(epsilon));
    assert!(plan.contains(&due), "{plan}");
}

/// The price assumes that the draw is secret, and a spec is public.
#[test]
fn who_is_drawn_follows_the_key_of_the_system() {
    let dir = tempfile::tempdir().unwrap();
    let drawn = |name: &str, noise: &str| {
        let set = format!("noise={noise}");
        let args = ["run", &spec(), "--out", name, "--set", &set, "--quiet"];
        out(dir.path(), &args);
        let journal = fs::read_to_string(dir.path().join(name).join("journal.jsonl")).unwrap();
        let each = journal.lines().map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["clients"].clone()
        });
        each.collect::<Vec<_>>()
    };
    let seeded = drawn("seeded", "seeded");
    assert_eq!(seeded, drawn("again", "seeded"));
    let (one, two) = (drawn("one", "system"), drawn("two", "system"));
    assert!(one != two && one != seeded && two != seeded);
}

/// What a run begins with, and what it does about an answer that it cannot use, may tell of the
/// data.
#[test]
fn what_nobody_prices_leaves_no_guarantee() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/dp-sgd.yaml");
    let spec = spec.to_str().unwrap();
    let run = |name: &str, sets: &[&str]| {
        let mut args = vec![
            "run",
            spec,
            "--out",
            name,
            "--json",
            "--set",
            "protocol.rounds=2",
        ];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        json(dir.path(), &args)["privacy"]["readers"].clone()
    };
    assert!(run("first", &[])["epsilon"].as_f64().unwrap() > 0.0);
    let initial = "protocol.initial=first/models/model";
    let from = run("from", &[initial]);
    assert!(
        from["nothing"][0]
            .as_str()
            .unwrap()
            .contains("a model that another run kept"),
        "{from}"
    );
    let public = run("public", &[initial, "protocol.initial-is-public=true"]);
    assert!(public["epsilon"].as_f64().unwrap() > 0.0);
    let args = ["plan", spec, "--set", initial];
    assert!(out(dir.path(), &args).contains("a model that another run kept"));
    let faults = "faults={on-nan: {retry: 9}, inject: [{what: nan, share: 0.5, clients: 1}]}";
    let retried = run("retried", &[faults]);
    let all: Vec<&str> = (retried["nothing"].as_array().unwrap().iter())
        .map(|why| why.as_str().unwrap())
        .collect();
    assert!(
        all[0].contains("may leave out a client's answer"),
        "{retried}"
    );
    assert!(all[1].contains("was asked for again"), "{retried}");
    let report = fs::read_to_string(dir.path().join("retried/report.md")).unwrap();
    assert!(report.contains("asked for again: client 1"), "{report}");
    // what has no effect is a mistake, whichever protocol learns so
    for protocol in [
        "protocol.local.clip=1",
        "protocol.local={steps: 5, batch: 20, clip: 1}",
    ] {
        let (code, said) = fails(dir.path(), &["check", spec, "--set", protocol]);
        assert!(
            code == 2 && said.contains("`local.clip` has no effect"),
            "{said}"
        );
    }
}

/// Answers of a teacher that trained by DP-SGD cost no more than its training, for every observer;
/// their other disclosures are reported.
#[test]
fn what_a_teacher_of_dp_sgd_says_costs_what_its_training_did() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let train = "local: { steps: 10, batch: 10 }, sampling: { rate: 0.1 }";
    let linear = "{ use: linear, lr: 0.5 }";
    let hidden = "example-privacy: { use: gaussian-gradients, noise-multiplier: 2 }, accountant: { use: pld }";
    let run = |name: &str, protocol: &str, parts: &str| {
        let spec = format!(
            "name: {name}\nseed: 1\ndata: {{ set: {{ blobs: {{ features: 2, train: 600, test: 100 }} }}, clients: 4, split: iid, public: {{ from: {{ count: 200 }} }} }}\nprotocol: {{ {protocol}, {train} }}\nparts: {{ teacher: {linear}, student: {linear}, {hidden}, {parts} }}\n"
        );
        let spec = match name {
            "fediod" | "sized" | "dense" | "co-boosting" => {
                spec.replace(", public: { from: { count: 200 } }", "")
            }
            _ => spec,
        };
        let file = format!("{name}.yaml");
        fs::write(dir.join(&file), spec).unwrap();
        ["run", &file, "--out", name, "--json"].map(str::to_string)
    };
    let account = "account gaussian --sigma 2 --rate 0.1 --times 10 --json";
    let account = json(dir, &account.split(' ').collect::<Vec<_>>());
    let json = |args: &[String; 5]| json(dir, &args.each_ref().map(|a| a.as_str()));
    let mut all = account["all"].as_array().unwrap().iter();
    let due = all.find(|one| one["accountant"] == "pld").unwrap()["epsilon"].clone();
    let kd = "use: one-shot-distill, student: { epochs: 2, batch: 32 }";
    let iod = "use: generate-and-distill, rounds: 2, steps: 2, batch: 8, terms: { gan: 0, balance: 1 }, weights: uniform, equal-weights: true";
    let maker = "generator: { use: noise-to-input, noise: 2, net: affine }";
    let one_shot = |name| format!("use: {name}, rounds: 2, steps: 2, batch: 8");
    let asked = [
        run("fedkd", kd, "ensemble: { use: mean-logits }"),
        run("fediod", iod, maker),
        run("dense", &one_shot("dense"), maker),
        run("co-boosting", &one_shot("co-boosting"), maker),
    ];
    for args in &asked {
        let answer = json(args);
        for observer in ["server", "clients", "readers"] {
            let promised = &answer["privacy"][observer];
            assert_eq!(promised["epsilon"], due, "{observer}: {answer}");
            assert_eq!(promised["unit"], "example");
        }
    }
    // counts are of the data themselves, not of a model
    let weighted = json(&run("weighted", kd, "ensemble: { use: class-weighted }"));
    let why = weighted["privacy"]["server"]["nothing"][0].as_str();
    assert!(
        why.unwrap()
            .contains("its number of examples of each class"),
        "{weighted}"
    );
    let sized = iod.replace(", equal-weights: true", "");
    let sized = json(&run("sized", &sized, maker));
    let why = sized["privacy"]["server"]["nothing"][0].as_str();
    assert!(why.unwrap().contains("`training`"), "{sized}");
    // half of the two settings is a mistake, and so is more to learn than the examples that are
    // drawn from
    let said = |protocol: &str, without: &str| {
        let args = run("wrong", protocol, "ensemble: { use: mean-logits }");
        let file = dir.join("wrong.yaml");
        let text = fs::read_to_string(&file).unwrap().replace(without, "");
        fs::write(file, text).unwrap();
        fails(dir, &args.each_ref().map(|a| a.as_str())).1
    };
    let half = said(kd, ", sampling: { rate: 0.1 }");
    assert!(half.contains("needs `sampling"), "{half}");
    let half = said(
        kd,
        "example-privacy: { use: gaussian-gradients, noise-multiplier: 2 },",
    );
    assert!(half.contains("has no effect"), "{half}");
    let more = said(&format!("{kd}, public-labels: true"), "nothing of it");
    assert!(
        more.contains("`public-labels` has clients learn more"),
        "{more}"
    );
    let told = said(
        &iod.replace("weights: uniform, ", ""),
        "ensemble: { use: mean-logits }",
    );
    assert!(
        told.contains("`equal-weights` leaves nothing to weigh"),
        "{told}"
    );
}

/// What a kill between a release of the server and the end of its step leaves in the files.
#[test]
fn exact_a_line_of_the_journal_has_the_price_before_the_servers_release() {
    let dir = tempfile::tempdir().unwrap();
    out(dir.path(), &["run", &spec(), "--out", "r"]);
    let lines = |name: &str| -> Vec<(String, f64)> {
        let text = fs::read_to_string(dir.path().join("r").join(name)).unwrap();
        let read = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let step = line["step"].as_str().unwrap().to_string();
            (step, line["privacy"]["readers"].as_f64().unwrap())
        };
        text.lines().map(read).collect()
    };
    let (journal, costs) = (lines("journal.jsonl"), lines("costs.jsonl"));
    let mut before: Option<f64> = None;
    for (step, after) in costs {
        for (_, shown) in journal.iter().filter(|(of, _)| *of == step) {
            assert!(*shown < after, "{step}: {shown} of {after}");
            assert_eq!(*shown, before.unwrap_or(*shown), "{step}");
        }
        before = Some(after);
    }
}

#[test]
fn exact_plan_names_the_noise_that_keeps_a_budget() {
    let spec = quick("dp-fedavg");
    let plan = |set: &[&str]| {
        let mut args = vec!["plan", &spec[..], "--set", "budget={epsilon: 4}"];
        set.iter().for_each(|set| args.extend(["--set", set]));
        flat(&out(&root(), &args))
    };
    let said = plan(&[]);
    let (_, after) = said
        .split_once("`parts.server-privacy.noise-multiplier: ")
        .unwrap();
    let (noise, after) = after.split_once('`').unwrap();
    assert!(after.starts_with(" keeps it to the last round"), "{said}");
    // what is named keeps it, and a little less does not
    let with = |noise: f64| format!("parts.server-privacy.noise-multiplier={noise}");
    let noise: f64 = noise.parse().unwrap();
    assert!(!plan(&[&with(noise)]).contains("more than the budget"));
    assert!(plan(&[&with(noise * 0.97)]).contains("more than the budget of 4"));
}
