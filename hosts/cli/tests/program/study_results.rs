//! The file of results of `fl study`: what a line says, and what is taken from it.
use crate::common::{fails, fl, root};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

const FILE: &str = "s.results.jsonl";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Writes a study of a quick spec with a file of results.
fn write(dir: &Path, base: &str, tables: &str) {
    let base = root().join(format!("specs/quick/{base}.yaml"));
    let study = format!(
        "name: s\nresults: {FILE}\ndefaults: {{ base: '{}', seeds: 1-2 }}\ntables:\n{tables}",
        base.display()
    );
    fs::write(dir.join("s.yaml"), study).unwrap();
}

fn study(dir: &Path, more: &[&str]) -> Output {
    fl(dir, &[&["study", "s.yaml"], more].concat())
}

/// stdout and stderr of a study that must end with this code.
fn ends(dir: &Path, code: i32, more: &[&str]) -> (String, String) {
    let done = study(dir, more);
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "{out}{err}");
    (out, err)
}

fn lines(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(FILE)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Changes every line, and gives it the hash that it then has.
fn change(dir: &Path, change: impl Fn(&mut Value)) {
    let sealed = |mut line: Value| {
        change(&mut line);
        line.as_object_mut().unwrap().remove("sha256");
        let rest = line.to_string();
        let hash: String = Sha256::digest(&rest)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!("{{\"sha256\":\"{hash}\",{}\n", &rest[1..])
    };
    let all: String = lines(dir).into_iter().map(sealed).collect();
    fs::write(dir.join(FILE), all).unwrap();
}

/// Removes all that a study has written but its file of results.
fn forget(dir: &Path) {
    fs::remove_dir_all(dir.join("runs")).unwrap();
}

fn written(dir: &Path) -> Vec<String> {
    let names = ["s.md", "s.html", "s.tex", "s.csv", "s-runs.csv"];
    names
        .map(|name| fs::read_to_string(dir.join("runs/studies").join(name)).unwrap())
        .into()
}

const ROWS: &str = "- name: t\n  grid: { protocol.rounds: [2, 3] }\n  columns: [mean, { round: 1 }, { measure: bytes.up }]\n  plots: [{ by: round }]\n";

#[test]
fn exact_a_result_lasts_without_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    write(d, "fedavg", ROWS);
    // nothing is recorded before a run, nor of runs with other values
    ends(d, 0, &["--dry-run"]);
    ends(d, 0, &["--set", "protocol.fresh=false"]);
    assert!(!d.join(FILE).exists());
    let (first, _) = ends(d, 0, &[]);
    let whole = written(d);
    let lines = lines(d);
    assert_eq!(lines.len(), 4);
    let names: Vec<&str> = lines.iter().map(|l| l["run"].as_str().unwrap()).collect();
    assert!(names.contains(&"t, rounds = 2, seed 1"), "{names:?}");
    for line in &lines {
        for key in ["spec", "asked", "digest", "began"] {
            assert!(
                line[key].as_str().is_some_and(|s| s.len() > 10),
                "{key}: {line}"
            );
        }
        assert_eq!(line["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(line["program"].as_str().unwrap().len(), 12);
        let machine = line["machine"].as_str().unwrap();
        assert!(machine.contains(" core"), "{machine}");
        assert!(line["quick"]["fedavg"].is_string(), "{line}");
        assert!(line["metrics"][0][1][0].is_array(), "{line}");
    }
    // without the runs, all that is written is the same
    forget(d);
    let (again, said) = ends(d, 0, &[]);
    assert_eq!(again, first);
    assert!(
        said.contains("4 of 4 results are from s.results.jsonl"),
        "{said}"
    );
    assert!(!said.contains(" of 4] "), "nothing runs again: {said}");
    assert_eq!(written(d), whole);
    let (list, _) = ends(d, 0, &["--list"]);
    assert_eq!(list, "t  4 of 4 runs  t\n");
    let (plan, _) = ends(d, 0, &["--dry-run"]);
    assert!(plan.starts_with("0 of 4 runs"), "{plan}");
    // a later fl resolves the spec to another text
    change(d, |line| {
        let spec: String = line["spec"].as_str().unwrap().chars().rev().collect();
        line["spec"] = spec.into();
    });
    let (later, _) = ends(d, 0, &["--no-runs"]);
    assert_eq!(later, first);
    // a row that has another spec now is run again, and the line is named
    write(
        d,
        "fedavg",
        &ROWS.replace("[2, 3]", "{ rounds = 2: 4, rounds = 3: 3 }"),
    );
    let (_, said) = ends(d, 1, &["--no-runs"]);
    let outdated = "(t, rounds = 2, seed ";
    let not_used = ") is not used, because the row has another spec now, and 1 more";
    assert!(said.contains(outdated) && said.contains(not_used), "{said}");
    let (_, said) = ends(d, 0, &[]);
    assert!(said.contains("[2 of 2] "), "{said}");
    assert_eq!(self::lines(d).len(), 6);
}

#[test]
fn a_line_has_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let rows = crate::neighbours::rows(0..120);
    fs::write(d.join("patients.csv"), rows).unwrap();
    fs::write(d.join("test.csv"), crate::neighbours::rows(500..540)).unwrap();
    let spec = fs::read_to_string(root().join("specs/quick/dp-fedavg.yaml")).unwrap();
    let (before, rest) = spec.split_once("\ndata:").unwrap();
    let (_, after) = rest.split_once("\nprotocol:").unwrap();
    let data = "data: { set: { files: { format: csv, train: patients.csv, test: test.csv, label: class, classes: [low, high], columns: { a: { number: { range: [0, 1000] } }, b: { number: { range: [0, 1000] } } } } }, clients: 100 }";
    fs::write(
        d.join("own.yaml"),
        format!("{before}\n{data}\nprotocol:{after}"),
    )
    .unwrap();
    let tables = "- name: t\n  columns: [{ measure: epsilon.readers }]\n  seeds: 1\n  rows: [{ name: one, base: own.yaml }, { name: two, base: own.yaml, set: { protocol.rounds: 3 } }]\n";
    write(d, "fedavg", tables);
    let (first, _) = ends(d, 0, &[]);
    assert!(
        first.contains("| files | 2 | readers of the results |"),
        "{first}"
    );
    let recorded = fs::read_to_string(d.join(FILE)).unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let user = std::env::var("HOME").unwrap_or_default();
    let place = d.display().to_string();
    for secret in [host, &user[..], &place[..]] {
        assert!(
            secret.len() < 4 || !recorded.contains(secret),
            "{secret} is in {recorded}"
        );
    }
    // who can guess a file of the user's own, or a count of a client, could check the guess; hashes
    // of rows need the user's key
    let hash = |name: &str| -> String {
        let bytes = fs::read(d.join(name)).unwrap();
        Sha256::digest(bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    };
    for secret in [
        &hash("patients.csv")[..],
        &hash("test.csv"),
        "\"held\"",
        "\"each\"",
    ] {
        assert!(!recorded.contains(secret), "{secret} is in {recorded}");
    }
    let key = fs::read_to_string(crate::common::user_dir().join("fl/rows.key")).unwrap();
    assert!(key.len() == 32 && !recorded.contains(&key), "{recorded}");
    // and the total of both runs is that of their folders
    forget(d);
    let (again, _) = ends(d, 0, &[]);
    assert_eq!(again, first);
    assert!(
        lines(d)
            .iter()
            .all(|line| line["privacy"]["readers"].is_object())
    );
    // without an accountant the hashes say which data a result is of
    write(
        d,
        "fedavg",
        "- name: t\n  seeds: 1\n  rows: [{ name: open, base: open.yaml }]\n",
    );
    let open = fs::read_to_string(root().join("specs/quick/fedavg.yaml")).unwrap();
    let (before, rest) = open.split_once("\ndata:").unwrap();
    let (_, after) = rest.split_once("\nprotocol:").unwrap();
    let data = data.replace("clients: 100", "clients: 4");
    fs::write(
        d.join("open.yaml"),
        format!("{before}\n{data}\nprotocol:{after}"),
    )
    .unwrap();
    ends(d, 0, &[]);
    let recorded = fs::read_to_string(d.join(FILE)).unwrap();
    assert!(recorded.contains(&hash("patients.csv")) && !recorded.contains(&place));
    forget(d);
    fs::write(d.join("patients.csv"), crate::neighbours::rows(7..120)).unwrap();
    let (said, _) = ends(d, 1, &[]);
    assert!(
        said.contains("s.results.jsonl:3: it is a run with other data files"),
        "{said}"
    );
}

#[test]
fn a_line_that_was_edited_is_refused_before_any_run() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    write(d, "fedavg", ROWS);
    ends(d, 0, &[]);
    let whole = fs::read_to_string(d.join(FILE)).unwrap();
    let edited = whole.replacen("\"accuracy\",[[1,0.", "\"accuracy\",[[1,0.9", 1);
    assert_ne!(edited, whole);
    fs::write(d.join(FILE), edited).unwrap();
    let (code, error) = fails(d, &["study", "s.yaml", "--no-runs"]);
    assert!(
        code == 2 && error.contains("s.results.jsonl:1: it was edited"),
        "{error}"
    );
    // half a line, as a full disk leaves it, is run again
    fs::write(d.join(FILE), &whole[..whole.len() - 9]).unwrap();
    forget(d);
    let (_, said) = ends(d, 0, &[]);
    assert!(
        said.contains("its last line is cut short") && said.contains("[1 of 1] "),
        "{said}"
    );
    assert_eq!(lines(d).len(), 4);
    // of a file that cannot be written the tables are made, and the error is told
    fs::remove_file(d.join(FILE)).unwrap();
    write(d, "fedavg", ROWS);
    let text = fs::read_to_string(d.join("s.yaml")).unwrap();
    fs::write(d.join("s.yaml"), text.replace(FILE, "none/s.jsonl")).unwrap();
    let (table, said) = ends(d, 1, &[]);
    let kept =
        "the runs are kept, and the same command records their results: writing none/s.jsonl";
    assert!(
        table.contains("| rounds = 2 |") && said.contains(kept),
        "{said}"
    );
    fs::write(d.join("s.yaml"), text.replace(FILE, "s.txt")).unwrap();
    let (code, error) = fails(d, &["study", "s.yaml"]);
    assert!(
        code == 2 && error.contains("s.yaml:2:10  results: must end in `.jsonl`"),
        "{error}"
    );
}

#[test]
fn a_check_repeats_recorded_results() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    write(d, "fedavg", ROWS);
    ends(d, 0, &[]);
    forget(d);
    let (_, said) = ends(d, 0, &["--check"]);
    assert!(said.contains("--repeat N does N of them"), "{said}");
    let (_, said) = ends(d, 0, &["--check", "--repeat", "2"]);
    assert!(
        said.contains("2 of 4 recorded results are done again: --draw ")
            && said.contains("[2 of 2] ")
            && said.contains("2 repeated runs have the recorded digests"),
        "{said}"
    );
    let left = || {
        let all = fs::read_dir(d.join("runs/studies")).unwrap();
        let names = all.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.starts_with("repeated-")).count()
    };
    assert_eq!(left(), 0);
    // the same draw is of the same runs; a large one is of all
    let drawn = |number: &str, seed: &str| -> BTreeSet<String> {
        let args = ["--check", "--no-runs", "--repeat", number, "--draw", seed];
        let (_, said) = ends(d, 0, &args);
        let lines = said
            .lines()
            .filter_map(|l| l.split_once("] ")?.1.split_once(": "));
        lines.map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(drawn("1", "7"), drawn("1", "7"));
    assert_eq!(drawn("99", "7").len(), 4);
    let some: BTreeSet<_> = (0..6).map(|seed| drawn("1", &seed.to_string())).collect();
    assert!(some.len() > 1, "{some:?}");
    // what another program came to
    change(d, |line| {
        if line["run"] == "t, rounds = 3, seed 2" {
            line["digest"] = "f".repeat(64).into();
        }
    });
    let args = ["--check", "--repeat", "4"];
    let (_, said) = ends(d, 1, &args);
    let due = "t, rounds = 3, seed 2: digest ";
    let line = said.lines().find(|l| l.starts_with(due)).expect(&said);
    assert!(
        line.contains("s.results.jsonl:") && line.contains(&"f".repeat(24)),
        "{line}"
    );
    assert_eq!(left(), 1, "{said}");
    assert_eq!(lines(d).len(), 4, "a check writes nothing");
    // no run has the same noise of the system again
    write(
        d,
        "dp-fedavg",
        "- name: t\n  seeds: 1\n  set: { noise: system, protocol.rounds: 2 }\n  rows: [{ name: one }]\n  measure: epsilon.readers\n",
    );
    ends(d, 0, &[]);
    let (_, said) = ends(d, 0, &args);
    let none = "0 of 1 recorded results are done again: --draw ";
    assert!(
        said.contains(none) && said.contains("; 1 with `noise: system` cannot be"),
        "{said}"
    );
    for (args, says) in [
        (&["--repeat", "1"][..], "--check"),
        (&["--check", "--draw", "1"], "--repeat"),
        (&["--check", "--repeat", "0"], "at least 1"),
    ] {
        let (code, error) = fails(d, &[&["study", "s.yaml"], args].concat());
        assert!(code == 2 && error.contains(says), "{error}");
    }
}

