//! Federated distillation: means of labels, robust means, class means, FedDF's teacher; privacy by
//! sampling.

use crate::replay::{Inputs, Op, rows, table};
use anyhow::{Context, Result, bail, ensure};
use fl_core::message::class_means;
use fl_core::privacy::{Composition, Ledger, draws_for, sampled};
use fl_core::{Accountant, PrivacyEvent, loss};
use fl_plugin_accounting::{Nfdp, PricedLedger};
use fl_plugin_class_distill::{Which, agrees, mean_of_classes};
use fl_plugin_co_distill::{RowSums, median, spectral, trimmed};
use fl_plugin_param_rounds::feddf::{TeacherOf, teacher};
use ndarray::{Array2, ArrayView1};
use serde_json::{Value, json};

/// `clients x samples x classes`.
type Tables = Vec<Vec<Vec<f64>>>;

pub const OPS: &[Op] = &[
    ("mean", |i| {
        Ok(json!({ "mean": mean(&i.get::<Tables>("z")?, &[])? }))
    }),
    ("weighted_mean", |i| {
        Ok(json!({ "mean": mean(&i.get::<Tables>("z")?, &i.get::<Vec<f64>>("weights")?)? }))
    }),
    ("era", era),
    ("hard_vote_fractions", |i| {
        let (labels, classes): (Vec<Vec<usize>>, usize) = (i.get("labels")?, i.get("n_classes")?);
        let hot = |l: &usize| (0..classes).map(|c| f64::from(u8::from(c == *l))).collect();
        let tables: Tables = labels
            .iter()
            .map(|of| of.iter().map(hot).collect())
            .collect();
        let fractions = sums(&tables, &[])?.mean(|_| {}, |v| v).1;
        let best = |row: ArrayView1<'_, f64>| (0..classes).find(|c| agrees(*c as u32, row));
        let labels: Vec<_> = fractions.rows().into_iter().map(best).collect();
        Ok(json!({ "fractions": rows(&fractions), "argmax_lowest_index": labels }))
    }),
    ("feddf_teacher", |i| {
        let tables = i.get::<Tables>("z")?;
        let models = tables
            .iter()
            .map(|t| table(t))
            .collect::<Result<Vec<_>>>()?;
        let views: Vec<_> = models.iter().map(|m| m.view()).collect();
        let how = match i.get::<String>("scheme")?.as_str() {
            "avg_logits" => TeacherOf::MeanScores,
            "avg_probs" => TeacherOf::MeanProbabilities,
            other => bail!("no scheme is called `{other}`"),
        };
        let target = teacher(&views, &how, i.get("tau")?);
        Ok(json!({ "avg_logits": mean(&tables, &[])?, "target": rows(&target) }))
    }),
    ("robust_filter", |i| {
        let (mean, kept) = spectral(&i.get::<Vec<Vec<f64>>>("x")?, i.get("eps")?)?;
        Ok(json!({ "mean": mean, "kept": kept }))
    }),
    ("coordinate_median", |i| {
        Ok(json!({ "median": median(&i.get::<Vec<Vec<f64>>>("x")?) }))
    }),
    ("trimmed_mean", |i| {
        Ok(json!({ "mean": trimmed(&i.get::<Vec<Vec<f64>>>("x")?, i.get("beta")?) }))
    }),
    ("class_means", |i| {
        let (outputs, labels): (Tables, Vec<Vec<u32>>) = (i.get("outputs")?, i.get("labels")?);
        let classes: u32 = i.get("n_classes")?;
        let (mut means, mut counts) = (vec![], vec![]);
        for (outputs, labels) in outputs.iter().zip(&labels) {
            let (have, of) = class_means(table(outputs)?.view(), labels)?;
            let count = |c: u32| labels.iter().filter(|l| **l == c).count();
            counts.push((0..classes).map(count).collect::<Vec<_>>());
            means.push(by_class(classes, &have, &of));
        }
        Ok(json!({ "class_means": means, "counts": counts }))
    }),
    ("class_mean_server", |i| {
        let clients: Vec<Vec<Option<Vec<f64>>>> = i.get("class_means")?;
        let mean = server(&clients, &Which::All)?;
        let others = |own: usize| {
            let mut others = clients.clone();
            others[own].fill(None);
            server(&others, &Which::All)
        };
        let each = (0..clients.len()).map(others).collect::<Result<Vec<_>>>()?;
        Ok(json!({ "mean": mean, "leave_one_out": each }))
    }),
    ("class_mean_select", |i| {
        let clients: Vec<Vec<Option<Vec<f64>>>> = i.get("class_means")?;
        let chosen = |c: usize, row: &Vec<f64>| agrees(c as u32, ArrayView1::from(row));
        let selected: Vec<Vec<Option<bool>>> = clients
            .iter()
            .map(|of| {
                of.iter()
                    .enumerate()
                    .map(|(c, row)| row.as_ref().map(|row| chosen(c, row)))
                    .collect()
            })
            .collect();
        Ok(json!({ "selected": selected, "mean": server(&clients, &Which::Agreeing)? }))
    }),
    ("masked_ensemble", |i| {
        let (said, mask): (Tables, Vec<Vec<u8>>) = (i.get("predictions")?, i.get("mask")?);
        let mut sums = RowSums::default();
        for (of, mask) in said.iter().zip(&mask) {
            let speaks: Vec<usize> = (0..of.len()).filter(|at| mask[*at] == 1).collect();
            let ids: Vec<u32> = speaks.iter().map(|at| *at as u32).collect();
            let some: Vec<Vec<f64>> = speaks.iter().map(|at| of[*at].clone()).collect();
            let empty = Array2::zeros((0, of[0].len()));
            let some = if some.is_empty() {
                empty
            } else {
                table(&some)?
            };
            sums.add(1.0, &ids, some.view());
        }
        let (ids, ensemble) = sums.mean(|_| {}, |v| v);
        let n = said[0].len() as u32;
        let accepting = |id: u32| mask.iter().filter(|of| of[id as usize] == 1).count();
        Ok(json!({
            "ensemble": by_class(n, &ids, &ensemble),
            "n_accepting": (0..n).map(accepting).collect::<Vec<_>>(),
        }))
    }),
    ("nfdp_without_replacement", |i| closed_form(i, false)),
    ("nfdp_with_replacement", |i| closed_form(i, true)),
    ("nfdp_k_for_epsilon", |i| {
        Ok(json!({ "k": draws_for(i.get("epsilon")?, i.get("n")?, i.get("replacement")?) }))
    }),
    ("nfdp_rounds", |i| {
        let (n, k, replacement) = (i.get("n")?, i.get("k")?, i.get("replacement")?);
        let draws = if i.get("resample_each_round")? {
            i.get("rounds")?
        } else {
            1
        };
        let (epsilon, delta) = sampled(k, n, replacement);
        let sum = (epsilon * draws as f64, delta * draws as f64);
        let mut books = PricedLedger::from(Nfdp {});
        let public = true;
        let event = PrivacyEvent::Sampled {
            k,
            n,
            public,
            replacement,
        };
        let ledger = Ledger {
            client: Some(0),
            events: vec![event; draws],
        };
        books.merge(&[ledger], Composition::Parallel)?;
        let given = books.guarantee(None)?;
        // a delta of 1 guarantees nothing, and that is what the accountant says
        let expected = if sum.1 < 1.0 {
            sum
        } else {
            (f64::INFINITY, 0.0)
        };
        let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-12 * b.abs();
        ensure!(
            close(given.epsilon, expected.0) && close(given.delta, expected.1),
            "the accountant says {given:?} of {expected:?}"
        );
        Ok(json!({ "epsilon": sum.0, "delta": sum.1 }))
    }),
];

