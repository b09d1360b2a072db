//! The inner loops of convolutions: sums and dot products of shifted rows.
//!
//! A convolution spends its time in two loops, written here once for every geometry. A sum of
//! shifted rows ([`shifted_sums`]) computes the output and the gradient by the input. A table of
//! dot products between shifted rows ([`shifted_dots`]) computes the gradient by the weights.
//! Nothing is unfolded into columns first (im2col): for the small channel counts of federated
//! models that costs as much memory traffic as the product itself.

use crate::simd::{LANES, Machine, Strip, Sweep, round_up, sweep};

/// Weights in the order that [`shifted_sums`] reads them.
pub struct Packed {
    rows: usize,
    taps: usize,
    values: Vec<f32>,
}

impl Packed {
    /// Packs `weight(row, tap)` for every row and tap.
    pub fn new(rows: usize, taps: usize, weight: impl Fn(usize, usize) -> f32) -> Self {
        let mut values = Vec::with_capacity(rows * taps);
        for (first, count) in row_blocks(rows) {
            for tap in 0..taps {
                values.extend((first..first + count).map(|row| weight(row, tap)));
            }
        }
        Self { rows, taps, values }
    }
}

/// Splits rows into blocks of 4, then 2, then 1. A last 6 stays in one block, because two would
/// starve the multipliers.
#[inline(always)]
fn row_blocks(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let count = match rows - first {
            6 => 6,
            left if left >= 4 => 4,
            left => left.min(2),
        };
        first += count;
        (count > 0).then_some((first - count, count))
    })
}

/// The needed numbers of a plane: `count` lines of `width`, with `step` from the start of one to
/// the next.
#[derive(Clone, Copy)]
pub struct Lines {
    /// Number of lines, at least 1.
    pub count: usize,
    /// Numbers in a line.
    pub width: usize,
    /// Step from one line to the next, at least `width`.
    pub step: usize,
}

impl Lines {
    /// Returns the numbers from the first to the last needed one.
    pub fn span(&self) -> usize {
        (self.count - 1) * self.step + self.width
    }

    /// Returns the same lines, joined where nothing lies between them.
    fn joined(self) -> Self {
        match self.step == self.width {
            true => Self {
                count: 1,
                width: self.span(),
                step: self.span(),
            },
            false => self,
        }
    }

    /// Returns whether vectors cover the lines and nothing between them.
    pub fn are_whole(&self) -> bool {
        self.joined().width.is_multiple_of(LANES)
    }
}

/// Where [`shifted_sums`] writes its rows.
pub struct Sink<'a> {
    /// All rows.
    pub out: &'a mut [f32],
    /// Step from one row to the next.
    pub ld: usize,
    /// What each sum becomes: the addend of its row is added, and then it is at least this number.
    pub finish: Option<(&'a [f32], f32)>,
}

/// Computes `out[row * ld + i] = sum over taps of weights[row, tap] * source[offsets[tap] + i]` for
/// all `i` of `lines`.
///
/// If the lines [are whole](Lines::are_whole), a row of `out` has them one after another. If not, it
/// has them as `source` has, and the numbers between the lines are undefined afterwards. Then `ld`,
/// and the room after every offset, must be at least `round_up(span)`.
pub fn shifted_sums(
    weights: &Packed,
    source: &[f32],
    offsets: &[usize],
    lines: Lines,
    sink: Sink<'_>,
) {
    sweep(Sums::new(weights, source, offsets, lines, sink));
}

/// Numbers whose taps [`Needed`] names: three vectors of eight.
const GROUP: usize = 3 * LANES;

/// The taps that read anything but zeros, for each 24 numbers of a row.
pub struct Needed(Vec<Vec<u32>>);

impl Needed {
    /// Returns the taps for the sums of `n` numbers, or `None` if nearly all are needed.
    /// `zeros(tap, numbers)` tells whether a tap reads only zeros for these numbers.
    pub fn new(
        n: usize,
        taps: usize,
        zeros: impl Fn(usize, std::ops::Range<usize>) -> bool,
    ) -> Option<Self> {
        let groups = (0..n).step_by(GROUP).map(|first| {
            let numbers = first..n.min(first + GROUP);
            let needed = (0..taps).filter(|tap| !zeros(*tap, numbers.clone()));
            needed.map(|tap| tap as u32).collect::<Vec<u32>>()
        });
        let groups: Vec<_> = groups.collect();
        let needed: usize = groups.iter().map(Vec::len).sum();
        (10 * needed < 9 * groups.len() * taps).then_some(Self(groups))
    }
}

