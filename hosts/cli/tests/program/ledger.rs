//! `ledger:` in specs, and `fl ledger`: what all runs on the same rows release.
use crate::common::{fails, fl, flat, json, out, quick, start};
use fl_core::privacy::UpperBound;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The arguments of a run of `quick-dp-sgd` with this ledger, into this folder.
fn run<'a>(spec: &'a str, ledger: &'a str, folder: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = ["run", spec, "--json", "--set", ledger, "--out", folder];
    [&args[..], more].concat()
}

pub fn show(dir: &Path) -> Value {
    json(dir, &["ledger", "show", "l", "--json"])
}

pub fn epsilon(of: &Value) -> f64 {
    of.as_f64().expect("an epsilon")
}

/// The settings of a run's ledger: tests run in a folder of their own, and the spec is elsewhere.
pub fn set(dir: &Path) -> String {
    format!("ledger={}", dir.join("l").display())
}

#[test]
fn runs_on_the_same_rows_cost_what_one_run_of_all_their_releases_costs() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    let long = json(
        dir,
        &["run", &spec, "--json", "--set", "protocol.rounds=15"],
    );
    let long = epsilon(&long["privacy"]["server"]["epsilon"]);
    let mut single = 0.0;
    for (k, lr) in ["0.5", "0.4", "0.3"].into_iter().enumerate() {
        let (folder, lr) = (format!("r{k}"), format!("parts.model.lr={lr}"));
        let more = ["--set", &lr];
        let plan = ["plan", &spec, "--json", "--set", &ledger, "--set", &lr];
        let plan = json(dir, &plan);
        let ran = json(dir, &run(&spec, &ledger, &folder, &more));
        single = epsilon(&ran["privacy"]["server"]["epsilon"]);
        let shown = show(dir);
        let together = &shown["data-sets"][0]["together"];
        assert_eq!(
            plan["ledger"]["after"], *together,
            "the plan says it before"
        );
        assert_eq!(plan["ledger"]["other-runs"], k);
        let alone = &shown["data-sets"][0]["runs"][k]["alone"];
        assert_eq!(
            epsilon(&alone["server"]["epsilon"]),
            single,
            "as the run said"
        );
    }
    let shown = show(dir);
    let sets = shown["data-sets"].as_array().unwrap();
    assert_eq!(sets.len(), 1);
    for observer in ["server", "clients", "readers"] {
        let together = epsilon(&sets[0]["together"][observer]["epsilon"]);
        assert!((together / long - 1.0).abs() < 1e-12, "{together} {long}");
        assert!(together < 2.5 * single, "composed, and not added");
    }
    let text = flat(&out(dir, &["ledger", "show", "l"]));
    assert!(
        text.contains(&format!(
            "against the server: epsilon {} at delta",
            UpperBound(long)
        )),
        "{text}"
    );
    assert_eq!(
        text.matches(&format!(" {}", UpperBound(single))).count(),
        9,
        "{text}"
    );
    let ids = sets[0]["runs"].as_array().unwrap().iter();
    let mut ids: Vec<&str> = ids.map(|run| &run["run"].as_str().unwrap()[..8]).collect();
    ids.sort_unstable();
    let caveat = format!(
        "epsilon of {} is an estimate, and no guarantee",
        ids.join(", ")
    );
    assert!(text.contains(&caveat), "{text}");
}

