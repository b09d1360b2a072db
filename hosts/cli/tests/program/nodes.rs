//! Clients whose data are their own.

use crate::common::{fails, fl, flat, json, out, quick};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

const SET: &str = "{ files: { format: csv, train: TRAIN, test: all.csv, label: income, classes: [low, high],
    columns: { age: { number: { range: [0, 100] } }, job: { category: { of: [cook, nurse] } } } } }";

const REST: &str = "protocol: { use: scaffold, rounds: 3, local: { epochs: 1, batch: 8 } }
parts: { model: { use: linear }, aggregator: { use: mean } }
";

fn rows(of: impl Iterator<Item = usize>) -> String {
    let row = |i: usize| {
        let (age, job) = (20 + i * 7 % 50, ["cook", "nurse"][i % 2]);
        let income = if age + 20 * (i % 2) > 50 {
            "high"
        } else {
            "low"
        };
        format!("{age},{job},{income}\n")
    };
    "age,job,income\n".to_string() + &of.map(row).collect::<String>()
}

/// Three towns, each with its file, and what each says of itself.
pub fn towns(dir: &Path) -> Vec<String> {
    fs::write(dir.join("all.csv"), rows(0..90)).unwrap();
    let spec = |train: &str, split: &str| {
        let set = SET.replace("TRAIN", train);
        format!("name: towns\ndata:\n  set: {set}\n  clients: 3\n  split: {split}\n{REST}")
    };
    let files = "[\"0/mine.csv\", \"1/mine.csv\", \"2/mine.csv\"]";
    fs::write(dir.join("here.yaml"), spec(files, "by-file")).unwrap();
    fs::write(dir.join("own.yaml"), spec("all.csv", "own")).unwrap();
    let town = |k: usize| {
        let folder = dir.join(k.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("mine.csv"), rows((k..90).step_by(3))).unwrap();
        fs::write(folder.join("all.csv"), rows(0..4)).unwrap();
        write(&folder, k, &SET.replace("TRAIN", "mine.csv"), "");
        format!("--node={k}/node.yaml")
    };
    (0..3).map(town).collect()
}

fn write(folder: &Path, client: usize, data: &str, policy: &str) {
    let text = format!("client: {client}\nhome: kept\ndata: {data}\n{policy}");
    fs::write(folder.join("node.yaml"), text).unwrap();
}

/// `fl run own.yaml` with these nodes.
pub fn own<'a>(nodes: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let nodes = nodes.iter().map(String::as_str);
    let run = ["run", "own.yaml", "--json"].into_iter();
    run.chain(nodes).chain(more.iter().copied()).collect()
}

#[test]
fn a_node_without_rows_is_named() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = towns(dir);
    let mine = dir.join("1/mine.csv");
    let text = fs::read_to_string(&mine).unwrap();
    fs::write(&mine, format!("{}\n", text.lines().next().unwrap())).unwrap();
    let ran = fl(dir, &own(&nodes, &["--out", "two"]));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let due = "clients without examples take no part: 1";
    let report = fs::read_to_string(dir.join("two/report.md")).unwrap();
    assert!(said.contains(due), "{said}");
    assert!(
        report.contains("The clients' rows are at their nodes"),
        "{report}"
    );
}

