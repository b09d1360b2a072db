//! Sums of shifted rows.

use super::{Tiles, row_blocks, tiles};
use crate::simd::{LANES, Machine, Strip, Sweep, WIDEST, round_up, sweep};

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

    /// Returns the weights of a block of rows, tap by tap.
    #[inline(always)]
    fn of<const R: usize>(&self, row: usize) -> &[[f32; R]] {
        let rows = row * self.taps..(row + R) * self.taps;
        self.values[rows].as_chunks().0
    }
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
        if self.step == self.width {
            Self {
                count: 1,
                width: self.span(),
                step: self.span(),
            }
        } else {
            self
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

/// [`Needed`] names the taps of this many of its widest vectors together.
const GROUP: usize = 3;

/// The taps that read anything but zeros, for each group of numbers of a row.
pub struct Needed {
    /// Numbers of the widest vectors that make up a row without a rest.
    lanes: usize,
    groups: Vec<Vec<u32>>,
}

impl Needed {
    /// Returns the taps for the sums of `n` numbers, or `None` if nearly all are needed.
    /// `zeros(tap, numbers)` tells whether a tap reads only zeros for these numbers.
    pub fn new(
        n: usize,
        taps: usize,
        zeros: impl Fn(usize, std::ops::Range<usize>) -> bool,
    ) -> Option<Self> {
        // the same on every machine, for a tap that is left out hides an infinite weight
        let is_wide = n.is_multiple_of(WIDEST);
        let lanes = if is_wide { WIDEST } else { LANES };
        let groups = (0..n).step_by(GROUP * lanes).map(|first| {
            let numbers = first..n.min(first + GROUP * lanes);
            let needed = (0..taps).filter(|tap| !zeros(*tap, numbers.clone()));
            needed.map(|tap| tap as u32).collect::<Vec<u32>>()
        });
        let groups: Vec<_> = groups.collect();
        let needed: usize = groups.iter().map(Vec::len).sum();
        (10 * needed < 9 * groups.len() * taps).then_some(Self { lanes, groups })
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
    let groups = sums.lines.width.div_ceil(GROUP * needed.lanes);
    assert!(
        sums.lines.count == 1 && needed.groups.len() == groups && lines.are_whole(),
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
    fn sweep<E: Machine, W: Strip>(self, eights: E, widest: W) {
        if self.needed.lanes.is_multiple_of(W::WIDTH) {
            self.on(widest)
        } else {
            self.on(eights)
        }
    }
}

impl NeededSums<'_> {
    #[inline(always)]
    fn on<S: Strip>(self, strip: S) {
        let Self { mut sums, needed } = self;
        let group = GROUP * needed.lanes;
        for (at, taps) in needed.groups.iter().enumerate() {
            let first = at * group;
            let count = (sums.lines.width - first).min(group) / S::WIDTH;
            let (rows, sums) = (sums.weights.rows, &mut sums);
            tiles(strip, rows, count, &mut NeededTiles { sums, taps, first });
        }
    }
}

/// Some numbers of all rows, by these taps.
struct NeededTiles<'s, 'a> {
    sums: &'s mut Sums<'a>,
    taps: &'s [u32],
    first: usize,
}

impl<S: Strip> Tiles<S> for NeededTiles<'_, '_> {
    #[inline(always)]
    fn tile<const R: usize, const V: usize>(&mut self, strip: S, row: usize, at: usize) {
        let Sums {
            weights,
            source,
            offsets,
            sink,
            ..
        } = &mut *self.sums;
        let weights = weights.of::<R>(row);
        let first = self.first + at * S::WIDTH;
        let taps = self.taps.iter().map(|tap| *tap as usize);
        let taps = taps.map(|tap| {
            let source = &source[offsets[tap] + first..][..V * S::WIDTH];
            (&weights[tap], source)
        });
        sums_block::<S, R, V>(
            strip,
            taps,
            #[inline(always)]
            |source, v| strip.load(&source[v * S::WIDTH..]),
            sink,
            (row, first),
        );
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
        let Lines { count, width, .. } = self.lines;
        match (width % W::WIDTH, width * count % W::WIDTH) {
            (0, _) => self.on(widest, W::WIDTH),
            // a vector has the end of a line and the beginning of the next
            (_, 0) => self.on(widest, LANES),
            _ => self.on(eights, LANES),
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
        let row = if whole {
            lines.count * lines.width
        } else {
            round_up(lines.span())
        };
        assert!(
            offsets.len() == weights.taps
                && sink.ld >= row
                && sink.out.len() >= (weights.rows.max(1) - 1) * sink.ld + row,
            "misshapen buffers"
        );
        let lines = if whole {
            lines.joined()
        } else {
            Lines {
                count: 1,
                width: row,
                step: row,
            }
        };
        Self {
            weights,
            source,
            offsets,
            lines,
            sink,
        }
    }

    /// Computes all vectors, which consist of one piece of a line, or of two.
    #[inline(always)]
    fn on<S: Strip>(self, strip: S, piece: usize) {
        let Self {
            weights,
            source,
            offsets,
            lines,
            mut sink,
        } = self;
        let all = lines.width * lines.count / S::WIDTH;
        // where the next piece is read, and how many follow in its line
        let each = lines.width / piece;
        let (mut from, mut left) = (0, each);
        for first in (0..all).step_by(TOGETHER) {
            let count = TOGETHER.min(all - first);
            let mut starts = [[0; 2]; TOGETHER];
            for starts in &mut starts[..count] {
                for start in &mut starts[..S::WIDTH / piece] {
                    *start = from;
                    left -= 1;
                    from += piece;
                    if left == 0 {
                        (from, left) = (from + lines.step - lines.width, each);
                    }
                }
            }
            let mut work = SumsTiles {
                weights,
                offsets,
                source,
                starts: &starts[..count],
                pieces: S::WIDTH / piece,
                sink: &mut sink,
                first,
            };
            tiles(strip, weights.rows, count, &mut work);
        }
    }
}

/// Vectors of all rows from `first` on, whose pieces begin at `starts`, by all taps.
struct SumsTiles<'s, 'a> {
    weights: &'a Packed,
    offsets: &'a [usize],
    source: &'a [f32],
    starts: &'s [[usize; 2]],
    pieces: usize,
    sink: &'s mut Sink<'a>,
    first: usize,
}

impl<S: Strip> Tiles<S> for SumsTiles<'_, '_> {
    #[inline(always)]
    fn tile<const R: usize, const V: usize>(&mut self, strip: S, row: usize, at: usize) {
        let mut starts = [[0; 2]; V];
        starts.copy_from_slice(&self.starts[at..at + V]);
        let pieces = self.pieces;
        // what a tap reads is within this reach: one check for it instead of two for each vector
        let most = starts.as_flattened().iter().fold(0, |most, x| most.max(*x));
        let reach = most + S::WIDTH / pieces;
        for start in starts.as_flattened() {
            assert!(*start <= reach && S::WIDTH / pieces <= reach - start);
        }
        let sources = self.offsets.iter();
        let sources = sources.map(|offset| &self.source[*offset..][..reach]);
        let taps = self.weights.of::<R>(row).iter().zip(sources);
        let to = (row, (self.first + at) * S::WIDTH);
        sums_block::<S, R, V>(
            strip,
            taps,
            #[inline(always)]
            |source, v| match pieces {
                1 => strip.load(&source[starts[v][0]..]),
                _ => strip.halves(&source[starts[v][0]..], &source[starts[v][1]..]),
            },
            self.sink,
            to,
        );
    }
}

/// Computes `V` vectors of `R` rows, tap by tap, each with its weights and its source, and writes
/// them at a row and a place in it.
#[inline(always)]
fn sums_block<'a, S: Strip, const R: usize, const V: usize>(
    strip: S,
    taps: impl Iterator<Item = (&'a [f32; R], &'a [f32])>,
    load: impl Fn(&[f32], usize) -> S::Vector,
    sink: &mut Sink<'_>,
    (row, place): (usize, usize),
) {
    let mut acc = [[strip.splat(0.0); V]; R];
    for (w, source) in taps {
        let mut x = [strip.splat(0.0); V];
        for (v, x) in x.iter_mut().enumerate() {
            *x = load(source, v);
        }
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

#[cfg(test)]
mod tests {
    use super::super::{SHAPES, wave};
    use super::*;
    use crate::simd::{Plain, at_least, sweep_eights, sweep_sixteens};
    use fl_core::portable::Fused;

    #[test]
    fn sums_are_what_they_say_for_every_shape_of_a_tile() {
        for (rows, taps, n) in SHAPES {
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
            (29, 3, 28, 30),
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
                assert!(sums(&|work| sweep_sixteens(work)) == wanted, "{case}, 16");
                assert!(
                    sums(&|work| work.sweep(Plain, Plain)) == wanted,
                    "{case}, plain"
                );
            }
        }
    }

    #[test]
    fn exact_sums_by_needed_taps_on_every_processor() {
        let (rows, taps, mut spared) = (7, 9, 0);
        for n in [24, 48, 72, 96, 144, 160, 240] {
            let offsets: Vec<usize> = (0..taps).map(|t| 8 * t).collect();
            let mut source = wave(n + 8 * taps, 0.7);
            // zeros around, as the padding of a gradient
            source[..30].fill(0.0);
            source[n..].fill(0.0);
            let weights = wave(rows * taps, 1.3);
            let packed = Packed::new(rows, taps, |r, t| weights[r * taps + t]);
            let lines = Lines {
                count: 1,
                width: n,
                step: n,
            };
            let zeros = |tap: usize, numbers: std::ops::Range<usize>| {
                let read = offsets[tap] + numbers.start..offsets[tap] + numbers.end;
                source[read].iter().all(|x| *x == 0.0)
            };
            let Some(needed) = Needed::new(n, taps, zeros) else {
                continue;
            };
            spared += 1;
            let sums = |on: &dyn Fn(Sums<'_>)| {
                let mut out = vec![9.0; rows * n];
                let sink = Sink {
                    out: &mut out,
                    ld: n,
                    finish: None,
                };
                on(Sums::new(&packed, &source, &offsets, lines, sink));
                out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let wanted = sums(&|sums| sums.sweep(Plain, Plain));
            let by_taps = |on: &dyn Fn(NeededSums<'_>)| {
                sums(&|sums| {
                    let needed = &needed;
                    on(NeededSums { sums, needed });
                })
            };
            assert!(by_taps(&|work| sweep(work)) == wanted, "{n}");
            assert!(by_taps(&|work| sweep_eights(work)) == wanted, "{n}, eights");
            assert!(by_taps(&|work| sweep_sixteens(work)) == wanted, "{n}, 16");
            let plain = by_taps(&|work| work.sweep(Plain, Plain));
            assert!(plain == wanted, "{n}, plain");
        }
        assert!(spared > 3, "{spared}");
    }
}
