//! Gradient boosting: every tree is a step down the loss of the sum of the earlier ones.

use crate::bins::Binned;
use crate::criterion::{Slopes, pair};
use crate::grow::{Field, Grower, Plan};
use crate::model::{Model, Sum};
use crate::settings::{Boosting, Start};
use crate::targets::Goal;
use anyhow::ensure;
use fl_core::{Draws, FitReport, Problem, Result, Stream};

/// The smallest share of a class, used for classes that do not occur.
const RAREST: f64 = 1e-9;
/// The smallest gain that is not rounding, as in XGBoost.
const ROUNDING: f64 = 1e-6;

/// The target of each sample.
struct Aim {
    /// Weight of each sample.
    weight: Vec<f32>,
    /// By class, the part of that weight that belongs to it; only class 1 if there are two.
    of: Vec<Vec<f32>>,
}

/// Fits boosted trees to `goal`, which is not empty.
///
/// # Errors
/// If the loss is no longer finite.
pub fn fit(
    settings: &Boosting,
    x: &Binned,
    goal: &Goal,
    stream: &Stream,
) -> Result<(Model, FitReport)> {
    let mut model = Model::blank(Sum::Margins, x.width(), goal.classes);
    let weights = goal.class_weights(&settings.class_weights);
    let counts = goal.counts();
    let unseen = |class: usize| counts[class] == 0.0;
    let shares: Vec<f64> = counts.iter().zip(&weights).map(|(n, w)| n * w).collect();
    let all: f64 = shares.iter().sum();
    // the best constant comes first
    model.base = shares
        .iter()
        .map(|n| libm::log((n / all).max(RAREST)) as f32)
        .collect();
    if let [no, yes] = &mut model.base[..] {
        (*no, *yes) = (0.0, *yes - *no);
    }
    if settings.start == Start::Even && !goal.one_class() {
        model.base.fill(0.0);
    }
    if goal.one_class() {
        return Ok((
            model.without(unseen),
            FitReport {
                steps: 1,
                loss: 0.0,
                falls: None,
            },
        ));
    }

    let aim = aim(goal, &weights);
    let slopes = |scores: &_, slopes: &mut _| derive(&aim, scores, slopes);
    let loss = |scores: &_| loss(&aim, scores) / all;
    let (model, report) = descend(settings, x, stream, model, ROUNDING, slopes, loss)?;
    Ok((model.without(unseen), report))
}

/// Scores or slopes by class, and for each class by row; with two classes only those of class 1.
type ByClass<T> = [Vec<T>];

/// Adds trees to `model`, which has none: each is a step down the loss. `derive` writes slope and
/// curvature of the loss by each score, and a gain of no more than `rounding` is rounding.
///
/// # Errors
/// If a leaf or the loss is not finite.
pub fn descend(
    settings: &Boosting,
    x: &Binned,
    stream: &Stream,
    mut model: Model,
    rounding: f64,
    derive: impl Fn(&ByClass<f32>, &mut ByClass<(f32, f32)>),
    loss: impl Fn(&ByClass<f32>) -> f64,
) -> Result<(Model, FitReport)> {
    // with two classes the score of class 0 stays 0
    let first = usize::from(model.classes == 2);
    let scores = model.base[first..].iter().map(|b| vec![*b; x.rows()]);
    let mut scores: Vec<Vec<f32>> = scores.collect();
    let mut slopes = vec![vec![(0.0f32, 0.0f32); x.rows()]; scores.len()];
    let (mut rows, mut stats) = (vec![0; x.rows()], vec![0; x.rows()]);
    let plan = Plan {
        depth: settings.depth,
        features: settings.features.of(x.width()),
        min_mass: settings.min_weight,
        floor: settings.min_gain + rounding,
    };
    let mut grower = Grower::new(x, plan);
    for round in 0..settings.trees {
        let mut draws = stream.child("tree", round as u64).draws();
        let out = left_out(settings.subsample, x.rows(), &mut draws);
        derive(&scores, &mut slopes);
        for (slopes, scores) in slopes.iter_mut().zip(&mut scores) {
            out.iter().for_each(|row| slopes[*row] = (0.0, 0.0));
            let criterion = pack(slopes, &mut stats, settings.l2, settings.rate);
            rows.iter_mut().zip(0..).for_each(|(row, i)| *row = i);
            let mut field = Field {
                rows: &mut rows,
                stats: &mut stats,
                scores,
            };
            let tree = grower.grow(&criterion, &mut field, &mut draws);
            ensure!(
                tree.leaves.iter().all(|v| v.is_finite()),
                Problem::Diverged(format!(
                    "a leaf of tree {round} is not finite; a smaller rate or a larger l2 may help"
                ))
            );
            model.trees.push(tree);
        }
    }
    let loss = loss(&scores);
    ensure!(
        loss.is_finite(),
        Problem::Diverged(format!("the loss is {loss}; a smaller rate may help"))
    );
    let report = FitReport {
        steps: settings.trees,
        loss,
        falls: None,
    };
    Ok((model.with_gains(&grower.gains), report))
}

