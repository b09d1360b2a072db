//! The exponential function of many numbers at once: a library's takes one at a time, which would
//! be most of a kernel's cost.

use pulp::Arch;

/// Below this `exp` is subnormal; such small kernels are 0.
const LOWEST: f64 = -708.0;
/// Adding and subtracting it rounds to a whole number, which is in the lowest bits in between.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
/// ln 2 in two parts: a whole number times the first is exact (Cody and Waite 1980).
const LN2: (f64, f64) = (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10);
/// 1/13!, ..., 1/0!: the Taylor series, whose rest is below 5e-18 up to |r| = ln 2 / 2.
const SERIES: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// Returns `exp(x)` for `x <= 0`, to two units in the last place: `2^n exp(r)` with
/// `r = x - n ln 2`. No branch and no fused multiplication, so the bits are the same on every
/// machine.
#[inline(always)]
fn exp(x: f64) -> f64 {
    let bounded = x.max(LOWEST);
    let shifted = bounded * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN2.0) - n * LN2.1;
    let series = SERIES.iter().fold(0.0, |sum, c| sum * r + c);
    let power = f64::from_bits((shifted.to_bits().wrapping_add(1023)) << 52);
    if x < LOWEST { 0.0 } else { series * power }
}

/// Replaces the products `ab` of one point, with squared norm `norm`, and others, with squared
/// norms `norms`, by `exp(factor |a - b|^2)`; `factor` is negative.
pub(crate) fn gaussians(factor: f64, norm: f64, norms: &[f64], products: &mut [f64]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (p, other) in products.iter_mut().zip(norms) {
                // rounding may give equal points a slightly negative distance
                *p = exp(factor * (norm + other - 2.0 * *p).max(0.0));
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_it_is_the_exponential_function() {
        for i in 0..=2_000_000 {
            let x = -f64::from(i) * 3.6e-4;
            let (got, wanted) = (exp(x), libm::exp(x));
            let allowed = if x < LOWEST { 1e-300 } else { 4.5e-16 * wanted };
            assert!(
                (got - wanted).abs() <= allowed,
                "exp({x}) is {wanted}, got {got}"
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!((exp(-1e300), exp(f64::NEG_INFINITY)), (0.0, 0.0));
    }
}
