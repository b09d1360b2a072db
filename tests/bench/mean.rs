//! The weighted mean of an inbox against the speed at which the same memory can be read at all.
//!
//! `read` is the probe: it adds up all numbers of the inbox in f32, eight at a time, and nothing
//! else. The mean must read the same bytes; what it is slower by is arithmetic.

use criterion::{BatchSize, Bencher, Criterion, Throughput, criterion_group, criterion_main};
use fl_core::message::Params;
use fl_core::{ClientMessage, Executor, Fold, Inbox, MeanOfParams, Serial};
use fl_plugin_averaging::{ExactMeanOfParams, exact_mean};
use ndarray::{ArrayD, IxDyn};
use std::hint::black_box;
use std::time::Duration;
use threads::Threads;

mod threads;

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

fn params(client: usize, numbers: usize) -> Params {
    let value = |i: usize| (i % 1013) as f32 * 1e-3 + client as f32;
    let tensor = ArrayD::from_shape_fn(IxDyn(&[numbers]), |i| value(i[0]));
    Params([("w".to_string(), tensor)].into())
}

fn inbox(clients: usize, numbers: usize) -> Inbox<Params> {
    let mail =
        (0..clients).map(|k| ClientMessage::new(k as u32, 1.0 + k as f64, params(k, numbers)));
    Inbox::new(mail.collect()).expect("a legal inbox")
}

/// Reads everything once, with as many sums in flight as hide the latency of an addition.
fn read(values: &[f32]) -> f32 {
    let mut sums = [0.0f32; 64];
    let blocks = values.chunks_exact(64);
    for block in blocks {
        for (s, v) in sums.iter_mut().zip(block) {
            *s += v;
        }
    }
    sums.iter().sum()
}

/// Numbers that a thread reads of each client before it takes the next.
const CHUNK: usize = 1 << 18;

fn fold<F: Fold<Params, Params> + Default>(b: &mut Bencher<'_>, inbox: &Inbox<Params>) {
    // a host hands each message over and does not need it again
    let mail = || inbox.iter().cloned().collect::<Vec<_>>();
    let fold = |all: Vec<ClientMessage<Params>>| {
        let mut fold = Box::<F>::default();
        all.into_iter()
            .try_for_each(|m| fold.add(m))
            .expect("one shape");
        fold.finish().expect("a mean")
    };
    b.iter_batched(mail, fold, BatchSize::PerIteration);
}

fn mean(c: &mut Criterion) {
    for (clients, numbers) in [(10, 10_000_000), (100, 1_000_000), (100, 10_000_000)] {
        let inbox = inbox(clients, numbers);
        let weights: Vec<f64> = inbox.iter().map(|m| m.weight).collect();
        let mut group = c.benchmark_group(format!("{clients} x {numbers}"));
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(5));
        group.throughput(Throughput::Bytes(4 * (clients * numbers) as u64));
        group.bench_function("read", |b| {
            b.iter(|| {
                inbox
                    .iter()
                    .map(|m| read(m.body.0["w"].as_slice().unwrap_or_default()))
                    .sum::<f32>()
            });
        });
        group.bench_function("read, all", |b| {
            let sent: Vec<&[f32]> = inbox
                .iter()
                .filter_map(|m| m.body.0["w"].as_slice())
                .collect();
            let mut sums = vec![0.0; numbers.div_ceil(CHUNK) * clients];
            b.iter(|| {
                Threads.chunks(&mut sums, clients, &|chunk, sums| {
                    let at = chunk * CHUNK..numbers.min((chunk + 1) * CHUNK);
                    for (sum, sent) in sums.iter_mut().zip(&sent) {
                        *sum = read(&sent[at.clone()]);
                    }
                });
                black_box(&sums);
            });
        });
        group.bench_function("mean, all", |b| {
            b.iter(|| black_box(inbox.weighted_mean(&weights, &Threads)))
        });
        group.bench_function("mean", |b| {
            b.iter(|| black_box(inbox.weighted_mean(&weights, &Serial)))
        });
        group.bench_function("exact, all", |b| {
            b.iter(|| black_box(exact_mean(&inbox, &weights, &Threads).expect("a mean")))
        });
        group.bench_function("exact", |b| {
            b.iter(|| black_box(exact_mean(&inbox, &weights, &Serial).expect("a mean")))
        });
        group.bench_function("fold", |b| fold::<MeanOfParams>(b, &inbox));
        group.bench_function("exact fold", |b| fold::<ExactMeanOfParams>(b, &inbox));
        // part of what the fold takes, and of what becomes of an inbox afterwards: the system takes
        // the memory back
        group.bench_function("free", |b| {
            let mail = || inbox.iter().cloned().collect::<Vec<_>>();
            b.iter_batched(mail, drop, BatchSize::PerIteration);
        });
        group.finish();
    }
}

criterion_group!(benches, mean);
criterion_main!(benches);
