//! Losses on scores (logits), in closed form: the value, and its slope by each score.

mod pixels;

pub use pixels::{by_class, by_pixel};

use crate::{Loss, Problem, Result, Target, TaskKind};
use anyhow::bail;
use ndarray::{Array2, ArrayView2};

/// The target of one sample's scores.
#[derive(Clone, Copy, Debug)]
pub enum Aim<'a> {
    /// A class.
    Class(usize),
    /// Several labels: 1, 0, or -1 for unknown.
    MultiLabel(&'a [i8]),
    /// Class probabilities.
    Soft(&'a [f64]),
    /// Scores to imitate.
    Scores(&'a [f64]),
}

fn ln_softmax(scores: &[f64], tau: f64) -> Vec<f64> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| libm::exp((s - top) / tau)).sum();
    scores
        .iter()
        .map(|s| (s - top) / tau - libm::log(sum))
        .collect()
}

/// Replaces scores by their softmax at temperature `tau`.
pub fn softmax(scores: &mut [f64], tau: f64) {
    let ln_p = ln_softmax(scores, tau);
    for (s, l) in scores.iter_mut().zip(ln_p) {
        *s = libm::exp(l);
    }
}

/// Returns the probability of a label with this score.
pub fn sigmoid(score: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-score))
}

/// Returns the loss of one sample before averaging: its sum, and the number of terms. Writes the
/// slope of the sum to `slope`.
///
/// # Errors
/// If loss and aim do not go together.
pub fn of_sample(
    loss: Loss,
    aim: Aim<'_>,
    scores: &[f64],
    slope: &mut [f64],
) -> Result<(f64, usize)> {
    let differences = |target: &[f64]| {
        scores
            .iter()
            .zip(target)
            .map(|(s, t)| s - t)
            .collect::<Vec<_>>()
    };
    Ok(match (loss, aim) {
        (Loss::CrossEntropy, Aim::Class(class)) => {
            let ln_p = ln_softmax(scores, 1.0);
            for (c, (g, l)) in slope.iter_mut().zip(&ln_p).enumerate() {
                *g = libm::exp(*l) - f64::from(u8::from(c == class));
            }
            (-ln_p[class], 1)
        }
        (Loss::CrossEntropy, Aim::Soft(target)) => {
            let (ln_p, mass) = (ln_softmax(scores, 1.0), target.iter().sum::<f64>());
            for ((g, l), t) in slope.iter_mut().zip(&ln_p).zip(target) {
                *g = libm::exp(*l) * mass - t;
            }
            (
                -ln_p
                    .iter()
                    .zip(target)
                    .map(|(l, t)| if *t == 0.0 { 0.0 } else { t * l })
                    .sum::<f64>(),
                1,
            )
        }
        (Loss::CrossEntropy, Aim::MultiLabel(target)) => {
            let (mut sum, mut known) = (0.0, 0);
            for ((g, s), t) in slope.iter_mut().zip(scores).zip(target) {
                *g = 0.0;
                if *t >= 0 {
                    let t = f64::from(*t);
                    // ln(1 + e^s) - t s, without overflow
                    sum += s.max(0.0) - s * t + libm::log1p(libm::exp(-s.abs()));
                    *g = sigmoid(*s) - t;
                    known += 1;
                }
            }
            (sum, known)
        }
        (Loss::Mae, Aim::Scores(target)) => {
            let d = differences(target);
            // the slope at a difference of exactly 0 is 0, as in PyTorch
            slope
                .iter_mut()
                .zip(&d)
                .for_each(|(g, d)| *g = if *d == 0.0 { 0.0 } else { d.signum() });
            (d.iter().map(|d| d.abs()).sum(), d.len())
        }
        (Loss::Mse, Aim::Scores(target)) => {
            let d = differences(target);
            slope.iter_mut().zip(&d).for_each(|(g, d)| *g = 2.0 * d);
            (d.iter().map(|d| d * d).sum(), d.len())
        }
        (Loss::Huber { delta }, Aim::Scores(target)) => {
            let d = differences(target);
            slope
                .iter_mut()
                .zip(&d)
                .for_each(|(g, d)| *g = d.max(-delta).min(delta));
            let of = |d: &f64| match d.abs() {
                d if d <= delta => d * d / 2.0,
                d => delta * (d - delta / 2.0),
            };
            (d.iter().map(of).sum(), d.len())
        }
        (Loss::Norm, Aim::Scores(target)) => {
            let d = differences(target);
            let norm = d.iter().map(|d| d * d).sum::<f64>().sqrt();
            slope
                .iter_mut()
                .zip(&d)
                .for_each(|(g, d)| *g = if norm == 0.0 { 0.0 } else { d / norm });
            (norm, 1)
        }
        (Loss::Kl { tau }, Aim::Scores(target)) => {
            let (ln_q, ln_p) = (ln_softmax(target, tau), ln_softmax(scores, tau));
            for ((g, p), q) in slope.iter_mut().zip(&ln_p).zip(&ln_q) {
                *g = tau * (libm::exp(*p) - libm::exp(*q));
            }
            (
                tau * tau
                    * ln_q
                        .iter()
                        .zip(&ln_p)
                        .map(|(q, p)| libm::exp(*q) * (q - p))
                        .sum::<f64>(),
                1,
            )
        }
        (loss, aim) => {
            let aim = match aim {
                Aim::Class(_) => "classes",
                Aim::MultiLabel(_) => "multi-label",
                Aim::Soft(_) => "soft labels",
                Aim::Scores(_) => "scores",
            };
            bail!(Problem::Lacks(format!(
                "the loss {loss} does not go with {aim}: cross-entropy goes with classes, multi-label targets and soft labels; the others with scores"
            )))
        }
    })
}