/// [`shifted_sums`] for whole lines without gaps, by the needed taps alone. The product of a finite
/// weight and a zero changes no sum, so the numbers are the same.
pub fn needed_sums(
    weights: &Packed,
    source: &[f32],
    offsets: &[usize],
    needed: &Needed,
    lines: Lines,
    sink: Sink<'_>,
) {
    let sums = Sums::new(weights, source, offsets, lines, sink);
    let groups = sums.lines.width.div_ceil(GROUP);
    assert!(
        sums.lines.count == 1 && needed.0.len() == groups && lines.are_whole(),
        "lines with gaps"
    );
    sweep(NeededSums { sums, needed });
}

struct NeededSums<'a> {
    sums: Sums<'a>,
    needed: &'a Needed,
}

impl Sweep for NeededSums<'_> {
    #[inline(always)]
    fn sweep<E: Machine, W: Strip>(self, strip: E, _: W) {
        let Self { mut sums, needed } = self;
        let weights = sums.weights;
        for (group, taps) in needed.0.iter().enumerate() {
            let first = group * GROUP;
            let count = (sums.lines.width - first).min(GROUP) / LANES;
            for (row, rows) in row_blocks(weights.rows) {
                let w = &weights.values[row * weights.taps..(row + rows) * weights.taps];
                match (rows, count) {
                    (6, 3) => sums.of::<E, 6, 3>(strip, w, taps, row, first),
                    (6, 2) => sums.of::<E, 6, 2>(strip, w, taps, row, first),
                    (6, _) => sums.of::<E, 6, 1>(strip, w, taps, row, first),
                    (4, 3) => sums.of::<E, 4, 3>(strip, w, taps, row, first),
                    (4, 2) => sums.of::<E, 4, 2>(strip, w, taps, row, first),
                    (4, _) => sums.of::<E, 4, 1>(strip, w, taps, row, first),
                    (2, 3) => sums.of::<E, 2, 3>(strip, w, taps, row, first),
                    (2, 2) => sums.of::<E, 2, 2>(strip, w, taps, row, first),
                    (2, _) => sums.of::<E, 2, 1>(strip, w, taps, row, first),
                    (_, 3) => sums.of::<E, 1, 3>(strip, w, taps, row, first),
                    (_, 2) => sums.of::<E, 1, 2>(strip, w, taps, row, first),
                    (_, _) => sums.of::<E, 1, 1>(strip, w, taps, row, first),
                }
            }
        }
    }
}

struct Sums<'a> {
    weights: &'a Packed,
    source: &'a [f32],
    offsets: &'a [usize],
    lines: Lines,
    sink: Sink<'a>,
}

impl Sweep for Sums<'_> {
    #[inline(always)]
    fn sweep<E: Machine, W: Strip>(self, eights: E, widest: W) {
        match self.lines.width.is_multiple_of(W::WIDTH) {
            true => self.on(widest),
            false => self.on(eights),
        }
    }
}

/// Vectors that are computed for all rows before the next ones.
const TOGETHER: usize = 6;

impl<'a> Sums<'a> {
    fn new(
        weights: &'a Packed,
        source: &'a [f32],
        offsets: &'a [usize],
        lines: Lines,
        sink: Sink<'a>,
    ) -> Self {
        let whole = lines.are_whole();
        let row = match whole {
            true => lines.count * lines.width,
            false => round_up(lines.span()),
        };
        assert!(
            offsets.len() == weights.taps
                && sink.ld >= row
                && sink.out.len() >= (weights.rows.max(1) - 1) * sink.ld + row,
            "misshapen buffers"
        );
        let lines = match whole {
            true => lines.joined(),
            false => Lines {
                count: 1,
                width: row,
                step: row,
            },
        };
        Self {
            weights,
            source,
            offsets,
            lines,
            sink,
        }
    }

