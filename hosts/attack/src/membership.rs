//! Attack that infers which examples a model was trained on.

use anyhow::{Result, ensure};
use fl_core::{Examples, Trainer};
use ndarray::ArrayView1;
use serde::Serialize;

/// Samples per prediction.
const BATCH: usize = 1000;

/// Number of shadow models without an example from which on the example has its own standard
/// deviation.
const MANY: usize = 8;

/// How well an attack separates members from others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Strength {
    /// Number of members.
    pub members: usize,
    /// Number of others.
    pub others: usize,
    /// The probability that a member's score is higher than that of a non-member, ties counting
    /// half.
    pub auc: f64,
    /// The largest true positive rate minus false positive rate.
    pub advantage: f64,
    /// True positive rate at a false positive rate of at most 1 %; `None` with fewer than 100
    /// others.
    pub at_1_percent: Option<f64>,
    /// The same at 0.1 %; `None` with fewer than 1,000 others.
    pub at_01_percent: Option<f64>,
}

/// Returns the strength of an attack from its scores of members and others; a higher score means a
/// likelier member.
///
/// # Errors
/// If either is empty, or a score is NaN.
pub fn strength(members: &[f64], others: &[f64]) -> Result<Strength> {
    ensure!(
        !members.is_empty() && !others.is_empty(),
        "there are {} members and {} others: both are needed",
        members.len(),
        others.len()
    );
    let all = members.iter().map(|s| (*s, true));
    let mut all: Vec<(f64, bool)> = all.chain(others.iter().map(|s| (*s, false))).collect();
    ensure!(
        all.iter().all(|(score, _)| !score.is_nan()),
        "a score is no number: the model's answers are not finite"
    );
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (of, off) = (members.len() as f64, others.len() as f64);
    let (mut found, mut taken, mut wins) = (0.0, 0.0, 0.0);
    let mut steps = vec![(0.0, 0.0)];
    for tied in all.chunk_by(|a, b| a.0 == b.0) {
        let here = tied.iter().filter(|(_, member)| *member).count() as f64;
        let there = tied.len() as f64 - here;
        wins += here * (off - taken - there / 2.0);
        found += here;
        taken += there;
        steps.push((taken / off, found / of));
    }
    let at = |rate: f64| {
        let allowed = steps.iter().filter(|(false_rate, _)| *false_rate <= rate);
        (off * rate >= 1.0).then(|| allowed.map(|(_, rate)| *rate).fold(0.0, f64::max))
    };
    Ok(Strength {
        members: members.len(),
        others: others.len(),
        auc: wins / (of * off),
        advantage: steps.iter().map(|(f, t)| t - f).fold(0.0, f64::max),
        at_1_percent: at(0.01),
        at_01_percent: at(0.001),
    })
}

/// Returns the largest possible advantage if one example is protected with this epsilon and delta
/// (Humphries et al. 2020).
pub fn bound(epsilon: f64, delta: f64) -> f64 {
    // (e^x - 1) / (e^x + 1), which does not overflow
    let tanh = libm::tanh(epsilon / 2.0);
    (tanh + delta * (1.0 - tanh)).min(1.0)
}

/// Returns the loss of each example: cross-entropy of its class, or the sum over the known labels.
///
/// # Errors
/// If the model cannot predict.
pub fn losses(model: &mut dyn Trainer, examples: &Examples) -> Result<Vec<f64>> {
    each(model, examples, |scores, label| match label {
        // -ln p = ln(1 + e^-margin)
        Label::Class(class) => soft_plus(-margin(scores, class)),
        Label::Known(labels) => labels
            .map(|(at, sign)| soft_plus(-sign * f64::from(scores[at])))
            .sum(),
    })
}

/// Returns the model's confidence in each example's label: `ln p - ln (1 - p)`, or the sum over the
/// known labels.
///
/// # Errors
/// If the model cannot predict.
pub fn margins(model: &mut dyn Trainer, examples: &Examples) -> Result<Vec<f64>> {
    each(model, examples, |scores, label| match label {
        Label::Class(class) => margin(scores, class),
        Label::Known(labels) => labels.map(|(at, sign)| sign * f64::from(scores[at])).sum(),
    })
}

/// Returns how far each margin lies above those of models without the example (`without`, one list
/// per example). The unit is their standard deviation: the example's own if there are many, else
/// that of all.
///
/// # Errors
/// If an example was in every shadow run.
pub fn lira(margins: &[f64], without: &[Vec<f64>]) -> Result<Vec<f64>> {
    ensure!(
        margins.len() == without.len() && without.iter().all(|w| !w.is_empty()),
        "an example is in every shadow run, so nothing says what models without it would say"
    );
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let spread = |of: &[f64]| of.iter().map(|x| (x - mean(of)).powi(2)).sum::<f64>();
    let squares: f64 = without.iter().map(|w| spread(w)).sum();
    let count = without.iter().map(Vec::len).sum::<usize>() - without.len();
    let common = (squares / count.max(1) as f64).sqrt();
    let one = |(margin, without): (&f64, &Vec<f64>)| {
        let own = (spread(without) / (without.len().max(2) - 1) as f64).sqrt();
        let std = if without.len() >= MANY { own } else { common };
        // if all models agree, this one still differs by many deviations
        (margin - mean(without)) / std.max(1e-12)
    };
    Ok(margins.iter().zip(without).map(one).collect())
}

