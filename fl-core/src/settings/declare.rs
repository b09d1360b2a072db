//! [`settings!`](crate::settings!): a group of settings.

use super::{Field, Value, to_json};
use serde_json::json;

/// Joins the lines of a doc comment.
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
/// Each setting is `name: type = default, in range, was "old-name";` with a doc comment. A setting
/// without a default must be given. The old name is read with a note. An attribute `#[check(path)]`
/// names a `fn(&Self) -> Result<(), String>` that checks several settings together.
#[macro_export]
macro_rules! settings {
    ($(#[doc = $about:literal])* $(#[check($check:path)])? $vis:vis struct $name:ident {
        $( $(#[doc = $doc:literal])* $field:ident : $ty:ty $(= $default:expr)? $(, in $range:expr)? $(, was $old:literal)? ; )*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name { $( $(#[doc = $doc])* pub $field: $ty, )* }

        $(const _: () = assert!(!concat!($($doc),*).is_empty(),
            concat!("`", stringify!($field), "` needs a doc comment (`/// What it does.`), which users read"));)*
        const _: () = assert!(!concat!($($about),*).is_empty(), concat!("`", stringify!($name), "` needs a doc comment"));

        impl $crate::settings::Setting for $name {
            #[allow(unused_mut, unused_variables, reason = "a group may have no settings")]
            fn read(value: &$crate::settings::Value, reader: &mut $crate::settings::Reader) -> Option<Self> {
                let names: Vec<String> = vec![$(stringify!($field).replace('_', "-")),*];
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                let old = <Self as $crate::settings::Settings>::old_names();
                let mut found = reader.keys(value, &known)?;
                reader.old_names(&mut found, value, &old);
                let before = reader.mistakes.len();
                $(let $field = reader.field_or_old::<$ty>(
                    &mut found,
                    (&stringify!($field).replace('_', "-"), $crate::settings!(@old $($old)?)),
                    $crate::settings!(@default $ty $(, $default)?),
                    |read| $crate::settings!(@check read $(, $range)?),
                    $crate::settings!(@range $ty $(, $range)?),
                );)*
                reader.unknown_or_old(&found, &known, &old);
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
                $crate::settings::object_schema(
                    &<Self as $crate::settings::Settings>::doc(),
                    &<Self as $crate::settings::Settings>::fields(),
                )
            }
            fn kind() -> String { "mapping".into() }
        }
        impl $crate::settings::Settings for $name {
            fn doc() -> String { $crate::settings::doc_text(&[$($about),*]) }
            fn old_names() -> Vec<(&'static str, String)> {
                let all = [$(($crate::settings!(@old $($old)?), stringify!($field))),*];
                $crate::settings::old_names(&all)
            }
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
    (@old) => { None };
    (@old $old:literal) => { Some($old) };
    (@default $ty:ty) => { None };
    (@default $ty:ty, $default:expr) => { Some::<$ty>($default) };
    (@check $read:ident) => { { let _ = $read; Ok(()) } };
    (@check $read:ident, $range:expr) => { $crate::settings::check_range($read, &$range) };
    (@range $ty:ty) => { None };
    (@range $ty:ty, $range:expr) => { Some($crate::settings::show_range::<<$ty as $crate::settings::Ranged>::Number>(&$range)) };
}

/// Used by [`settings!`](crate::settings!): old names, each with the name of today.
#[doc(hidden)]
pub fn old_names(all: &[(Option<&'static str>, &'static str)]) -> Vec<(&'static str, String)> {
    let renamed = all
        .iter()
        .filter_map(|(old, field)| Some(((*old)?, field.replace('_', "-"))));
    renamed.collect()
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
pub fn object_schema(doc: &str, fields: &[Field]) -> serde_json::Value {
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
        "type": "object", "description": doc, "properties": properties, "additionalProperties": false
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
