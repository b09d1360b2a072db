//! Metrics of predictions. The area under the curve is Mann-Whitney's, ties counting half. It
//! leaves out unknown labels one by one, and its mean leaves out labels without positives or
//! negatives.

use crate::{Better, Examples, Loss, Result, TRAINING_LOSS, TaskKind};
use anyhow::ensure;
use ndarray::{Array2, ArrayView1, ArrayView2};
use std::collections::BTreeSet;

/// Returns the position of the largest value; the first on a tie, as everywhere in fl, and 0 if
/// there is none. NaN is below every number.
pub fn argmax<T: PartialOrd>(values: impl IntoIterator<Item = T>) -> usize {
    let mut values = values.into_iter().enumerate();
    let first = values.next();
    let best = values.fold(first, |best, next| match best {
        Some(best) if next.1 > best.1 || (none(&best.1) && !none(&next.1)) => Some(next),
        best => best,
    });
    best.map_or(0, |(at, _)| at)
}

/// Returns whether a value is NaN.
fn none<T: PartialOrd>(value: &T) -> bool {
    value.partial_cmp(value).is_none()
}

/// Returns the class with the highest score of each row, the lowest such class on ties.
pub fn classes<T: PartialOrd>(scores: ArrayView2<'_, T>) -> Vec<u32> {
    match scores.to_slice() {
        // of two classes without a branch
        Some(all) if scores.ncols() == 2 => {
            let second = |[a, b]: &[T; 2]| b > a || (none(a) && !none(b));
            all.as_chunks()
                .0
                .iter()
                .map(|row| u32::from(second(row)))
                .collect()
        }
        // views of rows cost more than their numbers
        Some(all) if !all.is_empty() => {
            let rows = all.chunks_exact(scores.ncols());
            rows.map(|row| argmax(row) as u32).collect()
        }
        _ => {
            let rows = scores.rows().into_iter();
            rows.map(|row| argmax(row) as u32).collect()
        }
    }
}

fn unanswered(scores: ArrayView1<'_, f32>) -> bool {
    scores.iter().any(|score| score.is_nan())
}

/// Returns the share of rows whose label is among the `k` highest scores (equal scores: the lower
/// class first). A row with NaN has no answer and counts as wrong. NaN without rows.
pub fn top_k(scores: ArrayView2<'_, f32>, labels: &[u32], k: usize) -> f64 {
    let hit = scores
        .rows()
        .into_iter()
        .zip(labels)
        .filter(|(row, label)| {
            let own = row[**label as usize];
            let ahead = row
                .iter()
                .enumerate()
                .filter(|(c, v)| **v > own || (**v == own && *c < **label as usize));
            ahead.count() < k && !unanswered(*row)
        });
    hit.count() as f64 / labels.len() as f64
}

/// Returns the share of rows whose highest score (the first on a tie) is that of their label. NaN
/// without rows.
pub fn accuracy(scores: ArrayView2<'_, f32>, labels: &[u32]) -> f64 {
    top_k(scores, labels, 1)
}

/// Returns the area under the ROC curve: the probability that a positive scores above a negative,
/// ties counting half (Mann-Whitney). Labels are 1, 0, or -1 for unknown (left out). `None` without
/// positives or without negatives, and NaN if a score is.
pub fn auc(
    scores: impl IntoIterator<Item = impl Into<f64>>,
    labels: impl IntoIterator<Item = i8>,
) -> Option<f64> {
    let mut known: Vec<(f64, bool)> = scores
        .into_iter()
        .zip(labels)
        .filter(|(_, l)| *l >= 0)
        .map(|(s, l)| (s.into(), l == 1))
        .collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = known.iter().filter(|(_, p)| *p).count();
    let negatives = known.len() - positives;
    if positives == 0 || negatives == 0 {
        return None;
    }
    if known.iter().any(|(score, _)| score.is_nan()) {
        return Some(f64::NAN);
    }
    let (mut below, mut wins) = (0usize, 0.0);
    for tied in known.chunk_by(|a, b| a.0 == b.0) {
        let p = tied.iter().filter(|(_, p)| *p).count();
        let n = tied.len() - p;
        wins += p as f64 * (below as f64 + n as f64 / 2.0);
        below += n;
    }
    Some(wins / (positives as f64 * negatives as f64))
}

