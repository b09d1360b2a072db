//! When two texts name one class.

use std::borrow::Cow;

/// What two spellings of one class have in common: the number (`1`, `1.0`, `01`, `1e0`), the truth
/// value (`true` and `TRUE`, which are 1), or the text without the spaces around it.
pub(crate) fn key(text: &str) -> Cow<'_, str> {
    let text = match text.trim() {
        "" => text,
        trimmed => trimmed,
    };
    match decimal(text) {
        Some(number) => number.into(),
        None if text.eq_ignore_ascii_case("true") => "1".into(),
        None if text.eq_ignore_ascii_case("false") => "0".into(),
        None => text.into(),
    }
}

/// Has a text leading zeros, as a code?
pub(crate) fn is_code(text: &str) -> bool {
    matches!(text.trim().as_bytes(), [b'0', next, ..] if next.is_ascii_digit())
}

/// As [`key`] of a category, which may be a code: a text with leading zeros is no number.
pub(crate) fn category_key(text: &str) -> Cow<'_, str> {
    if is_code(text) {
        text.trim().into()
    } else {
        key(text)
    }
}

/// A decimal number as digits and exponent, which two texts of one number have in common.
pub(crate) fn decimal(text: &str) -> Option<String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !rest.starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
        return None;
    }
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (rest, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{part}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = all.trim_start_matches('0');
    let ends = digits.trim_end_matches('0');
    let shift = digits.len() as i64 - ends.len() as i64 - part.len() as i64 + i64::from(exponent);
    Some(match (ends, shift) {
        ("", _) => "0".into(),
        (ends, 0) => format!("{sign}{ends}"),
        (ends, shift) => format!("{sign}{ends}e{shift}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_number_or_truth_value_have_one_key() {
        for of_one in [
            &[
                "1", "1.0", "01", "+1", "1e0", "10E-1", " 1 ", "true", "TRUE", "1.",
            ][..],
            &["0", "-0", "0.0", "00", "0e9", ".0", "False", "false"],
            &["1200", "1.2e3", "12e2", "1200.00"],
            &["-0.5", "-.5", "-5e-1"],
            &["cat", " cat"],
        ] {
            of_one
                .iter()
                .for_each(|text| assert_eq!(key(text), key(of_one[0]), "{text}"));
        }
        // beyond the digits of a float, and what only looks alike
        let others = [
            "9007199254740993",
            "9007199254740992",
            "1",
            "-1",
            "10",
            "0.1",
            "1x",
            "1 2",
        ];
        let more = ["e", ".", "-", "inf", "0x1", "1_0", "yes", "Yes", "", " "];
        let keys = others.iter().chain(&more).map(|text| key(text));
        let keys: std::collections::BTreeSet<_> = keys.collect();
        assert_eq!(keys.len(), others.len() + more.len());
    }
}
