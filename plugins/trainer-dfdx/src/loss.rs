//! Losses and their gradients by the scores, in closed form. Means are over the batch (METHODS, section 1).
//!
//! The functions are generic over `f32` and `f64`; values are summed in `f64`.

use anyhow::{bail, ensure};
use fl_core::{Loss, Problem, Result, Target, TaskKind};
use ndarray::{Array2, ArrayView2, Axis, NdFloat, Zip};

/// `f32` or `f64`.
pub trait Real: NdFloat + Into<f64> {}
impl<T: NdFloat + Into<f64>> Real for T {}

fn number<F: Real>(x: f64) -> F {
    F::from(x).unwrap_or_else(F::nan)
}

/// Logarithms of the softmax of each row of `scores / tau`.
pub fn log_softmax<F: Real>(scores: ArrayView2<'_, F>, tau: F) -> Array2<F> {
    let mut out = scores.mapv(|z| z / tau);
    for mut row in out.rows_mut() {
        let most = row.fold(F::neg_infinity(), |m, z| m.max(*z));
        let sum = row.fold(F::zero(), |s, z| s + (*z - most).exp());
        let shift = most + sum.ln();
        row.mapv_inplace(|z| z - shift);
    }
    out
}

fn over_all<F: Real>(
    a: ArrayView2<'_, F>,
    b: ArrayView2<'_, F>,
    f: impl Fn(F) -> (F, F),
) -> (f64, Array2<F>) {
    let n = a.len().max(1) as f64;
    let mut sum = 0.0;
    let slope = Zip::from(&a).and(&b).map_collect(|a, b| {
        let (value, slope) = f(*a - *b);
        sum += value.into();
        slope / number(n)
    });
    (sum / n, slope)
}

/// Mean absolute error over batch and outputs, and its gradient (0 where scores are equal).
pub fn absolute<F: Real>(scores: ArrayView2<'_, F>, target: ArrayView2<'_, F>) -> (f64, Array2<F>) {
    over_all(scores, target, |d| {
        (d.abs(), if d == F::zero() { d } else { d.signum() })
    })
}

/// Mean squared error over batch and outputs, and its gradient.
pub fn squared<F: Real>(scores: ArrayView2<'_, F>, target: ArrayView2<'_, F>) -> (f64, Array2<F>) {
    over_all(scores, target, |d| (d * d, d + d))
}

/// Mean over the batch of the Euclidean norm of the difference, and its gradient (0 where a row is equal).
pub fn norm<F: Real>(scores: ArrayView2<'_, F>, target: ArrayView2<'_, F>) -> (f64, Array2<F>) {
    let n = scores.nrows().max(1) as f64;
    let (mut slope, mut sum) = (&scores - &target, 0.0);
    for mut row in slope.rows_mut() {
        let length = row.fold(F::zero(), |s, d| s + *d * *d).sqrt();
        sum += length.into();
        let factor = if length == F::zero() {
            F::zero()
        } else {
            F::one() / (length * number(n))
        };
        row.mapv_inplace(|d| d * factor);
    }
    (sum / n, slope)
}

/// Mean over the batch of `KL(softmax(target / tau) || softmax(scores / tau))`, times `tau` squared, and its gradient.
pub fn kl<F: Real>(
    scores: ArrayView2<'_, F>,
    target: ArrayView2<'_, F>,
    tau: F,
) -> (f64, Array2<F>) {
    let n = scores.nrows().max(1) as f64;
    let (from, to) = (log_softmax(target, tau), log_softmax(scores, tau));
    let mut sum = 0.0;
    let slope = Zip::from(&from).and(&to).map_collect(|p, q| {
        let weight = p.exp();
        // a class without probability adds nothing: 0 * log 0 = 0
        sum += if weight > F::zero() {
            (weight * (*p - *q)).into()
        } else {
            0.0
        };
        tau * (q.exp() - weight) / number(n)
    });
    let tau: f64 = tau.into();
    (tau * tau * sum / n, slope)
}

/// Mean over the batch of `-sum(p ln softmax(scores))`, and its gradient. Rows of `p` may have any sum.
pub fn cross_entropy<F: Real>(scores: ArrayView2<'_, F>, p: ArrayView2<'_, F>) -> (f64, Array2<F>) {
    let n = scores.nrows().max(1) as f64;
    let (mut slope, mut sum) = (log_softmax(scores, F::one()), 0.0);
    for (mut row, p) in slope.rows_mut().into_iter().zip(p.rows()) {
        let mass = p.sum();
        Zip::from(&mut row).and(&p).for_each(|q, p| {
            sum -= if *p == F::zero() {
                0.0
            } else {
                (*p * *q).into()
            };
            *q = (q.exp() * mass - *p) / number(n);
        });
    }
    (sum / n, slope)
}

