//! Eq. 1 and 2: an ensemble in which a client counts for a class as much as it has seen of it.
use fl_core::prelude::*;
use ndarray::{Array2, ArrayView2};
use std::collections::BTreeMap;

choices! {
    /// The weights of a class that no client has.
    pub enum ZeroClass {
        /// Every client counts alike.
        Uniform = "uniform",
        /// Nobody counts: the score is 0.
        Zero = "zero",
    }
}

/// Eq. 1: `w[k][c] = N[k][c] / sum_k N[k][c]`, with `counts[k][c]` the examples of class `c` at client `k`.
pub fn class_weights(counts: &[Vec<u32>], zero: &ZeroClass) -> Vec<Vec<f64>> {
    let classes = counts.first().map_or(0, Vec::len);
    let total: Vec<f64> = (0..classes)
        .map(|c| counts.iter().map(|k| f64::from(k[c])).sum())
        .collect();
    let weight = |(n, total): (&u32, &f64)| match zero {
        _ if *total > 0.0 => f64::from(*n) / total,
        ZeroClass::Uniform => 1.0 / counts.len() as f64,
        ZeroClass::Zero => 0.0,
    };
    counts
        .iter()
        .map(|own| own.iter().zip(&total).map(weight).collect())
        .collect()
}

/// Eq. 2 without the noise: `sum_k w[k][c] * z[k][i][c]`, in client order.
pub fn weighted_sum<T: Into<f64> + Copy>(
    scores: &[ArrayView2<'_, T>],
    weights: &[Vec<f64>],
) -> Array2<f64> {
    let mut sum = Array2::zeros(scores[0].dim());
    for (z, w) in scores.iter().zip(weights) {
        for (mut out, row) in sum.rows_mut().into_iter().zip(z.rows()) {
            for ((o, z), w) in out.iter_mut().zip(row).zip(w) {
                *o += w * (*z).into();
            }
        }
    }
    sum
}

/// Where pixels have classes, each class has several scores, and they stand together: all get the weight of the class.
fn spread(weights: Vec<Vec<f64>>, scores: usize) -> Result<Vec<Vec<f64>>> {
    let classes = weights.iter().map(Vec::len).max().unwrap_or_default();
    if scores == classes {
        return Ok(weights);
    }
    ensure!(
        classes > 0 && scores.is_multiple_of(classes),
        "{scores} scores a sample for {classes} class counts"
    );
    let each = |w: Vec<f64>| {
        let all = w.into_iter();
        all.flat_map(|w| std::iter::repeat_n(w, scores / classes))
            .collect()
    };
    Ok(weights.into_iter().map(each).collect())
}

settings! {
    /// Scores of a class weighted by how many examples of it each client has (FedKD, Eq. 1 and 2; Gong et al. 2022).
    pub struct ClassWeighted {
        /// The weights of a class that no client has. The published code divides 0 by 0 there.
        zero_class: ZeroClass = ZeroClass::Uniform;
    }
}

impl Aggregator for ClassWeighted {
    type In = Logits;
    type Out = Logits;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Logits>) -> Result<Logits> {
        let counts = inbox
            .iter()
            .map(|m| m.class_counts.clone())
            .collect::<Option<Vec<_>>>();
        let counts = counts.context("class counts must come with every answer")?;
        let weights = class_weights(&counts, &self.zero_class);
        let scores = inbox.iter().map(|m| m.body.values.ncols()).max();
        combine(inbox, &spread(weights, scores.unwrap_or_default())?)
    }
    fn needs(&self) -> Needs {
        Needs {
            class_counts: true,
            ..Needs::default()
        }
    }
    fn claims(&self) -> Claims {
        Claims {
            order_free: true,
            weight_free: true,
            weight_scale_free: true,
            ..Claims::default()
        }
    }
}
plugin!(aggregator "class-weighted" => ClassWeighted,
    papers: ["Gong et al. 2022"]);

settings! {
    /// The plain mean of the clients' scores (FedMD's consensus, Li and Wang 2019; the first row of
    /// FedKD's Table 2, Gong et al. 2022).
    pub struct MeanLogits {}
}

