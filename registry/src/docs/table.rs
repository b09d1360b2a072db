//! Settings as a table for people.

use super::capital;
use fl_core::settings::{Field, Range, ValueType, to_json};
use serde_json::{Number, Value as Json};
use std::fmt::Write;
use std::ops::Bound;

/// Text as it can stand in a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A table of everything that can stand in a mapping with these fields.
pub(super) fn fields(fields: &[Field]) -> String {
    let mut table = Table::default();
    table.mapping("", fields);
    table.out
}

#[derive(Default)]
struct Table {
    out: String,
    /// What has its rows already, and where: the same fields are explained once.
    known: Vec<(ValueType, String)>,
}

impl Table {
    fn row(&mut self, field: &str, value: &str, default: &str, meaning: &str) {
        if self.out.is_empty() {
            self.out = "| field | value | default | meaning |\n|---|---|---|---|\n".into();
        }
        let _ = writeln!(
            self.out,
            "| {field} | {value} | {default} | {} |",
            cell(meaning)
        );
    }

    /// The fields of a mapping by name, those first that must be given.
    fn mapping(&mut self, path: &str, fields: &[Field]) {
        let mut fields: Vec<&Field> = fields.iter().collect();
        fields.sort_by_key(|f| (f.default.is_some(), &f.name));
        for field in fields {
            let path = match path {
                "" => field.name.clone(),
                path => format!("{path}.{}", field.name),
            };
            let default = match &field.default {
                None => "must be given".into(),
                Some(default) if default.is_null() => "none".into(),
                Some(default) => format!("`{}`", yaml(&to_json(default))),
            };
            let of = &field.accepts;
            self.field(&path, of, &kind(of), &default, &field.doc);
        }
    }

    /// One field, and below it what can stand in it, unless that is explained already.
    fn field(&mut self, path: &str, of: &ValueType, value: &str, default: &str, meaning: &str) {
        let of = of.plain().0;
        let before = self.known.iter().find(|(known, _)| alike(known, of));
        if let Some((_, first)) = before {
            let meaning = format!("{meaning} As `{first}`.");
            self.row(&format!("`{path}`"), value, default, meaning.trim());
            return;
        }
        self.row(&format!("`{path}`"), value, default, meaning);
        let rows = self.out.len();
        self.inside(path, of);
        if self.out.len() > rows {
            self.known.push((of.clone(), path.to_string()));
        }
    }

    fn inside(&mut self, path: &str, of: &ValueType) {
        match of.plain().0 {
            ValueType::Group { fields, .. } => self.mapping(path, fields),
            ValueType::Choice { words, others, .. } => {
                for word in words {
                    let name = &word.name;
                    match &word.value {
                        Some(value) => {
                            let or_name = if word.stands_alone() {
                                ", or its name alone"
                            } else {
                                ""
                            };
                            let of_value = format!("{}{or_name}", kind(value));
                            self.field(&format!("{path}.{name}"), value, &of_value, "", &word.doc);
                        }
                        None if word.doc.is_empty() => {}
                        None => self.row(&format!("`{path}: {name}`"), "", "", &word.doc),
                    }
                }
                others.iter().for_each(|other| self.inside(path, other));
            }
            ValueType::List { items, .. } => self.inside(&format!("{path}[]"), items),
            _ => {}
        }
    }
}

/// Whether two types accept the same, whatever they say of themselves.
fn alike(a: &ValueType, b: &ValueType) -> bool {
    match (a, b) {
        (ValueType::Group { fields: a, .. }, ValueType::Group { fields: b, .. }) => a == b,
        _ => a == b,
    }
}

/// The range and the default of a field, in words; nothing if it has neither.
pub(crate) fn explain(field: &Field) -> String {
    let range = match field.accepts.plain().0 {
        ValueType::Whole(range) | ValueType::Number(range) => words(range),
        _ => String::new(),
    };
    let range = Some(range).filter(|range| !range.is_empty());
    let default = field.default.as_ref().filter(|default| !default.is_null());
    let default = default.map(|default| format!("default: {}", yaml(&to_json(default))));
    let both: Vec<String> = range.into_iter().chain(default).collect();
    capital(&both.join("; "))
}

