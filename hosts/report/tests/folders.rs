//! Run folders as they are found: whole, cut, still at work, or not there at all.

use fl_report::{Run, compare, page};
use std::fs;
use std::path::{Path, PathBuf};

const SPEC: &str =
    "name: 'a <script>alert(1)</script> & co'\nseed: 3\nprotocol: {use: fedavg, rounds: 2}\n";
const ASK: &str = r#"{"step":"round 1","question":"train & <b>tell</b>","down":"params","up":"params","clients":3,"dropped":[[2,"not finite: <img src=x>"]],"bytes_down":{"values":30,"keys":3},"bytes_up":{"values":20,"keys":2},"bytes_envelope":7,"digest":"aa","answers":[[0,"11111111"],[1,"22222222"]],"privacy":{"readers":1.5,"server":null,"clients":null}}"#;
const ACCURACY: &str = r#"{"step":"round 1","round":1,"name":"accuracy","value":0.5,"std":null,"confusion":[[4,1],[2,3]]}"#;
const EACH: &str = r#"{"step":"round 1","round":1,"name":"clients.accuracy","value":0.4,"std":0.1,"each":[0.3,0.5,null],"clients":[0,1,2]}"#;
const COST: &str = r#"{"step":"round 1","round":1,"bytes_up":29,"bytes_down":33,"privacy":{"readers":2.5,"server":null,"clients":null}}"#;
const DONE: &str = r#"{"outcome":{"rounds":1,"digest":"d1","seconds":2.5,"metrics":{},"bytes":{"up":29,"down":33},"privacy":{"readers":{"epsilon":2.5},"server":{"nothing":["seen"]},"clients":{"nothing":["seen"]}}},"held":{"0":[5,6],"1":[7,8],"2":[0,9]},"notes":["take <care> of `keep`"],"unaccounted":null}"#;

fn folder(dir: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir(&path).unwrap();
    for (file, text) in files {
        fs::write(path.join(file), text).unwrap();
    }
    path
}

fn whole(dir: &Path, name: &str) -> PathBuf {
    let journal = format!("{ASK}\n");
    let metrics = format!("{ACCURACY}\n{EACH}\n");
    let costs = format!("{COST}\n");
    let files = [
        ("spec.yaml", SPEC),
        ("journal.jsonl", &journal),
        ("metrics.jsonl", &metrics),
        ("costs.jsonl", &costs),
        ("outcome.json", DONE),
        ("run.json", "{}"),
    ];
    folder(dir, name, &files)
}

fn csv(runs: &[Run]) -> String {
    let mut out = Vec::new();
    fl_report::csv(runs, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn everything_that_a_folder_tells_is_on_its_page_and_nothing_in_it_is_markup() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::open(&whole(dir.path(), "run <i>")).unwrap();
    assert_eq!(run.notices, [] as [&str; 0]);
    let one = page(std::slice::from_ref(&run)).unwrap();
    let two = page(&[run.clone(), run.clone()]).unwrap();
    for page in [&one, &two] {
        for told in [
            "a &lt;script&gt;alert(1)&lt;/script&gt; &amp; co",
            "train &amp; &lt;b&gt;tell&lt;/b&gt;",
            "not finite: &lt;img src=x&gt;",
            "take &lt;care&gt; of <code>keep</code>",
            // observers with one guarantee share a headline
            "privacy against the server, the other clients",
            "<td class=\"n\">33</td>", // bytes down
            "<td class=\"n\">29</td>", // bytes up, with envelopes
            "true class 1, predicted class 0: 2",
            "class 1, client 2: 9",
            "client 1: 0.5000",
            "<td class=\"v\">2</td><td class=\"n\">not finite</td>",
            "0.40 ± 0.10",
            // what the server released after the question is in it
            "round 1, against readers of the results: epsilon 2.5000",
            "nothing: seen",
            "d1",
        ] {
            assert!(page.contains(told), "`{told}` is not on the page");
        }
        for never in [
            "<script", "<img", "<i>", "<b>", "http:", "https:", "@import", "url(",
        ] {
            assert!(!page.contains(never), "`{never}` is on the page");
        }
    }
}

#[test]
fn bars_stand_under_the_names_of_the_clients_that_have_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = whole(dir.path(), "r");
    // the question left out client 2, and the evaluation client 0
    let missing = EACH.replace("[0.3,0.5,null]", "[0.5,0.7]");
    let write = |line: &str| fs::write(path.join("metrics.jsonl"), format!("{line}\n")).unwrap();
    let bars = || {
        let run = Run::open(&path).unwrap();
        let page = page(std::slice::from_ref(&run)).unwrap();
        let csv = csv(&[run]);
        (page, csv)
    };
    write(&missing.replace("[0,1,2]", "[1,2]"));
    let (page, csv) = bars();
    for (client, value) in [(1, "0.5"), (2, "0.7")] {
        assert!(
            page.contains(&format!("client {client}: {value}000<")),
            "{client}"
        );
        assert!(
            csv.contains(&format!(",clients.accuracy,{client},{value},")),
            "{csv}"
        );
    }
    assert!(!page.contains("client 0: 0."));
}

