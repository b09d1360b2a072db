//! `fl study`: what it runs, keeps, survives, and writes.
use crate::common::{fails, fl, out, root};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Writes a study of the quick specs.
fn write(dir: &Path, tables: &str) {
    let base = root().join("specs/quick/fedavg.yaml").display().to_string();
    let study = format!("name: s\ndefaults: {{ base: '{base}', seeds: 1-3 }}\ntables:\n{tables}");
    fs::write(dir.join("s.yaml"), study).unwrap();
}

fn study(dir: &Path, more: &[&str]) -> Output {
    fl(dir, &[&["study", "s.yaml"], more].concat())
}

const ROWS: &str = "- name: t\n  grid: { protocol.rounds: [2, 3] }\n  against: rounds = 2\n  columns: [mean, minus, seeds]\n";

#[test]
fn the_quick_study_is_what_its_readme_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = root()
        .join("specs/studies/quick.yaml")
        .display()
        .to_string();
    let update = std::env::var_os("FL_UPDATE").is_some();
    let check: &[&str] = if update { &[] } else { &["--check"] };
    let done = fl(dir.path(), &[&["study", &file], check].concat());
    assert!(
        done.status.success(),
        "write it anew with FL_UPDATE=1\n{}",
        text(&done.stderr)
    );
    assert!(
        text(&done.stdout).contains("not distinguishable"),
        "{}",
        text(&done.stdout)
    );
}

