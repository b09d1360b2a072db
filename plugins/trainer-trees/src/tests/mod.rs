//! Tests of trees.

mod behaviour;
mod bytes;
mod exact;
mod real;
mod shared;

use crate::{Boosting, ClassWeights, Features, Forest, Purity, Tree, Trees};
use fl_core::settings::defaults;
use fl_core::{
    BuildContext, FitOptions, FitReport, Inputs, Length, Loss, Result, Samples, Stream, Target,
    Task, TaskKind, Trainer,
};
use ndarray::{Array2, Axis};
use std::sync::Arc;

use crate::trainer::Method;

pub fn make(width: usize, classes: usize) -> BuildContext {
    BuildContext {
        task: Task {
            input: vec![width],
            kind: TaskKind::Classes(classes),
        },
        stream: Stream::root(0),
    }
}

pub fn new<S: Into<Method> + Clone>(settings: &S, x: &Samples, classes: usize) -> Trees {
    Trees::new(settings.clone(), &make(x.width(), classes)).unwrap()
}

pub fn pass() -> FitOptions<'static> {
    FitOptions::new(Length::Epochs(1), 32, Loss::CrossEntropy)
}

pub fn fit(model: &mut Trees, x: &Samples, target: Target<'_>, seed: u64) -> Result<FitReport> {
    model.fit(x, target, &pass(), &Stream::root(seed))
}

/// Returns a model fitted with seed 1.
pub fn fitted<S: Into<Method> + Clone>(
    settings: &S,
    x: &Samples,
    classes: &[u32],
    of: usize,
) -> Trees {
    let mut model = new(settings, x, of);
    fit(&mut model, x, Target::Classes(classes), 1).unwrap();
    model
}

pub fn bits(scores: &Array2<f32>) -> Vec<u32> {
    scores.iter().map(|s| s.to_bits()).collect()
}

/// Returns the likeliest class of each row, the lowest on a tie.
pub fn classes(scores: &Array2<f32>) -> Vec<u32> {
    let best = |row: ndarray::ArrayView1<'_, f32>| {
        let top = row.fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        row.iter().position(|s| *s == top).unwrap() as u32
    };
    scores.axis_iter(Axis(0)).map(best).collect()
}

pub fn accuracy(scores: &Array2<f32>, wanted: &[u32]) -> f64 {
    let right = classes(scores)
        .iter()
        .zip(wanted)
        .filter(|(a, b)| a == b)
        .count();
    right as f64 / wanted.len() as f64
}

/// Returns rows of numbers with few distinct values, so that splits tie and values repeat, and
/// classes that half depend on them.
pub fn coarse(rows: usize, width: usize, of: usize, seed: u64) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root(seed).draws();
    let values = Array2::from_shape_simple_fn((rows, width), || draws.below(5) as f32 * 0.3 - 0.6);
    let class = |row: ndarray::ArrayView1<'_, f32>| match draws.below(3) {
        0 => draws.below(of) as u32,
        _ => (((row.sum() + 10.0) / 0.9) as usize % of) as u32,
    };
    let classes = values.axis_iter(Axis(0)).map(class).collect();
    (Samples::fresh(values, vec![width]).unwrap(), classes)
}

/// Returns two noisy classes, separated by a circle in the first two of `width` numbers.
pub fn rings(rows: usize, width: usize, seed: u64) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root(seed).draws();
    let values = Array2::from_shape_simple_fn((rows, width), || draws.normal() as f32);
    let inside = |r: ndarray::ArrayView1<'_, f32>| r[0] * r[0] + r[1] * r[1] < 1.4;
    let classes = values
        .axis_iter(Axis(0))
        .map(|r| u32::from(inside(r) != (draws.below(20) == 0)));
    let classes = classes.collect();
    (Samples::fresh(values, vec![width]).unwrap(), classes)
}

/// Returns the same rows in sparse form.
pub fn sparse(x: &Samples) -> Samples {
    let (values, mut starts) = (x.values(), vec![0]);
    let (mut columns, mut named) = (Vec::new(), Vec::new());
    for row in values.axis_iter(Axis(0)) {
        for (c, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            columns.push(c as u32);
            named.push(*v);
        }
        starts.push(columns.len());
    }
    Samples::all(Arc::new(Inputs::Sparse {
        width: x.width(),
        starts,
        columns,
        values: named,
    }))
}