#[test]
fn a_clients_own_model_and_the_common_one_stand_side_by_side_sorted() {
    let dir = tempfile::tempdir().unwrap();
    let path = whole(dir.path(), "r");
    let own = EACH.replace("[0.3,0.5,null]", "[0.9,0.7,0.8]");
    let common = own.replace("clients.accuracy", "own.accuracy");
    let common = common.replace("[0.9,0.7,0.8]", "[0.4,0.6,0.2]");
    fs::write(path.join("metrics.jsonl"), format!("{common}\n{own}\n")).unwrap();
    let page = page(&[Run::open(&path).unwrap()]).unwrap();
    let titles = page.match_indices("<title>client ").map(|(at, _)| {
        let text = &page[at + "<title>client ".len()..];
        &text[..text.find('<').unwrap()]
    });
    let due = [
        "1, own model: 0.7000",
        "1, common model: 0.6000",
        "2, own model: 0.8000",
        "2, common model: 0.2000",
        "0, own model: 0.9000",
        "0, common model: 0.4000",
    ];
    assert_eq!(titles.collect::<Vec<_>>(), due);
}

#[test]
fn files_that_contradict_each_other_are_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = whole(dir.path(), "r");
    let notices = |file: &str, text: &str| {
        let good = fs::read_to_string(path.join(file)).unwrap();
        fs::write(path.join(file), text).unwrap();
        let notices = Run::open(&path).unwrap().notices;
        fs::write(path.join(file), good).unwrap();
        notices.join("\n")
    };
    for (file, text, says) in [
        (
            "costs.jsonl",
            format!("{}\n", COST.replace("2.5", "0.0")),
            "costs.jsonl is damaged: its last epsilon against readers of the results is 0, and outcome.json says 2.5.",
        ),
        (
            "costs.jsonl",
            format!("{}\n", COST.replace("29", "28")),
            "costs.jsonl is damaged: it has 28 bytes up and 33 down, and outcome.json has 29 and 33.",
        ),
        (
            "costs.jsonl",
            String::new(),
            "costs.jsonl is damaged: it is empty.",
        ),
        (
            "journal.jsonl",
            String::new(),
            "journal.jsonl is damaged: it has 0 bytes up and 0 down, and outcome.json has 29 and 33.",
        ),
        (
            "outcome.json",
            DONE.replace(
                "\"metrics\":{}",
                "\"metrics\":{\"clients.accuracy.std\":0.2}",
            ),
            "metrics.jsonl is damaged: its last `clients.accuracy.std` is 0.1, and outcome.json says 0.2.",
        ),
    ] {
        assert_eq!(notices(file, &text), says);
    }
    // what the journal says of epsilon is not what was spent
    fs::remove_file(path.join("costs.jsonl")).unwrap();
    let run = Run::open(&path).unwrap();
    let why = "There is no costs.jsonl, so epsilons by step are missing: somebody removed it.";
    assert_eq!(run.notices, [why]);
    let one = page(std::slice::from_ref(&run)).unwrap();
    assert!(one.contains("Epsilon after each step is unknown: there is no costs.jsonl"));
    assert!(!one.contains("epsilon 1.5000") && !one.contains("Epsilon by step"));
    let two = page(&[run.clone(), run]).unwrap();
    let cells = "<td class=\"n\">2.5000</td><td class=\"n\">2.5000</td>";
    let row = format!("epsilon, against readers of the results</td>{cells}");
    assert!(two.contains(&row), "the outcome knows it");
}

