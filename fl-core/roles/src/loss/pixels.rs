//! Losses with a class for every pixel: scores are laid out class by class,
//! `samples x (classes * pixels)`.

use super::{ln_softmax, softmax};
use crate::{Loss, Problem, Result};
use anyhow::ensure;
use ndarray::{Array2, ArrayView2};

/// Addend to both sums of the Dice fraction, so that an empty class does not give 0 / 0.
const SMOOTH: f64 = 1.0;

/// Returns the cross-entropy, averaged over all pixels, plus `dice` times the soft Dice loss, see
/// [`super::of_task`].
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
    Problem::shape_unless(
        scores.nrows() == samples && classes * pixels == outputs && classes > 0,
        || {
            format!(
                "masks of {samples} x {pixels} pixels, scores of {} x {outputs}",
                scores.nrows()
            )
        },
    )?;
    let (n, mut total) = ((samples * pixels).max(1) as f64, 0.0);
    // probabilities, laid out as the scores
    let mut p = Array2::<f64>::zeros((samples, outputs));
    let mut slopes = Array2::<f32>::zeros((samples, outputs));
    let mut one = vec![0.0; classes];
    for ((i, at), class) in truth.indexed_iter() {
        let class = usize::from(*class);
        Problem::shape_unless(class < classes, || {
            format!("class {class} is none of the model's {classes} classes, which begin at 0")
        })?;
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
    // for each class: 2 sum p g + 1, and sum p + sum g + 1
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
        // the slope by each probability, then by each score
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

/// Applies `f` to targets and scores with a row for each pixel; the slope has the layout of the
/// scores.
pub fn apart(
    classes: usize,
    target: ArrayView2<'_, f32>,
    scores: ArrayView2<'_, f32>,
    f: impl FnOnce(ArrayView2<'_, f32>, ArrayView2<'_, f32>) -> Result<(f64, Array2<f32>)>,
) -> Result<(f64, Array2<f32>)> {
    let (samples, outputs) = scores.dim();
    Problem::shape_unless(
        target.dim() == scores.dim() && outputs.is_multiple_of(classes),
        || {
            format!(
                "targets of {:?}, scores of {:?}, for {classes} classes of pixels",
                target.dim(),
                scores.dim()
            )
        },
    )?;
    let (target, apart) = (by_pixel(classes, target), by_pixel(classes, scores));
    let (value, slopes) = f(target.view(), apart.view())?;
    Ok((value, by_class(samples, slopes.view())))
}

/// Converts numbers that are laid out class by class, `samples x (classes * pixels)`, to a row for
/// each pixel: `(samples * pixels) x classes`. If whole samples have classes there is one pixel,
/// and nothing changes.
pub fn by_pixel<T: Copy>(classes: usize, of: ArrayView2<'_, T>) -> Array2<T> {
    let pixels = of.ncols() / classes;
    Array2::from_shape_fn((of.nrows() * pixels, classes), |(at, c)| {
        of[[at / pixels, c * pixels + at % pixels]]
    })
}

/// Inverts [`by_pixel`] for `samples` samples.
pub fn by_class<T: Copy>(samples: usize, of: ArrayView2<'_, T>) -> Array2<T> {
    let pixels = of.nrows() / samples;
    Array2::from_shape_fn((samples, of.ncols() * pixels), |(i, at)| {
        of[[i * pixels + at % pixels, at / pixels]]
    })
}

#[cfg(test)]
mod tests {
    use crate::loss::{of_batch, of_task};
    use crate::{Loss, Target, TaskKind};
    use ndarray::{Array2, array};

    #[test]
    fn pixels_have_losses_of_their_own() {
        let task = TaskKind::Pixels {
            classes: 3,
            height: 1,
            width: 2,
        };
        let scores = array![
            [0.9, 0.1, -0.4, 0.3, -0.2, 1.4],
            [-1.1, 0.6, 0.2, -0.5, 0.8, 0.0]
        ];
        let truth = array![[2u8, 0], [1, 1]];
        let of = |dice, scores: &Array2<f32>| {
            of_task(
                task,
                dice,
                Loss::CrossEntropy,
                Target::Pixels(truth.view()),
                scores.view(),
            )
            .unwrap()
        };
        let (value, _) = of(0.0, &scores);
        // the same four pixels as four samples of three classes
        let apart = array![
            [0.9, -0.4, -0.2],
            [0.1, 0.3, 1.4],
            [-1.1, 0.2, 0.8],
            [0.6, -0.5, 0.0]
        ];
        let target = Target::Classes(&[2, 0, 1, 1]);
        let plain = of_batch(Loss::CrossEntropy, target, apart.view()).unwrap();
        assert!((value - plain.0).abs() < 1e-6);
        let (_, slope) = of(0.7, &scores);
        let h = 1e-3;
        for (at, g) in slope.indexed_iter() {
            let [mut up, mut down] = [scores.clone(), scores.clone()];
            up[at] += h;
            down[at] -= h;
            let run = f64::from(up[at] - down[at]);
            let numeric = (of(0.7, &up).0 - of(0.7, &down).0) / run;
            assert!(
                (numeric - f64::from(*g)).abs() < 1e-5,
                "{at:?}: {g}, {numeric}"
            );
        }
        // a perfect mask has loss 0, and an entirely wrong one has loss 1
        let sure = |pixels: [usize; 4]| {
            let at = |(i, j): (usize, usize)| (j / 2 == pixels[i * 2 + j % 2]) as u8;
            Array2::from_shape_fn((2, 6), |at_| 50.0 * f32::from(at(at_)))
        };
        let dice = |scores: &Array2<f32>| of(1.0, scores).0 - of(0.0, scores).0;
        assert!(dice(&sure([2, 0, 1, 1])).abs() < 1e-6);
        let wrong = dice(&sure([0, 0, 0, 0])); // 1 - mean(1/3, 1/2)
        assert!((wrong - 7.0 / 12.0).abs() < 1e-6, "{wrong}");
    }

    #[test]
    fn a_pixel_is_taught_as_a_sample_is() {
        let task = TaskKind::Pixels {
            classes: 2,
            height: 1,
            width: 2,
        };
        let (scores, teacher) = (
            array![[0.9, 0.1, -0.4, 0.3]],
            array![[-0.5f32, 0.2, 1.5, -0.8]],
        );
        let apart = |of: &Array2<f32>| array![[of[[0, 0]], of[[0, 2]]], [of[[0, 1]], of[[0, 3]]]];
        for loss in [Loss::Kl { tau: 2.0 }, Loss::Norm, Loss::Mae] {
            let target = Target::Scores(teacher.view());
            let (value, slope) = of_task(task, 0.0, loss, target, scores.view()).unwrap();
            let (pixels, two) = (apart(&scores), apart(&teacher));
            let (due, slopes) = of_batch(loss, Target::Scores(two.view()), pixels.view()).unwrap();
            assert!((value - due).abs() < 1e-6);
            assert_eq!(apart(&slope), slopes);
        }
    }
}