/// Returns the mean loss of a batch, and its slope by each score (`samples x outputs`).
///
/// # Errors
/// If loss and target do not go together, their shapes differ, or a class is not below the number
/// of outputs.
pub fn of_batch(
    loss: Loss,
    target: Target<'_>,
    scores: ArrayView2<'_, f32>,
) -> Result<(f64, Array2<f32>)> {
    let (samples, outputs) = scores.dim();
    let width = match target {
        Target::Pixels(of) => return pixels::of_batch(loss, 0.0, of, scores),
        Target::Classes(_) => outputs,
        Target::MultiLabel(t) => t.ncols(),
        Target::Soft(t) | Target::Scores(t) => t.ncols(),
    };
    Problem::shape_unless(target.len() == samples && width == outputs, || {
        format!(
            "targets for {} samples x {width} outputs, scores of {samples} x {outputs}",
            target.len()
        )
    })?;
    let mut slopes = Array2::<f64>::zeros((samples, outputs));
    let (mut total, mut terms) = (0.0, 0usize);
    for (i, mut slope) in slopes.rows_mut().into_iter().enumerate() {
        let row: Vec<f64> = scores.row(i).iter().map(|s| f64::from(*s)).collect();
        let slope = slope.as_slice_mut().expect("a fresh array is contiguous");
        let (sum, n) = match target {
            Target::Pixels(_) => (0.0, 0), // handled above
            Target::Classes(of) => {
                let class = of[i] as usize;
                Problem::shape_unless(class < outputs, || {
                    format!("class {class} for a model of {outputs} outputs")
                })?;
                of_sample(loss, Aim::Class(class), &row, slope)?
            }
            Target::MultiLabel(t) => {
                of_sample(loss, Aim::MultiLabel(&t.row(i).to_vec()), &row, slope)?
            }
            Target::Soft(t) => of_sample(
                loss,
                Aim::Soft(&t.row(i).mapv(f64::from).to_vec()),
                &row,
                slope,
            )?,
            Target::Scores(t) => of_sample(
                loss,
                Aim::Scores(&t.row(i).mapv(f64::from).to_vec()),
                &row,
                slope,
            )?,
        };
        total += sum;
        terms += n;
    }
    let n = terms.max(1) as f64;
    Ok((total / n, slopes.mapv(|g| (g / n) as f32)))
}

