//! How the columns of a table are read.

use crate::class_key::category_key;
use crate::literal::Literal;
use fl_core::settings::{Reader, Setting, Step, Value, ValueType};
use std::collections::BTreeMap;

fl_core::choices! {
    /// How a column is read.
    pub enum Column {
        /// One value: the number.
        Number(Number) = "number",
        /// One value for each category: 1 in that of the row, 0 in the others.
        Category(Category) = "category",
        /// Hashed bags of words: how often each word occurs, scaled to length 1; or the first words
        /// in their order.
        Text(Text) = "text",
        /// Not used.
        Skip = "skip",
    }
}

fl_core::settings! {
    /// A column of numbers.
    #[check(Number::check)]
    pub struct Number {
        /// `[low, high]`: the value is `(number - low) / (high - low)`, and a number outside is a
        /// mistake.
        range: Option<Vec<f32>> = None;
        /// The number where the field is missing; otherwise that is a mistake.
        missing: Option<f32> = None;
    }
}

fl_core::settings! {
    /// A column of categories.
    #[check(Category::check)]
    pub struct Category {
        /// The categories; another one is a mistake. If not given those in the training rows,
        /// sorted, and another one has no value of its own.
        of: Option<Vec<Literal>> = None;
    }
}

fl_core::settings! {
    /// A column of text.
    pub struct Text {
        /// Number of columns of a bag. The hash of a word selects its column.
        width: usize = fl_data_kit::text::WIDTH, in 1..=fl_data_kit::text::MAX_WIDTH;
        /// Instead of a bag: number of values, the text's first words in their order, each as its
        /// column's number from 1 to `width`, then zeros. For networks that begin with `embedding`,
        /// where it is the only column.
        words: Option<usize> = None, in 1..=fl_data_kit::text::MAX_WORDS;
    }
}

impl Number {
    fn check(&self) -> Result<(), String> {
        match self.range.as_deref() {
            None => Ok(()),
            Some([low, high]) if low < high => Ok(()),
            Some(_) => Err("`range` must be two numbers, the lower one first".into()),
        }
    }

    /// Lowest and highest number.
    pub(crate) fn ends(&self) -> Option<(f32, f32)> {
        match self.range.as_deref() {
            Some([low, high]) => Some((*low, *high)),
            _ => None,
        }
    }
}

impl Category {
    fn check(&self) -> Result<(), String> {
        let mut seen = BTreeMap::new();
        for word in self.of.iter().flatten() {
            match seen.insert(category_key(&word.0), word) {
                Some(same) if same == word => return Err(format!("`of` names {word} twice")),
                Some(same) => return Err(format!("`of` names {same} and {word}, which are equal")),
                None => {}
            }
        }
        Ok(())
    }
}

/// Columns by name, in the order of the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns(pub Vec<(String, Column)>);

impl Setting for Columns {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let map = match value {
            Value::Null => return Some(Self::default()),
            Value::Mapping(map) => map,
            other => return reader.unlike("a mapping from columns to kinds", other),
        };
        let mut all = Vec::new();
        for (name, value) in map {
            let name = Literal::read(name, reader);
            let column = reader.below(
                Step::Key(name.clone().map_or(String::new(), |name| name.0)),
                |r| Column::read(value, r),
            );
            all.push(name.zip(column).map(|(name, column)| (name.0, column)));
        }
        all.into_iter().collect::<Option<_>>().map(Self)
    }
    fn write(&self) -> Value {
        let entries = self.0.iter();
        let entries = entries.map(|(name, column)| (name.as_str().into(), column.write()));
        Value::Mapping(entries.collect())
    }
    fn value_type() -> ValueType {
        ValueType::Map(Column::value_type().into()).described("mapping from columns to kinds")
    }
}