#[test]
fn a_limit_refuses_a_run_before_it_leaves_anything() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let (dir, ledger) = (d.path(), set(d.path()));
    let one = json(dir, &["run", &spec, "--json", "--out", "free"]);
    let limit = 1.5 * epsilon(&one["privacy"]["server"]["epsilon"]);
    let limit = limit.to_string();
    out(
        dir,
        &[
            "ledger",
            "init",
            "l",
            "--epsilon",
            &limit,
            "--against",
            "server",
        ],
    );
    json(dir, &run(&spec, &ledger, "a", &[]));
    let before = fs::read(dir.join("l")).unwrap();
    let (lr, rounds) = ("parts.model.lr=0.1", "protocol.rounds=10");
    let (code, error) = fails(
        dir,
        &run(&spec, &ledger, "b", &["--set", lr, "--set", rounds]),
    );
    assert_eq!(code, 1);
    assert!(
        error.contains("refused before anything was released"),
        "{error}"
    );
    assert!(!dir.join("b").exists());
    assert_eq!(fs::read(dir.join("l")).unwrap(), before);
    let plan = [
        "plan", &spec, "--set", &ledger, "--set", lr, "--set", rounds,
    ];
    let plan = flat(&out(dir, &plan));
    assert!(
        plan.contains("the run will be refused: the ledger"),
        "{plan}"
    );
    let check = [
        "check", &spec, "--set", &ledger, "--set", lr, "--set", rounds,
    ];
    let noted = fl(dir, &check).stderr;
    let noted = flat(&String::from_utf8(noted).unwrap());
    assert!(
        noted.contains("dp-sgd.yaml: the run will be refused: the ledger"),
        "{noted}"
    );
    // a run of fewer rounds fits; one without an accountant never does
    json(
        dir,
        &run(
            &spec,
            &ledger,
            "c",
            &["--set", lr, "--set", "protocol.rounds=1"],
        ),
    );
    let (code, error) = fails(dir, &run(&quick("fedavg"), &ledger, "d", &[]));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("the run has no accountant"), "{error}");
}

#[test]
fn a_budget_that_is_reserved_counts_for_the_unit_of_its_accountant() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("fedkt-l1"));
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    // how many votes are answered is known at the end only
    let plan = |unit: &str| {
        let unit = format!("parts.accountant.unit={unit}");
        let set = [
            "--set",
            &ledger,
            "--set",
            "budget.epsilon=500",
            "--set",
            &unit,
        ];
        let plan = json(dir, &[&["plan", &spec, "--json"][..], &set].concat());
        plan["ledger"]["after"]["readers"].clone()
    };
    for unit in ["party", "example"] {
        let after = plan(unit);
        assert_eq!(
            (&after["unit"], &after["epsilon"]),
            (&unit.into(), &500.0.into()),
            "{after}"
        );
    }
}

#[test]
fn a_killed_run_counts_in_full_and_its_end_settles_it() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    let rounds = ["--set", "protocol.rounds=100"];
    let mut child = start(dir, &run(&spec, &ledger, "r", &rounds));
    while !dir.join("r/state").exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it is to run for long");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let entry = |shown: &Value| shown["data-sets"][0]["runs"][0].clone();
    let open = entry(&show(dir));
    assert_eq!(open["state"], "not done, all reserved");
    let all = epsilon(&open["alone"]["server"]["epsilon"]);
    let plan = json(dir, &[&["plan", &spec, "--json"], &rounds[..]].concat());
    let planned = plan["reached"].as_array().unwrap().iter();
    let planned = planned.map(|row| epsilon(&row[1]["epsilon"]));
    assert!(planned.clone().count() > 0 && planned.into_iter().all(|e| e == all));
    // what it released since its checkpoint would be on no book beside a run of another spec
    for (set, due) in [
        (
            "checkpoint.keep=false",
            "the run in r was killed, and may have released what no checkpoint has",
        ),
        ("protocol.rounds=101", "the run in r began with 100"),
    ] {
        let (code, error) = fails(dir, &["run", "--resume", "r", "--set", set]);
        assert!(code == 2 && error.contains(due), "{code}: {error}");
    }
    // it goes on, and counts once
    let o = fl(
        dir,
        &["run", "--resume", "r", "--json", "--stop-after", "99"],
    );
    if o.status.success() {
        let stopped = entry(&show(dir));
        assert_eq!(stopped["state"], "stopped, all reserved");
    }
    let done = json(dir, &["run", "--resume", "r", "--json"]);
    let shown = show(dir);
    assert_eq!(shown["data-sets"][0]["runs"].as_array().unwrap().len(), 1);
    let settled = entry(&shown);
    assert_eq!(settled["state"], "done");
    let spent = epsilon(&settled["alone"]["server"]["epsilon"]);
    assert_eq!(spent, epsilon(&done["privacy"]["server"]["epsilon"]));
}