impl Aggregator for MeanLogits {
    type In = Logits;
    type Out = Logits;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<Logits>) -> Result<Logits> {
        let classes = inbox
            .iter()
            .map(|m| m.body.values.ncols())
            .max()
            .unwrap_or(0);
        combine(
            inbox,
            &vec![vec![1.0 / inbox.len() as f64; classes]; inbox.len()],
        )
    }
    fn claims(&self) -> Claims {
        Claims {
            order_free: true,
            weight_free: true,
            weight_scale_free: true,
            within_hull: true,
        }
    }
}
plugin!(aggregator "mean-logits" => MeanLogits,
    papers: ["Li and Wang 2019", "Gong et al. 2022"]);

/// Combines scores about the same samples. Clients that speak about fewer samples count for those only, and the
/// weights of a sample are scaled up to what its silent clients leave.
fn combine(inbox: &Inbox<Logits>, weights: &[Vec<f64>]) -> Result<Logits> {
    let first = inbox
        .iter()
        .next()
        .map(|m| &m.body.rows)
        .context("an inbox is never empty")?;
    if inbox.iter().all(|m| m.body.rows == *first) {
        let scores: Vec<_> = inbox.iter().map(|m| m.body.values.view()).collect();
        return Ok(Logits::new(
            first.clone(),
            weighted_sum(&scores, weights).mapv(|v| v as f32),
        ));
    }
    let classes = weights[0].len();
    let mut rows: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (mail, w) in inbox.iter().zip(weights) {
        for (id, row) in mail.body.rows.iter().zip(mail.body.values.rows()) {
            let (sum, mass) = rows
                .entry(*id)
                .or_insert_with(|| (vec![0.0; classes], vec![0.0; classes]));
            for (((s, m), z), w) in sum.iter_mut().zip(mass).zip(row).zip(w) {
                *s += w * f64::from(*z);
                *m += w;
            }
        }
    }
    let values = rows.values().flat_map(|(sum, mass)| {
        sum.iter()
            .zip(mass)
            .map(|(s, m)| if *m > 0.0 { (s / m) as f32 } else { 0.0 })
    });
    let values = Array2::from_shape_vec((rows.len(), classes), values.collect())?;
    Ok(Logits::new(rows.into_keys().collect(), values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn inbox(mail: [(Vec<u32>, Array2<f32>, Vec<u32>); 2]) -> Inbox<Logits> {
        let mail = mail
            .into_iter()
            .enumerate()
            .map(|(k, (rows, values, counts))| Mail {
                class_counts: Some(counts),
                ..Mail::new(k as u32, 1.0, Logits::new(rows, values))
            });
        Inbox::new(mail.collect()).unwrap()
    }

    fn answer(inbox: &Inbox<Logits>) -> Logits {
        ClassWeighted {
            zero_class: ZeroClass::Uniform,
        }
        .aggregate(&Round::first(), inbox)
        .unwrap()
    }

    #[test]
    fn they_keep_their_claims() {
        fl_conformance::aggregator(|| ClassWeighted {
            zero_class: ZeroClass::Uniform,
        });
        fl_conformance::aggregator(|| ClassWeighted {
            zero_class: ZeroClass::Zero,
        });
        fl_conformance::aggregator(|| MeanLogits {});
    }

    #[test]
    fn exact_who_has_seen_more_of_a_class_counts_more_for_it() {
        let inbox = inbox([
            (vec![7], array![[4.0, 4.0, 4.0]], vec![3, 0, 0]),
            (vec![7], array![[0.0, 8.0, 0.0]], vec![1, 5, 0]),
        ]);
        assert_eq!(
            answer(&inbox),
            Logits::new(vec![7], array![[3.0, 8.0, 2.0]])
        );
    }

    #[test]
    fn exact_silence_about_a_sample_is_not_a_score_of_zero() {
        let inbox = inbox([
            (vec![1, 2], array![[4.0], [6.0]], vec![1]),
            (vec![2, 3], array![[2.0], [1.0]], vec![3]),
        ]);
        assert_eq!(
            answer(&inbox),
            Logits::new(vec![1, 2, 3], array![[4.0], [3.0], [1.0]])
        );
    }
}
