//! [`Task`]: the shape of an input and the meaning of a model's outputs.

use crate::Loss;

/// The kind of a model's outputs, and their number.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum TaskKind {
    /// Exactly one of several classes.
    Classes(usize),
    /// Any number of several labels (multi-label).
    MultiLabel(usize),
    /// The class of every pixel of an image ([`Masks`](super::Masks)). A model's outputs are
    /// scores, class by class and within a class row by row: `classes x height x width`.
    Pixels {
        /// Number of classes, including the background; at least 2.
        classes: usize,
        /// Rows of a mask.
        height: usize,
        /// Columns of a mask.
        width: usize,
    },
    /// An image ([`Images`](super::Images)) made from the input: reconstruction. A model's outputs
    /// are its values, from 0 to 1, channel by channel and within a channel row by row:
    /// `channels x height x width`.
    Image {
        /// Channels: 1 for grey, 3 for colour.
        channels: usize,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// Numbers to predict ([`Numbers`](super::Numbers)): regression. A model's outputs are the
    /// numbers on the label's scale.
    Numbers {
        /// How many numbers a sample has.
        outputs: usize,
        /// The loss of models that learn them.
        loss: Loss,
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
            Self::Image {
                channels,
                height,
                width,
            } => write!(f, "images of {channels}x{height}x{width} values"),
            Self::Numbers { outputs: 1, .. } => f.write_str("a number to predict"),
            Self::Numbers { outputs, .. } => write!(f, "{outputs} numbers to predict"),
        }
    }
}

impl TaskKind {
    /// Returns the number of model outputs.
    pub fn outputs(self) -> usize {
        match self {
            Self::Classes(n) | Self::MultiLabel(n) | Self::Numbers { outputs: n, .. } => n,
            Self::Pixels {
                classes,
                height,
                width,
            } => classes * height * width,
            Self::Image {
                channels,
                height,
                width,
            } => channels * height * width,
        }
    }

    /// Returns whether every pixel has an output: its class, or its value.
    pub fn is_dense(self) -> bool {
        matches!(self, Self::Pixels { .. } | Self::Image { .. })
    }

    /// Returns whether each output is the score of a class or of a label of the whole input.
    pub fn scores_classes(self) -> bool {
        matches!(self, Self::Classes(_) | Self::MultiLabel(_))
    }

    /// Returns the number of classes or labels; 1 for images and numbers, which have none.
    pub fn classes(self) -> usize {
        match self {
            Self::Classes(n) | Self::MultiLabel(n) | Self::Pixels { classes: n, .. } => n,
            Self::Image { .. } | Self::Numbers { .. } => 1,
        }
    }

    /// Returns whether scores of this task have such a loss. Kullback-Leibler divergence needs one
    /// class out of several, and the values of an image and numbers are no scores of classes.
    pub fn has(self, loss: Loss) -> bool {
        match self {
            Self::Classes(_) | Self::Pixels { .. } => true,
            Self::MultiLabel(_) => !matches!(loss, Loss::Kl { .. }),
            Self::Image { .. } | Self::Numbers { .. } => {
                !matches!(loss, Loss::CrossEntropy | Loss::Kl { .. })
            }
        }
    }

    /// Returns one of each kind of loss that scores of this task have.
    pub fn losses(self) -> Vec<Loss> {
        let all = Loss::KINDS.into_iter();
        all.filter(|loss| self.has(*loss)).collect()
    }

    /// Returns the loss on a client's own examples: cross-entropy for classes, the mean absolute
    /// error for images (as FL-MRCM does: Guo et al. 2021), and for numbers the one of the label.
    pub fn loss(self) -> Loss {
        match self {
            Self::Image { .. } => Loss::Mae,
            Self::Numbers { loss, .. } => loss,
            _ => Loss::CrossEntropy,
        }
    }
}

/// A task: the shape of an input and the meaning of an output.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Task {
    /// Shape of one input: `[channels, height, width]` for images, `[width]` for rows of numbers.
    pub input: Vec<usize>,
    /// The kind of outputs.
    pub kind: TaskKind,
}

impl Task {
    /// Makes a task of inputs of this shape.
    pub fn new(input: Vec<usize>, kind: TaskKind) -> Self {
        Self { input, kind }
    }

    /// Returns the number of values in one input.
    pub fn width(&self) -> usize {
        self.input.iter().product()
    }
}
