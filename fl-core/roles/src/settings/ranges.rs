//! Ranges of numbers: shown, checked, and as values.

use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::fmt::{Debug, Display, Formatter};
use std::ops::{Bound, RangeBounds};

/// Returns the range of every number above `low`: Rust has no syntax for an open lower end.
pub fn above<T>(low: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Unbounded)
}

/// Returns the range of every number above `low` and below `high`.
pub fn between<T>(low: T, high: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Excluded(high))
}

/// Returns the range of every number above `low`, with `high`.
pub fn above_to<T>(low: T, high: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Included(high))
}

/// A type whose values a range can check: numbers, and optional or listed ones.
pub trait Ranged {
    /// The number type.
    type Number: PartialOrd + Debug;
    /// Returns every number inside.
    fn numbers(&self) -> Vec<&Self::Number>;
}

/// A range of numbers of any type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The lower end.
    pub low: Bound<Number>,
    /// The upper end.
    pub high: Bound<Number>,
}

impl Range {
    /// The range of all numbers.
    pub const ALL: Self = Self {
        low: Bound::Unbounded,
        high: Bound::Unbounded,
    };

    /// Returns `range` without its type.
    pub fn of<T: Debug>(range: &impl RangeBounds<T>) -> Self {
        let number = |end: Bound<&T>| match end.map(|x| format!("{x:?}").parse::<Number>()) {
            Bound::Included(Ok(x)) => Bound::Included(x),
            Bound::Excluded(Ok(x)) => Bound::Excluded(x),
            _ => Bound::Unbounded,
        };
        Self {
            low: number(range.start_bound()),
            high: number(range.end_bound()),
        }
    }

    /// Returns whether `x` is in it.
    pub fn contains(&self, x: f64) -> bool {
        let end = |end: &Bound<Number>| {
            let number = end.as_ref().map(Number::as_f64);
            number.map(|end| end.unwrap_or(f64::NAN))
        };
        (end(&self.low), end(&self.high)).contains(&x)
    }
}

/// `in 0.0..0.5`, `at least 2`, `above 0.0`.
impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.low, &self.high) {
            (Included(a), Excluded(b)) => write!(f, "in {a}..{b}"),
            (Included(a), Included(b)) => write!(f, "in {a}..={b}"),
            (Included(a), Unbounded) => write!(f, "at least {a}"),
            (Excluded(a), Unbounded) => write!(f, "above {a}"),
            (Excluded(a), Excluded(b)) => write!(f, "above {a} and below {b}"),
            (Excluded(a), Included(b)) => write!(f, "above {a} and at most {b}"),
            (Unbounded, Excluded(b)) => write!(f, "below {b}"),
            (Unbounded, Included(b)) => write!(f, "at most {b}"),
            (Unbounded, Unbounded) => f.write_str("any"),
        }
    }
}

/// Used by [`settings!`](crate::settings!).
#[doc(hidden)]
pub fn check_range<V: Ranged>(
    value: &V,
    range: &impl RangeBounds<V::Number>,
) -> Result<(), String> {
    match value.numbers().into_iter().find(|n| !range.contains(*n)) {
        None => Ok(()),
        Some(bad) => Err(format!("must be {}, got {bad:?}", Range::of(range))),
    }
}
