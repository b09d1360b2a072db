//! Settings: one declaration gives a struct, its reading from YAML, its checks, its JSON Schema and its table.
//!
//! ```
//! use fl_core::settings::{above, read_yaml, Settings};
//! fl_core::settings! {
//!     /// Adds noise.
//!     pub struct Noise {
//!         /// Inverse scale of the noise.
//!         gamma: f64 = 1.0, in above(0.0);
//!         /// Share of clients.
//!         share: f64 = 1.0, in 0.0..=1.0;
//!         /// No default: must be given.
//!         levels: usize, in 2..;
//!     }
//! }
//! assert_eq!(read_yaml::<Noise>("{levels: 200}").unwrap().gamma, 1.0);
//! let all = read_yaml::<Noise>("{gamma: 0, share: .nan, lewels: 3}").unwrap_err().to_string();
//! assert_eq!(all, "gamma: must be above 0.0, got 0.0\nshare: must be a finite number, got .nan\n\
//!     levels: is missing (whole number, at least 2)\nlewels: no such setting; did you mean `levels`? known: gamma, share, levels");
//! assert_eq!(Noise::fields()[0].range.as_deref(), Some("above 0.0"));
//! ```
//! A setting without a doc comment does not compile:
//! ```compile_fail
//! fl_core::settings! {
//!     /// Adds noise.
//!     pub struct Noise { gamma: f64 = 1.0; }
//! }
//! ```

use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Write};
use std::ops::{Bound, RangeBounds};

/// A value as YAML has it.
pub type Value = serde_yaml::Value;

/// One step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Under this key.
    Key(String),
    /// At this position of a list.
    Item(usize),
}

/// A path as `parts.model[0].net`.
pub fn show_path(path: &[Step]) -> String {
    path.iter().fold(String::new(), |mut out, step| {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) => {
                let _ = write!(out, ".{key}");
            }
            Step::Item(at) => {
                let _ = write!(out, "[{at}]");
            }
        }
        out
    })
}

/// Something wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub path: Vec<Step>,
    /// What was found and what would be right.
    pub text: String,
    /// Is it the last key of the path that is wrong, and not what stands under it?
    pub on_key: bool,
}

impl Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match show_path(&self.path).as_str() {
            "" => f.write_str(&self.text),
            path => write!(f, "{path}: {}", self.text),
        }
    }
}

/// Reads settings and collects every mistake on the way.
#[derive(Debug, Default)]
pub struct Reader {
    path: Vec<Step>,
    /// What was wrong, in the order of the declaration.
    pub mistakes: Vec<Mistake>,
}

impl Reader {
    /// A reader for the value at `path`.
    pub fn at(path: Vec<Step>) -> Self {
        Self {
            path,
            mistakes: Vec::new(),
        }
    }

    /// Notes a mistake here.
    pub fn wrong<T>(&mut self, text: impl Into<String>) -> Option<T> {
        self.mistakes.push(Mistake {
            path: self.path.clone(),
            text: text.into(),
            on_key: false,
        });
        None
    }

    /// `must be <wanted>, got <value>`.
    pub fn unlike<T>(&mut self, wanted: &str, value: &Value) -> Option<T> {
        self.wrong(format!("must be {wanted}, got {}", show(value)))
    }

    /// Does something one step further down.
    pub fn below<T>(&mut self, step: Step, f: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let out = f(self);
        self.path.pop();
        out
    }

