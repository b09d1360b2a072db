//! How much memory it takes to combine what clients say: as much for many clients as for few. And to
//! read a packed table: as much as the spec allows.

use fl_core::Stream;
use fl_core::message::{Logits, SoftLabels};
use fl_core::prelude::*;
use fl_core::{Examples, Inputs, Labels, Parts, Role, RunOptions, SlotAssignment, linked_parts};
use fl_plugins as _;
use fl_sim::{Execution, Setup, run};
use ndarray::Array2;
use peak_alloc::PeakAlloc;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Nothing else may run while memory is counted.
static ALONE: Mutex<()> = Mutex::new(());

const SAMPLES: u32 = 50_000;
const CLASSES: usize = 100;

/// A message with scores of samples.
trait Scores: Message {
    fn new(rows: Vec<u32>, values: Array2<f32>) -> Self;
    fn count(&self) -> usize;
}

impl Scores for SoftLabels {
    fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self::new(rows, values)
    }
    fn count(&self) -> usize {
        self.rows.len()
    }
}

impl Scores for Logits {
    fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self::new(rows, values)
    }
    fn count(&self) -> usize {
        self.rows.len()
    }
}

/// Every client speaks about every sample; what the combining takes, in bytes, is kept.
struct Crowd<M>(Arc<Mutex<usize>>, PhantomData<fn() -> M>);

impl<M: Scores> Crowd<M> {
    const ENSEMBLE: AggregatorSlot<M, M> = AggregatorSlot::new("ensemble", "");
    const LABELS: Exchange<Nothing, M> = Exchange::new("labels");
}

impl<M: Scores> Protocol for Crowd<M> {
    fn declare(&self) -> Declaration<'_> {
        let labels = Self::LABELS.answered_by(|me, _| {
            let value = 1.0 / (1 + me.id()) as f32;
            let values = Array2::from_elem((SAMPLES as usize, CLASSES), value);
            Ok(M::new((0..SAMPLES).collect(), values))
        });
        Declaration::new().exchange(labels.into(&Self::ENSEMBLE))
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.once("labels", &mut (), |fed, (), round| {
            let before = MEMORY.current_usage();
            MEMORY.reset_peak_usage();
            let mean: M = fed.run(round, &Self::LABELS, |_| &Nothing)?;
            *self.0.lock().unwrap() = MEMORY.peak_usage() - before;
            ensure!(mean.count() == SAMPLES as usize, "a mean for each sample");
            Ok(())
        })
    }
}

/// The peak, in messages.
fn peak<M: Scores>(part: &str, settings: &str, clients: usize) -> f64 {
    let inputs = Inputs::Dense {
        shape: vec![1],
        data: vec![0.0; clients],
    };
    let labels = Labels::Classes {
        of: vec![0; clients],
        classes: CLASSES,
    };
    let all = Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap();
    let is_mean = |p: &&fl_core::PartDecl| p.role == Role::Aggregator && p.name == part;
    let decl = linked_parts().into_iter().find(is_mean).expect("linked");
    let settings = serde_yaml::from_str(settings).unwrap();
    let ensemble = SlotAssignment {
        slot: "ensemble".into(),
        clients: None,
        decl,
        settings: decl.read(&settings).unwrap(),
    };
    let grown = Arc::new(Mutex::new(0));
    run(Setup {
        execution: Execution {
            // one thread: how many answers wait depends on the machine otherwise
            threads: 1,
            ..Execution::default()
        },
        ..Setup::new(
            Arc::new(Crowd::<M>(grown.clone(), PhantomData)),
            Arc::new(Parts::new(vec![ensemble])),
            RunOptions::new(1, all.task()),
            (0..clients).map(|k| all.pick(&[k])).collect(),
            all.pick(&[0]),
        )
    })
    .unwrap();
    let grown = *grown.lock().unwrap();
    grown as f64 / (4.0 * f64::from(SAMPLES) * CLASSES as f64)
}