#[test]
fn a_stopped_run_counts_once_with_all_of_its_rounds() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    let eight = ["--set", "protocol.rounds=8"];
    let stop = [&["--stop-after", "2"][..], &eight].concat();
    json(dir, &run(&spec, &ledger, "r", &stop));
    let stopped = show(dir);
    let stopped = &stopped["data-sets"][0]["runs"][0];
    assert_eq!(stopped["state"], "stopped, all reserved");
    let more = ["run", "--resume", "r", "--set", "protocol.rounds=9"];
    let (code, error) = fails(dir, &more);
    assert!(
        code == 2 && error.contains("the run in r began with 8"),
        "{error}"
    );
    let resumed = json(dir, &["run", "--resume", "r", "--json"]);
    let shown = show(dir);
    let runs = shown["data-sets"][0]["runs"].as_array().unwrap().clone();
    assert_eq!((runs.len(), &runs[0]["state"]), (1, &"done".into()));
    let together = &shown["data-sets"][0]["together"]["server"]["epsilon"];
    assert_eq!(*together, resumed["privacy"]["server"]["epsilon"]);
    let straight = [&["run", &spec[..], "--out", "s", "--json"][..], &eight].concat();
    let straight = json(dir, &straight);
    assert_eq!(*together, straight["privacy"]["server"]["epsilon"]);
    assert_eq!(*together, stopped["alone"]["server"]["epsilon"]);
}

#[test]
fn an_older_copy_of_the_ledger_is_found_by_runs_that_know_a_newer_one() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    let copy = |from: &str, to: &str| {
        for end in ["", ".head"] {
            let [from, to] = [from, to].map(|name| dir.join(format!("{name}{end}")));
            fs::copy(from, to).unwrap();
        }
    };
    copy("l", "old");
    json(dir, &run(&spec, &ledger, "r", &["--stop-after", "2"]));
    let head = show(dir)["head"].as_str().unwrap().to_string();
    out(dir, &["ledger", "show", "l", "r", "--since", &head]);
    copy("old", "l");
    for args in [
        &["ledger", "show", "l", "r"][..],
        &["ledger", "show", "l", "--since", &head],
        &["run", "--resume", "r"],
    ] {
        let (code, error) = fails(dir, args);
        assert_eq!(code, 1);
        assert!(
            error.contains("an older copy was restored"),
            "{args:?}: {error}"
        );
    }
    // another ledger, and none
    fs::remove_file(dir.join("l")).unwrap();
    fs::remove_file(dir.join("l.head")).unwrap();
    let (_, error) = fails(dir, &["run", "--resume", "r"]);
    assert!(error.contains("is lost: its key"), "{error}");
    fs::remove_file(dir.join("l.key")).unwrap();
    out(dir, &["ledger", "init", "l"]);
    let (_, error) = fails(dir, &["run", "--resume", "r"]);
    assert!(
        error.contains("is not the ledger with which the run in r began"),
        "{error}"
    );
}

#[test]
fn clients_are_known_by_their_rows_and_not_by_their_numbers() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    out(dir, &["ledger", "init", "l"]);
    for (file, first) in [("a.csv", 0), ("b.csv", 40), ("test.csv", 80)] {
        let line = |k: u32| format!("{},{},{}\n", k % 7, k, ["no", "yes"][k as usize % 2]);
        let rows: String = (first..first + 40).map(line).collect();
        fs::write(dir.join(file), format!("a,b,label\n{rows}")).unwrap();
    }
    // the second client always has the lesser noise; in the second run it has other rows
    let run = |train: &str, name: &str| {
        let text = format!(
            "name: {name}\nseed: 1\nnoise: system\ndata:\n  set: {{ files: {{ format: csv, train: [{train}], test: test.csv, label: label, columns: {{ a: {{ number: {{ range: [0, 20] }} }}, b: {{ number: {{ range: [0, 200] }} }} }}, classes: [no, yes] }} }}\nprotocol: {{ use: fedavg, rounds: 1, local: {{ epochs: 1, batch: 8 }} }}\nparts:\n  model: {{ use: linear }}\n  aggregator: {{ use: mean, weigh: uniform }}\n  privacy:\n  - {{ use: gaussian-update, clip: 1, noise-multiplier: 50, clients: 0 }}\n  - {{ use: gaussian-update, clip: 1, noise-multiplier: 5, clients: 1 }}\n  accountant: {{ use: pld }}\nledger: {{ path: l, data: people }}\n"
        );
        let file = format!("{name}.yaml");
        fs::write(dir.join(&file), text).unwrap();
        json(dir, &["run", &file, "--json", "--out", name]);
        epsilon(&show(dir)["data-sets"][0]["together"]["readers"]["epsilon"])
    };
    let (alone, turned) = (run("a.csv, b.csv", "one"), run("b.csv, a.csv", "two"));
    // known by numbers, b.csv would have had the lesser noise once and the greater noise once
    let twice = json(
        dir,
        &words(
            "account gaussian --sigma 5 --sensitivity 2 --times 2 --level party --delta 1e-5 --json",
        ),
    );
    let mut all = twice["all"].as_array().unwrap().iter();
    let twice = all.find(|a| a["accountant"] == "pld").unwrap();
    let twice = epsilon(&twice["epsilon"]);
    assert!(
        alone < twice - 0.5 && turned > twice - 1e-3,
        "{alone} {turned} {twice}"
    );
}

