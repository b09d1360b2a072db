//! [`ClassMeans`]: the mean output of a model over the examples of each class.

use super::{Column, Dtype, ExchangeShape, Message, SampleShape, checks::same_rows};
use crate::{Problem, Result};
use ndarray::{Array2, ArrayView1, ArrayView2};
use serde::{Deserialize, Serialize};

/// Returns the classes among `labels`, ascending, and the mean of the rows of each. Sums in `f64`,
/// in row order.
///
/// # Errors
/// If there is not one label per row.
pub fn class_means<T: Into<f64> + Copy>(
    outputs: ArrayView2<'_, T>,
    labels: &[u32],
) -> Result<(Vec<u32>, Array2<f64>)> {
    same_rows(labels.len(), outputs.nrows())?;
    let mut rows = labels.to_vec();
    rows.sort_unstable();
    rows.dedup();
    let mut means = Array2::<f64>::zeros((rows.len(), outputs.ncols()));
    let mut counts = vec![0u32; rows.len()];
    for (output, label) in outputs.rows().into_iter().zip(labels) {
        let at = rows.partition_point(|c| c < label);
        counts[at] += 1;
        let mut sum = means.row_mut(at);
        sum.iter_mut()
            .zip(output)
            .for_each(|(s, v)| *s += (*v).into());
    }
    for (mut sum, n) in means.rows_mut().into_iter().zip(counts) {
        sum.mapv_inplace(|s| s / f64::from(n));
    }
    Ok((rows, means))
}

/// The mean output of a model over the examples of each class (federated knowledge distillation,
/// Jeong et al. 2018): one row per class that the sender has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassMeans {
    /// The classes, ascending.
    pub rows: Vec<u32>,
    /// `rows x outputs`.
    pub values: Array2<f32>,
}

impl ClassMeans {
    /// Makes a message with one row of `values` per class in `rows`.
    pub fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self { rows, values }
    }

    /// Computes the mean of `outputs` over the rows of each class that occurs.
    ///
    /// # Errors
    /// If there is not one label per row.
    pub fn of(outputs: ArrayView2<'_, f32>, labels: &[u32]) -> Result<Self> {
        let (rows, means) = class_means(outputs, labels)?;
        Ok(Self::new(rows, means.mapv(|m| m as f32)))
    }

    /// Returns the mean of one class; `None` if the message lacks it.
    pub fn class(&self, class: u32) -> Option<ArrayView1<'_, f32>> {
        let at = self.rows.binary_search(&class).ok()?;
        Some(self.values.row(at))
    }
}

impl Message for ClassMeans {
    const KIND: &'static str = "class-means";
    const DOC: &'static str =
        "The mean output of a model over the examples of each class that the sender has.";
    const COLUMNS: &'static [Column] = &[
        Column::new("rows", Dtype::U32, "rows", "the classes, ascending"),
        Column::new(
            "values",
            Dtype::F32,
            "rows x classes",
            "the mean output of each",
        ),
    ];
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        // all classes, which need no ids; a row less saves more than the ids of the others cost
        Some(4 * (facts.outputs * facts.outputs) as u64)
    }
    crate::tensor_fields!(rows, values);
    fn check(&self) -> Result<()> {
        same_rows(self.rows.len(), self.values.nrows())?;
        Problem::shape_unless(self.rows.is_sorted_by(|a, b| a < b), || {
            "classes must be ascending and different".into()
        })
    }
    fn class_count(&self) -> Option<usize> {
        Some(self.values.ncols())
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let classes = outline.classes();
        let all = 0..classes as u32;
        let rows: Vec<u32> = all.filter(|_| outline.draws.below(3) > 0).collect();
        let shape = (rows.len(), classes);
        let values = Array2::from_shape_simple_fn(shape, || outline.number());
        Some(Self::new(rows, values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_class_means_are_of_the_classes_that_there_are() {
        let outputs = array![[2.0f32, 0.1, -1.0], [1.0, 0.3, -0.4], [-0.5, 1.5, 0.2]];
        let mine = ClassMeans::of(outputs.view(), &[0, 0, 2]).unwrap();
        assert_eq!(mine.rows, [0, 2]);
        assert_eq!(mine.class(0).unwrap()[0], 1.5);
        assert!(mine.class(1).is_none());
    }
}
