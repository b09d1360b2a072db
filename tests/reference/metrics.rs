//! How good predictions are.

use crate::replay::{Op, maybe, number};
use anyhow::{Result, ensure};
use fl_core::metrics;
use ndarray::Array2;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("accuracy", |i| {
        let (scores, labels): (Array2<f32>, Vec<u32>) = (i.table("scores")?, i.get("labels")?);
        let top2 = metrics::top_k(scores.view(), &labels, 2);
        Ok(
            json!({ "accuracy": number(metrics::accuracy(scores.view(), &labels)), "top2": number(top2) }),
        )
    }),
    ("auc", |i| {
        let (scores, labels): (Vec<f32>, Vec<i8>) = (i.get("scores")?, i.get("labels")?);
        Ok(json!({ "auc": maybe(metrics::auc(scores, labels)) }))
    }),
    ("mauc", |i| {
        let (each, mean) = metrics::mauc(i.table("scores")?.view(), i.table("labels")?.view());
        let valid = each.iter().flatten().count();
        Ok(
            json!({ "auc": each.into_iter().map(maybe).collect::<Value>(), "mauc": maybe(mean), "n_valid": valid }),
        )
    }),
    ("mean_std", |i| {
        let values: Vec<f64> = i.get("values")?;
        ensure!(!values.is_empty(), "no values");
        let (mean, std) = metrics::mean_std(&values);
        let sample = number(metrics::sample_std(&values));
        Result::Ok(
            json!({ "mean": number(mean), "std_population": number(std), "std_sample": sample }),
        )
    }),
];
