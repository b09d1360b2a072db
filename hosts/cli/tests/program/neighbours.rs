//! What a guarantee compares: two runs whose data are neighbours differ in nothing that has no
//! noise.

use crate::common::{fails, files, fl, json, out, program};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Rows of two numbers and a class; no two have the same numbers.
pub fn rows(of: impl IntoIterator<Item = usize>) -> String {
    let row = |i: usize| {
        let (a, b) = ((i * 37 % 101) as f64 / 50.0, (i * 61 % 103) as f64 / 50.0);
        let class = if a > b { "high" } else { "low" };
        format!("{a:.2}{i:03},{b:.2}{i:03},{class}\n")
    };
    let rows: String = of.into_iter().map(row).collect();
    format!("a,b,class\n{rows}")
}

/// Six clients with a file of 20 rows each, and a file of test rows.
fn six(dir: &Path) {
    for k in 0..6 {
        fs::write(dir.join(format!("{k}.csv")), rows(20 * k..20 * k + 20)).unwrap();
    }
    fs::write(dir.join("test.csv"), rows(500..540)).unwrap();
}

fn spec(more: &str) -> String {
    let files: Vec<String> = (0..6).map(|k| format!("{k}.csv")).collect();
    format!(
        "name: six
seed: 1
data:
  set: {{ files: {{ format: csv, train: [{}], test: test.csv, label: class, classes: [low, high],
    columns: {{ a: {{ number: {{ range: [0, 1000] }} }}, b: {{ number: {{ range: [0, 1000] }} }} }} }} }}
{more}",
        files.join(", ")
    )
}

const SERVER: &str = "protocol: { use: dp-fedavg, rounds: 3, local: { epochs: 1, batch: 8 } }
parts:
  model: { use: linear }
  cohort: { use: poisson, rate: 0.5 }
  aggregator: { use: mean, weigh: uniform }
  server-privacy: { use: gaussian-update, clip: 1.0, noise-multiplier: 1.0 }
  accountant: { use: rdp, delta: 1e-3 }
";
const CLIENT: &str = "protocol: { use: fedavg, rounds: 3, local: { epochs: 1, batch: 8 } }
parts:
  model: { use: linear }
  aggregator: { use: mean, weigh: uniform }
  privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 1.0 }
  accountant: { use: analytic-gaussian, delta: 1e-5 }
";
const EXAMPLE: &str =
    "protocol: { use: fedavg, rounds: 3, local: { steps: 5, batch: 4 }, sampling: { rate: 0.2 } }
parts:
  model: { use: linear }
  aggregator: { use: mean, weigh: uniform }
  example-privacy: { use: gaussian-gradients, clip: 1.0, noise-multiplier: 2.0 }
  accountant: { use: pld }
";

/// What observers see of a run beside numbers with noise: the notes, the guarantee, and the journal
/// without digests.
fn seen(dir: &Path, spec: &str, out: &str, more: &[&str]) -> (String, Value, Vec<Value>) {
    let args = [&["run", spec, "--out", out, "--json"], more].concat();
    let o = fl(dir, &args);
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(o.status.success(), "{args:?}: {said}");
    let notes: String = said.lines().filter(|l| l.contains("note: ")).collect();
    let answer: Value = serde_json::from_slice(&o.stdout).unwrap();
    let journal = fs::read_to_string(dir.join(out).join("journal.jsonl")).unwrap();
    let entry = |line: &str| {
        let mut entry: Value = serde_json::from_str(line).unwrap();
        let all = entry.as_object_mut().unwrap();
        all.remove("digest");
        all.remove("answers");
        entry
    };
    (
        notes,
        answer["privacy"].clone(),
        journal.lines().map(entry).collect(),
    )
}