    /// Reads the keys of a mapping; `null` counts as an empty one.
    pub fn keys<'v>(
        &mut self,
        value: &'v Value,
        known: &[&str],
    ) -> Option<BTreeMap<String, &'v Value>> {
        let map = match value {
            Value::Mapping(map) => map,
            Value::Null => return Some(BTreeMap::new()),
            other => return self.unlike("a mapping of settings", other),
        };
        let mut found = BTreeMap::new();
        for (key, value) in map {
            match key.as_str() {
                Some(key) => {
                    found.insert(key.to_string(), value);
                }
                None => {
                    self.wrong::<()>(format!(
                        "a setting's name must be text, got {}; known: {}",
                        show(key),
                        known.join(", ")
                    ));
                }
            }
        }
        Some(found)
    }

    /// Notes every key that nothing has read.
    pub fn unknown(&mut self, left: &BTreeMap<String, &Value>, known: &[&str]) {
        for key in left.keys() {
            let hint = match nearest(key, known.iter().copied()) {
                _ if known.is_empty() => "; there are no settings here".to_string(),
                Some(near) => format!("; did you mean `{near}`? known: {}", known.join(", ")),
                None => format!("; known: {}", known.join(", ")),
            };
            self.below(Step::Key(key.clone()), |r| {
                r.wrong::<()>(format!("no such setting{hint}"));
                if let Some(mistake) = r.mistakes.last_mut() {
                    mistake.on_key = true;
                }
            });
        }
    }

    /// Reads one setting of a mapping.
    pub fn field<T: Setting>(
        &mut self,
        found: &mut BTreeMap<String, &Value>,
        name: &str,
        default: Option<T>,
        check: impl FnOnce(&T) -> Result<(), String>,
        range: Option<String>,
    ) -> Option<T> {
        let Some(value) = found.remove(name) else {
            return default.or_else(|| {
                let range = range.map(|r| format!(", {r}")).unwrap_or_default();
                self.below(Step::Key(name.into()), |r| {
                    r.wrong(format!("is missing ({}{range})", T::kind()))
                })
            });
        };
        self.below(Step::Key(name.into()), |r| {
            let read = T::read(value, r)?;
            match check(&read) {
                Ok(()) => Some(read),
                Err(text) => r.wrong(text),
            }
        })
    }
}

/// A value in one line, shortened.
pub fn show(value: &Value) -> String {
    let text = match value {
        Value::Null => "nothing".to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => match n.as_f64() {
            Some(x) if x.is_nan() => ".nan".into(),
            Some(x) if x.is_infinite() => {
                if x > 0.0 {
                    ".inf".into()
                } else {
                    "-.inf".into()
                }
            }
            _ => n.to_string(),
        },
        Value::String(s) => format!("`{s}`"),
        Value::Sequence(s) => format!("a list of {}", s.len()),
        Value::Mapping(m) => match m.keys().next().and_then(Value::as_str) {
            Some(key) => format!("a mapping with `{key}`"),
            None => format!("a mapping of {}", m.len()),
        },
        Value::Tagged(t) => format!("a value tagged `{}`", t.tag),
    };
    if text.chars().count() > 60 {
        text.chars().take(57).chain("...".chars()).collect()
    } else {
        text
    }
}

/// The known name nearest to `name`, if one is near enough to be meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > 64 {
        return None; // no name is that long, and comparing takes time and memory
    }
    let far = (length / 3).max(2);
    let close = known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(name, k), k));
    close
        .filter(|(d, _)| *d <= far)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// What can stand in a settings declaration.
pub trait Setting: Sized {
    /// Reads it; every mistake goes to `reader`, and then the answer is `None`.
    fn read(value: &Value, reader: &mut Reader) -> Option<Self>;
    /// The value as YAML.
    fn write(&self) -> Value;
    /// JSON Schema (draft 2020-12).
    fn schema() -> serde_json::Value;
    /// A short word for tables and errors: `number`, `list of layer`.
    fn kind() -> String;
}

/// A declared group of settings.
pub trait Settings: Setting {
    /// The doc comment.
    fn doc() -> String;
    /// One row per setting.
    fn fields() -> Vec<Field>;
}

/// One row of `fl inspect`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// As it stands in a spec.
    pub name: String,
    /// The doc comment.
    pub doc: String,
    /// Kind of value.
    pub kind: String,
    /// `None`: must be given.
    pub default: Option<Value>,
    /// `in 0.0..0.5`, `above 0.0`, ...
    pub range: Option<String>,
    /// JSON Schema of the value, with description, default and range.
    pub schema: serde_json::Value,
}

/// Every number above `low`: the open end that Rust's ranges cannot say.
pub fn above<T>(low: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Unbounded)
}

/// Every number above `low` and below `high`.
pub fn between<T>(low: T, high: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Excluded(high))
}

/// Every number above `low`, `high` included.
pub fn above_to<T>(low: T, high: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Included(high))
}

/// What a range can be asked of: numbers, and optional or listed ones.
pub trait Ranged {
    /// The number type.
    type Number: PartialOrd + Debug;
    /// Every number inside.
    fn numbers(&self) -> Vec<&Self::Number>;
}