#[test]
fn exact_data_of_ones_own_are_as_good_as_in_one_place() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = towns(dir);
    let here = json(dir, &["run", "here.yaml", "--json", "--out", "here"]);
    let plan = out(dir, &["plan", "own.yaml"]);
    assert!(plan.contains("`scaffold`, 3 clients"), "{plan}");
    // no node has rows of the spec's own file
    let private = "parts.privacy={ use: gaussian-update }";
    let accountant = "parts.accountant={ use: analytic-gaussian }";
    let uniform = "parts.aggregator={ use: mean, weigh: uniform }";
    let more = [
        private,
        accountant,
        uniform,
        "protocol.use=fedavg",
        "noise=system",
    ];
    let sets = more.iter().flat_map(|set| ["--set", set]);
    let plan: Vec<&str> = ["plan", "own.yaml"].into_iter().chain(sets).collect();
    let plan = flat(&out(dir, &plan));
    assert!(
        plan.contains("against the server at most epsilon"),
        "{plan}"
    );
    let (code, error) = fails(dir, &["check", "own.yaml", "--set", "ledger=x.ledger"]);
    assert!(
        code == 2 && error.contains("each node keeps a ledger of its own"),
        "{error}"
    );
    let there = json(dir, &own(&nodes, &["--out", "there"]));
    assert_eq!(there["digest"], here["digest"]);
    // stopped, and gone on with
    json(dir, &own(&nodes, &["--out", "r", "--stop-after", "1"]));
    let resume = ["run", "--resume", "r", "--json"].into_iter();
    let resume: Vec<&str> = resume.chain(nodes.iter().map(String::as_str)).collect();
    assert_eq!(json(dir, &resume)["digest"], here["digest"]);
    // a copy of its folder is another leader: the nodes go back to its checkpoint, or refuse it
    let begin = [
        "--out",
        "s",
        "--stop-after",
        "1",
        "--set",
        "faults.on-error={ retry: 2 }",
    ];
    json(dir, &own(&nodes, &begin));
    let copied = std::process::Command::new("cp")
        .args(["-r", "s", "t"])
        .current_dir(dir)
        .status();
    assert!(copied.unwrap().success());
    let resumed = |run: &'static str| {
        let nodes = nodes.iter().map(String::as_str);
        Vec::from_iter(["run", "--resume", run].into_iter().chain(nodes))
    };
    out(dir, &[&resumed("s")[..], &["--stop-after", "2"]].concat());
    let copy = fl(dir, &[&resumed("t")[..], &["--json"]].concat());
    let error = String::from_utf8_lossy(&copy.stderr);
    if copy.status.success() {
        let copy: Value = serde_json::from_slice(&copy.stdout).unwrap();
        assert_eq!(copy["digest"], here["digest"]);
    } else {
        let later = error.contains("the run resumes after request");
        assert!(
            later || error.contains("another leader runs it now"),
            "{error}"
        );
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let secret = fs::metadata(dir.join("0/kept/secret")).unwrap();
        assert_eq!(secret.permissions().mode() & 0o777, 0o600);
    }
    // what the leader keeps says nothing of who has how many of which class
    let outcome = fs::read_to_string(dir.join("there/outcome.json")).unwrap();
    let outcome: Value = serde_json::from_str(&outcome).unwrap();
    assert_eq!(outcome["held"], serde_json::json!({}));
    // data that changed since the run was stopped are not those that it is of
    json(dir, &own(&nodes, &["--out", "c", "--stop-after", "1"]));
    let mine = fs::read_to_string(dir.join("2/mine.csv")).unwrap();
    fs::write(
        dir.join("2/mine.csv"),
        mine.replacen(",cook,", ",nurse,", 1),
    )
    .unwrap();
    let changed: Vec<&str> = resume
        .iter()
        .map(|a| if *a == "r" { "c" } else { *a })
        .collect();
    let (code, error) = fails(dir, &changed);
    assert!(
        code == 1 && error.contains("client 2: its own data have changed"),
        "{error}"
    );
    fs::write(dir.join("2/mine.csv"), mine).unwrap();
    assert_eq!(json(dir, &changed)["digest"], here["digest"]);
    // nothing is kept of a run that cannot be resumed
    let kept = || {
        let runs = fs::read_dir(dir.join("0/kept/runs")).unwrap();
        runs.filter(|e| e.as_ref().unwrap().path().is_dir()).count()
    };
    let before = kept();
    let over = ["--out", "o", "--set", "checkpoint.keep=false"];
    json(dir, &own(&nodes, &over));
    assert_eq!(kept(), before);
    // a node that was set up anew has lost its control variate
    json(dir, &own(&nodes, &["--out", "l", "--stop-after", "2"]));
    fs::remove_dir_all(dir.join("1/kept")).unwrap();
    let resume: Vec<&str> = resume
        .iter()
        .map(|a| if *a == "r" { "l" } else { *a })
        .collect();
    let (code, error) = fails(dir, &resume);
    assert!(
        code == 1 && error.contains("the state and releases of client 1 in this run are lost"),
        "{error}"
    );
}

