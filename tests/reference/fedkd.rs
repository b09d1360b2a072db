//! FedKD: class weights, quantisers, the ensemble without its noise, losses, the noise's quantile.

use crate::replay::{Inputs, Op, number, rows, table};
use anyhow::{Context, Result, bail, ensure};
use fl_core::loss::{self, Aim};
use fl_core::{Examples, Inputs as Rows, Labels, Loss, Target, laplace_quantile};
use fl_plugin_fedkd::{Rule, ZeroClass, class_weights, weighted_sum};
use ndarray::Array2;
use serde_json::{Value, json};
use std::sync::Arc;

pub const OPS: &[Op] = &[
    ("class_weights", |i| {
        Ok(json!({ "weights": class_weights(&i.get::<Vec<_>>("counts")?, &zero_class(i)?) }))
    }),
    ("class_counts_single", |i| {
        let classes = i.get("n_classes")?;
        counts(
            i.get::<Vec<Vec<u32>>>("labels")?
                .into_iter()
                .map(|of| Ok(Labels::Classes { of, classes })),
        )
    }),
    ("class_counts_multi", |i| {
        let classes: usize = i.get("n_classes")?;
        let findings = |rows: &Vec<Vec<i8>>| {
            if rows.is_empty() {
                Ok(Labels::Multi(Array2::zeros((0, classes))))
            } else {
                table(rows).map(Labels::Multi)
            }
        };
        counts(i.get::<Vec<Vec<Vec<i8>>>>("labels")?.iter().map(findings))
    }),
    ("quantise", quantise),
    ("noiseless_ensemble", ensemble),
    ("distill_losses", losses),
    ("laplace_inverse_cdf", |i| {
        let gamma: f64 = i.get("gamma")?;
        let u: Vec<f64> = i.get("u")?;
        Ok(
            json!({ "x": u.into_iter().map(|u| number(laplace_quantile(u, 1.0 / gamma))).collect::<Value>() }),
        )
    }),
    ("sigmoid", |i| {
        Ok(json!({ "p": rows(&i.table("z")?.mapv(loss::sigmoid)) }))
    }),
];

fn zero_class(i: &Inputs<'_>) -> Result<ZeroClass> {
    match i.get::<String>("zero_class")?.as_str() {
        "uniform" => Ok(ZeroClass::Uniform),
        "zero" => Ok(ZeroClass::Zero),
        other => bail!("no reading of a class that nobody has is called `{other}`"),
    }
}

/// Examples per class of each client.
fn counts(clients: impl Iterator<Item = Result<Labels>>) -> Result<Value> {
    let of_client = |labels: Result<Labels>| {
        let labels = labels?;
        let rows = Rows::Dense {
            shape: vec![1],
            data: vec![0.0; labels.len()],
        };
        Ok(Examples::all(Arc::new(rows), Arc::new(labels))?.class_counts())
    };
    Ok(json!({ "counts": clients.map(of_client).collect::<Result<Vec<_>>>()? }))
}

fn rule(i: &Inputs<'_>) -> Result<Option<Rule>> {
    match i.get::<String>("rule")?.as_str() {
        "eq4" => Ok(Some(Rule::Eq4)),
        "eq3" => Ok(Some(Rule::Eq3)),
        "official" => Ok(Some(Rule::Official)),
        "none" => Ok(None),
        other => bail!("no quantiser is called `{other}`"),
    }
}

fn peak<'a>(z: impl IntoIterator<Item = &'a f64>) -> f64 {
    z.into_iter().fold(0.0, |m, v| m.max(v.abs()))
}

fn quantise(i: &Inputs<'_>) -> Result<Value> {
    let (z, s): (Vec<f64>, u32) = (i.get("z")?, i.get("S")?);
    let rule = rule(i)?.context("a quantiser is missing")?;
    let z_max = if i.has("z_max") {
        i.get("z_max")?
    } else {
        peak(&z)
    };
    let levels: Vec<i64> = z.iter().map(|z| rule.level(*z, z_max, s)).collect();
    let q: Value = levels
        .iter()
        .map(|level| number(rule.value(*level, z_max, s)))
        .collect();
    Ok(json!({ "q": q, "level": levels }))
}

