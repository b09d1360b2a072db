//! The inner loops, compiled for the vector width of the machine that runs them.
//!
//! A convolution spends its time in two loops, written here once for every geometry. A sum of
//! shifted rows ([`shifted_sums`]) computes the output and the gradient by the input. A table of
//! dot products between shifted rows ([`shifted_dots`]) computes the gradient by the weights.
//! Nothing is unfolded into columns first (im2col): for the small channel counts of federated
//! models that costs as much memory traffic as the product itself.

use pulp::{Arch, Simd, WithSimd};

/// Both loops pad the rows that they read to a multiple of this: the widest vector there is.
pub const WIDEST: usize = 16;

/// Rounds up to a multiple of [`WIDEST`].
pub const fn round_up(n: usize) -> usize {
    n.next_multiple_of(WIDEST)
}

/// Runs `f` compiled for the best instruction set of this machine. A closure must be marked
/// `#[inline(always)]`: one that is not inlined is compiled for the oldest machine.
#[inline(always)]
pub fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    struct Run<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Run<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Run(f))
}

/// Returns `max(value, floor)`, but NaN stays NaN, so that the loss shows it.
#[inline(always)]
pub fn at_least(value: f32, floor: f32) -> f32 {
    if value < floor { floor } else { value }
}

/// Sums `f` over both slices in sixteen running sums: a fixed order that vectorises.
#[inline(always)]
pub fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0f32; WIDEST];
    let (a_blocks, a_rest) = a.as_chunks::<WIDEST>();
    let (b_blocks, b_rest) = b.as_chunks::<WIDEST>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for i in 0..WIDEST {
            sums[i] += f(x[i], y[i]);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| f(*x, *y)).sum();
    sums.iter().sum::<f32>() + rest
}

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

/// Splits `n` into blocks of `largest` (2 or 3), then 2, then 1: (first, count).
#[inline(always)]
fn blocks(n: usize, largest: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = n - first;
        let count = if left >= largest {
            largest
        } else {
            left.min(2)
        };
        first += count;
        (count > 0).then_some((first - count, count))
    })
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

    /// Calls `f(first, vectors, step)` for at most six vectors of `lanes` at a time, `step` apart.
    /// If lines are whole vectors it skips the numbers between them, and computes them otherwise.
    #[inline(always)]
    fn vectors(&self, lanes: usize, mut f: impl FnMut(usize, usize, usize)) {
        let (runs, length, from_run, step) = if !self.width.is_multiple_of(lanes) {
            (1, self.span().div_ceil(lanes), 0, lanes)
        } else if self.width == lanes {
            (1, self.count, 0, self.step)
        } else {
            (self.count, self.width / lanes, self.step, lanes)
        };
        for run in 0..runs {
            for first in (0..length).step_by(6) {
                f(run * from_run + first * step, (length - first).min(6), step);
            }
        }
    }
}

/// Computes `out[row * ld + i] = sum over taps of weights[row, tap] * source[offsets[tap] + i]` for
/// all `i` of `lines`. The numbers between the lines are undefined afterwards.
///
/// The span is rounded up to whole vectors: `ld`, and the room after every offset, must be at least
/// `round_up(span)`.
pub fn shifted_sums(
    weights: &Packed,
    source: &[f32],
    offsets: &[usize],
    lines: Lines,
    out: &mut [f32],
    ld: usize,
) {
    assert!(
        offsets.len() == weights.taps
            && ld >= round_up(lines.span())
            && out.len() >= weights.rows * ld,
        "misshapen buffers"
    );
    Arch::new().dispatch(Sums {
        weights,
        source,
        offsets,
        lines,
        out,
        ld,
    });
}

struct Sums<'a> {
    weights: &'a Packed,
    source: &'a [f32],
    offsets: &'a [usize],
    lines: Lines,
    out: &'a mut [f32],
    ld: usize,
}