/// The true label of one example.
enum Label<'a> {
    Class(usize),
    /// Each known label: its position, and 1 or -1.
    Known(Box<dyn Iterator<Item = (usize, f64)> + 'a>),
}

fn each(
    model: &mut dyn Trainer,
    examples: &Examples,
    score: impl Fn(ArrayView1<'_, f32>, Label<'_>) -> f64,
) -> Result<Vec<f64>> {
    let (classes, labels) = (examples.classes(), examples.multi_label());
    ensure!(
        classes.is_some() || labels.is_some(),
        "the attack is for classes or labels of a sample, and here every pixel has a class"
    );
    let positions: Vec<usize> = (0..examples.len()).collect();
    let mut all = Vec::with_capacity(examples.len());
    for at in positions.chunks(BATCH) {
        let scores = model.predict(&examples.samples.pick(at))?;
        for (scores, at) in scores.rows().into_iter().zip(at) {
            let label = match (&classes, &labels) {
                (Some(classes), _) => Label::Class(classes[*at] as usize),
                (None, labels) => {
                    let known = labels.iter().flat_map(|l| l.row(*at)).copied().enumerate();
                    let signed = known.filter(|(_, l)| *l >= 0);
                    Label::Known(Box::new(signed.map(|(at, l)| (at, f64::from(2 * l - 1)))))
                }
            };
            all.push(score(scores, label));
        }
    }
    Ok(all)
}

/// Returns `z_y - ln sum_{c != y} e^(z_c)`: the log-odds of class `y`.
fn margin(scores: ArrayView1<'_, f32>, class: usize) -> f64 {
    let others = || {
        let all = scores.iter().enumerate().filter(|(at, _)| *at != class);
        all.map(|(_, score)| f64::from(*score))
    };
    let top = others().fold(f64::NEG_INFINITY, f64::max);
    let rest: f64 = others().map(|score| libm::exp(score - top)).sum();
    f64::from(scores[class]) - top - libm::log(rest)
}

/// `ln(1 + e^x)`
fn soft_plus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr1;

    #[test]
    fn exact_strength_of_scores_that_can_be_checked_by_hand() {
        // others at 1, 2, 3, 4; members at 2.5, 3.5, 4 (a tie), 9
        let found = strength(&[2.5, 3.5, 4.0, 9.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(found.auc, (2.0 + 3.0 + 3.5 + 4.0) / 16.0);
        assert_eq!(found.advantage, 0.5); // at 3.5: three of four members, one of four others
        assert_eq!((found.at_1_percent, found.at_01_percent), (None, None));
        let same = vec![1.0; 200];
        let none = strength(&same, &same).unwrap();
        assert_eq!(
            (none.auc, none.advantage, none.at_1_percent),
            (0.5, 0.0, Some(0.0))
        );
        let above: Vec<f64> = (0..200).map(|i| f64::from(i) + 1.5).collect();
        let below: Vec<f64> = (0..200).map(f64::from).collect();
        // two of 200 others may be taken for members: those at 199 and 198
        assert_eq!(
            strength(&above, &below).unwrap().at_1_percent,
            Some(4.0 / 200.0)
        );
        assert!(strength(&[], &[1.0]).is_err());
        assert!(strength(&[f64::NAN], &[1.0]).is_err());
    }

    #[test]
    fn close_margins_and_losses_are_those_of_the_softmax() {
        let scores = arr1(&[1.0f32, -2.0, 0.5]);
        let sum: f64 = scores.iter().map(|s| libm::exp(f64::from(*s))).sum();
        for class in 0..3 {
            let p = libm::exp(f64::from(scores[class])) / sum;
            let margin = margin(scores.view(), class);
            assert!((margin - libm::log(p / (1.0 - p))).abs() < 1e-12);
            assert!((soft_plus(-margin) + libm::log(p)).abs() < 1e-12);
        }
        // if the probability is 1 to the last bit, the margin still differs
        assert_eq!(margin(arr1(&[200.0f32, 0.0]).view(), 0), 200.0);
    }

    #[test]
    fn exact_shadows_tell_what_is_usual_for_an_example() {
        // an easy example with high margins everywhere, and a hard one with a high margin only here
        let without = vec![vec![9.0, 11.0], vec![-1.0, 1.0]];
        let scores = lira(&[10.0, 6.0], &without).unwrap();
        assert_eq!(scores, [0.0, 6.0 / 2f64.sqrt()]);
        assert!(lira(&[1.0], &[vec![]]).is_err());
    }

    #[test]
    fn close_the_bound_of_an_epsilon() {
        assert_eq!(bound(0.0, 0.0), 0.0);
        let (e, delta) = (libm::exp(1f64), 0.01);
        assert!((bound(1.0, delta) - (e - 1.0 + 2.0 * delta) / (e + 1.0)).abs() < 1e-12);
        assert_eq!(bound(f64::INFINITY, 0.0), 1.0);
    }
}
