//! Tables of runs whose numbers are known.

use fl_registry::Document;
use fl_study::{Rounds, RunResult, RunResults, Study, made, runs_csv, tables_csv};
use std::fs;
use std::path::Path;

const STUDY: &str = "
name: s
defaults: { base: a.yaml, seeds: 1-3, scale: 100, digits: 1 }
tables:
- name: t
  title: A | B
  against: base
  published-spread: 0.6
  columns: [mean, median, range, minus, published, published-minus, { title: at 1, round: 1 }, { title: note, text: why }, { measure: bytes.up, scale: 1, digits: 0 }]
  rows:
  - { name: base, published: 82.0 }
  - { name: better, set: { x: 1 }, published: 83.4 +- 0.2, text: { why: because } }
  - { name: same, set: { x: 2 }, published: 82.5 }
  - { name: broken, set: { x: 3 } }
  - { name: later, set: { x: 4 }, published: 68.6 or 67.0 }
";

/// A run folder with this accuracy, half of it in round 1.
fn folder(dir: &Path, name: &str, accuracy: f64) -> RunResult {
    folder_of(dir, name, ("accuracy", accuracy))
}

/// The same of another measure.
fn folder_of(dir: &Path, name: &str, (measure, last): (&str, f64)) -> RunResult {
    let path = dir.join(name);
    fs::create_dir(&path).unwrap();
    let point = |round: u64, value: f64| {
        format!(
            "{{\"step\":\"round {round}\",\"round\":{round},\"name\":\"{measure}\",\"value\":{value},\"std\":null}}\n"
        )
    };
    let files = [
        ("spec.yaml", "name: a\n".to_string()),
        (
            "journal.jsonl",
            "{\"step\":\"round 1\",\"question\":\"q\",\"bytes_up\":{\"values\":9,\"keys\":1}}\n"
                .into(),
        ),
        ("metrics.jsonl", point(1, last / 2.0) + &point(2, last)),
        (
            "outcome.json",
            "{\"outcome\":{\"digest\":\"d\",\"seconds\":1.0}}".into(),
        ),
        ("run.json", "{}".into()),
    ];
    for (file, text) in files {
        fs::write(path.join(file), text).unwrap();
    }
    RunResult::read(&path).unwrap()
}

#[test]
fn the_best_loss_is_the_smallest() {
    let dir = tempfile::tempdir().unwrap();
    for (name, best) in [("accuracy", 0.8), ("training-loss", 0.4), ("hd95", 0.4)] {
        let run = folder_of(dir.path(), name, (name, 0.8));
        assert_eq!(run.get(name, Rounds::Best), Some(best), "{name}");
    }
}

