//! Arithmetic with the same bits on every processor: fused multiply-adds, with or without an
//! instruction for them, and matrix products.
//!
//! `+ - * /`, square roots and conversions are exact everywhere. A multiply-add rounds once where
//! it is fused and twice where it is not; a product of matrices from a library has the order, and
//! the fusing, of the kernel that the library picks for the processor. Other functions (`exp`,
//! `ln`,
//! `powf`, `sin`, ..) come from the crate `libm`: those of the system differ from processor to
//! processor in the last bit, and `clippy.toml` refuses them.

use crate::sealed::Sealed;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, LinalgScalar, ShapeBuilder};

/// Products whose sum begins anew; the blocks' sums are then added up.
const BLOCK: usize = 256;

/// Numbers that [`product`] multiplies: `f32` and `f64`.
pub trait Fused: LinalgScalar + Sealed {
    /// Returns `a * b + c`, rounded once, without an instruction for it. It has the bits of
    /// `mul_add` and is faster where that calls a function.
    fn fused(a: Self, b: Self, c: Self) -> Self;
}

impl Sealed for f32 {}
impl Sealed for f64 {}

impl Fused for f32 {
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        let (product, c) = (f64::from(a) * f64::from(b), f64::from(c)); // exact
        let sum = product + c;
        // what `sum` lacks (Knuth's two-sum)
        let part = sum - product;
        let lost = (product - (sum - part)) + (c - part);
        // Rounded to odd instead, the sum may be rounded once more (Boldo and Melquiond 2008). NaN
        // and infinity have no loss.
        let outwards = (lost > 0.0) == (sum > 0.0);
        let step: i64 = if outwards { 1 } else { -1 };
        let inexact = lost.abs() > 0.0;
        let bits = sum.to_bits();
        let step = if inexact && bits & 1 == 0 { step } else { 0 };
        f64::from_bits(bits.wrapping_add_signed(step)) as f32
    }
}

impl Fused for f64 {
    #[inline]
    fn fused(a: f64, b: f64, c: f64) -> f64 {
        libm::fma(a, b, c)
    }
}

/// Returns whether products of `ndarray` use fused multiply-adds on this processor.
fn fuses() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Returns `a b`, for `a` of `m x k` and `b` of `k x n`. Each number is the sum of chains of fused
/// multiply-adds from 0 of 256 products each, in their order. The layout is that of
/// [`dot`](ndarray::linalg::Dot).
///
/// # Panics
/// If the shapes do not fit.
pub fn product<T: Fused>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Array2<T> {
    let by_columns = a.strides()[0] == 1 && b.strides()[0] == 1;
    let mut out = Array2::zeros((a.nrows(), b.ncols()).set_f(by_columns));
    add_product(T::one(), a, b, &mut out.view_mut());
    out
}

/// Adds `sign a b` to `out`, as [`product`]; `sign` is 1 or -1.
///
/// # Panics
/// If the shapes do not fit.
#[expect(
    clippy::disallowed_methods,
    reason = "it fuses where it is called, as `longhand` does"
)]
pub fn add_product<T: Fused>(
    sign: T,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    out: &mut ArrayViewMut2<'_, T>,
) {
    if fuses() {
        general_mat_mul(sign, &a, &b, T::one(), out)
    } else {
        longhand(sign, a, b, out)
    }
}

