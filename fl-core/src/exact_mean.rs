//! Means without rounding on the way: neither the order nor the grouping of clients changes a bit.
//!
//! The sum of each number is two f64, `high + low`, exactly: Knuth's two-sum gives the rounding
//! error of each addition, and `low` takes it. Products of a few clients whose exponents lie close
//! together are added up first, where that is exact. What does not fit `low` goes to an exact
//! accumulator of that number (Neal 2015, the crate `xsum`). A weight is cut into two parts of at
//! most 27 bits, so that its products with an f32 (24 bits) are exact. The quotient is rounded
//! once, to the nearest f32, ties to even.

use crate::kernels::twice;
use crate::message::Params;
use crate::{ClientMessage, Executor, Fold, Problem, Result};
use anyhow::ensure;
use ndarray::{ArrayD, Dimension, IxDyn};
use std::collections::BTreeMap;
use xsum::{Xsum, XsumSmall};

/// Numbers that are added at a time. If any of them does not fit, they are added one by one.
const GROUP: usize = 256;

/// Numbers of one block: its two sums (256 KiB) stay in the second-level cache.
const BLOCK: usize = 16_384;

/// Numbers of one call of the executor.
const CHUNK: usize = 8 * BLOCK;

/// Weights between these have exact products with every f32.
const WEIGHTS: std::ops::RangeInclusive<f64> = {
    const fn power(exponent: i32) -> f64 {
        f64::from_bits(((1023 + exponent) as u64) << 52)
    }
    power(-800)..=power(800)
};

/// A message's numbers, and a part of its weight.
type Share<'a> = (&'a [f32], f64);

/// Cuts a weight into parts of at most 27 bits, without zeros.
fn parts(weight: f64) -> Result<impl Iterator<Item = f64>> {
    ensure!(
        weight == 0.0 || WEIGHTS.contains(&weight),
        "a weight of {weight:e}: an exact mean takes 0 and weights from 2^-800 to 2^800"
    );
    let high = f64::from_bits(weight.to_bits() >> 27 << 27);
    Ok([high, weight - high]
        .into_iter()
        .filter(|part| *part != 0.0))
}

/// The parts of all weights.
#[derive(Default)]
struct Weights(Vec<f64>);

impl Weights {
    /// Returns their sum, and whether it is exact and has at most 28 bits.
    fn total(&self) -> (f64, bool) {
        let mut sum = XsumSmall::new();
        sum.add_list(&self.0);
        let total = sum.sum();
        sum.add(-total);
        let short = total.to_bits().trailing_zeros() >= 25;
        (total, short && sum.sum() == 0.0)
    }
}

/// Returns the rounded sum and its error, which together are the exact sum.
#[inline(always)]
fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let z = sum - x;
    (sum, (x - (sum - z)) + (y - z))
}

/// How the products of a group are added without an error, the fastest first.
#[derive(Debug, PartialEq)]
enum Way {
    /// All are 0.
    Nothing,
    /// Their sum is exact in f64.
    Plain,
    /// So is the sum of what lies above the last place of this number, and that of the rest.
    Cut(f64),
    /// Each is added to the exact sums.
    Each,
}

impl Way {
    /// Finds the way for numbers of this extent ([`widen`]) and at most 8 weights.
    fn of((most, least): (u32, u32), weights: &[f64]) -> Self {
        if most == 0 {
            return Self::Nothing;
        }
        // numbers are below 2^above, and multiples of 2^place
        let (biased_most, biased_least) = ((most >> 23) as i32, ((least + 1) >> 23) as i32);
        if biased_most == 255 {
            return Self::Each;
        }
        let (mut above, mut place) = (biased_most.max(1) - 126, biased_least.max(1) - 150);
        let exponents = weights.iter().map(|w| (w.to_bits() >> 52) as i32 - 1023);
        let zeros = |w: &f64| (w.to_bits().trailing_zeros() as i32).min(52) - 52;
        above += exponents.clone().max().unwrap_or(0) + 1 + 3;
        let places = exponents.zip(weights.iter().map(zeros));
        place += places
            .map(|(exponent, zeros)| exponent + zeros)
            .min()
            .unwrap_or(0);
        // the sum of eight products, and its partial sums, are below 2^above now
        if above - place <= 53 {
            Self::Plain
        } else if above + 1 - 50 - place <= 53 {
            Self::Cut(f64::from_bits(((1023 + above + 1) as u64) << 52))
        } else {
            Self::Each
        }
    }
}

