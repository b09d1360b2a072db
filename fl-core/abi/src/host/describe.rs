//! What a library says of its parts, as this program reads and checks it.

use super::part_handle::{Functions, PartHandle};
use crate::ask::BytesText;
use crate::caller::Calls;
use crate::declaration::kept;
use crate::raw::FL_BYTES;
use crate::signature::obstacle;
use anyhow::{Context, anyhow, bail, ensure};
use fl_roles::message::{ExchangeShape, ExpectedBytes, MessageDecl, MessageType};
use fl_roles::settings::{
    Field, Range, Reader, Step, Value, ValueType, Word, no_such_choice, show,
};
use fl_roles::{Alias, Description, Result, Role};
use serde::Deserialize;
use serde_json::{Map, Number, Value as Json};
use std::ops::Bound;

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
    #[serde(default)]
    parts: String,
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

fn readable_texts(json: &Json) -> Result<()> {
    match json {
        Json::String(text) => readable("a description of values", text),
        Json::Array(all) => all.iter().try_for_each(readable_texts),
        Json::Object(all) => all.values().try_for_each(readable_texts),
        _ => Ok(()),
    }
}

/// Reads a description; `origin` declares its messages, whose bytes `functions` knows.
pub(super) fn read(
    text: &str,
    origin: &'static str,
    functions: Functions,
) -> Result<Vec<Described>> {
    let library: LibraryText = serde_json::from_str(text).with_context(|| {
        let start: String = text.chars().take(80).collect();
        format!("its description is malformed; it begins {start:?}")
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
    let library = PartHandle::library(functions, origin);
    library.value(FL_BYTES, &text, &[]).ok()??
}

fn part(text: PartText) -> Result<Described> {
    named("a part", &text.name)?;
    let role = Role::try_from(text.role.clone()).map_err(|_| {
        let known: Vec<_> = Role::ALL.iter().map(|r| r.name()).collect();
        let role = show(&text.role.escape_debug().to_string().into());
        let known = known.join(", ");
        anyhow!(
            "part `{}`: no role is called {role}; known: {known}",
            text.name
        )
    })?;
    let about = || -> Result<Description> {
        readable("its doc", &text.doc)?;
        readable("its signature", &text.signature)?;
        if let Some(why) = obstacle(role, &text.signature) {
            bail!("{why}");
        }
        Ok(Description {
            doc: text.doc.clone(),
            fields: fields(text.settings.iter().map(Ok))?,
            signature: text.signature.clone(),
        })
    };
    let alias = |of: &AliasText| {
        named("an alias", &of.name)?;
        readable("a preset", &of.preset)?;
        readable("the parts of an alias", &of.parts)?;
        Ok(Alias {
            name: kept(&of.name),
            preset: kept(&of.preset),
            parts: kept(&of.parts),
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

/// Reads a setting: `accepts` holds the description that [`Field`] serialises to, `schema` a JSON
/// Schema of a number, a text, words, a list of these, or a group of settings, as authors in C and
/// Python write it.
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
    if let Some(accepts) = text.get("accepts") {
        readable_texts(accepts)?;
        let field = serde_json::from_value(text.clone().into());
        return field.with_context(|| format!("setting `{name}` is not described"));
    }
    let none = Map::new();
    let schema = match text.get("schema") {
        Some(Json::Object(schema)) => schema,
        None => &none,
        Some(other) => bail!("the schema of setting `{name}` must be an object, got {other}"),
    };
    let default = text.get("default").or_else(|| schema.get("default"));
    let default = default.map(serde_yaml::to_value).transpose()?;
    let mut accepts = value_type(schema).with_context(|| format!("setting `{name}`"))?;
    if let Some(kind) = word("kind") {
        readable("a kind", kind)?;
        accepts = accepts.described(kind);
    }
    if default.as_ref().is_some_and(Value::is_null) {
        accepts = ValueType::Optional(accepts.into());
    }
    // that of a group may leave out what has a default
    let filled = |default: &Value| {
        let mut reader = Reader::default();
        let filled = one(&accepts, default, &mut reader);
        match reader.mistakes.first() {
            Some(wrong) => bail!("the default of setting `{name}` {}", wrong.text),
            None => filled.with_context(|| format!("setting `{name}` has no default")),
        }
    };
    Ok(Field {
        name: name.into(),
        doc: doc.into(),
        default: default.as_ref().map(filled).transpose()?,
        accepts,
    })
}

/// Reads the settings of a part or of a group.
fn fields<'s>(
    settings: impl ExactSizeIterator<Item = Result<&'s Map<String, Json>>>,
) -> Result<Vec<Field>> {
    ensure!(
        settings.len() <= SETTINGS,
        "it has {} settings; at most {SETTINGS} are possible",
        settings.len()
    );
    let fields: Vec<Field> = settings.map(|one| field(one?)).collect::<Result<_>>()?;
    for (at, one) in fields.iter().enumerate() {
        let twin = fields[..at].iter().any(|f| f.name == one.name);
        ensure!(!twin, "it has two settings called `{}`", one.name);
    }
    Ok(fields)
}

/// Returns the values that a JSON Schema allows.
fn value_type(schema: &Map<String, Json>) -> Result<ValueType> {
    if let Some(Json::Array(words)) = schema.get("enum") {
        let words = words.iter().filter_map(Json::as_str).map(|word| Word {
            name: word.into(),
            doc: String::new(),
            value: None,
        });
        return Ok(ValueType::Choice {
            doc: String::new(),
            words: words.collect(),
            others: Vec::new(),
        });
    }
    let limit = |key: &str| -> Result<Option<Number>> {
        match schema.get(key) {
            None => Ok(None),
            Some(Json::Number(limit)) => Ok(Some(limit.clone())),
            Some(bad) => bail!("`{key}` must be a number, got {bad}"),
        }
    };
    let end = |includes: &str, excludes: &str| -> Result<Bound<Number>> {
        let excluded = limit(excludes)?.map(Bound::Excluded);
        let included = limit(includes)?.map(Bound::Included);
        Ok(included.or(excluded).unwrap_or(Bound::Unbounded))
    };
    let range = Range {
        low: end("minimum", "exclusiveMinimum")?,
        high: end("maximum", "exclusiveMaximum")?,
    };
    Ok(match schema.get("type").and_then(Json::as_str) {
        Some("number") => ValueType::Number(range),
        Some("integer") => ValueType::Whole(range),
        Some("boolean") => ValueType::Bool,
        Some("string") => ValueType::Text(None),
        Some("array") => ValueType::list(match schema.get("items") {
            Some(Json::Object(items)) => value_type(items)?,
            _ => ValueType::Any,
        }),
        Some("object") => match schema.get("settings") {
            Some(Json::Array(all)) => ValueType::Group {
                doc: match schema.get("description") {
                    Some(Json::String(doc)) => readable("a doc", doc).map(|()| doc.clone())?,
                    _ => String::new(),
                },
                fields: fields(all.iter().map(|one| {
                    let one = one.as_object();
                    one.context("each of the `settings` of a group must be an object")
                }))?,
            },
            _ => ValueType::Map(ValueType::Any.into()),
        },
        _ => ValueType::Any,
    })
}

/// Notes every mistake in settings by the description of their fields; without any, gives them
/// with every default filled in. This is for libraries that have no check of their own.
pub(super) fn check(fields: &[Field], value: &Value, reader: &mut Reader) -> Option<Value> {
    let names: Vec<String> = fields.iter().map(|f| f.name.clone()).collect();
    let mut found = reader.keys(value, &names)?;
    let before = reader.mistakes.len();
    let mut out = serde_yaml::Mapping::new();
    for f in fields {
        let read = match (found.remove(&f.name), &f.default) {
            (Some(value), _) => {
                reader.below(Step::Key(f.name.clone()), |r| one(&f.accepts, value, r))
            }
            (None, Some(default)) => Some(default.clone()),
            (None, None) => reader.missing(&f.name, &f.accepts.kind(), f.accepts.range()),
        };
        out.insert(f.name.as_str().into(), read.unwrap_or_default());
    }
    reader.unknown(&found, &names);
    (reader.mistakes.len() == before).then(|| out.into())
}

fn one(accepts: &ValueType, value: &Value, reader: &mut Reader) -> Option<Value> {
    let (of, optional) = accepts.plain();
    if optional && value.is_null() {
        return Some(Value::Null);
    }
    let fits = match of {
        ValueType::Number(_) => value.as_f64().is_some_and(f64::is_finite),
        ValueType::Whole(_) => value.as_i64().is_some() || value.as_u64().is_some(),
        ValueType::Bool => value.is_bool(),
        ValueType::Text(_) => value.is_string(),
        ValueType::List { .. } => value.is_sequence(),
        ValueType::Map(_) => value.is_mapping(),
        ValueType::Group { fields, .. } => return check(fields, value, reader),
        ValueType::Choice { words, .. } => {
            if !words.iter().any(|word| value == word.name.as_str()) {
                return no_such_choice(value, reader, of);
            }
            true
        }
        _ => true,
    };
    match (of, value) {
        _ if !fits => reader.unlike(&format!("a {}", accepts.kind()), value),
        (ValueType::List { items, .. }, Value::Sequence(all)) => {
            let read = |(at, value)| reader.below(Step::Item(at), |r| one(items, value, r));
            let read: Vec<Option<Value>> = all.iter().enumerate().map(read).collect();
            read.into_iter()
                .collect::<Option<Vec<_>>>()
                .map(Value::from)
        }
        (ValueType::Number(range) | ValueType::Whole(range), _)
            if value.as_f64().is_some_and(|x| !range.contains(x)) =>
        {
            reader.wrong(format!("must be {range}, got {}", show(value)))
        }
        _ => Some(value.clone()),
    }
}
