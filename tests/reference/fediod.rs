//! FedIOD: weights, terms of the losses, scores of made inputs.

use crate::replay::{Inputs, Op, number, rows};
use anyhow::{Result, ensure};
use fl_core::loss::{self, Aim};
use fl_core::{Loss, settings::read_yaml};
use fl_plugin_fediod::{
    Classes, ClientAnswers, Ensemble, Game, GenerateAndDistill, Importance, Inception, Objective,
    Weights, confidence, entropy, frechet, generated, importance, jensen_shannon, mimic, mixture,
    odds, published, shares, unique,
};
use ndarray::{Array1, Array2, ArrayView1};
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("entropy", |i| {
        let p = i.table::<f64>("p")?;
        Ok(json!({ "H": list(p.rows().into_iter().map(entropy)) }))
    }),
    ("softmax", |i| {
        let (mut z, tau) = (i.table::<f64>("z")?, i.get("tau")?);
        for mut row in z.rows_mut() {
            loss::softmax(row.as_slice_mut().expect("a fresh table"), tau);
        }
        Ok(json!({ "p": rows(&z) }))
    }),
    ("jsd", |i| {
        let (q, pi) = (tables(i, "q")?, i.get::<Vec<f64>>("pi")?);
        Ok(json!({ "mixture": rows(&mixture(&q, &pi)), "jsd": list(jensen_shannon(&q, &pi)) }))
    }),
    ("importance_weights", |i| {
        let (prior, d, real) = known(i)?;
        let (raw, weights) = importance(&prior, &d, &real);
        Ok(json!({ "pi_hat": clients(&raw), "pi": clients(&weights) }))
    }),
    ("importance_aggregate", aggregate),
    ("patch_mean", |i| {
        let patches = i.get::<Vec<Vec<Vec<f64>>>>("patches")?;
        let mean = |of: &Vec<Vec<f64>>| {
            let scores = Array2::from_shape_fn((1, of.concat().len()), |(_, j)| {
                let p = of.concat()[j];
                libm::log(p / (1.0 - p))
            });
            loss::sigmoid(odds(scores.view())[0])
        };
        Ok(json!({ "d": list(patches.iter().map(mean)) }))
    }),
    ("losses", losses),
    ("gan_bce", bce),
    ("code_yxdiv", |i| {
        Ok(json!({ "value": number(published(&tables(i, "client_logits")?, 1.0).0) }))
    }),
    ("inception_score", |i| {
        let p = i.table::<f64>("p")?;
        let mut score = Inception::default();
        // in two batches, as in a run
        let (first, rest) = p.view().split_at(ndarray::Axis(0), 1);
        score.add(first);
        score.add(rest);
        Ok(json!({ "score": number(score.score()) }))
    }),
    ("frechet_distance", |i| {
        ensure!(
            i.get::<usize>("covariance_ddof")? == 1,
            "another covariance"
        );
        let (x, y) = (i.table::<f64>("x")?, i.table::<f64>("y")?);
        Ok(json!({ "fid": number(frechet(x.view(), y.view())) }))
    }),
];

fn list(of: impl IntoIterator<Item = f64>) -> Value {
    of.into_iter().map(number).collect()
}

fn clients(of: &[Array2<f64>]) -> Value {
    of.iter().map(rows).collect()
}

/// One table for each client.
fn tables(i: &Inputs<'_>, key: &str) -> Result<Vec<Array2<f64>>> {
    let all: Vec<Vec<Vec<f64>>> = i.get(key)?;
    all.iter().map(|rows| crate::replay::table(rows)).collect()
}

fn lists(i: &Inputs<'_>, key: &str) -> Result<Vec<Array1<f64>>> {
    let all: Vec<Vec<f64>> = i.get(key)?;
    Ok(all.into_iter().map(Array1::from).collect())
}

fn classes(i: &Inputs<'_>) -> Result<Classes> {
    Ok(match i.get::<String>("mode")?.as_str() {
        "proportions" => Classes::Proportions,
        _ => Classes::Counts,
    })
}

type Known = (Vec<Array1<f64>>, Vec<Array1<f64>>, Vec<f64>);

/// `P_k(c)`, `D_k(x)` and the mean `D_k` of real inputs.
fn known(i: &Inputs<'_>) -> Result<Known> {
    let counts: Vec<Vec<u32>> = i.get("counts")?;
    Ok((
        shares(&counts, &classes(i)?),
        lists(i, "d")?,
        i.get("d_mean_real")?,
    ))
}

