//! What holds the label of a row, and what it is.

use crate::literal::Literal;
use fl_core::settings::{Reader, Setting, Value, ValueType};
use fl_data_kit::NumberLabel;

fl_core::choices! {
    /// What a label is.
    pub enum LabelKind {
        /// One class of several.
        Class = "class",
        /// A number to predict: regression.
        Number(NumberLabel) = "number",
    }
}

fl_core::settings! {
    /// A label: where it is, and what it is.
    #[check(Label::check)]
    pub struct Label {
        /// The column or array. `libsvm`, `leaf`, `idx`, folders of `images`, and `labels` of `npy`
        /// have a place for it.
        column: Option<Literal> = None;
        /// A class or a number.
        kind: LabelKind = LabelKind::Class;
    }
}

impl Label {
    fn check(&self) -> Result<(), String> {
        match (&self.column, &self.kind) {
            (None, LabelKind::Class) => Err("must name a `column`, or a `kind`".into()),
            _ => Ok(()),
        }
    }
}

/// A [`Label`]; a class is written as its column alone.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelSource(pub Label);

impl From<&str> for LabelSource {
    fn from(column: &str) -> Self {
        Self(Label {
            column: Some(column.into()),
            kind: LabelKind::Class,
        })
    }
}

impl Setting for LabelSource {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Mapping(_) => Label::read(value, reader).map(Self),
            one => Literal::read(one, reader).map(|column| Self::from(&*column.0)),
        }
    }
    fn write(&self) -> Value {
        match &self.0 {
            Label {
                column: Some(column),
                kind: LabelKind::Class,
            } => column.write(),
            label => label.write(),
        }
    }
    fn value_type() -> ValueType {
        ValueType::one_of([Literal::value_type(), Label::value_type()]).described("column or label")
    }
}
