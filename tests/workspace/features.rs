//! Methods that learn by features beside the papers' boxes, written down once more for a network of
//! two linear layers and full batches. Slopes here are differences of the losses.

use crate::corrections::{CLIENTS, OWN, everybody, row};
use crate::federation::{part, protocol};
use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, Parametric, Parts, Role, RunOptions, SlotAssignment, Stream, Task, TaskKind,
    Trainer,
};
use fl_plugin_trainer_dfdx::Dfdx;
use fl_sim::{Execution, Manifest, RunFolder, Session, Setup, run};
use std::path::Path;
use std::sync::Arc;

const ROUNDS: usize = 6;
const STEPS: usize = 2;
const LR: f64 = 0.2;
/// All, some and one client a round.
const SIZES: [usize; 3] = [CLIENTS, 2, 1];
const MODEL: &str = "{net: [{linear: 3}, outputs], optimiser: {sgd: {lr: 0.2}}}";
/// Features.
const WIDTH: usize = 3;

/// The network that a stream of this name begins with.
fn net(of: &Stream) -> Dfdx {
    let task = Task {
        input: vec![2],
        kind: TaskKind::Classes(2),
    };
    let stream = of.child("model", 0);
    Dfdx::new(read_yaml(MODEL).unwrap(), &BuildContext { task, stream }).unwrap()
}

fn numbers(net: &Dfdx) -> Vec<f64> {
    net.params().flat().into_iter().map(f64::from).collect()
}

/// The kept models of a run with `size` clients a round, in turns.
fn ours(method: &str, settings: &str, size: usize, more: Vec<SlotAssignment>) -> Kept {
    let (all, own) = everybody();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let manifest = Manifest::new(Session::now("0", &[]), 1, "box", Vec::new(), Vec::new());
    let settings =
        format!("{{rounds: {ROUNDS}, local: {{steps: {STEPS}, batch: 100}}, {settings}}}");
    let mut parts = vec![
        part("model", Role::Trainer, "dfdx", MODEL),
        part(
            "cohort",
            Role::Selector,
            "cyclic",
            &format!("{{size: {size}}}"),
        ),
    ];
    parts.extend(more);
    run(Setup {
        execution: Execution {
            threads: 2,
            wire: true,
            ..Execution::default()
        },
        folder: Some(RunFolder::create(&path, "box", &manifest).unwrap()),
        ..Setup::new(
            protocol(method, &settings),
            Arc::new(Parts::new(parts)),
            RunOptions::new(1, all.task()),
            own,
            all,
        )
    })
    .unwrap();
    Kept(dir)
}

/// The models of a run.
struct Kept(tempfile::TempDir);

impl Kept {
    /// Each client's number in the last line of this measure.
    fn last(&self, name: &str) -> Vec<f64> {
        let text = std::fs::read_to_string(self.0.path().join("run/metrics.jsonl")).unwrap();
        let lines = text.lines();
        let mut lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let last = lines.rfind(|line| line["name"] == name).unwrap();
        let each = last["each"].as_array().unwrap().iter();
        each.map(|score| score.as_f64().unwrap()).collect()
    }

    fn close(&self, name: &str, due: &[f64], what: &str) {
        let file: &Path = &self.0.path().join("run/models").join(name);
        let mut found = net(&Stream::root(0));
        found.load(&std::fs::read(file).unwrap()).unwrap();
        let found = numbers(&found);
        let pairs = found.iter().zip(due);
        let far = pairs.fold(0.0, |far: f64, (f, w)| far.max((f - w).abs()));
        assert!(
            far < 1e-6 && found.len() == due.len(),
            "{what}, {name}: {found:?}, by the box {due:?}"
        );
    }
}

/// The clients of each round.
fn cohorts(size: usize) -> impl Iterator<Item = Vec<usize>> {
    let of = move |round: usize| (0..size).map(move |k| (round * size + k) % CLIENTS);
    (0..ROUNDS).map(move |round| of(round).collect())
}

/// A linear layer: bias, then weights by output.
fn layer(w: &[f64], x: &[f64], outputs: usize) -> Vec<f64> {
    let one = |o: usize| {
        let weights = &w[outputs + o * x.len()..];
        w[o] + weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()
    };
    (0..outputs).map(one).collect()
}

fn features(w: &[f64], x: [f64; 2]) -> Vec<f64> {
    layer(w, &x, WIDTH)
}

/// Where the last layer begins.
const HEAD: usize = WIDTH + 2 * WIDTH;

fn cross_entropy(scores: &[f64], class: usize) -> f64 {
    let sum: f64 = scores.iter().map(|s| libm::exp(*s)).sum();
    libm::log(sum) - scores[class]
}

/// Steps of client `k` along the slope of the mean cross-entropy plus the mean of `more` of each
/// example, which gets its number, features and class.
fn descend(k: usize, w: &mut [f64], more: impl Fn(usize, &[f64], usize) -> f64) {
    for _ in 0..STEPS {
        let loss = |w: &[f64]| {
            let of = |i: usize| {
                let (x, class) = row(OWN * k + i);
                let z = features(w, x);
                cross_entropy(&layer(&w[HEAD..], &z, 2), class) + more(i, &z, class)
            };
            (0..OWN).map(of).sum::<f64>() / OWN as f64
        };
        step(w, LR, loss);
    }
}

/// Against the slope of `loss`.
fn step(w: &mut [f64], lr: f64, loss: impl Fn(&[f64]) -> f64) {
    let slope = (0..w.len()).map(|i| {
        let at = |d: f64| {
            let mut moved = w.to_vec();
            moved[i] += d;
            loss(&moved)
        };
        (at(1e-5) - at(-1e-5)) / 2e-5
    });
    let slope: Vec<f64> = slope.collect();
    w.iter_mut().zip(slope).for_each(|(w, g)| *w -= lr * g);
}

