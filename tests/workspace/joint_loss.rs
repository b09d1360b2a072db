//! `co-distill` with both losses in one step, beside the formula (Selective-FD, Figure 10) written
//! down once more.

use crate::corrections::{CLIENTS, LR, OWN, W, add, close, everybody, gradient, row};
use crate::federation::part;
use fl_core::message::{Params, decode};
use fl_core::settings::read_yaml;
use fl_core::{Parts, Public, Role, RunOptions};
use fl_plugin_co_distill::CoDistill;
use fl_sim::{Execution, Manifest, RunFolder, Session, Setup, run};
use std::sync::Arc;

const ALL: usize = CLIENTS * OWN;
const ROUNDS: usize = 3;
const STEPS: usize = 2;

/// The clients' models after three rounds of two steps; all clients' inputs are the public samples.
fn ends_with(alpha: f64) -> Vec<Vec<f32>> {
    let (all, own) = everybody();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let manifest = Manifest::new(Session::now("0", &[]), 1, "box", Vec::new(), Vec::new());
    let protocol: CoDistill = read_yaml(&format!(
        "{{rounds: {ROUNDS}, order: {{together: {alpha}}}, local: {{steps: 1, batch: 100}}, distil: {{steps: {STEPS}, batch: 100}}, samples: {ALL}}}"
    ))
    .unwrap();
    run(Setup {
        execution: Execution {
            threads: 2,
            wire: true,
            ..Execution::default()
        },
        public: Some(Public::unlabelled(all.samples.clone())),
        folder: Some(RunFolder::create(&path, "box", &manifest).unwrap()),
        ..Setup::new(
            Arc::new(protocol),
            Arc::new(Parts::new(vec![
                part("model", Role::Trainer, "linear", &format!("{{lr: {LR}}}")),
                part("ensemble", Role::Aggregator, "mean-labels", "{}"),
            ])),
            RunOptions::new(1, all.task()),
            own,
            all,
        )
    })
    .unwrap();
    let model = |k: usize| std::fs::read(path.join(format!("models/model-{k}"))).unwrap();
    (0..CLIENTS)
        .map(|k| decode::<Params>(&model(k)).unwrap().flat())
        .collect()
}

/// The probability of class 1.
fn says(w: &W, i: usize) -> f64 {
    let (x, _) = row(i);
    let score = |c: usize| w[c] + x[0] * w[2 + c] + x[1] * w[4 + c];
    1.0 / (1.0 + libm::exp(score(0) - score(1)))
}

fn formula(alpha: f64) -> [W; CLIENTS] {
    let mut models = [[0.0; 6]; CLIENTS];
    for _ in 0..ROUNDS {
        let mean = |i: usize| models.iter().map(|w| says(w, i)).sum::<f64>() / CLIENTS as f64;
        let labels: Vec<f64> = (0..ALL).map(mean).collect();
        for (k, w) in models.iter_mut().enumerate() {
            for _ in 0..STEPS {
                let mut slope = [0.0; 6];
                add(&mut slope, alpha, &gradient(k, w));
                for (i, label) in labels.iter().enumerate() {
                    let (x, off) = (row(i).0, (says(w, i) - label) / ALL as f64);
                    let one = [-off, off, -off * x[0], off * x[0], -off * x[1], off * x[1]];
                    add(&mut slope, 1.0 - alpha, &one);
                }
                add(w, -LR, &slope);
            }
        }
    }
    models
}

#[test]
fn close_one_step_along_both_losses_is_the_papers_weighted_sum() {
    for alpha in [0.0, 0.3, 1.0] {
        for (found, wanted) in ends_with(alpha).iter().zip(formula(alpha)) {
            close(found, &wanted);
        }
    }
}