fn words(of: &str) -> Vec<&str> {
    of.split(' ').collect()
}

#[test]
fn rows_are_known_by_any_name_in_any_order() {
    let d = tempfile::tempdir().unwrap();
    let (dir, ledger) = (d.path(), set(d.path()));
    out(dir, &["ledger", "init", "l"]);
    let line = |k: u32| format!("{},{},{}\n", k % 7, k % 11, ["no", "yes"][k as usize % 2]);
    let head = "a,b,label\n";
    let rows = |order: &mut dyn Iterator<Item = u32>| {
        head.to_string() + &order.map(line).collect::<String>()
    };
    fs::write(dir.join("one.csv"), rows(&mut (0..60))).unwrap();
    fs::write(dir.join("turned.csv"), rows(&mut (0..60).rev())).unwrap();
    fs::write(dir.join("more.csv"), rows(&mut (0..61))).unwrap();
    fs::write(dir.join("test.csv"), rows(&mut (100..120))).unwrap();
    let spec = |train: &str, name: &str| {
        let text = format!(
            "name: x\nseed: 1\ndata:\n  set: {{ files: {{ format: csv, train: {train}, test: test.csv, label: label, columns: {{ a: {{ number: {{ range: [0, 20] }} }}, b: {{ number: {{ range: [0, 20] }} }} }}, classes: [no, yes] }} }}\n  clients: 2\n  split: iid\nprotocol: {{ use: fedavg, rounds: 1 }}\nparts:\n  model: {{ use: linear }}\n  aggregator: {{ use: mean }}\nledger: {{ path: l, data: {name} }}\n"
        );
        let file = format!("{name}.yaml");
        fs::write(dir.join(&file), text).unwrap();
        file
    };
    let _ = ledger;
    let mut sizes = Vec::new();
    for (train, name) in [
        ("one.csv", "first"),
        ("turned.csv", "second"),
        ("more.csv", "third"),
        ("more.csv", "first"),
    ] {
        let spec = spec(train, name);
        let folder = format!("{name}-{}", sizes.len());
        out(dir, &["run", &spec, "--out", &folder]);
        let shown = show(dir);
        let sets = shown["data-sets"].as_array().unwrap().iter();
        sizes.push(
            sets.map(|set| set["runs"].as_array().unwrap().len())
                .collect::<Vec<_>>(),
        );
    }
    // the same rows under two names; a row more is another set, until a name joins them
    assert_eq!(sizes, [vec![1], vec![2], vec![2, 1], vec![4]]);
    let text = flat(&out(dir, &["ledger", "show", "l"]));
    assert!(
        text.contains("nothing: the run has no accountant"),
        "{text}"
    );
}

