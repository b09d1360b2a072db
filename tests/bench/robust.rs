//! Robust aggregation of 50 clients with a million numbers each, on one thread and on all;
//! `flower_robust.py` has the peer's times. `read` is the probe: what reading the inbox once takes,
//! on one thread.

use criterion::{Criterion, criterion_group, criterion_main};
use fl_core::message::Params;
use fl_core::settings::{Settings, read_yaml};
use fl_core::{Aggregator, ClientMessage, Inbox, Round, Serial, SharedExecutor, Stream};
use fl_plugin_averaging::{Median, TrimmedMean};
use fl_plugin_robust::MultiKrum;
use ndarray::{ArrayD, IxDyn};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use threads::Threads;

mod threads;

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

const CLIENTS: u32 = 50;
const NUMBERS: usize = 1_000_000;

fn inbox() -> Inbox<Params> {
    let params = |client| {
        let mut draws = Stream::root(7).child("client", client).draws();
        let tensor = ArrayD::from_shape_simple_fn(IxDyn(&[NUMBERS]), || draws.normal() as f32);
        Params([("w".to_string(), tensor)].into())
    };
    let mail = (0..CLIENTS).map(|k| ClientMessage::new(k, 1.0, params(u64::from(k))));
    Inbox::new(mail.collect()).expect("a legal inbox")
}

fn robust(c: &mut Criterion) {
    let inbox = inbox();
    let mut group = c.benchmark_group(format!("robust {CLIENTS} x {NUMBERS}"));
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    group.bench_function("read", |b| {
        let sum = |mail: &ClientMessage<Params>| {
            let numbers = mail.body.0["w"].as_slice().unwrap_or_default();
            let mut sums = [0.0f32; 64];
            for block in numbers.as_chunks::<64>().0 {
                sums.iter_mut().zip(block).for_each(|(sum, x)| *sum += x);
            }
            sums.iter().sum::<f32>()
        };
        b.iter(|| black_box(inbox.iter().map(sum).sum::<f32>()))
    });
    for (threads, exec) in [
        ("one", Arc::new(Serial) as SharedExecutor),
        ("all", Arc::new(Threads)),
    ] {
        let round = Round::new("round 1", 1, true, Stream::root(0), exec);
        each::<Median>(&mut group, "median", "{}", threads, &round, &inbox);
        each::<TrimmedMean>(
            &mut group,
            "trimmed",
            "{trim: 0.2}",
            threads,
            &round,
            &inbox,
        );
        each::<MultiKrum>(
            &mut group,
            "krum",
            "{byzantine-share: 0.2, keep: 1}",
            threads,
            &round,
            &inbox,
        );
    }
    group.finish();
}

fn each<A: Aggregator<In = Params, Out = Params> + Settings>(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    name: &str,
    settings: &str,
    threads: &str,
    round: &Round,
    inbox: &Inbox<Params>,
) {
    let mut part: A = read_yaml(settings).expect("settings");
    group.bench_function(format!("{name}, {threads}"), |b| {
        b.iter(|| black_box(part.aggregate(round, inbox).expect("parameters")))
    });
}

criterion_group!(benches, robust);
criterion_main!(benches);
