//! What a library says of its parts, as this program reads and checks it.

use super::part_handle::Functions;
use crate::abi::ask::BytesText;
use crate::abi::declaration::kept;
use crate::abi::raw::FL_BYTES;
use crate::abi::signature::{obstacle, role};
use crate::message::{ExchangeShape, ExpectedBytes, MessageDecl, MessageType};
use crate::settings::{Field, Reader, Step, Value, nearest, show};
use crate::{Alias, Description, Result, Role};
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

/// The most parts of one library.
const PARTS: usize = 1000;
/// The most messages of one library.
const MESSAGES: usize = 100;
/// The most settings of one part.
const SETTINGS: usize = 1000;

#[derive(Deserialize)]
struct LibraryText {
    /// Kinds of messages that are not the core's.
    #[serde(default)]
    messages: Vec<MessageDecl>,
    parts: Vec<PartText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartText {
    role: String,
    name: String,
    #[serde(default)]
    signature: String,
    doc: String,
    #[serde(default)]
    settings: Vec<Map<String, Json>>,
    /// The crate that it comes from.
    #[serde(default)]
    from: String,
    #[serde(default)]
    brought: bool,
    /// Its number for `create`, where that is not its position here.
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    aliases: Vec<AliasText>,
    #[serde(default)]
    papers: Vec<String>,
}

#[derive(Deserialize)]
struct AliasText {
    name: String,
    #[serde(default)]
    preset: String,
}

/// One part, as it described itself.
pub(super) struct Described {
    pub role: Role,
    pub name: String,
    pub about: Description,
    /// Its number for `create`, where that is not its position in the description.
    pub index: Option<u32>,
    pub aliases: Vec<Alias>,
    pub papers: Vec<&'static str>,
    pub package: &'static str,
    pub brought: bool,
}

/// Letters, digits and `-`: what a name may be, in specs and on a terminal.
fn named(what: &str, name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        (1..=64).contains(&name.len()) && name.chars().all(fine) && !name.starts_with('-'),
        "{what} is called {}; a name is 1 to 64 of a-z, 0-9 and `-`",
        show(&name.escape_debug().to_string().into())
    );
    Ok(())
}

fn readable(what: &str, text: &str) -> Result<()> {
    if let Some(bad) = text.chars().find(|c| c.is_control() && *c != '\n') {
        bail!("{what} has the control character {bad:?}");
    }
    ensure!(
        text.len() <= 10_000,
        "{what} has {} bytes; at most 10000 are shown",
        text.len()
    );
    Ok(())
}

/// Reads a description; `origin` declares its messages, whose bytes `functions` knows.
pub(super) fn read(
    text: &str,
    origin: &'static str,
    functions: Functions,
) -> Result<Vec<Described>> {
    let library: LibraryText = serde_json::from_str(text).with_context(|| {
        let start: String = text.chars().take(80).collect();
        format!("its description is not what it must be: {start:?}")
    })?;
    ensure!(!library.parts.is_empty(), "it has no parts");
    ensure!(
        library.parts.len() <= PARTS,
        "it has {} parts; at most {PARTS} are possible",
        library.parts.len()
    );
    ensure!(
        library.messages.len() <= MESSAGES,
        "it declares {} messages; at most {MESSAGES} are possible",
        library.messages.len()
    );
    for message in &library.messages {
        let kind = message.kind.clone();
        let expected = move |shape: &ExchangeShape| bytes(functions, origin, &kind, shape);
        let expected = ExpectedBytes(Box::new(expected));
        MessageType::declare_with(message, origin, Some(expected))?;
    }
    let parts: Vec<Described> = library.parts.into_iter().map(part).collect::<Result<_>>()?;
    for (at, one) in parts.iter().enumerate() {
        let twin = parts[..at]
            .iter()
            .any(|p| (p.role, &p.name) == (one.role, &one.name));
        ensure!(!twin, "it has two parts called {} `{}`", one.role, one.name);
    }
    Ok(parts)
}

/// The bytes of a message of this kind, if the library knows them.
fn bytes(
    functions: Functions,
    origin: &'static str,
    kind: &str,
    shape: &ExchangeShape,
) -> Option<u64> {
    let (kind, shape) = (kind.into(), *shape);
    let text = serde_json::to_string(&BytesText { kind, shape }).ok()?;
    let answer = functions.ask(origin, FL_BYTES, &text).ok()??;
    serde_json::from_str(&answer.text?).ok()?
}