/// `in 0.0..0.5`, `at least 2`, `above 0.0`.
pub fn show_range<T: Debug>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(a), Bound::Excluded(b)) => format!("in {a:?}..{b:?}"),
        (Bound::Included(a), Bound::Included(b)) => format!("in {a:?}..={b:?}"),
        (Bound::Included(a), Bound::Unbounded) => format!("at least {a:?}"),
        (Bound::Excluded(a), Bound::Unbounded) => format!("above {a:?}"),
        (Bound::Excluded(a), Bound::Excluded(b)) => format!("above {a:?} and below {b:?}"),
        (Bound::Excluded(a), Bound::Included(b)) => format!("above {a:?} and at most {b:?}"),
        (Bound::Unbounded, Bound::Excluded(b)) => format!("below {b:?}"),
        (Bound::Unbounded, Bound::Included(b)) => format!("at most {b:?}"),
        (Bound::Unbounded, Bound::Unbounded) => "any".into(),
    }
}

/// Used by [`settings!`](crate::settings!).
#[doc(hidden)]
pub fn check_range<V: Ranged>(
    value: &V,
    range: &impl RangeBounds<V::Number>,
) -> Result<(), String> {
    match value.numbers().into_iter().find(|n| !range.contains(*n)) {
        None => Ok(()),
        Some(bad) => Err(format!("must be {}, got {bad:?}", show_range(range))),
    }
}

/// Used by [`settings!`](crate::settings!).
#[doc(hidden)]
pub fn range_schema<T: Debug>(range: &impl RangeBounds<T>, schema: &mut serde_json::Value) {
    // the range of a list is its items'
    let schema = match schema.get("items").is_some() {
        true => &mut schema["items"],
        false => schema,
    };
    let number =
        |x: &T| serde_json::from_str::<serde_json::Value>(&format!("{x:?}")).unwrap_or_default();
    match range.start_bound() {
        Bound::Included(a) => schema["minimum"] = number(a),
        Bound::Excluded(a) => schema["exclusiveMinimum"] = number(a),
        Bound::Unbounded => {}
    }
    match range.end_bound() {
        Bound::Included(b) => schema["maximum"] = number(b),
        Bound::Excluded(b) => schema["exclusiveMaximum"] = number(b),
        Bound::Unbounded => {}
    }
}

/// Settings of which every one has its default.
///
/// # Panics
/// When a setting has no default: a mistake of the program, which any test shows.
pub fn defaults<T: Setting>() -> T {
    T::read(&Value::Null, &mut Reader::default()).expect("every setting has a default")
}

/// Reads settings from a value; all mistakes together, one a line.
///
/// # Errors
/// When anything is wrong with `value`.
pub fn read_value<T: Setting>(value: &Value) -> crate::Result<T> {
    let mut reader = Reader::default();
    let read = T::read(value, &mut reader);
    match read {
        Some(read) if reader.mistakes.is_empty() => Ok(read),
        _ => Err(anyhow::anyhow!(
            reader
                .mistakes
                .iter()
                .map(Mistake::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        )),
    }
}

/// As [`read_value`], from YAML (or JSON) text.
///
/// # Errors
/// When `text` is not YAML, or anything is wrong with it.
pub fn read_yaml<T: Setting>(text: &str) -> crate::Result<T> {
    read_value(&serde_yaml::from_str(text)?)
}

/// A YAML value as JSON; NaN and infinities become `null`.
pub fn to_json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

macro_rules! numbers {
    ($($t:ty, $kind:literal, $json:literal, $get:ident, $wide:ty;)*) => {$(
        impl Setting for $t {
            fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
                match value.$get().and_then(|wide| <$t>::try_from(wide).ok()) {
                    Some(n) => Some(n),
                    None => reader.unlike(concat!("a ", $kind), value),
                }
            }
            fn write(&self) -> Value { Value::from(*self as $wide) }
            fn schema() -> serde_json::Value { json!({ "type": $json }) }
            fn kind() -> String { $kind.into() }
        }
        impl Ranged for $t {
            type Number = $t;
            fn numbers(&self) -> Vec<&$t> { vec![self] }
        }
    )*};
}
numbers! {
    usize, "whole number", "integer", as_u64, u64;
    u64, "whole number", "integer", as_u64, u64;
    u32, "whole number", "integer", as_u64, u64;
    i64, "whole number", "integer", as_i64, i64;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Setting for $t {
            fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
                match value.as_f64() {
                    Some(x) if (x as $t).is_finite() => Some(x as $t),
                    Some(_) => reader.unlike("a finite number", value),
                    None => reader.unlike("a number", value),
                }
            }
            fn write(&self) -> Value {
                // by its shortest text, so that an f32 does not grow digits
                Value::from(self.to_string().parse::<f64>().unwrap_or(f64::NAN))
            }
            fn schema() -> serde_json::Value {
                json!({ "type": "number" })
            }
            fn kind() -> String {
                "number".into()
            }
        }
        impl Ranged for $t {
            type Number = $t;
            fn numbers(&self) -> Vec<&$t> {
                vec![self]
            }
        }
    )*};
}
floats!(f32, f64);

