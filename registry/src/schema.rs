//! JSON Schema of a spec, for editors.

use crate::catalogue::Catalogue;
use crate::sections::{Clients, DataSection, Top};
use fl_core::settings::{Setting, Settings};
use fl_core::{PartDecl, Role};
use serde_json::{Map, Value as Json, json};

impl Catalogue {
    /// JSON Schema (draft 2020-12) of a spec with every known part in it, keys sorted.
    pub fn schema<D: DataSection>(&self) -> Json {
        let mut defs = Map::new();
        let (mut protocols, mut parts) = (Vec::new(), Vec::new());
        for part in self.parts() {
            let name = format!("{}.{}", part.role.name().replace(' ', "-"), part.name);
            let to = json!({ "$ref": format!("#/$defs/{name}") });
            if part.role == Role::Protocol {
                protocols.push(to);
            } else {
                parts.push(to);
            }
            defs.insert(name, definition(part));
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
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!("A federated-learning run");
        schema["$defs"] = Json::Object(defs);
        sorted(schema)
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
    properties.insert(
        "use".into(),
        json!({ "const": part.name, "description": format!("{what}: {}", about.doc) }),
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