#[test]
fn what_is_missing_or_cut_is_said_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str| format!("{:#}", Run::open(&dir.path().join(name)).unwrap_err());
    assert!(error("nowhere").ends_with("nowhere: there is no such folder"));
    folder(dir.path(), "empty", &[]);
    assert!(error("empty").contains("is not a run folder: it is empty; `fl run SPEC` makes one"));
    folder(dir.path(), "other", &[("a.txt", "")]);
    assert!(error("other").contains("it has no spec.yaml"));
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(error("file").contains("is a file; give a run folder"));

    let cut = format!("{ASK}\n{}", &ASK[..100]);
    let broken = format!("{ACCURACY}\nnot json\n{EACH}\n");
    let at_work = [
        ("spec.yaml", SPEC),
        ("journal.jsonl", &cut),
        ("metrics.jsonl", &broken),
        ("lock", "7"),
    ];
    let run = Run::open(&folder(dir.path(), "at-work", &at_work)).unwrap();
    let notices = run.notices.join("\n");
    for said in [
        "journal.jsonl is cut short: its last line is not whole",
        "line 2 of metrics.jsonl cannot be read",
        "run.json cannot be read",
        "This run is not done: the last exchange of its journal is of round 1; it still works, or was ended",
    ] {
        assert!(notices.contains(said), "{notices}");
    }
    assert_eq!((run.journal.len(), run.metrics.len()), (1, 1));
    let page = page(&[run]).unwrap();
    assert!(page.contains("is cut short") && page.contains("true class 1, predicted class 0: 2"));

    let begun = [
        ("spec.yaml", SPEC),
        ("journal.jsonl", ""),
        ("metrics.jsonl", ""),
        ("run.json", "{}"),
    ];
    let run = Run::open(&folder(dir.path(), "begun", &begun)).unwrap();
    assert!(
        run.notices[0].contains("no exchange has taken place yet"),
        "{:?}",
        run.notices
    );
    assert!(
        fl_report::page(&[run])
            .unwrap()
            .contains("No exchange took place.")
    );
}

#[test]
fn two_runs_part_where_a_client_answers_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let a = Run::open(&whole(dir.path(), "a")).unwrap();
    let mut b = a.clone();
    b.label = "b".into();
    let alike = compare(&a, &b);
    assert!(
        alike.alike() && alike.to_string().starts_with("a and b: alike\n"),
        "{alike}"
    );

    b.journal[0].digest = "bb".into();
    b.journal[0].answers[1].1 = "33333333".into();
    b.metrics[0].value = Some(0.75);
    b.spec["seed"] = 4.into();
    let other = compare(&a, &b);
    let text = other.to_string();
    assert!(!other.alike());
    for said in [
        "a and b: different",
        "seed  3 -> 4",
        "the first exchange differs\n    step     round 1\n",
        "the answer of client 1 differs; those of 1 others are alike",
        "accuracy          0.5000 -> 0.7500; differs in 1 of 1 steps, most in round 1: 0.2500",
        "clients.accuracy  0.4000; the same in all 1 steps",
    ] {
        assert!(text.contains(said), "`{said}` is not in\n{text}");
    }
    let how = |change: &dyn Fn(&mut Run)| {
        let mut b = a.clone();
        change(&mut b);
        compare(&a, &b).parts.map(|p| p.how).unwrap_or_default()
    };
    let sent = how(&|b| b.journal[0].digest = "bb".into());
    assert!(sent.contains("the messages to clients"), "{sent}");
    let gone = how(&|b| {
        b.journal[0].digest = "bb".into();
        b.journal[0].answers.pop();
    });
    assert_eq!(gone, "only in the first did client 1 answer");
    let untold = how(&|b| {
        b.journal[0].digest = "bb".into();
        b.journal[0].answers.clear();
    });
    assert!(untold.contains("the client is unknown"), "{untold}");
    assert_eq!(
        how(&|b| b.journal.clear()),
        "one run continues, and the other has ended"
    );
}

