//! Eq. 1 and 2: an ensemble that weights a client for a class by its share of the examples.
use fl_core::Problem;
use fl_core::prelude::*;
use ndarray::{Array2, ArrayView2};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;

choices! {
    /// The weights of a class that no client has, of those that answer for a sample.
    pub enum ZeroClass {
        /// Equal weights for all clients.
        Uniform = "uniform",
        /// Weight 0 for all clients: the score is 0.
        Zero = "zero",
    }
}

/// Eq. 1: `w[k][c] = N[k][c] / sum_k N[k][c]`, with `counts[k][c]` the examples of class `c` at
/// client `k`.
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

/// Repeats the weights if pixels have classes: a class has several scores, laid out together, and
/// all get its weight.
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

/// Bytes of scores that are combined at once, and that stay in memory until then; the others wait
/// in an unnamed file.
const AT_ONCE: usize = if cfg!(test) { 1 << 10 } else { 32 << 20 };

/// Numbers in their order of arrival, of which few are in memory.
#[derive(Default)]
struct Spool {
    memory: Vec<f32>,
    /// The numbers before those in memory.
    file: Option<File>,
    /// Number of numbers in the file.
    filed: usize,
}

impl Spool {
    fn push(&mut self, numbers: &Array2<f32>) -> Result<()> {
        self.memory.extend(numbers.iter());
        if self.memory.len() * 4 <= AT_ONCE {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile().context("a file for scores")?),
        };
        let bytes: Vec<u8> = self.memory.iter().flat_map(|v| v.to_le_bytes()).collect();
        file.seek(SeekFrom::End(0))?;
        file.write_all(&bytes).context("writing scores")?;
        self.filed += self.memory.len();
        self.memory.clear();
        Ok(())
    }

    /// Reads these numbers, which arrived in one message.
    fn read(&mut self, range: Range<usize>) -> Result<Vec<f32>> {
        let Some(file) = self.file.as_mut().filter(|_| range.start < self.filed) else {
            return Ok(self.memory[range.start - self.filed..range.end - self.filed].to_vec());
        };
        let mut bytes = vec![0; range.len() * 4];
        file.seek(SeekFrom::Start(range.start as u64 * 4))?;
        file.read_exact(&mut bytes).context("reading scores")?;
        let words = bytes.as_chunks::<4>().0.iter();
        Ok(words.map(|word| f32::from_le_bytes(*word)).collect())
    }
}

/// Returns the weight of each client for each column, from the class counts of all that answered.
type Weigh = Box<dyn Fn(&[Option<Vec<u32>>], usize) -> Result<Vec<Vec<f64>>> + Send>;

/// An ensemble in progress. Weights are known only after all answers, so all scores wait, and are
/// combined block by block of samples.
struct EnsembleFold {
    weigh: Weigh,
    zero: ZeroClass,
    counts: Vec<Option<Vec<u32>>>,
    /// The samples of the first answer; those of others only if they differ.
    rows: Vec<Option<Vec<u32>>>,
    columns: usize,
    scores: Spool,
}

impl EnsembleFold {
    fn new(zero: ZeroClass, weigh: Weigh) -> Box<Self> {
        Box::new(Self {
            weigh,
            zero,
            counts: Vec::new(),
            rows: Vec::new(),
            columns: 0,
            scores: Spool::default(),
        })
    }

    fn first(&self) -> &[u32] {
        self.rows.first().and_then(Option::as_deref).unwrap_or(&[])
    }
}

/// The scores of a class for a sample, of the clients that answer for it.
#[derive(Clone, Default)]
struct Cell {
    weighted: f64,
    weights: f64,
    plain: f64,
    clients: f64,
}

impl Cell {
    fn add(&mut self, score: f64, weight: f64) {
        self.weighted += weight * score;
        self.weights += weight;
        self.plain += score;
        self.clients += 1.0;
    }

    fn score(&self, zero: &ZeroClass) -> f32 {
        match zero {
            _ if self.weights > 0.0 => (self.weighted / self.weights) as f32,
            ZeroClass::Uniform => (self.plain / self.clients) as f32,
            ZeroClass::Zero => 0.0,
        }
    }
}

impl Fold<Logits, Logits> for EnsembleFold {
    fn add(&mut self, mail: ClientMessage<Logits>) -> Result<()> {
        let Logits { rows, values, .. } = mail.body;
        Problem::shape_unless(
            self.rows.is_empty() || values.ncols() == self.columns,
            || "scores of another number of classes than those before".into(),
        )?;
        self.columns = values.ncols();
        let same = !self.rows.is_empty() && rows == self.first();
        self.rows.push((!same).then_some(rows));
        self.counts.push(mail.class_counts);
        self.scores.push(&values)
    }

