//! From a study's text to its runs.

use crate::columns::{Column, columns};
use crate::file::{File, RawColumn, RawItem, RawTable};
use crate::{MAX_BYTES, MAX_RUNS};
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use serde_yaml::{Mapping, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A run: a spec, and what is set in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunSpec {
    /// The spec's file.
    pub base: PathBuf,
    /// `protocol.rounds=5`, later ones win; the seed is the last.
    pub set: Vec<String>,
    /// It is large: it gets all threads.
    pub alone: bool,
}

/// A row, or one of the second direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// What others published.
    pub published: Option<String>,
    /// What stands in columns of text.
    pub text: BTreeMap<String, String>,
}

/// A table and its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names it.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The rows.
    pub rows: Vec<Item>,
    /// The second direction; one without a name if there is none.
    pub across: Vec<Item>,
    /// Columns that are the same for all of `across`.
    pub lead: Vec<Column>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The row that others are compared with.
    pub against: Option<usize>,
    /// How far apart published numbers without a deviation may be and still not be told apart.
    pub published_spread: f64,
    /// The README that holds it.
    pub into: Option<PathBuf>,
    /// Seed and run, by row and by the second direction.
    pub runs: Vec<Vec<Vec<(u64, RunSpec)>>>,
}

impl Table {
    /// These rows of it.
    pub fn part(&self, rows: &BTreeSet<usize>) -> Self {
        let mut part = self.clone();
        let kept: Vec<usize> = rows
            .iter()
            .copied()
            .filter(|at| *at < self.rows.len())
            .collect();
        part.rows = kept.iter().map(|at| self.rows[*at].clone()).collect();
        part.runs = kept.iter().map(|at| self.runs[*at].clone()).collect();
        part.against = self
            .against
            .and_then(|of| kept.iter().position(|at| *at == of));
        part
    }
}

/// A study that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Names what is written.
    pub name: String,
    /// Its tables.
    pub tables: Vec<Table>,
}

impl Study {
    /// Reads a study's file.
    ///
    /// # Errors
    /// When it cannot be read, or is no study: what is wrong, and where.
    pub fn read(path: &Path) -> Result<Self> {
        use std::io::Read;
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, parent)
    }

    /// Reads a study's text; its files are relative to `folder`.
    ///
    /// # Errors
    /// When it is no study: what is wrong, and where.
    pub fn parse(text: &str, folder: &Path) -> Result<Self> {
        ensure!(
            text.len() <= MAX_BYTES,
            "the file has more than {MAX_BYTES} bytes"
        );
        let file: File = serde_yaml::from_str(text)?;
        let plain = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && !name.starts_with('.')
        };
        ensure!(
            plain(&file.name),
            "name: it names files, so it must have letters, digits, `-`, `_` and `.` only, got `{}`",
            file.name
        );
        ensure!(!file.tables.is_empty(), "tables: there is none");
        let mut seen = BTreeSet::new();
        let (mut tables, mut runs) = (Vec::new(), 0);
        for (at, raw) in file.tables.iter().enumerate() {
            let name = raw
                .name
                .clone()
                .with_context(|| format!("tables[{at}]: it has no name"))?;
            ensure!(
                plain(&name),
                "tables[{at}].name: must have letters, digits, `-`, `_` and `.` only, got `{name}`"
            );
            ensure!(
                seen.insert(name.clone()),
                "tables[{at}].name: `{name}` is another table's name too"
            );
            let table = table(name.clone(), raw, &file.defaults, folder, MAX_RUNS - runs)
                .with_context(|| format!("table `{name}`"))?;
            runs += table.runs.iter().flatten().map(Vec::len).sum::<usize>();
            tables.push(table);
        }
        Ok(Self {
            name: file.name,
            tables,
        })
    }
}

/// A row before its runs are known.
#[derive(Clone, Default)]
struct Wanted {
    item: RawItem,
    /// From a grid, as they stand there.
    set: Vec<(String, Value)>,
}

