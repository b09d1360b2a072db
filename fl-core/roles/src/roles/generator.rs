//! [`Generator`]: the role that makes inputs.

use crate::{Result, Samples, Stream};
use ndarray::ArrayView2;

/// Makes inputs, and learns which inputs to make.
pub trait Generator: Send {
    /// Returns `n` inputs.
    ///
    /// # Errors
    /// If the generator cannot run.
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples>;

    /// Takes a step against `slope`, the derivative of a loss by each number of `made`. `made` is
    /// the last result of [`Generator::sample`].
    ///
    /// # Errors
    /// If `made` is not the last sample.
    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()>;

    /// Returns its state, with the optimiser.
    ///
    /// # Errors
    /// If it cannot be serialised.
    fn save(&self) -> Result<Vec<u8>>;

    /// Restores a state from [`Generator::save`].
    ///
    /// # Errors
    /// If `state` is not a state of this generator.
    fn load(&mut self, state: &[u8]) -> Result<()>;
}