/// Returns the AUC of each label, and their mean over the labels that have one (`None` if none
/// has).
pub fn mauc(
    scores: ArrayView2<'_, f32>,
    labels: ArrayView2<'_, i8>,
) -> (Vec<Option<f64>>, Option<f64>) {
    let each: Vec<Option<f64>> = scores
        .columns()
        .into_iter()
        .zip(labels.columns())
        .map(|(s, l)| auc(s.iter().copied(), l.iter().copied()))
        .collect();
    let valid: Vec<f64> = each.iter().flatten().copied().collect();
    let mean = (!valid.is_empty()).then(|| mean_std(&valid).0);
    (each, mean)
}

/// Returns the mean and population standard deviation (divided by their number; papers do not state
/// which they print). NaN for no values.
pub fn mean_std(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

/// Returns the standard deviation of a sample of clients: divides by one less than their number.
/// NaN for fewer than two.
pub fn sample_std(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    mean_std(values).1 * (n / (n - 1.0)).sqrt()
}

/// Returns the class with the highest score of each pixel, the lowest on ties: `samples x pixels`,
/// from scores laid out class by class.
///
/// # Errors
/// If the scores of a sample are not `classes` for each of its pixels.
pub fn masks(scores: ArrayView2<'_, f32>, classes: usize) -> Result<Array2<u8>> {
    let (samples, outputs) = scores.dim();
    ensure!(
        (1..=256).contains(&classes) && outputs.is_multiple_of(classes),
        "{outputs} scores a sample for {classes} classes of pixels"
    );
    let pixels = outputs / classes;
    Ok(Array2::from_shape_fn((samples, pixels), |(i, at)| {
        argmax((0..classes).map(|c| scores[[i, c * pixels + at]])) as u8
    }))
}

/// Returns the Dice coefficient of two masks, `2 both / (one + other)`, averaged over the classes
/// except the background. Two masks without a pixel of a class have 1 there.
pub fn dice<'a>(
    truth: impl IntoIterator<Item = &'a u8>,
    predicted: impl IntoIterator<Item = &'a u8>,
    classes: usize,
) -> f64 {
    let (mut both, mut sum) = (vec![0usize; classes], vec![0usize; classes]);
    for (t, p) in truth.into_iter().zip(predicted) {
        let (t, p) = (usize::from(*t), usize::from(*p));
        sum[t] += 1;
        sum[p] += 1;
        both[t] += usize::from(t == p);
    }
    let each = (1..classes).map(|c| match sum[c] {
        0 => 1.0,
        n => 2.0 * both[c] as f64 / n as f64,
    });
    each.sum::<f64>() / (classes.max(2) - 1) as f64
}

/// Returns the peak signal-to-noise ratio in dB, `10 log10(1 / mse)`, averaged over images. Values
/// are from 0 to 1; predictions outside count as the nearest of them, as they would in a file. At
/// most 100, the value of identical images.
///
/// # Errors
/// If the numbers of predicted and true values differ.
pub fn psnr(truth: ArrayView2<'_, f32>, predicted: ArrayView2<'_, f32>) -> Result<f64> {
    ensure!(
        predicted.dim() == truth.dim(),
        "predictions of {:?} values for images of {:?}",
        predicted.dim(),
        truth.dim()
    );
    let images = truth.rows().into_iter().zip(predicted.rows());
    let each = images.map(|(truth, predicted)| {
        let off = |(t, p): (&f32, &f32)| (f64::from(*t) - f64::from(p.clamp(0.0, 1.0))).powi(2);
        let mse = truth.iter().zip(predicted).map(off).sum::<f64>() / truth.len() as f64;
        // NaN must stay NaN: `max` would make it the best value
        -10.0 * libm::log10(if mse < 1e-10 { 1e-10 } else { mse })
    });
    Ok(each.sum::<f64>() / truth.nrows() as f64)
}

/// How the name of a measure ends that is the share of cases in which another one is defined:
/// `hd95-share` of `hd95`.
pub(crate) const SHARE: &str = "-share";

/// Measurements by name.
pub type NamedMeasures = Vec<(String, f64)>;