fn part(text: PartText) -> Result<Described> {
    named("a part", &text.name)?;
    let role = role(&text.role).with_context(|| {
        let known: Vec<_> = Role::ALL.iter().map(|r| r.name()).collect();
        let role = show(&text.role.escape_debug().to_string().into());
        format!(
            "part `{}`: no role is called {role}; known: {}",
            text.name,
            known.join(", ")
        )
    })?;
    let about = || -> Result<Description> {
        readable("its doc", &text.doc)?;
        readable("its signature", &text.signature)?;
        if let Some(why) = obstacle(role, &text.signature) {
            bail!("{why}");
        }
        let settings = text.settings.iter();
        ensure!(
            settings.len() <= SETTINGS,
            "it has {} settings; at most {SETTINGS} are possible",
            settings.len()
        );
        let fields: Vec<Field> = settings.map(field).collect::<Result<_>>()?;
        for (at, one) in fields.iter().enumerate() {
            let twin = fields[..at].iter().any(|f| f.name == one.name);
            ensure!(!twin, "it has two settings called `{}`", one.name);
        }
        Ok(Description {
            schema: schema(&text.doc, &fields),
            doc: text.doc.clone(),
            fields,
            signature: text.signature.clone(),
        })
    };
    let alias = |of: &AliasText| {
        named("an alias", &of.name)?;
        readable("a preset", &of.preset)?;
        Ok(Alias {
            name: kept(&of.name),
            preset: kept(&of.preset),
        })
    };
    let aliases = text.aliases.iter().map(alias).collect::<Result<_>>()?;
    for paper in &text.papers {
        readable("a paper", paper)?;
    }
    readable("a crate", &text.from)?;
    Ok(Described {
        aliases,
        papers: text.papers.iter().map(|paper| kept(paper)).collect(),
        role,
        about: about().with_context(|| format!("{role} `{}`", text.name))?,
        name: text.name,
        index: text.index,
        package: kept(&text.from),
        brought: text.brought,
    })
}

fn field(text: &Map<String, Json>) -> Result<Field> {
    let word = |key: &str| text.get(key).and_then(Json::as_str);
    let name = word("name").context("a setting has no `name`")?;
    named("a setting", name)?;
    ensure!(
        !["use", "clients"].contains(&name),
        "a setting is called `{name}`, which has a meaning in every spec"
    );
    let doc = word("doc").with_context(|| format!("setting `{name}` has no `doc`"))?;
    readable("a doc", doc)?;
    let mut schema = match text.get("schema") {
        Some(Json::Object(schema)) => schema.clone(),
        None => Map::new(),
        Some(other) => bail!("the schema of setting `{name}` must be an object, got {other}"),
    };
    let default = text.get("default").or_else(|| schema.get("default"));
    let default = default.map(serde_yaml::to_value).transpose()?;
    for (key, _) in LIMITS {
        if let Some(bad) = schema.get(key).filter(|v| !v.is_number()) {
            bail!("`{key}` of setting `{name}` must be a number, got {bad}");
        }
    }
    let kind = match word("kind") {
        Some(kind) => kind.to_string(),
        None => kind(&schema),
    };
    readable("a kind", &kind)?;
    let range = match word("range") {
        Some(range) => Some(range.to_string()),
        None => range(&schema),
    };
    schema.insert("description".into(), json!(doc));
    let field = Field {
        name: name.into(),
        doc: doc.into(),
        kind,
        default,
        range,
        schema: schema.into(),
    };
    if let Some(default) = &field.default {
        let mut reader = Reader::default();
        one(&field, default, &mut reader);
        if let Some(wrong) = reader.mistakes.first() {
            bail!("the default of setting `{name}` {}", wrong.text);
        }
    }
    Ok(field)
}

fn kind(schema: &Map<String, Json>) -> String {
    if let Some(Json::Array(words)) = schema.get("enum") {
        let words: Vec<_> = words.iter().filter_map(Json::as_str).collect();
        return words.join(" or ");
    }
    match schema.get("type").and_then(Json::as_str) {
        Some("number") => "number",
        Some("integer") => "whole number",
        Some("boolean") => "true or false",
        Some("string") => "text",
        Some("array") => "list",
        Some("object") => "mapping",
        _ => "value",
    }
    .into()
}

