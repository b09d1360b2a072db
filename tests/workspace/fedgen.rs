//! FedGEN beside its losses written down once more: the slopes here are
//! differences of those losses, and only the draws are the program's.

use crate::corrections::{CLIENTS, OWN, close, everybody, row};
use crate::federation::{part, protocol};
use fl_core::message::Params;
use fl_core::settings::read_yaml;
use fl_core::{
    BuildContext, FitOptions, Length, Loss, Parametric, Parts, Role, RunOptions, Stream, Task,
    TaskKind, Trainer,
};
use fl_plugin_trainer_dfdx::Dfdx;
use fl_sim::{Execution, Manifest, RunFolder, Session, Setup, run};
use std::sync::Arc;

const ROUNDS: usize = 3;
const STEPS: usize = 2;
const BATCH: usize = 5;
const NOISE: usize = 2;
const CE: f64 = 1.5;
const KL: f64 = 0.8;
const DECAY: f64 = 0.7;
const DIVERSITY: f64 = 3.0;
const MODEL: &str = "{net: [{linear: 3}, outputs], optimiser: {sgd: {lr: 0.2}}}";
const GENERATOR: &str = "{net: logistic, optimiser: {sgd: {lr: 0.3}}}";
/// Features.
const WIDTH: usize = 3;

fn task(input: usize, outputs: usize) -> Task {
    Task {
        input: vec![input],
        kind: TaskKind::Classes(outputs),
    }
}

fn made(settings: &str, task: Task, slot: &str) -> Dfdx {
    let stream = Stream::root(1).child("server", 0).child(slot, 0);
    Dfdx::new(read_yaml(settings).unwrap(), &BuildContext { task, stream }).unwrap()
}

fn wide(params: &Params) -> Vec<f64> {
    params.flat().into_iter().map(f64::from).collect()
}

/// The model that a run ends with.
fn ends_with() -> Vec<f32> {
    let (all, own) = everybody();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let manifest = Manifest::new(Session::now("0", &[]), 1, "box", Vec::new(), Vec::new());
    let settings = format!(
        "{{rounds: {ROUNDS}, local: {{steps: 1, batch: 100}}, features: {WIDTH}, noise: {NOISE}, steps: {STEPS}, batch: {BATCH}, \
         cross-entropy: {CE}, kl: {KL}, decay: {DECAY}, diversity: {DIVERSITY}}}"
    );
    run(Setup {
        execution: Execution {
            threads: 2,
            wire: true,
            ..Execution::default()
        },
        folder: Some(RunFolder::create(&path, "box", &manifest).unwrap()),
        ..Setup::new(
            protocol("fedgen", &settings),
            Arc::new(Parts::new(vec![
                part("model", Role::Trainer, "dfdx", MODEL),
                part("generator", Role::Trainer, "dfdx", GENERATOR),
                part("aggregator", Role::Aggregator, "mean", "{}"),
            ])),
            RunOptions::new(1, all.task()),
            own,
            all,
        )
    })
    .unwrap();
    let mut model = made(MODEL, task(2, 2), "model");
    model
        .load(&std::fs::read(path.join("models/model")).unwrap())
        .unwrap();
    model.params().flat()
}

/// A linear layer with `outputs` outputs, laid out as [`Params::flat`] has it: bias, then weights
/// by output.
fn layer(w: &[f64], x: &[f64], outputs: usize) -> Vec<f64> {
    let one = |o: usize| {
        let weights = &w[outputs + o * x.len()..];
        w[o] + weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()
    };
    (0..outputs).map(one).collect()
}

/// The last layer of a model.
fn head(w: &[f64]) -> &[f64] {
    &w[WIDTH + 2 * WIDTH..]
}

fn probabilities(scores: Vec<f64>) -> Vec<f64> {
    let sum: f64 = scores.iter().map(|s| libm::exp(*s)).sum();
    scores.iter().map(|s| libm::exp(*s) / sum).collect()
}

fn normal(n: usize, stream: &Stream) -> Vec<Vec<f64>> {
    let mut draws = stream.child("noise", 0).draws();
    let mut one = || f64::from(draws.normal() as f32);
    (0..n)
        .map(|_| (0..NOISE).map(|_| one()).collect())
        .collect()
}

