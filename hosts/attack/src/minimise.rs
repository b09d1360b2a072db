//! Search for inputs that minimise a distance.

use anyhow::{Context, Result};
use fl_core::loss::of_batch;
use fl_core::{Loss, Samples, Stream, Target, Trainer};
use ndarray::Array2;
use serde::Serialize;

/// The options of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Search {
    /// Steps of Adam.
    pub steps: usize,
    /// The first step, as a share of the range of a number.
    pub rate: f64,
    /// The weight of the total variation of an image, per pixel, relative to the distance.
    pub smooth: f64,
}

/// Called at each step of a search, which stops if it returns false.
pub type Tell = Box<dyn Fn() -> bool + Send + Sync>;

/// Returns the distance at these inputs, and its slope by each of their numbers.
type Slope<'a> = dyn FnMut(&Array2<f32>) -> Result<(f64, Array2<f64>)> + 'a;

/// The result of a search.
pub struct SearchResult {
    /// `images x width`
    pub inputs: Array2<f32>,
    /// The minimised distance, without the variation: for [`crate::search`] 1 minus the cosine,
    /// from 0 (the same direction) to 2.
    pub distance: f64,
}

/// Minimises by Adam from random inputs of this number, shape and range, along `slope`, which
/// returns the distance and its slope by each number. The rate drops to a tenth after three, five
/// and seven eighths of the steps. Calls `tell` at each step, and stops if it returns false.
///
/// # Errors
/// Those of `slope`.
pub(crate) fn minimise(
    (rows, shape, range): (usize, &[usize], &[(f32, f32)]),
    how: &Search,
    stream: &Stream,
    tell: &Tell,
    slope: &mut Slope<'_>,
) -> Result<SearchResult> {
    let mut draws = stream.child("first", 0).draws();
    let mut x = Array2::from_shape_fn((rows, range.len()), |(_, c)| {
        let (low, high) = range[c];
        low + (high - low) * draws.uniform() as f32
    });
    let (mut mean, mut square) = (x.mapv(|_| 0.0f64), x.mapv(|_| 0.0f64));
    let mut best = (f64::INFINITY, x.clone());
    for step in 0..how.steps {
        let (distance, mut slope) = slope(&x)?;
        if distance < best.0 {
            best = (distance, x.clone());
        }
        if !tell() {
            break;
        }
        add_variation(&mut slope, &x, shape, range, how.smooth);
        let falls = [3, 5, 7].map(|eighths| usize::from(8 * step >= eighths * how.steps));
        let rate = how.rate * 0.1f64.powi(falls.iter().sum::<usize>() as i32);
        let t = step as i32 + 1;
        let (by_mean, by_square) = (1.0 - 0.9f64.powi(t), 1.0 - 0.999f64.powi(t));
        let moments = mean.iter_mut().zip(&mut square).zip(&slope);
        for (at, (x, ((m, s), g))) in x.iter_mut().zip(moments).enumerate() {
            *m = 0.9 * *m + 0.1 * g;
            *s = 0.999 * *s + 0.001 * g * g;
            let (low, high) = range[at % range.len()];
            let by = (*m / by_mean) / ((*s / by_square).sqrt() + 1e-12);
            *x = (*x - (rate * by) as f32 * (high - low)).clamp(low, high);
        }
    }
    let (distance, inputs) = best;
    Ok(SearchResult { inputs, distance })
}

/// Returns the mean cross-entropy, and its slope by each input.
pub(crate) fn loss_by_input(
    model: &mut dyn Trainer,
    x: &Samples,
    classes: &[u32],
) -> Result<(f64, Array2<f32>)> {
    let scores = model.predict(x)?;
    let (loss, slope) = of_batch(Loss::CrossEntropy, Target::Classes(classes), scores.view())?;
    let text =
        "this model does not give the slope of its scores by the input; `dfdx` and `linear` do";
    let by_input = model.differentiable().context(text)?.vjp(x, slope.view())?;
    Ok((loss, by_input))
}

/// Adds the slope of the total variation per pixel, in units of the range; rows of numbers that are
/// no image have none.
fn add_variation(
    slope: &mut Array2<f64>,
    x: &Array2<f32>,
    shape: &[usize],
    range: &[(f32, f32)],
    weight: f64,
) {
    let [_, height, width] = *shape else {
        return;
    };
    let each = weight / x.ncols() as f64;
    for (mut slope, x) in slope.rows_mut().into_iter().zip(x.rows()) {
        let mut pair = |a: usize, b: usize| {
            let (low, high) = range[a];
            let by = each / f64::from(high - low).max(1e-12);
            let sign = if x[a] == x[b] {
                0.0
            } else {
                f64::from((x[a] - x[b]).signum())
            };
            slope[a] += by * sign;
            slope[b] -= by * sign;
        };
        for at in 0..x.len() {
            let (row, column) = (at / width % height, at % width);
            if column + 1 < width {
                pair(at, at + 1);
            }
            if row + 1 < height {
                pair(at, at + width);
            }
        }
    }
}