#[test]
fn data_that_do_not_fit_are_found_before_anything_is_asked() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = towns(dir);
    let set = SET.replace("TRAIN", "mine.csv");
    fs::write(
        dir.join("1/turned.csv"),
        "job,age,income\ncook,20,low\nnurse,60,high\n",
    )
    .unwrap();
    for (data, text) in [
        (
            set.replace("[low, high]", "[high, low]"),
            "its classes are high, low, and the spec's low, high",
        ),
        (
            set.replace("of: [cook, nurse]", "of: [cook, nurse, king]"),
            "its rows have shape [4]",
        ),
        (
            set.replace("range: [0, 100]", "range: [0, 200]"),
            "its `columns` is ",
        ),
        (set.replace("mine.csv", "none.csv"), "none.csv"),
        (
            set.replace("mine.csv", "turned.csv"),
            "column `job` stands where the clients' rows have `age`",
        ),
    ] {
        write(&dir.join("1"), 1, &data, "");
        let (code, error) = fails(dir, &own(&nodes, &["--out", "r"]));
        // the whole reason goes to the data's owner; the leader learns only that there is one
        let (unfit, owner) = ("its own data do not fit the spec", "1/node.yaml: ");
        let line = |of: &str| error.lines().find(|line| line.contains(of));
        let (told, kept) = (line("client 1: "), line(owner));
        assert!(
            code == 1
                && told.is_some_and(|t| t.contains(unfit) && !t.contains(text))
                && kept.is_some_and(|k| k.contains(unfit) && k.contains(text)),
            "{text}: {error}"
        );
        assert!(!dir.join("r").exists(), "nothing was begun");
    }
    // two for one client; a policy that knows no such kind; a spec that shares out its set; nobody
    // named
    write(&dir.join("1"), 0, &set, "");
    let (_, error) = fails(dir, &own(&nodes, &[]));
    assert!(error.contains("are both of client 0"), "{error}");
    write(&dir.join("1"), 3, &set, "");
    let (_, error) = fails(dir, &own(&nodes, &[]));
    assert!(
        error.contains(
            "1/node.yaml: it is of client 3, and the spec has 3 clients, from 0; correct `client`"
        ),
        "{error}"
    );
    let (_, error) = fails(dir, &own(&nodes[..1], &[]));
    assert!(error.contains("no --node is for client 1"), "{error}");
    write(&dir.join("1"), 1, &set, "policy: { may-leave: [parms] }");
    let (_, error) = fails(dir, &own(&nodes, &[]));
    assert!(error.contains("no kind of message `parms`"), "{error}");
    let (code, error) = fails(dir, &["run", "here.yaml", &nodes[0]]);
    assert!(
        code == 1 && error.contains("works only with `data.split: own`"),
        "{error}"
    );
    let (code, error) = fails(dir, &["run", "own.yaml"]);
    assert!(
        code == 1 && error.contains("each client needs a node file: --node FILE"),
        "{error}"
    );
    let (code, error) = fails(dir, &["check", "own.yaml", "--set", "data.validation=0.1"]);
    assert!(
        code == 2 && error.contains("`validation` is for rows that are shared out"),
        "{error}"
    );
}

#[test]
fn exact_rows_of_a_node_are_scaled_as_those_of_the_spec_are() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let image = |row: usize| (0..784).map(move |at| (row * 7 + at) as u8);
    let idx = |sides: &[usize], bytes: Vec<u8>| {
        let sides = sides.iter().flat_map(|side| (*side as u32).to_be_bytes());
        let magic = [0, 0, 8, if bytes.len() > 100 { 3 } else { 1 }];
        magic
            .into_iter()
            .chain(sides)
            .chain(bytes)
            .collect::<Vec<u8>>()
    };
    fs::create_dir(dir.join("mnist")).unwrap();
    for (part, rows) in [("train", 40), ("t10k", 20), ("0", 20), ("1", 20)] {
        let images = idx(&[rows, 28, 28], (0..rows).flat_map(image).collect());
        let labels = (0..rows).map(|row| (row % 10) as u8).collect();
        let file = |kind: &str| dir.join(format!("mnist/{part}-{kind}-ubyte"));
        fs::write(file("images-idx3"), images).unwrap();
        fs::write(file("labels-idx1"), idx(&[rows], labels)).unwrap();
    }
    let node = |k: usize| {
        let files = format!(
            "inputs: ../mnist/{k}-images-idx3-ubyte, labels: ../mnist/{k}-labels-idx1-ubyte"
        );
        let set = format!(
            "{{ files: {{ format: idx, train: {{ {files} }}, classes: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }} }}"
        );
        fs::create_dir(dir.join(k.to_string())).unwrap();
        write(&dir.join(k.to_string()), k, &set, "");
        format!("--node={k}/node.yaml")
    };
    let nodes: Vec<String> = (0..2).map(node).collect();
    let spec = "name: own\ndata: { set: mnist, clients: 2, split: own }
