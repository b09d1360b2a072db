//! Shorthands for values: grids, and ranges of seeds.

use crate::MAX_RUNS;
use crate::file::RawItem;
use crate::model::Position;
use crate::seeds::text;
use fl_core::settings::Step;
use serde_yaml::{Mapping, Value};

/// A mistake: the path of a value, and its correction.
pub(crate) type At = (Vec<Step>, String);

/// Returns a step to `name`.
pub(crate) fn key(name: &str) -> Step {
    Step::Key(name.into())
}

/// A row before its runs are expanded.
#[derive(Clone)]
pub(crate) struct PlannedRow {
    pub item: RawItem,
    /// The values from a grid, in its order.
    pub set: Vec<(String, Value)>,
    /// Its position in the grid.
    pub places: Vec<Position>,
}

/// Returns every combination of a grid's values; the last path varies fastest. Mistakes have their
/// path below the table, and a wrong path of the grid is left out.
pub(crate) fn grid(
    grid: &Mapping,
    label: Option<&str>,
    most: usize,
    wrong: &mut Vec<At>,
) -> Vec<PlannedRow> {
    for place in label.iter().flat_map(|label| label.split('{').skip(1)) {
        let path = place.split('}').next().unwrap_or_default();
        if !grid.contains_key(path) {
            let text = format!("the grid has no path `{path}`");
            wrong.push((vec![key("label")], text));
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
        let mut wrong = |text: String| wrong.push((vec![key("grid"), key(path)], text));
        let values: Vec<(Option<String>, Value)> = match values {
            Value::Sequence(values) => values.iter().map(|v| (None, v.clone())).collect(),
            Value::Mapping(values) => values
                .iter()
                .map(|(name, v)| (Some(text(name)), v.clone()))
                .collect(),
            other => {
                wrong(format!(
                    "must be a list of values, or values by name, got {}",
                    text(other)
                ));
                continue;
            }
        };
        if values.is_empty() {
            wrong("there is no value; give at least one".into());
            continue;
        }
        if rows.len().saturating_mul(values.len()) > most {
            wrong(format!("the study has more than {MAX_RUNS} runs"));
            return Vec::new();
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
    rows
}
