//! [`Samples`] and [`Examples`]: views of a data set by position.

use super::{Images, Inputs, Labels, Masks, Numbers, OwnedTarget, Task};
use crate::{Problem, Result};
use ndarray::{Array2, Axis};
use std::sync::Arc;

/// Rows that are loaded into the caches before they are written: few enough to stay there.
const PRELOADED: usize = 64;

/// Rows of an [`Inputs`]: shared storage and the ids of the rows. Cloning copies neither values nor
/// bytes.
#[derive(Clone, Debug)]
pub struct Samples {
    inputs: Arc<Inputs>,
    ids: Arc<[u32]>,
}

impl Samples {
    /// Returns a view of all rows.
    pub fn all(inputs: Arc<Inputs>) -> Self {
        let ids = (0..inputs.len() as u32).collect();
        Self { inputs, ids }
    }

    /// Returns a view of the rows with these ids, in this order.
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

    /// Wraps new inputs, such as a generator's: `values` is `rows x product(shape)`.
    ///
    /// # Errors
    /// If the width of `values` is not the product of `shape`.
    pub fn fresh(values: Array2<f32>, shape: Vec<usize>) -> Result<Self> {
        let width: usize = shape.iter().product();
        Problem::shape_unless(values.ncols() == width, || {
            format!(
                "{} values a row for inputs of shape {shape:?}",
                values.ncols()
            )
        })?;
        let data = values.as_standard_layout().iter().copied().collect();
        Ok(Self::all(Arc::new(Inputs::Dense { shape, data })))
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the id of each row in its set.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The ids, as they are shared.
    #[doc(hidden)]
    pub fn shared_ids(&self) -> &Arc<[u32]> {
        &self.ids
    }

    /// Returns the shared storage.
    pub fn inputs(&self) -> &Arc<Inputs> {
        &self.inputs
    }

    /// Returns the shape of one row.
    pub fn shape(&self) -> Vec<usize> {
        self.inputs.shape()
    }

    /// Returns the number of values in one row.
    pub fn width(&self) -> usize {
        self.inputs.width()
    }

    /// Returns only the rows at these positions of this view.
    pub fn pick(&self, positions: &[usize]) -> Self {
        Self {
            inputs: self.inputs.clone(),
            ids: positions.iter().map(|p| self.ids[*p]).collect(),
        }
    }

    /// Writes the rows at `positions`, one after the other, into `out` (`positions.len() * width`
    /// long).
    pub fn write(&self, positions: &[usize], out: &mut [f32]) {
        let width = self.width().max(1);
        let some = positions.chunks(PRELOADED);
        for (positions, out) in some.zip(out.chunks_mut(PRELOADED * width)) {
            let row = |p: &usize| self.ids[*p] as usize;
            self.inputs.preload(positions.iter().map(row));
            for (p, out) in positions.iter().zip(out.chunks_mut(width)) {
                self.inputs.write_row(row(p), out);
            }
        }
    }

    /// Returns all rows as numbers, `rows x width`.
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

/// Samples with their labels.
#[derive(Clone, Debug)]
pub struct Examples {
    /// The inputs.
    pub samples: Samples,
    labels: Arc<Labels>,
}

impl Examples {
    /// Returns a view of all rows of a set.
    ///
    /// # Errors
    /// If there is not one label per row.
    pub fn all(inputs: Arc<Inputs>, labels: Arc<Labels>) -> Result<Self> {
        Problem::shape_unless(inputs.len() == labels.len(), || {
            format!("{} labels for {} rows", labels.len(), inputs.len())
        })?;
        Ok(Self {
            samples: Samples::all(inputs),
            labels,
        })
    }

    /// These samples, with the labels of their whole set.
    #[doc(hidden)]
    pub fn of(samples: Samples, labels: Arc<Labels>) -> Result<Self> {
        let rows = samples.inputs().len();
        Problem::shape_unless(rows == labels.len(), || {
            format!("{} labels for {rows} rows", labels.len())
        })?;
        Ok(Self { samples, labels })
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns only the rows at these positions of this view.
    pub fn pick(&self, positions: &[usize]) -> Self {
        Self {
            samples: self.samples.pick(positions),
            labels: self.labels.clone(),
        }
    }

    /// Returns these rows followed by those of `other`.
    ///
    /// # Errors
    /// If the two are not views of one set.
    pub fn join(&self, other: &Self) -> Result<Self> {
        let same = Arc::ptr_eq(&self.samples.inputs, &other.samples.inputs)
            && Arc::ptr_eq(&self.labels, &other.labels);
        Problem::shape_unless(same, || {
            "only examples of one set can be joined; take the public data from the clients' own set"
                .into()
        })?;
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

    /// Returns the labels of the whole set; a row's label is at its id.
    pub fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }

    fn rows(&self) -> Vec<usize> {
        self.samples.ids().iter().map(|id| *id as usize).collect()
    }

    /// Returns the target of the rows of this view.
    pub fn target(&self) -> OwnedTarget {
        match self.labels.select(&self.rows()) {
            Labels::Classes { of, .. } => OwnedTarget::Classes(of),
            Labels::Multi(of) => OwnedTarget::MultiLabel(of),
            Labels::Pixels(masks) => OwnedTarget::Pixels(masks.of().to_owned()),
            Labels::Images(images) => OwnedTarget::Scores(images.values()),
            Labels::Numbers(numbers) => OwnedTarget::Scores(numbers.of().to_owned()),
        }
    }

    /// Returns the class of each row of this view; `None` for a set without one class per row.
    pub fn classes(&self) -> Option<Vec<u32>> {
        match &*self.labels {
            Labels::Classes { of, .. } => Some(
                self.samples
                    .ids()
                    .iter()
                    .map(|id| of[*id as usize])
                    .collect(),
            ),
            _ => None,
        }
    }

    /// Returns the labels of each row of this view; `None` for a set that is not multi-label.
    pub fn multi_label(&self) -> Option<Array2<i8>> {
        match &*self.labels {
            Labels::Multi(of) => Some(of.select(Axis(0), &self.rows())),
            _ => None,
        }
    }

    /// Returns the masks of the rows of this view; `None` if pixels have no classes.
    pub fn masks(&self) -> Option<Masks> {
        match &*self.labels {
            Labels::Pixels(of) => Some(of.select(&self.rows())),
            _ => None,
        }
    }

    /// Returns the target images of the rows of this view; `None` for another task.
    pub fn images(&self) -> Option<Images> {
        match &*self.labels {
            Labels::Images(of) => Some(of.select(&self.rows())),
            _ => None,
        }
    }

    /// Returns the numbers to predict of the rows of this view; `None` for another task.
    pub fn numbers(&self) -> Option<Numbers> {
        match &*self.labels {
            Labels::Numbers(of) => Some(of.select(&self.rows())),
            _ => None,
        }
    }

    /// Returns the samples per class. For labels: samples in which the label is present (FedKD: -1
    /// and 0 do not count). For masks: images with a pixel of the class. For images and numbers: all
    /// of them.
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
                Labels::Images(_) | Labels::Numbers(_) => counts[0] += 1,
                Labels::Pixels(of) => {
                    let mut has = vec![false; counts.len()];
                    for class in of.of().row(*id as usize) {
                        has[usize::from(*class)] = true;
                    }
                    for (count, has) in counts.iter_mut().zip(has) {
                        *count += u32::from(has);
                    }
                }
            }
        }
        counts
    }

    /// Returns the task of a model for these examples.
    pub fn task(&self) -> Task {
        Task::new(self.samples.shape(), self.labels.task())
    }
}
