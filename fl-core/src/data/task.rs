//! What is to be learnt.

/// What a model is to learn: how many outputs, and what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TaskKind {
    /// Exactly one of several classes.
    Classes(usize),
    /// Any number of several labels (multi-label).
    MultiLabel(usize),
}

impl std::fmt::Display for TaskKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Classes(n) => write!(f, "{n} classes"),
            Self::MultiLabel(n) => write!(f, "{n} labels, any number of them at once"),
        }
    }
}

impl TaskKind {
    /// Number of model outputs.
    pub fn outputs(self) -> usize {
        match self {
            Self::Classes(n) | Self::MultiLabel(n) => n,
        }
    }
}

/// A task: the shape of an input and the meaning of an output.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Task {
    /// Shape of one input: `[channels, height, width]` for images, `[width]` for rows of numbers.
    pub input: Vec<usize>,
    /// What is to be predicted.
    pub kind: TaskKind,
}

impl Task {
    /// Values in one input.
    pub fn width(&self) -> usize {
        self.input.iter().product()
    }
}
