//! [`Study`]: from a study's text to its runs.

use crate::columns::{ColumnKind, columns};
use crate::file::{File, RawColumn, RawItem, RawTable};
use crate::grid::{PlannedRow, grid, seeds_of, text};
use crate::model::{Item, Position, RunSpec, Study, Table};
use crate::plots::plots;
use crate::{MAX_BYTES, MAX_RUNS};
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeSet;
use std::path::Path;

impl Study {
    /// Reads a study's file.
    ///
    /// # Errors
    /// If it cannot be read, or is no study; names the mistake and its place.
    pub fn read(path: &Path) -> Result<Self> {
        use std::io::Read;
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, parent)
    }

    /// Parses a study's text; its files are relative to `folder`.
    ///
    /// # Errors
    /// If it is no study; names the mistake and its place.
    pub fn parse(text: &str, folder: &Path) -> Result<Self> {
        ensure!(
            text.len() <= MAX_BYTES,
            "the file has more than {MAX_BYTES} bytes"
        );
        let file: File = serde_yaml::from_str(text).map_err(|error| {
            let read = serde_yaml::from_str::<Value>(text);
            match read.is_ok_and(|value| value.get("protocol").is_some()) {
                true => {
                    anyhow::anyhow!("this is a spec, which `fl run` runs, and no study: {error}")
                }
                false => error.into(),
            }
        })?;
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
    if all.plots.is_empty() {
        all.plots = defaults.plots.clone();
    }

    let rows = match (raw.rows.is_empty(), raw.grid.is_empty()) {
        (false, true) => raw
            .rows
            .iter()
            .map(|item| PlannedRow {
                item: item.clone(),
                ..PlannedRow::default()
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
    let mut columns_of = BTreeSet::new();
    for other in &raw.across {
        ensure!(
            columns_of.insert(&other.name),
            "two of `across` are called `{}`",
            other.name
        );
        let set = other.set.keys().filter_map(Value::as_str);
        if let Some(path) = { set }.find(|path| raw.grid.contains_key(*path)) {
            bail!(
                "across `{}` sets `{path}`, which the grid sets too",
                other.name
            );
        }
    }
    let texts = || rows.iter().map(|row| &row.item).chain(&raw.across);
    if let Some(item) = texts().find(|item| item.published.as_ref().is_some_and(Value::is_mapping))
    {
        bail!("published of `{}`: must be a number or a text", item.name);
    }
    for text in texts().map(|item| &item.name).chain(raw.title.as_ref()) {
        ensure!(
            !text.contains(char::is_control),
            "{text:?} has control characters, which a table cannot show"
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
    for column in columns_.iter().chain(&lead) {
        if let ColumnKind::Text(name) = &column.what {
            let there = texts().any(|item| item.text.contains_key(name));
            ensure!(
                there,
                "column `{}`: no row has a text `{name}`",
                column.title
            );
        }
    }
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
    let item = |raw: &RawItem, grid: &[Position]| Item {
        grid: grid.to_vec(),
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
    let items: Vec<Item> = rows
        .iter()
        .map(|row| item(&row.item, &row.places))
        .collect();
    Ok(Table {
        title: all.title.clone().unwrap_or(name.clone()),
        name,
        plots: plots(&all, &items)?,
        rows: items,
        across: across.iter().map(|raw| item(raw, &[])).collect(),
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

/// Returns one run for each seed.
fn runs_of(
    all: &RawTable,
    defaults: &RawTable,
    row: &PlannedRow,
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

/// Formats `path=value`; JSON is YAML on one line.
fn assignment(path: &str, value: &Value) -> Result<String> {
    ensure!(path != "seed", "set: seeds stand in `seeds`");
    let value =
        serde_json::to_string(value).with_context(|| format!("set: the value of `{path}`"))?;
    Ok(format!("{path}={value}"))
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
