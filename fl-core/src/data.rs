//! Data as it is shared: one read-only set, and views of it by position.

use crate::{Problem, Result};
use anyhow::ensure;
use ndarray::{Array2, ArrayView2, Axis};
use std::sync::Arc;

/// The inputs of a data set in their compact form; a batch becomes `f32` when it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Images: `rows x channels x height x width` bytes. A value is `(byte / 255 - mean[c]) / std[c]`.
    Bytes {
        /// Channels, height, width.
        shape: [usize; 3],
        /// All rows, one after the other.
        data: Vec<u8>,
        /// Mean of each channel, on the scale 0 to 1.
        mean: Vec<f32>,
        /// Standard deviation of each channel, on the scale 0 to 1.
        std: Vec<f32>,
    },
    /// Numbers: `rows x product(shape)`.
    Dense {
        /// Shape of one row.
        shape: Vec<usize>,
        /// All rows, one after the other.
        data: Vec<f32>,
    },
    /// Rows of which most values are 0 (compressed sparse rows).
    Sparse {
        /// Values in a row.
        width: usize,
        /// Row `i` is `columns[starts[i]..starts[i + 1]]`; one longer than there are rows.
        starts: Vec<usize>,
        /// Ascending within a row.
        columns: Vec<u32>,
        /// One for each column named.
        values: Vec<f32>,
    },
}

impl Inputs {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes { data, .. } => data.len() / self.width().max(1),
            Self::Dense { data, .. } => data.len() / self.width().max(1),
            Self::Sparse { starts, .. } => starts.len() - 1,
        }
    }

    /// Are there no rows?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape of one row: `[channels, height, width]` for images.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Bytes { shape, .. } => shape.to_vec(),
            Self::Dense { shape, .. } => shape.clone(),
            Self::Sparse { width, .. } => vec![*width],
        }
    }

    /// Values in one row.
    pub fn width(&self) -> usize {
        match self {
            Self::Bytes { shape, .. } => shape.iter().product(),
            Self::Dense { shape, .. } => shape.iter().product(),
            Self::Sparse { width, .. } => *width,
        }
    }

    /// Writes row `row` as `f32` into `out`, which is [`Inputs::width`] long.
    pub fn write_row(&self, row: usize, out: &mut [f32]) {
        let width = self.width();
        match self {
            Self::Bytes {
                shape,
                data,
                mean,
                std,
            } => {
                let plane = shape[1] * shape[2];
                let bytes = &data[row * width..(row + 1) * width];
                for (c, (out, bytes)) in out.chunks_mut(plane).zip(bytes.chunks(plane)).enumerate()
                {
                    let (factor, shift) = (1.0 / (255.0 * std[c]), mean[c] / std[c]);
                    for (o, b) in out.iter_mut().zip(bytes) {
                        *o = f32::from(*b) * factor - shift;
                    }
                }
            }
            Self::Dense { data, .. } => out.copy_from_slice(&data[row * width..(row + 1) * width]),
            Self::Sparse {
                starts,
                columns,
                values,
                ..
            } => {
                out.fill(0.0);
                let range = starts[row]..starts[row + 1];
                for (c, v) in columns[range.clone()].iter().zip(&values[range]) {
                    out[*c as usize] = *v;
                }
            }
        }
    }
}

/// What is known about each row of a data set.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// One class per row.
    Classes {
        /// The class of each row, below `classes`.
        of: Vec<u32>,
        /// How many classes there are.
        classes: usize,
    },
    /// Several yes/no labels per row: 1 yes, 0 no, -1 unknown; `rows x labels`.
    Multi(Array2<i8>),
}

impl Labels {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes { of, .. } => of.len(),
            Self::Multi(of) => of.nrows(),
        }
    }

    /// Are there no rows?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many classes or labels there are.
    pub fn classes(&self) -> usize {
        match self {
            Self::Classes { classes, .. } => *classes,
            Self::Multi(of) => of.ncols(),
        }
    }
}

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