#[test]
fn every_table_of_every_study_stands_in_its_readme() {
    let dir = tempfile::tempdir().unwrap();
    let studies = fs::read_dir(root().join("specs/studies")).unwrap();
    let files = studies.map(|entry| entry.unwrap().path());
    let files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|e| e == "yaml"))
        .collect();
    assert!(files.len() > 10, "{files:?}");
    let mut wrong = Vec::new();
    for file in files {
        let file = file.display().to_string();
        let done = fl(dir.path(), &["study", &file, "--check", "--dry-run"]);
        if !done.status.success() {
            wrong.push(text(&done.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join(""));
}

#[test]
fn an_empty_table_fails_a_check_before_any_run() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    write(
        d,
        "- name: t\n  into: page.md\n  rows: [{ name: one, set: { protocol.rounds: 1 } }]\n",
    );
    let page = "<!-- fl study: t -->\n<!-- end of t -->\n";
    fs::write(d.join("page.md"), page).unwrap();
    for more in [&["--check"][..], &["--check", "--dry-run"]] {
        let (code, error) = fails(d, &[&["study", "s.yaml"], more].concat());
        assert!(
            code == 1 && error.contains("there is no table between"),
            "{error}"
        );
        assert!(!d.join("runs").exists());
    }
    let done = study(d, &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let done = study(d, &["--check"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn data_that_are_not_there_are_missed_once_and_before_the_first_run() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "- name: t\n  rows: [{ name: here }, { name: there, set: { data.set: mnist } }]\n",
    );
    let (code, error) = fails(dir.path(), &["study", "s.yaml", "--data-dir", "elsewhere"]);
    assert_eq!(code, 1, "{error}");
    assert_eq!(
        error.matches("data set `mnist`: there is no").count(),
        1,
        "{error}"
    );
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn a_page_draws_what_the_tables_say() {
    let dir = tempfile::tempdir().unwrap();
    let grid = "{ protocol.rounds: [3, 1, 2], protocol.fresh: [true, false] }";
    let plots = "[{ by: protocol.rounds, scale: 100 }, { by: round, measure: accuracy }]";
    let table = |plots: &str| format!("- name: t\n  grid: {grid}\n  plots: {plots}\n");
    write(dir.path(), &table(plots));
    let done = study(dir.path(), &[]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let page = fs::read_to_string(dir.path().join("runs/studies/s.html")).unwrap();
    // every run, with its seed and the folder that it has
    let runs = page.split_once("id=\"runs\"").unwrap().1;
    let kept = fs::read_dir(dir.path().join("runs/studies/kept")).unwrap();
    let kept = kept
        .map(|run| run.unwrap().path())
        .filter(|run| run.is_dir());
    for name in kept.map(|run| run.file_name().unwrap().display().to_string()) {
        assert!(
            runs.contains(&format!("<td><code>{name}</code></td>")),
            "{runs}"
        );
    }
    let tex = fs::read_to_string(dir.path().join("runs/studies/s.tex")).unwrap();
    assert!(
        tex.contains("\\begin{tabular}{lr}") && tex.contains(" $\\pm$ "),
        "{tex}"
    );
    for said in [&page, &tex] {
        assert!(said.contains("Measured: accuracy."), "{said}");
    }
    // what a paper needs besides: its pictures, and the papers of the methods
    let svg = dir.path().join("runs/studies/s-t-accuracy-by-rounds.svg");
    let pdf = fs::read(svg.with_extension("pdf")).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    assert!(
        fs::read_to_string(svg)
            .unwrap()
            .contains(">accuracy (%)</text>")
    );
    let bib = fs::read_to_string(dir.path().join("runs/studies/s.bib")).unwrap();
    assert!(bib.contains("author = {McMahan and "), "{bib}");
    let section = |title: &str| {
        let from = page.find(&format!("<h3>{title}</h3>")).expect(title);
        let to = page[from..].find("</figure>").unwrap();
        page[from..from + to].to_string()
    };
    let sweep = section("accuracy by rounds");
    // two lines of three places each, from left to right whatever the grid's order
    assert_eq!(sweep.matches("<polyline").count(), 2, "{sweep}");
    let numbers = sweep.split_once("<tbody>").unwrap().1;
    let cells: Vec<&str> = numbers
        .split("</td>")
        .filter(|cell| cell.contains("<td"))
        .filter_map(|cell| cell.rsplit_once('>'))
        .map(|(_, cell)| cell)
        .collect();
    let rows: Vec<&[&str]> = cells.chunks(5).collect();
    let places: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[4])).collect();
    let line = |fresh| ["1", "2", "3"].map(|x| (fresh, x, "3"));
    assert_eq!(places[..3], line("fresh true"));
    assert_eq!(places[3..], line("fresh false"));
    // the numbers are those of the table, which has four digits after the point
    let csv = fs::read_to_string(dir.path().join("runs/studies/s.csv")).unwrap();
    let of = csv
        .lines()
        .find(|l| l.contains("\"rounds = 3, fresh = false\""))
        .unwrap();
    let mean: f64 = of.rsplit(',').nth(8).unwrap().parse().unwrap();
    let drawn: f64 = rows[5][2].parse().unwrap();
    assert!((100.0 * mean - drawn).abs() < 0.01, "{of}\n{drawn}");
    // six rows by round: one, two and three rounds
    let curves = section("accuracy by round");
    let count = curves
        .split_once("<tbody>")
        .unwrap()
        .1
        .matches("<tr>")
        .count();
    assert_eq!(count, 2 * (1 + 2 + 3), "{curves}");
    assert!(page.contains("default-src 'none'") && !page.contains("<script"));

    for (plots, says) in [
        (
            "[{ by: rounds }]",
            "got `rounds`; its grid has `protocol.rounds`, `protocol.fresh`",
        ),
        (
            "[{ by: round, log: true }]",
            "plots[0].log: no such setting",
        ),
    ] {
        write(dir.path(), &table(plots));
        let (code, error) = fails(dir.path(), &["study", "s.yaml"]);
        assert!(code == 2 && error.contains(says), "{error}");
    }
    let grid = "{ parts.aggregator: { mean: { use: mean }, median: { use: median } } }";
    write(
        dir.path(),
        &format!("- name: t\n  grid: {grid}\n  plots: [{{ by: parts.aggregator }}]\n"),
    );
    let (code, error) = fails(dir.path(), &["study", "s.yaml"]);
    assert!(
        code == 2 && error.contains("`mean` is not a number"),
        "{error}"
    );
}

#[test]
fn a_study_a_folder_and_a_lone_seed_are_told_from_what_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "  rows:\n  - { name: a, set: { protocol: { use: fedprox } } }\n";
    let table = |more: &str| format!("- name: t\n  {more}\n{rows}");
    write(dir.path(), &table("seeds: 3"));
    let done = study(dir.path(), &["--dry-run"]);
    let said = text(&done.stderr);
    let due = "note: every run has seed 3 and no other; `seeds: 1-3` are 3 seeds";
    assert!(done.status.success() && said.contains(due), "{said}");
    write(dir.path(), &table("seeds: 1-3"));
    let said = text(&study(dir.path(), &["--dry-run"]).stderr);
    assert!(!said.contains("no other"), "{said}");
    // a row that loses what its table sets
    write(dir.path(), &table("set: { protocol.rounds: 3 }"));
    let (code, error) = fails(dir.path(), &["study", "s.yaml", "--dry-run"]);
    let due = "it replaces `protocol`, and `protocol.rounds`, which was set before it, is lost";
    assert!(code == 2 && error.contains(due), "{error}");
    let (code, error) = fails(dir.path(), &["run", "s.yaml"]);
    let due = "this is a study, which `fl study` runs";
    assert!(code == 2 && error.contains(due), "{error}");
    let quick = root().join("specs/quick/fedavg.yaml").display().to_string();
    let short = [
        "run",
        &quick,
        "--out",
        "r",
        "--set",
        "protocol.rounds=1",
        "--quiet",
    ];
    assert!(fl(dir.path(), &short).status.success());
    let (code, error) = fails(dir.path(), &["run", "r"]);
    let due = "r: this is a run folder; name its spec (r/spec.yaml)";
    assert!(code == 2 && error.contains(due), "{error}");
}

#[test]
fn what_is_kept_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let rows = |from: u32| {
        let row = |k: u32| format!("{},{},{}\n", k % 7, (k * 5 + from) % 11, (k + from) % 2);
        "x,y,label\n".to_string() + &(0..60).map(row).collect::<String>()
    };
    fs::write(d.join("p.csv"), rows(0)).unwrap();
    let spec = "name: f\ndata: { set: { files: { format: csv, train: p.csv, holdout: 0.3, label: label } }, clients: 2 }\n\
        protocol: { use: fedavg, rounds: 2 }\nparts: { model: { use: linear }, aggregator: { use: mean } }\n";
    fs::write(d.join("f.yaml"), spec).unwrap();
    fs::write(
        d.join("s.yaml"),
        "name: s\ntables: [{ name: t, base: f.yaml, rows: [{ name: one }] }]\n",
    )
    .unwrap();
    let run = || {
        let done = study(d, &[]);
        (done.status.code().unwrap(), text(&done.stdout))
    };
    let (code, first) = run();
    assert_eq!(code, 0, "{first}");
    // beside the run lies the lock of its turn, in an order that is the file system's
    let kept = fs::read_dir(d.join("runs/studies/kept"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    // on other data
    fs::write(d.join("p.csv"), rows(1)).unwrap();
    let (code, said) = run();
    assert!(
        code == 1 && said.contains("other data files") && said.contains("is run again"),
        "{said}"
    );
    fs::write(d.join("p.csv"), rows(0)).unwrap();
    assert_eq!(run(), (0, first.clone()));
    // numbers that contradict each other, or are gone
    let metrics = kept.join("metrics.jsonl");
    let whole = fs::read_to_string(&metrics).unwrap();
    let other = whole.replace("\"value\":0.", "\"value\":0.9");
    for damaged in [String::new(), other] {
        fs::write(&metrics, damaged).unwrap();
        let (code, said) = run();
        assert!(
            code == 1 && said.contains("metrics.jsonl is damaged"),
            "{said}"
        );
    }
    fs::write(&metrics, &whole).unwrap();
    // another process resumed it
    let folder = kept.display().to_string();
    out(
        d,
        &["run", "--resume", &folder, "--set", "protocol.rounds=3"],
    );
    let (code, said) = run();
    assert!(code == 1 && said.contains("is of another spec"), "{said}");
    fs::remove_dir_all(&kept).unwrap();
    assert_eq!(run(), (0, first));
}

#[test]
fn the_model_that_a_run_begins_with_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let begins = "{ use: fedavg, rounds: 1, initial: pre/models/model }";
    let spec = |name: &str, method: &str| {
        let text = format!(
            "name: {name}\ndata: {{ set: {{ blobs: {{ train: 80, test: 40 }} }}, clients: 2 }}\n{method}\n\
             parts: {{ model: {{ use: linear }}, aggregator: {{ use: mean }} }}\n"
        );
        fs::write(d.join(format!("{name}.yaml")), text).unwrap();
    };
    spec("first", "protocol: { use: fedavg, rounds: 1 }");
    spec("one", &format!("protocol: {begins}"));
    spec(
        "two",
        &format!(
            "stages: [{{ protocol: {begins} }}, {{ protocol: {{ use: fedavg, rounds: 1 }} }}]"
        ),
    );
    fs::write(
        d.join("s.yaml"),
        "name: s\nresults: s.jsonl\ntables: [{ name: t, rows: [{ name: one, base: one.yaml }, { name: two, base: two.yaml }] }]\n",
    )
    .unwrap();
    let begin = |rounds: &str| {
        let _ = fs::remove_dir_all(d.join("pre"));
        out(d, &["run", "first.yaml", "--out", "pre", "--set", rounds]);
    };
    let run = || {
        let done = study(d, &[]);
        (done.status.code().unwrap(), text(&done.stdout))
    };
    begin("protocol.rounds=1");
    out(d, &["run", "one.yaml", "--out", "before"]);
    let (code, first) = run();
    assert_eq!(code, 0, "{first}");
    begin("protocol.rounds=3");
    // the kept runs, and then the lines
    fs::rename(d.join("s.jsonl"), d.join("lines")).unwrap();
    let (code, said) = run();
    let due = "other data files: pre/models/model has sha256";
    assert!(code == 1 && said.matches(due).count() == 2, "{said}");
    fs::rename(d.join("lines"), d.join("s.jsonl")).unwrap();
    fs::remove_dir_all(d.join("runs")).unwrap();
    let (code, said) = run();
    let due = "it is a run with other data files";
    assert!(code == 1 && said.matches(due).count() == 2, "{said}");
    out(d, &["run", "one.yaml", "--out", "after"]);
    let compared = text(&fl(d, &["compare", "before", "after"]).stdout);
    let due = "possible reason: another data file pre/models/model: ";
    assert!(compared.contains(due), "{compared}");
    begin("protocol.rounds=1");
    assert_eq!(run(), (0, first));
}

#[test]
fn two_studies_at_once_come_to_the_same_tables() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "- name: t\n  set: { protocol.rounds: 60 }\n  rows: [{ name: a }, { name: b, set: { protocol.fresh: false } }]\n",
    );
    let both = || {
        let mut one = crate::common::program();
        one.args(["study", "s.yaml"]).current_dir(dir.path());
        one.stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let (one, two) = (both(), both());
    let ended = [one, two].map(|study| study.wait_with_output().unwrap());
    for study in &ended {
        assert!(
            study.status.success(),
            "{}{}",
            text(&study.stdout),
            text(&study.stderr)
        );
    }
    assert_eq!(text(&ended[0].stdout), text(&ended[1].stdout));
}

#[test]
fn a_run_that_another_process_is_at_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    write(
        d,
        "- name: t\n  rows: [{ name: a }, { name: b, set: { protocol.fresh: false } }]\n",
    );
    study(d, &["--out", "known"]);
    let runs = fs::read_dir(d.join("known/kept")).unwrap();
    let runs = runs.map(|entry| entry.unwrap().path());
    let (second, first): (Vec<_>, Vec<_>) = runs.filter(|path| path.is_dir()).partition(|path| {
        let spec = fs::read_to_string(path.join("spec.yaml")).unwrap();
        spec.contains("fresh: false")
    });
    let here = |of: &[std::path::PathBuf]| d.join("kept").join(of[0].file_name().unwrap());
    let (first, second) = (here(&first), here(&second));
    // as another process would
    fs::create_dir(d.join("kept")).unwrap();
    let turn = fs::File::create(first.with_extension("turn")).unwrap();
    turn.lock().unwrap();
    let beside = crate::common::program()
        .args(["study", "s.yaml", "--out", ".", "--threads", "1"])
        .current_dir(d)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !second.join("outcome.json").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!first.exists(), "it is another's turn");
    turn.unlock().unwrap();
    let ended = beside.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(first.join("outcome.json").exists());
}

