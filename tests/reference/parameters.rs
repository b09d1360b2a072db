//! Methods that exchange parameters.

use crate::replay::{Inputs, Op, number};
use anyhow::{Context, Result, ensure};
use fl_core::message::Params;
use fl_core::settings::read_yaml;
use fl_core::{Aggregator, Inbox, Mail, Round, weighted_mean_f64};
use fl_plugin_means::Mean;
use ndarray::ArrayD;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[("fedavg", fedavg)];

/// The cases ask for twelve digits and parameters have seven. So the aggregator `mean` must give the bits of its own loop
/// in f64, rounded, and that loop must meet the case.
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
        Ok(Mail::new(
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
