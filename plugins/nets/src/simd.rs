//! The inner loops, compiled for the instruction set of the machine that runs them.
//!
//! All machines give the same bits: a sum has [`LANES`] lanes whatever the width of a vector, and
//! each multiply-add rounds once ([`Machine`]).

use fl_core::portable::Fused;
use pulp::{Arch, Simd, WithSimd};

/// Lanes of a sum.
pub const LANES: usize = 8;

/// Both loops pad the rows that they read to a multiple of this.
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

/// Vectors whose lanes do not meet. Each lane computes a number of its own, so the width of a vector
/// changes no bit.
pub trait Strip: Copy {
    /// A vector.
    type Vector: Copy;
    /// Numbers of a vector.
    const WIDTH: usize;
    /// Vectors of sums that the registers hold, beside the factors: 12 of 16, 24 of 32.
    const SUMS: usize;
    /// Returns a vector of this number.
    fn splat(self, x: f32) -> Self::Vector;
    /// Returns the first numbers.
    fn load(self, from: &[f32]) -> Self::Vector;
    /// Returns the numbers in vectors, without a rest.
    fn vectors(self, from: &[f32]) -> &[Self::Vector];
    /// Returns the first eight numbers of `low` and, in a vector of sixteen, of `high`.
    fn halves(self, low: &[f32], high: &[f32]) -> Self::Vector;
    /// Writes over the first numbers.
    fn store(self, x: Self::Vector, to: &mut [f32]);
    /// Returns `a + b`, each.
    fn add_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns `a * b + c`, each rounded once.
    fn fused_each(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Returns [`at_least`] of `x + addend` and `floor`, each.
    fn rectified(self, x: Self::Vector, addend: f32, floor: f32) -> Self::Vector;
}

/// The instructions of a processor, with vectors of [`LANES`]. All have the same results.
pub trait Machine: Strip {
    /// Returns the sum: the halves are added, then their halves, then theirs.
    fn sum(self, x: Self::Vector) -> f32;
    /// Returns `a * b + c`, rounded once.
    fn fused(self, a: f32, b: f32, c: f32) -> f32;
}

/// A processor with fused multiply-adds: a vector is `N` of its registers, of which `SUMS` vectors
/// may be sums.
#[derive(Clone, Copy)]
struct Vectors<S, const N: usize, const SUMS: usize>(S);

impl<S: Simd, const N: usize, const SUMS: usize> Strip for Vectors<S, N, SUMS> {
    type Vector = [S::f32s; N];
    const WIDTH: usize = S::F32_LANES * N;
    const SUMS: usize = SUMS;
    #[inline(always)]
    fn splat(self, x: f32) -> Self::Vector {
        [self.0.splat_f32s(x); N]
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::Vector {
        let vectors = S::as_simd_f32s(&from[..Self::WIDTH]).0;
        std::array::from_fn(
            #[inline(always)]
            |i| vectors[i],
        )
    }
    #[inline(always)]
    fn vectors(self, from: &[f32]) -> &[Self::Vector] {
        S::as_simd_f32s(from).0.as_chunks().0
    }
    #[inline(always)]
    fn halves(self, low: &[f32], high: &[f32]) -> Self::Vector {
        const { assert!(Self::WIDTH == LANES || Self::WIDTH == 2 * LANES) };
        match Self::WIDTH {
            LANES => self.load(low),
            _ => {
                let both = [low.as_chunks::<LANES>().0[0], high.as_chunks().0[0]];
                self.load(both.as_flattened())
            }
        }
    }
    #[inline(always)]
    fn store(self, x: Self::Vector, to: &mut [f32]) {
        let vectors = S::as_mut_simd_f32s(&mut to[..Self::WIDTH]).0;
        vectors[..N].copy_from_slice(&x[..N]);
    }
    #[inline(always)]
    fn add_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(
            #[inline(always)]
            |i| self.0.add_f32s(a[i], b[i]),
        )
    }
    #[inline(always)]
    fn fused_each(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        std::array::from_fn(
            #[inline(always)]
            |i| self.0.mul_add_f32s(a[i], b[i], c[i]),
        )
    }
    #[inline(always)]
    fn rectified(self, x: Self::Vector, addend: f32, floor: f32) -> Self::Vector {
        let (addend, floor) = (self.0.splat_f32s(addend), self.0.splat_f32s(floor));
        std::array::from_fn(
            #[inline(always)]
            |i| {
                let sum = self.0.add_f32s(x[i], addend);
                let below = self.0.less_than_f32s(sum, floor);
                self.0.select_f32s(below, floor, sum)
            },
        )
    }
}

impl<S: Simd, const N: usize, const SUMS: usize> Machine for Vectors<S, N, SUMS> {
    #[inline(always)]
    fn sum(self, x: Self::Vector) -> f32 {
        const { assert!(S::F32_LANES * N == LANES, "a vector of another width") };
        let mut x = x;
        let mut n = N;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                x[i] = self.0.add_f32s(x[i], x[i + n]);
            }
        }
        self.0.reduce_sum_f32s(x[0])
    }
    #[inline(always)]
    fn fused(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Any processor.
#[derive(Clone, Copy)]
pub struct Plain;

impl Strip for Plain {
    type Vector = [f32; LANES];
    const WIDTH: usize = LANES;
    const SUMS: usize = 12;
    #[inline(always)]
    fn splat(self, x: f32) -> Self::Vector {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::Vector {
        std::array::from_fn(|i| from[i])
    }
    #[inline(always)]
    fn vectors(self, from: &[f32]) -> &[Self::Vector] {
        from.as_chunks().0
    }
    #[inline(always)]
    fn halves(self, low: &[f32], _: &[f32]) -> Self::Vector {
        self.load(low)
    }
    #[inline(always)]
    fn store(self, x: Self::Vector, to: &mut [f32]) {
        to[..LANES].copy_from_slice(&x);
    }
    #[inline(always)]
    fn add_each(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn fused_each(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| f32::fused(a[i], b[i], c[i]))
    }
    #[inline(always)]
    fn rectified(self, x: Self::Vector, addend: f32, floor: f32) -> Self::Vector {
        x.map(|x| at_least(x + addend, floor))
    }
}

impl Machine for Plain {
    #[inline(always)]
    fn sum(self, x: Self::Vector) -> f32 {
        ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
    }
    #[inline(always)]
    fn fused(self, a: f32, b: f32, c: f32) -> f32 {
        f32::fused(a, b, c)
    }
}

/// What runs on a [`Machine`].
pub trait Work {
    /// What it returns.
    type Output;
    /// Runs it. Must be marked `#[inline(always)]`, as all that it calls.
    fn run<M: Machine>(self, machine: M) -> Self::Output;
}

/// Runs `work` with the best instructions of this machine for vectors of [`LANES`].
pub fn run<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        return Simd::vectorize(simd, On::<W, 1>(work));
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(simd) = pulp::aarch64::Neon::try_new() {
        return Simd::vectorize(simd, On::<W, 2>(work));
    }
    work.run(Plain)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct On<W, const N: usize>(W);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<W: Work, const N: usize> WithSimd for On<W, N> {
    type Output = W::Output;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> W::Output {
        self.0.run(Vectors::<S, N, 12>(simd))
    }
}

/// What runs on [`Strip`]s.
pub trait Sweep {
    /// Runs it on vectors of [`LANES`] numbers, and on the widest of the machine. Must be marked
    /// `#[inline(always)]`, as all that it calls.
    fn sweep<E: Machine, W: Strip>(self, eights: E, widest: W);
}

/// Runs `work` with the best instructions of this machine.
pub fn sweep(work: impl Sweep) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(Wide(simd, work));
    }
    sweep_eights(work);
}