/// As [`of_batch`] for a model of `task`. If pixels have classes, probabilities and temperatures
/// are those of each pixel, and means are over the pixels of the batch. Cross-entropy then adds
/// `dice` times the soft Dice loss: 1 minus the mean over the classes except the background of
/// `(2 sum p g + 1) / (sum p + sum g + 1)`. The sums are over the pixels of the batch; `p` is the
/// probability of a class, and `g` its truth, either 0 or 1 (Milletari et al. 2016, with plain sums
/// in the denominator, as in nnU-Net: Isensee et al. 2021).
///
/// # Errors
/// As [`of_batch`].
pub fn of_task(
    task: TaskKind,
    dice: f64,
    loss: Loss,
    target: Target<'_>,
    scores: ArrayView2<'_, f32>,
) -> Result<(f64, Array2<f32>)> {
    let TaskKind::Pixels { classes, .. } = task else {
        return of_batch(loss, target, scores);
    };
    match target {
        Target::Pixels(of) => pixels::of_batch(loss, dice, of, scores),
        Target::Soft(t) => pixels::apart(classes, t, scores, |t, s| {
            of_batch(loss, Target::Soft(t), s)
        }),
        Target::Scores(t) if matches!(loss, Loss::Kl { .. } | Loss::Norm) => {
            pixels::apart(classes, t, scores, |t, s| {
                of_batch(loss, Target::Scores(t), s)
            })
        }
        other => of_batch(loss, other, scores),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, array};

    /// Compares the slope with central differences of the value.
    fn close_slope(loss: Loss, target: Target<'_>, scores: &Array2<f32>) {
        let slope = of_batch(loss, target, scores.view()).unwrap().1;
        let h = 1e-3;
        for ((i, j), g) in slope.indexed_iter() {
            let at = |d: f32| {
                let mut moved = scores.clone();
                moved[[i, j]] += d;
                (
                    of_batch(loss, target, moved.view()).unwrap().0,
                    moved[[i, j]],
                )
            };
            let ((up, a), (down, b)) = (at(h), at(-h));
            let numeric = (up - down) / f64::from(a - b);
            assert!(
                (numeric - f64::from(*g)).abs() < 1e-5,
                "{loss:?} [{i}, {j}]: {g} by formula, {numeric} by differences"
            );
        }
    }

    #[test]
    fn slopes_are_those_of_the_values() {
        let scores = array![[0.9, 0.1, -0.4], [0.3, -0.2, 1.4]];
        let other = array![[1.2f32, -0.7, 0.3], [-1.5, 0.4, 0.9]];
        let soft = array![[0.2f32, 0.5, 0.3], [1.0, 0.0, 0.0]];
        let findings = array![[1i8, 0, -1], [-1, -1, 1]];
        close_slope(Loss::CrossEntropy, Target::Classes(&[2, 0]), &scores);
        close_slope(Loss::CrossEntropy, Target::Soft(soft.view()), &scores);
        close_slope(
            Loss::CrossEntropy,
            Target::MultiLabel(findings.view()),
            &scores,
        );
        for loss in [
            Loss::Mae,
            Loss::Mse,
            Loss::Huber { delta: 0.75 },
            Loss::Norm,
            Loss::Kl { tau: 1.0 },
            Loss::Kl { tau: 3.0 },
        ] {
            close_slope(loss, Target::Scores(other.view()), &scores);
        }
    }

    #[test]
    fn unknown_findings_cost_nothing() {
        let unknown = array![[-1i8, -1]];
        let (value, slope) = of_batch(
            Loss::CrossEntropy,
            Target::MultiLabel(unknown.view()),
            array![[5.0, -5.0]].view(),
        )
        .unwrap();
        assert_eq!((value, slope), (0.0, array![[0.0, 0.0]]));
    }

    #[test]
    fn huge_scores_stay_finite() {
        let scores = array![[1e30f32, -1e30]];
        let (value, slope) =
            of_batch(Loss::CrossEntropy, Target::Classes(&[0]), scores.view()).unwrap();
        assert!(value == 0.0 && slope.iter().all(|g| g.is_finite()));
        let findings = array![[1i8, 0]];
        assert_eq!(
            of_batch(
                Loss::CrossEntropy,
                Target::MultiLabel(findings.view()),
                scores.view()
            )
            .unwrap()
            .0,
            0.0
        );
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        let error = of_batch(Loss::Mae, Target::Classes(&[0]), array![[0.0, 1.0]].view())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the loss mae does not go with classes"),
            "{error}"
        );
        let error = of_batch(
            Loss::CrossEntropy,
            Target::Classes(&[2]),
            array![[0.0, 1.0]].view(),
        )
        .unwrap_err()
        .to_string();
        assert_eq!(error, "class 2 for a model of 2 outputs");
    }
}
