//! Formats of numbers and values for people.

use fl_core::privacy::{LowerBound, UpperBound};
use serde_yaml::Value;

/// Formats 1234567 as `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a measured number: whole ones exactly, others with four significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => value.to_string(),
        size if value.fract() == 0.0 && size < 1e15 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", count(size as u64))
        }
        size if size >= 1e6 => format!("{value:.3e}"),
        size if size >= 1000.0 => format!("{value:.1}"),
        size if size >= 1e-3 => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

/// Formats a value of a measure, times `scale`. A number that bounds something, such as an epsilon,
/// is rounded so that it still does.
pub(crate) fn of_measure(name: &str, scale: f64, value: f64) -> String {
    match is_bound(name) {
        true if value.fract() == 0.0 && value.abs() < 1e15 => number(value),
        true if scale < 0.0 => LowerBound(value).to_string(),
        true => UpperBound(value).to_string(),
        false => number(value),
    }
}

/// Returns whether a measure or a setting of this name bounds something from above
/// (`epsilon.readers`, `accountant.delta`); of several names after `or`, whether one does.
pub fn is_bound(name: &str) -> bool {
    const BOUNDS: [&str; 4] = ["epsilon", "delta", "data-epsilon", "data-delta"];
    let mut names = name.split(" or ");
    names.any(|name| {
        name.split(['.', ',', ' '])
            .any(|part| BOUNDS.contains(&part))
    })
}

/// Formats as [`number`] does, or returns why there is none.
pub(crate) fn measured(value: Option<f64>) -> String {
    value.map_or("not finite".into(), number)
}

/// Formats `0.8123 ± 0.0100`.
pub(crate) fn with_std(value: Option<f64>, std: Option<f64>) -> String {
    match std {
        Some(std) => format!("{} ± {}", measured(value), number(std)),
        None => measured(value),
    }
}

/// Formats a number for an axis, as short as possible.
pub(crate) fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e9 => format!("{}G", plain(value / 1e9)),
        size if size >= 1e6 => format!("{}M", plain(value / 1e6)),
        size if size >= 1e4 => format!("{}k", plain(value / 1e3)),
        size if size < 1e-3 => format!("{value:.0e}"),
        _ => plain(value),
    }
}

fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Formats a value on one line: `{use: mean, trim: 0.1}`.
pub(crate) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => s.clone(),
        Value::Sequence(all) => {
            format!(
                "[{}]",
                all.iter().map(inline).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Mapping(map) => {
            let entries = map
                .iter()
                .map(|(k, v)| format!("{}: {}", inline(k), inline(v)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Tagged(tagged) => inline(&tagged.value),
    }
}
