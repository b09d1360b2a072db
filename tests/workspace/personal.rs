//! Methods with personal models beside the papers' boxes, written down once more for a linear model
//! and full batches: the bias or the weights stay at the clients.

use crate::corrections::{CLIENTS, LR, W, add, everybody, gradient};
use crate::federation::{part, protocol};
use fl_core::message::{Params, decode};
use fl_core::{Parts, Role, RunOptions};
use fl_sim::{Execution, Manifest, RunFolder, Session, Setup, run};
use std::sync::Arc;

const ROUNDS: usize = 6;
const STEPS: usize = 3;
/// All, some and one client a round.
const SIZES: [usize; 3] = [CLIENTS, 2, 1];
const BIAS: [f64; 6] = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0];
const WEIGHT: [f64; 6] = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
const ALL: [f64; 6] = [1.0; 6];

/// The server's model and those of the clients after a run with `size` clients a round, in turns.
fn ours(method: &str, more: &str, size: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
    let (all, own) = everybody();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let manifest = Manifest::new(Session::now("0", &[]), 1, "box", Vec::new(), Vec::new());
    let settings = format!(
        "{{rounds: {ROUNDS}, local: {{steps: {STEPS}, batch: 100}}, keep-clients: true, {more}}}"
    );
    run(Setup {
        execution: Execution {
            threads: 2,
            wire: true,
            ..Execution::default()
        },
        folder: Some(RunFolder::create(&path, "box", &manifest).unwrap()),
        ..Setup::new(
            protocol(method, &settings),
            Arc::new(Parts::new(vec![
                part("model", Role::Trainer, "linear", &format!("{{lr: {LR}}}")),
                part("aggregator", Role::Aggregator, "mean", "{weigh: uniform}"),
                part(
                    "cohort",
                    Role::Selector,
                    "cyclic",
                    &format!("{{size: {size}}}"),
                ),
            ])),
            RunOptions::new(1, all.task()),
            own,
            all,
        )
    })
    .unwrap();
    let model = |name: &str| {
        let bytes = std::fs::read(path.join("models").join(name)).unwrap();
        decode::<Params>(&bytes).unwrap().flat()
    };
    let clients = (0..CLIENTS).map(|k| model(&format!("model-{k}")));
    (model("model"), clients.collect())
}

fn near(found: &[f32], wanted: &W, what: &str) {
    let pairs = found.iter().zip(wanted);
    let far = pairs.fold(0.0, |far: f64, (f, w)| far.max((f64::from(*f) - w).abs()));
    assert!(
        far < 1e-6 && found.len() == wanted.len(),
        "{what}: {found:?}, by the box {wanted:?}"
    );
}

/// The clients of each round.
fn cohorts(size: usize) -> Vec<Vec<usize>> {
    let of = |round: usize| (0..size).map(move |k| (round * size + k) % CLIENTS);
    (0..ROUNDS).map(|round| of(round).collect()).collect()
}

/// Steps of client `k` along the gradients of the numbers in `mask`, and `pull` times the distance
/// to `to`.
fn descend(k: usize, mut w: W, steps: usize, mask: &W, (pull, to): (f64, &W)) -> W {
    for _ in 0..steps {
        let mut g = gradient(k, &w);
        for i in 0..6 {
            g[i] = mask[i] * (g[i] + pull * (w[i] - to[i]));
        }
        add(&mut w, -LR, &g);
    }
    w
}

/// `a` where `mask` is 1, and `b` elsewhere.
fn mixed(mask: &W, a: &W, b: &W) -> W {
    std::array::from_fn(|i| if mask[i] == 1.0 { a[i] } else { b[i] })
}

fn mean(all: &[W]) -> W {
    let mut sum = [0.0; 6];
    all.iter()
        .for_each(|w| add(&mut sum, 1.0 / all.len() as f64, w));
    sum
}

/// Rounds in which clients share the numbers of `mask` and keep the others. `train` makes a
/// client's model from that which it begins a round with. Returns the shared numbers, with 0 for
/// the others, and the clients' models.
fn partial(size: usize, mask: &W, train: impl Fn(usize, W) -> W) -> (W, [W; CLIENTS]) {
    let (mut shared, mut own) = ([0.0; 6], [[0.0; 6]; CLIENTS]);
    for cohort in cohorts(size) {
        for k in &cohort {
            own[*k] = train(*k, mixed(mask, &shared, &own[*k]));
        }
        let answers: Vec<W> = cohort.iter().map(|k| own[*k]).collect();
        shared = mixed(mask, &mean(&answers), &[0.0; 6]);
    }
    (shared, own)
}

fn same(method: &str, more: &str, size: usize, (server, clients): (W, [W; CLIENTS])) {
    let (found, own) = ours(method, more, size);
    let what = format!("{method} {more}, {size} a round");
    near(&found, &server, &what);
    for (k, (found, wanted)) in own.iter().zip(&clients).enumerate() {
        near(found, wanted, &format!("{what}: client {k}"));
    }
}

const NONE: (f64, &W) = (0.0, &[0.0; 6]);

#[test]
fn close_what_is_not_shared_stays_at_the_clients() {
    for size in SIZES {
        for (share, mask) in [("weight", WEIGHT), ("bias", BIAS), ("-bias", WEIGHT)] {
            let train = |k, w| descend(k, w, STEPS, &ALL, NONE);
            let due = partial(size, &mask, train);
            same("fedavg", &format!("share: [{share}]"), size, due);
            // what stays is pulled to where it was
            let pulled = |k, w| descend(k, w, STEPS, &ALL, (0.5, &w));
            let due = partial(size, &mask, pulled);
            same("fedprox", &format!("share: [{share}], mu: 0.5"), size, due);
        }
    }
}

