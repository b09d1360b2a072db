//! Shorthands for values: grids, and ranges of seeds.

use crate::MAX_RUNS;
use crate::expand::{At, PlannedRow, key};
use crate::file::RawItem;
use crate::model::Position;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeSet;

/// Returns every combination of a grid's values; the last path varies fastest. An error has its
/// path below the table.
pub(crate) fn grid(
    grid: &Mapping,
    label: Option<&str>,
    most: usize,
) -> Result<Vec<PlannedRow>, At> {
    for place in label.iter().flat_map(|label| label.split('{').skip(1)) {
        let path = place.split('}').next().unwrap_or_default();
        if !grid.contains_key(path) {
            let text = format!("the grid has no path `{path}`");
            return Err((vec![key("label")], text));
        }
    }
    let mut rows = vec![PlannedRow {
        item: RawItem::named(""),
        set: Vec::new(),
        places: Vec::new(),
    }];
    let mut names: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for (path, values) in grid {
        let path = path.as_str().unwrap_or_default();
        let wrong = |text: String| Err((vec![key("grid"), key(path)], text));
        let values: Vec<(Option<String>, Value)> = match values {
            Value::Sequence(values) => values.iter().map(|v| (None, v.clone())).collect(),
            Value::Mapping(values) => values
                .iter()
                .map(|(name, v)| (Some(text(name)), v.clone()))
                .collect(),
            other => {
                return wrong(format!(
                    "must be a list of values, or values by name, got {}",
                    text(other)
                ));
            }
        };
        if values.is_empty() {
            return wrong("there is no value; give at least one".into());
        }
        if rows.len().saturating_mul(values.len()) > most {
            return wrong(format!("the study has more than {MAX_RUNS} runs"));
        }
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

/// Parses `3`, `1-10`, `[1, 5, 7]`; an error says what would be right.
pub(crate) fn seeds_of(value: &Value) -> Result<Vec<u64>, String> {
    let wrong = || {
        format!(
            "must be a number, a range such as 1-10, or a list of numbers, got {}",
            text(value)
        )
    };
    let seeds: Vec<u64> = match value {
        Value::Number(n) => vec![n.as_u64().ok_or_else(wrong)?],
        Value::String(range) => {
            let (first, last) = range.split_once('-').ok_or_else(wrong)?;
            let number = |text: &str| text.trim().parse::<u64>().ok();
            let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last || last - first >= MAX_RUNS as u64 {
                return Err(wrong());
            }
            (first..=last).collect()
        }
        Value::Sequence(all) => {
            let seeds = all.iter().map(Value::as_u64);
            seeds.collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let different: BTreeSet<&u64> = seeds.iter().collect();
    match !seeds.is_empty() && different.len() == seeds.len() {
        true => Ok(seeds),
        false => Err(format!(
            "must be at least one seed, and none twice, got {}",
            text(value)
        )),
    }
}

/// Formats a value as YAML on one line.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}