#[test]
fn cells_are_what_the_seeds_say() {
    let dir = tempfile::tempdir().unwrap();
    let study = Study::parse(&Document::parse("s.yaml", STUDY.as_bytes())).unwrap();
    let table = &study.tables[0];
    let numbers = [
        Some([0.80, 0.82, 0.81]),
        Some([0.84, 0.85, 0.86]),
        Some([0.80, 0.83, 0.80]),
        None,
        None,
    ];
    let mut answers = RunResults::new();
    for (row, (of_row, numbers)) in table.runs.iter().zip(numbers).enumerate() {
        for (at, (seed, run)) in of_row[0].iter().enumerate() {
            match numbers {
                Some(numbers) => {
                    let measured = folder(dir.path(), &format!("{row}-{seed}"), numbers[at]);
                    answers.insert(run.clone(), Ok(measured));
                }
                None if row == 3 => {
                    answers.insert(run.clone(), Err(format!("seed {seed}\nis odd")));
                }
                None => {}
            }
        }
    }
    let one = made(table, &answers);
    assert!(!one.whole);
    // differences of `better`: 4, 3, 5, so 4 +- 4.303 * 1 / sqrt(3)
    let wanted = "\
### A | B, seeds 1 to 3

| setting | mean +- std | median | range | minus `base`, paired | published | published, minus `base` | at 1 | note | bytes.up |
|---|---|---|---|---|---|---|---|---|---|
| base | 81.0 +- 1.0 | 81.0 | 80.0 to 82.0 |  | 82.0 |  | 40.5 +- 0.5 |  | 10 +- 0 |
| better | 85.0 +- 1.0 | 85.0 | 84.0 to 86.0 | +4.0 [+1.5, +6.5] | 83.4 +- 0.2 | +1.4 | 42.5 +- 0.5 | because | 10 +- 0 |
| same | 81.0 +- 1.7 | 80.0 | 80.0 to 83.0 | +0.0 [-2.5, +2.5], not distinguishable | 82.5 | +0.5, not distinguishable | 40.5 +- 0.9 |  | 10 +- 0 |
| broken | failed | failed | failed |  |  |  | failed |  | failed |
| later | – | – | – |  | 68.6 or 67.0 |  | – |  | – |

* Failed: broken, seed 1: seed 1 is odd
* Failed: broken, seed 2: seed 2 is odd
* Failed: broken, seed 3: seed 3 is odd
* 3 runs have not been run.
";
    assert_eq!(one.markdown, wanted);

    let csv = String::from_utf8(tables_csv(std::slice::from_ref(&one)).unwrap()).unwrap();
    let of = |start: &str| -> Vec<Vec<f64>> {
        let rows = csv.lines().filter_map(|l| l.strip_prefix(start));
        rows.map(|l| {
            l.split(',')
                .map(|c| c.parse().unwrap_or(f64::NAN))
                .collect()
        })
        .collect()
    };
    let better = of("t,better,,accuracy or clients.accuracy,");
    assert_eq!(
        better.len(),
        1,
        "several columns of one measurement are one line: {csv}"
    );
    for (at, wanted) in [
        (0, 3.0),
        (1, 85.0),
        (2, 1.0),
        (3, 85.0),
        (4, 84.0),
        (5, 86.0),
        (7, 4.0),
    ] {
        assert!((better[0][at] - wanted).abs() < 1e-9, "{at}: {csv}");
    }
    assert_eq!(
        of("t,better,,accuracy or clients.accuracy in round 1,").len(),
        1,
        "{csv}"
    );
    let csv = runs_csv(&study.tables, &answers, &|_| "key".into()).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(
        csv.contains("t,better,,2,key,d,accuracy,0.85,,,\n")
            && csv.contains("t,broken,,3,key,,,,\"seed 3\nis odd\",,\n"),
        "{csv}"
    );

    // a missing seed is reported at its cell
    let lost = &table.runs[1][0][2].1;
    answers.insert(lost.clone(), Err("no".into()));
    let two = made(table, &answers).markdown;
    assert!(
        two.contains("| better | 84.5 +- 0.7 (2 of 3) | 84.5 (2 of 3) |")
            && two.contains("| +3.5 [-2.9, +9.9], not distinguishable (2 of 3) |"),
        "{two}"
    );
}

#[test]
fn a_note_says_which_rows_a_measure_is_of() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
name: s
defaults: { base: a.yaml, seeds: 1-2, scale: 100 }
tables:
- name: t
  title: T
  columns: [mean, { title: half, measure: accuracy, scale: 0.5 }, { title: sent, measure: bytes.up, scale: 1.0e-6 }]
  across:
  - { name: small }
  - { name: large, set: { y: 1 } }
  rows:
  - { name: FedAvg }
  - { name: solo, set: { x: 1 } }
  - { name: mixed, set: { x: 2 } }
";
    let study = Study::parse(&Document::parse("s.yaml", text.as_bytes())).unwrap();
    let table = &study.tables[0];
    let said = |measures: [[&str; 2]; 3]| {
        let mut answers = RunResults::new();
        for (row, of_row) in table.runs.iter().enumerate() {
            for (at, runs) in of_row.iter().enumerate() {
                for (seed, run) in runs {
                    let measure = measures[row][at];
                    let name = format!("{}-{row}-{at}-{seed}", measures[1][0]);
                    let done = folder_of(dir.path(), &name, (measure, 0.5));
                    answers.insert(run.clone(), Ok(done));
                }
            }
        }
        made(table, &answers).section.notes.remove(0)
    };
    let (common, own) = ("accuracy", "clients.accuracy");
    assert_eq!(
        said([[common; 2], [own; 2], [common, own]]),
        "Measured: accuracy times 0.5; \
         accuracy, or clients.accuracy (solo, mixed in large), in percent; bytes.up in MB."
    );
    assert_eq!(
        said([[common; 2]; 3]),
        "Measured: accuracy in percent; accuracy times 0.5; bytes.up in MB."
    );
}

