//! Methods that exchange parameters.

use crate::replay::{Inputs, Op, number};
use anyhow::{Context, Result, ensure};
use fl_core::message::Params;
use fl_core::settings::read_yaml;
use fl_core::{Aggregator, ClientMessage, Inbox, Round, pulled, weighted_mean_f64};
use fl_plugin_averaging::Mean;
use fl_plugin_clustered_rounds::em;
use fl_plugin_param_rounds::scaffold;
use fl_plugin_server_optimisers::{FedAvgM, Rule, ServerOptimiser};
use ndarray::ArrayD;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("fedavg", fedavg),
    ("fedavgm", fedavgm),
    ("fedprox", fedprox),
    ("fedprox_trajectory", fedprox_trajectory),
    ("scaffold_round", scaffold_round),
    ("fesem_em", fesem_em),
];

fn numbers(all: &[f64]) -> Value {
    all.iter().map(|x| number(*x)).collect()
}

fn lists(all: &[Vec<f64>]) -> Value {
    all.iter().map(|x| numbers(x)).collect()
}

/// The mean that every aggregator of these takes.
fn mean(sent: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let sent: Vec<&[f64]> = sent.iter().map(Vec::as_slice).collect();
    weighted_mean_f64(&sent, weights)
}

fn params(numbers: &[f64]) -> Result<Params> {
    let numbers: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
    let tensor = ArrayD::from_shape_vec(vec![numbers.len()], numbers)?;
    Ok(Params([("w".to_string(), tensor)].into()))
}

/// The cases ask for twelve digits and parameters have seven. So the aggregator `mean` must give
/// the bits of its own loop in f64, rounded, and that loop must meet the case.
fn fedavg(i: &Inputs<'_>) -> Result<Value> {
    let (sent, samples): (Vec<Vec<f64>>, Vec<f64>) = (i.get("weights")?, i.get("n_samples")?);
    let mean = |sent: &[Vec<f64>]| {
        weighted_mean_f64(
            &sent.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            &samples,
        )
    };

    let narrow: Vec<Vec<f32>> = sent
        .iter()
        .map(|w| w.iter().map(|x| *x as f32).collect())
        .collect();
    let mail = narrow.iter().zip(&samples).enumerate().map(|(k, (w, n))| {
        let tensor = ArrayD::from_shape_vec(vec![w.len()], w.clone())?;
        Ok(ClientMessage::new(
            k as u32,
            *n,
            Params([("w".to_string(), tensor)].into()),
        ))
    });
    let mut aggregator: Mean = read_yaml("{weigh: samples}")?;
    let out = aggregator.aggregate(&Round::first(), &Inbox::new(mail.collect::<Result<_>>()?)?)?;
    let out = out.0.get("w").context("the aggregator gave no `w`")?;
    let wide: Vec<Vec<f64>> = narrow
        .iter()
        .map(|w| w.iter().map(|x| f64::from(*x)).collect())
        .collect();
    let rounded: Vec<f32> = mean(&wide).into_iter().map(|x| x as f32).collect();
    ensure!(
        out.iter().eq(&rounded),
        "the aggregator gives {out}, its loop {rounded:?}"
    );

    Ok(json!({ "w": mean(&sent).into_iter().map(number).collect::<Value>() }))
}

