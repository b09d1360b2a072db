//! What can go wrong, where somebody has to tell the cases apart.

/// An error with context; [`Problem`] is inside where a caller must match on it.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;

/// The problems that hosts, policies and tests tell apart.
#[derive(Debug, thiserror::Error, PartialEq)]
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
    /// A weight that cannot be used.
    #[error("weight {weight}; a weight must be finite and at least 0")]
    Weight {
        /// What was given.
        weight: f64,
    },
    /// Nobody answered, or everybody's answer was dropped.
    #[error("no usable answer{0}")]
    NoAnswer(String),
    /// The privacy budget does not allow what was about to be released.
    #[error("{0}")]
    Budget(String),
    /// An event that an accountant has no price for.
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
