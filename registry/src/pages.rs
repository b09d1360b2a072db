//! Pages made from what the parts and the schema say: every field of a spec, and an index of all parts.

use crate::catalogue::{Catalogue, example, takes};
use crate::sections::DataSection;
use fl_core::{PartDecl, Role};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt::Write;

const SPEC: &str = "\
# What a spec can say

Made by `fl schema --markdown`; a test holds it to the program. `specs/schema.json` says the same to editors: a first line
`# yaml-language-server: $schema=../schema.json` gives completion and hovers (the path is relative to the spec).

A name with a dot is a path, as `--set` takes it: `faults.on-nan` is `on-nan` in the mapping `faults`. `a: b` is a value in
place of a mapping, and `[]` is each element of a list. A field with a default can be left out; `none` means that nothing
stands in its place.
";

const PARTS: &str = "\
# Parts

Made by `fl list --markdown`; a test holds it to the program. `fl inspect NAME` shows one part with its settings,
[every field](../specs/README.md) has them all.
";

impl Catalogue {
    /// Every field of a spec, in Markdown: the page that stands at `specs/README.md`.
    pub fn spec_page<D: DataSection>(&self) -> String {
        let schema = self.schema::<D>();
        let mut out = SPEC.to_string();
        let mut top = schema.clone();
        for elsewhere in ["data", "protocol", "parts"] {
            let place = &mut top["properties"][elsewhere];
            let doc = place["description"].as_str().unwrap_or_default();
            *place = serde_json::json!({ "type": "object", "description": format!("{doc} See [below](#{elsewhere}).") });
        }
        out += "\n## Top level\n\n";
        out += &fields(&top);
        let data = &schema["properties"]["data"];
        let _ = write!(out, "\n## `data`\n\n{}\n\n{}", doc(data), fields(data));
        out += "\n## `protocol`\n\n`use` names one of these; what else stands there are its settings.\n";
        for part in self.of_role(Role::Protocol) {
            out += &section(part, &schema);
        }
        out += "\n## `parts`\n\n";
        out += "One key for each slot of the protocol; what stands there is a mapping with `use`, the name of a part whose role and messages \
                fit the slot, and that part's settings.\n\nA list of such mappings gives different parts to different clients: \
                every element but one says `clients` (`5`, `0-3`, or a list of such), and the one without it, if there is one, serves all others.\n";
        for role in Role::ALL.into_iter().filter(|r| *r != Role::Protocol) {
            for part in self.of_role(role) {
                out += &section(part, &schema);
            }
        }
        out
    }

    /// All parts by role and by paper, in Markdown: the page that stands at `plugins/PARTS.md`.
    pub fn parts_page(&self) -> String {
        let mut out = PARTS.to_string();
        let mut papers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for role in Role::ALL {
            let parts: Vec<_> = self.of_role(role).collect();
            if parts.is_empty() {
                continue;
            }
            let _ = write!(
                out,
                "\n## {}\n\n| part | messages | what it does | papers | crate |\n|---|---|---|---|---|\n",
                capital(role.name())
            );
            for part in parts {
                let about = (part.describe)();
                let cited = citations(&about.doc);
                let link = format!("[`{}`](../specs/README.md#{})", part.name, anchor(part));
                for paper in &cited {
                    let entry = papers.entry(paper.clone()).or_default();
                    entry.push(format!("{link} ({role})"));
                }
                let _ = writeln!(
                    out,
                    "| {link} | {} | {} | {} | {} |",
                    about.signature,
                    cell(&about.doc),
                    cited.join("; "),
                    origin(part, "")
                );
            }
        }
        out += "\n## By paper\n\nTitles and venues stand in the README of the part's crate.\n\n| paper | parts |\n|---|---|\n";
        for (paper, parts) in papers {
            let _ = writeln!(out, "| {paper} | {} |", parts.join(", "));
        }
        out
    }
}

/// What one part is, its slots if it is a protocol, and its settings.
fn section(part: &PartDecl, schema: &Json) -> String {
    let about = (part.describe)();
    let what = match about.signature.as_str() {
        "" => capital(&part.role.with_article()),
        signature => format!("{}, `{signature}`", capital(&part.role.with_article())),
    };
    let mut out = format!(
        "\n### {} `{}`\n\n{what}, from {}. {}\n\n",
        capital(part.role.name()),
        part.name,
        origin(part, "../plugins/"),
        about.doc
    );
    let key = format!("{}.{}", part.role.name().replace(' ', "-"), part.name);
    let mut own = schema["$defs"][&key].clone();
    if let Some(properties) = own["properties"].as_object_mut() {
        // the same for every part, and said once
        properties.remove("use");
        properties.remove("clients");
    }
    match own["properties"].as_object().is_some_and(Map::is_empty) {
        true => out += "It has no settings.\n",
        false => out += &fields(&own),
    }
    let slots = (part.role == Role::Protocol)
        .then(|| example(part))
        .flatten()
        .map(|protocol| protocol.slots());
    if let Some(slots) = slots.filter(|slots| !slots.is_empty()) {
        out += "\nWith the defaults its slots, under `parts:`, are\n\n| slot | takes | for |\n|---|---|---|\n";
        for slot in slots {
            let optional = if slot.optional { ", or is left empty" } else { "" };
            let _ = writeln!(
                out,
                "| `{}` | {}{optional} | {} |",
                slot.name,
                takes(&slot),
                cell(slot.doc)
            );
        }
    }
    out
}

