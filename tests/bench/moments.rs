//! A million vote histograms x 32 moments: less than a second is wanted, whatever the
//! histograms.
#![allow(missing_docs, reason = "criterion makes the functions")]
use criterion::{Criterion, criterion_group, criterion_main};
use fl_core::Stream;
use fl_plugin_accounting::pate::{Orders, epsilon, moments};
use std::hint::black_box;

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

const QUERIES: usize = 1_000_000;

/// `voters` votes over `classes`, most for the first.
fn histograms(voters: usize, classes: usize) -> Vec<Vec<u32>> {
    let mut draws = Stream::root(1).draws();
    let one = |_| {
        let mut left = voters;
        let mut counts: Vec<u32> = (1..classes)
            .map(|_| {
                let n = draws.below(left + 1);
                left -= n;
                n as u32
            })
            .collect();
        counts.push(left as u32);
        counts
    };
    (0..QUERIES).map(one).collect()
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("one million histograms, 32 moments");
    group.sample_size(10);
    for (voters, classes, gamma) in [(50, 2, 0.04), (250, 10, 0.05), (250, 10, 1.0)] {
        let all = histograms(voters, classes);
        let name = format!("{voters} voters, {classes} classes, gamma {gamma}");
        group.bench_function(name, |b| {
            b.iter(|| {
                let queries = black_box(&all).iter().map(Vec::as_slice);
                let orders = Orders::up_to(32);
                epsilon(&moments(queries, gamma, 1, orders), orders, 1e-5)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
