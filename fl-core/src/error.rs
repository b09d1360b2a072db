//! What can go wrong, where somebody has to tell the cases apart.

use serde::{Deserialize, Serialize};

/// An error with context; [`Problem`] is inside where a caller must match on it.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;

/// The problems that hosts, policies and tests tell apart.
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
    /// Answers that do not fit together, and nothing that says which of them is right.
    #[error("{0}")]
    Disagree(String),
    /// A weight that cannot be used.
    #[error("weight {weight}; a weight must be finite{}", .most.map_or(" and at least 0".into(), |most| format!(", at least 0 and at most {most} (faults.max-weight)")))]
    Weight {
        /// What was given.
        weight: f64,
        /// The largest weight that is believed.
        most: Option<f64>,
    },
    /// A client did not answer, or too late.
    #[error("{0}")]
    Absent(String),
    /// Fewer answers than the run must have.
    #[error("{answers} usable answers{text}, and faults.min-answers is {least}")]
    TooFew {
        /// How many there are.
        answers: usize,
        /// How many there must be.
        least: usize,
        /// To what, and what is wrong with the others.
        text: String,
    },
    /// Nobody answered, or everybody's answer was dropped.
    #[error("no usable answer{0}")]
    NoAnswer(String),
    /// The privacy budget does not allow what was about to be released.
    #[error("{0}")]
    Budget(String),
    /// An event that an accountant has no price for, or something that nobody priced, where there is a budget.
    #[error("{0}")]
    Unpriced(String),
    /// The host was asked to stop; the run can go on later.
    #[error("stopped after step {after}")]
    Stopped {
        /// The last step that is complete, such as `round 3`.
        after: String,
    },
    /// A part does not have an ability that a protocol needs.
    #[error("{0}")]
    Lacks(String),
}
