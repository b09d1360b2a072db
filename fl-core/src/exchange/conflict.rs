//! Settings of a protocol that do not go together.

/// Why the settings of a protocol do not go together, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The setting at fault, such as `fuse` or `labels.scores.loss`; `None`: no one setting is.
    pub setting: Option<&'static str>,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl Conflict {
    /// `setting` is at fault, because of `why`, which continues a sentence that begins with it.
    pub fn at(setting: &'static str, why: impl std::fmt::Display) -> Self {
        Self {
            setting: Some(setting),
            text: format!("`{setting}` {why}"),
        }
    }

    /// No one setting is at fault.
    pub fn between(text: impl Into<String>) -> Self {
        Self {
            setting: None,
            text: text.into(),
        }
    }

    /// `setting` has no effect while `slot` is empty.
    pub fn idle(setting: &'static str, slot: &str) -> Self {
        Self::at(
            setting,
            format_args!(
                "has no effect while `parts.{slot}` is empty: fill that, or leave `{setting}` out"
            ),
        )
    }

    /// Itself, if `wrong`.
    pub fn when(self, wrong: bool) -> Option<Self> {
        wrong.then_some(self)
    }
}
