//! Attack that reconstructs a typical input of a class from a model.

use crate::minimise::{Search, SearchResult, Tell, loss_by_input, minimise};
use anyhow::Result;
use fl_core::{Samples, Stream, Trainer};

/// Returns for each of these classes an input with the model's highest confidence (model inversion;
/// Fredrikson, Jha, Ristenpart 2015), of a shape and within a range, with the total variation of
/// images. `distance` is the remaining mean cross-entropy.
///
/// # Errors
/// If the model gives no slopes by its input.
pub fn inversion(
    model: &mut dyn Trainer,
    classes: &[u32],
    shape: &[usize],
    range: &[(f32, f32)],
    how: &Search,
    stream: &Stream,
    tell: &Tell,
) -> Result<SearchResult> {
    let begin = (classes.len(), shape, range);
    minimise(begin, how, stream, tell, &mut |x| {
        let samples = Samples::fresh(x.clone(), shape.to_vec())?;
        let (loss, slope) = loss_by_input(model, &samples, classes)?;
        Ok((loss, slope.mapv(f64::from)))
    })
}