protocol: { use: fedavg, rounds: 1, local: { epochs: 1, batch: 8 } }
parts: { model: { use: linear }, aggregator: { use: mean } }\n";
    fs::write(dir.join("own.yaml"), spec).unwrap();
    let digest = |out: &str, set: &[&str]| {
        let more = [&["--data-dir", ".", "--out", out][..], set].concat();
        json(dir, &own(&nodes, &more))["digest"].clone()
    };
    let stated = ["--set", "data.normalise={mean: [0.1307], std: [0.3081]}"];
    assert_eq!(digest("as-the-set", &[]), digest("stated", &stated));
    let nothing = ["--set", "data.normalise={mean: [0], std: [1]}"];
    assert_ne!(digest("nothing", &nothing), digest("again", &[]));
}

#[test]
fn rows_that_a_node_reads_in_another_way_are_refused() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let leaf = |x: &str| {
        format!(
            "{{\"users\": [\"u\"], \"num_samples\": [4], \"user_data\": {{\"u\": {{\"x\": [{x}], \"y\": [0, 1, 0, 1]}}}}}}"
        )
    };
    let texts = "\"ab\", \"ba\", \"aa\", \"bb\"";
    fs::write(dir.join("texts.json"), leaf(texts)).unwrap();
    fs::write(
        dir.join("pictures.json"),
        leaf("[1, 2, 3, 4], [4, 3, 2, 1], [1, 1, 2, 2], [2, 2, 1, 1]"),
    )
    .unwrap();
    let bytes = |sides: &[u32], magic: u8, content: &[u8]| {
        let sides = sides.iter().flat_map(|side| side.to_be_bytes());
        let all = [0, 0, 8, magic].into_iter().chain(sides);
        all.chain(content.iter().copied()).collect::<Vec<u8>>()
    };
    let pixels: Vec<u8> = (0..16).collect();
    fs::write(dir.join("x.idx"), bytes(&[4, 2, 2], 3, &pixels)).unwrap();
    fs::write(dir.join("y.idx"), bytes(&[4], 1, &[0, 1, 0, 1])).unwrap();
    let of_leaf = |format: &str, file: &str| {
        format!(
            "{{ files: {{ format: {{ leaf: {{ {format} }} }}, train: {file}, test: {file}, classes: [0, 1] }} }}"
        )
    };
    let pair = "{ inputs: ../x.idx, labels: ../y.idx }";
    let of_bytes = format!("{{ files: {{ format: idx, train: {pair}, classes: [0, 1] }} }}");
    for (k, (there, here, due)) in [
        (
            of_leaf("alphabet: ab", "texts.json"),
            of_leaf("alphabet: ba", "../texts.json"),
            "its `format.leaf` is ",
        ),
        (
            of_leaf("shape: [1, 2, 2]", "pictures.json"),
            of_bytes,
            "its inputs are images of bytes, which are divided by 255, and the spec's numbers, which are not divided",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = dir.join(k.to_string());
        fs::create_dir(&folder).unwrap();
        write(&folder, 0, &here, "");
        let spec = format!("name: own\ndata: {{ set: {there}, clients: 1, split: own }}\n")
            + "protocol: { use: fedavg, rounds: 1, local: { epochs: 1, batch: 2 } }
parts: { model: { use: linear }, aggregator: { use: mean } }\n";
        fs::write(dir.join("own.yaml"), spec).unwrap();
        let (_, error) = fails(dir, &["run", "own.yaml", &format!("--node={k}/node.yaml")]);
        assert!(error.contains(due), "{due}: {error}");
    }
}

#[test]
fn a_node_lets_nothing_leave_that_it_does_not_allow() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = towns(dir);
    let set = SET.replace("TRAIN", "mine.csv");
    write(&dir.join("2"), 2, &set, "policy: { may-leave: [logits] }");
    let (code, error) = fails(dir, &own(&nodes, &["--out", "r"]));
    assert!(
        code == 1 && error.contains("client 2") && error.contains("its node lets no `"),
        "{error}"
    );
    let drop = [
        "--out",
        "s",
        "--set",
        "faults.on-error=drop",
        "--set",
        "protocol.use=fedavg",
    ];
    let o = fl(dir, &own(&nodes, &drop));
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(
        o.status.success() && said.contains("left out: client 2"),
        "{said}"
    );
    // the others' go on, and the journal says who did not
    let journal = fs::read_to_string(dir.join("s/journal.jsonl")).unwrap();
    assert!(
        journal.contains("its node lets no `params` leave (may-leave: logits)"),
        "{journal}"
    );
}

