//! The made inputs that the student learns from.
use fl_core::prelude::*;
use ndarray::{Array2, ArrayView2, Axis, concatenate};
use serde::{Deserialize, Serialize};

/// The last batches of made inputs, each with its labels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pool {
    batches: Vec<(Array2<f32>, Vec<u32>)>,
    /// The shape of an input.
    shape: Vec<usize>,
}

impl Pool {
    /// Adds a batch, and drops the oldest ones until `most` are left.
    pub fn add(&mut self, made: &Samples, labels: Vec<u32>, most: usize) {
        self.shape = made.shape();
        self.batches.push((made.values(), labels));
        let old = self.batches.len().saturating_sub(most);
        self.batches.drain(..old);
    }

    /// Returns whether there is no batch.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns all inputs, the oldest first, with their labels.
    ///
    /// # Errors
    /// If there are none.
    pub fn examples(&self) -> Result<(Samples, Vec<u32>)> {
        let all: Vec<ArrayView2<'_, f32>> = self.batches.iter().map(|(x, _)| x.view()).collect();
        let values = concatenate(Axis(0), &all)?;
        let labels = self.batches.iter().flat_map(|(_, labels)| labels);
        let labels = labels.copied().collect();
        Ok((Samples::fresh(values, self.shape.clone())?, labels))
    }

    /// Returns at most `n` inputs of the last batch, if there is one.
    ///
    /// # Errors
    /// If they do not fit their shape.
    pub fn last(&self, n: usize) -> Result<Option<Samples>> {
        let Some((values, _)) = self.batches.last() else {
            return Ok(None);
        };
        let all = Samples::fresh(values.clone(), self.shape.clone())?;
        let shown: Vec<usize> = (0..all.len().min(n)).collect();
        Ok(Some(all.pick(&shown)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_drops_its_oldest_batch() {
        let mut pool = Pool::default();
        assert!(pool.is_empty() && pool.last(1).unwrap().is_none());
        for at in 0..4u32 {
            let x = Samples::fresh(Array2::from_elem((2, 1), at as f32), vec![1]).unwrap();
            pool.add(&x, vec![at, at + 10], 3);
        }
        let (x, labels) = pool.examples().unwrap();
        let values: Vec<f32> = x.values().iter().copied().collect();
        assert_eq!(values, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(labels, [1, 11, 2, 12, 3, 13]);
        assert_eq!(pool.last(1).unwrap().unwrap().values()[(0, 0)], 3.0);
    }
}