/// Some rows of some inputs: shared storage and the ids of the rows. Cloning copies neither values nor bytes.
#[derive(Clone, Debug)]
pub struct Samples {
    inputs: Arc<Inputs>,
    ids: Arc<[u32]>,
}

impl Samples {
    /// All rows.
    pub fn all(inputs: Arc<Inputs>) -> Self {
        let ids = (0..inputs.len() as u32).collect();
        Self { inputs, ids }
    }

    /// The rows with these ids, in this order.
    ///
    /// # Errors
    /// If an id is not below the number of rows.
    pub fn of(inputs: Arc<Inputs>, ids: Vec<u32>) -> Result<Self> {
        let rows = inputs.len();
        if let Some(id) = ids.iter().find(|id| **id as usize >= rows) {
            return Err(Problem::Shape(format!("row {id} of a set of {rows} rows")).into());
        }
        Ok(Self {
            inputs,
            ids: ids.into(),
        })
    }

    /// Fresh inputs, such as a generator's: `values` is `rows x product(shape)`.
    ///
    /// # Errors
    /// If the width of `values` is not the product of `shape`.
    pub fn fresh(values: Array2<f32>, shape: Vec<usize>) -> Result<Self> {
        let width: usize = shape.iter().product();
        ensure!(
            values.ncols() == width,
            Problem::Shape(format!(
                "{} values a row for inputs of shape {shape:?}",
                values.ncols()
            ))
        );
        let data = values.as_standard_layout().iter().copied().collect();
        Ok(Self::all(Arc::new(Inputs::Dense { shape, data })))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Are there no rows?
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The id of each row in its set.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The shared storage.
    pub fn inputs(&self) -> &Arc<Inputs> {
        &self.inputs
    }

    /// Shape of one row.
    pub fn shape(&self) -> Vec<usize> {
        self.inputs.shape()
    }

    /// Values in one row.
    pub fn width(&self) -> usize {
        self.inputs.width()
    }

    /// Only the rows at these positions of this view.
    pub fn pick(&self, positions: &[usize]) -> Self {
        Self {
            inputs: self.inputs.clone(),
            ids: positions.iter().map(|p| self.ids[*p]).collect(),
        }
    }

    /// Writes the rows at `positions`, one after the other, into `out` (`positions.len() * width` long).
    pub fn write(&self, positions: &[usize], out: &mut [f32]) {
        for (p, row) in positions.iter().zip(out.chunks_mut(self.width().max(1))) {
            self.inputs.write_row(self.ids[*p] as usize, row);
        }
    }

    /// All rows as numbers, `rows x width`.
    pub fn values(&self) -> Array2<f32> {
        let mut values = Array2::zeros((self.len(), self.width()));
        for (id, mut row) in self.ids.iter().zip(values.rows_mut()) {
            self.inputs.write_row(
                *id as usize,
                row.as_slice_mut().expect("a fresh array is contiguous"),
            );
        }
        values
    }
}

/// Samples and what is known about them.
#[derive(Clone, Debug)]
pub struct Examples {
    /// The inputs.
    pub samples: Samples,
    labels: Arc<Labels>,
}

impl Examples {
    /// All rows of a set.
    ///
    /// # Errors
    /// If there is not one label per row.
    pub fn all(inputs: Arc<Inputs>, labels: Arc<Labels>) -> Result<Self> {
        ensure!(
            inputs.len() == labels.len(),
            Problem::Shape(format!("{} labels for {} rows", labels.len(), inputs.len()))
        );
        Ok(Self {
            samples: Samples::all(inputs),
            labels,
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Are there no rows?
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Only the rows at these positions of this view.
    pub fn pick(&self, positions: &[usize]) -> Self {
        Self {
            samples: self.samples.pick(positions),
            labels: self.labels.clone(),
        }
    }

    /// These rows and then those of `other`.
    ///
    /// # Errors
    /// When the two are not views of one set.
    pub fn join(&self, other: &Self) -> Result<Self> {
        let same = Arc::ptr_eq(&self.samples.inputs, &other.samples.inputs)
            && Arc::ptr_eq(&self.labels, &other.labels);
        ensure!(same, Problem::Shape("only examples of one set can be joined; take the public data from the clients' own set".into()));
        let ids = self
            .samples
            .ids
            .iter()
            .chain(other.samples.ids.iter())
            .copied()
            .collect();
        Ok(Self {
            samples: Samples {
                inputs: self.samples.inputs.clone(),
                ids,
            },
            labels: self.labels.clone(),
        })
    }

    /// The labels of the whole set; a row's label stands at its id.
    pub fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }

    /// The class of each row of this view; `None` for a multi-label set.
    pub fn classes(&self) -> Option<Vec<u32>> {
        match &*self.labels {
            Labels::Classes { of, .. } => Some(
                self.samples
                    .ids()
                    .iter()
                    .map(|id| of[*id as usize])
                    .collect(),
            ),
            Labels::Multi(_) => None,
        }
    }

    /// The labels of each row of this view; `None` for a single-label set.
    pub fn multi_label(&self) -> Option<Array2<i8>> {
        match &*self.labels {
            Labels::Classes { .. } => None,
            Labels::Multi(of) => {
                let ids: Vec<usize> = self.samples.ids().iter().map(|id| *id as usize).collect();
                Some(of.select(Axis(0), &ids))
            }
        }
    }

    /// Samples per class; for labels, samples in which the label is present (FedKD: -1 and 0 do not count).
    pub fn class_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.labels.classes()];
        for id in self.samples.ids() {
            match &*self.labels {
                Labels::Classes { of, .. } => counts[of[*id as usize] as usize] += 1,
                Labels::Multi(of) => {
                    for (count, label) in counts.iter_mut().zip(of.row(*id as usize)) {
                        *count += u32::from(*label == 1);
                    }
                }
            }
        }
        counts
    }

