//! Why nothing was run.

use fl_registry::{Mistakes, Refusal};

/// Nothing was run, and nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    /// The request cannot be met; the text says what to do.
    #[error("{0}")]
    Usage(String),
    /// The spec is wrong.
    #[error("{0}")]
    Mistakes(Mistakes),
    /// A library was not loaded.
    #[error("{0}")]
    Refused(Refusal),
}

impl NotRun {
    /// The request cannot be met.
    pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
        Self::Usage(text.into()).into()
    }
}