#[test]
fn what_no_run_has_measured_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (table, says) in [
        (
            "  rows: [{ name: a }]\n  columns: [{ round: 99 }]\n",
            "No run has measured `accuracy` or `clients.accuracy` in round 99",
        ),
        (
            "  rows: [{ name: a }]\n  across: [{ name: x }, { name: y, set: { protocol.rounds: 1 } }]\n  lead: [{ measure: bytes.up }]\n",
            "`lead` column `bytes.up` stands for all of `across`, and differs in row `a`",
        ),
    ] {
        write(dir.path(), &format!("- name: t\n  seeds: 1\n{table}"));
        let done = study(dir.path(), &[]);
        let said = text(&done.stdout);
        assert!(
            done.status.code() == Some(1) && said.contains(says),
            "{said}"
        );
    }
    for (table, says) in [
        (
            "  rows: [{ name: a }]\n  columns: [{ text: key }]\n",
            "no row has a text `key`",
        ),
        (
            "  grid: { protocol.rounds: [1] }\n  label: 'r {protocol.runds}'\n",
            "the grid has no path `protocol.runds`",
        ),
        (
            "  grid: { protocol.rounds: [1] }\n  across: [{ name: x, set: { protocol.rounds: 2 } }]\n",
            "the grid sets this too",
        ),
        (
            "  rows: [{ name: a }]\n  across: [{ name: x }, { name: x }]\n",
            "two of `across` are called `x`",
        ),
        ("  rows: [{ name: \"a\\nb\" }]\n", "control characters"),
        (
            "  rows: [{ name: a }]\n  measure: f-one\n",
            "tables[0].measure: no run of this table measures `f-one`; they have accuracy, ",
        ),
        (
            "  rows: [{ name: a }]\n  measure: [acuracy, accuracy]\n",
            "tables[0].measure: no run of this table measures `acuracy`; did you mean `accuracy`?",
        ),
        (
            "  rows: [{ name: a }]\n  plots: [{ by: round, measure: clients.accuracy }]\n",
            "tables[0].plots[0].measure: no run of this table measures `clients.accuracy`; ",
        ),
        (
            "  rows: [{ name: a }]\n  lead: [{ measure: epsilon.readers }]\n",
            "tables[0].lead[0].measure: no run of this table measures `epsilon.readers`; ",
        ),
        (
            "  rows: [{ name: a }]\n  columns: [{ measure: accuracy.std }]\n",
            "no run of this table measures `accuracy.std`; ",
        ),
    ] {
        write(dir.path(), &format!("- name: t\n  seeds: 1\n{table}"));
        let (code, error) = fails(dir.path(), &["study", "s.yaml"]);
        assert!(code == 2 && error.contains(says), "{error}");
    }
}