/// The exact sums of a block of numbers.
struct Sums {
    high: Vec<f64>,
    low: Vec<f64>,
    /// What did not fit, by number.
    rest: BTreeMap<usize, XsumSmall>,
}

impl Sums {
    fn new(n: usize) -> Self {
        Self {
            high: vec![0.0; n],
            low: vec![0.0; n],
            rest: BTreeMap::new(),
        }
    }

    /// Adds one value to number `at`.
    fn add_one(&mut self, at: usize, value: f64) {
        let (high, error) = two_sum(self.high[at], value);
        let (low, lost) = two_sum(self.low[at], error);
        // not so either if the value is not finite
        if lost == 0.0 {
            (self.high[at], self.low[at]) = (high, low);
        } else {
            self.rest.entry(at).or_default().add(value);
        }
    }

    /// Adds the numbers from `from` on of these messages.
    fn add(&mut self, shares: &[Share<'_>], from: usize) {
        let groups = shares.as_chunks::<8>();
        for group in groups.0 {
            self.abreast(group, from);
        }
        let pairs = groups.1.as_chunks::<2>();
        for pair in pairs.0 {
            self.abreast(pair, from);
        }
        for one in pairs.1 {
            self.abreast(std::array::from_ref(one), from);
        }
    }

    fn abreast<const K: usize>(&mut self, shares: &[Share<'_>; K], from: usize) {
        let n = self.high.len();
        for start in (0..n).step_by(GROUP) {
            let end = n.min(start + GROUP);
            let (high, low) = (&mut self.high[start..end], &mut self.low[start..end]);
            let (mut high_before, mut low_before) = ([0.0; GROUP], [0.0; GROUP]);
            high_before[..high.len()].copy_from_slice(high);
            low_before[..low.len()].copy_from_slice(low);
            let sent = shares.map(|(sent, _)| &sent[from + start..from + end]);
            let weights = shares.map(|(_, weight)| weight);
            let mut extent = (0, u32::MAX);
            widen(sent, &mut extent);
            let mut lost = 0;
            match Way::of(extent, &weights) {
                Way::Nothing => continue,
                Way::Plain => add_plain(high, low, sent, weights, &mut lost),
                Way::Cut(at) => add_cut(high, low, sent, weights, at, &mut lost),
                Way::Each => add_each(high, low, sent, weights, &mut lost),
            }
            if lost != 0 {
                high.copy_from_slice(&high_before[..high.len()]);
                low.copy_from_slice(&low_before[..low.len()]);
                for (sent, weight) in shares {
                    for at in start..end {
                        self.add_one(at, weight * f64::from(sent[from + at]));
                    }
                }
            }
        }
    }

    /// Writes the sums divided by the sum of `weights`, each rounded once.
    fn divide(self, weights: &Weights, out: &mut [f32]) {
        let (total, is_short) = weights.total();
        let mut outer = vec![0.0; out.len()];
        bounds(&self.high, &self.low, total, out, &mut outer);
        for (at, (out, outer)) in out.iter_mut().zip(outer).enumerate() {
            if outer.to_bits() == out.to_bits() {
                continue;
            }
            let middle = f64::midpoint(f64::from(*out), f64::from(outer));
            let side = if is_short {
                let (high, low) = two_sum(self.high[at], self.low[at]);
                (high - middle * total) + low
            } else {
                let mut sum = XsumSmall::new();
                sum.add_list(&[self.high[at], self.low[at]]);
                beyond(sum, middle, weights)
            };
            *out = nearest(*out, outer, side);
        }
        for (at, mut sum) in self.rest {
            sum.add_list(&[self.high[at], self.low[at]]);
            out[at] = quotient(sum, total, weights);
        }
    }
}

/// Returns the exact sum in `acc`, divided by the sum of `weights` and rounded once.
fn quotient(mut acc: XsumSmall, total: f64, weights: &Weights) -> f32 {
    let sum = acc.sum();
    if sum.is_nan() {
        return f32::NAN;
    }
    let (mut inner, mut outer) = ([0.0], [0.0]);
    bounds(&[sum], &[0.0], total, &mut inner, &mut outer);
    if inner[0].to_bits() == outer[0].to_bits() {
        return inner[0];
    }
    let middle = f64::midpoint(f64::from(inner[0]), f64::from(outer[0]));
    nearest(inner[0], outer[0], beyond(acc, middle, weights))
}

/// Returns a number with the sign of `sum - middle * weights`, exactly. `middle` has at most 25
/// bits.
fn beyond(mut sum: XsumSmall, middle: f64, weights: &Weights) -> f64 {
    for part in &weights.0 {
        sum.add(-(middle * part));
    }
    sum.sum()
}

/// Returns one of two adjacent numbers: the value lies on this side of their middle, or at 0 on it.
fn nearest(inner: f32, outer: f32, side: f64) -> f32 {
    let (low, high) = (inner.min(outer), inner.max(outer));
    match side.partial_cmp(&0.0) {
        Some(std::cmp::Ordering::Greater) => high,
        Some(std::cmp::Ordering::Less) => low,
        _ if low.to_bits().is_multiple_of(2) => low,
        _ => high,
    }
}

twice! {
    /// Widens an extent: the most bits of a number without its sign, and the least of one that is
    /// not 0, less 1.
    fn widen[const K: usize](sent: [&[f32]; K], extent: &mut (u32, u32)) {
        let (mut most, mut least) = *extent;
        let n = sent[0].len();
        let sent = sent.map(|s| &s[..n]);
        // abreast: one message after the other would cost as much as all additions
        for i in 0..n {
            for sent in sent {
                let bits = sent[i].to_bits() << 1 >> 1;
                most = most.max(bits);
                least = least.min(bits.wrapping_sub(1));
            }
        }
        *extent = (most, least);
    }
}

/// Adds an exact sum to `high + low`. Returns other than 0 if the sums are not exact.
#[inline(always)]
fn add_to(high: &mut f64, low: &mut f64, sum: f64) -> u64 {
    let (rounded, error) = two_sum(*high, sum);
    let (rest, gone) = two_sum(*low, error);
    (*high, *low) = (rounded, rest);
    gone.to_bits() << 1 // without the sign: -0 is 0
}

twice! {
    /// Adds `w[0] * sent[0] + w[1] * sent[1] ..`, which is exact, to `high + low`. `lost` becomes
    /// other than 0 if the sums are not exact.
    fn add_plain[const K: usize](
        high: &mut [f64], low: &mut [f64], sent: [&[f32]; K], w: [f64; K], lost: &mut u64
    ) {
        let n = high.len();
        let sent = sent.map(|s| &s[..n]); // so that the compiler needs no further checks
        let mut bits = 0;
        for (i, (high, low)) in high.iter_mut().zip(low).enumerate() {
            let mut sum = 0.0;
            for k in 0..K {
                sum += w[k] * f64::from(sent[k][i]);
            }
            bits |= add_to(high, low, sum);
        }
        *lost |= bits;
    }
}

twice! {
    /// As `add_plain`; each product is cut in two at the last place of `at`, and both sums are
    /// exact.
    fn add_cut[const K: usize](
        high: &mut [f64], low: &mut [f64], sent: [&[f32]; K], w: [f64; K], at: f64, lost: &mut u64
    ) {
        let n = high.len();
        let sent = sent.map(|s| &s[..n]);
        let mut bits = 0;
        for (i, (high, low)) in high.iter_mut().zip(low).enumerate() {
            let (mut front, mut back) = (0.0, 0.0);
            for k in 0..K {
                let product = w[k] * f64::from(sent[k][i]);
                let rounded = (at + product) - at;
                front += rounded;
                back += product - rounded;
            }
            bits |= add_to(high, low, front);
            bits |= add_to(high, low, back);
        }
        *lost |= bits;
    }
}

twice! {
    /// As `add_plain`, for products whose sum is not exact: one after the other.
    fn add_each[const K: usize](
        high: &mut [f64], low: &mut [f64], sent: [&[f32]; K], w: [f64; K], lost: &mut u64
    ) {
        let n = high.len();
        let sent = sent.map(|s| &s[..n]);
        let mut bits = 0;
        for (i, (high, low)) in high.iter_mut().zip(low).enumerate() {
            for k in 0..K {
                bits |= add_to(high, low, w[k] * f64::from(sent[k][i]));
            }
        }
        *lost |= bits;
    }
}

twice! {
    /// The quotients `(high + low) / total` as f32, if they were a little nearer to 0 and a little
    /// farther from it than they are. Where both agree, they are the rounded quotient.
    fn bounds[](high: &[f64], low: &[f64], total: f64, inner: &mut [f32], outer: &mut [f32]) {
        // the rounded sum, total and quotient: three times half a unit in the last of 53 bits
        const ERROR: f64 = 1.0 / (1u64 << 50) as f64;
        for (((high, low), inner), outer) in high.iter().zip(low).zip(inner).zip(outer) {
            let quotient = (high + low) / total;
            *inner = (quotient * (1.0 - ERROR)) as f32;
            *outer = (quotient * (1.0 + ERROR)) as f32;
        }
    }
}

/// Returns the exact mean `sum_k weights[k] * sent[k][i] / sum_k weights[k]`, rounded once to the
/// nearest f32. All of `sent` have one length. The mean of numbers with NaN, or with both
/// infinities, is NaN.
///
/// # Errors
/// If a weight is neither 0 nor from 2^-800 to 2^800.
pub fn exact_weighted_mean(
    sent: &[&[f32]],
    weights: &[f64],
    exec: &dyn Executor,
) -> Result<Vec<f32>> {
    let mut shares: Vec<Share<'_>> = Vec::with_capacity(sent.len());
    for (sent, weight) in sent.iter().zip(weights) {
        shares.extend(parts(*weight)?.map(|part| (*sent, part)));
    }
    let all = Weights(shares.iter().map(|(_, part)| *part).collect());
    let mut out = vec![0.0; sent.first().map_or(0, |s| s.len())];
    exec.chunks(&mut out, CHUNK, &|chunk, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let mut sums = Sums::new(out.len());
            sums.add(&shares, chunk * CHUNK + i * BLOCK);
            sums.divide(&all, out);
        }
    });
    Ok(out)
}

