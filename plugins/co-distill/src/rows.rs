//! Means of rows that not all clients have.
use fl_core::message::SoftLabels;
use fl_core::prelude::*;
use ndarray::{Array2, ArrayView2};
use std::collections::BTreeMap;

/// Weighted sums of rows by their id, in `f64`, one message at a time: memory does not grow with
/// the number of messages.
#[derive(Clone, Debug, Default)]
pub struct RowSums {
    at: BTreeMap<u32, usize>,
    sums: Vec<f64>,
    weights: Vec<f64>,
    width: usize,
}

impl RowSums {
    /// Adds `weight` times the rows of one sender.
    pub fn add<T: Into<f64> + Copy>(
        &mut self,
        weight: f64,
        rows: &[u32],
        values: ArrayView2<'_, T>,
    ) {
        if self.at.is_empty() {
            self.width = values.ncols();
            // reserving once avoids copies while it grows
            self.sums.reserve(rows.len() * self.width);
        }
        for (id, row) in rows.iter().zip(values.rows()) {
            let next = self.weights.len();
            let at = *self.at.entry(*id).or_insert(next);
            if at == next {
                self.weights.push(0.0);
                self.sums.resize(self.sums.len() + self.width, 0.0);
            }
            self.weights[at] += weight;
            let sum = &mut self.sums[at * self.width..][..self.width];
            sum.iter_mut()
                .zip(row)
                .for_each(|(s, v)| *s += weight * (*v).into());
        }
    }

    /// Returns the ids, ascending, and the mean of each row after `shape` has changed it. Leaves
    /// out rows without a sender of positive weight.
    pub fn mean<T>(
        &self,
        mut shape: impl FnMut(&mut [f64]),
        cast: impl Fn(f64) -> T,
    ) -> (Vec<u32>, Array2<T>) {
        let spoken = |at: usize| self.weights[at] > 0.0;
        let rows: Vec<u32> = self
            .at
            .iter()
            .filter(|(_, at)| spoken(**at))
            .map(|(id, _)| *id)
            .collect();
        let mut out = Vec::with_capacity(rows.len() * self.width);
        let mut row = vec![0.0; self.width];
        for at in self.at.values().filter(|at| spoken(**at)) {
            let sum = &self.sums[at * self.width..][..self.width];
            row.iter_mut()
                .zip(sum)
                .for_each(|(r, s)| *r = s / self.weights[*at]);
            shape(&mut row);
            out.extend(row.iter().map(|v| cast(*v)));
        }
        let table = Array2::from_shape_vec((rows.len(), self.width), out);
        (rows, table.expect("a row of this width for each id"))
    }
}

/// Changes a mean row.
pub(crate) type Shape = Box<dyn Fn(&mut [f64]) + Send>;

/// A mean of labels in progress.
pub(crate) struct MeanOfRows {
    pub sums: RowSums,
    pub shape: Shape,
}

impl Fold<SoftLabels, SoftLabels> for MeanOfRows {
    fn add(&mut self, mail: ClientMessage<SoftLabels>) -> Result<()> {
        let SoftLabels { rows, values } = &mail.body;
        self.sums.add(mail.weight, rows, values.view());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<SoftLabels> {
        let (rows, values) = self.sums.mean(&*self.shape, |v| v as f32);
        Ok(SoftLabels::new(rows, values))
    }
}
