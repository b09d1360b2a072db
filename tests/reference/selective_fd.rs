//! Selective-FD: the density ratio, its threshold and masks, the server's choice.

use crate::replay::{Inputs, Op, number, rows, table};
use anyhow::{Context, Result};
use fl_plugin_sample_selectors::{
    Method, Ratios, Unambiguous, accept, accept_any, ambiguity, quantile,
};
use ndarray::Array2;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("kulsif", kulsif),
    ("quantile_threshold", |i| {
        let w: Vec<f64> = i.get("validation_ratios")?;
        let t = quantile(&w, i.get("tau_client")?).context("no ratios")?;
        Ok(json!({ "threshold": t }))
    }),
    ("accept_mask", |i| {
        let (w, t, strict): (Vec<f64>, f64, bool) =
            (i.get("w")?, i.get("threshold")?, i.get("strict")?);
        let mask: Vec<bool> = w.into_iter().map(|w| accept(w, t, strict)).collect();
        Ok(json!({ "mask": mask }))
    }),
    ("accept_mask_any", |i| {
        // estimators x samples
        let w: Array2<f64> = i.table("w")?;
        let (t, strict): (Vec<f64>, bool) = (i.get("thresholds")?, i.get("strict")?);
        let of_sample = w.columns().into_iter();
        let mask: Vec<bool> = of_sample.map(|w| accept_any(w, &t, strict)).collect();
        Ok(json!({ "mask": mask }))
    }),
    ("server_selector", |i| {
        let h: Vec<Vec<f64>> = i.get("ensemble")?;
        let at_most = i.get("tau_server")?;
        let l1: Vec<f64> = h.iter().map(|h| ambiguity(h.iter().copied())).collect();
        let keep: Vec<bool> = l1
            .iter()
            .map(|l1| {
                Unambiguous {
                    max_distance: at_most,
                }
                .keeps(*l1)
            })
            .collect();
        let label = fl_core::metrics::classes(table(&h)?.view());
        let n_kept = keep.iter().filter(|keep| **keep).count();
        Ok(json!({ "l1": l1, "label": label, "keep": keep, "n_kept": n_kept }))
    }),
];

fn kulsif(i: &Inputs<'_>) -> Result<Value> {
    let (u, s, x): (Array2<f64>, Array2<f64>, Array2<f64>) =
        (i.table("U")?, i.table("S")?, i.table("X")?);
    let (sigma, beta): (f64, f64) = (i.get("sigma")?, i.get("beta")?);
    let fit = |method| Ratios::fit(u.view(), &[s.view()], sigma, beta, method);
    let alpha = |ratios: &Ratios<f64>| -> Value {
        let all = ratios.coefficients().row(0).to_vec();
        all.iter().take(u.nrows()).map(|a| number(*a)).collect()
    };
    let w = |ratios: &Ratios<f64>| {
        Ok::<_, anyhow::Error>(rows(&ratios.of(x.view())?.t().to_owned())[0].clone())
    };
    let (exact, official) = (fit(Method::Exact)?, fit(Method::Official)?);
    // `1/(2 n_u) sum_U w^2 - 1/n_s sum_S w + beta/2 |w|^2`; the centres are `U` and then `S`
    let at = |points: &Array2<f64>| {
        Ok::<_, anyhow::Error>(exact.of(points.view())?.column(0).to_owned())
    };
    let (of_u, of_s) = (at(&u)?, at(&s)?);
    let both = of_u.iter().chain(&of_s);
    let norm: f64 = exact
        .coefficients()
        .iter()
        .zip(both)
        .map(|(c, w)| c * w)
        .sum();
    let mean_square = of_u.dot(&of_u) / u.nrows() as f64;
    let objective = 0.5 * mean_square - of_s.mean().unwrap_or_default() + 0.5 * beta * norm;
    Ok(json!({
        "alpha": alpha(&exact),
        "w": w(&exact)?,
        "objective": objective,
        "official_variant_alpha": alpha(&official),
        "official_variant_w": w(&official)?,
    }))
}
