//! [`Criterion`]: judges splits. The contribution of a sample, and every sum, consists of `u64`s
//! with exact sums. A pair packs two 32-bit numbers, of which the lower never overflows into the
//! upper.

use crate::bins::Binned;
use crate::settings::Purity;

/// The best split found so far in a node.
pub struct Best {
    pub feature: usize,
    /// Bins up to this one go left.
    pub bin: usize,
    /// Worth of both sides.
    pub worth: f64,
    /// The sum of the left side; empty if no split was found.
    pub left: Vec<u64>,
}

impl Best {
    /// Starts a search for a split worth more than this.
    pub fn above(worth: f64) -> Self {
        Self {
            feature: 0,
            bin: 0,
            worth,
            left: Vec::new(),
        }
    }

    /// Takes a split that is worth more; on a tie the first stays.
    fn take(&mut self, feature: usize, bin: usize, worth: f64, left: &[u64]) {
        if worth > self.worth {
            (self.feature, self.bin, self.worth) = (feature, bin, worth);
            self.left.clear();
            self.left.extend_from_slice(left);
        }
    }
}

/// Judges splits.
pub trait Criterion {
    /// Returns the `u64`s per sum.
    fn stride(&self) -> usize {
        1
    }

    /// Sums the contributions of samples by bin, feature after feature; `total` is the sum over
    /// all of them. A feature with one bin keeps what is there.
    fn fill(
        &self,
        binned: &Binned,
        features: &[u32],
        samples: (&[u32], &[u64]),
        total: &[u64],
        out: &mut [u64],
    ) {
        fill_pairs(binned, features, samples, total[0], out);
    }

    /// Returns the sum of the contributions of all samples of a node.
    fn total(&self, stats: &[u64]) -> Vec<u64> {
        vec![stats.iter().fold(0, |sum, s| sum.wrapping_add(*s))]
    }

    /// Returns the number of samples, or the curvature, in a sum.
    fn mass(&self, sum: &[u64]) -> f64;

    /// Returns the worth of a sum. A split gains the worth of its two sides minus that of the node.
    fn worth(&self, sum: &[u64]) -> f64;

    /// Returns whether no split can gain anything.
    fn settled(&self, sum: &[u64]) -> bool;

    /// Returns the largest gain below 0 that is rounding, in a node with this sum of these samples;
    /// `None` if they are alike, so that no split can gain anything.
    fn rounding(&self, _sum: &[u64], _stats: &[u64]) -> Option<f64> {
        Some(0.0)
    }

    /// Writes the values of a leaf.
    fn leaf(&self, sum: &[u64], out: &mut Vec<f32>);

    /// Returns the remaining loss of a leaf with this sum.
    fn cost(&self, _sum: &[u64]) -> Cost {
        Cost::default()
    }

    /// Compares every cut of a feature with `best`. Returns false if all samples are in one bin.
    fn scan(&self, feature: usize, histogram: &[u64], node: &Node<'_>, best: &mut Best) -> bool {
        scan_pairs(self, feature, histogram, node, best)
    }
}

/// The rounding of a worth, as a share of the sum of squares of its samples.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

/// Cross-entropy in nats, summed over samples, and their weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub cost: f64,
    pub weight: f64,
}

impl Cost {
    pub fn add(&mut self, other: Self) {
        self.cost += other.cost;
        self.weight += other.weight;
    }

    /// Returns the cost of a leaf with these weights of the classes.
    fn of(weights: impl Iterator<Item = f64> + Clone) -> Self {
        let weight: f64 = weights.clone().sum();
        let each: f64 = weights.map(x_log_x).sum();
        let cost = (x_log_x(weight) - each) * std::f64::consts::LN_2;
        Self { cost, weight }
    }
}

/// A node to split.
pub struct Node<'a> {
    /// The sum of its samples' contributions.
    pub total: &'a [u64],
    /// The least mass of each side.
    pub min_mass: f64,
}

/// Packs two numbers into one.
pub const fn pair(high: i32, low: u32) -> u64 {
    ((high as u32 as u64) << 32) | low as u64
}

/// Returns the upper number of a pair or of a sum of pairs.
pub const fn high(pair: u64) -> i32 {
    (pair >> 32) as u32 as i32
}

/// Returns the lower number.
pub const fn low(pair: u64) -> u32 {
    pair as u32
}

/// Features of two bins that are counted together.
const TOGETHER: usize = 4;

