//! Eq. 1 and 2: an ensemble in which a client counts for a class as much as it has seen of it.
use fl_core::Problem;
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
fn spread(counts: &[u32], scores: usize) -> Result<Vec<f64>> {
    let classes = counts.len();
    ensure!(
        scores == classes || classes > 0 && scores.is_multiple_of(classes),
        "{scores} scores a sample for {classes} class counts"
    );
    let all = counts.iter().map(|n| f64::from(*n));
    let each = all.flat_map(|n| std::iter::repeat_n(n, scores / classes.max(1)));
    Ok(each.collect())
}

/// Scores of samples added up, one message at a time, each column with a weight of its own. Clients that speak about fewer
/// samples count for those only.
#[derive(Default)]
struct ScoreSums {
    /// The samples, in the order of the first message.
    rows: Vec<u32>,
    /// Where each stands; empty as long as all speak about the same.
    places: BTreeMap<u32, usize>,
    sums: Vec<f64>,
    /// What the sums weigh: of each column, or of each sample and column once there are `places`.
    masses: Vec<f64>,
}

impl ScoreSums {
    fn add(&mut self, scores: &Logits, weights: &[f64]) -> Result<()> {
        let width = weights.len();
        if self.masses.is_empty() {
            self.rows.clone_from(&scores.rows);
            self.sums = vec![0.0; self.rows.len() * width];
            self.masses = vec![0.0; width];
        }
        let held = if self.places.is_empty() {
            1
        } else {
            self.rows.len()
        };
        ensure!(
            scores.values.ncols() == width && self.masses.len() == held * width,
            Problem::Shape("scores of another number of classes than those before".into())
        );
        let add = |(sum, (z, w)): (&mut f64, (&f32, &f64))| *sum += w * f64::from(*z);
        if self.places.is_empty() && self.rows == scores.rows {
            for (sums, row) in self.sums.chunks_exact_mut(width).zip(scores.values.rows()) {
                sums.iter_mut().zip(row.iter().zip(weights)).for_each(add);
            }
            self.masses
                .iter_mut()
                .zip(weights)
                .for_each(|(m, w)| *m += w);
            return Ok(());
        }
        if self.places.is_empty() {
            let rows = self.rows.iter().enumerate();
            self.places = rows.map(|(at, id)| (*id, at)).collect();
            self.masses = self.masses.repeat(self.rows.len());
        }
        for (id, row) in scores.rows.iter().zip(scores.values.rows()) {
            let at = *self.places.entry(*id).or_insert_with(|| {
                self.rows.push(*id);
                self.sums.resize(self.sums.len() + width, 0.0);
                self.masses.resize(self.masses.len() + width, 0.0);
                self.rows.len() - 1
            });
            let here = at * width..(at + 1) * width;
            let sums = self.sums[here.clone()].iter_mut();
            sums.zip(row.iter().zip(weights)).for_each(add);
            let masses = self.masses[here].iter_mut();
            masses.zip(weights).for_each(|(m, w)| *m += w);
        }
        Ok(())
    }

    /// The mean of each sample and column, 0 where nothing weighs; `instead` is asked for columns of which nothing weighs in
    /// any sample.
    fn mean(&self, width: usize, instead: impl Fn(usize, usize) -> f64) -> Result<Logits> {
        let mass = |row: usize, column: usize| match self.places.is_empty() {
            true => self.masses[column],
            false => self.masses[row * width + column],
        };
        let held = self.masses.chunks_exact(width.max(1));
        let weighs = |c: usize| held.clone().any(|masses| masses[c] > 0.0);
        let weighs: Vec<bool> = (0..width).map(weighs).collect();
        let value = |row: usize, column: usize| match (weighs[column], mass(row, column)) {
            (false, _) => instead(row, column) as f32,
            (true, m) if m > 0.0 => (self.sums[row * width + column] / m) as f32,
            (true, _) => 0.0,
        };
        // each once, ascending, if they are not those of the first message
        let order: Vec<usize> = match self.places.is_empty() {
            true => (0..self.rows.len()).collect(),
            false => self.places.values().copied().collect(),
        };
        let values = order
            .iter()
            .flat_map(|row| (0..width).map(|c| value(*row, c)));
        let values = Array2::from_shape_vec((order.len(), width), values.collect())?;
        Ok(Logits::new(
            order.iter().map(|row| self.rows[*row]).collect(),
            values,
        ))
    }
}

/// An ensemble in progress.
struct EnsembleFold {
    /// With the weights of class counts; `None`: every client counts alike.
    weighted: Option<(ScoreSums, ZeroClass)>,
    plain: ScoreSums,
    width: usize,
}

impl EnsembleFold {
    fn new(zero: Option<ZeroClass>) -> Box<Self> {
        Box::new(Self {
            weighted: zero.map(|zero| (ScoreSums::default(), zero)),
            plain: ScoreSums::default(),
            width: 0,
        })
    }
}

impl Fold<Logits, Logits> for EnsembleFold {
    fn add(&mut self, mail: Mail<Logits>) -> Result<()> {
        self.width = mail.body.values.ncols();
        let zero = self.weighted.as_ref().map(|(_, zero)| zero);
        if zero.is_none_or(|zero| *zero == ZeroClass::Uniform) {
            self.plain.add(&mail.body, &vec![1.0; self.width])?;
        }
        if let Some((sums, _)) = &mut self.weighted {
            let counts = mail.class_counts.as_deref();
            let counts = counts.context("class counts must come with every answer")?;
            sums.add(&mail.body, &spread(counts, self.width)?)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Logits> {
        let width = self.width;
        let plain = |sums: &ScoreSums| sums.mean(width, |_, _| 0.0);
        match &self.weighted {
            None => plain(&self.plain),
            Some((sums, ZeroClass::Zero)) => plain(sums),
            Some((sums, ZeroClass::Uniform)) => {
                // both were given the same samples
                let uniform = &self.plain;
                sums.mean(width, |row, column| {
                    let mass = match uniform.places.is_empty() {
                        true => uniform.masses[column],
                        false => uniform.masses[row * width + column],
                    };
                    uniform.sums[row * width + column] / mass
                })
            }
        }
    }
}

/// What folding the inbox gives.
fn folded(mut fold: Box<dyn Fold<Logits, Logits>>, inbox: &Inbox<Logits>) -> Result<Logits> {
    inbox.iter().try_for_each(|mail| fold.add(mail.clone()))?;
    fold.finish()
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
        folded(EnsembleFold::new(Some(self.zero_class.clone())), inbox)
    }
    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Logits, Logits>>> {
        Some(EnsembleFold::new(Some(self.zero_class.clone())))
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
        folded(EnsembleFold::new(None), inbox)
    }
    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Logits, Logits>>> {
        Some(EnsembleFold::new(None))
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
    fn close_the_fold_is_the_papers_sum() {
        let scores = [
            array![[4.0_f32, -1.5], [0.25, 3.0]],
            array![[1.0, 7.0], [-2.0, 0.1]],
        ];
        let counts = [vec![3, 7], vec![5, 1]];
        let mail = |k: usize| (vec![4, 2], scores[k].clone(), counts[k].clone());
        let weights = class_weights(&counts, &ZeroClass::Uniform);
        let due = weighted_sum(&[scores[0].view(), scores[1].view()], &weights);
        let found = answer(&inbox([mail(0), mail(1)]));
        assert_eq!(found.rows, [4, 2]);
        for (found, due) in found.values.iter().zip(&due) {
            assert!((f64::from(*found) - due).abs() < 1e-6, "{found} {due}");
        }
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