fn ensemble(i: &Inputs<'_>) -> Result<Value> {
    let logits: Vec<Vec<Vec<f64>>> = i.get("logits")?;
    let mut scores = logits
        .iter()
        .map(|z| table(z))
        .collect::<Result<Vec<_>>>()?;
    let s: u32 = i.get("S")?;
    if let Some(rule) = rule(i)?.filter(|_| s > 0) {
        let all = scores.iter().fold(0.0, |m: f64, z| m.max(peak(z)));
        let scope: String = i.get("zmax_scope")?;
        for z in &mut scores {
            let z_max = match scope.as_str() {
                "global" => all,
                "per_client" => peak(&*z),
                other => bail!("no scope of z_max is called `{other}`"),
            };
            z.mapv_inplace(|z| rule.value(rule.level(z, z_max, s), z_max, s));
        }
    }
    let weights = class_weights(&i.get::<Vec<_>>("counts")?, &zero_class(i)?);
    let views: Vec<_> = scores.iter().map(|z| z.view()).collect();
    Ok(json!({ "z_hat": rows(&weighted_sum(&views, &weights)) }))
}

/// The mean loss and its slope in f64, from what `loss::of_batch` averages; that its f32 agrees is
/// checked on the way.
fn mean(kind: Loss, teacher: &Array2<f64>, student: &Array2<f64>) -> Result<(f64, Array2<f64>)> {
    let (mut sum, mut terms, mut slopes) = (0.0, 0, Array2::zeros(student.dim()));
    for ((t, s), mut slope) in teacher
        .rows()
        .into_iter()
        .zip(student.rows())
        .zip(slopes.rows_mut())
    {
        let slope = slope
            .as_slice_mut()
            .context("a fresh table is contiguous")?;
        let (value, n) = loss::of_sample(kind, Aim::Scores(&t.to_vec()), &s.to_vec(), slope)?;
        sum += value;
        terms += n;
    }
    let n = terms.max(1) as f64;
    let (value, slopes) = (sum / n, slopes / n);
    let narrow = teacher.mapv(|v| v as f32);
    let (in_f32, slopes_in_f32) = loss::of_batch(
        kind,
        Target::Scores(narrow.view()),
        student.mapv(|v| v as f32).view(),
    )?;
    let close = |x: f64, y: f64| (x - y).abs() <= 1e-5 * (1.0 + y.abs());
    let agree = close(in_f32, value)
        && slopes_in_f32
            .iter()
            .zip(&slopes)
            .all(|(x, y)| close(f64::from(*x), *y));
    ensure!(
        agree,
        "{kind:?} of a batch is {in_f32} with slope {slopes_in_f32}, of its samples {value} with {slopes}"
    );
    Ok((value, slopes))
}

fn losses(i: &Inputs<'_>) -> Result<Value> {
    let (teacher, student): (Array2<f64>, Array2<f64>) = (i.table("teacher")?, i.table("student")?);
    let tau: f64 = i.get("tau")?;
    let of = |kind| mean(kind, &teacher, &student);
    let (mae, norm, mse, kl) = (
        of(Loss::Mae)?,
        of(Loss::Norm)?,
        of(Loss::Mse)?,
        of(Loss::Kl { tau })?,
    );
    Ok(json!({
        "l1_mean": number(mae.0), "grad_l1_mean": rows(&mae.1),
        "l2_norm_mean": number(norm.0), "grad_l2_norm_mean": rows(&norm.1),
        "mse_mean": number(mse.0), "grad_mse_mean": rows(&mse.1),
        // a sum over outputs where the mean squared error has a mean
        "sq_l2_mean": number(mse.0 * student.ncols() as f64),
        "kl_batchmean_times_tau2": number(kl.0), "grad_kl_batchmean_times_tau2": rows(&kl.1),
        "kl_batchmean": number(kl.0 / (tau * tau)),
    }))
}