fn fill_pairs(
    binned: &Binned,
    features: &[u32],
    samples: (&[u32], &[u64]),
    total: u64,
    out: &mut [u64],
) {
    let mut place = 0;
    // half the features of the usual tables are binary: where each of some is, and its feature
    let (mut binary, mut waiting) = ([(0, 0); TOGETHER], 0);
    let write = |out: &mut [u64], place: usize, ones: u64| {
        (out[place], out[place + 1]) = (total.wrapping_sub(ones), ones);
    };
    for feature in features {
        let feature = *feature as usize;
        let bins = binned.bins(feature);
        match bins {
            1 => {}
            2 => {
                binary[waiting] = (place, feature);
                waiting += 1;
            }
            _ => {
                // 256 entries, so that a byte needs no check
                let (mut sums, codes) = ([0u64; 256], binned.column(feature));
                for (row, stat) in samples.0.iter().zip(samples.1) {
                    let sum = &mut sums[usize::from(codes[*row as usize])];
                    *sum = sum.wrapping_add(*stat);
                }
                out[place..place + bins].copy_from_slice(&sums[..bins]);
            }
        }
        if waiting == TOGETHER {
            let ones = ones(binary.map(|(_, feature)| binned.column(feature)), samples);
            for ((place, _), ones) in binary.iter().zip(ones) {
                write(out, *place, ones);
            }
            waiting = 0;
        }
        place += bins;
    }
    for (place, feature) in &binary[..waiting] {
        let [ones] = ones([binned.column(*feature)], samples);
        write(out, *place, ones);
    }
}

/// Returns the sums of the samples in bin 1 of features of two bins. No memory is written, no
/// branch is taken, and samples are read once for all of the features.
fn ones<const K: usize>(columns: [&[u8]; K], (rows, stats): (&[u32], &[u64])) -> [u64; K] {
    let mut ones = [0u64; K];
    for (row, stat) in rows.iter().zip(stats) {
        for (ones, codes) in ones.iter_mut().zip(&columns) {
            *ones = ones.wrapping_add(stat & u64::from(codes[*row as usize]).wrapping_neg());
        }
    }
    ones
}

fn scan_pairs<C: Criterion + ?Sized>(
    criterion: &C,
    feature: usize,
    histogram: &[u64],
    node: &Node<'_>,
    best: &mut Best,
) -> bool {
    let (total, mut left, mut parts) = (node.total[0], 0u64, 0);
    for (bin, sum) in histogram.iter().enumerate() {
        // an empty bin does not move the cut
        if *sum == 0 {
            continue;
        }
        parts += 1;
        left = left.wrapping_add(*sum);
        let right = total.wrapping_sub(left);
        if right == 0 {
            break;
        }
        let (l, r) = (criterion.mass(&[left]), criterion.mass(&[right]));
        if l >= node.min_mass && r >= node.min_mass {
            let worth = criterion.worth(&[left]) + criterion.worth(&[right]);
            best.take(feature, bin, worth, &[left]);
        }
    }
    parts > 1
}

/// Two classes: a pair of samples of class 1 and of class 0.
pub struct TwoClasses {
    pub purity: Purity,
    /// Weight of a sample of each class.
    pub weights: [f64; 2],
}

impl TwoClasses {
    fn weights(&self, sum: &[u64]) -> [f64; 2] {
        [
            f64::from(low(sum[0])) * self.weights[0],
            f64::from(high(sum[0])) * self.weights[1],
        ]
    }
}

impl Criterion for TwoClasses {
    fn mass(&self, sum: &[u64]) -> f64 {
        f64::from(low(sum[0])) + f64::from(high(sum[0]))
    }

    fn worth(&self, sum: &[u64]) -> f64 {
        let [a, b] = self.weights(sum);
        match self.purity {
            Purity::Gini => (a * a + b * b) / (a + b),
            Purity::Entropy => x_log_x(a) + x_log_x(b) - x_log_x(a + b),
        }
    }

    fn settled(&self, sum: &[u64]) -> bool {
        low(sum[0]) == 0 || high(sum[0]) == 0
    }

    fn leaf(&self, sum: &[u64], out: &mut Vec<f32>) {
        shares(self.weights(sum).into_iter(), out);
    }

    fn cost(&self, sum: &[u64]) -> Cost {
        Cost::of(self.weights(sum).into_iter())
    }
}

/// Returns each class's share; equal shares if a bootstrap drew only samples of weight 0.
fn shares(weights: impl ExactSizeIterator<Item = f64> + Clone, out: &mut Vec<f32>) {
    let (all, even) = (weights.clone().sum::<f64>(), 1.0 / weights.len() as f64);
    out.extend(weights.map(|w| if all > 0.0 { w / all } else { even } as f32));
}

fn x_log_x(x: f64) -> f64 {
    if x > 0.0 { x * libm::log2(x) } else { 0.0 }
}

/// Any number of classes: a sample is a pair of its class and its count, a sum has an entry for
/// each class.
pub struct ManyClasses {
    pub purity: Purity,
    /// Weight of a sample of each class.
    pub weights: Vec<f64>,
}

impl ManyClasses {
    fn weights(&self, sum: &[u64]) -> impl ExactSizeIterator<Item = f64> + Clone {
        sum.iter().zip(&self.weights).map(|(n, w)| *n as f64 * w)
    }
}

