//! Means without rounding on the way: neither the order nor the grouping of clients changes a bit.
//!
//! The sum of each number lies in lanes: f64 of which each holds a window of 44 powers of two, so
//! that hundreds of products can be added without rounding before a lane must carry. Numbers of a
//! model need one to three lanes; any others get as many as they need. A weight is cut into two
//! parts of at most 27 bits, so that its products with an f32 (24 bits) are exact. The quotient is
//! rounded once, to the nearest f32, ties to even. Where it lies near the middle of two, the exact
//! accumulator of the crate `xsum` (Neal 2015) decides.

mod fold;

pub use fold::ExactMeanOfParams;

use fl_core::prelude::*;
use fl_core::{Executor, twice};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use xsum::{Xsum, XsumSmall};

/// Numbers whose sums have the same lanes.
const GROUP: usize = 256;

/// Numbers of one block: its sums stay in the second-level cache.
const BLOCK: usize = 16_384;

/// Numbers of one call of the executor.
const CHUNK: usize = 8 * BLOCK;

/// Powers of two from one lane to the next.
const STEP: i32 = 44;

/// Products that a lane takes before it must carry: each is below 2^44 units, and a f64 holds 2^53.
const ROOM: usize = 500;
/// Weights between these have exact products with every f32.
const WEIGHTS: std::ops::RangeInclusive<f64> = power(-700)..=power(700);

/// A message's numbers, and a part of its weight.
type Share<'a> = (&'a [f32], f64);

