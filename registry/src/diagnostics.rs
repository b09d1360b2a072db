//! What is wrong with a spec, for people and for programs.

use fl_core::settings::{Step, show_path};
use serde_json::json;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// The most mistakes that are shown to people; programs get all.
const SHOWN: usize = 100;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourcePosition {
    /// In the text; both numbers start at 1, and a column is a character.
    Text {
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// It was set from outside, at this path.
    Set(Arc<str>),
}

impl Display for SourcePosition {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text { line, column } => write!(f, "{line}:{column}"),
            Self::Set(path) => write!(f, "--set {path}"),
        }
    }
}

/// One mistake: where it is, and what would be right.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// The spec.
    pub file: String,
    /// Where in it.
    pub place: SourcePosition,
    /// What it is about: `parts.cohort.share`.
    pub path: Vec<Step>,
    /// What was found, and what would be right.
    pub text: String,
    /// The number of steps of the path that lead to this part, and its name.
    pub(crate) part: Option<(usize, String)>,
    /// The path whose position is `place`, and whether it is that of the path's last key.
    pub(crate) at: (Vec<Step>, bool),
}

impl Mistake {
    /// For `fl check --json`.
    pub fn json(&self) -> serde_json::Value {
        let (line, column, set) = match &self.place {
            SourcePosition::Text { line, column } => (Some(line), Some(column), None),
            SourcePosition::Set(path) => (None, None, Some(path.to_string())),
        };
        json!({
            "file": self.file, "line": line, "column": column, "set": set,
            "path": show_path(&self.path), "part": self.part.as_ref().map(|p| &p.1), "text": self.text,
        })
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            SourcePosition::Text { .. } => write!(f, "{}:{}  ", self.file, self.place)?,
            SourcePosition::Set(_) => write!(f, "{}  ", self.place)?,
        }
        let (steps, part) = match &self.part {
            Some((steps, part)) => (*steps, Some(part)),
            None => (self.path.len(), None),
        };
        let (outer, inner) = self.path.split_at(steps.min(self.path.len()));
        if !outer.is_empty() {
            write!(f, "{}", show_path(outer))?;
            // `protocol `x``, not `protocol (protocol `x`)`
            match part.map(|part| (part, part.strip_prefix(&show_path(outer)))) {
                Some((_, Some(name))) => write!(f, "{name}")?,
                Some((part, None)) => write!(f, " ({part})")?,
                None => {}
            }
            f.write_str(": ")?;
        }
        if !inner.is_empty() {
            write!(f, "{}: ", show_path(inner))?;
        }
        f.write_str(&self.text)
    }
}

/// Everything that is wrong with a spec, in the order of its text. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// In the order of their places.
    pub fn sorted(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by(|a, b| a.place.cmp(&b.place));
        Self(mistakes)
    }

    /// For `fl check --json`.
    pub fn json(&self) -> serde_json::Value {
        self.0.iter().map(Mistake::json).collect()
    }
}

impl Display for Mistakes {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (at, mistake) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{mistake}", if at > 0 { "\n" } else { "" })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n... and {more} more mistakes"),
        }
    }
}

impl std::error::Error for Mistakes {}
