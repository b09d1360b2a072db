//! [`Target`]: the values that a model is fitted to.

use ndarray::{Array2, ArrayView2, Axis};

/// The values that a model is fitted to, one entry per sample.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The class of each sample.
    Classes(&'a [u32]),
    /// Several labels: 1, 0, or -1 for unknown (no loss there).
    MultiLabel(ArrayView2<'a, i8>),
    /// The class of every pixel, row by row: `samples x (height * width)`.
    Pixels(ArrayView2<'a, u8>),
    /// Class probabilities.
    Soft(ArrayView2<'a, f32>),
    /// Raw scores (logits) to imitate.
    Scores(ArrayView2<'a, f32>),
}

impl Target<'_> {
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes(of) => of.len(),
            Self::MultiLabel(of) => of.nrows(),
            Self::Pixels(of) => of.nrows(),
            Self::Soft(of) | Self::Scores(of) => of.nrows(),
        }
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entries at these positions.
    pub fn pick(&self, at: &[usize]) -> OwnedTarget {
        match self {
            Self::Classes(of) => OwnedTarget::Classes(at.iter().map(|i| of[*i]).collect()),
            Self::MultiLabel(of) => OwnedTarget::MultiLabel(of.select(Axis(0), at)),
            Self::Pixels(of) => OwnedTarget::Pixels(of.select(Axis(0), at)),
            Self::Soft(of) => OwnedTarget::Soft(of.select(Axis(0), at)),
            Self::Scores(of) => OwnedTarget::Scores(of.select(Axis(0), at)),
        }
    }
}

/// An owned [`Target`], such as that of a mini-batch.
#[derive(Clone, Debug)]
pub enum OwnedTarget {
    /// See [`Target::Classes`].
    Classes(Vec<u32>),
    /// See [`Target::MultiLabel`].
    MultiLabel(Array2<i8>),
    /// See [`Target::Pixels`].
    Pixels(Array2<u8>),
    /// See [`Target::Soft`].
    Soft(Array2<f32>),
    /// See [`Target::Scores`].
    Scores(Array2<f32>),
}

impl OwnedTarget {
    /// Returns it borrowed.
    pub fn view(&self) -> Target<'_> {
        match self {
            Self::Classes(of) => Target::Classes(of),
            Self::MultiLabel(of) => Target::MultiLabel(of.view()),
            Self::Pixels(of) => Target::Pixels(of.view()),
            Self::Soft(of) => Target::Soft(of.view()),
            Self::Scores(of) => Target::Scores(of.view()),
        }
    }
}
