//! How much memory it takes to combine what clients say: as much for many clients as for few.

use fl_core::message::SoftLabels;
use fl_core::prelude::*;
use fl_core::{Examples, Filled, Inputs, Labels, Parts, Role, RunOptions, linked_parts};
use fl_plugins as _;
use fl_sim::{Execution, Setup, run};
use ndarray::Array2;
use peak_alloc::PeakAlloc;
use std::sync::{Arc, Mutex};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const SAMPLES: u32 = 50_000;
const CLASSES: usize = 100;

/// Every client speaks about every sample; what the combining takes, in bytes, is kept.
struct Crowd(Arc<Mutex<usize>>);

const ENSEMBLE: AggregatorSlot<SoftLabels, SoftLabels> = AggregatorSlot::new("ensemble", "");
const LABELS: Exchange<Nothing, SoftLabels> = Exchange::new("labels");

impl Protocol for Crowd {
    fn declare(&self) -> Declaration<'_> {
        let labels = LABELS.answered_by(|me, _| {
            let value = 1.0 / (1 + me.id()) as f32;
            let values = Array2::from_elem((SAMPLES as usize, CLASSES), value);
            Ok(SoftLabels::new((0..SAMPLES).collect(), values))
        });
        Declaration::new().exchange(labels.into(&ENSEMBLE))
    }
    fn lead(&self, fed: &mut Server<'_>) -> Result<()> {
        fed.once("labels", &mut (), |fed, (), round| {
            let all = fed.everyone();
            let before = MEMORY.current_usage();
            MEMORY.reset_peak_usage();
            let mean: SoftLabels = fed.run(round, &LABELS, &all, |_| &Nothing)?;
            *self.0.lock().unwrap() = MEMORY.peak_usage() - before;
            ensure!(
                mean.rows.len() == SAMPLES as usize,
                "a mean for each sample"
            );
            Ok(())
        })
    }
}

/// The peak, in messages.
fn peak(clients: usize) -> f64 {
    let inputs = Inputs::Dense {
        shape: vec![1],
        data: vec![0.0; clients],
    };
    let labels = Labels::Classes {
        of: vec![0; clients],
        classes: CLASSES,
    };
    let all = Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap();
    let is_mean = |p: &&fl_core::PartDecl| p.role == Role::Aggregator && p.name == "mean-labels";
    let ensemble = Filled {
        slot: "ensemble".into(),
        clients: None,
        decl: linked_parts()
            .into_iter()
            .find(|p| is_mean(p))
            .expect("linked"),
        settings: serde_yaml::from_str("{ weigh: uniform }").unwrap(),
    };
    let grown = Arc::new(Mutex::new(0));
    run(Setup {
        execution: Execution {
            threads: 2,
            ..Execution::default()
        },
        ..Setup::new(
            Arc::new(Crowd(grown.clone())),
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
fn labels_of_a_hundred_clients_take_the_memory_of_ten() {
    let (few, many) = (peak(10), peak(100));
    let grown = format!("{few:.2} messages for 10 clients, {many:.2} for 100");
    assert!(many <= 8.0, "{grown}");
    assert!(
        (many / few - 1.0).abs() <= 0.1,
        "{few:.2} and {many:.2} messages"
    );
}