/// What a generator makes of noise for a class.
fn feature(generator: &[f64], noise: &[f64], class: usize) -> Vec<f64> {
    let mut x = noise.to_vec();
    x.extend([0, 1].map(|c| f64::from(u8::from(c == class))));
    layer(generator, &x, WIDTH)
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

/// One step of a client, with what it was shown.
fn client(w: &mut [f64], k: usize, shown: Option<(&[f64], f64)>, stream: &Stream) {
    let pass = FitOptions::new(Length::Steps(1), 100, Loss::CrossEntropy);
    let order = pass.batches(OWN, stream).next().unwrap();
    let rows: Vec<_> = order.iter().map(|i| row(OWN * k + i)).collect();
    let stream = stream.child("step", 0).child("beside", 0);
    let alike = normal(OWN, &stream.child("alike", 0));
    let other = normal(OWN, &stream.child("made", 0));
    let mut draws = stream.child("classes", 0).draws();
    let drawn: Vec<usize> = rows.iter().map(|_| draws.below(2)).collect();
    let before = w.to_vec();
    step(w, 0.2, |w| {
        let mut loss = 0.0;
        for (i, (x, class)) in rows.iter().enumerate() {
            let p = probabilities(layer(head(w), &layer(w, x, WIDTH), 2));
            loss -= libm::log(p[*class]);
            let Some((generator, scale)) = shown else {
                continue;
            };
            // what is made for the class of the example is not taught by it
            let like = feature(generator, &alike[i], *class);
            let q = probabilities(layer(head(&before), &like, 2));
            let kl = q.iter().zip(&p).map(|(q, p)| q * libm::log(q / p));
            loss += scale * KL * kl.sum::<f64>();
            let of = feature(generator, &other[i], drawn[i]);
            let p = probabilities(layer(head(w), &of, 2));
            loss -= scale * CE * libm::log(p[drawn[i]]);
        }
        loss / OWN as f64
    });
}

/// One step of the generator.
fn teach(generator: &mut [f64], models: &[Vec<f64>], stream: &Stream) {
    let count = |k: usize, class: usize| {
        let own = OWN * k..OWN * (k + 1);
        own.filter(|i| row(*i).1 == class).count() as f64
    };
    let mut draws = stream.child("classes", 0).draws();
    let classes: Vec<usize> = (0..BATCH).map(|_| draws.below(2)).collect();
    let noise = normal(BATCH, stream);
    let apart = |a: &[f64], b: &[f64]| {
        let off = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        off.sum::<f64>() / a.len() as f64
    };
    step(generator, 0.3, |generator| {
        let made = noise.iter().zip(&classes);
        let made = made.map(|(noise, class)| feature(generator, noise, *class));
        let made: Vec<_> = made.collect();
        let (mut loss, mut mean) = (0.0, 0.0);
        for (i, class) in classes.iter().enumerate() {
            let all: f64 = (0..CLIENTS).map(|k| count(k, *class)).sum();
            for (k, model) in models.iter().enumerate() {
                let p = probabilities(layer(head(model), &made[i], 2));
                loss -= count(k, *class) / all * libm::log(p[*class]) / BATCH as f64;
            }
            for j in 0..BATCH {
                let both = apart(&made[i], &made[j]) * apart(&noise[i], &noise[j]);
                mean += both / (BATCH * BATCH) as f64;
            }
        }
        loss + DIVERSITY * libm::exp(-mean)
    });
}

fn by_the_box() -> Vec<f64> {
    let mut global = wide(&made(MODEL, task(2, 2), "model").params());
    let mut generator = wide(&made(GENERATOR, task(NOISE + 2, WIDTH), "generator").params());
    for round in 1..=ROUNDS {
        let stream = Stream::root(1).child("round", round as u64);
        let scale = DECAY.powi(round as i32 - 1);
        let shown = (round > 1).then_some((&generator[..], scale));
        let trained = (0..CLIENTS).map(|k| {
            let stream = stream.child("client", k as u64);
            let stream = stream.child("parameters after local training", 0);
            let mut w = global.clone();
            client(&mut w, k, shown, &stream.child("model", 0));
            w
        });
        let models: Vec<Vec<f64>> = trained.collect();
        let mean = |i: usize| models.iter().map(|w| w[i]).sum::<f64>() / CLIENTS as f64;
        global = (0..global.len()).map(mean).collect();
        for at in 0..STEPS {
            teach(
                &mut generator,
                &models,
                &stream.child("generator", at as u64),
            );
        }
    }
    global
}

#[test]
fn close_fedgen_is_the_papers_box() {
    close(&ends_with(), &by_the_box());
}