#[test]
fn results_of_an_older_program_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    write(d, "fedavg", ROWS);
    let (table, _) = ends(d, 0, &[]);
    assert!(!table.contains("Results of"), "{table}");
    forget(d);
    change(d, |line| {
        if line["run"] == "t, rounds = 3, seed 2" {
            line["quick"]["fedavg"] = "00000000".into();
        }
    });
    let (table, _) = ends(d, 0, &["--no-runs"]);
    let older = "* Results of rounds = 3 are of an older program; since then digests of quick specs changed: fedavg.";
    assert!(table.contains(older), "{table}");
    change(d, |line| line["quick"] = serde_json::json!({}));
    let (table, _) = ends(d, 0, &["--no-runs"]);
    let unknown =
        "* Results of rounds = 2, rounds = 3 are of a program whose other digests are not known.";
    assert!(table.contains(unknown), "{table}");
    let csv = fs::read_to_string(d.join("runs/studies/s-runs.csv")).unwrap();
    let made_by = format!("\"fl {} (", env!("CARGO_PKG_VERSION"));
    assert!(csv.contains(&made_by), "{csv}");
}

#[test]
fn open_rows_stand_in_a_readme_with_their_hours() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let table = |hours: &str| {
        format!(
            "- name: t\n  into: page.md\n  columns: [mean, {{ measure: bytes.up }}]\n  rows:\n  - {{ name: done }}\n  - {{ name: long, set: {{ protocol.fresh: false }}{hours} }}\n"
        )
    };
    let page = d.join("page.md");
    fs::write(&page, "<!-- fl study: t -->\n<!-- end of t -->\n").unwrap();
    write(d, "fedavg", &table(""));
    ends(d, 0, &["--only", "t/done"]);
    ends(d, 1, &["--no-runs"]);
    assert!(!fs::read_to_string(&page).unwrap().contains('|'));
    write(d, "fedavg", &table(", hours: 0.3"));
    let (out, _) = ends(d, 0, &["--no-runs"]);
    let held = fs::read_to_string(&page).unwrap();
    assert!(held.contains(out.trim()), "{held}");
    assert!(held.contains("| long | open, 0.6 h | – |"), "{held}");
    assert!(held.contains("* 2 runs are open: about 0.6 h."), "{held}");
    ends(d, 0, &["--no-runs", "--check"]);
    // one of two seeds
    let (seed, rest) = (r#"seeds: 1"#, r#"seeds: 1-2"#);
    let text = fs::read_to_string(d.join("s.yaml")).unwrap();
    fs::write(d.join("s.yaml"), text.replace(rest, seed)).unwrap();
    ends(d, 0, &["--only", "t/long"]);
    fs::write(d.join("s.yaml"), text).unwrap();
    let (out, _) = ends(d, 0, &["--no-runs"]);
    assert!(
        out.contains("(1 of 2)") && out.contains("* 1 run is open: about 0.3 h."),
        "{out}"
    );
    // once all is done, the table says so
    ends(d, 0, &[]);
    assert!(!fs::read_to_string(&page).unwrap().contains("open"));
    write(d, "fedavg", &table(", hours: -1"));
    let (code, error) = fails(d, &["study", "s.yaml"]);
    assert!(
        code == 2 && error.contains("hours: must be at least 0.0"),
        "{error}"
    );
}

