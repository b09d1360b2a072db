//! [`Conflict`]: settings of a protocol that do not go together.

use crate::kept_text::{self, Name};
use serde::{Deserialize, Serialize};

/// Why settings of a protocol do not go together, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The setting at fault, such as `fuse` or `labels.scores.loss`; `None` if no single setting
    /// is.
    #[serde(default, deserialize_with = "kept_text::no_name")]
    pub setting: Option<Name>,
    /// The mistake, and how to fix it.
    pub text: String,
}

impl Conflict {
    /// Blames `setting`. The text reads as `setting` followed by `why`.
    pub fn at(setting: &'static str, why: impl std::fmt::Display) -> Self {
        Self {
            setting: Some(setting),
            text: format!("`{setting}` {why}"),
        }
    }

    /// Blames no single setting.
    pub fn between(text: impl Into<String>) -> Self {
        Self {
            setting: None,
            text: text.into(),
        }
    }

    /// Reports that `setting` has no effect while `slot` is empty.
    pub fn idle(setting: &'static str, slot: &str) -> Self {
        Self::at(
            setting,
            format_args!(
                "has no effect while `parts.{slot}` is empty: fill that, or leave `{setting}` out"
            ),
        )
    }

    /// Reports that `setting` has no effect, for a reason such as "while `terms.gan` is 0".
    pub fn no_effect(setting: &'static str, reason: &str) -> Self {
        Self::at(
            setting,
            format_args!("has no effect {reason}: leave it out"),
        )
    }

    /// Returns the conflict if `wrong`.
    pub fn when(self, wrong: bool) -> Option<Self> {
        wrong.then_some(self)
    }
}