/// Measures of a task besides its [`score`], which a plugin registers: `measures!(FUNCTION, NAMES)`.
pub struct Measures {
    /// Returns names and numbers in its own order. It leaves out those that are undefined for these
    /// examples, and returns none for other tasks.
    pub of: fn(ArrayView2<'_, f32>, &Examples) -> Result<NamedMeasures>,
    /// Returns the names of all that it may measure for a task of this kind.
    pub names: fn(TaskKind) -> Vec<String>,
}
inventory::collect!(Measures);

/// Registers [`metrics::Measures`](crate::metrics::Measures): the function that measures, and the
/// one that names what it measures.
#[macro_export]
macro_rules! measures {
    ($of:path, $names:path) => {
        $crate::__private::inventory::submit! {
            $crate::metrics::Measures { of: $of, names: $names }
        }
    };
}

/// Returns the names of the [`score`] and of the plugins' measures for a task of this kind; for a
/// task of any kind if it is not known.
pub fn names(kind: Option<TaskKind>) -> BTreeSet<String> {
    let (height, width) = (1, 1);
    let any = [
        TaskKind::Classes(2),
        TaskKind::MultiLabel(1),
        TaskKind::Pixels {
            classes: 2,
            height,
            width,
        },
        TaskKind::Image {
            channels: 1,
            height,
            width,
        },
        TaskKind::Numbers {
            outputs: 1,
            loss: Loss::Mse,
        },
    ];
    let kinds = kind.map_or(any.to_vec(), |kind| vec![kind]);
    let of = |kind: TaskKind| {
        let further = inventory::iter::<Measures>.into_iter();
        let further = further.flat_map(move |measures| (measures.names)(kind));
        std::iter::once(score_name(kind).to_string()).chain(further)
    };
    kinds.into_iter().flat_map(of).collect()
}

/// Returns the measures of this program's plugins besides [`score`], by name.
///
/// # Errors
/// If one of them fails.
pub fn further(scores: ArrayView2<'_, f32>, examples: &Examples) -> Result<NamedMeasures> {
    let mut all = Vec::new();
    for measures in inventory::iter::<Measures> {
        all.extend((measures.of)(scores, examples)?);
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

/// Returns `auc` for two classes: that of the second score minus the first, and so of its logit.
fn of_two_classes(scores: ArrayView2<'_, f32>, examples: &Examples) -> Result<NamedMeasures> {
    let labels = examples.classes().filter(|_| scores.ncols() == 2);
    let rows = scores.rows().into_iter();
    let area = labels.and_then(|labels| {
        auc(
            rows.map(|row| row[1] - row[0]),
            labels.iter().map(|of| i8::from(*of == 1)),
        )
    });
    Ok(area.map(|area| ("auc".into(), area)).into_iter().collect())
}

fn names_of_two_classes(kind: TaskKind) -> Vec<String> {
    let two = kind == TaskKind::Classes(2);
    two.then(|| "auc".into()).into_iter().collect()
}
crate::measures!(of_two_classes, names_of_two_classes);

/// Returns `mae`, and `r2` unless all labels are equal, for numbers.
fn of_numbers(outputs: ArrayView2<'_, f32>, examples: &Examples) -> Result<NamedMeasures> {
    let Some(truth) = examples.numbers() else {
        return Ok(Vec::new());
    };
    let errors = truth.errors(outputs)?;
    let r2 = errors.r2.map(|r2| ("r2".into(), r2));
    Ok([("mae".into(), errors.mae)].into_iter().chain(r2).collect())
}

fn names_of_numbers(kind: TaskKind) -> Vec<String> {
    match kind {
        TaskKind::Numbers { .. } => vec!["mae".into(), "r2".into()],
        _ => Vec::new(),
    }
}
crate::measures!(of_numbers, names_of_numbers);

/// Returns the number that compares models of a task: accuracy for classes, and mean AUC for
/// labels. For classes of pixels it is the mean [`dice`] over images, and for made images the mean
/// [`psnr`]. For numbers it is the root of the mean squared error, which is better the lower it is
/// ([`lower_is_better`]).
///
/// `None` if no label has both positives and negatives.
///
/// # Errors
/// If scores and examples differ in number.
pub fn score(scores: ArrayView2<'_, f32>, examples: &Examples) -> Result<Option<f64>> {
    ensure!(
        scores.nrows() == examples.len() && !examples.is_empty(),
        "{} predictions for {} examples",
        scores.nrows(),
        examples.len()
    );
    if let Some(classes) = examples.classes() {
        return Ok(Some(accuracy(scores, &classes)));
    }
    if let Some(truth) = examples.masks() {
        let classes = truth.classes();
        let predicted = masks(scores, classes)?;
        ensure!(
            predicted.dim() == truth.of().dim(),
            "predictions of {:?} pixels for masks of {:?}",
            predicted.dim(),
            truth.of().dim()
        );
        let images = truth.of();
        let images = images.rows().into_iter().zip(predicted.rows());
        let each = images.map(|(t, p)| dice(t, p, classes));
        return Ok(Some(each.sum::<f64>() / examples.len() as f64));
    }
    if let Some(truth) = examples.images() {
        return psnr(truth.values().view(), scores).map(Some);
    }
    if let Some(truth) = examples.numbers() {
        return Ok(Some(truth.errors(scores)?.rmse));
    }
    let findings = examples.multi_label().unwrap_or_default();
    Ok(mauc(scores, findings.view()).1)
}

/// The most classes that [`confusion`] counts: its size is their square.
const CONFUSED: usize = 32;

/// Returns how many examples of each true class (rows) are predicted as each class (columns).
/// Examples whose scores hold NaN count for no class. Empty for other tasks, and for more than 32
/// classes.
pub fn confusion(scores: ArrayView2<'_, f32>, examples: &Examples) -> Vec<Vec<u32>> {
    let Some(truth) = examples.classes().filter(|_| scores.ncols() <= CONFUSED) else {
        return Vec::new();
    };
    let mut counts = vec![vec![0; scores.ncols()]; scores.ncols()];
    let answers = truth.iter().zip(scores.rows());
    for (true_class, row) in answers.filter(|(_, row)| !unanswered(*row)) {
        let cell = counts.get_mut(*true_class as usize);
        if let Some(cell) = cell.and_then(|of_class| of_class.get_mut(argmax(row))) {
            *cell += 1;
        }
    }
    counts
}

/// Returns the name of [`score`] for a task.
pub fn score_name(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Classes(_) => "accuracy",
        TaskKind::MultiLabel(_) => "mauc",
        TaskKind::Pixels { .. } => "dice",
        TaskKind::Image { .. } => "psnr",
        TaskKind::Numbers { .. } => "rmse",
    }
}

/// The names of scores.
const SCORES: [&str; 5] = ["accuracy", "mauc", "dice", "psnr", "rmse"];

/// Returns whether a measurement with this name (`accuracy`, `clients.dice`) is a [`score`].
pub fn is_score(name: &str) -> bool {
    SCORES.contains(&last(name))
}

/// Returns whether a measurement with this name (`rmse`, `clients.mae`) is an error.
pub fn lower_is_better(name: &str) -> bool {
    ["rmse", "mae"].contains(&last(name))
}

/// Returns which values of a measurement with this name (`training-loss`, `clients.auc`) are
/// better; `None` if fl does not know it, such as a measure of a user's own.
pub fn better(name: &str) -> Option<Better> {
    const HIGHER: [&str; 13] = [
        "auc",
        "r2",
        "ssim",
        "sensitivity",
        "specificity",
        "hd95-share",
        "object-dice",
        "aji",
        "inception-score",
        "f1",
        "auroc",
        "precision",
        "recall",
    ];
    let what = last(name);
    let lower = lower_is_better(what) || what.ends_with("loss") || ["mse", "hd95"].contains(&what);
    if lower {
        Some(Better::Lower)
    } else {
        (is_score(what) || HIGHER.contains(&what)).then_some(Better::Higher)
    }
}

/// Checks that `name` is free for a number of a protocol: that the program itself records none of
/// this name.
///
/// # Errors
/// That it does, and which name to take.
pub fn ensure_free(name: &str) -> Result<()> {
    const OTHERS: [&str; 5] = ["auc", "mae", "r2", TRAINING_LOSS, "seconds"];
    let first = name.split('.').next().unwrap_or(name);
    let taken = SCORES.contains(&name)
        || OTHERS.contains(&name)
        || ["bytes", "epsilon"].contains(&first)
        || (["clients", "own"].contains(&first) && first != name)
        || name.ends_with(".std");
    ensure!(
        !taken,
        "the program records `{name}` itself: call the measure another name, such as `my-{}`",
        name.replace('.', "-")
    );
    Ok(())
}

/// Returns what a measurement measures: `dice` of `clients.dice`.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_program_is_not_free() {
        for name in [
            "accuracy",
            "bytes.up",
            "epsilon",
            "epsilon.server",
            "own.r2",
            "clip.std",
        ] {
            assert!(ensure_free(name).is_err(), "{name}");
        }
        for name in ["own-share", "clip", "generator.loss", "cluster.0.clients"] {
            ensure_free(name).unwrap();
        }
    }