#[test]
fn a_client_without_examples_is_seen_by_no_one_where_a_guarantee_hides_it() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (name, parts) in [("server", SERVER), ("client", CLIENT), ("example", EXAMPLE)] {
        let yaml = format!("{name}.yaml");
        fs::write(dir.join(&yaml), spec(parts)).unwrap();
        let two = ["--processes", "2"];
        for (how, more) in [("here", &[][..]), ("apart", &two[..])] {
            six(dir);
            let full = seen(dir, &yaml, &format!("{name}-{how}-full"), more);
            assert!(full.1["readers"]["epsilon"].is_f64(), "{name}: {}", full.1);
            fs::write(dir.join("2.csv"), rows(0..0)).unwrap();
            let less = seen(dir, &yaml, &format!("{name}-{how}-less"), more);
            assert_eq!(full, less, "{name}, {how}");
        }
        let plan = out(dir, &["plan", &yaml]);
        assert!(plan.contains(", 6 clients"), "{plan}");
    }
    // where nothing is accounted for it stays away, as before
    let free = CLIENT
        .lines()
        .filter(|l| !l.contains("privacy") && !l.contains("accountant"));
    let free: Vec<&str> = free.collect();
    fs::write(dir.join("free.yaml"), spec(&(free.join("\n") + "\n"))).unwrap();
    let (notes, _, journal) = seen(dir, "free.yaml", "free", &[]);
    assert!(
        notes.contains("clients without examples take no part: 2"),
        "{notes}"
    );
    assert_eq!(journal[0]["clients"], 5);
}

const TIERS: &str = "protocol:
  use: two-tier-vote
  partitions: 1
  subsets: 2
  noise: server
  teacher: { epochs: 1, batch: 8 }
  student: { epochs: 1, batch: 8 }
  final-model: { epochs: 1, batch: 8 }
  evaluate-clients: false
parts:
  teacher: { use: linear }
  student: { use: linear }
  final: { use: linear }
  tier1: { use: majority-vote }
  tier2: { use: consistent-vote }
  privacy: { use: laplace-votes, gamma: 1e-6, data-dependent: false }
  accountant: { use: pate-moments, delta: 1e-5, unit: party }
";
const SCORES: &str = "protocol:
  use: one-shot-distill
  local: { epochs: 1, batch: 8 }
  student: { epochs: 2, batch: 8 }
  loss: mse
  evaluate-clients: false
parts:
  teacher: { use: linear, lr: 0.1 }
  student: { use: linear, lr: 1e-13 }
  ensemble: { use: class-weighted }
  privacy: { use: laplace-logits, gamma: 1e-12, clip: 4.0 }
  accountant: { use: basic }
";

/// A text in which every hash of 64 digits is the word `hash`.
fn without_digests(text: &str) -> String {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut out = String::new();
    for piece in text.split_inclusive(|c| !hex(c)) {
        let digits = piece.trim_end_matches(|c| !hex(c));
        match digits.len() {
            64 => out += &format!("hash{}", &piece[64..]),
            _ => out += piece,
        }
    }
    out
}