/// Cuts a weight into parts of at most 27 bits, without zeros.
fn parts(weight: f64) -> Result<impl Iterator<Item = f64>> {
    ensure!(
        weight == 0.0 || WEIGHTS.contains(&weight),
        "a weight of {weight:e}: an exact mean takes 0 and weights from 2^-700 to 2^700"
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

/// Returns 2^exponent, a normal number.
const fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The numbers of a product or a sum: below 2^above in size, and multiples of 2^place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extent {
    above: i32,
    place: i32,
}

impl Extent {
    /// Returns the extent of the products of such numbers ([`widen`]) with these weights; `None`:
    /// all are 0.
    fn of((most, least): (u32, u32), weights: &[f64]) -> Option<Self> {
        if most == 0 {
            return None;
        }
        let (most, least) = ((most >> 23) as i32, ((least + 1) >> 23) as i32);
        let exponent = |w: &f64| (w.to_bits() >> 52) as i32 - 1023;
        let zeros = |w: &f64| (w.to_bits().trailing_zeros() as i32).min(52) - 52;
        let above = weights.iter().map(exponent).max()?;
        let place = weights.iter().map(|w| exponent(w) + zeros(w)).min()?;
        Some(Self {
            above: most.max(1) - 126 + above + 1,
            place: least.max(1) - 150 + place,
        })
    }
}

/// Returns the number that another is added to and subtracted from, to round it to units of a lane.
fn anchor(bottom: i32, lane: usize) -> f64 {
    1.5 * power(bottom + lane as i32 * STEP + 52)
}

fn anchors<const L: usize>(bottom: i32) -> [f64; L] {
    std::array::from_fn(|lane| anchor(bottom, lane))
}

/// The exact sums of a group of numbers. Lane `j` of a number is a multiple of 2^(bottom + 44 j),
/// its unit, and the sum of the lanes is the number.
#[derive(Clone, Debug, Default)]
struct Lanes {
    bottom: i32,
    /// The lowest lane of all numbers, then the next one.
    all: Vec<f64>,
    /// Products that have been added since the last carry.
    added: usize,
}

impl Lanes {
    /// Makes room for `more` numbers of this extent in each of `n` sums.
    fn fit(&mut self, n: usize, extent: Extent, more: usize) {
        if self.added + more > ROOM {
            self.carry(n);
        }
        self.added += more;
        self.reach(n, extent);
    }

    fn reach(&mut self, n: usize, Extent { above, place }: Extent) {
        let count = |span: i32| {
            span.max(1).div_euclid(STEP) as usize + usize::from(span.max(1).rem_euclid(STEP) > 0)
        };
        if self.all.is_empty() {
            let lanes = count(above - place);
            // later numbers may be a little larger or finer
            let spare = lanes as i32 * STEP - (above - place);
            self.bottom = place - spare + spare.min(8);
            self.all = vec![0.0; lanes * n];
        }
        if place < self.bottom {
            let more = count(self.bottom - place);
            self.bottom -= more as i32 * STEP;
            self.all.splice(..0, std::iter::repeat_n(0.0, more * n));
        }
        let top = self.bottom + (self.all.len() / n) as i32 * STEP;
        if above > top {
            let lanes = self.all.len() / n + count(above - top);
            self.all.resize(lanes * n, 0.0);
        }
    }

    /// Moves what exceeds 2^43 units of a lane to the next one.
    fn carry(&mut self, n: usize) {
        let mut lane = 0;
        while (lane + 1) * n <= self.all.len() {
            let most = power(self.bottom + lane as i32 * STEP + STEP - 1);
            let is_top = (lane + 1) * n == self.all.len();
            if is_top {
                if self.all[lane * n..].iter().all(|v| v.abs() <= most) {
                    break;
                }
                self.all.resize(self.all.len() + n, 0.0);
            }
            let anchor = anchor(self.bottom, lane + 1);
            let (low, high) = self.all[lane * n..].split_at_mut(n);
            for (low, high) in low.iter_mut().zip(high) {
                let moved = (anchor + *low) - anchor;
                *high += moved;
                *low -= moved;
            }
            lane += 1;
        }
        self.added = 1;
    }

    /// Adds one number to sum `at` of `n`, for which there is room.
    fn add_one(&mut self, n: usize, at: usize, value: f64) {
        let mut rest = value;
        for lane in (1..self.all.len() / n).rev() {
            let anchor = anchor(self.bottom, lane);
            let part = (anchor + rest) - anchor;
            self.all[lane * n + at] += part;
            rest -= part;
        }
        self.all[at] += rest;
    }

    /// Adds products of this many clients, for which there is room. `first`: their sum is exact in
    /// f64, and is added to the lanes as one number.
    fn add<const K: usize>(&mut self, n: usize, sent: [&[f32]; K], w: [f64; K], first: bool) {
        match (self.all.len() / n, first) {
            (1, true) => add_sums(&mut self.all, sent, w, anchors::<1>(self.bottom)),
            (2, true) => add_sums(&mut self.all, sent, w, anchors::<2>(self.bottom)),
            (3, true) => add_sums(&mut self.all, sent, w, anchors::<3>(self.bottom)),
            (1, false) => add_products(&mut self.all, sent, w, anchors::<1>(self.bottom)),
            (2, false) => add_products(&mut self.all, sent, w, anchors::<2>(self.bottom)),
            (3, false) => add_products(&mut self.all, sent, w, anchors::<3>(self.bottom)),
            (4, _) => add_products(&mut self.all, sent, w, anchors::<4>(self.bottom)),
            _ => {
                for (sent, w) in sent.iter().zip(w) {
                    for (at, x) in sent.iter().enumerate() {
                        self.add_one(n, at, w * f64::from(*x));
                    }
                }
            }
        }
    }

    /// Returns the exact sum of number `at` of `n`.
    fn exact(&self, n: usize, at: usize) -> XsumSmall {
        let mut sum = XsumSmall::new();
        self.all
            .iter()
            .skip(at)
            .step_by(n)
            .for_each(|v| sum.add(*v));
        sum
    }
}

/// The exact sums of a block of numbers.
struct Sums {
    n: usize,
    groups: Vec<Lanes>,
    /// Sums of infinities and NaN, by number.
    odd: BTreeMap<usize, f64>,
}

impl Sums {
    fn new(n: usize) -> Self {
        Self {
            n,
            groups: vec![Lanes::default(); n.div_ceil(GROUP)],
            odd: BTreeMap::new(),
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
        let weights = shares.map(|(_, weight)| weight);
        for (group, start) in self.groups.iter_mut().zip((0..self.n).step_by(GROUP)) {
            let end = self.n.min(start + GROUP);
            let mut sent = shares.map(|(sent, _)| &sent[from + start..from + end]);
            let mut bits = (0, u32::MAX);
            widen(sent, &mut bits);
            let mut finite = Vec::new();
            if bits.0 >> 23 == 255 {
                for (sent, weight) in sent.iter().zip(weights) {
                    finite.push(
                        sent.iter()
                            .map(|x| if x.is_finite() { *x } else { 0.0 })
                            .collect::<Vec<f32>>(),
                    );
                    let odd = sent.iter().enumerate().filter(|(_, x)| !x.is_finite());
                    for (at, x) in odd {
                        *self.odd.entry(start + at).or_default() += weight * f64::from(*x);
                    }
                }
                sent = std::array::from_fn(|k| &finite[k][..]);
                bits = (0, u32::MAX);
                widen(sent, &mut bits);
            }
            if let Some(extent) = Extent::of(bits, &weights) {
                group.fit(end - start, extent, K);
                // the sum of K products is below 2^(above + 3)
                let first = K > 1 && extent.above + 3 - extent.place <= 53;
                group.add(end - start, sent, weights, first);
            }
        }
    }

    /// Adds the sums of other messages of as many numbers.
    fn merge(&mut self, other: Self) {
        let starts = (0..self.n).step_by(GROUP);
        for ((mine, mut theirs), start) in self.groups.iter_mut().zip(other.groups).zip(starts) {
            let n = GROUP.min(self.n - start);
            theirs.carry(n);
            for (lane, values) in theirs.all.chunks(n).enumerate() {
                let place = theirs.bottom + lane as i32 * STEP;
                let above = place + STEP;
                mine.fit(n, Extent { above, place }, 1);
                for (at, value) in values.iter().enumerate() {
                    mine.add_one(n, at, *value);
                }
            }
        }
        for (at, odd) in other.odd {
            *self.odd.entry(at).or_default() += odd;
        }
    }

    /// Writes the sums divided by the sum of `weights`, each rounded once.
    fn divide(self, weights: &Weights, out: &mut [f32]) {
        let (total, is_short) = weights.total();
        let mut room = [[0.0; GROUP]; 3];
        let mut outer = [0.0; GROUP];
        for (group, out) in self.groups.iter().zip(out.chunks_mut(GROUP)) {
            let n = out.len();
            let [high, low, error] = &mut room;
            let (high, low, error) = (&mut high[..n], &mut low[..n], &mut error[..n]);
            high.fill(0.0);
            low.fill(0.0);
            error.fill(0.0);
            for lane in group.all.chunks(n) {
                add_to(high, low, error, lane);
            }
            bounds(high, low, error, total, out, &mut outer[..n]);
            for (at, (out, outer)) in out.iter_mut().zip(outer).enumerate() {
                if outer.to_bits() == out.to_bits() {
                    continue;
                }
                let middle = f64::midpoint(f64::from(*out), f64::from(outer));
                let side = if is_short && error[at] == 0.0 {
                    let (high, low) = two_sum(high[at], low[at]);
                    (high - middle * total) + low
                } else {
                    let sum = group.exact(n, at);
                    // the ends of the bounds may lie farther apart than two neighbours
                    *out = quotient(sum, total, weights);
                    continue;
                };
                *out = nearest(*out, outer, side);
            }
        }
        for (at, odd) in self.odd {
            out[at] = single(odd);
        }
        one_zero(out);
    }
}

/// Returns the exact sum in `acc`, divided by the sum of `weights` and rounded once.
fn quotient(mut acc: XsumSmall, total: f64, weights: &Weights) -> f32 {
    let sum = acc.sum();
    if !sum.is_finite() {
        return single(sum);
    }
    let ([mut inner], [mut outer]) = ([0.0], [0.0]);
    bounds(
        &[sum],
        &[0.0],
        &[0.0],
        total,
        std::slice::from_mut(&mut inner),
        std::slice::from_mut(&mut outer),
    );
    if inner.to_bits() == outer.to_bits() {
        return inner;
    }
    let middle = f64::midpoint(f64::from(inner), f64::from(outer));
    nearest(inner, outer, beyond(acc, middle, weights))
}

/// Makes -0 0: a mean that is rounded to it has one sign, whichever way it was found.
fn one_zero(out: &mut [f32]) {
    out.iter_mut().for_each(|out| *out += 0.0);
}

/// Returns a number that is not finite in single precision. There is one NaN.
fn single(odd: f64) -> f32 {
    if odd.is_nan() { f32::NAN } else { odd as f32 }
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

/// The number of values that one loop adds: the compiler turns a loop of this length into vector
/// instructions. These loops have no closures and no iterators. The compiler does not always inline
/// those, and then adds one value at a time.
const WIDE: usize = 8;

/// Returns the `W` numbers from `at` on.
#[inline(always)]
fn some<const W: usize>(of: &[f32], at: usize) -> &[f32; W] {
    of[at..].first_chunk().expect("as many as are asked for")
}

/// Adds `W` numbers to the lanes of as many sums, the highest lane first.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "see `WIDE`")]
fn add_to_lanes<const W: usize, const L: usize>(
    sums: &mut [[f64; W]; L],
    numbers: [f64; W],
    anchors: &[f64; L],
) {
    let mut rest = numbers;
    for lane in (1..L).rev() {
        for i in 0..W {
            let part = (anchors[lane] + rest[i]) - anchors[lane];
            sums[lane][i] += part;
            rest[i] -= part;
        }
    }
    for i in 0..W {
        sums[0][i] += rest[i];
    }
}

/// Returns the lanes of the `W` sums from `at` on, of `n`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "see `WIDE`")]
fn lanes_of<const W: usize, const L: usize>(all: &[f64], n: usize, at: usize) -> [[f64; W]; L] {
    let mut sums = [[0.0; W]; L];
    for lane in 0..L {
        sums[lane].copy_from_slice(&all[lane * n + at..][..W]);
    }
    sums
}

/// Writes them back.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "see `WIDE`")]
fn keep_lanes<const W: usize, const L: usize>(
    all: &mut [f64],
    n: usize,
    at: usize,
    sums: &[[f64; W]; L],
) {
    for lane in 0..L {
        all[lane * n + at..][..W].copy_from_slice(&sums[lane]);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "see `WIDE`")]
fn add_some_products<const W: usize, const K: usize, const L: usize>(
    all: &mut [f64],
    (n, at): (usize, usize),
    sent: &[&[f32]; K],
    w: &[f64; K],
    anchors: &[f64; L],
) {
    let mut sums = lanes_of::<W, L>(all, n, at);
    for k in 0..K {
        let (sent, mut products) = (some::<W>(sent[k], at), [0.0; W]);
        for i in 0..W {
            products[i] = w[k] * f64::from(sent[i]);
        }
        add_to_lanes(&mut sums, products, anchors);
    }
    keep_lanes(all, n, at, &sums);
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "see `WIDE`")]
fn add_some_sums<const W: usize, const K: usize, const L: usize>(
    all: &mut [f64],
    (n, at): (usize, usize),
    sent: &[&[f32]; K],
    w: &[f64; K],
    anchors: &[f64; L],
) {
    let mut sum = [0.0; W];
    for k in 0..K {
        let sent = some::<W>(sent[k], at);
        for i in 0..W {
            sum[i] += w[k] * f64::from(sent[i]);
        }
    }
    let mut sums = lanes_of::<W, L>(all, n, at);
    add_to_lanes(&mut sums, sum, anchors);
    keep_lanes(all, n, at, &sums);
}

twice! {
    /// Adds `w[0] * sent[0]`, `w[1] * sent[1]` .. to lanes.
    fn add_products[const K: usize, const L: usize](
        all: &mut [f64], sent: [&[f32]; K], w: [f64; K], anchors: [f64; L]
    ) {
        let n = sent[0].len();
        let whole = n - n % WIDE;
        for at in (0..whole).step_by(WIDE) {
            add_some_products::<WIDE, K, L>(all, (n, at), &sent, &w, &anchors);
        }
        for at in whole..n {
            add_some_products::<1, K, L>(all, (n, at), &sent, &w, &anchors);
        }
    }
}

twice! {
    /// Adds `w[0] * sent[0] + w[1] * sent[1] ..`, which is exact, to lanes.
    fn add_sums[const K: usize, const L: usize](
        all: &mut [f64], sent: [&[f32]; K], w: [f64; K], anchors: [f64; L]
    ) {
        let n = sent[0].len();
        let whole = n - n % WIDE;
        for at in (0..whole).step_by(WIDE) {
            add_some_sums::<WIDE, K, L>(all, (n, at), &sent, &w, &anchors);
        }
        for at in whole..n {
            add_some_sums::<1, K, L>(all, (n, at), &sent, &w, &anchors);
        }
    }
}

twice! {
    /// Adds a lane to `high + low`. `error` becomes other than 0 if `low` is rounded: by no more
    /// than 2^-52 of it.
    fn add_to[](high: &mut [f64], low: &mut [f64], error: &mut [f64], lane: &[f64]) {
        for (((high, low), error), lane) in high.iter_mut().zip(low).zip(error).zip(lane) {
            let (sum, rest) = two_sum(*high, *lane);
            let (tail, lost) = two_sum(*low, rest);
            *error += lost.abs();
            (*high, *low) = (sum, tail);
        }
    }
}

twice! {
    /// The quotients `(high + low) / total` as f32, if they were a little nearer to 0 and a little
    /// farther from it than they are. Where both agree, they are the rounded quotient.
    fn bounds[](high: &[f64], low: &[f64], error: &[f64], total: f64, inner: &mut [f32], outer: &mut [f32]) {
        // the rounded sum, total and quotient: three times half a unit in the last of 53 bits
        const ERROR: f64 = 1.0 / (1u64 << 50) as f64;
        for ((((high, low), error), inner), outer) in high.iter().zip(low).zip(error).zip(inner).zip(outer) {
            let quotient = (high + low) / total;
            let slack = quotient.abs() * ERROR + error * (2.0 / total);
            *inner = (quotient - slack.copysign(quotient)) as f32;
            *outer = (quotient + slack.copysign(quotient)) as f32;
        }
    }
}

twice! {
    /// `sums += w[0] * sent[0] + w[1] * sent[1] ..`, rounded, and the same of all sizes.
    fn add_rounded[const K: usize](
        sums: &mut [f64], sizes: &mut [f64], sent: [&[f32]; K], w: [f64; K]
    ) {
        let n = sums.len();
        let sent = sent.map(|s| &s[..n]);
        for (i, (sum, size)) in sums.iter_mut().zip(sizes).enumerate() {
            for k in 0..K {
                let product = w[k] * f64::from(sent[k][i]);
                *sum += product;
                *size += product.abs();
            }
        }
    }
}

/// The exact mean of a block by rounded sums and a bound of their error: it decides all numbers but
/// those near the middle of two f32, for which `exactly` is called. Returns `None` if these are
/// many.
fn enclosed(
    sent: &[&[f32]],
    weights: &[f64],
    (from, total): (usize, f64),
    out: &mut [f32],
    exactly: &dyn Fn(usize) -> f32,
) -> Option<()> {
    let n = out.len();
    let [mut sums, mut sizes, zeros] = [(); 3].map(|()| vec![0.0; n]);
    let groups = sent.as_chunks::<4>();
    let by = weights.as_chunks::<4>();
    for (sent, w) in groups.0.iter().zip(by.0) {
        add_rounded(&mut sums, &mut sizes, sent.map(|s| &s[from..from + n]), *w);
    }
    for (sent, w) in groups.1.iter().zip(by.1) {
        add_rounded(&mut sums, &mut sizes, [&sent[from..from + n]], [*w]);
    }
    // each product and each addition is rounded to 53 bits, and so is the sum of the sizes
    let roundings = (sent.len() + 4) as f64 / (1u64 << 53) as f64;
    sizes.iter_mut().for_each(|size| *size *= roundings);
    let mut outer = vec![0.0; n];
    bounds(&sums, &zeros, &sizes, total, out, &mut outer);
    let unclear = |(at, outer): (usize, &f32)| {
        let clear = outer.is_finite() && outer.to_bits() == out[at].to_bits();
        (!clear).then_some(at)
    };
    let unclear: Vec<usize> = outer.iter().enumerate().filter_map(unclear).collect();
    if unclear.len() > 8 + n / 64 {
        return None;
    }
    for at in unclear {
        out[at] = exactly(from + at);
    }
    one_zero(out);
    Some(())
}

/// Returns the exact mean of parameters, weighted by `weights` (one per message, in order): each
/// number is the mean without rounding on the way, rounded once to the nearest f32.
///
/// # Errors
/// If a weight is neither 0 nor from 2^-700 to 2^700.
pub fn exact_mean(inbox: &Inbox<Params>, weights: &[f64], exec: &dyn Executor) -> Result<Params> {
    let mean = |(name, first): (&String, &ArrayD<f32>)| {
        let mean = inbox.tensor(name, |sent| exact_weighted_mean(sent, weights, exec))?;
        Ok((name.clone(), ArrayD::from_shape_vec(first.raw_dim(), mean)?))
    };
    let first = inbox.iter().next().context("an inbox has a message")?;
    first.body.0.iter().map(mean).collect()
}

/// Returns the exact mean `sum_k weights[k] * sent[k][i] / sum_k weights[k]`, rounded once to the
/// nearest f32. All of `sent` have one length. The mean of numbers with NaN, or with both
/// infinities, is NaN.
///
/// # Errors
/// If a weight is neither 0 nor from 2^-700 to 2^700.
fn exact_weighted_mean(sent: &[&[f32]], weights: &[f64], exec: &dyn Executor) -> Result<Vec<f32>> {
    let mut out = vec![0.0; sent.first().map_or(0, |s| s.len())];
    let counts = |(_, weight): &(&[f32], f64)| *weight != 0.0;
    let counted = sent.iter().copied().zip(weights.iter().copied());
    let (sent, mut weights): (Vec<&[f32]>, Vec<f64>) = counted.filter(counts).unzip();
    for weight in &weights {
        parts(*weight).map(drop)?;
    }
    if weights.iter().all(|weight| *weight == weights[0]) {
        weights.fill(1.0); // the same mean
    }
    let mut shares: Vec<Share<'_>> = Vec::with_capacity(sent.len());
    for (sent, weight) in sent.iter().zip(&weights) {
        shares.extend(parts(*weight)?.map(|part| (*sent, part)));
    }
    let all = Weights(shares.iter().map(|(_, part)| *part).collect());
    let (total, _) = all.total();
    let exactly = |at: usize| {
        let mut sum = XsumSmall::new();
        let products = shares.iter().map(|(sent, part)| f64::from(sent[at]) * part);
        products.for_each(|product| sum.add(product));
        quotient(sum, total, &all)
    };
    let long = shares.len() > sent.len();
    exec.each_chunk(&mut out, CHUNK, &|chunk, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let from = chunk * CHUNK + i * BLOCK;
            let done = long.then(|| enclosed(&sent, &weights, (from, total), out, &exactly));
            if done.flatten().is_none() {
                let mut sums = Sums::new(out.len());
                sums.add(&shares, from);
                sums.divide(&all, out);
            }
        }
    });
    Ok(out)
}

#[cfg(test)]
mod tests;
