//! A word of a spec that may look like a number: a class called 0, a column called 3.

use fl_core::settings::{Reader, Setting, Value, ValueType};
use std::fmt::{Display, Formatter};

/// A text, or a number or truth value as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Literal(pub String);

impl From<&str> for Literal {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

impl Setting for Literal {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self(text.clone())),
            Value::Number(number) => Some(Self(number.to_string())),
            Value::Bool(truth) => Some(Self(truth.to_string())),
            other => reader.unlike("a word", other),
        }
    }
    fn write(&self) -> Value {
        self.0.as_str().into()
    }
    fn value_type() -> ValueType {
        ValueType::one_of([String::value_type(), f64::value_type(), bool::value_type()])
            .described("word")
    }
}
