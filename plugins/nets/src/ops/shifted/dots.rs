//! Dot products of shifted rows.

use super::{Tiles, tiles};
use crate::buffer::Buffer;
use crate::simd::{LANES, Machine, Strip, Sweep, WIDEST, sweep};

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
    fn sweep<E: Machine, W: Strip>(self, eights: E, widest: W) {
        if self.out.len() > self.offsets.len() {
            self.on(eights, widest)
        } else {
            self.on(eights, eights)
        }
    }
}

impl Dots<'_> {
    /// Computes the eight lanes of one row, or of several, in each vector.
    #[inline(always)]
    fn on<E: Machine, S: Strip>(self, eights: E, strip: S) {
        let (each, n) = (S::WIDTH / LANES, self.n.next_multiple_of(LANES));
        let count = (self.out.len() / self.offsets.len()).div_ceil(each);
        let (values, together);
        let a = match each {
            1 => self.a,
            _ => {
                values = self.together(each, count, n);
                together = Rows {
                    values: &values,
                    ld: each * n,
                    sample: count * each * n,
                };
                &together
            }
        };
        let mut work = DotsTiles {
            dots: Dots { a, n, ..self },
            eights,
        };
        tiles(strip, count, work.dots.offsets.len(), &mut work);
    }

    /// Copies `each` rows into one, eight numbers of each in turn, for all samples; zeros for a row
    /// that is missing.
    #[inline(always)]
    fn together(&self, each: usize, count: usize, n: usize) -> Buffer {
        let (a, rows) = (self.a, self.out.len() / self.offsets.len());
        let mut all = Buffer::any(self.samples * count * each * n);
        for (at, to) in all.chunks_exact_mut(each * n).enumerate() {
            let (sample, first) = (at / count, at % count * each);
            for r in 0..each {
                let to = to.as_chunks_mut::<LANES>().0[r..].iter_mut().step_by(each);
                if first + r < rows {
                    let from = sample * a.sample + (first + r) * a.ld;
                    let from = a.values[from..][..n].as_chunks().0;
                    to.zip(from).for_each(|(to, x)| *to = *x);
                } else {
                    to.for_each(|to| *to = [0.0; LANES])
                }
            }
        }
        all
    }
}

struct DotsTiles<'a, E> {
    /// Whose rows of `a` are those of one vector, and `n` whole eights.
    dots: Dots<'a>,
    eights: E,
}

impl<S: Strip, E: Machine> Tiles<S> for DotsTiles<'_, E> {
    #[inline(always)]
    fn tile<const R: usize, const V: usize>(&mut self, strip: S, row: usize, at: usize) {
        let Dots {
            a,
            b,
            samples,
            offsets,
            n,
            out,
        } = &mut self.dots;
        let (each, count, n) = (S::WIDTH / LANES, *n / LANES, *n);
        let mut acc = [[strip.splat(0.0); V]; R];
        for s in 0..*samples {
            let (a_at, b_at) = (s * a.sample + row * a.ld, s * b.sample);
            let rows: [&[S::Vector]; R] = std::array::from_fn(
                #[inline(always)]
                |r| &strip.vectors(&a.values[a_at + r * a.ld..][..each * n])[..count],
            );
            let taps: [&[[f32; LANES]]; V] =
                std::array::from_fn(|t| b.values[b_at + offsets[at + t]..][..n].as_chunks().0);
            for i in 0..count {
                let x: [S::Vector; V] = std::array::from_fn(
                    #[inline(always)]
                    |t| strip.halves(&taps[t][i], &taps[t][i]),
                );
                for r in 0..R {
                    for t in 0..V {
                        acc[r][t] = strip.fused_each(rows[r][i], x[t], acc[r][t]);
                    }
                }
            }
        }
        // written first: the sums below are no part of the loop that keeps `acc` in registers
        let mut lanes = [[[0.0; WIDEST]; V]; R];
        for r in 0..R {
            for t in 0..V {
                strip.store(acc[r][t], &mut lanes[r][t]);
            }
        }
        for (r, lanes) in lanes.iter().enumerate() {
            for (t, lanes) in lanes.iter().enumerate() {
                // of a missing row there is no place in `out`
                let places = out[(row + r) * each * offsets.len()..].iter_mut();
                let places = places.skip(at + t).step_by(offsets.len()).take(each);
                for (out, lanes) in places.zip(lanes.as_chunks::<LANES>().0) {
                    *out += self.eights.sum(self.eights.load(lanes));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SHAPES, wave};
    use super::*;
    use crate::simd::{Plain, round_up, sweep_eights, sweep_sixteens};

    #[test]
    fn dots_are_what_they_say_for_every_shape_of_a_tile() {
        for (rows, taps, n) in SHAPES {
            let ld = round_up(n);
            let offsets: Vec<usize> = (0..taps).map(|t| (t * 7) % (taps + 1)).collect();
            let mut a = vec![0.0; 2 * rows * ld];
            for row in a.chunks_mut(ld) {
                row[..n].copy_from_slice(&wave(n, 0.9));
            }
            let mut dots = vec![1.0; rows * taps];
            let b = wave(3 * ld + taps + 5, 0.7);
            let all_a = Rows {
                values: &a,
                ld,
                sample: rows * ld,
            };
            let all_b = Rows {
                values: &b,
                ld: 0,
                sample: 5,
            };
            shifted_dots(&all_a, &all_b, 2, &offsets, n, &mut dots);
            for on in 0..3 {
                let mut same = vec![1.0; rows * taps];
                let work = Dots {
                    a: &all_a,
                    b: &all_b,
                    samples: 2,
                    offsets: &offsets,
                    n,
                    out: &mut same,
                };
                match on {
                    0 => work.sweep(Plain, Plain),
                    1 => sweep_eights(work),
                    _ => sweep_sixteens(work),
                }
                assert_eq!(same, dots, "{rows} {taps} {n}");
            }
            for (at, dot) in dots.iter().enumerate() {
                let (r, t) = (at / taps, at % taps);
                let term = |s: usize, i: usize| {
                    f64::from(a[s * rows * ld + r * ld + i]) * f64::from(b[s * 5 + offsets[t] + i])
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
}
