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

fn over_all<F: Real>(a: ArrayView2<'_, F>, b: ArrayView2<'_, F>, f: impl Fn(F) -> (F, F)) -> (f64, Array2<F>) {
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
    over_all(scores, target, |d| (d.abs(), if d == F::zero() { d } else { d.signum() }))
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
        let factor = if length == F::zero() { F::zero() } else { F::one() / (length * number(n)) };
        row.mapv_inplace(|d| d * factor);
    }
    (sum / n, slope)
}

/// Mean over the batch of `KL(softmax(target / tau) || softmax(scores / tau))`, times `tau` squared, and its gradient.
pub fn kl<F: Real>(scores: ArrayView2<'_, F>, target: ArrayView2<'_, F>, tau: F) -> (f64, Array2<F>) {
    let n = scores.nrows().max(1) as f64;
    let (from, to) = (log_softmax(target, tau), log_softmax(scores, tau));
    let mut sum = 0.0;
    let slope = Zip::from(&from).and(&to).map_collect(|p, q| {
        let weight = p.exp();
        // a class without probability adds nothing: 0 * log 0 = 0
        sum += if weight > F::zero() { (weight * (*p - *q)).into() } else { 0.0 };
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
            sum -= if *p == F::zero() { 0.0 } else { (*p * *q).into() };
            *q = (q.exp() * mass - *p) / number(n);
        });
    }
    (sum / n, slope)
}

/// Mean over the known findings of `-y ln s - (1 - y) ln (1 - s)` with `s` the sigmoid of the score, and its gradient.
/// `y` is in `[0, 1]`; below 0 it is unknown and counts for nothing.
pub fn sigmoid_cross_entropy<F: Real>(scores: ArrayView2<'_, F>, y: ArrayView2<'_, F>) -> (f64, Array2<F>) {
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
        let s = if *z >= F::zero() { F::one() / (F::one() + soft) } else { soft / (F::one() + soft) };
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
    ensure!(target.len() == rows, Problem::Shape(format!("{} targets for {rows} samples", target.len())));
    let outputs = task.outputs();
    let width = |n: usize| {
        ensure!(n == outputs, Problem::Shape(format!("targets of width {n} for a model with {outputs} outputs")));
        Ok(())
    };
    match (loss, target, task) {
        (Loss::CrossEntropy, Target::Classes(of), TaskKind::Classes(_)) => {
            let wrong = of.iter().find(|c| **c as usize >= outputs);
            ensure!(wrong.is_none(), Problem::Shape(format!("class {} of {outputs}", wrong.copied().unwrap_or_default())));
            Ok(())
        }
        (Loss::CrossEntropy, Target::Findings(of), TaskKind::Findings(_)) => {
            ensure!(of.iter().all(|y| (-1..=1).contains(y)), Problem::Shape("findings must be 1, 0 or -1 (unknown)".into()));
            width(of.ncols())
        }
        (Loss::CrossEntropy, Target::Soft(of), _) | (Loss::Kl { .. }, Target::Soft(of), TaskKind::Classes(_)) => {
            ensure!(of.iter().all(|p| *p >= 0.0), Problem::Shape("probabilities must be at least 0".into()));
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
            let model = if matches!(task, TaskKind::Classes(_)) { "single-label" } else { "multi-label" };
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
            bail!(Problem::Shape(format!("the temperature of kl must be above 0, got {tau}")))
        }
        _ => Ok(()),
    }
}

