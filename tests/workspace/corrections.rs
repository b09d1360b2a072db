//! SCAFFOLD, FedDyn and FedNova beside the papers' boxes written down once more.

use crate::federation::{part, protocol};
use fl_core::message::{Params, decode};
use fl_core::{Examples, Inputs, Labels, Parts, Role, RunOptions};
use fl_sim::{Execution, Manifest, RunFolder, Session, Setup, run};
use std::sync::Arc;

pub(crate) const CLIENTS: usize = 4;
pub(crate) const OWN: usize = 6;
pub(crate) const LR: f64 = 0.2;

/// Row `i` and its class; what the clients own differs.
pub(crate) fn row(i: usize) -> ([f64; 2], usize) {
    let (k, j) = (i / OWN, i % OWN);
    let x = [
        (j as f64 - 2.5) / 2.0 + k as f64 / 3.0,
        ((3 * j + k) % 5) as f64 / 2.0 - 1.0,
    ];
    (x, usize::from(j + k > 4))
}

/// All rows, and those of each client.
pub(crate) fn everybody() -> (Examples, Vec<Examples>) {
    let n = CLIENTS * OWN;
    let inputs = Inputs::Dense {
        shape: vec![2],
        data: (0..n).flat_map(|i| row(i).0).map(|x| x as f32).collect(),
    };
    let labels = Labels::Classes {
        of: (0..n).map(|i| row(i).1 as u32).collect(),
        classes: 2,
    };
    let all = Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap();
    let own = |k: usize| all.pick(&(OWN * k..OWN * (k + 1)).collect::<Vec<_>>());
    let own = (0..CLIENTS).map(own).collect();
    (all, own)
}

/// The model that a run of this protocol ends with.
fn ends_with(method: &str, settings: &str, cohort: &str, aggregator: &str) -> Vec<f32> {
    let (all, own) = everybody();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let manifest = Manifest::new(Session::now("0", &[]), 1, "box", Vec::new(), Vec::new());
    run(Setup {
        execution: Execution {
            threads: 2,
            wire: true,
            ..Execution::default()
        },
        folder: Some(RunFolder::create(&path, "box", &manifest).unwrap()),
        ..Setup::new(
            protocol(method, settings),
            Arc::new(Parts::new(vec![
                part("model", Role::Trainer, "linear", &format!("{{lr: {LR}}}")),
                part("aggregator", Role::Aggregator, "mean", aggregator),
                part("cohort", Role::Selector, "cyclic", cohort),
            ])),
            RunOptions::new(1, all.task()),
            own,
            all,
        )
    })
    .unwrap();
    let model = std::fs::read(path.join("models/model")).unwrap();
    decode::<Params>(&model).unwrap().flat()
}

/// Bias, then weights by row, as [`Params::flat`] has them.
pub(crate) type W = [f64; 6];

/// The gradient of the mean cross-entropy of a client's examples.
pub(crate) fn gradient(k: usize, w: &W) -> W {
    let mut sum = [0.0; 6];
    for i in OWN * k..OWN * (k + 1) {
        let (x, class) = row(i);
        let score = |c: usize| w[c] + x[0] * w[2 + c] + x[1] * w[4 + c];
        let p = 1.0 / (1.0 + libm::exp(score(0) - score(1)));
        for c in 0..2 {
            let probability = if c == 1 { p } else { 1.0 - p };
            let slope = (probability - f64::from(u8::from(c == class))) / OWN as f64;
            sum[c] += slope;
            sum[2 + c] += slope * x[0];
            sum[4 + c] += slope * x[1];
        }
    }
    sum
}

pub(crate) fn add(to: &mut W, factor: f64, other: &W) {
    to.iter_mut().zip(other).for_each(|(t, o)| *t += factor * o);
}

