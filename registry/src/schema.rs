//! JSON Schema of a spec, for editors.

use crate::catalogue::{Catalogue, any_make, sample};
use crate::data_section::DataSection;
use crate::docs::table::explain;
use crate::sections::{Clients, StageSection, Top};
use fl_core::settings::{Field, Range, Setting, Settings, Value, ValueType, Word, to_json};
use fl_core::{PartDecl, Role, SlotSpec};
use serde_json::{Map, Number, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

impl Catalogue {
    /// JSON Schema (draft 2020-12) of a spec with every known part in it, keys sorted: for each
    /// protocol its slots with the parts that fit, and for each setting what it is for, its range
    /// and its default.
    pub fn schema<D: DataSection>(&self) -> Json {
        let mut defs = Map::new();
        let (mut protocols, mut parts, mut slots_of) = (Vec::new(), Vec::new(), Vec::new());
        for part in self.parts() {
            let name = def_name(part);
            let to = json!({ "$ref": format!("#/$defs/{name}") });
            let defined = definition(part);
            if part.role == Role::Protocol {
                protocols.push(to);
                slots_of.extend(self.slots_of(part));
            } else {
                parts.push(to);
            }
            defs.insert(name, defined);
        }
        let one = json!({ "type": "object", "required": ["use"], "anyOf": parts });
        defs.insert("part".into(), one);
        let protocol = json!({ "type": "object", "required": ["use"], "oneOf": protocols });

        let one = json!({ "$ref": "#/$defs/part" });
        let slot = json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] });
        let slots = json!({ "type": ["object", "null"], "additionalProperties": slot });

        let mut stages = json_schema(&Vec::<StageSection>::value_type());
        for (name, inner) in [("protocol", &protocol), ("parts", &slots)] {
            let place = &mut stages["items"]["properties"][name];
            let doc = place["description"].take();
            *place = inner.clone();
            place["description"] = doc;
        }

        let mut schema = json_schema(&Top::value_type());
        let given = |name: &str| json!({ "required": [name] });
        schema["oneOf"] = json!([given("protocol"), given("stages")]);
        for field in Top::fields() {
            let inner = match field.name.as_str() {
                "data" => json_schema(&D::value_type()),
                "protocol" => protocol.clone(),
                "parts" => slots.clone(),
                "stages" => stages.clone(),
                _ => continue,
            };
            let place = &mut schema["properties"][&field.name];
            *place = inner;
            if field.name != "data" {
                place["description"] = json!(field.doc);
            }
        }
        schema["$schema"] = json!(DRAFT);
        schema["title"] = json!("A federated-learning run");
        schema["allOf"] = slots_of.into();
        schema["$defs"] = Json::Object(defs);
        sorted(schema)
    }

    /// If a spec names this protocol: the slots that it has, and in each only the parts that fit,
    /// as the protocol's settings may be.
    fn slots_of(&self, protocol: &'static PartDecl) -> Option<Json> {
        let mut slots: BTreeMap<&str, (bool, BTreeSet<String>)> = BTreeMap::new();
        for slot in any_slots(protocol) {
            let fit = self.fitting(&slot).into_iter().map(def_name);
            let (optional, parts) = slots.entry(slot.name).or_insert((true, BTreeSet::new()));
            *optional &= slot.optional;
            parts.extend(fit);
        }
        if slots.is_empty() {
            return None;
        }
        let slot = |(name, (_, parts)): (&&str, &(bool, BTreeSet<String>))| {
            let refs = parts
                .iter()
                .map(|name| json!({ "$ref": format!("#/$defs/{name}") }));
            let mut one = json!({ "type": "object", "required": ["use"] });
            // a library may bring the first that fits
            if !parts.is_empty() {
                one["oneOf"] = refs.collect();
            }
            let many = json!({ "type": "array", "items": one, "minItems": 1 });
            (name.to_string(), json!({ "anyOf": [one, many] }))
        };
        let properties: Map<String, Json> = slots.iter().map(slot).collect();
        let parts = json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false });
        let named =
            json!({ "properties": { "use": { "enum": protocol.names() } }, "required": ["use"] });
        Some(json!({
            "if": { "properties": { "protocol": named }, "required": ["protocol"] },
            "then": { "properties": { "parts": parts } },
        }))
    }
}