/// Runs `work` with the best instructions of this machine for vectors of [`LANES`] only.
pub fn sweep_eights(work: impl Sweep) {
    struct Short<W>(W);
    impl<W: Sweep> Work for Short<W> {
        type Output = ();
        #[inline(always)]
        fn run<M: Machine>(self, machine: M) {
            self.0.sweep(machine, machine);
        }
    }
    run(Short(work))
}

/// Returns whether this machine has vectors of sixteen, and so 32 registers for them.
pub fn has_wide_registers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return pulp::x86::V4::try_new().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Runs `work` as on a machine with vectors of sixteen, with two of eight for each.
#[cfg(test)]
pub fn sweep_sixteens(work: impl Sweep) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        return work.sweep(Vectors::<_, 1, 24>(simd), Vectors::<_, 2, 24>(simd));
    }
    sweep_eights(work);
}

/// Work on vectors of sixteen, and of eight in as many registers.
#[cfg(target_arch = "x86_64")]
struct Wide<W>(pulp::x86::V4, W);

#[cfg(target_arch = "x86_64")]
impl<W: Sweep> pulp::NullaryFnOnce for Wide<W> {
    type Output = ();
    #[inline(always)]
    fn call(self) {
        let Self(simd, work) = self;
        work.sweep(Vectors::<_, 1, 24>(*simd), Vectors::<_, 1, 24>(simd));
    }
}

/// Returns `max(value, floor)`, but NaN stays NaN, so that the loss shows it.
#[inline(always)]
pub fn at_least(value: f32, floor: f32) -> f32 {
    if value < floor { floor } else { value }
}

/// Copies a short row in vectors, without a call of the system's function.
#[inline(always)]
pub fn copy_row(to: &mut [f32], from: &[f32]) {
    let (to_eights, to_rest) = to.as_chunks_mut::<LANES>();
    let (eights, rest) = from.as_chunks::<LANES>();
    to_eights
        .iter_mut()
        .zip(eights)
        .for_each(|(to, x)| *to = *x);
    to_rest.iter_mut().zip(rest).for_each(|(to, x)| *to = *x);
}

/// Copies `count` rows of `width` numbers, every `by`-th number of `from`; rows begin `steps` apart
/// in `to` and in `from`. A call of the system's function for each row of an image would take longer
/// than the copy.
#[inline(always)]
pub fn copy_rows(to: &mut [f32], from: &[f32], [count, width, by]: [usize; 3], steps: [usize; 2]) {
    for row in 0..count {
        let to = &mut to[row * steps[0]..][..width];
        let from = &from[row * steps[1]..];
        match by {
            1 => copy_row(to, &from[..width]),
            2 => {
                let (pairs, rest) = from[..from.len().min(2 * width)].as_chunks::<2>();
                let (to, last) = to.split_at_mut(pairs.len());
                to.iter_mut().zip(pairs).for_each(|(to, x)| *to = x[0]);
                last.iter_mut().zip(rest).for_each(|(to, x)| *to = *x);
            }
            _ => {
                let from = from.iter().step_by(by);
                to.iter_mut().zip(from).for_each(|(to, x)| *to = *x);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_in_sixteen_strands_is_a_sum() {
        let x = (0..77)
            .map(|i| libm::sinf(i as f32 * 0.37))
            .collect::<Vec<f32>>();
        let exact: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        assert!((f64::from(sum2(&x, &x, |a, b| a * b)) - exact).abs() < 1e-5);
    }
}