const LIMITS: [(&str, &str); 4] = [
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
];

fn range(schema: &Map<String, Json>) -> Option<String> {
    let limits = LIMITS
        .iter()
        .filter_map(|(key, words)| Some(format!("{words} {}", schema.get(*key)?)));
    let limits: Vec<String> = limits.collect();
    (!limits.is_empty()).then(|| limits.join(" and "))
}

/// JSON Schema of all settings, as `settings!` makes it.
fn schema(doc: &str, fields: &[Field]) -> Json {
    let properties: Map<_, _> = fields
        .iter()
        .map(|f| (f.name.clone(), f.schema.clone()))
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|f| f.default.is_none())
        .map(|f| f.name.as_str())
        .collect();
    let mut schema = json!({
        "type": "object", "description": doc, "properties": properties, "additionalProperties": false
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Notes every mistake in settings by the schemas of their fields; without any, gives them with
/// every default filled in. This is for libraries that have no check of their own.
pub(super) fn check(fields: &[Field], value: &Value, reader: &mut Reader) -> Option<Value> {
    let names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
    let mut found = reader.keys(value, &names)?;
    let before = reader.mistakes.len();
    let mut out = serde_yaml::Mapping::new();
    for f in fields {
        let read = match (found.remove(&f.name), &f.default) {
            (Some(value), _) => reader.below(Step::Key(f.name.clone()), |r| one(f, value, r)),
            (None, Some(default)) => Some(default.clone()),
            (None, None) => reader.below(Step::Key(f.name.clone()), |r| {
                let range = f.range.as_ref().map(|r| format!(", {r}"));
                r.wrong(format!(
                    "is missing ({}{})",
                    f.kind,
                    range.unwrap_or_default()
                ))
            }),
        };
        out.insert(f.name.as_str().into(), read.unwrap_or_default());
    }
    reader.unknown(&found, &names);
    (reader.mistakes.len() == before).then(|| out.into())
}

fn one(field: &Field, value: &Value, reader: &mut Reader) -> Option<Value> {
    if field.default.as_ref().is_some_and(|d| d.is_null()) && value.is_null() {
        return Some(Value::Null);
    }
    if let Some(Json::Array(words)) = field.schema.get("enum") {
        let words: Vec<&str> = words.iter().filter_map(Json::as_str).collect();
        let word = value.as_str().unwrap_or_default();
        if words.contains(&word) {
            return Some(value.clone());
        }
        let near = nearest(word, words.iter().copied());
        let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        let text = format!(
            "must be one of {}; got {}{near}",
            words.join(", "),
            show(value)
        );
        return reader.wrong(text);
    }
    let fits = match field.schema.get("type").and_then(Json::as_str) {
        Some("number") => value.as_f64().is_some_and(f64::is_finite),
        Some("integer") => value.as_i64().is_some() || value.as_u64().is_some(),
        Some("boolean") => value.is_bool(),
        Some("string") => value.is_string(),
        Some("array") => value.is_sequence(),
        Some("object") => value.is_mapping(),
        _ => true,
    };
    if !fits {
        return reader.unlike(&format!("a {}", field.kind), value);
    }
    if let (Some(Json::Object(items)), Value::Sequence(all)) = (field.schema.get("items"), value) {
        let item = Field {
            kind: kind(items),
            schema: items.clone().into(),
            default: None,
            ..field.clone()
        };
        let read = |(at, value)| reader.below(Step::Item(at), |r| one(&item, value, r));
        let read: Vec<Option<Value>> = all.iter().enumerate().map(read).collect();
        return read
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .map(Value::from);
    }
    if let Some(x) = value.as_f64() {
        for (key, words) in LIMITS {
            let Some(limit) = field.schema.get(key).and_then(Json::as_f64) else {
                continue;
            };
            let holds = match key {
                "minimum" => x >= limit,
                "exclusiveMinimum" => x > limit,
                "maximum" => x <= limit,
                _ => x < limit,
            };
            if !holds {
                return reader.wrong(format!("must be {words} {limit}, got {}", show(value)));
            }
        }
    }
    Some(value.clone())
}