/// What the server does not know of a node's rows, the node says to its owner.
#[test]
fn a_node_says_that_no_step_draws_a_row_of_its_own() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = towns(dir);
    let with = |rate: &str, run: &str| {
        let protocol = format!(
            "protocol={{use: fedavg, rounds: 1, local: {{steps: 2, batch: 8}}, sampling: {{rate: {rate}, draw: fixed}}}}"
        );
        let parts = "parts={model: {use: linear}, aggregator: {use: mean, weigh: uniform}, \
            example-privacy: {use: gaussian-gradients, clip: 1.0, noise-multiplier: 2.0}, \
            accountant: {use: pld}}";
        let args = ["--out", run, "--set", &protocol, "--set", parts];
        let o = fl(dir, &own(&nodes, &args));
        // their rows are test rows of this spec, which is refused afterwards
        let said = String::from_utf8(o.stderr).unwrap();
        assert!(said.contains("30 of 30 rows are test rows"), "{said}");
        said.contains("no step draws one of its 30 rows")
    };
    assert!(with("0.01", "few") && !with("0.1", "some"));
}

#[test]
fn a_nodes_budget_is_for_its_lifetime() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = fs::read_to_string(quick("fedavg-private")).unwrap();
    let clients = spec
        .lines()
        .find_map(|l| l.trim().strip_prefix("clients: "))
        .unwrap();
    let clients: usize = clients.parse().unwrap();
    let set = spec
        .lines()
        .find_map(|l| l.trim().strip_prefix("set: "))
        .unwrap();
    let spec = spec.replace(
        &format!("clients: {clients}"),
        &format!("clients: {clients}\n  split: own"),
    );
    fs::write(dir.join("own.yaml"), spec).unwrap();
    let nodes: Vec<String> = (0..clients)
        .map(|k| {
            let folder = dir.join(k.to_string());
            fs::create_dir(&folder).unwrap();
            let policy = if k == 1 {
                "policy: { epsilon: 60 }"
            } else {
                ""
            };
            write(&folder, k, set, policy);
            format!("--node={k}/node.yaml")
        })
        .collect();
    // noise that a reader of the spec can remove guarantees nothing
    let (code, error) = fails(dir, &own(&nodes, &["--out", "seeded"]));
    assert!(
        code == 1 && error.contains("client 1") && error.contains("noise: system"),
        "{error}"
    );
    let system = ["--set", "noise=system"];
    // stopped and gone on with: what was released once is paid once
    let begin = [&system[..], &["--out", "one", "--stop-after", "2"]].concat();
    json(dir, &own(&nodes, &begin));
    let resume = ["run", "--resume", "one", "--json"].into_iter();
    let resume: Vec<&str> = resume.chain(nodes.iter().map(String::as_str)).collect();
    let one = json(dir, &resume);
    let epsilon = one["privacy"]["server"]["epsilon"].as_f64().unwrap();
    assert!((30.0..60.0).contains(&epsilon), "{one}");
    // another run is another ledger for the leader, and the same for the node: it ends with what
    // was paid for
    let two = json(
        dir,
        &own(&nodes, &[&system[..], &["--out", "two"]].concat()),
    );
    let less = two["privacy"]["server"]["epsilon"].as_f64().unwrap();
    assert!(less < epsilon, "{two}");
    // the others have answered in the round that their neighbour refused, and that is charged
    let journal = fs::read_to_string(dir.join("two/journal.jsonl")).unwrap();
    let rounds = format!("protocol.rounds={}", journal.lines().count());
    let spec = quick("fedavg-private");
    let all = json(
        dir,
        &["run", &spec, "--out", "all", "--json", "--set", &rounds],
    );
    assert_eq!(all["privacy"]["server"]["epsilon"], less);
    let report = fs::read_to_string(dir.join("two/report.md")).unwrap();
    assert!(
        report.contains("client 1") && report.contains("its node's budget allows no more"),
        "{report}"
    );
    // a budget that cannot be kept
    let open = [
        "--set",
        "noise=system",
        "--set",
        "parts.aggregator.weigh=samples",
        "--out",
        "open",
    ];
    let (code, error) = fails(dir, &own(&nodes, &open));
    assert!(
        code == 1 && error.contains("the server sees something without a price"),
        "{error}"
    );
}