#[test]
fn a_study_of_several_threads_keeps_one_ledger() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let dir = d.path();
    out(dir, &["ledger", "init", "l"]);
    let ledger = dir.join("l").display().to_string();
    let study = format!(
        "name: s\ndefaults: {{ seeds: 1, measure: accuracy, set: {{ ledger: {ledger}, protocol.rounds: 1 }} }}\ntables:\n  - name: t\n    base: {spec}\n    rows:\n      - {{ name: a, set: {{ parts.model.lr: 0.1 }} }}\n      - {{ name: b, set: {{ parts.model.lr: 0.2 }} }}\n      - {{ name: c, set: {{ parts.model.lr: 0.3 }} }}\n"
    );
    fs::write(dir.join("s.yaml"), study).unwrap();
    out(dir, &["study", "s.yaml", "--out", "o", "--threads", "3"]);
    let shown = show(dir);
    let runs = shown["data-sets"][0]["runs"].as_array().unwrap().clone();
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run["state"] == "done"));
    // done again it spends nothing more
    let before = fs::read(dir.join("l")).unwrap();
    out(dir, &["study", "s.yaml", "--out", "o", "--threads", "3"]);
    assert_eq!(fs::read(dir.join("l")).unwrap(), before);
}

#[test]
fn a_ledger_is_refused_where_it_could_not_be_kept() {
    let (d, spec) = (tempfile::tempdir().unwrap(), quick("dp-sgd"));
    let (dir, ledger) = (d.path(), set(d.path()));
    let (code, error) = fails(dir, &run(&spec, &ledger, "r", &[]));
    assert_eq!(code, 1);
    assert!(error.contains("fl ledger init"), "{error}");
    let checked = fl(dir, &["check", &spec, "--set", &ledger]);
    let noted = String::from_utf8(checked.stderr).unwrap();
    assert!(
        checked.status.success() && noted.contains("fl ledger init"),
        "{noted}"
    );
    out(dir, &["ledger", "init", "l"]);
    let (_, error) = fails(dir, &["ledger", "init", "l"]);
    assert!(error.contains("a ledger is never replaced"), "{error}");
    for wrong in [
        "ledger=''",
        "ledger=7",
        "ledger={data: x}",
        "ledger={path: l, date: x}",
    ] {
        let (code, error) = fails(dir, &["check", &spec, "--set", wrong]);
        assert_eq!(code, 2, "{wrong}: {error}");
    }
    for wrong in [
        &["--epsilon", "0"][..],
        &["--epsilon", "-1"],
        &["--epsilon", "inf"],
        &["--delta", "0.1"],
        &["--epsilon", "1", "--delta", "2"],
    ] {
        let (code, error) = fails(dir, &[&["ledger", "init", "m"], wrong].concat());
        assert_eq!(code, 2, "{wrong:?}: {error}");
        assert!(!dir.join("m").exists());
    }
}

