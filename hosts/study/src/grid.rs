//! Shorthands for values: grids, and ranges of seeds.

use crate::MAX_RUNS;
use crate::file::RawItem;
use crate::model::Position;
use fl_core::settings::Step;
use fl_report::inline;
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
        item: RawItem::named(label.unwrap_or("")),
        set: Vec::new(),
        places: Vec::new(),
    }];
    for (path, values) in grid {
        let path = path.as_str().unwrap_or_default();
        let mut wrong = |text: String| wrong.push((vec![key("grid"), key(path)], text));
        let values: Vec<(Option<String>, Value)> = match values {
            Value::Sequence(values) => values.iter().map(|v| (None, v.clone())).collect(),
            Value::Mapping(values) => values
                .iter()
                .map(|(name, v)| (Some(inline(name)), v.clone()))
                .collect(),
            other => {
                wrong(format!(
                    "must be a list of values, or values by name, got {}",
                    inline(other)
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
        let mut next = Vec::new();
        for row in &rows {
            for (name, value) in &values {
                let mut row = row.clone();
                row.set.push((path.into(), value.clone()));
                let plain = name.clone().unwrap_or(inline(value));
                // a part has its name without `use`
                let usual = match (name, path.rsplit('.').next()) {
                    (None, Some(last)) if path != "base" && last != "use" => {
                        format!("{last} = {plain}")
                    }
                    _ => plain.clone(),
                };
                let before = &row.item.name;
                row.item.name = match label {
                    Some(_) => before.replace(&format!("{{{path}}}"), &plain),
                    None if row.places.is_empty() => usual.clone(),
                    None => format!("{before}, {usual}"),
                };
                row.places.push(Position {
                    path: path.into(),
                    name: usual,
                    number: value.as_f64(),
                });
                next.push(row);
            }
        }
        rows = next;
    }
    rows
}