#[test]
fn a_node_with_a_budget_pays_nothing_for_a_run_that_would_measure_its_model() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = "name: m
noise: system
data: { set: { blobs: { train: 200, test: 40 } }, clients: 2, split: own, public: { from: { set: { blobs: { train: 100, test: 20, seed: 9 } } } } }
protocol: { use: co-distill, rounds: 2, warm-up: { epochs: 1, batch: 16 }, samples: 50, distil: { epochs: 1, batch: 32 } }
parts: { model: { use: linear }, ensemble: { use: mean-labels }, sampling: { use: sample-examples, k: 55 }, accountant: { use: nfdp } }
";
    fs::write(dir.join("own.yaml"), spec).unwrap();
    let node = |k: usize, policy: &str| {
        let folder = dir.join(k.to_string());
        let _ = fs::create_dir(&folder);
        write(&folder, k, "{ blobs: { train: 200, test: 40 } }", policy);
        format!("--node={k}/node.yaml")
    };
    let nodes = [node(0, ""), node(1, "policy: { epsilon: 5, delta: 0.5 }")];
    let (code, error) = fails(dir, &own(&nodes, &["--out", "r"]));
    let why = "the clients' own models (`model`) are measured, and that has no price";
    assert!(code == 1 && error.contains(why), "{error}");
    let paid = fs::metadata(dir.join("1/kept/ledger")).map_or(0, |file| file.len());
    assert_eq!(paid, 0);
    // without a budget it takes part
    let nodes = [node(0, ""), node(1, "")];
    json(dir, &own(&nodes, &["--out", "free"]));
}

#[test]
fn a_budget_is_refused_by_a_node_that_has_given_an_answer_without_a_price() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let spec = |noise: &str, private: &str| {
        format!(
            "name: m
noise: {noise}
data: {{ set: {{ blobs: {{ train: 200, test: 40, seed: 9 }} }}, clients: 2, split: own }}
protocol: {{ use: fedavg, rounds: 1, local: {{ epochs: 1, batch: 16 }} }}
parts: {{ model: {{ use: linear }}, aggregator: {{ use: mean, weigh: uniform }}{private} }}
"
        )
    };
    let mechanism = ", privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 1.0 }, accountant: { use: analytic-gaussian, delta: 1e-5 }";
    let budget = "policy: { epsilon: 100 }";
    let node = |k: usize, policy: &str| {
        let folder = dir.join(k.to_string());
        let _ = fs::create_dir(&folder);
        let rows = format!("{{ blobs: {{ train: 100, test: 20, seed: {k} }} }}");
        write(&folder, k, &rows, policy);
        format!("--node={k}/node.yaml")
    };
    let run = |policy: &str, out: &str, text: String| {
        fs::write(dir.join("own.yaml"), text).unwrap();
        let nodes = [node(0, policy), node(1, policy)];
        fl(dir, &own(&nodes, &["--out", out]))
    };
    let fine = |o: &Output| assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    for (name, noise, private) in [("bare", "system", ""), ("seeded", "seeded", mechanism)] {
        // what has a price leaves the budget as it is
        fine(&run(
            "",
            &format!("{name}-before"),
            spec("system", mechanism),
        ));
        fine(&run(
            budget,
            &format!("{name}-within"),
            spec("system", mechanism),
        ));
        fine(&run("", name, spec(noise, private)));
        let refused = run(budget, &format!("{name}-after"), spec("system", mechanism));
        let error = String::from_utf8(refused.stderr).unwrap();
        let why = "cannot be guaranteed: an answer of an earlier run had no price";
        assert!(error.contains(why), "{error}");
        assert!(!refused.status.success());
        // without a budget it takes part as before
        fine(&run(
            "",
            &format!("{name}-again"),
            spec("system", mechanism),
        ));
        for k in ["0", "1"] {
            fs::remove_dir_all(dir.join(k)).unwrap();
        }
    }
}