/// So much noise covers a release that its bits do not depend on one client's rows. What then
/// differs between runs on neighbouring data, in any byte of any file, would be told without noise.
#[test]
fn exact_files_of_runs_on_neighbouring_data_are_equal_where_noise_covers_the_rows() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let loud = |parts: &str| {
        let noise = ["noise-multiplier: 1.0", "noise-multiplier: 2.0"];
        let loud = noise.iter().fold(parts.to_owned(), |parts, quiet| {
            parts.replace(quiet, "noise-multiplier: 1e12")
        });
        assert_ne!(loud, parts);
        loud
    };
    let public = "  public: { from: { set: { files: { format: csv, train: public.csv, label: class,
    classes: [low, high], columns: { a: { number: { range: [0, 1000] } },
    b: { number: { range: [0, 1000] } } } } } } }\n";
    let of = 40..60;
    let flipped = |text: String| {
        if text.contains("high\n") {
            text.replacen("high\n", "low\n", 1)
        } else {
            text.replacen("low\n", "high\n", 1)
        }
    };
    let neighbours = [
        ("one label", flipped(rows(of.clone()))),
        ("one row less", rows(of.clone().skip(1))),
        ("another row", rows(of.clone().skip(1).chain([777]))),
        ("no rows", rows(0..0)),
    ];
    for (name, bare, body) in [
        ("server", true, loud(SERVER)),
        ("client", false, loud(CLIENT)),
        ("example", false, loud(EXAMPLE)),
        ("votes", false, format!("{public}{TIERS}")),
        ("scores", true, format!("{public}{SCORES}")),
    ] {
        fs::write(dir.join("s.yaml"), spec(&body)).unwrap();
        fs::write(dir.join("public.csv"), rows(600..640)).unwrap();
        let run = || {
            let out_dir = dir.join("r");
            let _ = fs::remove_dir_all(&out_dir);
            out(dir, &["run", "s.yaml", "--out", "r"]);
            // receipts have the hash of `run.json`; where the server sees bare answers, readers see
            // their digests
            let texts = |name: &str, text: String| {
                if bare || name == "receipts.jsonl" {
                    without_digests(&text)
                } else {
                    text
                }
            };
            fl_audit::told(&out_dir, texts).unwrap()
        };
        six(dir);
        let due = run();
        // a time in a report
        assert!(
            !due.values().any(|text| text.contains("some s")),
            "{name}: {due:?}"
        );
        let mut times = due.iter().filter(|(name, _)| name.ends_with(".seconds"));
        assert!(
            times.all(|(_, seconds)| seconds == "none"),
            "{name}: {due:?}"
        );
        let answer = fs::read_to_string(dir.join("r/outcome.json")).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let epsilon = &answer["outcome"]["privacy"]["readers"]["epsilon"];
        assert!(epsilon.is_f64(), "{name}: {answer}");
        for (what, rows) in &neighbours {
            fs::write(dir.join("2.csv"), rows).unwrap();
            let found = run();
            assert_eq!(due, found, "{name}, {what}");
        }
    }
    // without an accountant the folder keeps what clients remember, and that differs
    let free = loud(CLIENT).replace("  accountant:", "  # accountant:");
    fs::write(dir.join("s.yaml"), spec(&free)).unwrap();
    let state = |to: &str| {
        out(dir, &["run", "s.yaml", "--out", to]);
        fs::read(dir.join(to).join("state")).unwrap()
    };
    let before = state("less");
    six(dir);
    assert_ne!(state("whole"), before);
}

#[test]
fn a_client_without_examples_reports_no_side_of_an_adaptive_bound() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    for empty in 1..6 {
        fs::write(dir.join(format!("{empty}.csv")), rows(0..0)).unwrap();
    }
    let adaptive = SERVER
        .replace(
            "rounds: 3,",
            "rounds: 2, adaptive: { first: 0.001, effort: 0.7 },",
        )
        .replace("rate: 0.5", "rate: 1")
        .replace("noise-multiplier: 1.0", "noise-multiplier: 1e-4");
    fs::write(dir.join("a.yaml"), spec(&adaptive)).unwrap();
    out(dir, &["run", "a.yaml", "--out", "a"]);
    let metrics = fs::read_to_string(dir.join("a/metrics.jsonl")).unwrap();
    let clips: Vec<f64> = (metrics.lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|metric| metric["name"] == "clip")
        .map(|metric| metric["value"].as_f64().unwrap())
        .collect();
    // exp(0.2 / 12): the one client with rows is above the bound, and the five others say nothing
    let moved = libm::log(clips[1] / clips[0]);
    assert!((moved - 0.2 / 12.0).abs() < 1e-4, "{clips:?}");
}

#[test]
fn where_answers_may_be_left_out_nothing_is_guaranteed() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    for (policy, name) in [
        ("faults: { on-error: drop }", "on-error: drop"),
        ("faults: { on-nan: { retry: 2 } }", "on-nan: { retry: 2 }"),
    ] {
        fs::write(dir.join("drop.yaml"), spec(&format!("{policy}\n{CLIENT}"))).unwrap();
        let answer = json(dir, &["run", "drop.yaml", "--out", name, "--json"]);
        let why = format!("`faults.{name}` may leave out a client's answer");
        for observer in ["server", "clients", "readers"] {
            let nothing = &answer["privacy"][observer]["nothing"][0];
            assert!(nothing.as_str().unwrap().starts_with(&why), "{answer}");
        }
        assert!(out(dir, &["plan", "drop.yaml"]).contains(&why));
        let budget = format!("budget: {{ epsilon: 99 }}\n{policy}\n{CLIENT}");
        fs::write(dir.join("budget.yaml"), spec(&budget)).unwrap();
        let (_, refused) = fails(dir, &["check", "budget.yaml"]);
        assert!(refused.contains(&why), "{refused}");
    }
}

