//! A JSON Schema as a table for people.

use super::capital;
use serde_json::Value as Json;
use std::fmt::Write;

/// Text as it can stand in a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// What a schema says about itself.
pub(super) fn doc(schema: &Json) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// A table of everything that can stand in a mapping of this schema.
pub(super) fn fields(schema: &Json) -> String {
    let mut table = Table::default();
    table.mapping("", schema);
    table.out
}

#[derive(Default)]
struct Table {
    out: String,
    /// What has its rows already, and where: the same fields are explained once.
    known: Vec<(Json, String)>,
}

impl Table {
    fn row(&mut self, field: &str, value: &str, default: &str, meaning: &str) {
        if self.out.is_empty() {
            self.out = "| field | value | default | meaning |\n|---|---|---|---|\n".into();
        }
        let _ = writeln!(
            self.out,
            "| {field} | {value} | {default} | {} |",
            cell(meaning)
        );
    }

    /// The fields of a mapping, those first that must be given.
    fn mapping(&mut self, path: &str, schema: &Json) {
        let required = |name: &str| {
            let listed = schema["required"].as_array().into_iter().flatten();
            listed.into_iter().any(|r| r == name)
        };
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        for must in [true, false] {
            for (name, field) in properties.iter().filter(|(n, _)| required(n) == must) {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                let default = match (&field["default"], must) {
                    (_, true) => "must be given".into(),
                    (Json::Null, _) => "none".into(),
                    (value, _) => format!("`{}`", yaml(value)),
                };
                self.field(&path, field, &kind(field), &default, doc(field));
            }
        }
    }

    /// One field, and below it what can stand in it, unless that is explained already.
    fn field(&mut self, path: &str, schema: &Json, value: &str, default: &str, meaning: &str) {
        let bare = bare(schema);
        let before = self.known.iter().find(|(known, _)| *known == bare);
        if let Some((_, first)) = before {
            let meaning = format!("{meaning} As `{first}`.");
            self.row(&format!("`{path}`"), value, default, meaning.trim());
            return;
        }
        self.row(&format!("`{path}`"), value, default, meaning);
        let rows = self.out.len();
        self.inside(path, schema);
        if self.out.len() > rows {
            self.known.push((bare, path.to_string()));
        }
    }

    fn inside(&mut self, path: &str, schema: &Json) {
        self.mapping(path, schema);
        for choice in choices(schema) {
            match single(choice) {
                Some((name, value)) => {
                    let plain = choices(schema).any(|c| c["const"] == *name);
                    let path = format!("{path}.{name}");
                    let or_name = if plain { ", or its name alone" } else { "" };
                    let of_value = format!("{}{or_name}", kind(value));
                    self.field(&path, value, &of_value, "", doc(choice));
                }
                None if choice.get("const").is_some() => {
                    let name = text(&choice["const"]);
                    let mapping = choices(schema)
                        .filter_map(single)
                        .any(|(other, _)| *other == name);
                    // a name that may also carry settings has its row there
                    if !mapping && !doc(choice).is_empty() {
                        self.row(&format!("`{path}: {name}`"), "", "", doc(choice));
                    }
                }
                None => self.inside(path, choice),
            }
        }
        if schema["items"].is_object() {
            self.inside(&format!("{path}[]"), &schema["items"]);
        }
    }
}

/// The range and the default of a field, in words; nothing if it has neither.
pub(crate) fn explain(field: &Json) -> String {
    let range = Some(range(field)).filter(|range| !range.is_empty());
    let default = field.get("default").filter(|default| !default.is_null());
    let default = default.map(|default| format!("default: {}", yaml(default)));
    let both: Vec<String> = range.into_iter().chain(default).collect();
    capital(&both.join("; "))
}

/// The alternatives of a schema.
pub(crate) fn choices(schema: &Json) -> impl Iterator<Item = &Json> {
    let listed = |key: &str| schema[key].as_array().into_iter().flatten();
    listed("oneOf").chain(listed("anyOf"))
}

/// The name and value of an alternative such as `{ dirichlet: .. }`.
pub(crate) fn single(choice: &Json) -> Option<(&String, &Json)> {
    let properties = choice["properties"].as_object()?;
    let required = choice["required"].as_array()?;
    match (properties.len(), required.len()) {
        (1, 1) => properties.iter().next(),
        _ => None,
    }
}