/// Three towns with files of different sizes: the client `k` has `20 + 10 k` rows in `mine.csv`,
/// and `4 + 3 k` in `tests.csv`. Writes `here.yaml`, in which the program shares the files out, and
/// `own.yaml`, in which nodes have them.
fn uneven_towns(dir: &Path, test: &str, protocol: &str) -> Vec<String> {
    fs::write(dir.join("all.csv"), rows(0..90)).unwrap();
    let files = |name: &str| format!("[\"0/{name}\", \"1/{name}\", \"2/{name}\"]");
    let (common, node) = match test {
        "files" => (files("tests.csv"), "test: tests.csv"),
        _ => ("all.csv".into(), "test: all.csv"),
    };
    let spec = |train: &str, split: &str| {
        let set = SET.replace("TRAIN", train);
        let set = set.replace("test: all.csv", &format!("test: {common}"));
        format!(
            "name: towns\nseed: 4\ndata:\n  set: {set}\n  clients: 3\n  split: {split}\n  test: {{ own: {test} }}\n{}",
            REST.replace("use: scaffold", protocol)
        )
    };
    fs::write(dir.join("here.yaml"), spec(&files("mine.csv"), "by-file")).unwrap();
    fs::write(dir.join("own.yaml"), spec("all.csv", "own")).unwrap();
    let town = |k: usize| {
        let folder = dir.join(k.to_string());
        fs::create_dir_all(&folder).unwrap();
        let from = 31 * k;
        fs::write(folder.join("mine.csv"), rows(from..from + 20 + 10 * k)).unwrap();
        let from = 200 + from;
        fs::write(folder.join("tests.csv"), rows(from..from + 4 + 3 * k)).unwrap();
        fs::write(folder.join("all.csv"), rows(0..4)).unwrap();
        let set = SET.replace("TRAIN", "mine.csv");
        write(&folder, k, &set.replace("test: all.csv", node), "");
        format!("--node={k}/node.yaml")
    };
    (0..3).map(town).collect()
}

/// The measures of a run, without the training loss, which stays at nodes.
fn measured(dir: &Path, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(run).join("metrics.jsonl")).unwrap();
    let lines = text.lines();
    let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["name"] != "training-loss").collect()
}

#[test]
fn exact_nodes_measure_on_test_rows_of_their_own_as_one_process_does() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    for (at, (test, protocol, name)) in [
        ("0.3", "use: fedavg", "own"),
        ("files", "use: fedavg", "own"),
        ("0.3", "use: fedper, share: [weight]", "clients"),
        ("files", "use: ifca, clusters: 2", "clients"),
    ]
    .into_iter()
    .enumerate()
    {
        let nodes = uneven_towns(dir, test, protocol);
        let (here, there) = (format!("here-{at}"), format!("there-{at}"));
        let plain = json(dir, &["run", "here.yaml", "--json", "--out", &here]);
        let own = json(dir, &own(&nodes, &["--out", &there]));
        assert_eq!(plain["bytes"], own["bytes"], "{test} {protocol}");
        let all = measured(dir, &there);
        assert_eq!(measured(dir, &here), all, "{test} {protocol}");
        // the mean over rows weighs each client by its number of test rows
        let of = |name: &str| all.iter().rfind(|line| line["name"] == name).unwrap();
        let each = of(&format!("{name}.accuracy"))["each"].as_array().unwrap();
        let rows: [f64; 3] = match test {
            "files" => [4.0, 7.0, 10.0],
            _ => [6.0, 9.0, 12.0],
        };
        let right: f64 = each
            .iter()
            .zip(rows)
            .map(|(a, n)| a.as_f64().unwrap() * n)
            .sum();
        let found = of(&format!("{name}.over-rows.accuracy"))["value"]
            .as_f64()
            .unwrap();
        let due = right / rows.iter().sum::<f64>();
        assert!(
            (found - due).abs() < 1e-12,
            "{test} {protocol}: {found} {due}"
        );
    }
    let nodes = uneven_towns(dir, "0.3", "use: fedavg");
    // nodes compute the same features from their rows
    let open = SET
        .replace("TRAIN", "all.csv")
        .replace("test: all.csv, ", "");
    let open = format!("data.public={{from: {{set: {open}}}}}");
    let net = "parts.model={use: dfdx, net: [linear: 5, relu, outputs]}";
    out(dir, &["run", "here.yaml", "--set", net, "--out", "body"]);
    for features in [
        "{random-fourier: {width: 9, scale: 2}}",
        "{principal-components: {width: 2, whiten: true}}",
        "{kept-model: {file: body/models/model}}",
    ] {
        let set = format!("data.features={features}");
        let more = ["--set", &set, "--set", &open, "--out"];
        let (here, there) = (
            format!("h-{}", &features[1..5]),
            format!("t-{}", &features[1..5]),
        );
        let plain = ["run", "here.yaml", "--json"]
            .into_iter()
            .chain(more)
            .chain([&*here]);
        let plain = json(dir, &plain.collect::<Vec<_>>());
        let far = json(dir, &own(&nodes, &[&more[..], &[&*there]].concat()));
        assert_eq!(plain["bytes"], far["bytes"], "{features}");
        assert_eq!(measured(dir, &here), measured(dir, &there), "{features}");
    }
    // stopped and gone on with
    json(dir, &own(&nodes, &["--out", "whole"]));
    json(dir, &own(&nodes, &["--out", "r", "--stop-after", "1"]));
    let resume = ["run", "--resume", "r", "--json"].into_iter();
    let resume: Vec<&str> = resume.chain(nodes.iter().map(String::as_str)).collect();
    json(dir, &resume);
    assert_eq!(measured(dir, "r"), measured(dir, "whole"));
    // what the node's file holds out is its own too
    let held = SET
        .replace("TRAIN", "mine.csv")
        .replace("test: all.csv", "holdout: 0.25");
    uneven_towns(dir, "files", "use: fedavg");
    write(&dir.join("2"), 2, &held, "");
    json(dir, &own(&nodes, &["--out", "held"]));
    let all = measured(dir, "held");
    let last = all
        .iter()
        .rfind(|line| line["name"] == "own.accuracy")
        .unwrap();
    let right = last["each"][2].as_f64().unwrap() * 10.0;
    assert!((right - right.round()).abs() < 1e-9, "{last}");
}