/// The text of an error may hold values of a client's rows, and a report is published.
#[test]
fn an_accountant_keeps_texts_of_errors_out_of_the_files_of_a_run() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    // client 0 cannot train
    let client = CLIENT.replace(
        "model: { use: linear }",
        "model: [{ clients: 0, use: linear, lr: 1e38, l2: 1e38 }, { use: linear }]",
    );
    let text = "the loss is NaN at step";
    let private = format!("faults: {{ on-error: drop, on-nan: drop }}\n{client}");
    let ways = [
        ("drop", private.clone()),
        (
            "retry",
            private.replace("on-error: drop", "on-error: { retry: 1 }"),
        ),
        ("none", private.replace("accountant:", "# accountant:")),
    ];
    for (name, body) in ways {
        fs::write(dir.join("s.yaml"), spec(&body)).unwrap();
        let run = fl(dir, &["run", "s.yaml", "--out", name]);
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        for file in ["report.md", "report.html", "journal.jsonl", "outcome.json"] {
            let read = fs::read_to_string(dir.join(name).join(file)).unwrap();
            let shown = name == "none";
            assert_eq!(read.contains(text), shown, "{name}/{file}: {read}");
        }
        let report = fs::read_to_string(dir.join(name).join("report.md")).unwrap();
        let withheld = report.contains("an accountant withholds the text of the error");
        assert_eq!(withheld, name != "none", "{report}");
    }
    // nor into the tables of a study, which the failing run ends at its terminal
    fs::write(dir.join("s.yaml"), spec(&client)).unwrap();
    let study = "name: st\ntables: [{ name: t, base: s.yaml, seeds: 1, rows: [{ name: one }] }]\n";
    fs::write(dir.join("st.yaml"), study).unwrap();
    let run = fl(dir, &["study", "st.yaml", "--out", "st"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains(text), "{said}");
    let tables = fs::read_to_string(dir.join("st/st.md")).unwrap();
    assert!(
        tables.contains("stays at the terminal") && !tables.contains(text),
        "{tables}"
    );
}

#[test]
fn a_stopped_run_guarantees_nothing_until_it_is_resumed_to_its_end() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    fs::write(dir.join("s.yaml"), spec(CLIENT)).unwrap();
    let whole = json(dir, &["run", "s.yaml", "--out", "whole", "--json"]);
    let half = [
        "run",
        "s.yaml",
        "--out",
        "half",
        "--stop-after",
        "2",
        "--json",
    ];
    let half = json(dir, &half);
    let readers = &half["privacy"]["readers"];
    let why = readers["nothing"][0].as_str().unwrap();
    assert!(
        why.starts_with("the run was stopped after round 2"),
        "{half}"
    );
    // the price of what happened stays, for research
    let spent = |of: &Value| of["epsilon"].as_f64().unwrap();
    assert!(spent(&readers["of_these_data"]) < spent(&whole["privacy"]["readers"]));
    let resumed = json(dir, &["run", "--resume", "half", "--json"]);
    assert_eq!(resumed["privacy"], whole["privacy"]);
}

const VOTES: &str = "protocol: { use: fedkd, local: { epochs: 2, batch: 8 }, student: { epochs: 2, batch: 8 }, loss: mse, evaluate-clients: false }
parts:
  teacher: { use: linear }
  student: { use: linear }
  ensemble: { use: mean-logits }
  privacy: { use: laplace-logits, gamma: 1, clip: 4.0 }
  accountant: { use: basic }
";

const KNOWN: &str = "label: class, classes: [low, high],
    columns: { a: { number: { range: [0, 1000] } }, b: { number: { range: [0, 1000] } } }";

/// Of one file over three clients, with these public samples.
fn dealt(dir: &Path, parts: &str, public: &str) -> Value {
    fs::write(dir.join("all.csv"), rows(0..120)).unwrap();
    fs::write(dir.join("test.csv"), rows(500..540)).unwrap();
    fs::write(dir.join("public.csv"), rows(300..340)).unwrap();
    let spec = format!(
        "name: dealt
data:
  set: {{ files: {{ format: csv, train: all.csv, test: test.csv, {KNOWN} }} }}
  clients: 3
{public}{parts}"
    );
    fs::write(dir.join("dealt.yaml"), spec).unwrap();
    let _ = fs::remove_dir_all(dir.join("dealt"));
    json(dir, &["run", "dealt.yaml", "--out", "dealt", "--json"])["privacy"]["readers"].clone()
}

