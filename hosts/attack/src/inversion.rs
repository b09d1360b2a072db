//! What does a model think that a class looks like?

use crate::minimise::{Search, SearchResult, Tell, loss_by_input, minimise};
use anyhow::Result;
use fl_core::{Samples, Stream, Trainer};

/// An input of each of these classes that the model is surest of (model inversion; Fredrikson, Jha, Ristenpart 2015), of a shape and within a
/// range, with the total variation of images; `distance` is the mean cross-entropy that is left.
///
/// # Errors
/// When the model gives no slopes by its input.
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
