//! Fully connected layers.

use super::{channel_sums, relu_back};
use crate::buffer::Buffer;
use crate::simd::at_least;
use crate::tape::{Record, Value, Weights};
use anyhow::ensure;
use fl_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// Computes `relu?(x weight^T + bias)`; `weight` is `out x in`, as in PyTorch.
pub fn linear(
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    weight: Range<usize>,
    bias: Option<Range<usize>>,
    relu: bool,
) -> Value {
    let (rows, inputs) = (x.rows, x.width());
    let outputs = weight.len() / inputs;
    let mut data: Buffer = match &bias {
        Some(bias) => weights.data[bias.clone()].repeat(rows).into(),
        None => Buffer::filled(rows * outputs, 0.0),
    };
    let w = matrix(&weights.data[weight.clone()], inputs);
    let all = matrix(&x.data, inputs);
    product(
        [rows, inputs, outputs],
        &all,
        &w.transposed(),
        &mut data,
        true,
    );
    if relu {
        data.iter_mut().for_each(|v| *v = at_least(*v, 0.0));
    }
    let data = Arc::new(data);

    let (wanted, out) = (x.key.is_some() || weights.key.is_some(), data.clone());
    let (x, weights) = (x.clone(), weights.clone());
    let key = record.note(wanted, move |mut slope, grads| {
        if relu {
            relu_back(&mut slope, &out);
        }
        let g = matrix(&slope, outputs);
        if let Some(key) = &weights.key {
            let all = grads.weights(key)?;
            let x = matrix(&x.data, inputs);
            product(
                [outputs, rows, inputs],
                &g.transposed(),
                &x,
                &mut all[weight.clone()],
                false,
            );
            if let Some(bias) = &bias {
                channel_sums(&slope, outputs, 1, &mut all[bias.clone()]);
            }
        }
        let Some(key) = &x.key else { return Ok(()) };
        let mut back = Buffer::filled(rows * inputs, 0.0);
        let w = matrix(&weights.data[weight], inputs);
        product([rows, outputs, inputs], &g, &w, &mut back, false);
        grads.give(key, back)
    });
    Value {
        data,
        rows,
        shape: vec![outputs],
        key,
    }
}

/// A matrix in a slice.
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    by_row: usize,
    by_column: usize,
}

/// Returns a row-major matrix with `by_row` numbers from one row to the next.
pub(super) fn matrix(values: &[f32], by_row: usize) -> Matrix<'_> {
    Matrix {
        values,
        by_row,
        by_column: 1,
    }
}

impl Matrix<'_> {
    pub fn transposed(&self) -> Self {
        Self {
            values: self.values,
            by_row: self.by_column,
            by_column: self.by_row,
        }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.by_row + (columns - 1) * self.by_column < self.values.len()
    }
}

/// Returns the number of products of a sum that are computed at once. For large matrices the
/// library splits sums of more than 512 by the size of this machine's caches. Another machine would
/// get other bits, so the library gets no longer sums. It treats small matrices and vectors the
/// same everywhere.
fn block([m, k, n]: [usize; 3]) -> usize {
    let alike = m.max(n) <= 64 || m.min(n) <= 1;
    let parts = if alike { 1 } else { k.div_ceil(512).max(1) };
    k.div_ceil(parts).max(1)
}

/// The order of summation for one number of a product. It is that of the library on a processor
/// with vectors of eight numbers; a card uses the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Chains of fused multiply-adds from 0, each of this many products; then the sum of the
    /// chains.
    Blocks(usize),
    /// Eight lanes of such chains, folded; each of this many products.
    Lanes(usize),
    /// One or two products, each rounded.
    Outer,
    /// One chain that begins with the present value.
    Column,
    /// Eight vectors of eight lanes.
    Row,
}

/// Returns the order for a product of `m x k` and `k x n`, given the steps from one row, and
/// column, to the next of both.
///
/// # Errors
/// If the library would split a sum by the size of this machine's caches.
pub fn order(
    [m, k, n]: [usize; 3],
    [a_row, a_column]: [usize; 2],
    [b_row, b_column]: [usize; 2],
) -> Result<Order> {
    let each = block([m, k, n]);
    let along = a_column == 1 && b_row == 1;
    if along && m * n <= 256 {
        return Ok(Order::Lanes(each.min(1024)));
    }
    if k <= 2 {
        return Ok(Order::Outer);
    }
    if n == 1 && a_row == 1 {
        return Ok(Order::Column);
    }
    if n == 1 && along {
        return Ok(Order::Row);
    }
    if m == 1 && b_column == 1 {
        return Ok(Order::Column);
    }
    if m == 1 && along {
        return Ok(Order::Row);
    }
    let small = m.max(n) <= 64;
    let last = k - (k - 1) / each * each;
    ensure!(
        last > 2 && (small || each <= 512),
        "a product of {m} x {k} and {k} x {n} has no order that all machines share; use `device: cpu`"
    );
    Ok(Order::Blocks(each.min(512)))
}

