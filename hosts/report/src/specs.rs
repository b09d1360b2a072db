//! Differences between resolved specs.

use crate::text::inline;
use serde_yaml::Value;

/// How a disclosure of the clients' own models begins.
const OWN_MODELS: &str = "results show the clients' own models";

/// Returns which settings of the protocol hide the clients' own models, if these are among the
/// disclosures `seen` that have no price.
pub fn shown_models<'s>(spec: &Value, mut seen: impl Iterator<Item = &'s str>) -> Option<String> {
    let on = |name: &&str| {
        let value = spec.get("protocol").and_then(|of| of.get(*name));
        value.and_then(Value::as_bool) == Some(true)
    };
    let on: Vec<&str> = ["evaluate-clients", "keep-clients"]
        .into_iter()
        .filter(on)
        .collect();
    if on.is_empty() || !seen.any(|what| what.starts_with(OWN_MODELS)) {
        return None;
    }
    let hides: Vec<String> = on.iter().map(|name| format!("`{name}: false`")).collect();
    let verb = if on.len() == 1 { "hides" } else { "hide" };
    let hides = hides.join(" and ");
    Some(format!(
        "{hides} of the protocol {verb} the clients' own models"
    ))
}

/// One differing value: its path, and the value in each spec; `None` if it is missing there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub path: String,
    pub values: Vec<Option<String>>,
}

/// Returns all differences between these specs, in the order of the first spec that has each.
pub(crate) fn differences(specs: &[&Value]) -> Vec<Difference> {
    let mut all = Vec::new();
    walk(
        "",
        &specs.iter().map(|s| Some(*s)).collect::<Vec<_>>(),
        &mut all,
    );
    all
}

fn walk(path: &str, values: &[Option<&Value>], all: &mut Vec<Difference>) {
    if values.windows(2).all(|pair| pair[0] == pair[1]) {
        return;
    }
    // a different part is one difference: its settings are no further ones
    let part = |v: &Option<&Value>| v.and_then(|v| v.get("use")).cloned();
    let one_part = values
        .windows(2)
        .all(|pair| part(&pair[0]) == part(&pair[1]));
    let maps: Option<Vec<_>> = values
        .iter()
        .map(|v| v.and_then(Value::as_mapping))
        .collect();
    let lists: Option<Vec<_>> = values
        .iter()
        .map(|v| v.and_then(Value::as_sequence))
        .collect();
    match (maps, lists) {
        (Some(maps), _) if one_part => {
            let mut keys: Vec<&Value> = Vec::new();
            for key in maps.iter().flat_map(|map| map.keys()) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            for key in keys {
                let below: Vec<_> = maps.iter().map(|map| map.get(key)).collect();
                let key = inline(key);
                let dot = if path.is_empty() { "" } else { "." };
                walk(&format!("{path}{dot}{key}"), &below, all);
            }
        }
        (_, Some(lists)) if lists.windows(2).all(|pair| pair[0].len() == pair[1].len()) => {
            for at in 0..lists.first().map_or(0, |list| list.len()) {
                let below: Vec<_> = lists.iter().map(|list| list.get(at)).collect();
                walk(&format!("{path}[{at}]"), &below, all);
            }
        }
        _ => all.push(Difference {
            path: path.into(),
            values: values.iter().map(|v| v.map(inline)).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_said_once_where_it_stands() {
        let read = |text| serde_yaml::from_str::<Value>(text).unwrap();
        let a = read(
            "{name: a, protocol: {use: p, rounds: 3}, parts: {agg: {use: mean}, nets: [{out: 1}, {out: 2}]}}",
        );
        let b = read(
            "{name: a, protocol: {use: p, rounds: 5, mu: 0.1}, parts: {agg: {use: median, by: rows}, nets: [{out: 1}, {out: 4}]}}",
        );
        let found = differences(&[&a, &b]);
        let one = |path: &str, of: [Option<&str>; 2]| Difference {
            path: path.into(),
            values: of.map(|v| v.map(String::from)).into(),
        };
        assert_eq!(
            found,
            [
                one("protocol.rounds", [Some("3"), Some("5")]),
                one("protocol.mu", [None, Some("0.1")]),
                one(
                    "parts.agg",
                    [Some("{use: mean}"), Some("{use: median, by: rows}")]
                ),
                one("parts.nets[1].out", [Some("2"), Some("4")]),
            ]
        );
        assert!(differences(&[&a, &a, &a]).is_empty());
    }

    #[test]
    fn exact_a_reader_is_told_what_hides_the_clients_models() {
        let told = |protocol: &str, seen: &str| {
            let spec = serde_yaml::from_str(&format!("protocol: {protocol}")).unwrap();
            shown_models(&spec, ["the server sees all", seen].into_iter())
        };
        let seen = "results show the clients' own models (`model`)";
        let evaluate = "{ use: fedkd, evaluate-clients: true, keep-clients: false }";
        assert_eq!(
            told(evaluate, seen).unwrap(),
            "`evaluate-clients: false` of the protocol hides the clients' own models"
        );
        let both = told("{ evaluate-clients: true, keep-clients: true }", seen).unwrap();
        assert!(
            both.starts_with("`evaluate-clients: false` and `keep-clients: false` "),
            "{both}"
        );
        assert_eq!(told(evaluate, "its training loss"), None);
        assert_eq!(told("{ use: solo }", seen), None);
    }
}