impl WithSimd for Sums<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            weights,
            source,
            offsets,
            lines,
            out,
            ld,
        } = self;
        lines.vectors(
            S::F32_LANES,
            #[inline(always)]
            |at, vectors, step| {
                for (row, rows) in row_blocks(weights.rows) {
                    let w = &weights.values[row * weights.taps..(row + rows) * weights.taps];
                    let mut done = 0;
                    while done < vectors {
                        // twelve sums fill the sixteen registers; a last single vector would starve
                        // the multipliers
                        let v = match (rows, vectors - done) {
                            (6, left) => left.min(2),
                            (4, 4) => 2,
                            (4, left) => left.min(3),
                            (_, 6) => 6,
                            (_, left) => left.min(3),
                        };
                        let from = at + done * step;
                        let (x, out) = (&source[from..], &mut out[row * ld + from..]);
                        let to = Target { out, ld, step };
                        match (rows, v) {
                            (6, 2) => sums_block::<S, 6, 2>(simd, w, x, offsets, to),
                            (6, _) => sums_block::<S, 6, 1>(simd, w, x, offsets, to),
                            (4, 3) => sums_block::<S, 4, 3>(simd, w, x, offsets, to),
                            (4, 2) => sums_block::<S, 4, 2>(simd, w, x, offsets, to),
                            (4, _) => sums_block::<S, 4, 1>(simd, w, x, offsets, to),
                            (2, 6) => sums_block::<S, 2, 6>(simd, w, x, offsets, to),
                            (2, 3) => sums_block::<S, 2, 3>(simd, w, x, offsets, to),
                            (2, 2) => sums_block::<S, 2, 2>(simd, w, x, offsets, to),
                            (2, _) => sums_block::<S, 2, 1>(simd, w, x, offsets, to),
                            (_, 6) => sums_block::<S, 1, 6>(simd, w, x, offsets, to),
                            (_, 3) => sums_block::<S, 1, 3>(simd, w, x, offsets, to),
                            (_, 2) => sums_block::<S, 1, 2>(simd, w, x, offsets, to),
                            (_, _) => sums_block::<S, 1, 1>(simd, w, x, offsets, to),
                        }
                        done += v;
                    }
                }
            },
        );
    }
}

/// The destination of a block of sums: rows `ld` apart, vectors `step` apart.
struct Target<'a> {
    out: &'a mut [f32],
    ld: usize,
    step: usize,
}

#[inline(always)]
fn sums_block<S: Simd, const R: usize, const V: usize>(
    simd: S,
    weights: &[f32],
    source: &[f32],
    offsets: &[usize],
    Target { out, ld, step }: Target<'_>,
) {
    let mut acc = [[simd.splat_f32s(0.0); V]; R];
    for (w, offset) in weights.as_chunks::<R>().0.iter().zip(offsets) {
        let x: [S::f32s; V] = std::array::from_fn(
            #[inline(always)]
            |v| S::as_simd_f32s(&source[offset + v * step..][..S::F32_LANES]).0[0],
        );
        for r in 0..R {
            let w = simd.splat_f32s(w[r]);
            for v in 0..V {
                acc[r][v] = simd.mul_add_e_f32s(w, x[v], acc[r][v]);
            }
        }
    }
    for r in 0..R {
        for v in 0..V {
            let to = S::as_mut_simd_f32s(&mut out[r * ld + v * step..][..S::F32_LANES]).0;
            to[0] = acc[r][v];
        }
    }
}

/// Computes `out[row * taps + tap] += sum over samples s and i in 0..n of a[s][row * a_ld + i] *
/// b[s][offsets[tap] + i]`.
///
/// Sample `s` of `a` starts at `s * a_sample`, of `b` at `s * b_sample`. `n` is rounded up to whole
/// vectors: `a` must be 0 there, and both must have the room.
pub fn shifted_dots(
    a: &Rows<'_>,
    b: &Rows<'_>,
    samples: usize,
    offsets: &[usize],
    n: usize,
    out: &mut [f32],
) {
    assert!(out.len().is_multiple_of(offsets.len()), "misshapen buffers");
    Arch::new().dispatch(Dots {
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

impl WithSimd for Dots<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
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
            n: n.div_ceil(S::F32_LANES),
            taps,
        };
        for (row, rows) in row_blocks(out.len() / taps) {
            for (tap, count) in blocks(taps, if rows == 6 { 2 } else { 3 }) {
                let (a_at, offsets, out) = (
                    row * a.ld,
                    &offsets[tap..tap + count],
                    &mut out[row * taps + tap..],
                );
                match (rows, count) {
                    (6, 2) => dots_block::<S, 6, 2>(simd, a, a_at, b, offsets, &size, out),
                    (6, _) => dots_block::<S, 6, 1>(simd, a, a_at, b, offsets, &size, out),
                    (4, 3) => dots_block::<S, 4, 3>(simd, a, a_at, b, offsets, &size, out),
                    (4, 2) => dots_block::<S, 4, 2>(simd, a, a_at, b, offsets, &size, out),
                    (4, _) => dots_block::<S, 4, 1>(simd, a, a_at, b, offsets, &size, out),
                    (2, 3) => dots_block::<S, 2, 3>(simd, a, a_at, b, offsets, &size, out),
                    (2, 2) => dots_block::<S, 2, 2>(simd, a, a_at, b, offsets, &size, out),
                    (2, _) => dots_block::<S, 2, 1>(simd, a, a_at, b, offsets, &size, out),
                    (_, 3) => dots_block::<S, 1, 3>(simd, a, a_at, b, offsets, &size, out),
                    (_, 2) => dots_block::<S, 1, 2>(simd, a, a_at, b, offsets, &size, out),
                    (_, _) => dots_block::<S, 1, 1>(simd, a, a_at, b, offsets, &size, out),
                }
            }
        }
    }
}

