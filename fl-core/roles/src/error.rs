//! [`Problem`]: the errors that callers distinguish.

use crate::ClientId;
use anyhow::anyhow;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error with context; it holds a [`Problem`] if callers must match on it.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;

/// Returns the text of a panic, if it has one.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref().cloned())
}

/// Runs `work`, and converts a panic to an error.
///
/// # Errors
/// Those of `work`; that it panicked, with its text.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).unwrap_or_default();
        Err(anyhow!("a part panicked: {text}"))
    })
}

/// The errors that hosts, policies and tests distinguish.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Problem {
    /// A tensor holds NaN or an infinity.
    #[error("`{tensor}` holds {value} at position {at}; every number must be finite")]
    NotFinite {
        /// Name of the tensor.
        tensor: String,
        /// Flat position of the first such value.
        at: usize,
        /// `NaN`, `inf` or `-inf`.
        value: String,
    },
    /// Shapes, names or lengths that do not fit together.
    #[error("{0}")]
    Shape(String),
    /// Answers that do not fit together, without a source that shows which is right.
    #[error("{0}")]
    Disagree(String),
    /// A weight that cannot be used.
    #[error("weight {weight}; a weight must be finite{}", .most.map_or(" and at least 0".into(), |most| format!(", at least 0 and at most {most} (faults.max-weight)")))]
    Weight {
        /// The weight.
        weight: f64,
        /// The largest accepted weight.
        most: Option<f64>,
    },
    /// A client did not answer, or answered too late.
    #[error("{0}")]
    Absent(String),
    /// Fewer answers than the run requires.
    #[error("{answers} usable answers{text}, and faults.min-answers is {least}")]
    TooFew {
        /// Number of usable answers.
        answers: usize,
        /// Number of required answers.
        least: usize,
        /// The exchange, and the fault of the other answers.
        text: String,
    },
    /// No client answered, or every answer was dropped.
    #[error("no usable answer{0}")]
    NoAnswer(String),
    /// The privacy budget does not cover a release.
    #[error("{0}")]
    Budget(String),
    /// An event without a price at the accountant, or an unpriced disclosure despite a budget.
    #[error("{0}")]
    Unpriced(String),
    /// The host requested a stop; the run can resume later.
    #[error("stopped after step {after}")]
    Stopped {
        /// The last complete step, such as `round 3`.
        after: String,
    },
    /// A call was ended because the program is to stop. Its step is not done, and no client is to
    /// blame; the run can resume later.
    #[error("{0}")]
    Interrupted(String),
    /// A part lacks an ability that a protocol needs.
    #[error("{0}")]
    Lacks(String),
    /// The numbers of a training are no longer finite.
    #[error("{0}")]
    Diverged(String),
}

impl Problem {
    /// Checks that shapes, names or lengths fit together.
    ///
    /// # Errors
    /// [`Problem::Shape`] with this text, if they do not.
    pub fn shape_unless(fit: bool, text: impl FnOnce() -> String) -> Result<()> {
        if fit {
            Ok(())
        } else {
            Err(Self::Shape(text()).into())
        }
    }
}

/// Names the first of these, at most `most`, and counts the others: `a, b and 3 more`.
pub fn first_names(all: &[String], most: usize) -> String {
    let first = all[..all.len().min(most)].join(", ");
    match all.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The most clients that [`named_clients`] names.
const NAMED: usize = 20;

/// Names clients: `client 3`, `clients 1, 2 and 5`, or the first of many and the number of the
/// others.
pub fn named_clients(ids: &[ClientId]) -> String {
    let (shown, rest) = ids.split_at(ids.len().min(NAMED));
    let mut names: Vec<String> = shown.iter().map(ToString::to_string).collect();
    if !rest.is_empty() {
        names.push(format!("{} more", rest.len()));
    }
    match &names[..] {
        [one] => format!("client {one}"),
        [first @ .., last] => format!("clients {} and {last}", first.join(", ")),
        [] => "no client".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_or_counted() {
        let of = |ids: std::ops::Range<ClientId>| named_clients(&ids.collect::<Vec<_>>());
        assert_eq!(of(3..4), "client 3");
        assert_eq!(of(1..4), "clients 1, 2 and 3");
        let many = of(0..25);
        assert!(
            many.starts_with("clients 0, 1") && many.ends_with("19 and 5 more"),
            "{many}"
        );
    }
}
