//! Ranges of numbers: shown, checked, and in a schema.

use std::fmt::Debug;
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

/// Returns a description: `in 0.0..0.5`, `at least 2`, `above 0.0`.
pub fn show_range<T: Debug>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(a), Bound::Excluded(b)) => format!("in {a:?}..{b:?}"),
        (Bound::Included(a), Bound::Included(b)) => format!("in {a:?}..={b:?}"),
        (Bound::Included(a), Bound::Unbounded) => format!("at least {a:?}"),
        (Bound::Excluded(a), Bound::Unbounded) => format!("above {a:?}"),
        (Bound::Excluded(a), Bound::Excluded(b)) => format!("above {a:?} and below {b:?}"),
        (Bound::Excluded(a), Bound::Included(b)) => format!("above {a:?} and at most {b:?}"),
        (Bound::Unbounded, Bound::Excluded(b)) => format!("below {b:?}"),
        (Bound::Unbounded, Bound::Included(b)) => format!("at most {b:?}"),
        (Bound::Unbounded, Bound::Unbounded) => "any".into(),
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
        Some(bad) => Err(format!("must be {}, got {bad:?}", show_range(range))),
    }
}

/// Used by [`settings!`](crate::settings!).
#[doc(hidden)]
pub fn range_schema<T: Debug>(range: &impl RangeBounds<T>, schema: &mut serde_json::Value) {
    // the range of a list applies to its items
    let schema = match schema.get("items").is_some() {
        true => &mut schema["items"],
        false => schema,
    };
    let number =
        |x: &T| serde_json::from_str::<serde_json::Value>(&format!("{x:?}")).unwrap_or_default();
    match range.start_bound() {
        Bound::Included(a) => schema["minimum"] = number(a),
        Bound::Excluded(a) => schema["exclusiveMinimum"] = number(a),
        Bound::Unbounded => {}
    }
    match range.end_bound() {
        Bound::Included(b) => schema["maximum"] = number(b),
        Bound::Excluded(b) => schema["exclusiveMaximum"] = number(b),
        Bound::Unbounded => {}
    }
}
