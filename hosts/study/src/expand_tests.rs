use crate::model::Study;
use fl_registry::{Document, Mistakes};
use std::path::PathBuf;

fn read(text: &str) -> Result<Study, Mistakes> {
    Study::parse(&Document::parse("specs/s.yaml", text.as_bytes()))
}

#[test]
fn what_is_published_says_under_which_conditions() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.yaml"), "name: a\n").unwrap();
    let path = dir.path().join("s.yaml");
    let heads = |column: &str| {
        let text = format!(
            "name: s\ntables: [{{ name: t, base: a.yaml, rows: [{{ name: r }}], columns: [{column}] }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        Study::read(&path).map(|study| study.tables[0].columns[0].title.clone())
    };
    assert_eq!(heads("published").unwrap(), "published");
    let own = "{ title: 'published, 9 rounds', show: published }";
    assert_eq!(heads(own).unwrap(), "published, 9 rounds");
    let error = heads("{ show: published, round: 3 }").unwrap_err();
    assert!(format!("{error:#}").contains("not measured"), "{error:#}");
}

#[test]
fn a_grid_is_every_combination() {
    let study = read(
        "name: s\ndefaults: { base: a.yaml, seeds: 1-2, set: { evaluate.every: 5 } }\ntables:\n- name: g\n  \
         grid: { base: [a.yaml, b.yaml], parts.aggregator: { mean: { use: mean } }, protocol.t: [1, 2] }\n  seeds: 7\n  \
         published: { 'b.yaml, mean, t = 2': 82.0 +- 0.6 }\n",
    );
    let table = &study.unwrap().tables[0];
    let names: Vec<&str> = table.rows.iter().map(|r| &r.name[..]).collect();
    assert_eq!(
        names,
        [
            "a.yaml, mean, t = 1",
            "a.yaml, mean, t = 2",
            "b.yaml, mean, t = 1",
            "b.yaml, mean, t = 2"
        ]
    );
    let (seed, run) = &table.runs[3][0][0];
    assert_eq!((*seed, &run.base), (7, &PathBuf::from("specs/b.yaml")));
    assert_eq!(
        run.set,
        [
            "evaluate.every=5",
            r#"parts.aggregator={"use":"mean"}"#,
            "protocol.t=2",
            "seed=7"
        ]
    );
    assert_eq!(table.rows[3].published.as_deref(), Some("82.0 +- 0.6"));
    let study = read(
        "name: s\ntables:\n- name: g\n  base: a.yaml\n  grid: { parts.aggregator.use: [mean], protocol: \
         [{ use: fedavg, rounds: 3 }] }\n",
    );
    let name = &study.unwrap().tables[0].rows[0].name;
    assert_eq!(name, "mean, protocol = {use: fedavg, rounds: 3}");
}

#[test]
fn rows_times_across_times_seeds() {
    let study = read(
        "name: s\ntables:\n- name: t\n  base: a.yaml\n  seeds: [3, 5]\n  set: { x: 1 }\n  across: [{ name: plain }, { name: own, set: { x: 3 } }]\n  \
         rows: [{ name: one, set: { x: 2 } }, { name: two, base: ../b.yaml, seeds: 9 }]\n",
    );
    let table = &study.unwrap().tables[0];
    let seeds: Vec<Vec<u64>> = table
        .runs
        .iter()
        .flatten()
        .map(|runs| runs.iter().map(|(s, _)| *s).collect())
        .collect();
    assert_eq!(seeds, [vec![3, 5], vec![3, 5], vec![9], vec![9]]);
    assert_eq!(table.runs[0][1][1].1.set, ["x=1", "x=2", "x=3", "seed=5"]);
    assert_eq!(table.runs[1][0][0].1.base, PathBuf::from("specs/../b.yaml"));
}

