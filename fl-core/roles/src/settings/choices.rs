//! [`choices!`](crate::choices!): a setting that is one of several.

use super::{Reader, Value, ValueType, nearest, show};

/// Declares a setting that is one of several: a word (`relu`), or a word with its own settings
/// (`{pool: 2}`). After a colon come traits to derive, [`serde::Serialize`] among them.
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
/// let layers: Vec<Layer> = read_yaml("[linear: 10, relu]").unwrap();
/// assert_eq!(layers, [Layer::Linear(10), Layer::Relu]);
/// let error = read_yaml::<Vec<Layer>>("[rely, {linear: x}, {linear: 0}]").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "[0]: must be one of relu, {linear: ..}; got `rely`; did you mean `relu`?\n\
///      [1].linear: must be a whole number, got `x`\n[2].linear: must be at least 1, got 0"
/// );
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[doc = $about:literal])+ $vis:vis enum $name:ident $(: $($also:path),+)? {
        $( $(#[doc = $doc:literal])+ $variant:ident $(($ty:ty $(, in $range:expr)?))? = $word:literal ),* $(,)?
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        $(#[derive($($also),+)] #[serde(rename_all = "kebab-case")])?
        $vis enum $name { $( $(#[doc = $doc])+ $variant $(($ty))? ),* }

        impl $crate::settings::Setting for $name {
            fn read(value: &$crate::settings::Value, reader: &mut $crate::settings::Reader) -> Option<Self> {
                let (word, inner) = $crate::settings::choice(value);
                match word {
                    $(Some($word) if $crate::choices!(@fits inner $($ty)?) => $crate::choices!(@make $name $variant, $word, inner, reader $(, $ty $(, in $range)?)?),)*
                    _ => $crate::settings::no_such_choice(value, reader, &Self::value_type()),
                }
            }
            fn write(&self) -> $crate::settings::Value {
                match self { $($crate::choices!(@pattern $name $variant, payload $(, $ty)?) => $crate::choices!(@write $word, payload $(, $ty)?)),* }
            }
            fn value_type() -> $crate::settings::ValueType {
                $crate::settings::ValueType::Choice {
                    doc: $crate::settings::doc_text(&[$($about),+]),
                    words: vec![$($crate::settings::Word {
                        name: $word.into(),
                        doc: $crate::settings::doc_text(&[$($doc),+]),
                        value: $crate::choices!(@value $($ty $(, in $range)?)?),
                    }),*],
                    others: Vec::new(),
                }
            }
        }
    };
    (@fits $inner:ident) => { $inner.is_none() };
    (@fits $inner:ident $ty:ty) => {
        true
    };
    (@value) => { None };
    (@value $ty:ty $(, in $range:expr)?) => { Some($crate::settings!(@accepts $ty $(, $range)?)) };
    (@make $name:ident $variant:ident, $word:literal, $inner:ident, $reader:ident) => { Some($name::$variant) };
    (@make $name:ident $variant:ident, $word:literal, $inner:ident, $reader:ident, $ty:ty $(, in $range:expr)?) => {
        $reader.below($crate::settings::Step::Key($word.into()), |r| {
            let read = r.checked::<$ty>(
                $inner.unwrap_or(&$crate::settings::Value::Null),
                |read| $crate::settings!(@check read $(, $range)?),
                $crate::settings!(@range $ty $(, $range)?),
            );
            read.map($name::$variant)
        })
    };
    (@pattern $name:ident $variant:ident, $p:ident) => { $name::$variant };
    (@pattern $name:ident $variant:ident, $p:ident, $ty:ty) => { $name::$variant($p) };
    (@write $word:literal, $p:ident) => { $crate::settings::Value::from($word) };
    (@write $word:literal, $p:ident, $ty:ty) => { $crate::settings::keyed($word, <$ty as $crate::settings::Setting>::write($p)) };
}

/// Used by [`choices!`](crate::choices!): returns the word of a choice, and the value under it.
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

/// Used by [`choices!`](crate::choices!): records that `value` is none of the words of `choice`.
#[doc(hidden)]
pub fn no_such_choice<T>(value: &Value, reader: &mut Reader, of: &ValueType) -> Option<T> {
    let words = match of {
        ValueType::Choice { words, .. } => &words[..],
        _ => &[],
    };
    let near = choice(value)
        .0
        .and_then(|word| nearest(word, words.iter().map(|word| word.name.as_str())))
        .and_then(|near| words.iter().find(|word| word.name == near));
    let hint = near.map_or(String::new(), |near| {
        format!("; did you mean `{}`?", near.form())
    });
    reader.wrong(format!("must be {}; got {}{hint}", of.kind(), show(value)))
}

/// Used by [`choices!`](crate::choices!): returns `{word: value}`.
#[doc(hidden)]
pub fn keyed(word: &str, value: Value) -> Value {
    let mut map = serde_yaml::Mapping::new();
    map.insert(word.into(), value);
    map.into()
}