    #[test]
    fn a_name_says_which_values_are_better() {
        let of = |name: &str| better(name).map(|better| better == Better::Lower);
        for name in ["training-loss", "generator.loss", "clients.rmse", "hd95"] {
            assert_eq!(of(name), Some(true), "{name}");
        }
        for name in ["accuracy", "own.worst-tenth.dice", "auc", "r2"] {
            assert_eq!(of(name), Some(false), "{name}");
        }
        assert_eq!(
            (of("filter.recall"), of("clients.mine")),
            (Some(false), None)
        );
    }
    use crate::{Inputs, Labels};
    use ndarray::array;

    #[test]
    fn the_first_of_equals_wins() {
        let scores = array![[1.0, 1.0, 0.5], [0.0, 2.0, 2.0], [-1.0, -3.0, -1.0]];
        assert_eq!(classes(scores.view()), [0, 1, 0]);
        let two = array![[1.0, f32::NAN], [0.5, 0.5], [0.5, 0.6], [0.0, -0.0]];
        assert_eq!(classes(two.view()), [0, 0, 1, 0]);
        assert_eq!(
            accuracy(array![[0.5, 0.5], [0.5, 0.5]].view(), &[0, 1]),
            0.5
        );
        assert_eq!(
            top_k(array![[0.5, 0.5], [0.5, 0.5]].view(), &[0, 1], 2),
            1.0
        );
    }