/// Answers that a fold buffers: its sums, too long for any cache, are loaded and stored once for
/// all of them.
const WAITING: usize = 8;

/// A fold that is an exact mean of parameters: it has the bits of [`exact_weighted_mean`] in any
/// order of the answers, and uses the memory of 13 models for any number of them. Two folds of some
/// of the answers can be merged.
#[derive(Default)]
pub struct ExactMeanOfParams {
    waiting: Vec<ClientMessage<Params>>,
    sums: BTreeMap<String, (IxDyn, Sums)>,
    weights: Weights,
}

impl ExactMeanOfParams {
    /// Checks that parameters have the names and shapes of the earlier ones.
    fn fit<'a>(&mut self, shapes: impl Iterator<Item = (&'a String, IxDyn)>) -> Result<()> {
        if self.sums.is_empty() {
            let sums = |(name, dim): (&String, IxDyn)| {
                let sums = Sums::new(dim.size());
                (name.clone(), (dim, sums))
            };
            self.sums = shapes.map(sums).collect();
            return Ok(());
        }
        let mut shapes = shapes;
        let due = |(name, (dim, _)): (&String, &(IxDyn, Sums))| {
            let shape = shapes.next();
            shape.is_some_and(|(other, of)| other == name && of == *dim)
        };
        let same = self.sums.iter().all(due);
        ensure!(
            same && shapes.next().is_none(),
            Problem::Shape("parameters of other names or shapes than those before".into())
        );
        Ok(())
    }

    /// Adds the buffered answers to the sums.
    fn flush(&mut self) -> Result<()> {
        for (name, (_, sums)) in &mut self.sums {
            let tensors = self
                .waiting
                .iter()
                .map(|m| m.body.0[name].as_standard_layout());
            let tensors: Vec<_> = tensors.collect();
            let mut shares: Vec<Share<'_>> = Vec::with_capacity(WAITING);
            for (mail, tensor) in self.waiting.iter().zip(&tensors) {
                let sent = tensor.as_slice().expect("standard layout");
                shares.extend(parts(mail.weight)?.map(|part| (sent, part)));
            }
            sums.add(&shares, 0);
        }
        self.waiting.clear();
        Ok(())
    }

    /// Adds the answers of `other`.
    ///
    /// # Errors
    /// If they have other names or shapes.
    pub fn merge(&mut self, mut other: Self) -> Result<()> {
        self.flush()?;
        other.flush()?;
        if other.weights.0.is_empty() {
            return Ok(());
        }
        self.fit(
            other
                .sums
                .iter()
                .map(|(name, (dim, _))| (name, dim.clone())),
        )?;
        self.weights.0.extend(other.weights.0);
        for ((_, mine), (_, theirs)) in self.sums.values_mut().zip(other.sums.into_values()) {
            for at in 0..theirs.high.len() {
                mine.add_one(at, theirs.high[at]);
                mine.add_one(at, theirs.low[at]);
            }
            for (at, mut sum) in theirs.rest {
                // an exact sum as rounded sums of what is left
                loop {
                    let part = sum.sum();
                    mine.add_one(at, part);
                    if part == 0.0 || !part.is_finite() {
                        break;
                    }
                    sum.add(-part);
                }
            }
        }
        Ok(())
    }
}