#[test]
fn mistakes_say_where_they_are_and_what_would_be_right() {
    let table = |text: &str| format!("name: s\ntables:\n- name: t\n  base: a.yaml\n{text}");
    for (text, said) in [
        (
            "name: s\ntables: []\n".into(),
            "s.yaml:2:9  tables: there is none",
        ),
        (
            "name: ../s\ntables: [{ name: t }]\n".into(),
            "letters, digits",
        ),
        (
            "name: s\ntables: [{ nmae: t }]\n".into(),
            "s.yaml:2:12  tables[0].nmae: no such setting; did you mean `name`?",
        ),
        (
            table("  rows: [{ name: a }]\n  parts: { attack: { use: sign-flip } }\n"),
            "s.yaml:6:3  tables[0].parts: is of the spec of a run: write it below `set`, as `set: { parts.NAME: .. }`",
        ),
        (
            table("  rows: [{ name: a, data: { clients: 3 } }]\n"),
            "tables[0].rows[0].data: is of the spec of a run",
        ),
        (
            table(""),
            "s.yaml:3:3  tables[0]: it has neither `rows` nor a `grid`",
        ),
        (
            table("  rows: [{ name: a }]\n  grid: { x: [1] }\n"),
            "both `rows` and a `grid`",
        ),
        (
            table("  rows: [{ name: a }, { name: a }]\n"),
            "two rows are called `a`",
        ),
        (
            table("  rows: [{ name: a }]\n  against: b\n"),
            "s.yaml:6:12  tables[0].against: no row is called `b`; rows: `a`",
        ),
        (
            table("  rows: [{ name: a }]\n  published: { b: 1 }\n"),
            "s.yaml:6:19  tables[0].published.b: no row is called `b`",
        ),
        (
            table("  rows: [{ name: a }]\n  columns: [mode]\n"),
            "no column is called `mode`; known: mean, median",
        ),
        (
            table("  rows: [{ name: a }]\n  columns: [minus]\n"),
            "`against` must name the row",
        ),
        (
            table("  rows: [{ name: a }]\n  seeds: 3-1\n"),
            "a range such as 1-10",
        ),
        (
            table("  rows: [{ name: a }]\n  seeds: [1, 1]\n"),
            "none twice",
        ),
        (
            table("  rows: [{ name: a }]\n  seeds: 0-18446744073709551615\n"),
            "a range such as 1-10",
        ),
        (
            table("  rows: [{ name: a, set: { seed: 3 } }]\n"),
            "a study sets the seeds in `seeds`",
        ),
        (
            table("  grid: { x: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], y: [1, 2] }\n  seeds: 1-99999\n"),
            "more than 100000 runs",
        ),
        (
            table("  grid: { x: 3 }\n"),
            "s.yaml:5:14  tables[0].grid.x: must be a list of values",
        ),
        (
            "name: s\ntables: [{ name: t, rows: [{ name: a }] }]\n".into(),
            "no `base` says which spec it runs",
        ),
    ] {
        let error = format!("{:#}", read(&text).unwrap_err());
        assert!(error.contains(said), "{text}\n{error}\nnot: {said}");
    }
}

#[test]
fn all_mistakes_of_a_study_come_at_once() {
    let text = "name: s\ndefaults: { against: z }\ntables:\n- name: t\n  base: a.yaml\n  rows: [{ name: a }]\n  \
                columns: [mode, { text: key }]\n  seeds: 3-1\n- name: t\n  base: a.yaml\n  digits: 13\n";
    insta::assert_snapshot!(read(text).unwrap_err(), @"
    specs/s.yaml:2:22  defaults.against: no row is called `z`; rows: `a`
    specs/s.yaml:7:13  tables[0].columns[0]: no column is called `mode`; known: mean, median, std, range, min, max, seeds, minus, published, published-minus, or a mapping with `measure` or `text`
    specs/s.yaml:7:19  tables[0].columns[1]: no row has a text `key`
    specs/s.yaml:8:10  tables[0].seeds: must be a number, a range such as 1-10, or a list of numbers, got 3-1
    specs/s.yaml:9:3  tables[1]: it has neither `rows` nor a `grid`
    specs/s.yaml:9:9  tables[1].name: `t` is another table's name too
    specs/s.yaml:11:11  tables[1].digits: must be in 0..=12, got 13
    ");
}