impl Setting for bool {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        value
            .as_bool()
            .or_else(|| reader.unlike("true or false", value))
    }
    fn write(&self) -> Value {
        Value::from(*self)
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "boolean" })
    }
    fn kind() -> String {
        "true or false".into()
    }
}

impl Setting for String {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        value
            .as_str()
            .map(str::to_string)
            .or_else(|| reader.unlike("text", value))
    }
    fn write(&self) -> Value {
        Value::from(self.as_str())
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "string" })
    }
    fn kind() -> String {
        "text".into()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        if value.is_null() {
            Some(None)
        } else {
            T::read(value, reader).map(Some)
        }
    }
    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }
    fn schema() -> serde_json::Value {
        let mut schema = T::schema();
        match schema["type"].as_str().map(str::to_string) {
            Some(kind) => {
                schema["type"] = json!([kind, "null"]);
                schema
            }
            None => json!({ "anyOf": [schema, { "type": "null" }] }),
        }
    }
    fn kind() -> String {
        T::kind()
    }
}

impl<T: Ranged> Ranged for Option<T> {
    type Number = T::Number;
    fn numbers(&self) -> Vec<&T::Number> {
        self.iter().flat_map(T::numbers).collect()
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let Value::Sequence(items) = value else {
            return reader.unlike(&format!("a {}", Self::kind()), value);
        };
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(i, v)| reader.below(Step::Item(i), |r| T::read(v, r)))
            .collect();
        read.into_iter().collect()
    }
    fn write(&self) -> Value {
        self.iter().map(T::write).collect::<Vec<_>>().into()
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "array", "items": T::schema() })
    }
    fn kind() -> String {
        format!("list of {}", T::kind())
    }
}

impl<T: Ranged> Ranged for Vec<T> {
    type Number = T::Number;
    fn numbers(&self) -> Vec<&T::Number> {
        self.iter().flat_map(T::numbers).collect()
    }
}

impl<T: Setting> Setting for Box<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        T::read(value, reader).map(Box::new)
    }
    fn write(&self) -> Value {
        T::write(self)
    }
    fn schema() -> serde_json::Value {
        T::schema()
    }
    fn kind() -> String {
        T::kind()
    }
}

/// Tidies the text of a doc comment.
#[doc(hidden)]
pub fn doc_text(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|l| l.trim())
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_string()
}

