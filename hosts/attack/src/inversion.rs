//! What does a model think that a class looks like?

use crate::minimise::{Found, Search, by_input, minimise};
use anyhow::Result;
use fl_core::{Samples, Stream, Trainer};
use ndarray::Array2;

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
    tell: &mut dyn FnMut() -> bool,
) -> Result<Found> {
    let begin = (classes.len(), shape, range);
    minimise(begin, how, stream, tell, &mut |x| {
        let samples = Samples::fresh(x.clone(), shape.to_vec())?;
        let slope = by_input(model, &samples, classes)?.mapv(f64::from);
        Ok((loss(model.predict(&samples)?, classes), slope))
    })
}

/// Mean cross-entropy.
fn loss(scores: Array2<f32>, classes: &[u32]) -> f64 {
    let each = scores.rows().into_iter().zip(classes).map(|(row, class)| {
        let top = row.fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        let sum: f64 = row.iter().map(|z| f64::from(z - top).exp()).sum();
        sum.ln() - f64::from(row[*class as usize] - top)
    });
    each.sum::<f64>() / classes.len().max(1) as f64
}