/// Mean over the known findings of `-y ln s - (1 - y) ln (1 - s)` with `s` the sigmoid of the score, and its gradient.
/// `y` is in `[0, 1]`; below 0 it is unknown and counts for nothing.
pub fn sigmoid_cross_entropy<F: Real>(
    scores: ArrayView2<'_, F>,
    y: ArrayView2<'_, F>,
) -> (f64, Array2<F>) {
    let known = y.iter().filter(|y| **y >= F::zero()).count().max(1) as f64;
    let mut sum = 0.0;
    let slope = Zip::from(&scores).and(&y).map_collect(|z, y| {
        if *y < F::zero() {
            return F::zero();
        }
        // max(z, 0) - z y + ln(1 + exp(-|z|)): no exponential of a large number
        let soft = (-z.abs()).exp();
        let value = z.max(F::zero()) - *z * *y + soft.ln_1p();
        // `max` would hide a NaN
        sum += if z.is_nan() { f64::NAN } else { value.into() };
        let s = if *z >= F::zero() {
            F::one() / (F::one() + soft)
        } else {
            soft / (F::one() + soft)
        };
        (s - *y) / number(known)
    });
    (sum / known, slope)
}

/// Can `loss` be taken between the scores of a model for `task` and `target`?
///
/// # Errors
/// When they do not go together, when `target` does not have one entry for each of `rows` samples, or when a class, a
/// finding or a width is not the task's.
pub fn check(loss: Loss, task: TaskKind, target: &Target<'_>, rows: usize) -> Result<()> {
    ensure!(
        target.len() == rows,
        Problem::Shape(format!("{} targets for {rows} samples", target.len()))
    );
    let outputs = task.outputs();
    let width = |n: usize| {
        ensure!(
            n == outputs,
            Problem::Shape(format!(
                "targets of width {n} for a model with {outputs} outputs"
            ))
        );
        Ok(())
    };
    match (loss, target, task) {
        (Loss::CrossEntropy, Target::Classes(of), TaskKind::Classes(_)) => {
            let wrong = of.iter().find(|c| **c as usize >= outputs);
            ensure!(
                wrong.is_none(),
                Problem::Shape(format!(
                    "class {} of {outputs}",
                    wrong.copied().unwrap_or_default()
                ))
            );
            Ok(())
        }
        (Loss::CrossEntropy, Target::Findings(of), TaskKind::Findings(_)) => {
            ensure!(
                of.iter().all(|y| (-1..=1).contains(y)),
                Problem::Shape("findings must be 1, 0 or -1 (unknown)".into())
            );
            width(of.ncols())
        }
        (Loss::CrossEntropy, Target::Soft(of), _)
        | (Loss::Kl { .. }, Target::Soft(of), TaskKind::Classes(_)) => {
            ensure!(
                of.iter().all(|p| *p >= 0.0),
                Problem::Shape("probabilities must be at least 0".into())
            );
            temperature(loss)?;
            width(of.ncols())
        }
        (Loss::Mae | Loss::Mse | Loss::Norm, Target::Scores(of), _) => width(of.ncols()),
        (Loss::Kl { .. }, Target::Scores(of), TaskKind::Classes(_)) => {
            temperature(loss)?;
            width(of.ncols())
        }
        _ => {
            let found = match target {
                Target::Classes(_) => "classes",
                Target::Findings(_) => "findings",
                Target::Soft(_) => "probabilities",
                Target::Scores(_) => "scores",
            };
            let model = if matches!(task, TaskKind::Classes(_)) {
                "single-label"
            } else {
                "multi-label"
            };
            bail!(Problem::Shape(format!(
                "{loss:?} cannot fit a {model} model to {found}: cross-entropy takes labels of the model's kind or probabilities, \
                 mae, mse and norm take scores, kl takes scores or probabilities of a single-label model"
            )))
        }
    }
}

fn temperature(loss: Loss) -> Result<()> {
    match loss {
        Loss::Kl { tau } if !(tau > 0.0 && tau.is_finite()) => {
            bail!(Problem::Shape(format!(
                "the temperature of kl must be above 0, got {tau}"
            )))
        }
        _ => Ok(()),
    }
}

/// Value and gradient for a batch: `scores` are those of the samples at positions `rows` of `target`, which [`check`] has
/// passed.
pub fn batch(
    loss: Loss,
    task: TaskKind,
    scores: ArrayView2<'_, f32>,
    target: &Target<'_>,
    rows: &[usize],
) -> (f64, Array2<f32>) {
    let goal = match target {
        Target::Classes(of) => {
            let mut goal = Array2::zeros(scores.raw_dim());
            rows.iter()
                .enumerate()
                .for_each(|(i, r)| goal[[i, of[*r] as usize]] = 1.0);
            goal
        }
        Target::Findings(of) => of.select(Axis(0), rows).mapv(f32::from),
        Target::Soft(of) | Target::Scores(of) => of.select(Axis(0), rows),
    };
    match (loss, task) {
        (Loss::CrossEntropy, TaskKind::Classes(_)) => cross_entropy(scores, goal.view()),
        (Loss::CrossEntropy, TaskKind::Findings(_)) => sigmoid_cross_entropy(scores, goal.view()),
        (Loss::Mae, _) => absolute(scores, goal.view()),
        (Loss::Mse, _) => squared(scores, goal.view()),
        (Loss::Norm, _) => norm(scores, goal.view()),
        // probabilities are the softmax of their own logarithms
        (Loss::Kl { tau }, _) if matches!(target, Target::Soft(_)) => kl(
            scores,
            goal.mapv(|p| p.max(f32::MIN_POSITIVE).ln()).view(),
            tau,
        ),
        (Loss::Kl { tau }, _) => kl(scores, goal.view(), tau),
    }
}

#[cfg(test)]
mod tests;