/// Samples, vectors in a row, taps in a row of the result.
struct Size {
    samples: usize,
    n: usize,
    taps: usize,
}

#[inline(always)]
fn dots_block<S: Simd, const R: usize, const T: usize>(
    simd: S,
    a: &Rows<'_>,
    a_at: usize,
    b: &Rows<'_>,
    offsets: &[usize],
    size: &Size,
    out: &mut [f32],
) {
    let mut acc = [[simd.splat_f32s(0.0); T]; R];
    for s in 0..size.samples {
        let (a_at, b_at) = (s * a.sample + a_at, s * b.sample);
        let rows: [&[S::f32s]; R] =
            std::array::from_fn(|r| &S::as_simd_f32s(&a.values[a_at + r * a.ld..]).0[..size.n]);
        let taps: [&[S::f32s]; T] =
            std::array::from_fn(|t| &S::as_simd_f32s(&b.values[b_at + offsets[t]..]).0[..size.n]);
        for i in 0..size.n {
            for r in 0..R {
                for t in 0..T {
                    acc[r][t] = simd.mul_add_e_f32s(rows[r][i], taps[t][i], acc[r][t]);
                }
            }
        }
    }
    for r in 0..R {
        for t in 0..T {
            out[r * size.taps + t] += simd.reduce_sum_f32s(acc[r][t]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
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
                width: n,
                step: n,
            };
            shifted_sums(&packed, &source, &offsets, lines, &mut out, ld);
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
    fn exact_lines_of_whole_vectors_are_the_same_numbers_as_one_long_run() {
        for (rows, count, width, step) in [
            (1, 7, 8, 12),
            (2, 9, 16, 16),
            (6, 8, 8, 12),
            (7, 13, 24, 28),
            (16, 5, 48, 53),
            (3, 4, 11, 13),
        ] {
            let lines = Lines { count, width, step };
            let (ld, taps) = (round_up(lines.span()), 9);
            let (source, weights) = (wave(ld + 2 * step + 3, 0.7), wave(rows * taps, 0.3));
            let offsets: Vec<usize> = (0..taps).map(|t| t / 3 * step + t % 3).collect();
            let packed = Packed::new(rows, taps, |r, t| weights[r * taps + t]);
            let sums = |lines: Lines| {
                let mut out = vec![9.0; rows * ld];
                shifted_sums(&packed, &source, &offsets, lines, &mut out, ld);
                out
            };
            let long = Lines {
                count: 1,
                width: lines.span(),
                step: 1,
            };
            let (got, wanted) = (sums(lines), sums(long));
            for (row, line) in (0..rows).flat_map(|r| (0..count).map(move |l| (r, l))) {
                let place = row * ld + line * step..row * ld + line * step + width;
                assert_eq!(got[place.clone()], wanted[place], "{rows}x{count}x{width}");
            }
        }
    }

    #[test]
    fn a_sum_in_sixteen_strands_is_a_sum() {
        let x = wave(77, 0.37);
        let exact: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        assert!((f64::from(sum2(&x, &x, |a, b| a * b)) - exact).abs() < 1e-5);
    }
}