fn longhand<T: Fused>(
    sign: T,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    out: &mut ArrayViewMut2<'_, T>,
) {
    assert_eq!(
        (a.nrows(), a.ncols(), b.ncols()),
        (out.nrows(), b.nrows(), out.ncols()),
        "shapes that do not fit"
    );
    let b = b.as_standard_layout();
    let mut sums = vec![T::zero(); b.ncols()];
    for (a, mut out) in a.rows().into_iter().zip(out.rows_mut()) {
        for from in (0..a.len()).step_by(BLOCK) {
            sums.fill(T::zero());
            for at in from..a.len().min(from + BLOCK) {
                for (sum, y) in sums.iter_mut().zip(b.row(at)) {
                    *sum = T::fused(a[at], *y, *sum);
                }
            }
            for (out, sum) in out.iter_mut().zip(&sums) {
                *out = *out + sign * *sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draws, Stream};
    use ndarray::Ix2;
    use std::fmt::Debug;

    /// Any number: of any size, a half-way case often, an infinity or NaN at times.
    fn any(draws: &mut Draws) -> f32 {
        match draws.below(4) {
            0 => f32::from_bits(rand::RngCore::next_u32(draws)),
            1 => (draws.normal() as f32) * 1e-20,
            2 => f32::from_bits(rand::RngCore::next_u32(draws) & 0xc0ff_f000 | 0x3f00_0000),
            _ => draws.normal() as f32,
        }
    }

    #[test]
    fn exact_fused_additions_without_an_instruction() {
        let mut draws = Stream::root(11).draws();
        let (mut normal, mut small) = (0, 0);
        for _ in 0..2_000_000 {
            let (a, b) = (any(&mut draws), any(&mut draws));
            let near = -(a * b) * (1.0 + draws.below(3) as f32 * f32::EPSILON);
            let c = [any(&mut draws), near][draws.below(2)];
            let (got, wanted) = (f32::fused(a, b, c), a.mul_add(b, c));
            assert!(
                got.to_bits() == wanted.to_bits() || (got.is_nan() && wanted.is_nan()),
                "{a:e} * {b:e} + {c:e} is {wanted:e}, got {got:e}"
            );
            normal += usize::from(got.is_normal());
            small += usize::from(got.is_subnormal());
        }
        assert!(normal > 1_000_000 && small > 1_000, "{normal} {small}");
        for _ in 0..200_000 {
            let [a, b, c] = [(); 3].map(|()| draws.normal());
            let c = [c, -a * b][draws.below(2)];
            assert_eq!(f64::fused(a, b, c).to_bits(), a.mul_add(b, c).to_bits());
        }
    }

    /// On a processor that fuses, the library's kernels are compared with the long way.
    fn both_ways<T: Fused + Debug>(number: impl Fn(f64) -> T, bits: impl Fn(T) -> u64) {
        let mut draws = Stream::root(4).draws();
        let sizes = [1, 2, 3, 4, 7, 8, 9, 17, 33, 70];
        for case in 0..400 {
            let mut size = || sizes[draws.below(sizes.len())];
            let (m, n, k) = (size(), size(), size());
            let k = [k, k * 11][case % 2];
            let mut matrix = |rows: usize, columns: usize| {
                let turned = draws.below(2) == 0;
                let shape = if turned {
                    (columns, rows)
                } else {
                    (rows, columns)
                };
                let of = Array2::from_shape_simple_fn(shape, || number(draws.normal()));
                if turned { of.reversed_axes() } else { of }
            };
            let (a, b): (Array2<T>, Array2<T>) = (matrix(m, k), matrix(k, n));
            let sign = if case % 3 == 0 {
                T::zero() - T::one()
            } else {
                T::one()
            };
            let mut slow = matrix(m, n).into_dimensionality::<Ix2>().unwrap();
            let mut fast = slow.clone();
            longhand(sign, a.view(), b.view(), &mut slow.view_mut());
            add_product(sign, a.view(), b.view(), &mut fast.view_mut());
            let equal = slow.iter().zip(&fast).all(|(x, y)| bits(*x) == bits(*y));
            assert!(equal, "{m} x {k} times {k} x {n}");
            let made = product(a.view(), b.view());
            assert_eq!(made.strides(), a.dot(&b).strides(), "{m} x {k} x {n}");
        }
    }

    #[test]
    fn exact_products_on_processors_with_and_without_fused_additions() {
        both_ways(|x| x as f32, |x| u64::from(x.to_bits()));
        both_ways(|x| x, f64::to_bits);
    }
}