#[test]
fn two_studies_at_once_record_each_run_once() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let tables = "- name: t\n  seeds: 1-4\n  grid: { protocol.rounds: [2, 3, 4] }\n";
    write(d, "fedavg", tables);
    let begin = |out: &str| {
        let mut one = crate::common::program();
        one.args(["study", "s.yaml", "--threads", "2", "--out", out]);
        one.current_dir(d)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        one.spawn().unwrap()
    };
    // two that share runs, and one with runs of its own
    let all = [begin("one"), begin("one"), begin("two")];
    for ended in all.map(|study| study.wait_with_output().unwrap()) {
        assert!(ended.status.success(), "{}", text(&ended.stderr));
    }
    let lines = lines(d);
    let names: BTreeSet<&str> = lines.iter().map(|l| l["run"].as_str().unwrap()).collect();
    assert_eq!((lines.len(), names.len()), (12, 12));
    let (_, said) = ends(d, 0, &["--no-runs", "--check"]);
    assert!(said.contains("12 of 12 results are from"), "{said}");
}

#[test]
fn pages_are_what_recorded_results_say() {
    let dir = tempfile::tempdir().unwrap();
    let studies = fs::read_dir(root().join("specs/studies")).unwrap();
    let files = studies.map(|entry| entry.unwrap().path());
    let records = |file: &std::path::PathBuf| {
        let yaml = file.extension().is_some_and(|e| e == "yaml");
        yaml && fs::read_to_string(file).unwrap().contains("\nresults: ")
    };
    let files: Vec<_> = files.filter(records).collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let file = file.display().to_string();
        // tables whose other runs are not recorded keep what they hold
        let done = fl(dir.path(), &["study", &file, "--check", "--no-runs"]);
        let said = text(&done.stderr);
        assert!(said.contains("tables: "), "{said}");
        assert!(!said.contains("differs from the runs"), "{said}");
        // one note for all that keep theirs
        assert!(said.matches(" keeps ").count() <= 1, "{said}");
    }
}
