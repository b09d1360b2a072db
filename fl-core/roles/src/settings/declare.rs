//! [`settings!`](crate::settings!): a group of settings.

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
/// Each setting is `name: type = default, in range;` with a doc comment. A setting without a default
/// must be given. An attribute `#[check(path)]` names a `fn(&Self) -> Result<(), String>` that checks
/// several settings together.
#[macro_export]
macro_rules! settings {
    ($(#[doc = $about:literal])* $(#[check($check:path)])? $vis:vis struct $name:ident {
        $( $(#[doc = $doc:literal])* $field:ident : $ty:ty $(= $default:expr)? $(, in $range:expr)? ; )*
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
                let names = <Self as $crate::settings::Settings>::names();
                let mut found = reader.keys(value, &names)?;
                let before = reader.mistakes.len();
                let mut each = names.iter();
                $(let $field = reader.field::<$ty>(
                    &mut found,
                    each.next()?,
                    $crate::settings!(@default $ty $(, $default)?),
                    |read| $crate::settings!(@check read $(, $range)?),
                    $crate::settings!(@range $ty $(, $range)?),
                );)*
                reader.unknown(&found, &names);
                if reader.mistakes.len() > before { return None; }
                let read = Self { $($field: $field?),* };
                $(if let Err(text) = $check(&read) { return reader.wrong(text); })?
                Some(read)
            }
            fn write(&self) -> $crate::settings::Value {
                #[allow(unused_mut, reason = "a group may have no settings")]
                let mut map = $crate::__private::Mapping::new();
                $(map.insert($crate::settings::spec_name(stringify!($field)).into(), $crate::settings::Setting::write(&self.$field));)*
                map.into()
            }
            fn value_type() -> $crate::settings::ValueType { <Self as $crate::settings::Settings>::group() }
        }
        impl $crate::settings::Settings for $name {
            fn doc() -> String { $crate::settings::doc_text(&[$($about),*]) }
            fn names() -> Vec<String> {
                vec![$($crate::settings::spec_name(stringify!($field))),*]
            }
            fn fields() -> Vec<$crate::settings::Field> {
                vec![$({
                    let default: Option<$ty> = $crate::settings!(@default $ty $(, $default)?);
                    $crate::settings::Field {
                        name: $crate::settings::spec_name(stringify!($field)),
                        doc: $crate::settings::doc_text(&[$($doc),*]),
                        default: default.as_ref().map($crate::settings::Setting::write),
                        accepts: $crate::settings!(@accepts $ty $(, $range)?),
                    }
                }),*]
            }
        }
    };
    (@default $ty:ty) => { None };
    (@default $ty:ty, $default:expr) => { Some::<$ty>($default) };
    (@check $read:ident) => { { let _ = $read; Ok(()) } };
    (@check $read:ident, $range:expr) => { $crate::settings::check_range($read, &$range) };
    (@range $ty:ty) => { None };
    (@range $ty:ty, $range:expr) => { Some($crate::settings::Range::of::<<$ty as $crate::settings::Ranged>::Number>(&$range)) };
    (@accepts $ty:ty) => { <$ty as $crate::settings::Setting>::value_type() };
    (@accepts $ty:ty, $range:expr) => {
        <$ty as $crate::settings::Setting>::value_type()
            .within($crate::settings::Range::of::<<$ty as $crate::settings::Ranged>::Number>(&$range))
    };
}

/// Used by [`settings!`](crate::settings!): the name of a field in specs.
#[doc(hidden)]
pub fn spec_name(field: &str) -> String {
    field.replace('_', "-")
}
