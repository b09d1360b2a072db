//! JSON Schema of a spec, for editors.

use crate::catalogue::{Catalogue, any_make, sample};
use crate::docs::table::{choices, explain, single};
use crate::sections::{Clients, DataSection, Top};
use fl_core::settings::{Setting, Settings, Value};
use fl_core::{PartDecl, Role, SlotSpec};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

impl Catalogue {
    /// JSON Schema (draft 2020-12) of a spec with every known part in it, keys sorted: for each
    /// protocol its slots with the parts that fit, and for each setting what it is for, its range
    /// and its default.
    pub fn schema<D: DataSection>(&self) -> Json {
        let mut schema = self.plain_schema::<D>();
        hovers(&mut schema);
        schema
    }

    /// As [`Catalogue::schema`], with what each setting is for only.
    pub(crate) fn plain_schema<D: DataSection>(&self) -> Json {
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

        let mut schema = Top::schema();
        for field in Top::fields() {
            let inner = match field.name.as_str() {
                "data" => D::schema(),
                "protocol" => protocol.clone(),
                "parts" => slots.clone(),
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
    let mut schema = T::schema();
    schema["$schema"] = json!(DRAFT);
    schema["title"] = json!(title);
    hovers(&mut schema);
    sorted(schema)
}

/// Returns the slots of a protocol for several settings; some slots repeat.
pub(crate) fn any_slots(protocol: &PartDecl) -> Vec<SlotSpec> {
    let made = variants(&(protocol.describe)().schema)
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
fn variants(schema: &Json) -> Vec<Value> {
    let must = serde_yaml::to_value(sample(schema)).unwrap_or_default();
    let must = must.as_mapping().cloned().unwrap_or_default();
    let mut all = vec![Value::Mapping(must.clone())];
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let words = choices(field).filter_map(|choice| match single(choice) {
            Some((word, _)) => Some(word.as_str()),
            None => choice["const"].as_str(),
        });
        let flags = (field["type"] == json!("boolean")).then_some([true, false]);
        let values = words
            .map(Value::from)
            .chain(flags.into_iter().flatten().map(Value::from));
        all.extend(values.map(|value| {
            let mut settings = must.clone();
            settings.insert(name.as_str().into(), value);
            Value::Mapping(settings)
        }));
    }
    all
}

/// What an editor shows of a field: what it is for, its range and its default.
fn hovers(schema: &mut Json) {
    match schema {
        Json::Object(map) => {
            if let Some(Json::Object(fields)) = map.get_mut("properties") {
                for field in fields.values_mut() {
                    let known = explain(field);
                    if let (Some(Json::String(text)), false) =
                        (field.get_mut("description"), known.is_empty())
                    {
                        *text += &format!("\n\n{known}.");
                    }
                }
            }
            map.values_mut().for_each(hovers);
        }
        Json::Array(items) => items.iter_mut().for_each(hovers),
        _ => {}
    }
}

/// A part's settings with `use`, and with `clients` where a slot can have groups.
fn definition(part: &PartDecl) -> Json {
    let about = (part.describe)();
    let mut schema = match about.schema {
        Json::Object(schema) => schema,
        _ => Map::new(),
    };
    let list = |schema: &Map<String, Json>, key: &str| schema.get(key).cloned();
    let mut properties = match list(&schema, "properties") {
        Some(Json::Object(properties)) => properties,
        _ => Map::new(),
    };
    let what = match about.signature.as_str() {
        "" => part.role.name().to_string(),
        signature => format!("{}, {signature}", part.role.name()),
    };
    let about = format!("{what}: {}", about.doc);
    properties.insert(
        "use".into(),
        match part.aliases {
            [] => json!({ "const": part.name, "description": about }),
            _ => json!({ "enum": part.names(), "description": about }),
        },
    );
    if part.role != Role::Protocol {
        properties.insert("clients".into(), Clients::schema());
    }
    let mut required = vec![json!("use")];
    if let Some(Json::Array(more)) = list(&schema, "required") {
        required.extend(more);
    }
    schema.insert("properties".into(), properties.into());
    schema.insert("required".into(), required.into());
    schema.into()
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