fn aim(goal: &Goal, weights: &[f64]) -> Aim {
    let classes = if goal.classes == 2 {
        1..2
    } else {
        0..goal.classes
    };
    let mut aim = Aim {
        weight: vec![0.0; goal.rows],
        of: vec![vec![0.0; goal.rows]; classes.len()],
    };
    for e in &goal.entries {
        let (class, row) = (e.class as usize, e.row as usize);
        let weight = e.weight * weights[class] as f32;
        aim.weight[row] += weight;
        if classes.contains(&class) {
            aim.of[class - classes.start][row] += weight;
        }
    }
    aim
}

/// Returns the rows that a tree does not see.
fn left_out(share: f64, rows: usize, draws: &mut Draws) -> Vec<usize> {
    let seen = ((share * rows as f64).round() as usize).clamp(1, rows);
    if seen == rows {
        Vec::new()
    } else {
        draws.choose(rows, rows - seen)
    }
}

/// Returns the exponential function, computed in 64 bits and rounded.
fn exp(x: f32) -> f32 {
    libm::exp(f64::from(x)) as f32
}

/// Computes slope and curvature of the loss by the score of each class, for every sample.
fn derive(aim: &Aim, scores: &ByClass<f32>, slopes: &mut ByClass<(f32, f32)>) {
    if let ([scores], [slopes], [yes]) = (scores, &mut *slopes, &aim.of[..]) {
        for (((s, out), w), yes) in scores.iter().zip(slopes).zip(&aim.weight).zip(yes) {
            let p = 1.0 / (1.0 + exp(-s));
            *out = (w * p - yes, w * p * (1.0 - p));
        }
        return;
    }
    for row in 0..aim.weight.len() {
        let (top, sum) = softmax(scores, row);
        let w = aim.weight[row];
        for ((s, of), out) in scores.iter().zip(&aim.of).zip(&mut *slopes) {
            let p = exp(s[row] - top) / sum;
            // twice the diagonal of the curvature accounts for the off-diagonal entries, as in
            // XGBoost
            out[row] = (w * p - of[row], 2.0 * w * p * (1.0 - p));
        }
    }
}

/// Returns the largest score of a row, and the sum of `exp(score - largest)`.
fn softmax(scores: &ByClass<f32>, row: usize) -> (f32, f32) {
    let each = scores.iter().map(|s| s[row]);
    let top = each.clone().fold(f32::NEG_INFINITY, f32::max);
    (top, each.map(|s| exp(s - top)).sum())
}

/// Returns the sum of the loss over all samples.
fn loss(aim: &Aim, scores: &ByClass<f32>) -> f64 {
    let row = |row: usize| -> f32 {
        if let ([scores], [yes]) = (scores, &aim.of[..]) {
            let s = scores[row];
            let beyond = libm::log1p(f64::from(exp(-s.abs()))) as f32;
            return aim.weight[row] * (s.max(0.0) + beyond) - yes[row] * s;
        }
        let (top, sum) = softmax(scores, row);
        let ln = libm::log(f64::from(sum)) as f32;
        let each = scores.iter().zip(&aim.of);
        each.map(|(s, of)| of[row] * (top + ln - s[row])).sum()
    };
    (0..aim.weight.len()).map(|i| f64::from(row(i))).sum()
}

/// Converts slopes to whole numbers of units that are as small as their sums allow: a rounding of
/// 2^-31 of the sum of all absolute values.
pub fn pack(slopes: &[(f32, f32)], stats: &mut [u64], l2: f64, rate: f64) -> Slopes {
    let (g, h) = slopes.iter().fold((0.0, 0.0), |(g, h), s| {
        (g + f64::from(s.0.abs()), h + f64::from(s.1))
    });
    let room = f64::from(i32::MAX) - slopes.len() as f64;
    let units = |sum: f64| {
        if sum > 0.0 {
            libm::exp2(libm::log2(room / sum).floor())
        } else {
            1.0
        }
    };
    let (g, h) = (units(g), units(h));
    for (stat, (slope, curvature)) in stats.iter_mut().zip(slopes) {
        // rounds to the nearest: `round` is a function call on processors without SSE 4.1
        let slope = f64::from(*slope) * g;
        *stat = pair(
            (slope + 0.5f64.copysign(slope)) as i32,
            (f64::from(*curvature) * h + 0.5) as u32,
        );
    }
    Slopes {
        slope: 1.0 / g,
        curvature: 1.0 / h,
        l2,
        rate,
        until_pure: false,
    }
}