fn closed_form(i: &Inputs<'_>, replacement: bool) -> Result<Value> {
    let (n, k): (usize, Vec<usize>) = (i.get("n")?, i.get("k")?);
    let (epsilon, delta): (Vec<_>, Vec<_>) =
        k.into_iter().map(|k| sampled(k, n, replacement)).unzip();
    Ok(json!({ "epsilon": epsilon, "delta": delta }))
}

/// All clients speak about all samples. Without weights every client counts alike.
fn sums(tables: &[Vec<Vec<f64>>], weights: &[f64]) -> Result<RowSums> {
    let mut sums = RowSums::default();
    for (at, of) in tables.iter().enumerate() {
        let ids: Vec<u32> = (0..of.len() as u32).collect();
        let weight = weights.get(at).copied().unwrap_or(1.0);
        sums.add(weight, &ids, table(of)?.view());
    }
    Ok(sums)
}

fn mean(tables: &[Vec<Vec<f64>>], weights: &[f64]) -> Result<Value> {
    Ok(rows(&sums(tables, weights)?.mean(|_| {}, |v| v).1))
}

fn era(i: &Inputs<'_>) -> Result<Value> {
    let (tables, tau) = (i.get::<Tables>("p")?, i.get("T")?);
    let sums = sums(&tables, &[])?;
    let plain = sums.mean(|_| {}, |v| v).1;
    let era = sums.mean(|row| loss::softmax(row, tau), |v| v).1;
    let entropy = |p: &Array2<f64>| -> Vec<f64> {
        let of = |row: ArrayView1<'_, f64>| {
            let terms = row.iter().filter(|p| **p > 0.0);
            terms.map(|p| -p * libm::log(*p)).sum::<f64>()
        };
        p.rows().into_iter().map(of).collect()
    };
    Ok(json!({
        "mean": rows(&plain), "era": rows(&era),
        "entropy_mean": entropy(&plain), "entropy_era": entropy(&era),
    }))
}

/// Rows of which some may be missing.
type Rows = Vec<Option<Vec<f64>>>;

/// A row for each class or sample, null where there is none.
fn by_class(n: u32, have: &[u32], of: &Array2<f64>) -> Vec<Option<Vec<f64>>> {
    let row = |c: u32| have.binary_search(&c).ok().map(|at| of.row(at).to_vec());
    (0..n).map(row).collect()
}

/// The mean of each class over those clients that have it and count.
fn server(clients: &[Vec<Option<Vec<f64>>>], which: &Which) -> Result<Rows> {
    let classes = clients.first().context("there are no clients")?.len();
    let mut said = Vec::new();
    for of in clients {
        let (have, rows): (Vec<u32>, Vec<Vec<f64>>) = of
            .iter()
            .enumerate()
            .filter_map(|(c, row)| Some((c as u32, row.clone()?)))
            .unzip();
        if !have.is_empty() {
            said.push((have, table(&rows)?));
        }
    }
    let said = said.iter().map(|(have, rows)| (&have[..], rows.view()));
    let (have, mean) = mean_of_classes(said, which);
    Ok(by_class(classes as u32, &have, &mean))
}