#[test]
fn a_row_without_a_number_and_an_attack_that_does_nothing_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "- name: t\n  seeds: 1\n  columns: [{ measure: attack.shift }]\n  rows:\n  - { name: plain }\n  \
         - { name: attacked, set: { parts.attack: { use: little-is-enough, clients: [0] } } }\n";
    write(dir.path(), rows);
    let done = study(dir.path(), &[]);
    let (table, said) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{table}{said}");
    for due in [
        "* plain has measured nothing of these columns; there are accuracy, ",
        "* Attack of attacked: one training has no deviation, so this attack changes nothing",
    ] {
        assert!(table.contains(due), "{table}");
    }
    // a run is told by a number of its table
    assert!(
        said.contains("attacked, seed 1: attack.shift 0.0000"),
        "{said}"
    );
}

#[test]
fn what_is_kept_is_not_run_again_and_numbers_are_those_of_the_runs() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), ROWS);
    let plan = text(&study(dir.path(), &["--dry-run"]).stdout);
    assert!(
        plan.ends_with("6 of 6 runs are to be done; all specs are fine\n"),
        "{plan}"
    );
    assert!(!dir.path().join("runs").exists(), "a plan writes nothing");
    let first = study(dir.path(), &["--threads", "2"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(
        text(&first.stderr).matches(" of 6] ").count(),
        6,
        "{}",
        text(&first.stderr)
    );
    let table = text(&first.stdout);

    // mean and deviation of three runs, by hand
    let accuracy: Vec<f64> = (1..=3)
        .map(|seed| {
            let args = [
                "--set",
                "protocol.rounds=2",
                "--set",
                &format!("seed={seed}"),
                "--json",
            ];
            let base = root().join("specs/quick/fedavg.yaml").display().to_string();
            let run = out(dir.path(), &[&["run", &base], &args[..]].concat());
            serde_json::from_str::<serde_json::Value>(&run).unwrap()["metrics"]["accuracy"]
                .as_f64()
                .unwrap()
        })
        .collect();
    let mean = accuracy.iter().sum::<f64>() / 3.0;
    let std = (accuracy.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let row = format!("| rounds = 2 | {mean:.4} +- {std:.4} |  | 3 |");
    assert!(table.contains(&row), "{row} is not in\n{table}");

    let again = study(dir.path(), &[]);
    assert_eq!(text(&again.stdout), table);
    assert!(
        !text(&again.stderr).contains(" of "),
        "nothing runs twice: {}",
        text(&again.stderr)
    );
    // another study that asks for one of them, and one more
    write(
        dir.path(),
        "- name: other\n  grid: { protocol.rounds: [3, 4] }\n  seeds: 2\n",
    );
    let other = study(dir.path(), &["--list"]);
    assert_eq!(text(&other.stdout), "other  1 of 2 runs  other\n");
    let csv = fs::read_to_string(dir.path().join("runs/studies/s-runs.csv")).unwrap();
    assert_eq!(
        csv.lines().filter(|l| l.contains(",accuracy,")).count(),
        6,
        "{csv}"
    );
}

#[test]
fn a_failing_run_is_reported_and_the_others_are_done() {
    let dir = tempfile::tempdir().unwrap();
    // its files are there, and no images: that is seen when it begins
    let folder = dir.path().join("nowhere/mnist");
    fs::create_dir_all(&folder).unwrap();
    for part in ["train", "t10k"] {
        fs::write(folder.join(format!("{part}-images-idx3-ubyte")), "no").unwrap();
        fs::write(folder.join(format!("{part}-labels-idx1-ubyte")), "no").unwrap();
    }
    let rows =
        "- name: t\n  rows:\n  - { name: good }\n  - { name: bad, set: { data.set: mnist } }\n";
    write(dir.path(), rows);
    let done = study(dir.path(), &["--data-dir", "nowhere"]);
    let table = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{table}");
    assert!(
        table.contains("| bad | failed |") && table.contains("* Failed: bad, seed 1: "),
        "{table}"
    );
    assert!(
        table.contains("| good | 0.") && !table.contains("good, seed"),
        "{table}"
    );
    let csv = fs::read_to_string(dir.path().join("runs/studies/s-runs.csv")).unwrap();
    assert!(csv.contains("t,bad,,1,"), "{csv}");
}

#[test]
fn mistakes_of_all_runs_come_before_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "- name: t\n  into: here.md\n  rows:\n  - { name: good }\n  - { name: bad, set: { protocol.rounds: 0 } }\n  - { name: none, base: none.yaml }\n";
    write(
        dir.path(),
        &rows.replace("  - { name: none, base: none.yaml }\n", ""),
    );
    fs::write(dir.path().join("here.md"), "no marks").unwrap();
    let (code, error) = fails(dir.path(), &["study", "s.yaml"]);
    assert_eq!(code, 2, "{error}");
    assert_eq!(
        error.matches("rounds: must be in").count(),
        1,
        "seeds have the same mistakes: {error}"
    );
    for said in [
        "s.yaml:8:42  protocol `fedavg`: rounds: must be in",
        "s.yaml:5:9  tables[0].into: here.md: the file has no place for the table: put `<!-- fl study: t -->`",
    ] {
        assert!(error.contains(said), "{said} is not in\n{error}");
    }
    assert!(!dir.path().join("runs").exists());
    write(dir.path(), rows);
    let (code, error) = fails(dir.path(), &["study", "s.yaml"]);
    let said = "there is no file none.yaml: write that spec, or name another";
    assert!(code == 2 && error.contains(said), "{code}: {error}");
    assert!(error.starts_with("s.yaml:"), "{error}");
    fs::remove_file(dir.path().join("here.md")).unwrap();
    let (_, error) = fails(dir.path(), &["study", "s.yaml"]);
    let said = ["no file here.md: create it", "no file none.yaml"];
    assert!(said.iter().all(|said| error.contains(said)), "{error}");
    let (code, error) = fails(dir.path(), &["study", "nowhere.yaml"]);
    assert!(
        code == 2 && error.contains("nowhere.yaml: there is no such file"),
        "{error}"
    );
    write(dir.path(), "- name: t\n  rows: [{ name: a }]\n");
    let (code, error) = fails(dir.path(), &["study", "s.yaml", "--only", "tt"]);
    assert!(
        code == 2 && error.contains("no table is called `tt`; did you mean `t`?"),
        "{code}: {error}"
    );
}

#[test]
fn mistakes_of_every_kind_come_at_once_each_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let base = fs::read_to_string(root().join("specs/quick/fedavg.yaml")).unwrap();
    fs::write(dir.path().join("spec.yaml"), base).unwrap();
    let study = "name: s
defaults: { base: spec.yaml, seeds: 3-1, set: { protocol.local.epoch: 2 } }
tables:
- name: t
  mesure: accuracy
  digits: many
  columns: [mode, { measure: acuracy }]
  rows:
  - { name: a, set: { parts.aggregator: { use: trimmed-mean, trim: 0.7 } } }
  - { name: a, base: none.yaml }
  - { name: c, set: { parts.agregator.trim: 0.1 } }
- name: u
  into: none.md
  grid: { protocol.rounds: { few: 2, none: 0 } }
  against: [few]
";
    fs::write(dir.path().join("s.yaml"), study).unwrap();
    let (code, error) = fails(dir.path(), &["study", "s.yaml"]);
    assert_eq!(code, 2, "{error}");
    let lines: Vec<&str> = error.trim_end().lines().collect();
    let begin = [
        "s.yaml:2:37  defaults.seeds: must be a number, a range",
        "s.yaml:2:49  protocol `fedavg`: local.epoch: no such setting; did you mean `epochs`?",
        "s.yaml:5:3  tables[0].mesure: no such setting; did you mean `measure`?",
        "s.yaml:6:11  tables[0].digits: must be a whole number, got `many`",
        "s.yaml:7:13  tables[0].columns[0]: no column is called `mode`",
        "s.yaml:7:30  tables[0].columns[1].measure: no run of this table measures `acuracy`; did you mean `accuracy`?",
        "s.yaml:9:68  parts.aggregator (aggregator `trimmed-mean`): trim: must be in 0.0..0.5, got 0.7",
        "s.yaml:10:13  tables[0].rows[1].name: two rows are called `a`",
        "s.yaml:10:22  tables[0].rows[1].base: there is no file none.yaml",
        "s.yaml:11:23  parts.agregator: protocol `fedavg` has no slot `agregator`; did you mean",
        "s.yaml:13:9  tables[1].into: there is no file none.md",
        "s.yaml:14:44  protocol `fedavg`: rounds: must be in 1..=1000000, got 0 (table `u`, row `none`)",
        "s.yaml:15:12  tables[1].against: must be text, got a list of 1",
    ];
    for (line, begin) in lines.iter().zip(begin) {
        assert!(line.starts_with(begin), "{begin}\nnot in\n{error}");
    }
    assert_eq!(lines.len(), begin.len(), "{error}");
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn a_table_in_a_readme_is_written_checked_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &ROWS.replace("- name: t\n", "- name: t\n  into: here.md\n"),
    );
    let readme = dir.path().join("here.md");
    fs::write(
        &readme,
        "# mine\n<!-- fl study: t -->\n<!-- end of t -->\nmine too\n",
    )
    .unwrap();
    for (args, code) in [
        // a part, or something changed, is not what it holds
        (&["--set", "protocol.rounds=1"][..], Some(0)),
        (&["--only", "t/3"], Some(0)),
        (&["--check"], Some(1)),
    ] {
        assert_eq!(study(dir.path(), args).status.code(), code, "{args:?}");
        assert!(
            !fs::read_to_string(&readme).unwrap().contains('|'),
            "{args:?}"
        );
    }
    let done = study(dir.path(), &[]);
    let held = fs::read_to_string(&readme).unwrap();
    assert!(
        held.contains(text(&done.stdout).trim())
            && held.starts_with("# mine\n")
            && held.ends_with("-->\nmine too\n"),
        "{held}"
    );
    assert!(study(dir.path(), &["--check"]).status.success());
}