fn aggregate(i: &Inputs<'_>) -> Result<Value> {
    let (prior, d, real) = known(i)?;
    let logits = tables(i, "logits")?;
    let odds: Vec<_> = d
        .iter()
        .map(|d| d.mapv(|d| libm::log(d / (1.0 - d))))
        .collect();
    let how = Weights::Importance(Importance {
        classes: classes(i)?,
        discriminator: true,
    });
    let sizes = vec![0.0; logits.len()];
    let ensemble = Ensemble::new(&how, &prior, &sizes, (&odds, &real), logits[0].dim());
    Ok(json!({ "z_bar": rows(&ensemble.of(&logits)) }))
}

fn losses(i: &Inputs<'_>) -> Result<Value> {
    ensure!(
        i.get::<String>("ensemble")? == "size_weights",
        "another ensemble"
    );
    let (scores, student) = (
        tables(i, "client_logits")?,
        i.table::<f64>("student_logits")?,
    );
    let (sizes, tau): (Vec<u32>, f64) = (i.get("n_samples")?, i.get("tau")?);
    let (real, made) = (lists(i, "d_real")?, lists(i, "d_fake")?);
    let all = |yaml: &str| {
        read_yaml::<GenerateAndDistill>(&format!("{{tau: {tau}, weights: sizes, {yaml}}}"))
    };
    let said = ClientAnswers {
        scores: scores.clone(),
        odds: made
            .iter()
            .map(|d| d.mapv(|d| libm::log(d / (1.0 - d))))
            .collect(),
        real: real.iter().map(|d| d.mean().unwrap_or_default()).collect(),
    };
    let told = |yaml: &str| -> Result<_> {
        let of = all(yaml)?;
        let objective = Objective::new(&of, &sizes.iter().map(|n| vec![*n]).collect::<Vec<_>>());
        let wanted = objective.wanted(&said);
        let value = mimic(&of.mimic, &student, &wanted.target).0;
        Ok((value, objective.of(&said, &wanted, &student, false).value))
    };
    let total: u32 = sizes.iter().sum();
    let pi: Vec<f64> = sizes
        .iter()
        .map(|n| f64::from(*n) / f64::from(total))
        .collect();
    let pairs = real.iter().zip(&made).zip(&pi);
    let gans: Vec<f64> = pairs
        .map(|((r, m), pi)| {
            // `L_gan^k = pi_k mean D_k(real) + mean (1 - D_k(made))` (Eq. 2)
            pi * r.mean().unwrap_or_default()
                + m.iter().map(|d| 1.0 - d).sum::<f64>() / m.len().max(1) as f64
        })
        .collect();
    let (squared, objective) = told("game: linear")?;
    // the run's loss is without the terms of real inputs, which do not depend on the generator
    let of_real: f64 = real
        .iter()
        .zip(&pi)
        .map(|(r, pi)| pi * r.mean().unwrap_or_default())
        .sum();
    Ok(json!({
        "pi": list(pi.clone()),
        "L_conf": number(confidence(&scores, &pi, tau).0),
        "L_unique": number(unique(&scores, &pi, tau).0),
        "L_gan": list(gans),
        "L_mimic_squared_l2": number(squared),
        "L_mimic_l1_mean": number(told("mimic: absolute")?.0),
        "KL_mean": number(told("mimic: kl")?.0),
        "generator_objective": number(objective - of_real),
    }))
}

/// The case has the published code's scores, high for real inputs: ours with the other sign.
/// `inputs x clients`.
fn bce(i: &Inputs<'_>) -> Result<Value> {
    let (made, real) = (
        -i.table::<f64>("fake_logits")?,
        -i.table::<f64>("real_logits")?,
    );
    let cross = |score: f64, label: i8| -> Result<f64> {
        Ok(loss::of_sample(
            Loss::CrossEntropy,
            Aim::MultiLabel(&[label]),
            &[score],
            &mut [0.0],
        )?
        .0)
    };
    let each = |of: &Array2<f64>, label| -> Result<Array2<f64>> {
        let values = of
            .iter()
            .map(|s| cross(*s, label))
            .collect::<Result<Vec<f64>>>()?;
        Ok(Array2::from_shape_vec(of.dim(), values)?)
    };
    let (of_made, of_real) = (each(&made, 1)?, each(&real, 0)?);
    let column = |of: ArrayView1<'_, f64>| of.to_owned();
    let odds: Vec<Array1<f64>> = made.columns().into_iter().map(column).collect();
    // a discriminator's batch is half made, half real
    let both = of_made.sum() + of_real.sum();
    Ok(json!({
        "d_loss": number(both / (2 * made.nrows()) as f64),
        "g_loss": number(generated(&odds, &vec![1.0; odds.len()], &Game::NonSaturating).0),
        "bce_fake_0": rows(&of_made),
        "bce_real_1": rows(&of_real),
    }))
}