#[test]
fn a_value_after_the_rounds_is_drawn_after_them() {
    let dir = tempfile::tempdir().unwrap();
    let text = "\
name: s
defaults: { base: a.yaml, seeds: 1, measure: clients.accuracy }
tables:
- name: t
  plots: [{ by: round }]
  rows: [{ name: rounds }, { name: tuned, set: { x: 1 } }]
";
    let study = Study::parse(&Document::parse("s.yaml", text.as_bytes())).unwrap();
    let table = &study.tables[0];
    let drawn = |tuned: bool| {
        let mut answers = RunResults::new();
        for (row, of_row) in table.runs.iter().enumerate() {
            let (_, run) = &of_row[0][0];
            let name = format!("{tuned}-{row}");
            let mut done = folder_of(dir.path(), &name, ("clients.accuracy", 0.5));
            if tuned && row == 1 {
                let path = dir.path().join(&name);
                let metrics = fs::read_to_string(path.join("metrics.jsonl")).unwrap();
                let last = "{\"step\":\"fine-tuning\",\"round\":0,\"name\":\"clients.accuracy\",\"value\":0.75}\n";
                fs::write(path.join("metrics.jsonl"), metrics + last).unwrap();
                done = RunResult::read(&path).unwrap();
            }
            answers.insert(run.clone(), Ok(done));
        }
        let picture = made(table, &answers).section.pictures.remove(0);
        let lines = picture.lines.into_iter();
        let lines = lines.map(|(_, line)| line.iter().map(|s| (s.x, s.y)).collect::<Vec<_>>());
        (picture.x, lines.collect::<Vec<_>>())
    };
    let two = vec![(1.0, 0.25), (2.0, 0.5)];
    assert_eq!(drawn(false), ("round".into(), vec![two.clone(); 2]));
    let three = [&two[..], &[(3.0, 0.75)]].concat();
    assert_eq!(drawn(true), ("measurement".into(), vec![two, three]));
}

#[test]
fn a_mean_over_some_clients_says_so_below_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let text = "\
name: s
defaults: { base: a.yaml, seeds: 1 }
tables:
- name: t
  columns: [{ measure: own.worst-tenth.auc }, { measure: clients.f1 }]
  rows: [{ name: some }, { name: all, set: { x: 1 } }]
";
    let study = Study::parse(&Document::parse("s.yaml", text.as_bytes())).unwrap();
    let table = &study.tables[0];
    let mut answers = RunResults::new();
    for (row, of_row) in table.runs.iter().enumerate() {
        let (_, run) = &of_row[0][0];
        let name = format!("{row}");
        let mut done = folder_of(dir.path(), &name, ("own.worst-tenth.auc", 0.5));
        if row == 0 {
            let notes = "[\"round 1: `own.auc` is of 5 of 12 clients: it is not defined\", \
                \"round 1: `own.f1` is of 3 of 12 clients: it is not defined\", \"x: `own.auc` is odd\"]";
            let outcome = format!("{{\"outcome\":{{\"digest\":\"d\"}},\"notes\":{notes}}}");
            let path = dir.path().join(&name);
            fs::write(path.join("outcome.json"), outcome).unwrap();
            let read = RunResult::read(&path).unwrap();
            // a record has it too
            let record = read.record().unwrap();
            done = RunResult::recorded(record, "name: a\n".into(), path, None).unwrap();
        }
        answers.insert(run.clone(), Ok(done));
    }
    let said = made(table, &answers).markdown;
    let due = "* Clients of some: `own.auc` is of 5 of 12 clients: it is not defined.\n";
    assert!(
        said.contains(due) && said.matches("of 12 clients").count() == 1,
        "{said}"
    );
}