#[test]
fn what_follows_all_rows_of_a_file_has_no_price_and_a_split_is_named() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let public = |from: &str| format!("  public: {{ from: {{ {from} }} }}\n");
    for from in ["share: 0.2", "count: 30"] {
        let none = dealt(dir, VOTES, &public(from));
        let why = none["nothing"].to_string();
        assert!(
            why.contains("public samples are taken out"),
            "{from}: {none}"
        );
    }
    let set = format!("set: {{ files: {{ format: csv, train: public.csv, {KNOWN} }} }}");
    let holds = dealt(dir, VOTES, &public(&set));
    assert!(holds["epsilon"].is_f64(), "{holds}");
    assert_eq!(holds["after_split"], true);
    let text = fs::read_to_string(dir.join("dealt/report.md")).unwrap();
    assert!(text.contains("for each party after the split ("), "{text}");
    let plan = out(dir, &["plan", "dealt.yaml"]);
    let plan = plan.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains("for each party after the split ("), "{plan}");
    // so are users, where there are fewer clients
    let users = |names: &[&str]| {
        let numbers = |k: usize| format!("[{k}.5, {}]", 7 * k % 5);
        let rows = |u: usize| (10 * u..10 * u + 10).map(numbers).collect::<Vec<_>>();
        let user = |u: usize| {
            format!(
                "\"{}\": {{\"x\": [{}], \"y\": [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]}}",
                names[u],
                rows(u + names[0].len()).join(", ")
            )
        };
        let all: Vec<String> = (0..names.len()).map(user).collect();
        let counts = vec!["10"; names.len()].join(", ");
        format!(
            "{{\"users\": {names:?}, \"num_samples\": [{counts}], \"user_data\": {{{}}}}}",
            all.join(", ")
        )
    };
    fs::write(dir.join("users.json"), users(&["a", "b", "c", "d"])).unwrap();
    fs::write(dir.join("tested.json"), users(&["another"])).unwrap();
    for (clients, dealt) in [
        ("", false),
        ("  clients: 4\n", false),
        ("  clients: 2\n", true),
    ] {
        let set = "{ files: { format: leaf, train: users.json, test: tested.json, classes: ['0', '1'] } }";
        let text = format!("name: users\ndata:\n  set: {set}\n{clients}{EXAMPLE}");
        fs::write(dir.join("users.yaml"), text).unwrap();
        let _ = fs::remove_dir_all(dir.join("users"));
        let told = json(dir, &["run", "users.yaml", "--out", "users", "--json"]);
        let readers = &told["privacy"]["readers"];
        assert!(readers["epsilon"].is_f64(), "{clients}: {told}");
        assert_eq!(readers["after_split"] == true, dealt, "{clients}: {told}");
        let plan = out(dir, &["plan", "users.yaml"]);
        assert_eq!(plan.contains("after the split"), dealt, "{plan}");
    }
    // a client's own file is what it is
    six(dir);
    fs::write(dir.join("own.yaml"), spec(CLIENT)).unwrap();
    let own = json(dir, &["run", "own.yaml", "--out", "own", "--json"]);
    let server = &own["privacy"]["server"];
    assert!(
        server["epsilon"].is_f64() && server["after_split"].is_null(),
        "{own}"
    );
}

#[test]
fn a_row_that_two_clients_have_has_no_guarantee_of_its_own() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    // another file, with one row of client 0 among its own
    fs::write(dir.join("3.csv"), rows((60..80).chain([7]))).unwrap();
    for (name, parts, holds) in [("example", EXAMPLE, false), ("party", CLIENT, true)] {
        let yaml = format!("{name}.yaml");
        fs::write(dir.join(&yaml), spec(parts)).unwrap();
        let answer = json(dir, &["run", &yaml, "--out", name, "--json"]);
        let server = &answer["privacy"]["server"];
        assert_eq!(server["epsilon"].is_f64(), holds, "{server}");
        let why = server["nothing"][0].as_str().unwrap_or_default();
        assert!(holds || why.contains("as well"), "{server}");
        let plan = out(dir, &["plan", &yaml]);
        assert_eq!(
            plan.contains("against the server at most epsilon"),
            holds,
            "{plan}"
        );
    }
}

