//! Makes inputs.

use crate::{Result, Samples, Stream};
use ndarray::ArrayView2;

/// Makes inputs, and learns which inputs are wanted.
pub trait Generator: Send {
    /// `n` inputs.
    ///
    /// # Errors
    /// When the generator cannot run.
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples>;

    /// Moves against `slope`, the derivative of a loss by each number of `made`, which [`Generator::sample`] gave last.
    ///
    /// # Errors
    /// When `made` is not what was sampled last.
    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()>;

    /// Everything it has learnt, optimiser included.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn save(&self) -> Result<Vec<u8>>;

    /// Takes back what [`Generator::save`] gave.
    ///
    /// # Errors
    /// When `state` is not a state of this generator.
    fn load(&mut self, state: &[u8]) -> Result<()>;
}