/// Declares a group of settings, see the [module](mod@crate::settings).
///
/// `name: type = default, in range;` with a doc comment. Without a default the setting must be given. An attribute
/// `#[check(path)]` names a `fn(&Self) -> Result<(), String>` for what several settings must fulfil together.
#[macro_export]
macro_rules! settings {
    ($(#[doc = $about:literal])* $(#[check($check:path)])? $vis:vis struct $name:ident {
        $( $(#[doc = $doc:literal])* $field:ident : $ty:ty $(= $default:expr)? $(, in $range:expr)? ; )*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name { $( $(#[doc = $doc])* pub $field: $ty, )* }

        $(const _: () = assert!(!concat!($($doc),*).is_empty(),
            concat!("`", stringify!($field), "` needs a doc comment (`/// What it does.`): it is what users read"));)*
        const _: () = assert!(!concat!($($about),*).is_empty(), concat!("`", stringify!($name), "` needs a doc comment"));

        impl $crate::settings::Setting for $name {
            #[allow(unused_mut, unused_variables, reason = "a group may have no settings")]
            fn read(value: &$crate::settings::Value, reader: &mut $crate::settings::Reader) -> Option<Self> {
                let names: Vec<String> = vec![$(stringify!($field).replace('_', "-")),*];
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                let mut found = reader.keys(value, &known)?;
                let before = reader.mistakes.len();
                $(let $field = reader.field::<$ty>(
                    &mut found,
                    &stringify!($field).replace('_', "-"),
                    $crate::settings!(@default $ty $(, $default)?),
                    |read| $crate::settings!(@check read $(, $range)?),
                    $crate::settings!(@range $ty $(, $range)?),
                );)*
                reader.unknown(&found, &known);
                if reader.mistakes.len() > before { return None; }
                let read = Self { $($field: $field?),* };
                $(if let Err(text) = $check(&read) { return reader.wrong(text); })?
                Some(read)
            }
            fn write(&self) -> $crate::settings::Value {
                #[allow(unused_mut, reason = "a group may have no settings")]
                let mut map = $crate::__private::Mapping::new();
                $(map.insert(stringify!($field).replace('_', "-").into(), $crate::settings::Setting::write(&self.$field));)*
                map.into()
            }
            fn schema() -> $crate::__private::Json {
                $crate::settings::object_schema::<Self>()
            }
            fn kind() -> String { "mapping".into() }
        }
        impl $crate::settings::Settings for $name {
            fn doc() -> String { $crate::settings::doc_text(&[$($about),*]) }
            fn fields() -> Vec<$crate::settings::Field> {
                vec![$({
                    let default: Option<$ty> = $crate::settings!(@default $ty $(, $default)?);
                    let default = default.as_ref().map($crate::settings::Setting::write);
                    #[allow(unused_mut, reason = "only a range changes it")]
                    let mut schema = <$ty as $crate::settings::Setting>::schema();
                    $($crate::settings::range_schema::<<$ty as $crate::settings::Ranged>::Number>(&$range, &mut schema);)?
                    $crate::settings::field(stringify!($field), &[$($doc),*], <$ty as $crate::settings::Setting>::kind(),
                        default, $crate::settings!(@range $ty $(, $range)?), schema)
                }),*]
            }
        }
    };
    (@default $ty:ty) => { None };
    (@default $ty:ty, $default:expr) => { Some::<$ty>($default) };
    (@check $read:ident) => { { let _ = $read; Ok(()) } };
    (@check $read:ident, $range:expr) => { $crate::settings::check_range($read, &$range) };
    (@range $ty:ty) => { None };
    (@range $ty:ty, $range:expr) => { Some($crate::settings::show_range::<<$ty as $crate::settings::Ranged>::Number>(&$range)) };
}

/// Used by [`settings!`](crate::settings!).
#[doc(hidden)]
pub fn field(
    name: &str,
    doc: &[&str],
    kind: String,
    default: Option<Value>,
    range: Option<String>,
    mut schema: serde_json::Value,
) -> Field {
    let doc = doc_text(doc);
    schema["description"] = json!(doc);
    if let Some(default) = default.as_ref().filter(|d| !d.is_null()) {
        schema["default"] = to_json(default);
    }
    Field {
        name: name.replace('_', "-"),
        doc,
        kind,
        default,
        range,
        schema,
    }
}

/// Used by [`settings!`](crate::settings!).
#[doc(hidden)]
pub fn object_schema<S: Settings>() -> serde_json::Value {
    let fields = S::fields();
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|f| (f.name.clone(), f.schema.clone()))
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|f| f.default.is_none())
        .map(|f| f.name.as_str())
        .collect();
    let mut schema = json!({
        "type": "object", "description": S::doc(), "properties": properties, "additionalProperties": false
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Declares a setting that is one of several: a word (`relu`), or a word with settings of its own (`{pool: 2}`).
///
/// ```
/// use fl_core::settings::read_yaml;
/// fl_core::choices! {
///     /// A layer.
///     pub enum Layer {
///         /// max(0, x).
///         Relu = "relu",
///         /// Fully connected, with this many outputs.
///         Linear(usize, in 1..) = "linear",
///     }
/// }
/// assert_eq!(read_yaml::<Vec<Layer>>("[linear: 10, relu]").unwrap(), [Layer::Linear(10), Layer::Relu]);
/// let error = read_yaml::<Vec<Layer>>("[rely, {linear: x}, {linear: 0}]").unwrap_err().to_string();
/// assert_eq!(error, "[0]: must be one of relu, {linear: ..}; got `rely`; did you mean `relu`?\n[1].linear: must be a whole number, got `x`\n\
///     [2].linear: must be at least 1, got 0");
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[doc = $about:literal])+ $vis:vis enum $name:ident {
        $( $(#[doc = $doc:literal])+ $variant:ident $(($ty:ty $(, in $range:expr)?))? = $word:literal ),* $(,)?
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        $vis enum $name { $( $(#[doc = $doc])+ $variant $(($ty))? ),* }

        impl $crate::settings::Setting for $name {
            fn read(value: &$crate::settings::Value, reader: &mut $crate::settings::Reader) -> Option<Self> {
                let (word, inner) = $crate::settings::choice(value);
                match word {
                    $(Some($word) if $crate::choices!(@fits inner $($ty)?) => $crate::choices!(@make $name $variant, $word, inner, reader $(, $ty $(, in $range)?)?),)*
                    _ => $crate::settings::no_such_choice(value, reader, &[$(($word, $crate::choices!(@carries $($ty)?))),*]),
                }
            }
            fn write(&self) -> $crate::settings::Value {
                match self { $($crate::choices!(@pattern $name $variant, payload $(, $ty)?) => $crate::choices!(@write $word, payload $(, $ty)?)),* }
            }
            fn schema() -> $crate::__private::Json {
                $crate::settings::choice_schema(&[$($about),+], vec![$($crate::choices!(@schema $word, [$($doc),+] $(, $ty $(, in $range)?)?)),*])
            }
            fn kind() -> String { $crate::settings::choice_words(&[$(($word, $crate::choices!(@carries $($ty)?))),*]) }
        }
    };
    (@fits $inner:ident) => { $inner.is_none() };
    (@fits $inner:ident $ty:ty) => {
        true
    };
    (@carries) => { false };
    (@carries $ty:ty) => { true };
    (@make $name:ident $variant:ident, $word:literal, $inner:ident, $reader:ident) => { Some($name::$variant) };
    (@make $name:ident $variant:ident, $word:literal, $inner:ident, $reader:ident, $ty:ty $(, in $range:expr)?) => {
        $reader.below($crate::settings::Step::Key($word.into()), |r| {
            let read = <$ty as $crate::settings::Setting>::read($inner.unwrap_or(&$crate::settings::Value::Null), r)?;
            $(if let Err(text) = $crate::settings::check_range(&read, &$range) { return r.wrong(text); })?
            Some($name::$variant(read))
        })
    };
    (@pattern $name:ident $variant:ident, $p:ident) => { $name::$variant };
    (@pattern $name:ident $variant:ident, $p:ident, $ty:ty) => { $name::$variant($p) };
    (@write $word:literal, $p:ident) => { $crate::settings::Value::from($word) };
    (@write $word:literal, $p:ident, $ty:ty) => { $crate::settings::keyed($word, <$ty as $crate::settings::Setting>::write($p)) };
    (@schema $word:literal, [$($doc:literal),+]) => { ($word, $crate::settings::doc_text(&[$($doc),+]), None) };
    (@schema $word:literal, [$($doc:literal),+], $ty:ty $(, in $range:expr)?) => {{
        #[allow(unused_mut, reason = "only a range changes it")]
        let mut schema = <$ty as $crate::settings::Setting>::schema();
        $($crate::settings::range_schema::<<$ty as $crate::settings::Ranged>::Number>(&$range, &mut schema);)?
        ($word, $crate::settings::doc_text(&[$($doc),+]), Some(schema))
    }};
}

/// Used by [`choices!`](crate::choices!): the word of a choice, and what stands under it.
#[doc(hidden)]
pub fn choice(value: &Value) -> (Option<&str>, Option<&Value>) {
    match value {
        Value::String(word) => (Some(word), None),
        Value::Mapping(map) if map.len() == 1 => {
            let (key, inner) = map.iter().next().expect("one entry");
            (key.as_str(), Some(inner))
        }
        _ => (None, None),
    }
}

/// Used by [`choices!`](crate::choices!).
#[doc(hidden)]
pub fn choice_words(words: &[(&str, bool)]) -> String {
    let all: Vec<String> = words
        .iter()
        .map(|(w, carries)| {
            if *carries {
                format!("{{{w}: ..}}")
            } else {
                (*w).into()
            }
        })
        .collect();
    format!("one of {}", all.join(", "))
}

/// Used by [`choices!`](crate::choices!).
#[doc(hidden)]
pub fn no_such_choice<T>(value: &Value, reader: &mut Reader, words: &[(&str, bool)]) -> Option<T> {
    let near = choice(value)
        .0
        .and_then(|word| nearest(word, words.iter().map(|(w, _)| *w)));
    let hint = match near {
        Some(near) => match words.iter().find(|(w, _)| *w == near) {
            Some((w, true)) => format!("; did you mean `{{{w}: ..}}`?"),
            _ => format!("; did you mean `{near}`?"),
        },
        None => String::new(),
    };
    reader.wrong(format!(
        "must be {}; got {}{hint}",
        choice_words(words),
        show(value)
    ))
}

/// Used by [`choices!`](crate::choices!).
#[doc(hidden)]
pub fn choice_schema(
    about: &[&str],
    all: Vec<(&str, String, Option<serde_json::Value>)>,
) -> serde_json::Value {
    let mut one = Vec::new();
    for (word, doc, inner) in all {
        // a word alone stands for itself with defaults
        if inner
            .as_ref()
            .is_none_or(|i| i["type"] == "object" && i.get("required").is_none())
        {
            one.push(json!({ "const": word, "description": doc }));
        }
        if let Some(inner) = inner {
            one.push(json!({
                "type": "object", "description": doc, "properties": { word: inner }, "required": [word],
                "additionalProperties": false
            }));
        }
    }
    json!({ "description": doc_text(about), "oneOf": one })
}

/// Used by [`choices!`](crate::choices!): `{word: value}`.
#[doc(hidden)]
pub fn keyed(word: &str, value: Value) -> Value {
    let mut map = serde_yaml::Mapping::new();
    map.insert(word.into(), value);
    map.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::settings! {
        /// Inner.
        pub struct Inner {
            /// Steps.
            steps: usize = 5, in 1..=10;
            /// A rate.
            rate: Option<f64> = None, in between(0.0, 1.0);
        }
    }
    crate::choices! {
        /// How.
        pub enum How {
            /// Simply.
            Plain = "plain",
            /// With care.
            Careful(Inner) = "careful",
        }
    }
    crate::settings! {
        /// Outer.
        pub struct Outer {
            /// How it is done.
            how: How = How::Plain;
            /// Several.
            warm_up: Vec<f64> = vec![], in 0.0..;
            /// Needed.
            name: String;
        }
    }

    #[test]
    fn all_mistakes_come_at_once_with_their_paths() {
        let bad =
            "{how: {careful: {steps: 0, rate: 1.0, stepz: 1}}, warm-up: [1, -2, x], nam: 3, 7: 8}";
        insta::assert_snapshot!(read_yaml::<Outer>(bad).unwrap_err(), @r"
        a setting's name must be text, got 7; known: how, warm-up, name
        how.careful.steps: must be in 1..=10, got 0
        how.careful.rate: must be above 0.0 and below 1.0, got 1.0
        how.careful.stepz: no such setting; did you mean `steps`? known: steps, rate
        warm-up[2]: must be a number, got `x`
        name: is missing (text)
        nam: no such setting; did you mean `name`? known: how, warm-up, name
        ");
    }

    #[test]
    fn what_is_written_reads_back() {
        let outer: Outer =
            read_yaml("{name: n, how: {careful: {rate: 0.5}}, warm-up: [1]}").unwrap();
        assert_eq!(
            outer.how,
            How::Careful(Inner {
                steps: 5,
                rate: Some(0.5)
            })
        );
        assert_eq!(read_value::<Outer>(&outer.write()).unwrap(), outer);
    }

    #[test]
    fn json_is_yaml_too() {
        assert_eq!(read_yaml::<Inner>(r#"{"steps": 3}"#).unwrap().steps, 3);
    }

    #[test]
    fn the_schema_says_what_the_reader_checks() {
        insta::assert_snapshot!(Inner::schema(), @r#"{"additionalProperties":false,"description":"Inner.","properties":{"rate":{"description":"A rate.","exclusiveMaximum":1.0,"exclusiveMinimum":0.0,"type":["number","null"]},"steps":{"default":5,"description":"Steps.","maximum":10,"minimum":1,"type":"integer"}},"type":"object"}"#);
    }
}