/// A schema without what belongs to one use of it only.
fn bare(schema: &Json) -> Json {
    let mut bare = schema.clone();
    if let Some(map) = bare.as_object_mut() {
        map.remove("description");
        map.remove("default");
        // a field that can be left out explains the same as one that cannot
        if let Some(Json::Array(types)) = map.get_mut("type") {
            types.retain(|t| t != "null");
            if let [one] = &types[..] {
                let one = one.clone();
                map.insert("type".into(), one);
            }
        }
    }
    bare
}

/// What kind of value this is, with its range.
fn kind(schema: &Json) -> String {
    if let Some(value) = schema.get("const") {
        return format!("`{}`", text(value));
    }
    if choices(schema).next().is_some() {
        let mut names: Vec<String> = Vec::new();
        for choice in choices(schema) {
            let name = match single(choice) {
                Some((name, _)) => format!("`{name}`"),
                None => kind(choice),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let plain = names.iter().all(|name| name.starts_with('`'));
        return names.join(if plain { ", " } else { " or " });
    }
    let types = match &schema["type"] {
        Json::Array(all) => all.iter().filter_map(Json::as_str).collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    let words: Vec<String> = types
        .into_iter()
        .filter(|t| *t != "null")
        .map(|t| match t {
            "integer" => "whole number".into(),
            "string" => "text".into(),
            "boolean" => "`true` or `false`".into(),
            "array" => match kind(&schema["items"]) {
                of if of.is_empty() => "list".into(),
                of => format!("list of: {of}"),
            },
            "object" => "mapping".into(),
            other => other.to_string(),
        })
        .collect();
    let words = words.join(" or ");
    match range(schema) {
        range if range.is_empty() => words,
        range => format!("{words}, {range}"),
    }
}

/// `1 to 100`, `above 0 and below 1`, or nothing.
fn range(schema: &Json) -> String {
    let number = |key: &str| schema.get(key).map(text);
    let low = number("minimum").map(|n| format!("at least {n}"));
    let low = low.or(number("exclusiveMinimum").map(|n| format!("above {n}")));
    let high = number("maximum").map(|n| format!("at most {n}"));
    let high = high.or(number("exclusiveMaximum").map(|n| format!("below {n}")));
    let both: Vec<_> = low.into_iter().chain(high).collect();
    both.join(" and ")
}

/// A value as it stands in a spec, on one line, without what is not given.
pub(crate) fn yaml(value: &Json) -> String {
    match value {
        Json::Object(map) => {
            let given = map.iter().filter(|(_, v)| !v.is_null());
            let fields: Vec<_> = given.map(|(k, v)| format!("{k}: {}", yaml(v))).collect();
            format!("{{ {} }}", fields.join(", ")).replace("{  }", "{}")
        }
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(yaml).collect();
            format!("[{}]", items.join(", "))
        }
        other => text(other),
    }
}

/// A scalar without quotes; a whole number without `.0`.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => {
            let text = other.to_string();
            text.strip_suffix(".0").map_or(text.clone(), str::to_string)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exact_a_table_explains_every_field_once() {
        let training = json!({
            "type": "object", "description": "Training.", "default": { "batch": 32, "clip": null },
            "properties": { "batch": { "type": "integer", "minimum": 1, "default": 32, "description": "Examples | mini-batch." } },
        });
        let split = json!({ "description": "Who has what.", "oneOf": [
            { "const": "iid", "description": "At random." },
            { "type": "object", "required": ["dirichlet"], "description": "By class.", "properties": { "dirichlet": {
                "type": "object", "required": ["alpha"],
                "properties": { "alpha": { "type": "number", "exclusiveMinimum": 0.0, "description": "How even." } },
            } } },
        ] });
        let schema = json!({ "required": ["split"], "properties": {
            "a": training, "b": training, "list": { "type": ["array", "null"], "items": { "type": "number" } }, "split": split,
        } });
        insta::assert_snapshot!(fields(&schema), @r"
        | field | value | default | meaning |
        |---|---|---|---|
        | `split` | `iid`, `dirichlet` | must be given | Who has what. |
        | `split: iid` |  |  | At random. |
        | `split.dirichlet` | mapping |  | By class. |
        | `split.dirichlet.alpha` | number, above 0 | must be given | How even. |
        | `a` | mapping | `{ batch: 32 }` | Training. |
        | `a.batch` | whole number, at least 1 | `32` | Examples \| mini-batch. |
        | `b` | mapping | `{ batch: 32 }` | Training. As `a`. |
        | `list` | list of: number | none |  |
        ");
    }
}