/// Five thousand million pairs of names would never be compared to the end.
#[test]
fn a_run_of_many_measurements_is_read_and_shown_in_linear_time() {
    const N: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let line = |k: usize| {
        format!("{{\"step\":\"round {k}\",\"round\":{k},\"name\":\"m{k}\",\"value\":{k}}}\n")
    };
    let metrics: String = (1..=N).map(line).collect();
    let told: Vec<String> = (1..=N).map(|k| format!("\"m{k}\":{k}")).collect();
    let outcome = format!(
        "{{\"outcome\":{{\"rounds\":{N},\"digest\":\"d\",\"seconds\":1,\"metrics\":{{{}}}}}}}",
        told.join(",")
    );
    let ask = |k: usize| {
        let question = format!("ask {k}");
        ASK.replace("train & <b>tell</b>", &question)
            .replace("round 1", &format!("round {k}"))
            + "\n"
    };
    let journal: String = (1..=N / 4).map(ask).collect();
    let path = folder(
        dir.path(),
        "r",
        &[
            ("spec.yaml", SPEC),
            ("metrics.jsonl", &metrics),
            ("journal.jsonl", &journal),
            ("outcome.json", &outcome),
            ("run.json", "{}"),
        ],
    );
    let run = Run::open(&path).unwrap();
    assert_eq!(run.notices, [] as [&str; 0]);
    assert_eq!(run.last().len(), N);
    let csv = csv(std::slice::from_ref(&run));
    assert_eq!(csv.lines().count(), N + 1);
    assert!(compare(&run, &run).alike());
    page(std::slice::from_ref(&run)).unwrap();
    page(&[run.clone(), run]).unwrap();
}

