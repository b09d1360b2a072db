//! Losses where every pixel has a class: scores stand class by class, `samples x (classes * pixels)`.

use super::{ln_softmax, softmax};
use crate::{Loss, Problem, Result};
use anyhow::ensure;
use ndarray::{Array2, ArrayView2};

/// So many numbers keep an empty class from dividing 0 by 0.
const SMOOTH: f64 = 1.0;

/// Cross-entropy, the mean over all pixels, and `dice` times the soft Dice loss, see [`super::of_task`].
pub fn of_batch(
    loss: Loss,
    dice: f64,
    truth: ArrayView2<'_, u8>,
    scores: ArrayView2<'_, f32>,
) -> Result<(f64, Array2<f32>)> {
    let ((samples, pixels), outputs) = (truth.dim(), scores.ncols());
    ensure!(
        loss == Loss::CrossEntropy,
        Problem::Lacks(format!(
            "the loss {loss} does not go with the classes of pixels: cross-entropy does"
        ))
    );
    let classes = outputs.checked_div(pixels).unwrap_or_default();
    ensure!(
        scores.nrows() == samples && classes * pixels == outputs && classes > 0,
        Problem::Shape(format!(
            "masks of {samples} x {pixels} pixels, scores of {} x {outputs}",
            scores.nrows()
        ))
    );
    let (n, mut total) = ((samples * pixels).max(1) as f64, 0.0);
    // probabilities, laid out as the scores
    let mut p = Array2::<f64>::zeros((samples, outputs));
    let mut slopes = Array2::<f32>::zeros((samples, outputs));
    let mut one = vec![0.0; classes];
    for ((i, at), class) in truth.indexed_iter() {
        let class = usize::from(*class);
        ensure!(
            class < classes,
            Problem::Shape(format!("class {class} for a model of {classes} classes"))
        );
        for (c, s) in one.iter_mut().enumerate() {
            *s = f64::from(scores[[i, c * pixels + at]]);
        }
        total -= ln_softmax(&one, 1.0)[class];
        softmax(&mut one, 1.0);
        for (c, s) in one.iter().enumerate() {
            p[[i, c * pixels + at]] = *s;
            slopes[[i, c * pixels + at]] = ((s - f64::from(u8::from(c == class))) / n) as f32;
        }
    }
    if dice == 0.0 {
        return Ok((total / n, slopes));
    }
    // of each class: 2 sum p g + 1, and sum p + sum g + 1
    let mut parts = vec![(SMOOTH, SMOOTH); classes];
    for ((i, at), class) in truth.indexed_iter() {
        for (c, (over, under)) in parts.iter_mut().enumerate() {
            let (p, g) = (
                p[[i, c * pixels + at]],
                f64::from(u8::from(c == usize::from(*class))),
            );
            *over += 2.0 * p * g;
            *under += p + g;
        }
    }
    let objects = (classes - 1).max(1) as f64;
    let mean = parts[1..]
        .iter()
        .map(|(over, under)| over / under)
        .sum::<f64>()
        / objects;
    for ((i, at), class) in truth.indexed_iter() {
        // the loss by each probability, then by each score
        for (c, by) in one.iter_mut().enumerate() {
            let (over, under) = parts[c];
            let g = f64::from(u8::from(c == usize::from(*class)));
            *by = if c == 0 {
                0.0
            } else {
                -(2.0 * g * under - over) / (under * under * objects)
            };
        }
        let place = |c: usize| [i, c * pixels + at];
        let level: f64 = one.iter().enumerate().map(|(c, by)| p[place(c)] * by).sum();
        for (c, by) in one.iter().enumerate() {
            slopes[place(c)] += (dice * p[place(c)] * (by - level)) as f32;
        }
    }
    Ok((total / n + dice * (1.0 - mean), slopes))
}

/// `f` of targets and scores with a row for each pixel; the slope as the scores are.
pub fn apart(
    classes: usize,
    target: ArrayView2<'_, f32>,
    scores: ArrayView2<'_, f32>,
    f: impl FnOnce(ArrayView2<'_, f32>, ArrayView2<'_, f32>) -> Result<(f64, Array2<f32>)>,
) -> Result<(f64, Array2<f32>)> {
    let (samples, outputs) = scores.dim();
    ensure!(
        target.dim() == scores.dim() && outputs.is_multiple_of(classes),
        Problem::Shape(format!(
            "targets of {:?}, scores of {:?}, for {classes} classes of pixels",
            target.dim(),
            scores.dim()
        ))
    );
    let pixels = outputs / classes;
    let rows = |of: ArrayView2<'_, f32>| {
        Array2::from_shape_fn((samples * pixels, classes), |(at, c)| {
            of[[at / pixels, c * pixels + at % pixels]]
        })
    };
    let (target, apart) = (rows(target), rows(scores));
    let (value, slopes) = f(target.view(), apart.view())?;
    let back = Array2::from_shape_fn((samples, outputs), |(i, at)| {
        slopes[[i * pixels + at % pixels, at / pixels]]
    });
    Ok((value, back))
}