/// The crate of a part, with a link if it is one of this workspace's.
fn origin(part: &PartDecl, plugins: &str) -> String {
    match part.origin.strip_prefix("fl-plugin-") {
        Some(folder) => format!("[`{folder}`]({plugins}{folder}/README.md)"),
        None => format!("`{}`", part.origin),
    }
}

/// Where [`section`]'s heading is found from another page.
fn anchor(part: &PartDecl) -> String {
    format!("{}-{}", part.role.name().replace(' ', "-"), part.name)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// Text as it can stand in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn doc(schema: &Json) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// A table of everything that can stand in a mapping of this schema.
fn fields(schema: &Json) -> String {
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
                self.field(&path, field, &default);
            }
        }
    }

    /// One field, and below it what can stand in it.
    fn field(&mut self, path: &str, schema: &Json, default: &str) {
        let bare = bare(schema);
        let before = self.known.iter().find(|(known, _)| *known == bare);
        let meaning = match before {
            Some((_, first)) => format!("{} As `{first}`.", doc(schema)),
            None => doc(schema).to_string(),
        };
        let known = before.is_some();
        self.row(&format!("`{path}`"), &kind(schema), default, meaning.trim());
        if known {
            return;
        }
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
                    self.row(&format!("`{path}`"), &of_value, "", doc(choice));
                    self.inside(&path, value);
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

/// The alternatives of a schema.
fn choices(schema: &Json) -> impl Iterator<Item = &Json> {
    let listed = |key: &str| schema[key].as_array().into_iter().flatten();
    listed("oneOf").chain(listed("anyOf"))
}

/// The name and value of an alternative such as `{ dirichlet: .. }`.
fn single(choice: &Json) -> Option<(&String, &Json)> {
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
fn yaml(value: &Json) -> String {
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

/// The papers that a text cites, as `Authors year`: `McMahan et al. 2017`, `Sun and Lyu 2020`, `Chen, Guestrin 2016`.
fn citations(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let year = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let is_year = matches!(year.parse::<u16>(), Ok(1900..=2099)) && year.len() == 4;
        let Some(authors) = is_year.then(|| authors(&words[..at])).flatten() else {
            continue;
        };
        let paper = format!("{authors} {year}");
        if !found.contains(&paper) {
            found.push(paper);
        }
    }
    found
}

/// The authors that these words end with.
fn authors(words: &[&str]) -> Option<String> {
    let surname = |word: &str| {
        word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphabetic)
    };
    if let [.., name, "et", "al."] = words {
        return Some(format!("{} et al.", name.trim_start_matches('(')));
    }
    let mut authors: Vec<&str> = Vec::new();
    for word in words.iter().rev() {
        let (name, opens) = (word.trim_start_matches('('), word.starts_with('('));
        let last = authors.is_empty();
        let fits = match name {
            "and" => !last,
            name => surname(if last { name } else { name.trim_end_matches(',') })
                && (last || name.ends_with(',') || authors[0] == "and"),
        };
        if !fits {
            break;
        }
        authors.insert(0, name);
        if opens {
            break;
        }
    }
    (!authors.is_empty()).then(|| authors.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exact_papers_are_found_however_they_are_cited() {
        let cited = |text| citations(text).join("; ");
        assert_eq!(
            cited("A mean (FedAvg; McMahan et al. 2017), and (Selective-FD, Shao et al. 2024)."),
            "McMahan et al. 2017; Shao et al. 2024"
        );
        assert_eq!(
            cited("Boosting (Chen, Guestrin 2016), as in Dwork, Rothblum and Vadhan 2010, (FedMD-NFDP, Sun and Lyu 2020)"),
            "Chen, Guestrin 2016; Dwork, Rothblum and Vadhan 2010; Sun and Lyu 2020"
        );
        assert_eq!(
            cited("Renyi accounting (Mironov 2017), of 2048 values in 2020; twice (Mironov 2017)"),
            "Mironov 2017"
        );
    }

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
