//! Numbers and texts of table cells.

use crate::columns::Show;
use crate::stats::{Paired, Sample};
use fl_core::privacy::{LowerBound, UpperBound};
use fl_report::is_bound;

/// Escapes tags and comments in a text, such as the marks of tables in a README.
pub(crate) fn unmarked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let begins = |next: &char| next.is_ascii_alphabetic() || "/!?".contains(*next);
        if c == '<' && rest.peek().is_some_and(begins) {
            out += "&lt;"
        } else {
            out.push(c)
        }
    }
    out
}

/// Escapes a text for a cell.
fn cell(text: &str) -> String {
    unmarked(&text.replace('|', "\\|").replace('\n', " "))
}

/// Returns a line of a table.
pub(crate) fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// How the numbers of a measure are rounded.
#[derive(Clone, Copy)]
pub(crate) enum Rounding {
    /// To the nearest.
    Nearest,
    /// Up: they bound something from above.
    Up,
    /// Down: they do so times a negative scale.
    Down,
}

impl Rounding {
    /// Returns that of measures with these names, times `scale`.
    pub(crate) fn of(names: &[String], scale: f64) -> Self {
        match names.iter().any(|name| is_bound(name)) {
            true if scale < 0.0 => Self::Down,
            true => Self::Up,
            false => Self::Nearest,
        }
    }
}

pub(crate) fn shown(sample: &Sample, show: Show, digits: usize, rounding: Rounding) -> String {
    let one = |value: f64| match rounding {
        Rounding::Nearest => format!("{value:.digits$}"),
        Rounding::Up => format!("{:.digits$}", UpperBound(value)),
        Rounding::Down => format!("{:.digits$}", LowerBound(value)),
    };
    let spread = |std: f64| format!("{std:.digits$}");
    match show {
        Show::Mean => match sample.std() {
            Some(std) => format!("{} +- {}", one(sample.mean()), spread(std)),
            None => one(sample.mean()),
        },
        Show::Median => one(sample.median()),
        Show::Std => sample.std().map_or(String::new(), spread),
        Show::Range => format!("{} to {}", one(sample.min()), one(sample.max())),
        Show::Min => one(sample.min()),
        Show::Max => one(sample.max()),
        Show::Seeds => sample.count().to_string(),
        Show::Minus => String::new(),
    }
}

/// Formats `+0.1`; a value that rounds to 0 has no sign.
pub(crate) fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    if text
        .trim_start_matches('-')
        .chars()
        .all(|c| "0.".contains(c))
    {
        text.replacen('-', "+", 1)
    } else {
        text
    }
}

pub(crate) fn minus(of: Paired, digits: usize) -> String {
    let signed = |value: f64| signed(value, digits);
    let interval = of.half.map_or(String::new(), |half| {
        format!(" [{}, {}]", signed(of.mean - half), signed(of.mean + half))
    });
    let said = if of.distinguishable() == Some(false) {
        ", not distinguishable"
    } else {
        ""
    };
    format!("{}{interval}{said}", signed(of.mean))
}

/// A published number.
#[derive(Clone, Copy)]
pub(crate) struct PublishedNumber {
    pub value: f64,
    pub digits: usize,
}

/// Parses `82.0 +- 0.6` or `82.0 ± 0.6`, or `82.0`; `None` for anything else.
pub(crate) fn number(text: &str) -> Option<(PublishedNumber, Option<f64>)> {
    let one = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    let parts = text.split_once("+-").or(text.split_once('±'));
    let (value, spread) = match parts {
        Some((value, spread)) => (value, Some(one(spread)?)),
        None => (text, None),
    };
    let digits = value
        .trim()
        .split_once('.')
        .map_or(0, |(_, d)| d.len().min(12));
    Some((
        PublishedNumber {
            value: one(value)?,
            digits,
        },
        spread,
    ))
}

#[cfg(test)]
mod markup_tests {
    use super::*;
    use fl_report::digits_of;

    #[test]
    fn exact_a_value_has_the_digits_of_its_spread() {
        for (values, due) in [
            (&[0.811, 0.832][..], "0.822 +- 0.015"),
            (&[81.1, 83.2], "82.2 +- 1.5"),
            (&[81.0, 111.0], "96 +- 21"),
            (&[4000.0, 5000.0], "4500 +- 707"),
            (&[0.5], "0.5000"),
            (&[0.5, 0.5], "0.5000 +- 0.0000"),
        ] {
            let sample = Sample::new(values.to_vec()).unwrap();
            let digits = digits_of(sample.std(), 1.0);
            assert_eq!(shown(&sample, Show::Mean, digits, Rounding::Nearest), due);
        }
        assert_eq!(
            [1.0, 100.0, 0.01].map(|scale| digits_of(None, scale)),
            [4, 2, 6]
        );
    }

    #[test]
    fn exact_no_tag_stands_in_a_table() {
        let evil = "<script>x</script> <!-- fl | 1 < 2 <= 3\nb";
        let due = "&lt;script>x&lt;/script> &lt;!-- fl \\| 1 < 2 <= 3 b";
        assert_eq!(cell(evil), due);
    }
}