    /// Computes `V` vectors from `first` on for `R` rows, by these taps.
    #[inline(always)]
    fn of<S: Strip, const R: usize, const V: usize>(
        &mut self,
        strip: S,
        weights: &[f32],
        taps: &[u32],
        row: usize,
        first: usize,
    ) {
        let weights = weights.as_chunks::<R>().0;
        let taps = taps
            .iter()
            .map(|tap| (&weights[*tap as usize], self.offsets[*tap as usize]));
        let starts: [usize; V] = std::array::from_fn(|v| first + v * S::WIDTH);
        let (source, sink) = (self.source, &mut self.sink);
        sums_block::<S, R, V>(strip, taps, source, starts, sink, (row, first));
    }

    #[inline(always)]
    fn on<S: Strip>(self, strip: S) {
        let Self {
            weights,
            source,
            offsets,
            lines,
            mut sink,
        } = self;
        let each = lines.width / S::WIDTH;
        let all = each * lines.count;
        // where the next vector is read, and how many follow in its line
        let (mut from, mut left) = (0, each);
        for first in (0..all).step_by(TOGETHER) {
            let count = TOGETHER.min(all - first);
            let mut starts = [0; TOGETHER];
            for start in &mut starts[..count] {
                *start = from;
                left -= 1;
                from += S::WIDTH;
                if left == 0 {
                    (from, left) = (from + lines.step - lines.width, each);
                }
            }
            for (row, rows) in row_blocks(weights.rows) {
                let w = &weights.values[row * weights.taps..(row + rows) * weights.taps];
                let mut done = 0;
                while done < count {
                    let v = vectors::<S>(rows, count - done);
                    let tile = Tile {
                        weights: w,
                        offsets,
                        source,
                        starts: &starts[done..],
                        to: (row, (first + done) * S::WIDTH),
                    };
                    match (rows, v) {
                        (6, 4) if S::SUMS >= 24 => tile.sums::<S, 6, 4>(strip, &mut sink),
                        (6, 2) => tile.sums::<S, 6, 2>(strip, &mut sink),
                        (6, _) => tile.sums::<S, 6, 1>(strip, &mut sink),
                        (4, 6) if S::SUMS >= 24 => tile.sums::<S, 4, 6>(strip, &mut sink),
                        (4, 3) => tile.sums::<S, 4, 3>(strip, &mut sink),
                        (4, 2) => tile.sums::<S, 4, 2>(strip, &mut sink),
                        (4, _) => tile.sums::<S, 4, 1>(strip, &mut sink),
                        (2, 6) => tile.sums::<S, 2, 6>(strip, &mut sink),
                        (2, 3) => tile.sums::<S, 2, 3>(strip, &mut sink),
                        (2, 2) => tile.sums::<S, 2, 2>(strip, &mut sink),
                        (2, _) => tile.sums::<S, 2, 1>(strip, &mut sink),
                        (_, 6) => tile.sums::<S, 1, 6>(strip, &mut sink),
                        (_, 3) => tile.sums::<S, 1, 3>(strip, &mut sink),
                        (_, 2) => tile.sums::<S, 1, 2>(strip, &mut sink),
                        (_, _) => tile.sums::<S, 1, 1>(strip, &mut sink),
                    }
                    done += v;
                }
            }
        }
    }
}

/// Returns how many of `left` vectors a block of rows takes: its sums fill the registers, and a last
/// single vector would starve the multipliers.
#[inline(always)]
fn vectors<S: Strip>(rows: usize, left: usize) -> usize {
    let many = S::SUMS >= 24;
    match (rows, left) {
        (6, 4..) if many => 4,
        (6, _) => left.min(2),
        (4, 6..) if many => 6,
        (4, 4) => 2,
        (4, _) => left.min(3),
        (_, 6..) => 6,
        (_, _) => left.min(3),
    }
}

/// Some rows and vectors whose sums are computed together, by all taps.
struct Tile<'a> {
    weights: &'a [f32],
    offsets: &'a [usize],
    source: &'a [f32],
    starts: &'a [usize],
    /// Row, and place in it.
    to: (usize, usize),
}

impl Tile<'_> {
    #[inline(always)]
    fn sums<S: Strip, const R: usize, const V: usize>(self, strip: S, sink: &mut Sink<'_>) {
        let starts: [usize; V] = std::array::from_fn(|v| self.starts[v]);
        let weights = self.weights.as_chunks::<R>().0.iter();
        let taps = weights.zip(self.offsets.iter().copied());
        sums_block::<S, R, V>(strip, taps, self.source, starts, sink, self.to);
    }
}

