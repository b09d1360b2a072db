//! The input of a case as lines of text, for the reviewer of its answer.

use crate::compare::shortened;
use crate::file::Case;
use fl_core::settings::to_json;
use serde_json::{Map, Value as Json};

/// The most rows of a list that are shown.
const ROWS: usize = 12;
/// The most characters of a value.
const WIDE: usize = 48;

/// Returns what the case gives to its part or run: part, settings and seed, and each input. Lists
/// of mappings, such as the messages of clients, are small tables.
pub(crate) fn inputs(case: &Case) -> Vec<String> {
    let mut lines = Vec::new();
    let named = [("part", &case.part), ("run", &case.run)];
    for (what, name) in named {
        lines.extend(name.iter().map(|name| format!("{what}: {name}")));
    }
    let settings = case.settings.as_ref().map(to_json);
    lines.extend(settings.map(|settings| format!("settings: {}", brief(&settings))));
    lines.extend(case.changes().iter().map(|set| format!("set: {set}")));
    if case.seed > 0 {
        lines.push(format!("seed: {}", case.seed));
    }
    let all = case.inputs();
    for (at, input) in all.iter().enumerate() {
        if all.len() > 1 {
            lines.push(format!("round {}", at + 1));
        }
        for (key, value) in input.as_object().into_iter().flatten() {
            field(key, value, &mut lines);
        }
    }
    lines
}

fn field(key: &str, value: &Json, lines: &mut Vec<String>) {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<&Map<String, Json>> = items.iter().filter_map(Json::as_object).collect();
    if !rows.is_empty() && rows.len() == items.len() {
        lines.extend(table(key, &rows))
    } else {
        lines.push(format!("{key}: {}", brief(value)))
    }
}

/// A table with a column for each key; the keys of a mapping in a row are
/// columns of their own, at the right.
fn table(title: &str, rows: &[&Map<String, Json>]) -> Vec<String> {
    let (mut head, mut tensors, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows.iter().take(ROWS) {
        let mut of_row: Vec<(String, String)> = Vec::new();
        for (key, value) in *row {
            let (below, of_key) = match value {
                Json::Object(below) => (&mut tensors, below.iter().collect()),
                value => (&mut head, vec![(key, value)]),
            };
            for (key, value) in of_key {
                if !below.contains(key) {
                    below.push(key.clone());
                }
                of_row.push((key.clone(), brief(value)));
            }
        }
        cells.push(of_row);
    }
    head.extend(tensors);
    let cell = |row: &[(String, String)], key: &String| {
        let found = row.iter().find(|(of, _)| of == key);
        found.map_or(String::new(), |(_, text)| text.clone())
    };
    let mut grid = vec![head.clone()];
    grid.extend(
        cells
            .iter()
            .map(|row| head.iter().map(|key| cell(row, key)).collect()),
    );
    let wide = |at: usize| {
        let cells = grid.iter().map(|row| row[at].chars().count());
        cells.fold(0, usize::max)
    };
    let wide: Vec<usize> = (0..head.len()).map(wide).collect();
    let line = |row: &Vec<String>| {
        let padded = row
            .iter()
            .zip(&wide)
            .map(|(text, wide)| format!("{text:<wide$}"));
        let padded: Vec<String> = padded.collect();
        format!("  {}", padded.join("  ")).trim_end().to_string()
    };
    let mut lines = vec![format!("{title}:")];
    lines.extend(grid.iter().map(line));
    if rows.len() > ROWS {
        lines.push(format!("  and {} more", rows.len() - ROWS));
    }
    lines
}

fn brief(value: &Json) -> String {
    shortened(&value.to_string(), WIDE, "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::read_yaml;

    #[test]
    fn a_reviewer_sees_part_settings_weights_and_messages() {
        let case: Case = read_yaml(
            "name: a
part: aggregator trimmed-mean
settings: { trim: 0.2 }
seed: 7
input:
  messages:
    - { from: 0, weight: 2, tensors: { w: [1, 2.5] } }
    - { from: 11, tensors: { w: [3, 4], b: [0] } }
  sent: { w: [0, 0] }",
        )
        .unwrap();
        assert_eq!(
            inputs(&case).join("\n"),
            "part: aggregator trimmed-mean
settings: {\"trim\":0.2}
seed: 7
messages:
  from  weight  w        b
  0     2       [1,2.5]
  11            [3,4]    [0]
sent: {\"w\":[0,0]}"
        );
    }

    #[test]
    fn long_inputs_are_cut_and_say_so() {
        let rows = (0..20)
            .map(|id| format!("{{ id: {id} }}"))
            .collect::<Vec<_>>();
        let case = format!(
            "name: a\npart: selector all\ninput: {{ clients: [{}] }}",
            rows.join(", ")
        );
        let lines = inputs(&read_yaml::<Case>(&case).unwrap());
        assert_eq!(lines.last().unwrap(), "  and 8 more");
        assert_eq!(lines.len(), 1 + 2 + ROWS + 1);
    }
}
