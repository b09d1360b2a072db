//! Checks that a target suits a model, once before a pass: a loss sees scores, not their meaning.

use anyhow::ensure;
use fl_core::{Loss, Problem, Result, Target, TaskKind};

/// Checks that a model for `task` can be fitted to `target` with `loss`.
///
/// # Errors
/// If the kinds do not go together, the number of targets is not `rows`, or a class or a width is
/// not the task's.
pub fn check(loss: Loss, task: TaskKind, target: &Target<'_>, rows: usize) -> Result<()> {
    let n = target.len();
    Problem::shape_unless(n == rows, || format!("{n} targets for {rows} samples"))?;
    let outputs = task.outputs();
    match target {
        Target::Classes(of) => {
            let wrong = of.iter().find(|c| **c as usize >= outputs);
            let text = || format!("class {} of {outputs}", wrong.copied().unwrap_or_default());
            Problem::shape_unless(wrong.is_none(), text)?;
        }
        Target::MultiLabel(of) => {
            width(of.ncols(), outputs)?;
            let known = of.iter().all(|y| (-1..=1).contains(y));
            Problem::shape_unless(known, || "findings must be 1, 0 or -1 (unknown)".into())?;
        }
        Target::Pixels(of) => {
            let classes = task.classes();
            width(of.ncols() * classes, outputs)?;
            let wrong = of.iter().find(|c| usize::from(**c) >= classes);
            let text = || {
                format!(
                    "a pixel of class {} of {classes}",
                    wrong.copied().unwrap_or_default()
                )
            };
            Problem::shape_unless(wrong.is_none(), text)?;
        }
        Target::Soft(of) => {
            width(of.ncols(), outputs)?;
            let right = of.iter().all(|p| *p >= 0.0);
            Problem::shape_unless(right, || "probabilities must be at least 0".into())?;
        }
        Target::Scores(of) => width(of.ncols(), outputs)?,
    }
    if let Loss::Kl { tau } = loss {
        let right = tau > 0.0 && tau.is_finite();
        Problem::shape_unless(right, || {
            format!("the temperature of kl must be above 0, got {tau}")
        })?;
    }
    let (right, model) = match task {
        TaskKind::Classes(_) => {
            let others = matches!(target, Target::MultiLabel(_) | Target::Pixels(_));
            (!others, "single-label")
        }
        TaskKind::Pixels { .. } => {
            let others = matches!(target, Target::MultiLabel(_) | Target::Classes(_));
            (!others, "pixel-wise")
        }
        TaskKind::Image { .. } => (matches!(target, Target::Scores(_)), "reconstruction"),
        TaskKind::Numbers { .. } => (matches!(target, Target::Scores(_)), "regression"),
        TaskKind::MultiLabel(_) => {
            let suits = matches!(target, Target::Scores(_) | Target::MultiLabel(_));
            (suits, "multi-label")
        }
    };
    let found = match target {
        Target::Classes(_) => "classes",
        Target::MultiLabel(_) => "multi-label",
        Target::Pixels(_) => "the classes of pixels",
        Target::Soft(_) => "probabilities",
        Target::Scores(_) => "scores",
    };
    let text = format!(
        "{loss} cannot fit a {model} model to {found}: a single-label model takes classes, probabilities and scores, \
         a multi-label model takes findings, and scores without kl, a pixel-wise one the classes of pixels, their probabilities and scores, \
         a reconstruction model the values of images, and a regression model numbers, with mae, mse, huber and norm"
    );
    ensure!(right && task.has(loss), Problem::Lacks(text));
    Ok(())
}

fn width(found: usize, outputs: usize) -> Result<()> {
    let text = format!("targets of width {found} for a model with {outputs} outputs");
    Problem::shape_unless(found == outputs, || text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn what_does_not_go_together_is_refused() {
        let soft = array![[0.5f32, 0.5]];
        let findings = array![[1i8, -1]];
        let (one, many) = (TaskKind::Classes(2), TaskKind::MultiLabel(2));
        let refused = |loss, task, target| check(loss, task, &target, 1).unwrap_err().to_string();
        let (ce, kl) = (Loss::CrossEntropy, Loss::Kl { tau: 1.0 });
        let kinds = refused(ce, many, Target::Classes(&[1]));
        assert!(kinds.starts_with("cross-entropy cannot fit a multi-label model to classes"));
        assert!(refused(ce, one, Target::MultiLabel(findings.view())).contains("single-label"));
        assert!(refused(ce, many, Target::Soft(soft.view())).contains("to probabilities"));
        assert!(refused(kl, many, Target::Scores(soft.view())).contains("to scores"));
        assert_eq!(refused(ce, one, Target::Classes(&[2])), "class 2 of 2");
        assert_eq!(
            refused(ce, one, Target::Classes(&[0, 1])),
            "2 targets for 1 samples"
        );
        let narrow = refused(Loss::Mse, TaskKind::Classes(3), Target::Scores(soft.view()));
        assert_eq!(narrow, "targets of width 2 for a model with 3 outputs");
        let cold = refused(Loss::Kl { tau: 0.0 }, one, Target::Scores(soft.view()));
        assert!(cold.contains("above 0, got 0"));
        let pixels = TaskKind::Pixels {
            classes: 2,
            height: 1,
            width: 1,
        };
        let image = TaskKind::Image {
            channels: 1,
            height: 1,
            width: 2,
        };
        let values = || Target::Scores(soft.view());
        assert!(check(Loss::Mae, image, &values(), 1).is_ok());
        assert!(refused(kl, image, values()).contains("reconstruction"));
        assert!(refused(ce, image, Target::Classes(&[1])).contains("reconstruction"));
        let mask = array![[2u8]];
        let high = refused(ce, pixels, Target::Pixels(mask.view()));
        assert_eq!(high, "a pixel of class 2 of 2");
        let long = array![[0u8, 1]];
        assert!(refused(ce, pixels, Target::Pixels(long.view())).contains("width 4"));
        assert!(refused(ce, pixels, Target::Classes(&[1])).contains("pixel-wise"));
        let low = array![[1u8]];
        assert!(refused(ce, one, Target::Pixels(low.view())).contains("single-label"));
        assert!(check(kl, pixels, &Target::Scores(soft.view()), 1).is_ok());
        assert!(check(Loss::Mae, many, &Target::Scores(soft.view()), 1).is_ok());
        assert!(check(ce, many, &Target::MultiLabel(findings.view()), 1).is_ok());
    }
}