impl Criterion for ManyClasses {
    fn stride(&self) -> usize {
        self.weights.len()
    }

    fn fill(
        &self,
        binned: &Binned,
        features: &[u32],
        (rows, stats): (&[u32], &[u64]),
        _total: &[u64],
        mut out: &mut [u64],
    ) {
        for feature in features {
            let bins = binned.bins(*feature as usize);
            let (one, rest) = out.split_at_mut(bins * self.stride());
            out = rest;
            if bins > 1 {
                one.fill(0);
                let codes = binned.column(*feature as usize);
                for (row, stat) in rows.iter().zip(stats) {
                    let bin = usize::from(codes[*row as usize]);
                    one[bin * self.stride() + high(*stat) as usize] += u64::from(low(*stat));
                }
            }
        }
    }

    fn total(&self, stats: &[u64]) -> Vec<u64> {
        let mut total = vec![0; self.stride()];
        for stat in stats {
            total[high(*stat) as usize] += u64::from(low(*stat));
        }
        total
    }

    fn mass(&self, sum: &[u64]) -> f64 {
        sum.iter().sum::<u64>() as f64
    }

    fn worth(&self, sum: &[u64]) -> f64 {
        let (mut all, mut each) = (0.0, 0.0);
        for weight in self.weights(sum) {
            all += weight;
            each += match self.purity {
                Purity::Gini => weight * weight,
                Purity::Entropy => x_log_x(weight),
            };
        }
        match self.purity {
            Purity::Gini => each / all,
            Purity::Entropy => each - x_log_x(all),
        }
    }

    fn settled(&self, sum: &[u64]) -> bool {
        sum.iter().filter(|n| **n > 0).count() < 2
    }

    fn leaf(&self, sum: &[u64], out: &mut Vec<f32>) {
        shares(self.weights(sum), out);
    }

    fn cost(&self, sum: &[u64]) -> Cost {
        Cost::of(self.weights(sum))
    }

    fn scan(&self, feature: usize, histogram: &[u64], node: &Node<'_>, best: &mut Best) -> bool {
        let mut left = vec![0; self.stride()];
        let mut right = node.total.to_vec();
        let mut parts = 0;
        for (bin, sum) in histogram.chunks(self.stride()).enumerate() {
            if sum.iter().all(|n| *n == 0) {
                continue;
            }
            parts += 1;
            for ((l, r), n) in left.iter_mut().zip(&mut right).zip(sum) {
                *l += n;
                *r -= n;
            }
            let (l, r) = (self.mass(&left), self.mass(&right));
            if r == 0.0 {
                break;
            }
            if l >= node.min_mass && r >= node.min_mass {
                best.take(feature, bin, self.worth(&left) + self.worth(&right), &left);
            }
        }
        parts > 1
    }
}

/// A quadratic approximation of a loss: a pair of the slope and the curvature by the score, as
/// whole numbers of a unit.
pub struct Slopes {
    /// The unit of slopes.
    pub slope: f64,
    /// The unit of curvatures.
    pub curvature: f64,
    /// Added to the curvature of a leaf.
    pub l2: f64,
    /// Learning rate.
    pub rate: f64,
    /// Whether samples that differ are split by a cut that gains nothing.
    pub until_pure: bool,
}

impl Slopes {
    fn parts(&self, sum: u64) -> (f64, f64) {
        let curvature = f64::from(low(sum)) * self.curvature + self.l2;
        (f64::from(high(sum)) * self.slope, curvature)
    }
}

impl Criterion for Slopes {
    fn mass(&self, sum: &[u64]) -> f64 {
        f64::from(low(sum[0])) * self.curvature
    }

    fn worth(&self, sum: &[u64]) -> f64 {
        let (g, h) = self.parts(sum[0]);
        if h > 0.0 { g * g / h } else { 0.0 }
    }

    fn settled(&self, _sum: &[u64]) -> bool {
        false
    }

    fn rounding(&self, sum: &[u64], stats: &[u64]) -> Option<f64> {
        if !self.until_pure {
            return Some(0.0);
        }
        let (g, h) = self.parts(sum[0]);
        let (mut alike, mut squares) = (true, 0.0);
        for stat in stats {
            let (slope, times) = self.parts(*stat);
            // a sample's slope is rounded twice: by half a unit, as their mean is, and as `f32`
            let off = self.slope * (1.0 + times) / 2.0 + slope.abs() * f64::from(f32::EPSILON);
            alike &= (slope - times * g / h).abs() <= off;
            squares += slope * slope / times;
        }
        (!alike).then_some(squares * ROUNDING)
    }

    fn leaf(&self, sum: &[u64], out: &mut Vec<f32>) {
        let (g, h) = self.parts(sum[0]);
        out.push(if h > 0.0 {
            (-self.rate * g / h) as f32
        } else {
            0.0
        });
    }
}
