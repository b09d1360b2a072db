//! [`ValueType`]: what a setting accepts. Errors, tables, pages, suggestions and the JSON Schema
//! are made from it.

use super::{Range, Value};
use serde::{Deserialize, Deserializer, Serialize};

/// One setting of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name in a spec.
    pub name: String,
    /// The doc comment.
    pub doc: String,
    /// The default; `None` if it must be given.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub default: Option<Value>,
    /// What it accepts.
    pub accepts: ValueType,
}

/// A default of null differs from none.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// A word that can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Word {
    /// The word.
    pub name: String,
    /// The doc comment.
    pub doc: String,
    /// The value under the word, as in `{pool: 2}`, if it has one.
    pub value: Option<ValueType>,
}

impl Word {
    /// Returns it as it stands in a spec: `relu`, `{pool: ..}`.
    pub(super) fn form(&self) -> String {
        match self.value {
            Some(_) => format!("{{{}: ..}}", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns whether the word can stand alone: it has no value, or one with only defaults.
    pub fn stands_alone(&self) -> bool {
        match &self.value {
            None | Some(ValueType::Map(_)) => true,
            Some(ValueType::Group { fields, .. }) => fields.iter().all(|f| f.default.is_some()),
            Some(_) => false,
        }
    }
}

/// The type of a setting's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ValueType {
    /// Any value.
    Any,
    /// True or false.
    Bool,
    /// A whole number.
    Whole(Range),
    /// A number.
    Number(Range),
    /// A text, and the regular expression (ECMA 262) that it matches.
    Text(Option<String>),
    /// A list.
    List {
        /// The type of every item.
        items: Box<ValueType>,
        /// The smallest and the largest number of items.
        length: (usize, Option<usize>),
        /// Whether no two items may be equal.
        distinct: bool,
    },
    /// A mapping from any names to values of one type.
    Map(Box<ValueType>),
    /// A group of settings.
    Group {
        /// The doc comment.
        doc: String,
        /// The settings, in the order of the declaration.
        fields: Vec<Field>,
    },
    /// One of several words, or a value of one of several types.
    Choice {
        /// The doc comment.
        doc: String,
        /// The words.
        words: Vec<Word>,
        /// The types.
        others: Vec<ValueType>,
    },
    /// Nothing, or a value of this type.
    Optional(Box<ValueType>),
    /// A type with a description of its own, such as `path`.
    Described(String, Box<ValueType>),
}

impl ValueType {
    /// Returns the type of lists of any length.
    pub fn list(items: Self) -> Self {
        Self::List {
            items: items.into(),
            length: (0, None),
            distinct: false,
        }
    }

    /// Returns the type of lists of one item or more.
    pub fn list_of_some(items: Self) -> Self {
        Self::List {
            items: items.into(),
            length: (1, None),
            distinct: false,
        }
    }

    /// Returns the type of values that have one of several types.
    pub fn one_of(others: impl Into<Vec<Self>>) -> Self {
        Self::Choice {
            doc: String::new(),
            words: Vec::new(),
            others: others.into(),
        }
    }

    /// Returns the type with `kind` as its description.
    pub fn described(self, kind: &str) -> Self {
        Self::Described(kind.into(), self.into())
    }

    /// Returns the type with `range` for its numbers, or for the numbers of its list.
    pub fn within(self, range: Range) -> Self {
        match self {
            Self::Whole(_) => Self::Whole(range),
            Self::Number(_) => Self::Number(range),
            Self::List {
                items,
                length,
                distinct,
            } => Self::List {
                items: items.within(range).into(),
                length,
                distinct,
            },
            Self::Optional(of) => Self::Optional(of.within(range).into()),
            other => other,
        }
    }

    /// Returns the type without a description of its own, and whether null is a value of it.
    pub fn plain(&self) -> (&Self, bool) {
        match self {
            Self::Described(_, of) => of.plain(),
            Self::Optional(of) => (of.plain().0, true),
            other => (other, false),
        }
    }

    /// Returns a short description for tables and errors: `number`, `list of: path`.
    pub fn kind(&self) -> String {
        match self {
            Self::Any => "value".into(),
            Self::Bool => "true or false".into(),
            Self::Whole(_) => "whole number".into(),
            Self::Number(_) => "number".into(),
            Self::Text(_) => "text".into(),
            Self::List { items, .. } => format!("list of: {}", items.kind()),
            Self::Map(_) | Self::Group { .. } => "mapping".into(),
            Self::Choice { words, others, .. } => {
                let words = words.iter().map(Word::form);
                let all: Vec<_> = words.chain(others.iter().map(Self::kind)).collect();
                format!("one of {}", all.join(", "))
            }
            Self::Optional(of) => of.kind(),
            Self::Described(kind, _) => kind.clone(),
        }
    }

    /// Returns the range of its numbers, or of the numbers of its list: `in 0.0..0.5`, `above 0.0`.
    pub fn range(&self) -> Option<String> {
        match self.plain().0 {
            Self::Whole(range) | Self::Number(range) if *range != Range::ALL => {
                Some(range.to_string())
            }
            Self::List { items, .. } => items.range(),
            _ => None,
        }
    }
}