/// Ten rows of clients are the public, or the test rows, of another run before or after.
#[test]
fn rows_that_another_run_publishes_have_no_guarantee() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let files = [
        ("own", 0..60),
        ("other", 100..160),
        ("part", 10..20),
        ("test", 300..330),
    ];
    for (file, rows) in files {
        let line = |k: u32| format!("{},{k},{}\n", k % 7, ["no", "yes"][k as usize % 2]);
        let rows: String = rows.map(line).collect();
        fs::write(
            dir.join(format!("{file}.csv")),
            format!("a,b,label\n{rows}"),
        )
        .unwrap();
    }
    let set = |train: &str, test: &str| {
        format!(
            "{{ files: {{ format: csv, train: [{train}.csv], test: {test}.csv, label: label, columns: {{ a: {{ number: {{ range: [0, 20] }} }}, b: {{ number: {{ range: [0, 400] }} }} }}, classes: [no, yes] }} }}"
        )
    };
    let spec = |name: &str, data: &str| {
        let text = format!(
            "name: {name}\nseed: 1\nnoise: system\ndata:\n{data}\nprotocol: {{ use: fedavg, rounds: 1, local: {{ epochs: 1, batch: 8 }} }}\nparts:\n  model: {{ use: linear }}\n  aggregator: {{ use: mean, weigh: uniform }}\n  privacy: {{ use: gaussian-update, clip: 1, noise-multiplier: 50 }}\n  accountant: {{ use: pld }}\nledger: {{ path: l, data: {name} }}\n"
        );
        fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
    };
    spec("own", &format!("  set: {}", set("own", "test")));
    spec("tested", &format!("  set: {}", set("other", "part")));
    let public = format!("  public: {{ from: {{ set: {} }} }}", set("part", "test"));
    spec(
        "shown",
        &format!("  set: {}\n{public}", set("other", "test")),
    );
    spec("apart", &format!("  set: {}", set("other", "test")));
    for (other, publishes) in [("tested", true), ("shown", true), ("apart", false)] {
        for order in [["own", other], [other, "own"]] {
            for file in ["l", "l.head", "l.key"] {
                let _ = fs::remove_file(dir.join(file));
            }
            out(dir, &["ledger", "init", "l"]);
            for name in order {
                out(dir, &["run", &format!("{name}.yaml")]);
            }
            for set in show(dir)["data-sets"].as_array().unwrap() {
                let own = set["names"][0] == "own";
                let nothing = &set["together"]["readers"]["nothing"][0];
                let due = format!("its rows are public or test rows of {other} (seed 1)");
                let found = nothing.as_str() == Some(&due);
                assert_eq!(found, own && publishes, "{order:?}: {set}");
            }
        }
    }
    // a limit refuses the run that would publish them
    for file in ["l", "l.head", "l.key"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    out(dir, &["ledger", "init", "l", "--epsilon", "9"]);
    out(dir, &["run", "own.yaml"]);
    let (code, said) = fails(dir, &["run", "shown.yaml"]);
    assert!(
        code == 1 && flat(&said).contains("are rows of `own`"),
        "{said}"
    );
    // nor does it admit that run with the key of another ledger, or a changed one
    out(dir, &["ledger", "init", "m"]);
    let (key, head) = (dir.join("l.key"), fs::read(dir.join("l.head")).unwrap());
    let right = fs::read(&key).unwrap();
    let mut changed = right.clone();
    changed[0] ^= 1;
    for wrong in [fs::read(dir.join("m.key")).unwrap(), changed, Vec::new()] {
        fs::write(&key, wrong).unwrap();
        let (code, said) = fails(dir, &["run", "shown.yaml"]);
        let said = flat(&said);
        assert!(code == 1 && said.contains("is not the key of"), "{said}");
    }
    fs::remove_file(&key).unwrap();
    let (code, said) = fails(dir, &["run", "shown.yaml"]);
    assert!(code == 1 && said.contains("l.key is missing"), "{said}");
    assert_eq!(fs::read(dir.join("l.head")).unwrap(), head);
    fs::write(&key, right).unwrap();
    out(dir, &["run", "apart.yaml"]);
}

/// Rows of two columns and a label, by their numbers.
fn rows_of(numbers: impl IntoIterator<Item = u32>) -> String {
    let line = |k: u32| format!("{},{},{}\n", k % 16, k / 16, ["no", "yes"][k as usize % 2]);
    let rows: String = numbers.into_iter().map(line).collect();
    format!("a,b,label\n{rows}")
}

/// A spec of DP-FedAvg on these files.
pub fn patients(name: &str, train: &str, test: &str) -> String {
    format!(
        "name: {name}\nseed: 1\nnoise: system\nledger: l\ndata:\n  set: {{ files: {{ format: csv, train: [{train}], test: {test}, label: label, columns: {{ a: {{ number: {{ range: [0, 16] }} }}, b: {{ number: {{ range: [0, 16] }} }} }}, classes: [no, yes] }} }}\n\
         protocol: {{ use: dp-fedavg, rounds: 1, local: {{ steps: 2, batch: 16 }} }}\n\
         parts:\n  model: {{ use: linear, lr: 0.05 }}\n  aggregator: {{ use: mean, weigh: uniform }}\n  server-privacy: {{ use: gaussian-update, clip: 1.0, noise-multiplier: 10.0 }}\n  accountant: {{ use: pld, delta: 1e-5 }}\n"
    )
}

/// The rows of two parties, test rows, and a ledger.
pub fn two_sites(dir: &Path) {
    for (name, rows) in [("A", 0..40), ("B", 40..80), ("test", 200..220)] {
        fs::write(dir.join(format!("{name}.csv")), rows_of(rows)).unwrap();
    }
    out(dir, &["ledger", "init", "l"]);
}

