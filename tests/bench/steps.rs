//! Training steps through the trainer's public face, everything included: order, batch, forward,
//! backward, optimiser. `tests/bench/pytorch_steps.py` runs the same in PyTorch and prints both.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, FitOptions, Length, Loss, Parametric, Samples, Stream, Target, Task, TaskKind,
    Trainer,
};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::Array2;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

fn trainer(net: &str, input: &[usize], seed: u64) -> Dfdx {
    let make = BuildContext {
        task: Task {
            input: input.to_vec(),
            kind: TaskKind::Classes(10),
        },
        stream: Stream::root(seed),
    };
    // `FL_BENCH_DEVICE=cuda` measures a card
    let device = std::env::var("FL_BENCH_DEVICE").unwrap_or_else(|_| "cpu".into());
    let text = format!("{{net: {net}, optimiser: {{adam: {{}}}}, device: {device}}}");
    let settings = read_yaml(&text).expect("settings");
    Dfdx::new(settings, &make).expect("a trainer")
}

fn data(n: usize, input: &[usize]) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root(0).draws();
    let values = Array2::from_shape_fn((n, input.iter().product()), |_| draws.normal() as f32);
    (
        Samples::fresh(values, input.to_vec()).expect("samples"),
        (0..n as u32).map(|i| i * 7919 % 10).collect(),
    )
}

fn fit(model: &mut Dfdx, x: &Samples, classes: &[u32], batch: usize, steps: usize) {
    let pass = FitOptions::new(Length::Steps(steps), batch, Loss::CrossEntropy);
    black_box(
        model
            .fit(x, Target::Classes(classes), &pass, &Stream::root(1))
            .expect("a step"),
    );
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    group
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4));
    for (net, input) in [
        ("lenet", [1, 28, 28]),
        ("mlp", [1, 28, 28]),
        ("resnet-8", [3, 32, 32]),
    ] {
        for batch in [32, 64, 512] {
            let (mut model, (x, classes)) = (trainer(net, &input, 7), data(batch, &input));
            // many steps in a call, as in a round: a card gets the weights once a call, and between
            // two calls the processor frees large buffers
            group.bench_function(BenchmarkId::new(net, batch), |b| {
                b.iter_custom(|steps| {
                    let start = Instant::now();
                    fit(&mut model, &x, &classes, batch, 4 * steps as usize);
                    start.elapsed() / 4
                })
            });
        }
    }
    group.finish();
}

/// Ten clients, 200 steps of LeNet each, batch 64: one client per thread, on two threads.
fn clients(c: &mut Criterion) {
    let (x, classes) = data(64, &[1, 28, 28]);
    let mut group = c.benchmark_group("clients");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100));
    group.bench_function("lenet-10x200", |b| {
        b.iter(|| {
            let next = AtomicUsize::new(0);
            std::thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| {
                        while let client @ 0..10 = next.fetch_add(1, Ordering::Relaxed) {
                            fit(
                                &mut trainer("lenet", &[1, 28, 28], client as u64),
                                &x,
                                &classes,
                                64,
                                200,
                            );
                        }
                    });
                }
            });
        });
    });
    group.finish();
}

/// The gradients of a lot, each clipped, in one pass and one after another (DP-SGD).
fn clipped(c: &mut Criterion) {
    // Opacus's network for MNIST
    const OPACUS: &str = "[{conv: {out: 16, kernel: 8, stride: 2, pad: 3}}, relu, {max-pool: {kernel: 2, stride: 1}}, {conv: {out: 32, kernel: 4, stride: 2}}, relu, {max-pool: {kernel: 2, stride: 1}}, {linear: 32}, relu, outputs]";
    let mut group = c.benchmark_group("clipped");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4));
    for (name, net, input, lot) in [
        ("opacus", OPACUS, [1, 28, 28], 600),
        ("lenet", "lenet", [1, 28, 28], 600),
        (
            "mlp",
            "[{linear: 200}, relu, {linear: 200}, relu, outputs]",
            [1, 28, 28],
            600,
        ),
        ("resnet-8", "resnet-8", [3, 32, 32], 64),
    ] {
        let (mut model, (x, classes)) = (trainer(net, &input, 7), data(lot, &input));
        let loss = Loss::CrossEntropy;
        group.bench_function(BenchmarkId::new(format!("{name}, together"), lot), |b| {
            b.iter(|| {
                let target = Target::Classes(&classes);
                let sum = model.clipped_gradients(&x, target, loss, 1.0);
                black_box(sum.expect("a gradient"))
            });
        });
        group.bench_function(BenchmarkId::new(format!("{name}, one by one"), lot), |b| {
            b.iter(|| {
                for at in 0..lot {
                    let target = Target::Classes(&classes[at..=at]);
                    let one = model.gradient(&x.pick(&[at]), target, loss);
                    black_box(one.expect("a gradient").norm());
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, steps, clients, clipped);
criterion_main!(benches);
