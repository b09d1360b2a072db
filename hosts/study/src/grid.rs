//! Shorthands for values: grids, and ranges of seeds.

use crate::MAX_RUNS;
use crate::file::RawItem;
use crate::model::Position;
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeSet;

/// A row before its runs are expanded.
#[derive(Clone, Default)]
pub(crate) struct PlannedRow {
    pub item: RawItem,
    /// The values from a grid, in its order.
    pub set: Vec<(String, Value)>,
    /// Its position in the grid.
    pub places: Vec<Position>,
}

/// Returns every combination of a grid's values; the last path varies fastest.
pub(crate) fn grid(grid: &Mapping, label: Option<&str>, most: usize) -> Result<Vec<PlannedRow>> {
    for place in label.iter().flat_map(|label| label.split('{').skip(1)) {
        let path = place.split('}').next().unwrap_or_default();
        ensure!(
            grid.contains_key(path),
            "label: the grid has no path `{path}`"
        );
    }
    let mut rows = vec![PlannedRow::default()];
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
                row.places.push(Position {
                    path: path.into(),
                    name: usual(),
                    number: value.as_f64(),
                });
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

/// Parses `3`, `1-10`, `[1, 5, 7]`.
pub(crate) fn seeds_of(value: &Value) -> Result<Vec<u64>> {
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

/// Formats a value as YAML on one line.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}