/// Karimireddy et al. 2020, Algorithm 1, option II (or I); two clients in a round, in turns.
fn scaffold(rounds: usize, steps: usize, server_lr: f64, option_one: bool) -> W {
    let (mut x, mut c) = ([0.0; 6], [0.0; 6]);
    let mut own = [[0.0; 6]; CLIENTS];
    for round in 0..rounds {
        let sampled = if round % 2 == 0 { [0, 1] } else { [2, 3] };
        let (mut dx, mut dc) = ([0.0; 6], [0.0; 6]);
        for k in sampled {
            let mut y = x;
            for _ in 0..steps {
                let mut g = gradient(k, &y);
                add(&mut g, -1.0, &own[k]);
                add(&mut g, 1.0, &c);
                add(&mut y, -LR, &g);
            }
            let next = if option_one {
                gradient(k, &x)
            } else {
                let mut next = own[k];
                add(&mut next, -1.0, &c);
                let way = 1.0 / (steps as f64 * LR);
                add(&mut next, way, &x);
                add(&mut next, -way, &y);
                next
            };
            add(&mut dx, 0.5, &y);
            add(&mut dx, -0.5, &x);
            add(&mut dc, 0.5, &next);
            add(&mut dc, -0.5, &own[k]);
            own[k] = next;
        }
        add(&mut x, server_lr, &dx);
        add(&mut c, 2.0 / CLIENTS as f64, &dc);
    }
    x
}

#[track_caller]
pub(crate) fn close(found: &[f32], wanted: &[f64]) {
    let near = found
        .iter()
        .zip(wanted)
        .all(|(f, w)| (f64::from(*f) - w).abs() < 2e-5);
    assert!(
        near && found.len() == wanted.len(),
        "{found:?}, by the box {wanted:?}"
    );
}

#[test]
fn close_scaffold_is_the_papers_box() {
    for (server_lr, control) in [(1.0, "steps"), (0.5, "steps"), (1.0, "gradient")] {
        // a batch of everything: the order of examples does not matter
        let settings = format!(
            "{{rounds: 6, local: {{steps: 3, batch: 100}}, server-lr: {server_lr}, control: {control}}}"
        );
        let found = ends_with("scaffold", &settings, "{size: 2}", "{weigh: uniform}");
        close(&found, &scaffold(6, 3, server_lr, control == "gradient"));
    }
}

/// Acar et al. 2021, Algorithm 1, with `size` clients in a round, in turns.
fn feddyn(rounds: usize, steps: usize, alpha: f64, size: usize) -> W {
    let (mut x, mut h) = ([0.0; 6], [0.0; 6]);
    let mut own = [[0.0; 6]; CLIENTS];
    for round in 0..rounds {
        let (mut sum, mut moved) = ([0.0; 6], [0.0; 6]);
        for k in (0..size).map(|k| (round * size + k) % CLIENTS) {
            let mut y = x;
            for _ in 0..steps {
                let mut g = gradient(k, &y);
                add(&mut g, -1.0, &own[k]);
                add(&mut g, alpha, &y);
                add(&mut g, -alpha, &x);
                add(&mut y, -LR, &g);
            }
            let mut way = y;
            add(&mut way, -1.0, &x);
            add(&mut own[k], -alpha, &way);
            add(&mut sum, 1.0 / size as f64, &y);
            add(&mut moved, 1.0, &way);
        }
        add(&mut h, -alpha / CLIENTS as f64, &moved);
        x = sum;
        add(&mut x, -1.0 / alpha, &h);
    }
    x
}

#[test]
fn close_feddyn_is_the_papers_box() {
    for (size, alpha) in [(CLIENTS, 0.1), (2, 0.1), (1, 0.1), (2, 0.7)] {
        let settings = format!("{{rounds: 6, local: {{steps: 3, batch: 100}}, alpha: {alpha}}}");
        let cohort = format!("{{size: {size}}}");
        let found = ends_with("feddyn", &settings, &cohort, "{weigh: uniform}");
        close(&found, &feddyn(6, 3, alpha, size));
    }
}

#[test]
fn close_fednova_of_equal_lengths_is_fedavg() {
    let with = |method: &str| {
        let settings = "{rounds: 3, local: {steps: 4, batch: 100}}";
        ends_with(method, settings, "{size: 4}", "{}")
    };
    let plain: Vec<f64> = with("fedavg").into_iter().map(f64::from).collect();
    close(&with("fednova"), &plain);
    assert_ne!(with("scaffold"), with("fedavg"));
}