fn table(
    name: String,
    raw: &RawTable,
    defaults: &RawTable,
    folder: &Path,
    most: usize,
) -> Result<Table> {
    let mut all = raw.clone();
    all.base = raw.base.clone().or(defaults.base.clone());
    all.seeds = raw.seeds.clone().or(defaults.seeds.clone());
    all.measure = raw.measure.clone().or(defaults.measure.clone());
    all.scale = raw.scale.or(defaults.scale);
    all.digits = raw.digits.or(defaults.digits);
    all.against = raw.against.clone().or(defaults.against.clone());
    all.alone = raw.alone.or(defaults.alone);
    all.into = raw.into.clone().or(defaults.into.clone());
    let first = |own: &[RawColumn], other: &[RawColumn]| {
        if own.is_empty() {
            other.to_vec()
        } else {
            own.to_vec()
        }
    };
    all.columns = first(&raw.columns, &defaults.columns);
    if all.columns.is_empty() {
        all.columns = vec![RawColumn::Known("mean".into())];
    }
    all.lead = first(&raw.lead, &defaults.lead);

    let rows = match (raw.rows.is_empty(), raw.grid.is_empty()) {
        (false, true) => raw
            .rows
            .iter()
            .map(|item| Wanted {
                item: item.clone(),
                set: Vec::new(),
            })
            .collect(),
        (true, false) => grid(&raw.grid, raw.label.as_deref(), most)?,
        (true, true) => bail!("it has neither `rows` nor a `grid`"),
        (false, false) => bail!("it has both `rows` and a `grid`; a table has one of them"),
    };
    let mut names = BTreeSet::new();
    for row in &rows {
        ensure!(!row.item.name.is_empty(), "a row has no name");
        ensure!(
            names.insert(row.item.name.clone()),
            "two rows are called `{}`",
            row.item.name
        );
    }
    let known = |name: &String| names.contains(name);
    if let Some(wrong) = raw.published.keys().find(|name| !known(name)) {
        bail!(
            "published: no row is called `{wrong}`; rows: {}",
            list(&names)
        );
    }
    let against = all.against.as_ref().map(|of| {
        rows.iter()
            .position(|r| r.item.name == *of)
            .with_context(|| format!("against: no row is called `{of}`; rows: {}", list(&names)))
    });
    let columns_ = columns(&all.columns, &all)?;
    let lead = columns(&all.lead, &all)?;
    let across = if raw.across.is_empty() {
        vec![RawItem::default()]
    } else {
        raw.across.clone()
    };
    let count = rows.len().saturating_mul(across.len());
    let mut runs = Vec::new();
    let mut left = most;
    for row in &rows {
        let mut of_row = Vec::new();
        for other in &across {
            let seeds = other
                .seeds
                .as_ref()
                .or(row.item.seeds.as_ref())
                .or(all.seeds.as_ref());
            let seeds = seeds_of(seeds.unwrap_or(&Value::from(1)))?;
            ensure!(
                count <= most && seeds.len() <= left,
                "the study has more than {MAX_RUNS} runs"
            );
            left -= seeds.len();
            of_row.push(runs_of(&all, defaults, row, other, &seeds, folder)?);
        }
        runs.push(of_row);
    }
    let item = |raw: &RawItem| Item {
        name: raw.name.clone(),
        published: raw
            .published
            .as_ref()
            .or(all.published.get(&raw.name))
            .map(text),
        text: raw
            .text
            .iter()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect(),
    };
    Ok(Table {
        title: all.title.clone().unwrap_or(name.clone()),
        name,
        rows: rows.iter().map(|row| item(&row.item)).collect(),
        across: across.iter().map(item).collect(),
        lead,
        columns: columns_,
        against: against.transpose()?,
        published_spread: raw
            .published_spread
            .or(defaults.published_spread)
            .unwrap_or(0.0),
        into: all.into.as_ref().map(|into| folder.join(into)),
        runs,
    })
}