#[test]
fn close_what_is_frozen_is_trained_after_the_rounds() {
    for size in SIZES {
        let train = |k, w| descend(k, w, STEPS, &WEIGHT, NONE);
        let (shared, own) = partial(size, &WEIGHT, train);
        let tuned = |k: usize| {
            let last = mixed(&WEIGHT, &shared, &own[k]);
            descend(k, last, 2, &ALL, NONE)
        };
        let more = "share: [weight], freeze-rest: true, tune: {steps: 2, batch: 100}";
        let due = (shared, std::array::from_fn(tuned));
        same("fedavg", more, size, due);
        // without `share`, the common model is fine-tuned
        let (shared, _) = partial(size, &ALL, |k, w| descend(k, w, STEPS, &ALL, NONE));
        let tuned = std::array::from_fn(|k| descend(k, shared, 2, &ALL, NONE));
        same(
            "fedavg",
            "tune: {steps: 2, batch: 100}",
            size,
            (shared, tuned),
        );
    }
}

#[test]
fn close_fedrep_is_the_papers_box() {
    for size in SIZES {
        let train = |k, w| {
            let w = descend(k, w, 2, &BIAS, NONE);
            descend(k, w, STEPS, &WEIGHT, NONE)
        };
        let due = partial(size, &WEIGHT, train);
        same(
            "fedrep",
            "share: [weight], head: {steps: 2, batch: 100}",
            size,
            due,
        );
    }
}

#[test]
fn close_ditto_is_the_papers_box() {
    for size in SIZES {
        let (mut w, mut own) = ([0.0; 6], [[0.0; 6]; CLIENTS]);
        for cohort in cohorts(size) {
            let answers: Vec<W> = cohort
                .iter()
                .map(|k| {
                    own[*k] = descend(*k, own[*k], 2, &ALL, (0.3, &w));
                    descend(*k, w, STEPS, &ALL, NONE)
                })
                .collect();
            w = mean(&answers);
        }
        let more = "lambda: 0.3, own: {steps: 2, batch: 100}";
        same("ditto", more, size, (w, own));
    }
}

#[test]
fn close_apfl_is_the_papers_box() {
    for (size, adaptive) in SIZES.into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let (mut w, mut own) = ([0.0; 6], [[0.0; 6]; CLIENTS]);
        let (mut mixes, mut shown) = ([0.3; CLIENTS], [[0.0; 6]; CLIENTS]);
        for cohort in cohorts(size) {
            let mut answers = Vec::new();
            for k in cohort {
                let (mut common, v, mix) = (w, &mut own[k], &mut mixes[k]);
                let mixture = |v: &W, w: &W, mix: f64| -> W {
                    std::array::from_fn(|i| mix * v[i] + (1.0 - mix) * w[i])
                };
                for step in 0..STEPS {
                    let g = gradient(k, &mixture(v, &common, *mix));
                    if adaptive && step == 0 {
                        let apart = v.iter().zip(&common).zip(&g);
                        let slope: f64 = apart.map(|((v, w), g)| (v - w) * g).sum();
                        *mix = (*mix - LR * slope).clamp(0.0, 1.0);
                    }
                    let by_common = gradient(k, &common);
                    add(&mut common, -LR, &by_common);
                    add(v, -LR * *mix, &g);
                }
                shown[k] = mixture(v, &common, *mix);
                answers.push(common);
            }
            w = mean(&answers);
        }
        same(
            "apfl",
            &format!("mix: 0.3, adaptive: {adaptive}"),
            size,
            (w, shown),
        );
    }
}

#[test]
fn close_fedamp_is_the_papers_box() {
    let (alpha, sigma, lambda) = (0.2, 1.5, 0.1);
    for size in SIZES {
        let (mut common, mut own) = ([0.0; 6], [[0.0; 6]; CLIENTS]);
        for cohort in cohorts(size) {
            let before = own;
            for k in &cohort {
                let mut mixture = before[*k];
                for other in &before {
                    let way: W = std::array::from_fn(|i| other[i] - before[*k][i]);
                    let square: f64 = way.iter().map(|d| d * d).sum();
                    add(
                        &mut mixture,
                        alpha * libm::exp(-square / sigma) / sigma,
                        &way,
                    );
                }
                own[*k] = descend(*k, own[*k], STEPS, &ALL, (lambda / alpha, &mixture));
            }
            let answers: Vec<W> = cohort.iter().map(|k| own[*k]).collect();
            common = mean(&answers);
        }
        let more = format!("alpha: {alpha}, sigma: {sigma}, lambda: {lambda}");
        same("fedamp", &more, size, (common, own));
    }
}

#[test]
fn close_per_fedavg_is_the_papers_box() {
    for size in SIZES {
        let mut w = [0.0; 6];
        for cohort in cohorts(size) {
            let answers: Vec<W> = cohort
                .iter()
                .map(|k| {
                    let mut y = w;
                    // two pairs of mini-batches, the last of one
                    for _ in 0..STEPS.div_ceil(2) {
                        let mut adapted = y;
                        add(&mut adapted, -0.4, &gradient(*k, &y));
                        add(&mut y, -0.3, &gradient(*k, &adapted));
                    }
                    y
                })
                .collect();
            w = mean(&answers);
        }
        let tuned = std::array::from_fn(|k| descend(k, w, 1, &ALL, NONE));
        let more = "adapt: 0.4, learn: 0.3, tune: {steps: 1, batch: 100}";
        same("per-fedavg", more, size, (w, tuned));
    }
}
