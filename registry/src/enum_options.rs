//! The words that a spec can choose between inside its sections and parts: splits, networks,
//! layers, optimisers. What is known of them stands in the JSON Schemas of the settings, which is
//! where a new one is found too.

use crate::catalogue::Catalogue;
use crate::sections::DataSection;
use fl_core::settings::{Field, Step, show_path};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// One word.
#[derive(Clone, Debug)]
pub struct Choice {
    /// As it stands in a spec.
    pub name: String,
    /// Where: `data.split`, or `net` of trainer `dfdx`.
    pub of: String,
    /// What it means.
    pub doc: String,
    /// What stands under it: settings, or one value without a name.
    pub fields: Vec<Field>,
}

impl Catalogue {
    /// Every word that can be chosen, in the data section or in the settings of a part; names of
    /// data sets are not among them.
    pub fn choices<D: DataSection>(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        let data = |path: &[Step]| format!("`data.{}`", show_path(path));
        walk(&D::schema(), &mut Vec::new(), &data, &mut all);
        for part in self.parts() {
            let of =
                |path: &[Step]| format!("`{}` of {} `{}`", show_path(path), part.role, part.name);
            walk(&(part.describe)().schema, &mut Vec::new(), &of, &mut all);
        }
        all
    }
}

fn walk(
    schema: &Json,
    path: &mut Vec<Step>,
    of: &dyn Fn(&[Step]) -> String,
    all: &mut Vec<Choice>,
) {
    let list = |key: &str| {
        schema
            .get(key)
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
    };
    let mut found: BTreeMap<&str, (&str, Option<&Json>)> = BTreeMap::new();
    for option in list("oneOf") {
        let doc = option["description"].as_str().unwrap_or_default();
        let properties = option["properties"].as_object();
        let keyed = properties.and_then(|all| all.iter().next().filter(|_| all.len() == 1));
        match (option["const"].as_str(), keyed) {
            (Some(word), _) => _ = found.entry(word).or_insert((doc, None)),
            (None, Some((word, inner))) => _ = found.insert(word, (doc, Some(inner))),
            _ => walk(option, path, of, all),
        }
    }
    let is_set = path.last() == Some(&Step::Key("set".into()));
    for (word, (doc, inner)) in found {
        if !is_set {
            all.push(Choice {
                name: word.into(),
                of: of(path),
                doc: doc.into(),
                fields: inner.map(fields).unwrap_or_default(),
            });
        }
        if let Some(inner) = inner {
            path.push(Step::Key(word.into()));
            walk(inner, path, of, all);
            path.pop();
        }
    }
    for inner in list("anyOf").chain(schema.get("items")) {
        walk(inner, path, of, all);
    }
    if let Some(additional) = schema
        .get("additionalProperties")
        .filter(|more| more.is_object())
    {
        walk(additional, path, of, all);
    }
    for (key, inner) in schema
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
    {
        path.push(Step::Key(key.clone()));
        walk(inner, path, of, all);
        path.pop();
    }
}

/// The settings that a schema describes.
fn fields(schema: &Json) -> Vec<Field> {
    let required = |key: &str| {
        let all = schema["required"].as_array();
        all.is_some_and(|all| all.iter().any(|name| name == key))
    };
    match schema["properties"].as_object() {
        Some(properties) => properties
            .iter()
            .map(|(name, inner)| field(name, inner, required(name)))
            .collect(),
        None => vec![field("(the value)", schema, true)],
    }
}

fn field(name: &str, schema: &Json, required: bool) -> Field {
    let kind = match &schema["type"] {
        Json::String(kind) => kind.clone(),
        Json::Array(kinds) => {
            let kinds = kinds
                .iter()
                .filter_map(Json::as_str)
                .filter(|kind| *kind != "null");
            kinds.collect::<Vec<_>>().join(" or ")
        }
        _ => {
            let words = schema["oneOf"].as_array().into_iter().flatten();
            let words: Vec<&str> = words
                .filter_map(|option| option["const"].as_str())
                .collect();
            match words.is_empty() {
                true => "see the schema".into(),
                false => format!("one of {}", words.join(", ")),
            }
        }
    };
    let value = |key: &str| schema.get(key).filter(|value| !value.is_null());
    let ends: Vec<String> = [
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ]
    .into_iter()
    .filter_map(|(key, word)| Some(format!("{word} {}", value(key)?)))
    .collect();
    let default = value("default").and_then(|value| serde_yaml::to_value(value).ok());
    Field {
        name: name.into(),
        doc: schema["description"].as_str().unwrap_or_default().into(),
        kind,
        default: match required {
            true => None,
            false => Some(default.unwrap_or_default()),
        },
        range: (!ends.is_empty()).then(|| ends.join(" and ")),
        schema: schema.clone(),
    }
}
