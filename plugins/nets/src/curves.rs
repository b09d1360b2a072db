//! Our own exp, tanh and sigmoid, in additions, products and fused multiply-adds only.
//!
//! A mathematical library gives other last bits on another system or card. These give the same bits
//! everywhere: a kernel for a card can use the same lines. They were compared with functions of 64
//! bits over all numbers of 32 bits with a normal result. The largest error is 1.02 units in the
//! last place for exp, 1.34 for tanh and 2.49 for the sigmoid. `tests/bench/curves.py` compares a
//! hundred thousand of them with mpmath.
#![allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "kernels hold the same digits"
)]

use crate::simd::{Machine, Work};

/// Replaces each number by its hyperbolic tangent.
pub struct Tanh<'a>(pub &'a mut [f32]);

impl Work for Tanh<'_> {
    type Output = ();
    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        self.0.iter_mut().for_each(|v| *v = tanh(m, *v));
    }
}

/// Replaces each number `x` by `1 / (1 + e^-x)`.
pub struct Sigmoid<'a>(pub &'a mut [f32]);

impl Work for Sigmoid<'_> {
    type Output = ();
    #[inline(always)]
    fn run<M: Machine>(self, m: M) {
        self.0.iter_mut().for_each(|v| *v = sigmoid(m, *v));
    }
}

/// Returns `e^x`; infinity above 88.7, 0 below -104.
#[inline(always)]
fn exp<M: Machine>(m: M, x: f32) -> f32 {
    // NaN stays NaN
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    // adding and subtracting it leaves the nearest whole number
    const MAGIC: f32 = 12_582_912.0;
    let k = m.fused(x, 1.442_695_02, MAGIC) - MAGIC;
    let r = m.fused(k, -1.428_606_77e-6, m.fused(k, -0.693_145_752, x));
    let mut p = 1.987_569_12e-4_f32;
    p = m.fused(p, r, 1.398_199_94e-3);
    p = m.fused(p, r, 8.333_452_05e-3);
    p = m.fused(p, r, 4.166_579_62e-2);
    p = m.fused(p, r, 1.666_666_57e-1);
    p = m.fused(p, r, 5.0e-1);
    p = m.fused(p, r * r, r) + 1.0;
    // two factors: 2^k itself may overflow or underflow
    let whole = k as i32;
    let half = whole / 2;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    p * power(half) * power(whole - half)
}

/// Returns the hyperbolic tangent.
#[inline(always)]
fn tanh<M: Machine>(m: M, x: f32) -> f32 {
    let size = if x < 0.0 { -x } else { x };
    let z = x * x;
    let mut p = -5.704_988_73e-3_f32;
    p = m.fused(p, z, 2.063_908_8e-2);
    p = m.fused(p, z, -5.373_971_54e-2);
    p = m.fused(p, z, 1.333_144_16e-1);
    p = m.fused(p, z, -3.333_328_07e-1);
    let small = m.fused(p * z, x, x);
    let large = 1.0 - 2.0 / (exp(m, 2.0 * size) + 1.0);
    let large = if x < 0.0 { -large } else { large };
    if size < 0.625 { small } else { large }
}

/// Returns `1 / (1 + e^-x)`.
#[inline(always)]
fn sigmoid<M: Machine>(m: M, x: f32) -> f32 {
    1.0 / (1.0 + exp(m, -x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{self, Plain};

    /// Returns the units in the last place between `got` and the exact value.
    fn units(got: f32, wanted: f64) -> f64 {
        let near = wanted.abs().max(f64::from(f32::MIN_POSITIVE)) as f32;
        let unit = f64::from(f32::from_bits(near.to_bits() + 1)) - f64::from(near);
        (f64::from(got) - wanted).abs() / unit
    }

    /// Returns the largest error of `f` in units over every `step`-th of all finite numbers, and
    /// where.
    fn worst(f: fn(f32) -> f32, exact: fn(f64) -> f64, most: f32, step: usize) -> (f64, f32) {
        let all = (0..=most.to_bits()).step_by(step);
        let signed = all.flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)]);
        let errors = signed.map(|x| (units(f(x), exact(f64::from(x))), x));
        errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    }

    #[test]
    fn bounded_errors_of_all_curves() {
        // a thousandth of all numbers; all of them take minutes
        let step = 997;
        let bound = |(units, x): (f64, f32), most: f64, name: &str| {
            assert!(units <= most, "{name}({x}) is off by {units} units");
        };
        let f = |x| exp(Plain, x);
        bound(worst(f, libm::exp, 88.7, step), 1.02, "exp");
        let f = |x| tanh(Plain, x);
        bound(worst(f, libm::tanh, 1e3, step), 1.34, "tanh");
        let (f, exact) = (|x| sigmoid(Plain, x), |x: f64| 1.0 / (1.0 + libm::exp(-x)));
        bound(worst(f, exact, 87.0, step), 2.49, "sigmoid");
    }

    /// Writes numbers with their exp, tanh and sigmoid, as bits, to the file that `FL_CURVES` names.
    #[test]
    #[ignore = "for tests/bench/curves.py"]
    fn exact_curves_are_written() {
        let line = |bits: u32| {
            let x = f32::from_bits(bits);
            let all = [exp(Plain, x), tanh(Plain, x), sigmoid(Plain, x)].map(f32::to_bits);
            x.is_finite()
                .then(|| format!("{bits} {} {} {}\n", all[0], all[1], all[2]))
        };
        let text: String = (0..=u32::MAX).step_by(39_989).filter_map(line).collect();
        assert!(text.lines().count() > 100_000);
        if let Some(path) = std::env::var_os("FL_CURVES") {
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn exact_with_and_without_instructions_of_this_machine() {
        let all = (0..=u32::MAX).step_by(9973).map(f32::from_bits);
        let all: Vec<f32> = all.filter(|x| !x.is_nan()).collect();
        let (mut by_tanh, mut by_sigmoid) = (all.clone(), all.clone());
        simd::run(Tanh(&mut by_tanh));
        simd::run(Sigmoid(&mut by_sigmoid));
        for ((x, a), b) in all.iter().zip(by_tanh).zip(by_sigmoid) {
            let (plain_a, plain_b) = (tanh(Plain, *x), sigmoid(Plain, *x));
            assert_eq!(a.to_bits(), plain_a.to_bits(), "tanh({x})");
            assert_eq!(b.to_bits(), plain_b.to_bits(), "sigmoid({x})");
        }
    }

    #[test]
    fn exact_ends_of_all_curves() {
        let exp = |x| super::exp(Plain, x);
        let tanh = |x| super::tanh(Plain, x);
        let sigmoid = |x| super::sigmoid(Plain, x);
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        let far = [89.0, 1e30, f32::INFINITY];
        assert!(far.iter().all(|x| exp(*x) == f32::INFINITY));
        assert!(far.iter().all(|x| exp(-x * 2.0) == 0.0));
        assert_eq!(exp(-103.9), f32::from_bits(1), "the smallest number");
        assert!(far.iter().all(|x| tanh(*x) == 1.0 && tanh(-x) == -1.0));
        assert_eq!((tanh(0.0), tanh(-0.0)), (0.0, 0.0));
        assert_eq!((sigmoid(0.0), sigmoid(1e9), sigmoid(-1e9)), (0.5, 1.0, 0.0));
        let nan = f32::NAN;
        assert!(exp(nan).is_nan() && tanh(nan).is_nan() && sigmoid(nan).is_nan());
    }
}