#[test]
fn answers_of_many_clients_take_the_memory_of_ten() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |part: &str, peak: &dyn Fn(usize) -> f64, all: usize, most: f64| {
        let (few, many) = (peak(10), peak(all));
        let grown = format!("{part}: {few:.2} messages for 10 clients, {many:.2} for {all}");
        assert!(many <= most && (many / few - 1.0).abs() <= 0.1, "{grown}");
    };
    let labels = |n| peak::<SoftLabels>("mean-labels", "{ weigh: uniform }", n);
    of("mean-labels", &labels, 100, 8.0);
    // what is beyond memory goes through a file, so these are fewer
    for part in ["mean-logits", "class-weighted"] {
        of(part, &|n| peak::<Logits>(part, "{}", n), 30, 8.0);
    }
}

/// A few kilobytes that unpack to many rows: no row of them is held beside its fields, and what may
/// not be read is not unpacked. What may be read takes no more where more is allowed. An allocator
/// may hold a list twice while it grows.
#[test]
fn a_packed_table_takes_the_memory_that_its_spec_allows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let packed = |name: &str, first: &str, row: &str, rows: usize| {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gz.write_all(first.as_bytes()).unwrap();
        let some = row.repeat(1000);
        (0..rows / 1000).for_each(|_| gz.write_all(some.as_bytes()).unwrap());
        gz.finish().unwrap();
    };
    let (lines, json) = (
        "x,y\n1,a\n0,b\n",
        "{\"x\":1,\"y\":\"a\"}\n{\"x\":0,\"y\":\"b\"}\n",
    );
    packed("few.csv.gz", lines, "0,a\n1,b\n", 100_000);
    packed("many.csv.gz", lines, "0,a\n1,b\n", 10_000_000);
    packed("blank.csv.gz", lines, "\n", 20_000_000);
    packed("line.csv.gz", lines, "0000000000", 10_000_000);
    packed("many.jsonl.gz", json, "{\"x\":0,\"y\":\"a\"}\n", 2_000_000);
    const MOST: usize = 6_000_000;
    let read_within = |format: &str, file: &str, bytes: usize, most: usize| {
        let text = format!(
            "{{set: {{files: {{format: {format}, train: {file}, label: y, holdout: 0.1, max-bytes: {bytes}}}}}, clients: 1}}"
        );
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let mut spec: fl_data::DataSpec = fl_core::settings::read_yaml(&text).unwrap();
        let problems = spec.resolve(dir.path());
        let peak = MEMORY.peak_usage() - before;
        assert!(peak < most, "{file}: {peak}");
        let read = problems.is_empty().then(|| {
            let none = std::path::Path::new("nowhere");
            let built = fl_data::build(&spec, none, &Stream::root(1)).unwrap();
            built.clients[0].samples.ids().len()
        });
        read.ok_or(
            problems
                .into_iter()
                .map(|(_, text)| text)
                .collect::<String>(),
        )
    };
    let read = |format: &str, file: &str| read_within(format, file, MOST, 4 * MOST);
    let few = read("csv", "few.csv.gz").unwrap();
    assert!((179_000..181_000).contains(&few), "{few}");
    for (format, file) in [
        ("csv", "many.csv.gz"),
        ("csv", "blank.csv.gz"),
        ("csv", "line.csv.gz"),
        ("jsonl", "many.jsonl.gz"),
    ] {
        let error = read(format, file).unwrap_err();
        let named = error.contains(&format!("{file}: ")) && error.contains("raise `max-bytes`");
        assert!(named, "{error}");
    }
    let much = |file: &str, most: usize| read_within("csv", file, 4_000_000_000, most);
    assert_eq!(much("few.csv.gz", 4 * MOST).unwrap(), few);
    // two rows among lines that are empty leave none to test with
    let error = much("blank.csv.gz", 4 * MOST).unwrap_err();
    assert!(error.contains("no test rows"), "{error}");
    // a row is held whole, up to 64 MiB
    let error = much("line.csv.gz", 3 * (64 << 20)).unwrap_err();
    let named = error.contains("line.csv.gz") && error.contains("a row of more than");
    assert!(named, "{error}");
}