/// Computes the vectors of `source` at each of `starts` for `R` rows, tap by tap, each with its
/// weights and its offset, and writes them at a row and a place in it.
#[inline(always)]
fn sums_block<'a, S: Strip, const R: usize, const V: usize>(
    strip: S,
    taps: impl Iterator<Item = (&'a [f32; R], usize)>,
    source: &[f32],
    starts: [usize; V],
    sink: &mut Sink<'_>,
    (row, place): (usize, usize),
) {
    let mut acc = [[strip.splat(0.0); V]; R];
    for (w, offset) in taps {
        let source = &source[offset..];
        let x: [S::Vector; V] = std::array::from_fn(
            #[inline(always)]
            |v| strip.load(&source[starts[v]..]),
        );
        for r in 0..R {
            let w = strip.splat(w[r]);
            for v in 0..V {
                acc[r][v] = strip.fused_each(w, x[v], acc[r][v]);
            }
        }
    }
    for r in 0..R {
        let out = &mut sink.out[(row + r) * sink.ld + place..][..V * S::WIDTH];
        for v in 0..V {
            let x = match sink.finish {
                Some((addends, floor)) => strip.rectified(acc[r][v], addends[row + r], floor),
                None => acc[r][v],
            };
            strip.store(x, &mut out[v * S::WIDTH..]);
        }
    }
}

/// Computes `out[row * taps + tap] += sum over samples s and i in 0..n of a[s][row * a_ld + i] *
/// b[s][offsets[tap] + i]`.
///
/// Sample `s` of `a` starts at `s * a_sample`, of `b` at `s * b_sample`. `n` is rounded up to whole
/// eights: `a` must be 0 there, and both must have the room.
pub fn shifted_dots(
    a: &Rows<'_>,
    b: &Rows<'_>,
    samples: usize,
    offsets: &[usize],
    n: usize,
    out: &mut [f32],
) {
    assert!(out.len().is_multiple_of(offsets.len()), "misshapen buffers");
    sweep(Dots {
        a,
        b,
        samples,
        offsets,
        n,
        out,
    });
}

/// Rows of several samples in one buffer.
pub struct Rows<'a> {
    /// All numbers.
    pub values: &'a [f32],
    /// Step from one row of a sample to the next.
    pub ld: usize,
    /// Step from one sample to the next.
    pub sample: usize,
}

struct Dots<'a> {
    a: &'a Rows<'a>,
    b: &'a Rows<'a>,
    samples: usize,
    offsets: &'a [usize],
    n: usize,
    out: &'a mut [f32],
}

impl Sweep for Dots<'_> {
    #[inline(always)]
    fn sweep<E: Machine, W: Strip>(self, machine: E, _: W) {
        let Self {
            a,
            b,
            samples,
            offsets,
            n,
            out,
        } = self;
        let taps = offsets.len();
        let size = Size {
            samples,
            n: n.next_multiple_of(LANES),
            taps,
        };
        let many = E::SUMS >= 24;
        for (row, rows) in row_blocks(out.len() / taps) {
            let most = match (rows, many) {
                (6, true) => 4,
                (6, false) => 2,
                (4, true) => 6,
                _ => 3,
            };
            let mut tap = 0;
            while tap < taps {
                let count = match taps - tap {
                    left if left >= most => most,
                    left if rows == 6 => left.min(2),
                    left => left.min(3),
                };
                let (a_at, offsets, out) = (
                    row * a.ld,
                    &offsets[tap..tap + count],
                    &mut out[row * taps + tap..],
                );
                match (rows, count) {
                    (6, 4) if many => {
                        dots_block::<E, 6, 4>(machine, a, a_at, b, offsets, &size, out)
                    }
                    (6, 2) => dots_block::<E, 6, 2>(machine, a, a_at, b, offsets, &size, out),
                    (6, _) => dots_block::<E, 6, 1>(machine, a, a_at, b, offsets, &size, out),
                    (4, 6) if many => {
                        dots_block::<E, 4, 6>(machine, a, a_at, b, offsets, &size, out)
                    }
                    (4, 3) => dots_block::<E, 4, 3>(machine, a, a_at, b, offsets, &size, out),
                    (4, 2) => dots_block::<E, 4, 2>(machine, a, a_at, b, offsets, &size, out),
                    (4, _) => dots_block::<E, 4, 1>(machine, a, a_at, b, offsets, &size, out),
                    (2, 3) => dots_block::<E, 2, 3>(machine, a, a_at, b, offsets, &size, out),
                    (2, 2) => dots_block::<E, 2, 2>(machine, a, a_at, b, offsets, &size, out),
                    (2, _) => dots_block::<E, 2, 1>(machine, a, a_at, b, offsets, &size, out),
                    (_, 3) => dots_block::<E, 1, 3>(machine, a, a_at, b, offsets, &size, out),
                    (_, 2) => dots_block::<E, 1, 2>(machine, a, a_at, b, offsets, &size, out),
                    (_, _) => dots_block::<E, 1, 1>(machine, a, a_at, b, offsets, &size, out),
                }
                tap += count;
            }
        }
    }
}