/// The rule in 64 bits meets the case, and the aggregator, which is sent what it gave, walks beside
/// it.
fn fedavgm(i: &Inputs<'_>) -> Result<Value> {
    let (mut w, rounds): (Vec<f64>, Vec<Value>) = (i.get("w0")?, i.get("rounds")?);
    let settings = format!(
        "{{beta: {}, lr: {}}}",
        i.get::<f64>("beta")?,
        i.get::<f64>("server_lr")?
    );
    let rule: FedAvgM = read_yaml(&settings)?;
    let mut part = ServerOptimiser::from(read_yaml::<FedAvgM>(&settings)?);
    let mut kept = vec![rule.start(); w.len()];
    let (mut walked, mut speeds, mut at) = (Vec::new(), Vec::new(), params(&w)?);
    for round in &rounds {
        let round = Inputs(round);
        let (sent, samples): (Vec<Vec<f64>>, Vec<f64>) =
            (round.get("client_weights")?, round.get("n_samples")?);
        let mean = mean(&sent, &samples);
        for ((w, mean), kept) in w.iter_mut().zip(&mean).zip(&mut kept) {
            *w = rule.step(*w, *mean, kept);
        }
        let mail = sent.iter().zip(&samples).enumerate();
        let mail = mail.map(|(k, (w, n))| Ok(ClientMessage::new(k as u32, *n, params(w)?)));
        at = part.aggregate(
            &Round::first().showing(at),
            &Inbox::new(mail.collect::<Result<_>>()?)?,
        )?;
        let beside = at
            .iter()
            .zip(&w)
            .all(|(a, w)| (f64::from(*a) - w).abs() < 1e-5);
        ensure!(beside, "the aggregator is at {at:?}, its rule at {w:?}");
        walked.push(w.clone());
        speeds.push(kept.iter().map(|[v, _]| *v).collect());
    }
    Ok(json!({ "w": lists(&walked), "v": lists(&speeds) }))
}

/// A step of plain gradient descent.
fn step(w: f64, gradient: f64, lr: f64) -> f64 {
    w - lr * gradient
}

/// Runs do not compute the term's loss, so it is computed here.
fn fedprox(i: &Inputs<'_>) -> Result<Value> {
    let (w, anchor, task): (Vec<f64>, Vec<f64>, Vec<f64>) =
        (i.get("w")?, i.get("w_global")?, i.get("task_gradient")?);
    let (mu, lr): (f64, f64) = (i.get("mu")?, i.get("lr")?);
    let all = w.iter().zip(&anchor).zip(&task);
    let gradient: Vec<f64> = all.map(|((w, a), g)| pulled(*g, *w, *a, mu)).collect();
    let apart: f64 = w.iter().zip(&anchor).map(|(w, a)| (w - a) * (w - a)).sum();
    let after: Vec<f64> = w
        .iter()
        .zip(&gradient)
        .map(|(w, g)| step(*w, *g, lr))
        .collect();
    Ok(
        json!({ "prox_loss": number(mu / 2.0 * apart), "gradient": numbers(&gradient), "w_after_sgd_step": numbers(&after) }),
    )
}

/// Of the loss `a/2 (w - b)^2`.
fn slope(a: f64, b: f64, w: f64) -> f64 {
    a * (w - b)
}

fn fedprox_trajectory(i: &Inputs<'_>) -> Result<Value> {
    let (anchor, a, b): (Vec<f64>, Vec<f64>, Vec<f64>) =
        (i.get("w_global")?, i.get("a")?, i.get("b")?);
    let (mu, lr, steps): (f64, f64, usize) = (i.get("mu")?, i.get("lr")?, i.get("steps")?);
    let (mut w, mut walked) = (anchor.clone(), Vec::new());
    for _ in 0..steps {
        for (k, w) in w.iter_mut().enumerate() {
            *w = step(*w, pulled(slope(a[k], b[k], *w), *w, anchor[k], mu), lr);
        }
        walked.push(w.clone());
    }
    Ok(json!({ "w": lists(&walked) }))
}