/// What the ledger says of all runs against each observer, as text.
fn together(dir: &Path) -> Vec<String> {
    let text = flat(&out(dir, &["ledger", "show", "l"]));
    let parts = text.split("together, against ").skip(1);
    let said = parts.map(|part| part.split_once(": ").unwrap().1);
    let end = |said: &str| {
        said.split(" composition: ")
            .next()
            .unwrap()
            .trim()
            .to_string()
    };
    said.map(end).collect()
}

/// A page of these runs shows every total that the ledger shows.
pub fn same_on_page(dir: &Path, runs: &[&str]) {
    let args = [&["report"], runs, &["--out", "page.html"]].concat();
    out(dir, &args);
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    for said in &together(dir)[1..] {
        let said = said.split('(').next().unwrap().trim();
        assert!(page.contains(said), "no {said} in {runs:?}");
    }
}

#[test]
fn parties_and_rows_are_the_same_on_a_page_as_in_the_ledger() {
    let files = |dir: &Path| {
        let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
        write("A.csv", rows_of(0..40));
        write("B.csv", rows_of(40..80));
        write("C.csv", rows_of(80..120));
        write("a0.csv", rows_of(0..10));
        write("a1.csv", rows_of(10..40));
        write("A-less.csv", rows_of(0..39));
        write("B-more.csv", rows_of(39..80));
        write("A-sorted.csv", rows_of((0..40).rev()));
        write("test.csv", rows_of(200..220));
    };
    let each = "for each party (replaced";
    let finest = "for each party of the finest split (replaced";
    let parties = "nothing: the runs share the rows out to parties differently";
    let public = "its rows are public or test rows of two";
    for (at, (train, test, due)) in [
        ("A.csv, B.csv", "test.csv", each),
        ("A-sorted.csv, B.csv", "test.csv", each),
        ("a0.csv, a1.csv, B.csv", "test.csv", finest),
        ("B.csv, A.csv", "test.csv", finest),
        ("A-less.csv, B-more.csv", "test.csv", parties),
        ("A-less.csv, B.csv", "test.csv", parties),
        ("B.csv, C.csv", "A-sorted.csv", public),
    ]
    .into_iter()
    .enumerate()
    {
        let d = tempfile::tempdir().unwrap();
        let dir = d.path();
        files(dir);
        out(dir, &["ledger", "init", "l"]);
        fs::write(
            dir.join("one.yaml"),
            patients("one", "A.csv, B.csv", "test.csv"),
        )
        .unwrap();
        fs::write(dir.join("two.yaml"), patients("two", train, test)).unwrap();
        out(dir, &["run", "one.yaml", "--out", "r1"]);
        out(dir, &["run", "two.yaml", "--out", "r2"]);
        for said in &together(dir)[1..] {
            assert!(said.contains(due), "{at}: {said}");
        }
        same_on_page(dir, &["r1", "r2"]);
    }
    // files that swap their names between two runs
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    files(dir);
    out(dir, &["ledger", "init", "l"]);
    fs::write(
        dir.join("one.yaml"),
        patients("one", "A.csv, B.csv", "test.csv"),
    )
    .unwrap();
    out(dir, &["run", "one.yaml", "--out", "r1"]);
    fs::write(dir.join("A.csv"), rows_of(40..80)).unwrap();
    fs::write(dir.join("B.csv"), rows_of(0..40)).unwrap();
    out(dir, &["run", "one.yaml", "--out", "r2"]);
    assert!(together(dir)[1].contains(finest), "{:?}", together(dir));
    same_on_page(dir, &["r1", "r2"]);
}

#[test]
fn accountants_with_other_neighbours_have_no_total() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    two_sites(dir);
    for (name, draw, accountant) in [("r1", "poisson", "rdp"), ("r2", "fixed", "pld")] {
        let spec = patients(name, "A.csv, B.csv", "test.csv")
            .replace("dp-fedavg, rounds: 1, local: { steps: 2, batch: 16 }", &format!("fedavg, rounds: 2, local: {{ steps: 5, batch: 8 }}, sampling: {{ rate: 0.2, draw: {draw} }}"))
            .replace("server-privacy: { use: gaussian-update, clip: 1.0, noise-multiplier: 10.0 }", "example-privacy: { use: gaussian-gradients, clip: 1.0, noise-multiplier: 4.0 }")
            .replace("use: pld", &format!("use: {accountant}"));
        fs::write(dir.join(format!("{name}.yaml")), spec).unwrap();
        out(dir, &["run", &format!("{name}.yaml"), "--out", name]);
    }
    for said in together(dir) {
        assert!(
            said.starts_with("nothing: ") && said.contains("do not add up"),
            "{said}"
        );
    }
    same_on_page(dir, &["r1", "r2"]);
}