fn list(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(|n| format!("`{n}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// One run for each seed.
fn runs_of(
    all: &RawTable,
    defaults: &RawTable,
    row: &Wanted,
    other: &RawItem,
    seeds: &[u64],
    folder: &Path,
) -> Result<Vec<(u64, RunSpec)>> {
    let mut base = other
        .base
        .clone()
        .or(row.item.base.clone())
        .or(all.base.clone());
    let mut set = Vec::new();
    for values in [&defaults.set, &all.set, &row.item.set] {
        set.extend(assignments(values)?);
    }
    for (path, value) in &row.set {
        match (path.as_str(), value) {
            ("base", Value::String(file)) => base = Some(file.clone()),
            _ => set.push(assignment(path, value)?),
        }
    }
    set.extend(assignments(&other.set)?);
    let base = base
        .with_context(|| format!("row `{}`: no `base` says which spec it runs", row.item.name))?;
    let run = |seed: &u64| {
        let mut set = set.clone();
        set.push(format!("seed={seed}"));
        let run = RunSpec {
            base: folder.join(&base),
            set,
            alone: all.alone.unwrap_or(false),
        };
        (*seed, run)
    };
    Ok(seeds.iter().map(run).collect())
}

fn assignments(values: &Mapping) -> Result<Vec<String>> {
    let one = |(path, value): (&Value, &Value)| {
        let path = path
            .as_str()
            .with_context(|| format!("set: `{}` is no path", text(path)))?;
        assignment(path, value)
    };
    values.iter().map(one).collect()
}

/// `path=value`; JSON is YAML on one line.
fn assignment(path: &str, value: &Value) -> Result<String> {
    ensure!(path != "seed", "set: seeds stand in `seeds`");
    let value =
        serde_json::to_string(value).with_context(|| format!("set: the value of `{path}`"))?;
    Ok(format!("{path}={value}"))
}

/// Every combination of a grid's values, the last path going round fastest.
fn grid(grid: &Mapping, label: Option<&str>, most: usize) -> Result<Vec<Wanted>> {
    let mut rows = vec![Wanted::default()];
    let mut names: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for (path, values) in grid {
        let path = path.as_str().context("grid: a path is a text")?;
        let values: Vec<(Option<String>, Value)> = match values {
            Value::Sequence(values) => values.iter().map(|v| (None, v.clone())).collect(),
            Value::Mapping(values) => values
                .iter()
                .map(|(name, v)| (Some(text(name)), v.clone()))
                .collect(),
            other => bail!(
                "grid.{path}: must be a list of values, or values by name, got {}",
                text(other)
            ),
        };
        ensure!(!values.is_empty(), "grid.{path}: there is no value");
        ensure!(
            rows.len().saturating_mul(values.len()) <= most,
            "the study has more than {MAX_RUNS} runs"
        );
        let (mut next, mut next_names) = (Vec::new(), Vec::new());
        for (row, named) in rows.iter().zip(&names) {
            for (name, value) in &values {
                let mut row = row.clone();
                row.set.push((path.into(), value.clone()));
                let usual = || match (name, path.rsplit('.').next()) {
                    (Some(name), _) => name.clone(),
                    (None, Some(last)) if path != "base" => format!("{last} = {}", text(value)),
                    _ => text(value),
                };
                let mut named = named.clone();
                named.push((
                    path.into(),
                    match label {
                        Some(_) => name.clone().unwrap_or(text(value)),
                        None => usual(),
                    },
                ));
                next.push(row);
                next_names.push(named);
            }
        }
        (rows, names) = (next, next_names);
    }
    for (row, named) in rows.iter_mut().zip(names) {
        row.item.name = match label {
            Some(label) => named.iter().fold(label.to_string(), |label, (path, name)| {
                label.replace(&format!("{{{path}}}"), name)
            }),
            None => named
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
                .join(", "),
        };
    }
    Ok(rows)
}

/// `3`, `1-10`, `[1, 5, 7]`
fn seeds_of(value: &Value) -> Result<Vec<u64>> {
    let wrong = || {
        format!(
            "seeds: must be a number, a range such as 1-10, or a list of numbers, got {}",
            text(value)
        )
    };
    let seeds: Vec<u64> = match value {
        Value::Number(n) => vec![n.as_u64().with_context(wrong)?],
        Value::String(range) => {
            let (first, last) = range.split_once('-').with_context(wrong)?;
            let number = |text: &str| text.trim().parse::<u64>().ok();
            let (first, last) = number(first).zip(number(last)).with_context(wrong)?;
            ensure!(first <= last && last - first < MAX_RUNS as u64, wrong());
            (first..=last).collect()
        }
        Value::Sequence(all) => all
            .iter()
            .map(|n| n.as_u64().with_context(wrong))
            .collect::<Result<_>>()?,
        _ => bail!(wrong()),
    };
    let different: BTreeSet<&u64> = seeds.iter().collect();
    ensure!(
        !seeds.is_empty() && different.len() == seeds.len(),
        "seeds: must be at least one, and none twice, got {}",
        text(value)
    );
    Ok(seeds)
}

/// A value as it stands in YAML, on one line.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Study> {
        Study::parse(text, Path::new("specs"))
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
            ("name: s\ntables: []\n".into(), "tables: there is none"),
            (
                "name: ../s\ntables: [{ name: t }]\n".into(),
                "letters, digits",
            ),
            (
                "name: s\ntables: [{ nmae: t }]\n".into(),
                "unknown field `nmae`",
            ),
            (table(""), "table `t`: it has neither `rows` nor a `grid`"),
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
                "against: no row is called `b`; rows: `a`",
            ),
            (
                table("  rows: [{ name: a }]\n  published: { b: 1 }\n"),
                "published: no row is called `b`",
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
                "seeds stand in `seeds`",
            ),
            (
                table(
                    "  grid: { x: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], y: [1, 2] }\n  seeds: 1-99999\n",
                ),
                "more than 100000 runs",
            ),
            (
                table("  grid: { x: 3 }\n"),
                "grid.x: must be a list of values",
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
}