/// Option II: what clients and server do to each number, by the protocol's own functions.
fn scaffold_round(i: &Inputs<'_>) -> Result<Value> {
    let (x, c): (Vec<f64>, Vec<f64>) = (i.get("x")?, i.get("c")?);
    let own: Vec<Vec<f64>> = i.get("c_i")?;
    let (a, b): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (i.get("a")?, i.get("b")?);
    let (steps, sampled): (Vec<usize>, Vec<usize>) = (i.get("steps")?, i.get("sampled")?);
    let (lr, server_lr, clients): (f64, f64, usize) =
        (i.get("local_lr")?, i.get("server_lr")?, i.get("n_clients")?);
    let (mut paths, mut last, mut next, mut changes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for k in &sampled {
        let correction: Vec<f64> = c.iter().zip(&own[*k]).map(|(c, own)| c - own).collect();
        let (mut y, mut path) = (x.clone(), Vec::new());
        for _ in 0..steps[*k] {
            for (at, y) in y.iter_mut().enumerate() {
                *y = step(*y, slope(a[*k][at], b[*k][at], *y) + correction[at], lr);
            }
            path.push(y.clone());
        }
        let control = correction.iter().zip(x.iter().zip(&y));
        let control =
            control.map(|(c, (x, y))| scaffold::control_of_steps(*c, x - y, steps[*k] as f64, lr));
        let control: Vec<f64> = control.collect();
        changes.push(
            control
                .iter()
                .zip(&own[*k])
                .map(|(next, own)| next - own)
                .collect::<Vec<f64>>(),
        );
        paths.push(lists(&path));
        last.push(y);
        next.push(control);
    }
    let equal = vec![1.0; sampled.len()];
    let model = |weights: &[f64]| -> Vec<f64> {
        let combined = mean(&last, weights);
        let both = x.iter().zip(combined);
        both.map(|(x, y)| scaffold::next_model(*x, y, server_lr))
            .collect()
    };
    let change = mean(&changes, &equal);
    let control = c.iter().zip(change);
    let control =
        control.map(|(c, change)| scaffold::next_control(*c, change, sampled.len(), clients));
    let mut out = json!({
        "y": paths,
        "c_i_plus": lists(&next),
        "x_plus": numbers(&model(&equal)),
        "c_plus": numbers(&control.collect::<Vec<_>>()),
    });
    if i.has("n_samples") {
        let samples: Vec<f64> = i.get("n_samples")?;
        let samples: Vec<f64> = sampled.iter().map(|k| samples[*k]).collect();
        out["x_plus_size_weighted_variant"] = numbers(&model(&samples));
        out["c_plus_size_weighted_variant"] = numbers(&mean(&next, &samples));
    }
    Ok(out)
}

/// One E and one M step, and then as many as change anything.
fn fesem_em(i: &Inputs<'_>) -> Result<Value> {
    let (w, mut centres): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (i.get("w")?, i.get("centers")?);
    let points: Vec<&[f64]> = w.iter().map(Vec::as_slice).collect();
    fn views(centres: &[Vec<f64>]) -> Vec<&[f64]> {
        centres.iter().map(Vec::as_slice).collect()
    }
    let maximise = |of: &[usize], centres: &mut Vec<Vec<f64>>| {
        em::recentre(of, centres, |_, members, _| {
            let members: Vec<Vec<f64>> = members.iter().map(|at| w[*at].clone()).collect();
            Ok::<_, anyhow::Error>(mean(&members, &vec![1.0; members.len()]))
        })
    };
    let distances: Vec<Vec<f64>> = points
        .iter()
        .map(|p| centres.iter().map(|c| em::squared_distance(p, c)).collect())
        .collect();
    let of = em::assign(&points, &views(&centres));
    let before = em::objective(&points, &views(&centres), &of);
    let empty: Vec<bool> = (0..centres.len()).map(|j| !of.contains(&j)).collect();
    maximise(&of, &mut centres)?;
    let (new, after) = (
        centres.clone(),
        em::objective(&points, &views(&centres), &of),
    );
    let (mut converged, mut history) = (of.clone(), vec![after]);
    loop {
        let next = em::assign(&points, &views(&centres));
        maximise(&next, &mut centres)?;
        history.push(em::objective(&points, &views(&centres), &next));
        if next == converged {
            break;
        }
        converged = next;
    }
    Ok(json!({
        "squared_distances": lists(&distances),
        "assignment": of,
        "new_centers": lists(&new),
        "empty_cluster": empty,
        "objective_before_m": number(before),
        "objective_after_m": number(after),
        "converged_centers": lists(&centres),
        "converged_assignment": converged,
        "objective_history": numbers(&history),
    }))
}