fn mean(all: &[Vec<f64>]) -> Vec<f64> {
    let sum = |i: usize| all.iter().map(|w| w[i]).sum::<f64>() / all.len() as f64;
    (0..all[0].len()).map(sum).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn close_moon_is_the_papers_box() {
    let start = numbers(&net(&Stream::root(1).child("server", 0)));
    for size in SIZES {
        let (mut w, mut last) = (start.clone(), vec![None::<Vec<f64>>; CLIENTS]);
        for cohort in cohorts(size) {
            let mut answers = Vec::new();
            for k in cohort {
                let mut own = w.clone();
                descend(k, &mut own, |i, z, _| {
                    let Some(last) = &last[k] else { return 0.0 };
                    let x = row(OWN * k + i).0;
                    let similar = |of: &[f64]| libm::exp(cosine(z, &features(of, x)) / 0.4);
                    let (near, far) = (similar(&w), similar(last));
                    -2.0 * libm::log(near / (near + far))
                });
                last[k] = Some(own.clone());
                answers.push(own);
            }
            w = mean(&answers);
        }
        let mean = part("aggregator", Role::Aggregator, "mean", "{weigh: uniform}");
        let found = ours("moon", "mu: 2, temperature: 0.4", size, vec![mean]);
        found.close("model", &w, &format!("{size} a round"));
    }
}

/// The mean features of each class of client `k`.
fn prototypes(k: usize, w: &[f64]) -> Vec<(usize, Vec<f64>)> {
    let rows: Vec<_> = (OWN * k..OWN * (k + 1)).map(row).collect();
    let of = |class: usize| {
        let own = rows.iter().filter(|(_, c)| *c == class);
        let all: Vec<_> = own.map(|(x, _)| features(w, *x)).collect();
        (!all.is_empty()).then(|| (class, mean(&all)))
    };
    (0..2).filter_map(of).collect()
}

/// The mean of the prototypes of each class; a class that no client has keeps its own.
fn combined(known: &mut [Option<Vec<f64>>], sent: &[(usize, Vec<f64>)]) {
    for (class, known) in known.iter_mut().enumerate() {
        let all = sent.iter().filter(|(c, _)| *c == class);
        let all: Vec<_> = all.map(|(_, mean)| mean.clone()).collect();
        if !all.is_empty() {
            *known = Some(mean(&all));
        }
    }
}

fn beginners() -> Vec<Vec<f64>> {
    let home = |k| Stream::root(1).child("client", k as u64);
    (0..CLIENTS).map(|k| numbers(&net(&home(k)))).collect()
}

#[test]
fn close_fedproto_is_the_papers_box() {
    for size in SIZES {
        let (mut own, mut known) = (beginners(), [None::<Vec<f64>>, None]);
        for cohort in cohorts(size) {
            let mut sent = Vec::new();
            for k in cohort {
                descend(k, &mut own[k], |_, z, class| {
                    let Some(mean) = &known[class] else {
                        return 0.0;
                    };
                    let apart = z.iter().zip(mean).map(|(z, m)| (z - m) * (z - m));
                    1.5 * apart.sum::<f64>() / WIDTH as f64
                });
                sent.extend(prototypes(k, &own[k]));
            }
            combined(&mut known, &sent);
        }
        let mean = part("prototypes", Role::Aggregator, "mean-of-features", "{}");
        let settings = "lambda: 1.5, keep-clients: true, predict: nearest-prototype";
        let found = ours("fedproto", settings, size, vec![mean]);
        for (k, due) in own.iter().enumerate() {
            found.close(&format!("model-{k}"), due, &format!("{size} a round"));
        }
        // the share of all rows whose nearest prototype is that of their class
        let due: Vec<f64> = own
            .iter()
            .map(|own| {
                let right = (0..OWN * CLIENTS).filter(|i| {
                    let (x, class) = row(*i);
                    let z = features(own, x);
                    let apart = |c: usize| {
                        let pairs = known[c].iter().flatten().zip(&z);
                        pairs.map(|(m, z)| (z - m) * (z - m)).sum::<f64>()
                    };
                    known[class].is_some()
                        && (known[1 - class].is_none() || apart(class) < apart(1 - class))
                });
                right.count() as f64 / (OWN * CLIENTS) as f64
            })
            .collect();
        assert_eq!(found.last("clients.accuracy"), due, "{size} a round");
    }
}

#[test]
fn close_fedgh_is_the_papers_box() {
    const SERVER_LR: f64 = 0.4;
    let first = numbers(&net(&Stream::root(1).child("server", 0)));
    for size in SIZES {
        let (mut own, mut head) = (beginners(), first[HEAD..].to_vec());
        for cohort in cohorts(size) {
            let mut sent = Vec::new();
            for k in cohort {
                own[k][HEAD..].copy_from_slice(&head);
                descend(k, &mut own[k], |_, _, _| 0.0);
                sent.extend(prototypes(k, &own[k]));
            }
            for _ in 0..2 {
                step(&mut head, SERVER_LR, |head| {
                    let of = |(class, mean): &(usize, Vec<f64>)| {
                        cross_entropy(&layer(head, mean, 2), *class)
                    };
                    sent.iter().map(of).sum::<f64>() / sent.len() as f64
                });
            }
        }
        let settings = "head-epochs: 2, head-batch: 100, head-lr: 0.4, keep-clients: true";
        let found = ours("fedgh", settings, size, Vec::new());
        for (k, due) in own.iter().enumerate() {
            found.close(&format!("model-{k}"), due, &format!("{size} a round"));
        }
    }
}
