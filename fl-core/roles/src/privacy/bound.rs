//! Bounds as people read them: rounded so that the printed number holds too.

use std::fmt::{Display, Formatter};

/// A bound from above, such as an epsilon or a delta. It is printed rounded up: with the digits
/// that the format asks for (`{:.2}`), and otherwise with four, or with three significant ones if
/// it is below 0.001.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct UpperBound(pub f64);

/// A bound from below, such as the epsilon that an audit proves. It is printed as [`UpperBound`]
/// is, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LowerBound(pub f64);

impl UpperBound {
    /// Returns the least number with this many significant digits that is no smaller.
    pub fn significant(self, digits: usize) -> f64 {
        read(&significant(self.0, digits, true))
    }
}

impl LowerBound {
    /// Returns the largest number with this many significant digits that is no larger.
    pub fn significant(self, digits: usize) -> f64 {
        read(&significant(self.0, digits, false))
    }
}

fn read(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

impl Display for UpperBound {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        bound(self.0, true, f)
    }
}

impl Display for LowerBound {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        bound(self.0, false, f)
    }
}

/// From here on a bound has digits after the point, and below it an exponent.
const SMALL: f64 = 1e-3;

fn bound(x: f64, up: bool, f: &mut Formatter<'_>) -> std::fmt::Result {
    let text = match f.precision() {
        Some(digits) => fixed(x, digits, up),
        None if x == 0.0 || x.abs() >= SMALL => fixed(x, 4, up),
        None => significant(x, 3, up),
    };
    // `pad` would cut it to the precision
    let width = f.width().unwrap_or(0);
    match f.align() {
        Some(std::fmt::Alignment::Left) => write!(f, "{text:<width$}"),
        _ => write!(f, "{text:>width$}"),
    }
}

/// The decimal digits of a number that read back as the same number, and the power of ten of the
/// first.
fn digits(size: f64) -> (Vec<u8>, i32) {
    let text = format!("{size:e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.bytes().filter(u8::is_ascii_digit);
    (
        digits.map(|digit| digit - b'0').collect(),
        power.parse().unwrap_or(0),
    )
}

/// The first `keep` digits, away from 0 if `away`, and whether there is one digit more in front.
fn cut(digits: &[u8], keep: usize, away: bool) -> (Vec<u8>, bool) {
    let mut kept = digits.to_vec();
    kept.resize(keep, 0);
    let rest = digits.iter().skip(keep).any(|digit| *digit != 0);
    if !(away && rest) {
        return (kept, false);
    }
    for digit in kept.iter_mut().rev() {
        match *digit {
            9 => *digit = 0,
            _ => {
                *digit += 1;
                return (kept, false);
            }
        }
    }
    kept.insert(0, 1);
    (kept, true)
}

fn text(digits: &[u8]) -> String {
    digits
        .iter()
        .map(|digit| char::from(b'0' + digit))
        .collect()
}

/// Formats with this number of digits after the point.
fn fixed(x: f64, after: usize, up: bool) -> String {
    if !x.is_finite() {
        return x.to_string();
    }
    let (mut all, power) = digits(x.abs());
    // with zeros in front, so that a digit stands before the point
    let front = usize::try_from(-power).unwrap_or(0);
    all.splice(0..0, std::iter::repeat_n(0, front));
    let before = usize::try_from(power).unwrap_or(0) + 1;
    let (kept, more) = cut(&all, before + after, up == (x > 0.0));
    let before = before + usize::from(more);
    let sign = if x < 0.0 && kept.iter().any(|digit| *digit != 0) {
        "-"
    } else {
        ""
    };
    match after {
        0 => format!("{sign}{}", text(&kept)),
        _ => format!("{sign}{}.{}", text(&kept[..before]), text(&kept[before..])),
    }
}

/// Formats with this number of significant digits and an exponent.
pub(super) fn significant(x: f64, keep: usize, up: bool) -> String {
    if !x.is_finite() {
        return x.to_string();
    }
    let (all, power) = digits(x.abs());
    let (kept, more) = cut(&all, keep, up == (x > 0.0));
    let power = power + i32::from(more);
    let sign = if x < 0.0 { "-" } else { "" };
    let (first, rest) = kept[..keep].split_at(1);
    format!("{sign}{}.{}e{power}", text(first), text(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    #[test]
    fn exact_a_printed_bound_is_never_on_the_wrong_side() {
        let mut draws = Stream::root(7).draws();
        let mut all = vec![
            0.0,
            0.1,
            0.3,
            1.0,
            9.999_95,
            0.000_999_999,
            0.999_999_9,
            640.0,
            1e-300,
            5e-324,
            1e15,
            1e300,
            0.1 + 0.2,
            9.0 * 0.1,
            f64::MAX,
        ];
        all.extend((0..2000).map(|_| libm::exp(40.0 * draws.uniform() - 25.0)));
        for x in all {
            for x in [x, -x] {
                let read = |text: String| text.parse::<f64>().unwrap();
                for (up, down) in [
                    (UpperBound(x).to_string(), LowerBound(x).to_string()),
                    (
                        format!("{:.0}", UpperBound(x)),
                        format!("{:.0}", LowerBound(x)),
                    ),
                    (
                        format!("{:.2}", UpperBound(x)),
                        format!("{:.2}", LowerBound(x)),
                    ),
                    (
                        format!("{:9.6}", UpperBound(x)),
                        format!("{:9.6}", LowerBound(x)),
                    ),
                ] {
                    let (up, down) = (up.trim().to_string(), down.trim().to_string());
                    assert!(read(up.clone()) >= x, "{x}: {up}");
                    assert!(read(down.clone()) <= x, "{x}: {down}");
                }
                // no further away than a unit of the last digit
                let apart = read(UpperBound(x).to_string()) - read(LowerBound(x).to_string());
                let unit = if x.abs() < SMALL {
                    0.0101 * x.abs()
                } else {
                    1.01e-4
                };
                assert!(apart <= unit + 1e-15 * x.abs(), "{x}: {apart}");
            }
        }
    }

    #[test]
    fn bounds_look_as_measured_numbers_do() {
        let up = |x: f64| UpperBound(x).to_string();
        assert_eq!(up(0.001_048_94), "0.0011");
        assert_eq!(up(0.725_535_88), "0.7256");
        assert_eq!(
            (up(0.1), up(640.0), up(0.0)),
            ("0.1000".into(), "640.0000".into(), "0.0000".into())
        );
        assert_eq!(
            (up(9.999_99), up(0.000_999_99)),
            ("10.0000".into(), "1.00e-3".into())
        );
        assert_eq!(up(1.234_5e-7), "1.24e-7");
        assert_eq!(up(f64::INFINITY), "inf");
        assert_eq!(LowerBound(0.725_59).to_string(), "0.7255");
        assert_eq!(LowerBound(-0.000_01).to_string(), "-1.00e-5");
        assert_eq!(
            format!(
                "{:.3}|{:>8}|{:<8}|",
                UpperBound(1.2341),
                UpperBound(2.0),
                UpperBound(2.0)
            ),
            "1.235|  2.0000|2.0000  |"
        );
        assert_eq!(
            (
                UpperBound(1658.81).significant(5),
                LowerBound(1658.89).significant(5)
            ),
            (1658.9, 1658.8)
        );
        assert_eq!(
            format!("{:.0} {:.1}", UpperBound(9.1), UpperBound(-0.01)),
            "10 0.0"
        );
    }
}