/// The run's own budget is against one observer, and the ledger's limit against another.
#[test]
fn a_limit_lets_a_run_end_whose_own_budget_is_against_another_observer() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    fs::write(dir.join("test.csv"), rows_of(200..220)).unwrap();
    let files: Vec<String> = (0..8).map(|k| format!("{k}.csv")).collect();
    for (k, file) in (0..).zip(&files) {
        fs::write(dir.join(file), rows_of(10 * k..10 * k + 10)).unwrap();
    }
    let spec = patients("s", &files.join(", "), "test.csv")
        .replace("rounds: 1,", "rounds: 8,")
        .replace("parts:\n", "budget: { epsilon: 60, against: clients }\nparts:\n  cohort: { use: poisson, rate: 0.25 }\n")
        .replace("noise-multiplier: 10.0", "noise-multiplier: 2.0");
    fs::write(dir.join("s.yaml"), &spec).unwrap();
    fs::write(dir.join("free.yaml"), spec.replace("ledger: l\n", "")).unwrap();
    let alone = json(dir, &["run", "free.yaml", "--out", "free", "--json"]);
    let [readers, clients] =
        ["readers", "clients"].map(|o| epsilon(&alone["privacy"][o]["epsilon"]));
    assert!(readers < clients, "{readers} {clients}");
    let limit = format!("{}", readers * 1.0001);
    out(
        dir,
        &[
            "ledger",
            "init",
            "l",
            "--epsilon",
            &limit,
            "--against",
            "readers",
        ],
    );
    let ran = json(dir, &["run", "s.yaml", "--out", "r", "--json"]);
    assert_eq!(ran["rounds"], 8, "{ran}");
    // a budget against readers bounds no other observer
    let tight = ["--set", "budget={epsilon: 1, against: readers}"];
    for file in ["l", "l.head", "l.key"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    out(dir, &["ledger", "init", "l"]);
    let plan = json(dir, &[&["plan", "s.yaml", "--json"], &tight[..]].concat());
    let after = &plan["ledger"]["after"];
    assert_eq!(epsilon(&after["readers"]["epsilon"]), 1.0);
    assert!(epsilon(&after["clients"]["epsilon"]) > 1.0, "{after}");
}

/// One row more moves the masks of all rows behind it, which no accountant prices.
#[test]
fn undersampled_images_of_a_users_own_files_leave_nothing() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (name, shape, n) in [("x", "6, 1, 8, 8", 384), ("y", "6,", 6)] {
        let head = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape}), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{head:<117}\n").as_bytes());
        bytes.extend((0..n).map(|at| (at % 2) as u8));
        fs::write(dir.join(format!("{name}.npy")), bytes).unwrap();
    }
    let plan = |more: &str| {
        let text = format!(
            "name: u\nseed: 1\nnoise: system\ndata: {{ set: {{ files: {{ format: npy, train: [{{ inputs: x.npy, labels: y.npy }}], test: {{ inputs: x.npy, labels: y.npy }} }} }}, clients: 1, split: by-file{more} }}\nprotocol: {{ use: fedavg, rounds: 1, local: {{ epochs: 1, batch: 2 }} }}\nparts: {{ model: {{ use: dfdx, net: [{{ conv: {{ out: 2, kernel: 3, pad: 1 }} }}, outputs] }}, aggregator: {{ use: mean, weigh: uniform }}, privacy: {{ use: gaussian-update, clip: 1, noise-multiplier: 50 }}, accountant: {{ use: pld }} }}\n"
        );
        fs::write(dir.join("u.yaml"), text).unwrap();
        out(dir, &["plan", "u.yaml"])
    };
    let why = "the frequencies that `undersampled` keeps depend on a row's place in its file";
    assert!(flat(&plan(", undersampled: {}")).contains(why));
    assert!(!plan("").contains("frequencies"));
}