/// What kind of value this is, with its range.
fn kind(of: &ValueType) -> String {
    let ranged = |kind: &str, range: &Range| match words(range) {
        range if range.is_empty() => kind.to_string(),
        range => format!("{kind}, {range}"),
    };
    match of.plain().0 {
        ValueType::Choice { words, others, .. } => {
            let words = words.iter().map(|word| format!("`{}`", word.name));
            let names: Vec<String> = words.chain(others.iter().map(kind)).collect();
            names.join(if others.is_empty() { ", " } else { " or " })
        }
        ValueType::Whole(range) => ranged("whole number", range),
        ValueType::Number(range) => ranged("number", range),
        ValueType::Bool => "`true` or `false`".into(),
        ValueType::List { items, .. } => match kind(items) {
            of if of.is_empty() => "list".into(),
            of => format!("list of: {of}"),
        },
        ValueType::Any => String::new(),
        other => other.kind(),
    }
}

/// `at least 1 and at most 100`, `above 0`, or nothing.
fn words(range: &Range) -> String {
    let end = |end: &Bound<Number>, includes: &str, excludes: &str| match end {
        Bound::Included(x) => Some(format!("{includes} {}", text(&Json::Number(x.clone())))),
        Bound::Excluded(x) => Some(format!("{excludes} {}", text(&Json::Number(x.clone())))),
        Bound::Unbounded => None,
    };
    let low = end(&range.low, "at least", "above");
    let high = end(&range.high, "at most", "below");
    let both: Vec<_> = low.into_iter().chain(high).collect();
    both.join(" and ")
}

/// A value as it stands in a spec, on one line, without what is not given.
pub(crate) fn yaml(value: &Json) -> String {
    match value {
        Json::Object(map) => {
            let given = map.iter().filter(|(_, v)| !v.is_null());
            let fields: Vec<_> = given.map(|(k, v)| format!("{k}: {}", yaml(v))).collect();
            format!("{{ {} }}", fields.join(", ")).replace("{  }", "{}")
        }
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(yaml).collect();
            format!("[{}]", items.join(", "))
        }
        other => text(other),
    }
}

/// A scalar without quotes; a whole number without `.0`.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => {
            let text = other.to_string();
            text.strip_suffix(".0").map_or(text.clone(), str::to_string)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::Settings;

    fl_core::settings! {
        /// Training.
        pub struct Training {
            /// Examples | mini-batch.
            batch: usize = 32, in 1..;
        }
    }
    fl_core::settings! {
        /// By class.
        pub struct Dirichlet {
            /// How even.
            alpha: f64, in fl_core::settings::above(0.0);
        }
    }
    fl_core::choices! {
        /// Who has what.
        pub enum Split {
            /// At random.
            Iid = "iid",
            /// By class.
            Dirichlet(Dirichlet) = "dirichlet",
        }
    }
    fl_core::settings! {
        /// All.
        pub struct All {
            /// Training.
            a: Training = Training { batch: 32 };
            /// Training.
            b: Option<Training> = Some(Training { batch: 32 });
            /// Numbers.
            list: Option<Vec<f64>> = None;
            /// Who has what.
            split: Split;
        }
    }

    #[test]
    fn exact_a_table_explains_every_field_once() {
        insta::assert_snapshot!(fields(&All::fields()), @r"
        | field | value | default | meaning |
        |---|---|---|---|
        | `split` | `iid`, `dirichlet` | must be given | Who has what. |
        | `split: iid` |  |  | At random. |
        | `split.dirichlet` | mapping |  | By class. |
        | `split.dirichlet.alpha` | number, above 0 | must be given | How even. |
        | `a` | mapping | `{ batch: 32 }` | Training. |
        | `a.batch` | whole number, at least 1 | `32` | Examples \| mini-batch. |
        | `b` | mapping | `{ batch: 32 }` | Training. As `a`. |
        | `list` | list of: number | none | Numbers. |
        ");
    }
}