    fn finish(mut self: Box<Self>) -> Result<Logits> {
        ensure!(!self.rows.is_empty(), Problem::NoAnswer(String::new()));
        let (columns, clients) = (self.columns, self.rows.len());
        let weights = (self.weigh)(&self.counts, columns)?;
        let first = self.first().to_vec();
        if self.rows[1..].iter().all(Option::is_none) {
            let block = (AT_ONCE / (4 * clients * columns.max(1))).max(1);
            let mut values = Vec::with_capacity(first.len() * columns);
            for from in (0..first.len()).step_by(block) {
                let to = (from + block).min(first.len());
                let of = |client: usize| {
                    let begin = client * first.len();
                    let range = (begin + from) * columns..(begin + to) * columns;
                    let scores = self.scores.read(range)?;
                    Ok(Array2::from_shape_vec((to - from, columns), scores)?)
                };
                let scores: Vec<Array2<f32>> = (0..clients).map(of).collect::<Result<_>>()?;
                let views: Vec<_> = scores.iter().map(|z| z.view()).collect();
                values.extend(weighted_sum(&views, &weights).iter().map(|v| *v as f32));
            }
            let values = Array2::from_shape_vec((first.len(), columns), values)?;
            return Ok(Logits::new(first, values));
        }
        // a client with fewer samples counts for those only, and the weights of a sample are scaled
        // up to replace those of absent clients
        let mut sums: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
        let mut begin = 0;
        for (rows, w) in self.rows.iter().zip(&weights) {
            let rows = rows.as_deref().unwrap_or(&first);
            let end = begin + rows.len() * columns;
            let scores = self.scores.read(begin..end)?;
            begin = end;
            for (id, row) in rows.iter().zip(scores.chunks(columns.max(1))) {
                let cells = sums
                    .entry(*id)
                    .or_insert_with(|| vec![Cell::default(); columns]);
                for ((cell, z), w) in cells.iter_mut().zip(row).zip(w) {
                    cell.add(f64::from(*z), *w);
                }
            }
        }
        let values = sums.values().flatten().map(|cell| cell.score(&self.zero));
        let values = Array2::from_shape_vec((sums.len(), columns), values.collect())?;
        Ok(Logits::new(sums.into_keys().collect(), values))
    }
}

/// Returns the result of folding the inbox.
fn folded(fold: Option<Box<dyn Fold<Logits, Logits>>>, inbox: &Inbox<Logits>) -> Result<Logits> {
    let mut fold = fold.context("it folds")?;
    inbox.iter().try_for_each(|mail| fold.add(mail.clone()))?;
    fold.finish()
}

settings! {
    /// Scores of a class weighted by each client's number of examples of it (FedKD, Eq. 1 and 2;
    /// Gong et al. 2022).
    pub struct ClassWeighted {
        /// The weights of a class that no client has, of those that answer for a sample. The
        /// published code divides 0 by 0 there.
        zero_class: ZeroClass = ZeroClass::Uniform;
    }
}

impl Aggregator for ClassWeighted {
    type In = Logits;
    type Out = Logits;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Logits>) -> Result<Logits> {
        folded(self.fold(round), inbox)
    }
    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Logits, Logits>>> {
        let zero = self.zero_class.clone();
        let weigh = move |counts: &[Option<Vec<u32>>], scores| {
            let counts: Option<Vec<Vec<u32>>> = counts.iter().cloned().collect();
            let counts = counts.context("class counts must come with every answer")?;
            spread(class_weights(&counts, &zero), scores)
        };
        Some(EnsembleFold::new(self.zero_class.clone(), Box::new(weigh)))
    }
    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            class_counts: true,
            ..RequiredInputs::default()
        }
    }
    fn claims(&self) -> Properties {
        Properties {
            weight_free: true,
            ..Properties::SCALE_FREE
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

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Logits>) -> Result<Logits> {
        folded(self.fold(round), inbox)
    }
    fn fold(&self, _: &Round) -> Option<Box<dyn Fold<Logits, Logits>>> {
        let weigh = |counts: &[Option<Vec<u32>>], scores| {
            Ok(vec![vec![1.0 / counts.len() as f64; scores]; counts.len()])
        };
        Some(EnsembleFold::new(ZeroClass::Uniform, Box::new(weigh)))
    }
    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED
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
            .map(|(k, (rows, values, counts))| ClientMessage {
                class_counts: Some(counts),
                ..ClientMessage::new(k as u32, 1.0, Logits::new(rows, values))
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

    /// Combines scores in files, block by block, for any sizes.
    #[test]
    fn exact_many_scores_are_combined_as_few_are() {
        for (clients, rows) in [(2, 3), (7, 301), (300, 2), (40, 37)] {
            let score = |k: usize, at: usize| (((k * 31 + at * 17) % 97) as f32 - 48.0) / 7.0;
            let scores = (0..clients)
                .map(|k| Array2::from_shape_fn((rows, 2), |(r, c)| score(k, 2 * r + c)));
            let scores: Vec<Array2<f32>> = scores.collect();
            let counts = (0..clients).map(|k| vec![1 + k as u32 % 5, k as u32 % 3]);
            let counts: Vec<Vec<u32>> = counts.collect();
            let mail = scores
                .iter()
                .zip(&counts)
                .enumerate()
                .map(|(k, (z, n))| ClientMessage {
                    class_counts: Some(n.clone()),
                    ..ClientMessage::new(
                        k as u32,
                        1.0,
                        Logits::new((0..rows as u32).collect(), z.clone()),
                    )
                });
            let inbox = Inbox::new(mail.collect()).unwrap();
            let views: Vec<_> = scores.iter().map(|z| z.view()).collect();
            let due = weighted_sum(&views, &class_weights(&counts, &ZeroClass::Uniform));
            assert_eq!(answer(&inbox).values, due.mapv(|v| v as f32));
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

    /// Else a class that all who answer for a sample reject would be its most probable one.
    #[test]
    fn exact_a_class_that_only_silent_clients_have_has_their_place_taken() {
        let all = inbox([
            (vec![1, 2], array![[-9.0, -7.0], [-9.0, -7.0]], vec![5, 0]),
            (vec![2], array![[-3.0, -2.0]], vec![0, 5]),
        ]);
        let due = |first: f32| {
            let values = array![[-9.0, first], [-9.0, -2.0]];
            Logits::new(vec![1, 2], values)
        };
        assert_eq!(answer(&all), due(-7.0));
        let zero_class = ZeroClass::Zero;
        let zero = ClassWeighted { zero_class }.aggregate(&Round::first(), &all);
        assert_eq!(zero.unwrap(), due(0.0));
    }
}