/// Returns the JSON Schema of a file that is no spec, with the range and default of each setting.
pub fn schema_of<T: Setting>(title: &str) -> Json {
    let mut schema = json_schema(&T::value_type());
    schema["$schema"] = json!(DRAFT);
    schema["title"] = json!(title);
    sorted(schema)
}

/// Returns the slots of a protocol for several settings; some slots repeat.
pub(crate) fn any_slots(protocol: &PartDecl) -> Vec<SlotSpec> {
    let made = variants(&(protocol.describe)().group())
        .into_iter()
        .filter_map(|settings| {
            let read = protocol.read(&settings).ok()?;
            fl_core::protocol(protocol, &read, &any_make()).ok()
        });
    made.flat_map(|protocol| protocol.slots()).collect()
}

fn def_name(part: &PartDecl) -> String {
    format!("{}.{}", part.role.name().replace(' ', "-"), part.name)
}

/// The settings of a protocol that may decide about its slots: its defaults, and each choice once.
fn variants(settings: &ValueType) -> Vec<Value> {
    let must = sample(settings);
    let ValueType::Group { fields, .. } = settings else {
        return vec![must];
    };
    let choices = fields.iter().flat_map(|field| {
        let values: Vec<Value> = match field.accepts.plain().0 {
            ValueType::Choice { words, .. } => {
                words.iter().map(|w| w.name.as_str().into()).collect()
            }
            ValueType::Bool => vec![true.into(), false.into()],
            _ => Vec::new(),
        };
        values.into_iter().map(|value| (field.name.as_str(), value))
    });
    let chosen = choices.map(|(name, value)| {
        let mut settings = must.clone();
        settings[name] = value;
        settings
    });
    std::iter::once(must.clone()).chain(chosen).collect()
}

/// Returns the JSON Schema of the values of one type. What an editor shows of a setting is its doc
/// comment, its range and its default.
fn json_schema(of: &ValueType) -> Json {
    match of {
        ValueType::Any => json!({}),
        ValueType::Bool => json!({ "type": "boolean" }),
        ValueType::Whole(range) => number("integer", range),
        ValueType::Number(range) => number("number", range),
        ValueType::Text(None) => json!({ "type": "string" }),
        ValueType::Text(Some(pattern)) => json!({ "type": "string", "pattern": pattern }),
        ValueType::List {
            items,
            length: (least, most),
            distinct,
        } => {
            let mut schema = json!({ "type": "array" });
            if **items != ValueType::Any {
                schema["items"] = json_schema(items);
            }
            if *least > 0 {
                schema["minItems"] = json!(least);
            }
            if let Some(most) = most {
                schema["maxItems"] = json!(most);
            }
            if *distinct {
                schema["uniqueItems"] = json!(true);
            }
            schema
        }
        ValueType::Map(values) => {
            let mut schema = json!({ "type": "object" });
            if **values != ValueType::Any {
                schema["additionalProperties"] = json_schema(values);
            }
            schema
        }
        ValueType::Group { doc, fields } => {
            let properties = fields.iter().map(|f| (f.name.clone(), property(f)));
            let mut schema = json!({
                "type": "object", "properties": properties.collect::<Map<_, _>>(),
                "additionalProperties": false,
            });
            explain_as(&mut schema, doc);
            let required = fields.iter().filter(|f| f.default.is_none());
            let required: Vec<&str> = required.map(|f| f.name.as_str()).collect();
            if !required.is_empty() {
                schema["required"] = json!(required);
            }
            schema
        }
        ValueType::Choice { doc, words, others } => {
            let words_are_none = words.is_empty();
            let words = words.iter().flat_map(options);
            let options: Vec<Json> = words.chain(others.iter().map(json_schema)).collect();
            // several types without more are a list of types
            let simple = |option: &Json| {
                let only = option.as_object().is_some_and(|o| o.len() == 1);
                only.then(|| option["type"].as_str().map(str::to_string))?
            };
            let mut schema = match options.iter().map(simple).collect::<Option<Vec<_>>>() {
                Some(types) if !types.is_empty() => json!({ "type": types }),
                _ if words_are_none => json!({ "anyOf": options }),
                _ => json!({ "oneOf": options }),
            };
            explain_as(&mut schema, doc);
            schema
        }
        ValueType::Optional(of) => {
            let mut schema = json_schema(of);
            match schema["type"].take() {
                Json::String(kind) => {
                    schema["type"] = json!([kind, "null"]);
                    schema
                }
                _ => json!({ "anyOf": [json_schema(of), { "type": "null" }] }),
            }
        }
        ValueType::Described(_, of) => json_schema(of),
    }
}