#[test]
fn a_study_that_was_killed_goes_on_to_the_same_tables() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "- name: t\n  set: { protocol.rounds: 400 }\n  rows: [{ name: a }, { name: b, set: { protocol.fresh: false } }]\n",
    );
    let kept = dir.path().join("runs/studies/kept");
    for (done, signal) in [(1, "TERM"), (3, "KILL")] {
        let mut begun = crate::common::program();
        begun
            .args(["study", "s.yaml", "--threads", "1"])
            .current_dir(dir.path());
        let mut begun = begun
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let whole = || {
            fs::read_dir(&kept)
                .into_iter()
                .flatten()
                .filter(|e| e.as_ref().unwrap().path().join("outcome.json").exists())
                .count()
        };
        while whole() < done {
            assert_eq!(begun.try_wait().unwrap(), None, "it is to run for long");
            std::thread::yield_now();
        }
        let sent = Command::new("kill")
            .args(["-s", signal, &begun.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let ended = begun.wait_with_output().unwrap();
        if signal == "TERM" {
            let said = text(&ended.stderr);
            assert_eq!(ended.status.code(), Some(143), "{said}");
            assert!(
                said.ends_with(" of 6 runs are done; the same command continues\n"),
                "{said}"
            );
        }
    }
    let killed = study(dir.path(), &[]);
    assert!(killed.status.success(), "{}", text(&killed.stderr));
    let fresh = study(dir.path(), &["--out", "fresh"]);
    assert_eq!(text(&killed.stdout), text(&fresh.stdout));
    assert!(
        text(&fresh.stderr).contains("[6 of 6] ") && !text(&killed.stderr).contains(" of 6] "),
        "{}",
        text(&killed.stderr)
    );
}
