//! What both need.

use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, FitOptions, Length, Loss, Result, Samples, Stream, Task, TaskKind, Trainer,
};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::Array2;

pub fn trainer(yaml: &str, input: &[usize], kind: TaskKind) -> Dfdx {
    try_trainer(yaml, input, kind).unwrap()
}

pub fn try_trainer(yaml: &str, input: &[usize], kind: TaskKind) -> Result<Dfdx> {
    let make = BuildContext {
        task: Task {
            input: input.to_vec(),
            kind,
        },
        stream: Stream::root(11).child("model", 0),
    };
    Dfdx::new(read_yaml(yaml).unwrap(), &make)
}

/// Images of two bars whose place says the class, with noise.
pub fn bars(n: usize, seed: u64) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root(seed).draws();
    let classes: Vec<u32> = (0..n).map(|_| draws.below(4) as u32).collect();
    let mut values = Array2::zeros((n, 3 * 64));
    for (i, class) in classes.iter().enumerate() {
        for (at, v) in values.row_mut(i).iter_mut().enumerate() {
            let (y, x) = (at / 8 % 8, at % 8);
            let lit = if class % 2 == 0 {
                y / 4 == *class as usize / 2
            } else {
                x / 4 == *class as usize / 2
            };
            *v = f32::from(lit) + 0.3 * draws.normal() as f32;
        }
    }
    (Samples::fresh(values, vec![3, 8, 8]).unwrap(), classes)
}

pub const SMALL_CNN: &str = "{net: [{conv: {out: 6, kernel: 3, pad: 1}}, batch-norm, relu, {pool: 2}, {dropout: 0.1}, linear: 16, relu, outputs], \
                         optimiser: {adam: {lr: 0.01}}, augment: [{crop: 1}]}";

pub fn cnn() -> Dfdx {
    trainer(SMALL_CNN, &[3, 8, 8], TaskKind::Classes(4))
}

pub fn accuracy(model: &mut Dfdx, x: &Samples, classes: &[u32]) -> f64 {
    let scores = model.predict(x).unwrap();
    let best = |row: ndarray::ArrayView1<'_, f32>| {
        (0..row.len())
            .max_by(|a, b| row[*a].total_cmp(&row[*b]))
            .unwrap() as u32
    };
    scores
        .rows()
        .into_iter()
        .zip(classes)
        .filter(|(row, c)| best(*row) == **c)
        .count() as f64
        / classes.len() as f64
}

pub fn pass(length: Length, batch: usize) -> FitOptions<'static> {
    FitOptions::new(length, batch, Loss::CrossEntropy)
}
