//! One fit, and predictions of one model, through the trainer's public face, on one thread:
//! yes-or-no features as in a9a (`FL_DATA_DIR` is not needed) and numbers as in cod-rna.
//! `tests/bench` runs scikit-learn and XGBoost beside it on the real sets.

#![allow(
    missing_docs,
    reason = "the macros of criterion make undocumented functions"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use fl_core::settings::defaults;
use fl_core::{
    BuildContext, FitOptions, Length, Loss, Samples, Stream, Target, Task, TaskKind, Trainer,
};
use fl_plugin_trainer_trees::{Boosting, Forest, Tree, Trees};
use ndarray::Array2;
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

fn make(width: usize) -> BuildContext {
    BuildContext {
        task: Task {
            input: vec![width],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    }
}

/// Rows of which each value is 1 with probability `ones`, or a normal number if there is none.
fn data(rows: usize, width: usize, ones: Option<f64>) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root(1).draws();
    let values = Array2::from_shape_simple_fn((rows, width), || match ones {
        Some(p) => f32::from(draws.uniform() < p),
        None => draws.normal() as f32,
    });
    let weights: Vec<f64> = (0..width).map(|_| draws.normal()).collect();
    let mut class = |row: ndarray::ArrayView1<'_, f32>| {
        let score: f64 = row
            .iter()
            .zip(&weights)
            .map(|(x, w)| f64::from(*x) * w)
            .sum();
        u32::from(score + draws.normal() > 0.0)
    };
    let classes = values.rows().into_iter().map(&mut class).collect();
    let samples = Samples::fresh(values, vec![width]).expect("samples");
    (samples, classes)
}

fn bench(c: &mut Criterion) {
    let pass = FitOptions::new(Length::Epochs(1), 1, Loss::CrossEntropy);
    let fit = |model: &mut dyn Trainer, (x, y): &(Samples, Vec<u32>)| {
        let target = Target::Classes(y);
        model
            .fit(x, target, &pass, &Stream::root(2))
            .expect("a model")
    };
    let mut group = c.benchmark_group("trees");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(4));
    let (binary, numbers) = (data(32_561, 123, Some(0.11)), data(59_535, 8, None));
    let party = data(98, 123, Some(0.11));

    let mut tree = Trees::new(defaults::<Tree>(), &make(123)).expect("a trainer");
    let mut forest = Trees::new(defaults::<Forest>(), &make(123)).expect("a trainer");
    let mut boosting = Trees::new(defaults::<Boosting>(), &make(8)).expect("a trainer");
    group.bench_function("tree/32561x123", |b| b.iter(|| fit(&mut tree, &binary)));
    group.bench_function("forest/98x123", |b| b.iter(|| fit(&mut forest, &party)));
    group.bench_function("forest/32561x123", |b| b.iter(|| fit(&mut forest, &binary)));
    group.bench_function("boosting/59535x8", |b| {
        b.iter(|| fit(&mut boosting, &numbers))
    });
    group.bench_function("predict/forest/32561x123", |b| {
        b.iter(|| black_box(forest.predict(&binary.0).expect("scores")))
    });
    group.bench_function("predict/boosting/59535x8", |b| {
        b.iter(|| black_box(boosting.predict(&numbers.0).expect("scores")))
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