/// Samples, numbers in a row, taps in a row of the result.
struct Size {
    samples: usize,
    n: usize,
    taps: usize,
}

#[inline(always)]
fn dots_block<M: Machine, const R: usize, const T: usize>(
    machine: M,
    a: &Rows<'_>,
    a_at: usize,
    b: &Rows<'_>,
    offsets: &[usize],
    size: &Size,
    out: &mut [f32],
) {
    let mut acc = [[machine.splat(0.0); T]; R];
    for s in 0..size.samples {
        let (a_at, b_at) = (s * a.sample + a_at, s * b.sample);
        let rows: [&[[f32; LANES]]; R] =
            std::array::from_fn(|r| a.values[a_at + r * a.ld..][..size.n].as_chunks().0);
        let taps: [&[[f32; LANES]]; T] =
            std::array::from_fn(|t| b.values[b_at + offsets[t]..][..size.n].as_chunks().0);
        for i in 0..size.n / LANES {
            let x: [M::Vector; T] = std::array::from_fn(
                #[inline(always)]
                |t| machine.load(&taps[t][i]),
            );
            for r in 0..R {
                let row = machine.load(&rows[r][i]);
                for t in 0..T {
                    acc[r][t] = machine.fused_each(row, x[t], acc[r][t]);
                }
            }
        }
    }
    // written first: the sums below are no part of the loop that keeps `acc` in registers
    let mut lanes = [[[0.0; LANES]; T]; R];
    for r in 0..R {
        for t in 0..T {
            machine.store(acc[r][t], &mut lanes[r][t]);
        }
    }
    for (r, lanes) in lanes.iter().enumerate() {
        for (t, lanes) in lanes.iter().enumerate() {
            out[r * size.taps + t] += machine.sum(machine.load(lanes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Plain, at_least, sweep_eights};
    use fl_core::portable::Fused;

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| libm::sinf(i as f32 * step)).collect()
    }

    #[test]
    fn both_loops_are_what_they_say_for_every_block_shape() {
        for (rows, taps, n) in [
            (1, 1, 1),
            (2, 2, 9),
            (3, 5, 31),
            (4, 3, 32),
            (7, 4, 50),
            (6, 7, 100),
            (9, 8, 65),
            (10, 5, 17),
        ] {
            let ld = round_up(n);
            let (source, weights) = (wave(2 * ld + taps, 0.7), wave(rows * taps, 0.3));
            let offsets: Vec<usize> = (0..taps).map(|t| (t * 7) % (taps + 1)).collect();
            let mut out = vec![9.0; rows * ld];
            let packed = Packed::new(rows, taps, |r, t| weights[r * taps + t]);
            let lines = Lines {
                count: 1,
                width: ld,
                step: ld,
            };
            let sink = Sink {
                out: &mut out,
                ld,
                finish: None,
            };
            shifted_sums(&packed, &source, &offsets, lines, sink);
            for r in 0..rows {
                for i in 0..n {
                    let exact: f64 = (0..taps)
                        .map(|t| {
                            f64::from(weights[r * taps + t]) * f64::from(source[offsets[t] + i])
                        })
                        .sum();
                    assert!(
                        (f64::from(out[r * ld + i]) - exact).abs() < 1e-5,
                        "{rows} {taps} {n}: row {r}, {i}"
                    );
                }
            }

            let mut a = vec![0.0; 2 * rows * ld];
            for row in a.chunks_mut(ld) {
                row[..n].copy_from_slice(&wave(n, 0.9));
            }
            let mut dots = vec![1.0; rows * taps];
            let (all_a, all_b) = (
                Rows {
                    values: &a,
                    ld,
                    sample: rows * ld,
                },
                Rows {
                    values: &source,
                    ld,
                    sample: 5,
                },
            );
            let source_long = wave(3 * ld + taps + 5, 0.7);
            let all_b = Rows {
                values: &source_long,
                ..all_b
            };
            shifted_dots(&all_a, &all_b, 2, &offsets, n, &mut dots);
            for plain in [false, true] {
                let mut same = vec![1.0; rows * taps];
                let work = Dots {
                    a: &all_a,
                    b: &all_b,
                    samples: 2,
                    offsets: &offsets,
                    n,
                    out: &mut same,
                };
                match plain {
                    true => work.sweep(Plain, Plain),
                    false => sweep_eights(work),
                }
                assert_eq!(same, dots, "{rows} {taps} {n}");
            }
            for (at, dot) in dots.iter().enumerate() {
                let (r, t) = (at / taps, at % taps);
                let term = |s: usize, i: usize| {
                    f64::from(a[s * rows * ld + r * ld + i])
                        * f64::from(source_long[s * 5 + offsets[t] + i])
                };
                let exact: f64 = 1.0
                    + (0..2)
                        .flat_map(|s| (0..n).map(move |i| (s, i)))
                        .map(|(s, i)| term(s, i))
                        .sum::<f64>();
                assert!(
                    (f64::from(*dot) - exact).abs() < 1e-4,
                    "{rows} {taps} {n}: {dot} for {exact}"
                );
            }
        }
    }

    #[test]
    fn exact_sums_of_lines_on_every_processor() {
        for (rows, count, width, step) in [
            (1, 7, 8, 12),
            (2, 9, 16, 16),
            (3, 2, 16, 17),
            (6, 8, 8, 12),
            (6, 24, 24, 28),
            (7, 13, 24, 28),
            (10, 12, 12, 12),
            (16, 5, 48, 53),
            (16, 9, 32, 33),
            (3, 4, 11, 13),
        ] {
            let lines = Lines { count, width, step };
            let (span, taps) = (round_up(lines.span()), 9);
            let (source, weights) = (wave(span + 2 * step + 3, 0.7), wave(rows * taps, 0.3));
            let offsets: Vec<usize> = (0..taps).map(|t| t / 3 * step + t % 3).collect();
            let packed = Packed::new(rows, taps, |r, t| weights[r * taps + t]);
            let addends = wave(rows, 0.9);
            for finish in [None, Some((&addends[..], 0.0))] {
                let sums = |on: &dyn Fn(Sums<'_>)| {
                    let ld = if lines.are_whole() {
                        count * width
                    } else {
                        span
                    };
                    let mut out = vec![9.0; rows * ld];
                    let sink = Sink {
                        out: &mut out,
                        ld,
                        finish,
                    };
                    on(Sums::new(&packed, &source, &offsets, lines, sink));
                    // the numbers between the lines are undefined
                    let step = if lines.are_whole() { width } else { step };
                    let places = (0..rows).flat_map(|r| (0..count).map(move |l| r * ld + l * step));
                    let lines = places.flat_map(|at| out[at..at + width].to_vec());
                    lines.map(f32::to_bits).collect::<Vec<_>>()
                };
                let mut wanted = Vec::new();
                for (r, l, i) in (0..rows)
                    .flat_map(|r| (0..count).map(move |l| (r, l)))
                    .flat_map(|(r, l)| (0..width).map(move |i| (r, l, i)))
                {
                    let sum = offsets.iter().enumerate().fold(0.0, |sum, (t, offset)| {
                        f32::fused(weights[r * taps + t], source[offset + l * step + i], sum)
                    });
                    wanted.push(match finish {
                        Some((addends, floor)) => at_least(sum + addends[r], floor).to_bits(),
                        None => sum.to_bits(),
                    });
                }
                let case = format!("{rows} rows of {count} x {width}, {step} apart");
                assert!(sums(&|work| sweep(work)) == wanted, "{case}");
                assert!(sums(&|work| sweep_eights(work)) == wanted, "{case}, eights");
                assert!(
                    sums(&|work| work.sweep(Plain, Plain)) == wanted,
                    "{case}, plain"
                );
            }
        }
    }
}