    /// What a model for these examples is to learn.
    pub fn task(&self) -> Task {
        let kind = match &*self.labels {
            Labels::Classes { classes, .. } => TaskKind::Classes(*classes),
            Labels::Multi(of) => TaskKind::MultiLabel(of.ncols()),
        };
        Task {
            input: self.samples.shape(),
            kind,
        }
    }
}

/// What a model is fitted to, one entry per sample.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The class of each sample.
    Classes(&'a [u32]),
    /// MultiLabel: 1, 0, or -1 for unknown (no loss there).
    MultiLabel(ArrayView2<'a, i8>),
    /// Class probabilities.
    Soft(ArrayView2<'a, f32>),
    /// Raw scores (logits) to imitate.
    Scores(ArrayView2<'a, f32>),
}

impl Target<'_> {
    /// Number of samples.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes(of) => of.len(),
            Self::MultiLabel(of) => of.nrows(),
            Self::Soft(of) | Self::Scores(of) => of.nrows(),
        }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries at these positions.
    pub fn pick(&self, at: &[usize]) -> OwnedTarget {
        match self {
            Self::Classes(of) => OwnedTarget::Classes(at.iter().map(|i| of[*i]).collect()),
            Self::MultiLabel(of) => OwnedTarget::MultiLabel(of.select(Axis(0), at)),
            Self::Soft(of) => OwnedTarget::Soft(of.select(Axis(0), at)),
            Self::Scores(of) => OwnedTarget::Scores(of.select(Axis(0), at)),
        }
    }
}

/// A [`Target`] of its own: that of a mini-batch.
#[derive(Clone, Debug)]
pub enum OwnedTarget {
    /// See [`Target::Classes`].
    Classes(Vec<u32>),
    /// See [`Target::MultiLabel`].
    MultiLabel(Array2<i8>),
    /// See [`Target::Soft`].
    Soft(Array2<f32>),
    /// See [`Target::Scores`].
    Scores(Array2<f32>),
}

impl OwnedTarget {
    /// Borrowed.
    pub fn view(&self) -> Target<'_> {
        match self {
            Self::Classes(of) => Target::Classes(of),
            Self::MultiLabel(of) => Target::MultiLabel(of.view()),
            Self::Soft(of) => Target::Soft(of.view()),
            Self::Scores(of) => Target::Scores(of.view()),
        }
    }
}