#[test]
fn a_nodes_own_row_must_not_be_public_where_something_is_guaranteed() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    let set = |train: &str, test: &str| {
        format!("{{ files: {{ format: csv, train: {train}, test: {test}, {KNOWN} }} }}")
    };
    let yaml = format!(
        "name: own\ndata:\n  set: {}\n  clients: 2\n  split: own\n{CLIENT}",
        set("0.csv", "test.csv")
    );
    fs::write(dir.join("own.yaml"), yaml).unwrap();
    for k in 0..2 {
        let text = format!(
            "client: {k}\nhome: home-{k}\ndata: {}\n",
            set(&format!("{}.csv", k + 1), "test.csv")
        );
        fs::write(dir.join(format!("node-{k}.yaml")), text).unwrap();
    }
    let run = [
        "run",
        "own.yaml",
        "--node",
        "node-0.yaml",
        "--node",
        "node-1.yaml",
    ];
    // 20 rows, 19, or none: the observer cannot tell
    let two = |text: &str, out: &str| {
        fs::write(dir.join("2.csv"), text).unwrap();
        seen(dir, "own.yaml", out, &run[2..])
    };
    let full = two(&rows(40..60), "full");
    assert!(full.1["server"]["epsilon"].is_f64());
    assert_eq!(full, two(&rows(40..59), "less"));
    assert_eq!(full, two(&rows(0..0), "none"));
    fs::write(dir.join("2.csv"), rows((40..60).chain([510]))).unwrap();
    let (code, said) = fails(dir, &run);
    let why = "a row of its own is among the public or test rows of the spec";
    assert!(code == 1 && said.contains(why), "{said}");
    // one row more would draw other rows to hold out, so many of those to learn from would change
    fs::write(dir.join("2.csv"), rows(40..60)).unwrap();
    let node = fs::read_to_string(dir.join("node-1.yaml")).unwrap();
    let held = node.replace("test: test.csv", "holdout: 0.2");
    fs::write(dir.join("node-1.yaml"), held).unwrap();
    let (code, said) = fails(dir, &run);
    let why = "what it learns from would follow from all of its own rows (test rows are held out";
    assert!(code == 1 && said.contains(why), "{said}");
}

#[test]
fn a_finished_run_tells_no_hash_of_a_file_and_still_finds_a_changed_one() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    six(dir);
    let hash = |name: &str| {
        let bytes = fs::read(dir.join(name)).unwrap();
        fl_core::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes))
    };
    let hashes: Vec<String> = (0..6).map(|k| hash(&format!("{k}.csv"))).collect();
    let tell = |run: &str| {
        files(&dir.join(run)).iter().any(|path| {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
            hashes.iter().any(|hash| text.contains(&hash[..16]))
        })
    };
    let changed = |what: &[&str]| {
        fs::write(dir.join("2.csv"), rows(700..720)).unwrap();
        let (_, error) = fails(dir, what);
        assert!(error.contains("begun with other data files"), "{error}");
        six(dir);
    };
    fs::write(dir.join("c.yaml"), spec(CLIENT)).unwrap();
    out(dir, &["run", "c.yaml", "--out", "r", "--stop-after", "1"]);
    changed(&["run", "--resume", "r"]);
    out(dir, &["run", "--resume", "r"]);
    assert!(!tell("r"));
    let attack = ["attack", "membership", "r", "--shadows", "2"];
    changed(&attack);
    out(dir, &attack);
    // another user has no key, and reads that nothing was compared
    let theirs = program()
        .args(attack)
        .current_dir(dir)
        .env("XDG_DATA_HOME", dir.join("theirs"))
        .output()
        .unwrap();
    let said = String::from_utf8(theirs.stderr).unwrap();
    assert!(
        said.contains("the data files of the run in r are not compared"),
        "{said}"
    );
    // without an accountant the hashes say which files a result is of
    let free = CLIENT.replace("  accountant:", "  # accountant:");
    fs::write(dir.join("f.yaml"), spec(&free)).unwrap();
    out(dir, &["run", "f.yaml", "--out", "f"]);
    assert!(tell("f"));
}
