//! [`SoftLabels`]: class probabilities.

use super::{Column, Dtype, ExchangeShape, Message, ROWS, SampleShape, checks::same_rows};
use crate::Result;
use ndarray::{Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// Returns the softmax of every row at temperature `tau`, in `f64` and rounded once.
pub fn softmax(scores: ArrayView2<'_, f32>, tau: f64) -> Array2<f32> {
    let mut out = scores.to_owned();
    for mut row in out.rows_mut() {
        let mut wide: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
        crate::loss::softmax(&mut wide, tau);
        row.iter_mut().zip(wide).for_each(|(v, p)| *v = p as f32);
    }
    out
}

/// Class probabilities, one row per sample, of a model or an ensemble. After noise they need not be
/// probabilities any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftLabels {
    /// Ids of the samples.
    pub rows: Vec<u32>,
    /// `rows x classes`.
    pub values: Array2<f32>,
}

impl SoftLabels {
    /// Makes a message with one row of `values` per id in `rows`.
    pub fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self { rows, values }
    }

    /// Makes a message from the softmax of a model's scores.
    pub fn of_scores(rows: Vec<u32>, scores: ArrayView2<'_, f32>) -> Self {
        Self::new(rows, softmax(scores, 1.0))
    }

    /// Keeps only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        self.rows = positions.iter().map(|p| self.rows[*p]).collect();
        self.values = self.values.select(Axis(0), positions);
    }

    /// Returns the most probable class of each row, the lowest on ties.
    pub fn labels(&self) -> Vec<u32> {
        crate::metrics::classes(self.values.view())
    }

    /// Restores probabilities after noise: negative numbers become 0, rows are divided by their
    /// sum, and a row without a positive number becomes uniform.
    pub fn project(&mut self) {
        for mut row in self.values.rows_mut() {
            row.mapv_inplace(|v| v.max(0.0));
            let sum: f64 = row.iter().map(|v| f64::from(*v)).sum();
            let even = 1.0 / row.len().max(1) as f32;
            row.mapv_inplace(|v| {
                if sum > 0.0 {
                    (f64::from(v) / sum) as f32
                } else {
                    even
                }
            });
        }
    }
}

impl Message for SoftLabels {
    const KIND: &'static str = "soft-labels";
    const DOC: &'static str = "Class probabilities, or what noise has made of them.";
    const COLUMNS: &'static [Column] = &[
        ROWS,
        Column::new(
            "values",
            Dtype::F32,
            "rows x classes",
            "one probability per class",
        ),
    ];
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * (facts.rows * facts.outputs) as u64)
    }
    crate::tensor_fields!(rows, values);
    fn check(&self) -> Result<()> {
        same_rows(self.rows.len(), self.values.nrows())
    }
    fn class_count(&self) -> Option<usize> {
        Some(self.values.ncols())
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        // not always probabilities: noise may have been added before
        let rows = outline.rows();
        let shape = (rows.len(), outline.classes());
        let values = Array2::from_shape_simple_fn(shape, || outline.number());
        Some(Self::new(rows, values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_noise_leaves_probabilities_after_projection() {
        let mut noisy = SoftLabels::new(vec![0, 1], array![[-1.0, 1.5, 0.5], [-1.0, -2.0, 0.0]]);
        noisy.project();
        assert_eq!(noisy.values.row(0).to_vec(), [0.0, 0.75, 0.25]);
        assert_eq!(noisy.values.row(1).to_vec(), [1.0 / 3.0; 3]);
    }

    #[test]
    fn close_softmax_of_large_scores() {
        let soft = softmax(array![[1000.0f32, 1000.0], [-1000.0, 0.0]].view(), 1.0);
        assert_eq!(soft, array![[0.5, 0.5], [0.0, 1.0]]);
    }
}
