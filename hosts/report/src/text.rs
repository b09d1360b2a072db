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

/// Formats a number of bytes, a large one in a larger unit too: `8,885,200 (8.9 MB)`.
pub(crate) fn bytes(n: u64) -> String {
    let unit = |power: f64, name: &str| format!("{} ({:.1} {name})", count(n), n as f64 / power);
    match n {
        0..1_000_000 => count(n),
        1_000_000..1_000_000_000 => unit(1e6, "MB"),
        _ => unit(1e9, "GB"),
    }
}

/// Replaces the folders of absolute paths in a text by `..`: a page is passed on, and the author's
/// disk is no news.
pub(crate) fn without_folders(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        let end = path.find(|c: char| c.is_whitespace() || "\"'`,;]})".contains(c));
        let (path, after) = path.split_at(end.unwrap_or(path.len()));
        let begins = before.chars().last().or(out.chars().last());
        let begins = begins.is_none_or(|c| c.is_whitespace() || "\"'`=([{:,".contains(c));
        let last = path
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default();
        out += before;
        // `//` follows the scheme of an address
        if begins && !path.starts_with("//") && path.len() > last.len() + 1 {
            out += &format!("../{last}")
        } else {
            out += path
        }
        rest = after;
    }
    out + rest
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

/// Digits after the point that a number has without a spread, times a scale of 1.
const DIGITS: i32 = 4;

/// The power of ten of the first digit.
fn power(value: f64) -> i32 {
    let text = format!("{value:e}");
    let power = text
        .split_once('e')
        .and_then(|(_, power)| power.parse().ok());
    power.unwrap_or(0)
}

/// Returns the digits after the point of two significant digits of `spread`. Without a spread, as
/// many as show a hundredth of a percent.
pub fn digits_of(spread: Option<f64>, scale: f64) -> usize {
    let below = |first: i32| first.clamp(0, 12) as usize;
    match spread.filter(|spread| spread.is_finite() && *spread > 0.0) {
        Some(spread) => below(1 - power(spread)),
        None => below(DIGITS - power(scale.abs())),
    }
}

/// Formats as [`number`] does, or returns why there is none.
pub(crate) fn measured(value: Option<f64>) -> String {
    value.map_or("not finite".into(), number)
}

/// Formats `0.812 ± 0.010`: both with two significant digits of the spread.
pub(crate) fn with_std(value: Option<f64>, std: Option<f64>) -> String {
    const PLAIN: std::ops::Range<f64> = 1e-6..1e6;
    let plain = |of: &f64| PLAIN.contains(&of.abs());
    match (value.filter(|value| plain(value) || *value == 0.0), std) {
        (Some(value), Some(std)) if plain(&std) => {
            let digits = digits_of(Some(std), 1.0);
            format!("{value:.digits$} ± {std:.digits$}")
        }
        (_, Some(std)) => format!("{} ± {}", measured(value), number(std)),
        (_, None) => measured(value),
    }
}

/// Formats a number for an axis, as short as possible.
pub(crate) fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e9 => format!("{}G", plain(value / 1e9)),
        size if size >= 1e6 => format!("{}M", plain(value / 1e6)),
        size if size >= 1e4 => format!("{}k", plain(value / 1e3)),
        size if size < 1e-3 => {
            let text = format!("{value:.4e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{power}", trimmed(digits))
        }
        _ => plain(value),
    }
}

fn plain(value: f64) -> String {
    trimmed(&format!("{value:.4}")).into()
}

fn trimmed(digits: &str) -> &str {
    digits.trim_end_matches('0').trim_end_matches('.')
}

/// Formats a value on one line: `{use: mean, trim: 0.1}`.
pub fn inline(value: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_marks_of_an_axis_are_short_and_differ() {
        for (value, due) in [
            (0.0, "0"),
            (9000.0, "9000"),
            (150_000.0, "150k"),
            (-2.5e6, "-2.5M"),
            (3e9, "3G"),
            (0.002, "0.002"),
            (0.000_15, "1.5e-4"),
            (-3.0 * 1e-5, "-3e-5"),
            (1e-10, "1e-10"),
        ] {
            assert_eq!(tick(value), due);
        }
    }

    #[test]
    fn exact_no_folder_of_the_authors_disk_is_left() {
        for (text, due) in [
            (
                "fl run /home/ann/x/hello.yaml --out=/tmp/r/1",
                "fl run ../hello.yaml --out=../1",
            ),
            ("path: '/home/ann/data/a b.csv'", "path: '../a b.csv'"),
            ("[/a/b.so, ../c/d.so, e/f]", "[../b.so, ../c/d.so, e/f]"),
            ("see https://example.org/a/b", "see https://example.org/a/b"),
            ("1/2 and /only", "1/2 and /only"),
            ("/home/ann/", "../ann"),
        ] {
            assert_eq!(without_folders(text), due);
        }
    }

    #[test]
    fn exact_a_value_has_the_digits_of_its_spread() {
        for (value, std, due) in [
            (0.812_34, 0.009_96, "0.8123 ± 0.0100"),
            (0.812_34, 0.1, "0.81 ± 0.10"),
            (532.27, 105.09, "532 ± 105"),
            (0.0, 0.25, "0.00 ± 0.25"),
            (0.8, 0.0, "0.8000 ± 0"),
            (7.5e27, 1.5, "7.500e27 ± 1.5000"),
        ] {
            assert_eq!(with_std(Some(value), Some(std)), due);
        }
        assert_eq!(with_std(Some(0.812_34), None), "0.8123");
        assert_eq!(with_std(None, Some(0.1)), "not finite ± 0.1000");
    }

    #[test]
    fn exact_many_bytes_have_a_larger_unit_too() {
        assert_eq!(bytes(999_999), "999,999");
        assert_eq!(bytes(8_885_200), "8,885,200 (8.9 MB)");
        assert_eq!(bytes(4_000_000_000), "4,000,000,000 (4.0 GB)");
    }
}
