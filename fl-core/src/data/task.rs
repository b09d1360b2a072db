//! What is to be learnt.

/// What a model is to learn: how many outputs, and what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TaskKind {
    /// Exactly one of several classes.
    Classes(usize),
    /// Any number of several labels (multi-label).
    MultiLabel(usize),
    /// The class of every pixel of an image ([`Masks`](super::Masks)). A model's outputs are scores, class by class and within a
    /// class row by row: `classes x height x width`.
    Pixels {
        /// Classes, that of the background among them; at least 2.
        classes: usize,
        /// Rows of a mask.
        height: usize,
        /// Columns of a mask.
        width: usize,
    },
}

impl std::fmt::Display for TaskKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Classes(n) => write!(f, "{n} classes"),
            Self::MultiLabel(n) => write!(f, "{n} labels, any number of them at once"),
            Self::Pixels {
                classes,
                height,
                width,
            } => write!(f, "{classes} classes of {height}x{width} pixels"),
        }
    }
}

impl TaskKind {
    /// Number of model outputs.
    pub fn outputs(self) -> usize {
        match self {
            Self::Classes(n) | Self::MultiLabel(n) => n,
            Self::Pixels {
                classes,
                height,
                width,
            } => classes * height * width,
        }
    }

    /// Has every pixel a class?
    pub fn is_dense(self) -> bool {
        matches!(self, Self::Pixels { .. })
    }

    /// Number of classes, or of labels.
    pub fn classes(self) -> usize {
        match self {
            Self::Classes(n) | Self::MultiLabel(n) | Self::Pixels { classes: n, .. } => n,
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