impl Fold<Params, Params> for ExactMeanOfParams {
    fn add(&mut self, mail: ClientMessage<Params>) -> Result<()> {
        let parts = parts(mail.weight)?;
        self.fit(mail.body.0.iter().map(|(name, t)| (name, t.raw_dim())))?;
        self.weights.0.extend(parts);
        self.waiting.push(mail);
        match self.waiting.len() {
            WAITING => self.flush(),
            _ => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Params> {
        self.flush()?;
        let Self { sums, weights, .. } = *self;
        ensure!(!weights.0.is_empty(), Problem::NoAnswer(String::new()));
        let means = sums.into_iter().map(|(name, (dim, sums))| {
            let mut out = vec![0.0; sums.high.len()];
            sums.divide(&weights, &mut out);
            Ok((name, ArrayD::from_shape_vec(dim, out)?))
        });
        Ok(Params(means.collect::<Result<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draws, Serial, Stream};
    use num_rational::BigRational;

    fn exact(x: f64) -> BigRational {
        BigRational::from_float(x).expect("a finite number")
    }

    /// The nearest f32 of a rational, ties to even, by bisection over all f32.
    fn rounded(x: &BigRational) -> f32 {
        let of = |at: i64| {
            let size = f32::from_bits(at.unsigned_abs() as u32);
            if at < 0 { -size } else { size }
        };
        let most = i64::from(f32::MAX.to_bits());
        let (mut low, mut high) = (-most, most);
        while high - low > 1 {
            let middle = (low + high) / 2;
            match exact(f64::from(of(middle))) <= *x {
                true => low = middle,
                false => high = middle,
            }
        }
        let (below, above) = (of(low), of(high));
        let below_by = x - exact(f64::from(below));
        let above_by = exact(f64::from(above)) - x;
        match below_by.cmp(&above_by) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => above,
            std::cmp::Ordering::Equal if below.to_bits().is_multiple_of(2) => below,
            std::cmp::Ordering::Equal => above,
        }
    }

    fn reference(sent: &[Vec<f32>], weights: &[f64], at: usize) -> f32 {
        let sum: BigRational = sent
            .iter()
            .zip(weights)
            .map(|(sent, weight)| exact(f64::from(sent[at])) * exact(*weight))
            .sum();
        rounded(&(sum / weights.iter().map(|w| exact(*w)).sum::<BigRational>()))
    }

    fn mean(sent: &[Vec<f32>], weights: &[f64]) -> Vec<f32> {
        let sent: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
        exact_weighted_mean(&sent, weights, &Serial).unwrap()
    }

    fn fold(sent: &[Vec<f32>], weights: &[f64], of: &[usize]) -> ExactMeanOfParams {
        let mut fold = ExactMeanOfParams::default();
        for at in of {
            let params = Params([("w".into(), ndarray::arr1(&sent[*at]).into_dyn())].into());
            let mail = ClientMessage::new(*at as u32, weights[*at], params);
            fold.add(mail).unwrap();
        }
        fold
    }

    fn finish(fold: ExactMeanOfParams) -> Vec<u32> {
        let mean = Box::new(fold).finish().unwrap();
        mean.iter().map(|x| x.to_bits()).collect()
    }

    fn bits(of: &[f32]) -> Vec<u32> {
        of.iter().map(|x| x.to_bits()).collect()
    }

    /// Numbers of a kind: like a model's, of every size, near ties, or such that they cancel.
    fn number(kind: usize, draws: &mut Draws) -> f32 {
        match kind {
            0 => draws.normal() as f32,
            1 => loop {
                let any = f32::from_bits((draws.uniform() * 4_294_967_296.0) as u32);
                if any.is_finite() {
                    break any;
                }
            },
            2 => 1.0 + draws.below(3) as f32 * f32::EPSILON,
            3 => [f32::MAX, -f32::MAX, 1e-30, -1e-30, 1.0, -1.0, 0.0, -0.0][draws.below(8)],
            // subnormal
            _ => f32::from_bits(draws.below(16) as u32) * [1.0, -1.0][draws.below(2)],
        }
    }

    #[test]
    fn exact_means_are_the_rounded_rationals_in_any_order_and_partition() {
        let mut draws = Stream::root(36).draws();
        for case in 0..400 {
            let (clients, numbers) = (1 + draws.below(20), 1 + draws.below(12));
            let kind = case % 5;
            let sent: Vec<Vec<f32>> = (0..clients)
                .map(|_| (0..numbers).map(|_| number(kind, &mut draws)).collect())
                .collect();
            let mut weights: Vec<f64> = (0..clients)
                .map(|_| match case / 5 % 5 {
                    0 => 1.0,
                    1 => draws.below(1000) as f64,
                    2 => draws.uniform(),
                    3 => draws.uniform() * 10f64.powi(draws.below(400) as i32 - 200),
                    _ => 0.1 * (1 + draws.below(3)) as f64,
                })
                .collect();
            weights[0] = weights[0].max(0.5);
            let here = mean(&sent, &weights);
            for (at, here) in here.iter().enumerate() {
                let due = reference(&sent, &weights, at);
                assert_eq!(*here, due, "case {case}, number {at}: {weights:?}");
            }
            // folded in another order, and merged from two parts
            let order = draws.permutation(clients);
            assert_eq!(
                finish(fold(&sent, &weights, &order)),
                bits(&here),
                "case {case}"
            );
            let cut = draws.below(clients + 1);
            let mut merged = fold(&sent, &weights, &order[..cut]);
            merged.merge(fold(&sent, &weights, &order[cut..])).unwrap();
            assert_eq!(finish(merged), bits(&here), "case {case}, cut at {cut}");
            let shuffled: Vec<Vec<f32>> = order.iter().map(|at| sent[*at].clone()).collect();
            let by: Vec<f64> = order.iter().map(|at| weights[*at]).collect();
            assert_eq!(bits(&mean(&shuffled, &by)), bits(&here), "case {case}");
        }
    }

    #[test]
    fn exact_blocks_and_threads_change_nothing() {
        struct Backwards;
        impl Executor for Backwards {
            fn chunks(
                &self,
                data: &mut [f32],
                size: usize,
                work: &(dyn Fn(usize, &mut [f32]) + Sync),
            ) {
                let mut all: Vec<_> = data.chunks_mut(size).enumerate().collect();
                all.reverse();
                all.into_iter().for_each(|(at, chunk)| work(at, chunk));
            }
        }
        let mut draws = Stream::root(5).draws();
        let n = CHUNK + BLOCK + GROUP + 7;
        let sent: Vec<Vec<f32>> = (0..11)
            .map(|_| (0..n).map(|_| draws.normal() as f32).collect())
            .collect();
        let weights = [3.0, 1.0, 0.0, 20.5, 7.25, 1e-3, 11.0, 2.0, 9.5, 0.1, 4.0];
        let here = mean(&sent, &weights);
        let views: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
        let there = exact_weighted_mean(&views, &weights, &Backwards).unwrap();
        assert_eq!(bits(&here), bits(&there));
        let all: Vec<usize> = (0..11).collect();
        assert_eq!(finish(fold(&sent, &weights, &all)), bits(&here));
        for at in (0..n).step_by(997).chain([CHUNK - 1, CHUNK, n - 1]) {
            assert_eq!(here[at], reference(&sent, &weights, at), "number {at}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_stay_so() {
        let inf = f32::INFINITY;
        let sent = [
            vec![inf, inf, f32::NAN, -inf, 1.0],
            vec![1.0, -inf, 1.0, -inf, 2.0],
        ];
        let here = mean(&sent, &[1.0, 2.0]);
        assert!(here[0] == inf && here[1].is_nan() && here[2].is_nan() && here[3] == -inf);
        assert_eq!(here[4], 5.0f32 / 3.0);
        let folded = finish(fold(&sent, &[1.0, 2.0], &[1, 0]));
        assert_eq!(folded, bits(&here));
        let mut merged = fold(&sent, &[1.0, 2.0], &[1]);
        merged.merge(fold(&sent, &[1.0, 2.0], &[0])).unwrap();
        assert_eq!(finish(merged), bits(&here));
    }

    #[test]
    fn what_has_no_exact_mean_is_an_error() {
        let sent: [&[f32]; 1] = [&[1.0]];
        for weight in [-1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            let error = exact_weighted_mean(&sent, &[weight], &Serial).unwrap_err();
            assert!(error.to_string().contains("takes 0 and weights"), "{error}");
        }
        assert!(Box::<ExactMeanOfParams>::default().finish().is_err());
        assert!(mean(&[vec![]], &[1.0]).is_empty());
        let mut one = fold(&[vec![1.0]], &[1.0], &[0]);
        one.merge(ExactMeanOfParams::default()).unwrap();
        assert!(one.merge(fold(&[vec![1.0, 2.0]], &[1.0], &[0])).is_err());
    }
}