/// A page shows few of many points, and holds no more of the others than their numbers.
#[test]
fn bounded_a_page_of_many_rounds_takes_little_memory() {
    const N: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let many = |line: &str| -> String {
        let line = |k: usize| line.replace("round 1", &format!("round {k}")) + "\n";
        (1..=N).map(line).collect()
    };
    let answers = (0..200).map(|k| format!("[{k},\"11111111\"]"));
    let answers = answers.collect::<Vec<_>>().join(",");
    let ask = ASK.replace(r#"[0,"11111111"],[1,"22222222"]"#, &answers);
    let mut files: Vec<(&str, String)> =
        vec![("spec.yaml", SPEC.into()), ("run.json", "{}".into())];
    files.push((
        "metrics.jsonl",
        many(ACCURACY).replace(r#","confusion":[[4,1],[2,3]]"#, ""),
    ));
    files.push((
        "journal.jsonl",
        many(&ask).replace(r#"[2,"not finite: <img src=x>"]"#, ""),
    ));
    files.push(("costs.jsonl", many(COST)));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, &text[..]))
        .collect();
    let path = folder(dir.path(), "r", &files);
    let work = allocation_counter::measure(|| {
        let run = Run::open_brief(&path).unwrap();
        page(&[run]).unwrap();
    });
    // a line of each of the three files
    let each = work.bytes_max as usize / N;
    assert!(each < 2500, "{each} bytes a round");
}

/// Of the measurements before the last of each name a page needs two numbers, and a CSV nothing.
#[test]
fn bounded_many_measurements_of_many_clients_take_little_memory() {
    const NAMES: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let each: Vec<String> = (0..100).map(|k| format!("0.{k}")).collect();
    let clients: Vec<String> = (0..100).map(|k| k.to_string()).collect();
    let (each, clients) = (each.join(","), clients.join(","));
    let line = |k: usize| {
        let (round, name) = (k / NAMES + 1, k % NAMES);
        format!(
            "{{\"step\":\"round {round}\",\"round\":{round},\"name\":\"m{name}\",\"value\":0.5,\"std\":0.1,\
             \"each\":[{each}],\"clients\":[{clients}],\"confusion\":[[1,2],[3,4]]}}\n"
        )
    };
    let take = |lines: usize| {
        let metrics: String = (0..lines).map(line).collect();
        let files = [
            ("spec.yaml", SPEC),
            ("journal.jsonl", ""),
            ("metrics.jsonl", &metrics),
            ("run.json", "{}"),
        ];
        let path = folder(dir.path(), &lines.to_string(), &files);
        let mut shown = String::new();
        let page = allocation_counter::measure(|| {
            shown = page(&[Run::open_brief(&path).unwrap()]).unwrap();
        });
        assert!(
            shown.contains("client 99: 0.9900")
                && shown.contains("true class 1, predicted class 0: 3"),
            "the last of each name is whole"
        );
        let runs = [Run::open_brief(&path).unwrap()];
        let mut rows = Lines::default();
        let csv = allocation_counter::measure(|| fl_report::csv(&runs, &mut rows).unwrap());
        assert_eq!(rows.0, 1 + lines * 101);
        (page.bytes_max as usize, csv.bytes_max as usize)
    };
    let (few, many) = (take(4_000), take(20_000));
    let each = (many.0 - few.0) / 16_000;
    assert!(each < 250, "{each} bytes a measurement");
    assert!(many.1 < few.1 + 1000, "{} and {} bytes", few.1, many.1);
}

/// Counts the lines that are written.
#[derive(Default)]
struct Lines(usize);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.iter().filter(|byte| **byte == b'\n').count();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn exact_no_cell_of_a_csv_is_a_formula() {
    let dir = tempfile::tempdir().unwrap();
    let evil = ACCURACY
        .replace("accuracy", "@sum")
        .replace("round 1", "+1+1");
    let path = whole(dir.path(), "=cmd|calc");
    fs::write(path.join("metrics.jsonl"), format!("{evil}\n{EACH}\n")).unwrap();
    let text = csv(&[Run::open(&path).unwrap()]);
    assert!(
        text.contains("\n'=cmd|calc,'+1+1,1,'@sum,,0.5,,\n"),
        "{text}"
    );
    let mut cells = text.split([',', '\n']);
    assert!(
        cells.all(|cell| !cell.starts_with(['=', '+', '@'])),
        "{text}"
    );
    for (given, due) in [
        ("-1e-3", "-1e-3"),
        ("-x", "'-x"),
        ("\t=1", "'\t=1"),
        ("a=b", "a=b"),
    ] {
        assert_eq!(fl_report::cell(given), due);
    }
}

/// The shortest document that the page's script needs: elements with attributes and children.
const DOCUMENT: &str = r#"
const SVG = "http://www.w3.org/2000/svg";
class Node {
  constructor(name, space) { this.name = name; this.namespaceURI = space; this.at = {}; this.children = []; }
  setAttribute(key, value) { this.at[key] = String(value); if (key === "checked") this.checked = true; }
  appendChild(node) { this.children.push(node); }
  replaceChildren() { this.children = []; }
  all(name) { return this.children.flatMap((c) => (c.name === name ? [c] : []).concat(c.all(name))); }
}
const page = require("fs").readFileSync(process.argv[2], "utf8");
const box = new Node("div", "html");
const text = page.split('id="measured">')[1].split("</script>")[0];
const code = page.split("</script>")[1].split("<script>")[1];
const kept = {};
globalThis.document = {
  getElementById: (id) => (id === "watch" ? box : { textContent: text }),
  createElement: (name) => new Node(name, "html"),
  createElementNS: (space, name) => new Node(name, space),
};
globalThis.location = { pathname: "/p", reload() {} };
globalThis.sessionStorage = { getItem: (k) => kept[k] ?? null, setItem: (k, v) => (kept[k] = v) };
globalThis.setTimeout = (_, after) => console.log("renews after", after);
const drawn = () => box.all("polyline").map((line) => line.at.points.split(" ").length).join(",");
const start = () => new Function(code)();
start();
console.log("drawn", drawn());
const [select] = box.all("select");
console.log("axes", select.children.map((o) => o.textContent).join("; "));
let boxes = box.all("input").filter((i) => i.at.type === "checkbox");
console.log("lines", boxes.length - 2, box.all("li").length);
boxes[3].checked = true;
boxes[3].onchange();
console.log("with another", drawn());
box.all("select")[0].value = "2";
box.all("select")[0].onchange();
const across = box.all("text").filter((t) => t.at.class === "tick" && t.at["text-anchor"] === "middle");
console.log("marks", across.map((t) => t.textContent).join(" "));
boxes = box.all("input");
boxes[0].checked = true;
boxes[0].onchange();
console.log("over", box.all("svg")[0].at["aria-label"], drawn());
start();
console.log("after a reload", drawn(), box.all("option").find((o) => "selected" in o.at).textContent);
"#;

#[test]
fn a_watched_page_draws_what_its_reader_chooses() {
    let dir = tempfile::tempdir().unwrap();
    let path = whole(dir.path(), "r");
    let line = |round: u64, name: &str, value: f64| {
        format!(
            "{{\"step\":\"round {round}\",\"round\":{round},\"name\":\"{name}\",\"value\":{value}}}\n"
        )
    };
    let lines: String = (1..=3)
        .map(|n| line(n, "accuracy", 0.1 * n as f64) + &line(n, "</script><b>", 1.0 / n as f64))
        .collect();
    fs::write(path.join("metrics.jsonl"), lines).unwrap();
    let cost = |n: u64| {
        COST.replace("round 1", &format!("round {n}"))
            .replace("29", &(75_000 * n).to_string())
    };
    let costs: String = (1..=3).map(|n| cost(n) + "\n").collect();
    fs::write(path.join("costs.jsonl"), costs).unwrap();
    let run = Run::open(&path).unwrap();
    let clock = (1..=3)
        .map(|n| (format!("round {n}"), 0.5 * n as f64))
        .collect();
    let page = fl_report::watch_page(&run, &clock, true);
    // one script, by its hash; what a folder says is no markup
    assert!(page.contains("default-src 'none'") && page.contains("script-src 'sha256-"));
    assert_eq!(page.matches("</script>").count(), 2);
    // its one title comes first
    assert_eq!(page.matches("<h1>").count(), 1);
    assert!(page.find("<h1>") < page.find("Measurements"));
    assert!(!page.contains("<b>") && page.contains("loads again every 3 seconds"));
    let done = fl_report::watch_page(&run, &clock, false);
    assert!(done.contains("\"renew\":0") && !done.contains("loads again every"));
    let (file, script) = (dir.path().join("page.html"), dir.path().join("page.js"));
    fs::write(&file, page).unwrap();
    fs::write(&script, DOCUMENT).unwrap();
    let node = std::process::Command::new("node")
        .arg(&script)
        .arg(&file)
        .output();
    let Ok(node) = node else {
        eprintln!("skipped: the script of the page (no node)");
        return;
    };
    let said = String::from_utf8(node.stdout).unwrap();
    assert_eq!(
        said,
        "renews after 3000\ndrawn 3\naxes round; seconds; bytes; epsilon against readers of the results\n\
         lines 2 2\nwith another 3,3\nmarks 100k 150k 200k\nover measurements by bytes 3,3\nrenews after 3000\n\
         after a reload 3,3 bytes\n",
        "{}",
        String::from_utf8_lossy(&node.stderr)
    );
}