#[test]
fn a_cost_of_a_round_is_said_to_be_the_total_up_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "\
name: s
defaults: { base: a.yaml, seeds: 1 }
tables:
- name: t
  columns: [{ measure: bytes.up, round: 2 }, { measure: [loss, accuracy, bytes.up], round: 2 }]
  rows: [{ name: one }]
";
    let study = Study::parse(&Document::parse("s.yaml", text.as_bytes())).unwrap();
    let table = &study.tables[0];
    let path = dir.path().join("one");
    folder(dir.path(), "one", 0.5);
    let cost = |round: u64, up: u64| {
        format!(
            "{{\"step\":\"round {round}\",\"round\":{round},\"bytes_up\":{up},\"bytes_down\":0}}\n"
        )
    };
    fs::write(path.join("costs.jsonl"), cost(1, 4) + &cost(2, 10)).unwrap();
    let (_, run) = &table.runs[0][0][0];
    let answers = RunResults::from([(run.clone(), Ok(RunResult::read(&path).unwrap()))]);
    let one = made(table, &answers);
    assert!(
        one.markdown.contains("|  | up to round 2 | round 2 |"),
        "{}",
        one.markdown
    );
    let csv = String::from_utf8(tables_csv(&[one]).unwrap()).unwrap();
    assert!(csv.contains("t,one,,bytes.up up to round 2,1,10,"), "{csv}");
    let mixed = "t,one,,loss or accuracy in round 2 or bytes.up up to round 2,1,0.5,";
    assert!(csv.contains(mixed), "{csv}");
}

/// The markdown of a table with one column, whose rows `one` and `other` are these runs.
fn of_two_rows(paths: [&Path; 2], column: &str) -> String {
    let text = format!(
        "name: s\ndefaults: {{ base: a.yaml, seeds: 1 }}\ntables:\n- name: t\n  \
         columns: [{column}]\n  rows: [{{ name: one }}, {{ name: other, set: {{ x: 1 }} }}]\n"
    );
    let study = Study::parse(&Document::parse("s.yaml", text.as_bytes())).unwrap();
    let table = &study.tables[0];
    let rows = table.runs.iter().zip(paths);
    let runs = rows.map(|(row, path)| {
        let (_, run) = &row[0][0];
        (run.clone(), Ok(RunResult::read(path).unwrap()))
    });
    made(table, &runs.collect::<RunResults>()).markdown
}

#[test]
fn a_row_that_diverged_has_measured_something() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["one", "other"].map(|name| dir.path().join(name));
    folder(dir.path(), "one", 0.5);
    folder_of(dir.path(), "other", ("auc", 0.5));
    let blank = |column: &str| {
        let said = of_two_rows([&path, &other], column);
        said.contains("one has measured nothing of these columns")
    };
    assert!(blank("{ measure: auc }"));
    let point = "{\"step\":\"round 1\",\"round\":1,\"name\":\"auc\",\"value\":null}\n";
    fs::write(path.join("metrics.jsonl"), point).unwrap();
    // it has no number, and no round 2
    assert!(!blank("{ measure: auc }"));
    assert!(!blank("{ measure: auc, round: 2 }"));
}

#[test]
fn notes_on_each_kind_of_attack_stand_below_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["one", "other"].map(|name| dir.path().join(name));
    folder(dir.path(), "one", 0.5);
    folder(dir.path(), "other", 0.5);
    let notes = [
        "a: parts.attack: it is weak: no",
        "a: parts.labels: it flips",
        "a: parts.labels of stage 2: it stops",
        "a: parts.model: it is odd",
    ];
    let outcome = format!("{{\"outcome\":{{\"digest\":\"d\"}},\"notes\":{notes:?}}}");
    fs::write(path.join("outcome.json"), outcome).unwrap();
    let said = of_two_rows([&path, &other], "mean");
    for due in ["it is weak: no", "it flips", "it stops"] {
        let due = format!("* Attack of one: {due}.");
        assert!(said.contains(&due), "{said}");
    }
    assert!(!said.contains("odd"), "{said}");
}