/// Computes `out = a b`, or `out += a b`, for `a` of `m x k` and `b` of `k x n`; `out` is
/// row-major. Uses this thread only: two threads would split the sums differently and give other
/// bits.
pub(super) fn product(
    [m, k, n]: [usize; 3],
    a: &Matrix<'_>,
    b: &Matrix<'_>,
    out: &mut [f32],
    add: bool,
) {
    assert!(
        a.holds(m, k) && b.holds(k, n) && m * n == out.len(),
        "misshapen matrices"
    );
    if k == 0 && !add {
        out.fill(0.0);
    }
    if m == 0 || n == 0 {
        return;
    }
    // the kernels write column-major, so they compute `out^T = b^T a^T`; a single column has both
    // layouts
    let flipped = (b.transposed(), a.transposed());
    let (rows, columns, left, right) = match n {
        1 => (m, n, a, b),
        _ => (n, m, &flipped.0, &flipped.1),
    };
    let steps = |m: &Matrix<'_>| [m.by_column as isize, m.by_row as isize];
    let (left_step, right_step) = (steps(left), steps(right));
    let (one, conjugate) = (1.0, false);
    let block = block([m, k, n]);
    for from in (0..k).step_by(block) {
        let left = &left.values[from * left.by_column..];
        let right = &right.values[from * right.by_row..];
        #[allow(
            unsafe_code,
            reason = "a matrix product at full speed; gemm has no safe interface"
        )]
        // SAFETY: the assertion above says that every index below m, k and n with these strides
        // lies inside its slice; these begin `from` products later, of which there are as many
        // fewer; and `out` is borrowed mutably, so it overlaps neither `a` nor `b`.
        unsafe {
            gemm_f32::gemm::f32::get_gemm_fn()(
                rows,
                columns,
                block.min(k - from),
                out.as_mut_ptr(),
                n as isize,
                1,
                add || from > 0,
                left.as_ptr(),
                left_step[0],
                left_step[1],
                right.as_ptr(),
                right_step[0],
                right_step[1],
                one,
                one,
                conjugate,
                conjugate,
                conjugate,
                gemm_common::Parallelism::None,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By default the library splits a sum by the size of this machine's caches; it never splits
    /// one of 512 or fewer.
    #[test]
    fn exact_long_sums_are_cut_in_the_same_places_on_every_machine() {
        let number = |at: usize| ((at * 7919 % 1009) as f32 - 500.0) / 311.0;
        let [m, k, n] = [70, 1300, 9];
        let a: Vec<f32> = (0..m * k).map(number).collect();
        let b: Vec<f32> = (0..k * n).map(|at| number(at + 3)).collect();
        let mut whole = vec![f32::NAN; m * n];
        product([m, k, n], &matrix(&a, k), &matrix(&b, n), &mut whole, false);
        let mut parts = vec![0.0; m * n];
        for (from, to) in [(0, 434), (434, 868), (868, 1300)] {
            let (a, b) = (matrix(&a[from..], k), matrix(&b[from * n..], n));
            product([m, to - from, n], &a, &b, &mut parts, true);
        }
        assert!(whole == parts, "the sums were cut elsewhere");
        let longhand = |at: usize| -> f64 {
            let (row, column) = (at / n, at % n);
            let each = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column]));
            each.sum()
        };
        let close = |(at, x): (usize, &f32)| (f64::from(*x) - longhand(at)).abs() < 1e-2;
        assert!(whole.iter().enumerate().all(close));
        // an empty sum is 0, and adding it changes nothing
        let mut none = vec![1.0; 4];
        product(
            [2, 0, 2],
            &matrix(&[], 0),
            &matrix(&[], 2),
            &mut none,
            false,
        );
        assert_eq!(none, [0.0; 4]);
        product([0, 3, 2], &matrix(&[], 3), &matrix(&b, 2), &mut [], true);
    }
}
