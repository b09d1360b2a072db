//! Trees that learn a number by least squares.

use crate::bins::Binned;
use crate::boosting::{descend, pack};
use crate::criterion::{Criterion, Slopes};
use crate::grow::{Field, Grower, Plan};
use crate::model::{Model, Sum};
use crate::settings::{Boosting, Forest, Start};
use anyhow::ensure;
use fl_core::{FitReport, Loss, Problem, Result, Stream, Target, metrics};

/// The smallest gain of a step of boosting, of labels whose spread is 1, that is not rounding.
const ROUNDING: f64 = 1e-9;

/// Returns the numbers of a target.
///
/// # Errors
/// If it has none, more than one for each sample, or one that is not finite, or the loss is not the
/// squared error.
pub fn numbers(target: Target<'_>, loss: Loss) -> Result<Vec<f32>> {
    let lacks = |what: &str| {
        Problem::Lacks(format!(
            "trees learn one number by the loss mse, not {what}"
        ))
    };
    ensure!(loss == Loss::Mse, lacks(&format!("by {loss}")));
    let of = match target {
        Target::Scores(of) if of.ncols() == 1 => of,
        Target::Scores(of) => {
            let text = format!("{} numbers for a model of one", of.ncols());
            return Err(Problem::Shape(text).into());
        }
        _ => return Err(lacks("classes or labels").into()),
    };
    let finite = of.iter().all(|number| number.is_finite());
    ensure!(finite, "a number to learn is not finite");
    Ok(of.iter().copied().collect())
}

/// Returns a model of no trees that predicts the mean.
fn mean(x: &Binned, y: &[f32]) -> Model {
    let all: Vec<f64> = y.iter().map(|y| f64::from(*y)).collect();
    let mut model = Model::blank(Sum::Margins, x.width(), 1);
    model.base = vec![metrics::mean_std(&all).0 as f32];
    model
}

/// Fits a forest to `y`, which is not empty: the mean of trees, each of which predicts the mean of
/// its leaf and splits by the sum of squares (CART, Breiman et al. 1984; Breiman 2001). The loss is
/// the mean squared error of the trees on the samples that each of them saw.
pub fn forest(settings: &Forest, x: &Binned, y: &[f32], stream: &Stream) -> (Model, FitReport) {
    let (mut model, rows) = (mean(x, y), y.len());
    let off: Vec<f32> = y.iter().map(|y| model.base[0] - y).collect();
    let squares = |off: &f32| f64::from(*off).powi(2);
    let plan = Plan {
        depth: settings.depth,
        features: settings.features.of(x.width()),
        min_mass: settings.min_leaf as f64,
        floor: settings.min_gain * rows as f64,
    };
    let mut grower = Grower::new(x, plan);
    let (mut unexplained, mut of) = (0.0, vec![1u32; rows]);
    for t in 0..settings.trees {
        let mut draws = stream.child("tree", t as u64).draws();
        if settings.bootstrap {
            of.fill(0);
            (0..rows).for_each(|_| of[draws.below(rows)] += 1);
        }
        let drawn = (0u32..).zip(&of).filter(|(_, times)| **times > 0);
        let (mut seen, slopes): (Vec<u32>, Vec<(f32, f32)>) = drawn
            .map(|(row, times)| (row, (off[row as usize] * *times as f32, *times as f32)))
            .unzip();
        let mut stats = vec![0; seen.len()];
        let criterion = Slopes {
            until_pure: true,
            ..pack(&slopes, &mut stats, 0.0, 1.0 / settings.trees as f64)
        };
        let all = off
            .iter()
            .zip(&of)
            .map(|(off, n)| squares(off) * f64::from(*n));
        unexplained += all.sum::<f64>() - criterion.worth(&criterion.total(&stats));
        let mut field = Field {
            rows: &mut seen,
            stats: &mut stats,
            scores: &mut [],
        };
        model
            .trees
            .push(grower.grow(&criterion, &mut field, &mut draws));
    }
    unexplained -= grower.gains.iter().sum::<f64>();
    let report = FitReport {
        steps: settings.trees,
        loss: unexplained.max(0.0) / (settings.trees * rows) as f64,
        falls: None,
    };
    (model.with_gains(&grower.gains), report)
}

/// Fits boosted trees to `y`, which is not empty: each is a step down half the squared error, whose
/// curvature is 1 (XGBoost's `reg:squarederror`).
///
/// # Errors
/// If the loss is no longer finite.
pub fn boosting(
    settings: &Boosting,
    x: &Binned,
    y: &[f32],
    stream: &Stream,
) -> Result<(Model, FitReport)> {
    let (mut model, rows) = (mean(x, y), y.len() as f64);
    if settings.start == Start::Even {
        model.base.fill(0.0);
    }
    let slopes = |scores: &[Vec<f32>], slopes: &mut [Vec<(f32, f32)>]| {
        let both = slopes[0].iter_mut().zip(&scores[0]).zip(y);
        both.for_each(|((slope, score), y)| *slope = (score - y, 1.0));
    };
    let loss = |scores: &[Vec<f32>]| {
        let off = scores[0].iter().zip(y);
        let squares = off.map(|(score, y)| f64::from(score - y).powi(2));
        squares.sum::<f64>() / rows
    };
    descend(settings, x, stream, model, ROUNDING * rows, slopes, loss)
}
