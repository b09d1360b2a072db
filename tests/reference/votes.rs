//! FedKT and PATE: counting votes, who wins, and how many partitions one example can change.

use crate::replay::{Inputs, Op, rows, table};
use anyhow::{Context, Result};
use fl_core::message::Counts;
use fl_plugin_fedkt::{close_votes, confident, consistent_counts, plain_counts, subset_sizes};
use ndarray::Array2;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("vote_counts", |i| {
        let votes = by_row(&i.get::<Vec<Vec<u32>>>("predictions")?)?;
        let c = counts(plain_counts(&[votes.view()], i.get("n_classes")?));
        Ok(json!({ "counts": rows(&c.values), "label": c.winners(), "top2_gap": c.gaps() }))
    }),
    ("consistent_voting", consistent),
    ("argmax", |i| {
        Ok(json!({ "label": counts(i.table("counts")?).winners() }))
    }),
    ("noisy_argmax", |i| {
        let noisy = counts(i.table::<f64>("counts")? + i.table::<f64>("noise")?);
        Ok(json!({ "noisy": rows(&noisy.values), "label": noisy.winners() }))
    }),
    ("subset_sizes", |i| {
        Ok(json!({ "sizes": subset_sizes(i.get("n")?, i.get("t")?) }))
    }),
    ("confident_gnmax", |i| {
        let (clean, noise): (Array2<f64>, Array2<f64>) =
            (i.table("counts")?, i.table("argmax_noise")?);
        let at_threshold: Vec<f64> = i.get("threshold_noise")?;
        let mut at_threshold = at_threshold.into_iter();
        let said = confident(&counts(clean.clone()), i.get("threshold")?, |highest| {
            highest + at_threshold.next().expect("one for each row")
        });
        let winners = counts(clean + noise).winners();
        let labels = said.iter().zip(winners).map(|(said, w)| said.then_some(w));
        Ok(json!({ "label": labels.collect::<Vec<_>>(), "answered": said }))
    }),
    ("theorem9_z", |i| {
        let (parties, most): (Vec<Vec<Vec<f64>>>, f64) = (i.get("top2_gaps")?, i.get("max_gap")?);
        let each: Vec<usize> = parties
            .iter()
            .map(|party| close_votes(party, most))
            .collect();
        Ok(json!({ "z": each.iter().max(), "z_per_party": each }))
    }),
];

/// `voters x rows` as `rows x voters`.
fn by_row(votes: &[Vec<u32>]) -> Result<Array2<u32>> {
    Ok(table(votes)?.reversed_axes())
}

fn counts(values: Array2<f64>) -> Counts {
    Counts::new((0..values.nrows() as u32).collect(), values)
}

fn consistent(i: &Inputs<'_>) -> Result<Value> {
    let (said, classes): (Vec<Vec<Vec<u32>>>, usize) = (i.get("predictions")?, i.get("n_classes")?);
    let parties = said
        .iter()
        .map(|party| by_row(party))
        .collect::<Result<Vec<_>>>()?;
    let views: Vec<_> = parties.iter().map(|p| p.view()).collect();
    let (consistent, plain) = (
        counts(consistent_counts(&views, classes)),
        counts(plain_counts(&views, classes)),
    );
    let students = views.first().context("there are no parties")?.ncols() as f64;
    let sums = consistent
        .values
        .rows()
        .into_iter()
        .map(|row| row.sum() / students);
    Ok(json!({
        "consistent_counts": rows(&consistent.values), "consistent_label": consistent.winners(),
        "plain_counts": rows(&plain.values), "plain_label": plain.winners(),
        "n_consistent_parties": sums.collect::<Vec<_>>(),
    }))
}
