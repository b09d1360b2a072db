//! What it costs to call a part through the C interface instead of directly: time at 10 clients x 1,000 parameters, and peak
//! memory at 100 clients x 1,000,000. `cargo bench -p fl-bench --bench abi`.
use criterion::Criterion;
use fl_core::message::Params;
use fl_core::prelude::*;
use fl_core::settings::Value;
use fl_core::{BoxedAggregator, PartDecl, TaskKind, abi, linked_parts};
use ndarray::ArrayD;
use std::hint::black_box;

settings! {
    /// The weighted mean.
    pub struct Mean {}
}

impl Aggregator for Mean {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        Ok(inbox.weighted_mean(&weights, &*round.exec))
    }
}
plugin!(aggregator "mean" => Mean);

fn inbox(clients: u32, numbers: usize) -> Inbox<Params> {
    let mail = |k: u32| {
        let tensor = ArrayD::from_shape_fn(vec![numbers], |i| (i[0] % 97) as f32 + k as f32);
        Mail::new(
            k,
            1.0 + f64::from(k),
            Params([("w".to_string(), tensor)].into()),
        )
    };
    Inbox::new((0..clients).map(mail).collect()).expect("a legal inbox")
}

fn build(decl: &PartDecl) -> BoxedAggregator<Params, Params> {
    let make = BuildContext {
        task: Task {
            input: vec![1],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    };
    let part = (decl.build)(&Value::Null, &make).expect("it can be made");
    *part.downcast().expect("an aggregator")
}

/// Peak memory of this process in MiB, since the last [`forget`]; `None` where nobody counts.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

fn forget() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[allow(clippy::print_stdout, reason = "a benchmark prints")]
fn main() {
    let (linked, loaded) = (linked_parts()[0], abi::import_linked("here")[0]);
    let mut criterion = Criterion::default().configure_from_args();
    let small = inbox(10, 1_000);
    for (name, decl) in [("linked", linked), ("through C", loaded)] {
        let (mut part, round) = (build(decl), Round::first());
        criterion.bench_function(&format!("mean of 10 x 1,000, {name}"), |b| {
            b.iter(|| black_box(part.aggregate(&round, &small)));
        });
    }
    criterion.final_summary();
    let large = inbox(100, 1_000_000);
    for (name, decl) in [("linked", linked), ("through C", loaded)] {
        let mut part = build(decl);
        forget();
        let out = part.aggregate(&Round::first(), &large);
        println!(
            "mean of 100 x 1,000,000, {name}: ok {}, peak memory {:.1} MiB",
            out.is_ok(),
            peak().unwrap_or(f64::NAN)
        );
    }
}