fn number(kind: &str, range: &Range) -> Json {
    let mut schema = json!({ "type": kind });
    let mut end = |end: &Bound<Number>, includes: &str, excludes: &str| match end {
        Bound::Included(x) => schema[includes] = json!(x),
        Bound::Excluded(x) => schema[excludes] = json!(x),
        Bound::Unbounded => {}
    };
    end(&range.low, "minimum", "exclusiveMinimum");
    end(&range.high, "maximum", "exclusiveMaximum");
    schema
}

/// A word as it can stand in a spec: alone, with a value, or both.
fn options(word: &Word) -> Vec<Json> {
    let mut options = Vec::new();
    if word.stands_alone() {
        options.push(json!({ "const": word.name }));
    }
    if let Some(value) = &word.value {
        options.push(json!({
            "type": "object", "properties": { &word.name: json_schema(value) },
            "required": [word.name], "additionalProperties": false,
        }));
    }
    for option in &mut options {
        explain_as(option, &word.doc);
    }
    options
}

fn property(field: &Field) -> Json {
    let mut schema = json_schema(&field.accepts);
    let known = explain(field);
    let more = if known.is_empty() || field.doc.is_empty() {
        String::new()
    } else {
        format!("\n\n{known}.")
    };
    explain_as(&mut schema, &(field.doc.clone() + &more));
    if let Some(default) = field.default.as_ref().filter(|d| !d.is_null()) {
        schema["default"] = to_json(default);
    }
    schema
}

fn explain_as(schema: &mut Json, doc: &str) {
    if !doc.is_empty() {
        schema["description"] = json!(doc);
    }
}

/// A part's settings with `use`, and with `clients` where a slot can have groups.
fn definition(part: &PartDecl) -> Json {
    let about = (part.describe)();
    let mut schema = json_schema(&about.group());
    let what = match about.signature.as_str() {
        "" => part.role.name().to_string(),
        signature => format!("{}, {signature}", part.role.name()),
    };
    let about = format!("{what}: {}", about.doc);
    schema["properties"]["use"] = match part.aliases {
        [] => json!({ "const": part.name, "description": about }),
        _ => json!({ "enum": part.names(), "description": about }),
    };
    if part.role != Role::Protocol {
        let mut clients = json_schema(&Clients::value_type());
        let about = "For these clients only: `5`, `0-3`, or a list of such.";
        explain_as(&mut clients, about);
        schema["properties"]["clients"] = clients;
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    schema["required"] = std::iter::once(json!("use")).chain(required).collect();
    schema
}

/// The same keys in the same order, whatever a build's JSON library keeps.
fn sorted(value: Json) -> Json {
    match value {
        Json::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.into_iter().map(|(k, v)| (k, sorted(v))).collect()
        }
        Json::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}