/// Value and gradient for a batch: `scores` are those of the samples at positions `rows` of `target`, which [`check`] has
/// passed.
pub fn batch(loss: Loss, task: TaskKind, scores: ArrayView2<'_, f32>, target: &Target<'_>, rows: &[usize]) -> (f64, Array2<f32>) {
    let goal = match target {
        Target::Classes(of) => {
            let mut goal = Array2::zeros(scores.raw_dim());
            rows.iter().enumerate().for_each(|(i, r)| goal[[i, of[*r] as usize]] = 1.0);
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
        (Loss::Kl { tau }, _) if matches!(target, Target::Soft(_)) => kl(scores, goal.mapv(|p| p.max(f32::MIN_POSITIVE).ln()).view(), tau),
        (Loss::Kl { tau }, _) => kl(scores, goal.view(), tau),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// The gradient by central differences; all losses here are smooth at these scores.
    fn by_difference(scores: &Array2<f64>, f: &dyn Fn(ArrayView2<'_, f64>) -> f64) -> Array2<f64> {
        Array2::from_shape_fn(scores.raw_dim(), |at| {
            let moved = |d: f64| {
                let mut s = scores.clone();
                s[at] += d;
                f(s.view())
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        })
    }

    fn compare(name: &str, scores: &Array2<f64>, f: &dyn Fn(ArrayView2<'_, f64>) -> (f64, Array2<f64>)) {
        let (_, slope) = f(scores.view());
        let numeric = by_difference(scores, &|s| f(s).0);
        for (a, b) in slope.iter().zip(&numeric) {
            assert!((a - b).abs() < 1e-9, "{name}: {a}, by differences {b}");
        }
    }

    #[test]
    fn close_gradients_are_the_differences() {
        let z = array![[0.9, 0.1, -0.4, 1.6], [0.3, -0.2, 1.4, 0.1], [0.5, -0.5, 0.25, 0.0]];
        let t = array![[1.2, -0.7, 0.3, 2.2], [-1.5, 0.4, 0.9, 0.2], [0.1, 0.2, 0.3, 0.4]];
        let p = log_softmax(t.view(), 1.0).mapv(f64::exp);
        let y = array![[1.0, 0.0, -1.0, 1.0], [0.0, -1.0, -1.0, 1.0], [0.5, 0.0, 0.0, 1.0]];
        compare("mae", &z, &|z| absolute(z, t.view()));
        compare("mse", &z, &|z| squared(z, t.view()));
        compare("norm", &z, &|z| norm(z, t.view()));
        compare("kl", &z, &|z| kl(z, t.view(), 3.0));
        compare("cross-entropy", &z, &|z| cross_entropy(z, p.view()));
        compare("sigmoid cross-entropy", &z, &|z| sigmoid_cross_entropy(z, y.view()));
        // KL and cross-entropy differ by the entropy of the target, which the student cannot change
        let (a, b) = (kl(z.view(), t.view(), 1.0).1, cross_entropy(z.view(), p.view()).1);
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn close_known_values() {
        let t = array![[1.2, -0.7, 0.3, 2.2], [-1.5, 0.4, 0.9, 0.1], [0.0, 0.0, 0.0, 0.0]];
        let z = array![[0.9, 0.1, -0.4, 1.6], [0.3, -0.2, 1.4, 0.1], [0.5, -0.5, 0.25, 0.0]];
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(absolute(z.view(), t.view()).0, 0.545_833_333_333_333_4);
        near(squared(z.view(), t.view()).0, 0.499_375);
        near(norm(z.view(), t.view()).0, 1.323_040_732_010_837_3);
        near(kl(z.view(), t.view(), 3.0).0, 0.170_583_568_776_956_52);
        assert_eq!(absolute(z.view(), t.view()).1[[1, 3]], 0.0, "no slope where scores are equal");
    }

    #[test]
    fn unknown_findings_count_for_nothing() {
        let z = array![[3.0f32, -8.0], [90.0, -90.0]];
        let (value, slope) = sigmoid_cross_entropy(z.view(), array![[1.0, -1.0], [-1.0, 0.0]].view());
        assert!((value - f64::from((-3.0f32).exp().ln_1p()) / 2.0).abs() < 1e-6);
        assert_eq!((slope[[0, 1]], slope[[1, 0]]), (0.0, 0.0));
        assert_eq!(sigmoid_cross_entropy(z.view(), Array2::from_elem((2, 2), -1.0).view()).0, 0.0);
        assert!(sigmoid_cross_entropy(array![[f32::NAN]].view(), array![[1.0]].view()).0.is_nan());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let soft = array![[0.5f32, 0.5]];
        let findings = array![[1i8, -1]];
        let refused = |loss, task, target: Target<'_>| check(loss, task, &target, 1).unwrap_err().to_string();
        let (one, many) = (TaskKind::Classes(2), TaskKind::Findings(2));
        assert!(refused(Loss::Mae, one, Target::Classes(&[1])).contains("Mae cannot fit a single-label model to classes"));
        assert!(refused(Loss::CrossEntropy, many, Target::Classes(&[1])).contains("multi-label model to classes"));
        assert!(refused(Loss::CrossEntropy, one, Target::Findings(findings.view())).contains("to findings"));
        assert!(refused(Loss::Kl { tau: 1.0 }, many, Target::Scores(soft.view())).contains("multi-label"));
        assert_eq!(refused(Loss::CrossEntropy, one, Target::Classes(&[2])), "class 2 of 2");
        assert_eq!(refused(Loss::CrossEntropy, one, Target::Classes(&[0, 1])), "2 targets for 1 samples");
        assert_eq!(refused(Loss::Mse, TaskKind::Classes(3), Target::Scores(soft.view())), "targets of width 2 for a model with 3 outputs");
        assert!(refused(Loss::Kl { tau: 0.0 }, one, Target::Soft(soft.view())).contains("above 0, got 0"));
        assert!(check(Loss::CrossEntropy, many, &Target::Soft(soft.view()), 1).is_ok());
        let (value, _) = batch(Loss::Kl { tau: 2.0 }, one, array![[0.7f32, 0.7]].view(), &Target::Soft(soft.view()), &[0]);
        assert!(value.abs() < 1e-7, "equal distributions do not diverge: {value}");
    }
}