#[test]
fn test_rows_of_a_nodes_own_have_no_price_and_leave_only_as_scores() {
    let d = tempfile::tempdir().unwrap();
    let dir = d.path();
    let nodes = uneven_towns(dir, "0.3", "use: fedavg");
    let set = SET.replace("TRAIN", "mine.csv");
    write(&dir.join("1"), 1, &set, "policy: { may-leave: [params] }");
    let (code, error) = fails(dir, &own(&nodes, &["--out", "r"]));
    assert!(
        code == 1 && error.contains("client 1") && error.contains("its node lets no `score` leave"),
        "{error}"
    );
    // others are measured without it
    let drop = ["--out", "d", "--set", "faults.on-error=drop"];
    json(dir, &own(&nodes, &drop));
    let all = measured(dir, "d");
    let last = all
        .iter()
        .rfind(|line| line["name"] == "own.accuracy")
        .unwrap();
    assert_eq!(last["clients"], serde_json::json!([0, 2]));
    // a budget for life cannot be kept; the rows of the spec are no client's
    let rest = "age,job,income\n81,cook,low\n83,nurse,high\n";
    fs::write(dir.join("all.csv"), rest).unwrap();
    write(&dir.join("1"), 1, &set, "policy: { epsilon: 5 }");
    let accounts = [
        "--set",
        "parts.privacy={use: gaussian-update, clip: 1, noise-multiplier: 1}",
        "--set",
        "parts.accountant={use: rdp}",
        "--set",
        "noise=system",
        "--set",
        "parts.aggregator={use: mean, weigh: uniform}",
    ];
    let (code, error) = fails(
        dir,
        &own(&nodes, &[&accounts[..], &["--out", "b"]].concat()),
    );
    assert!(
        code == 1 && error.contains("models are measured on its own test rows"),
        "{error}"
    );
    // and the plan says that there is no guarantee
    let accounts = ["plan", "own.yaml"].into_iter().chain(accounts);
    let plan = crate::common::flat(&out(dir, &accounts.collect::<Vec<_>>()));
    assert!(
        plan.contains("models are measured on rows of each client (`data.test`)"),
        "{plan}"
    );
    // what is wrong is said before the run
    for (test, why) in [
        ("{ own: 0.3, of: all }", "take `of: train`"),
        (
            "{ own: files, by-class: false }",
            "with `own: files` leave them out",
        ),
    ] {
        let set = format!("data.test={test}");
        let (code, error) = fails(dir, &["check", "own.yaml", "--set", &set]);
        assert!(code == 2 && error.contains(why), "{error}");
    }
    // no row is left to train with
    fs::write(dir.join("0/mine.csv"), rows(0..1)).unwrap();
    write(&dir.join("1"), 1, &set, "");
    let (code, error) = fails(dir, &own(&nodes, &["--out", "e"]));
    assert!(
        code == 1 && error.contains("client 0 owns 1 of the rows"),
        "{error}"
    );
}
