//! The types of settings: numbers, words, lists, and optional ones.

use super::{Range, Ranged, Reader, Setting, Step, Value, ValueType};
use std::fmt::Display;

/// Returns the expected value if `value` is no number of this kind; for a whole number outside the
/// range, the range.
fn unfit(value: &Value, low: impl Display, high: impl Display) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let huge = |text: &str| digits(text) && text.parse::<u64>().is_err();
    match value {
        Value::Number(n) if n.is_i64() && n.as_i64() < Some(0) => format!("at least {low}"),
        Value::Number(n) if n.is_u64() => format!("at most {high}"),
        Value::String(text) if huge(text) => format!("at most {high}"),
        _ => "a whole number".into(),
    }
}

/// A number that was written as a text, as writers of YAML 1.1 (PyYAML among them) write `1e-3`.
fn number_in(value: &Value) -> Option<f64> {
    let text = value.as_str()?;
    let starts = text.trim_start_matches(['+', '-']);
    let number = starts.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    number.then(|| text.parse().ok())?
}

macro_rules! numbers {
    ($($t:ty, $get:ident, $wide:ty;)*) => {$(
        impl Setting for $t {
            fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
                let text = || value.as_str().and_then(|text| text.parse().ok());
                match value.$get().or_else(text).and_then(|wide| <$t>::try_from(wide).ok()) {
                    Some(n) => Some(n),
                    None => reader.unlike(&unfit(value, <$t>::MIN, <$t>::MAX), value),
                }
            }
            fn write(&self) -> Value { Value::from(*self as $wide) }
            fn value_type() -> ValueType { ValueType::Whole(Range::ALL) }
        }
        impl Ranged for $t {
            type Number = $t;
            fn numbers(&self) -> Vec<&$t> { vec![self] }
        }
    )*};
}
numbers! {
    usize, as_u64, u64;
    u64, as_u64, u64;
    u32, as_u64, u64;
    i64, as_i64, i64;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Setting for $t {
            fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
                match value.as_f64().or_else(|| number_in(value)) {
                    Some(x) if (x as $t).is_finite() => Some(x as $t),
                    Some(_) => reader.unlike("a finite number", value),
                    None => reader.unlike("a number", value),
                }
            }
            fn write(&self) -> Value {
                // in its shortest form, so that an f32 does not gain digits
                Value::from(self.to_string().parse::<f64>().unwrap_or(f64::NAN))
            }
            fn value_type() -> ValueType {
                ValueType::Number(Range::ALL)
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
    fn value_type() -> ValueType {
        ValueType::Bool
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
    fn value_type() -> ValueType {
        ValueType::Text(None)
    }
}

/// Any value: it is read elsewhere.
impl Setting for Value {
    fn read(value: &Value, _: &mut Reader) -> Option<Self> {
        Some(value.clone())
    }
    fn write(&self) -> Value {
        self.clone()
    }
    fn value_type() -> ValueType {
        ValueType::Any
    }
}

/// Any values by name: they are read elsewhere.
impl Setting for serde_yaml::Mapping {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Mapping(map) => Some(map.clone()),
            Value::Null => Some(Self::new()),
            other => reader.unlike("a mapping", other),
        }
    }
    fn write(&self) -> Value {
        self.clone().into()
    }
    fn value_type() -> ValueType {
        ValueType::Map(ValueType::Any.into())
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
    fn value_type() -> ValueType {
        ValueType::Optional(T::value_type().into())
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
    fn value_type() -> ValueType {
        ValueType::list(T::value_type())
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
    fn value_type() -> ValueType {
        T::value_type()
    }
}