    #[test]
    fn what_is_no_number_is_no_answer() {
        let nan = f32::NAN;
        let scores = array![[nan, nan], [nan, 1.0], [0.0, 1.0]];
        assert_eq!(classes(scores.view()), [0, 1, 1]);
        assert_eq!(accuracy(scores.view(), &[0, 1, 1]), 1.0 / 3.0);
        let inputs = Inputs::Dense {
            shape: vec![1],
            data: vec![0.0; 3],
        };
        let labels = Labels::Classes {
            of: vec![0, 1, 1],
            classes: 2,
        };
        let examples = Examples::all(inputs.into(), labels.into()).unwrap();
        assert_eq!(confusion(scores.view(), &examples), [[0, 0], [0, 1]]);
        let third = Some(1.0 / 3.0);
        assert_eq!(score(scores.view(), &examples).unwrap(), third);
        assert!(auc([nan, 0.1], [1, 0]).is_some_and(f64::is_nan));
        assert_eq!(auc([nan, 0.1], [1, 1]), None);
    }

    #[test]
    fn dice_is_twice_what_is_shared() {
        // class 1: 1 shared of 2 and 1; class 2: absent
        assert_eq!(dice(&[1, 1, 0], &[1, 0, 0], 3), (2.0 / 3.0 + 1.0) / 2.0);
        assert_eq!(dice(&[0, 0], &[0, 0], 2), 1.0);
        let scores = array![[0.0, 2.0, 1.0, 1.0]];
        assert_eq!(masks(scores.view(), 2).unwrap(), array![[1, 0]]);
        assert!(masks(scores.view(), 3).is_err());
        assert!(is_score("clients.dice") && !is_score("object-dice"));
    }

    #[test]
    fn close_psnr_is_of_what_an_image_can_hold() {
        let truth = array![[0.0, 1.0], [0.5, 0.5]];
        let of = |predicted: Array2<f32>| psnr(truth.view(), predicted.view()).unwrap();
        // a tenth off everywhere: mse 0.01; values outside the range count as its ends
        assert!((of(array![[0.1, 0.9], [0.4, 0.6]]) - 20.0).abs() < 1e-5);
        assert_eq!(of(array![[-3.0, 7.0], [0.5, 0.5]]), 100.0);
        assert!(of(array![[f32::NAN, 1.0], [0.5, 0.5]]).is_nan());
        assert!(psnr(truth.view(), array![[0.0]].view()).is_err());
    }

    #[test]
    fn auc_counts_ties_half_and_leaves_unknowns_out() {
        assert_eq!(auc([0.5, 0.5, 0.5, 0.2, 0.9], [1, 0, 1, 0, 0]), Some(0.5));
        assert_eq!(auc([0.1, 0.9, 0.5], [0, 1, -1]), Some(1.0));
        assert_eq!(auc([0.1, 0.9], [1, -1]), None);
        assert_eq!(auc([3e-60, 2e-60, 1e-60], [1, 1, 0]), Some(1.0));
    }
}
