//! Fully connected layers.

use super::{channel_sums, relu_back};
use crate::buffer::Buffer;
use crate::simd::at_least;
use crate::tape::{Record, Value, Weights};
use std::ops::Range;
use std::sync::Arc;

/// `relu?(x weight^T + bias)`; `weight` is `out x in`, as in PyTorch.
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
    let w = Matrix {
        values: &weights.data[weight.clone()],
        by_row: inputs,
        by_column: 1,
    };
    let all = Matrix {
        values: &x.data,
        by_row: inputs,
        by_column: 1,
    };
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
        let g = Matrix {
            values: &slope,
            by_row: outputs,
            by_column: 1,
        };
        if let Some(key) = &weights.key {
            let all = grads.weights(key)?;
            let x = Matrix {
                values: &x.data,
                by_row: inputs,
                by_column: 1,
            };
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
        let w = Matrix {
            values: &weights.data[weight],
            by_row: inputs,
            by_column: 1,
        };
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
struct Matrix<'a> {
    values: &'a [f32],
    by_row: usize,
    by_column: usize,
}

impl Matrix<'_> {
    fn transposed(&self) -> Self {
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

/// `out = a b`, or `out += a b`, for `a` of `m x k` and `b` of `k x n`; `out` is row after row. On this thread alone:
/// two threads would cut the sums differently and give other bits.
fn product([m, k, n]: [usize; 3], a: &Matrix<'_>, b: &Matrix<'_>, out: &mut [f32], add: bool) {
    assert!(
        a.holds(m, k) && b.holds(k, n) && m * n == out.len(),
        "misshapen matrices"
    );
    // the kernels write column after column, so they make `out^T = b^T a^T`; a single column is one already
    let flipped = (b.transposed(), a.transposed());
    let (rows, columns, left, right) = match n {
        0 | 1 => (m, n, a, b),
        _ => (n, m, &flipped.0, &flipped.1),
    };
    let steps = |m: &Matrix<'_>| [m.by_column as isize, m.by_row as isize];
    let (left_step, right_step) = (steps(left), steps(right));
    let (one, beta, conjugate) = (1.0, 1.0, false);
    #[allow(
        unsafe_code,
        reason = "a matrix product at full speed; gemm has no safe interface"
    )]
    // SAFETY: the assertion above says that every index below m, k and n with these strides lies inside its slice, and
    // `out` is borrowed mutably, so it overlaps neither `a` nor `b`.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            rows,
            columns,
            k,
            out.as_mut_ptr(),
            n as isize,
            1,
            add,
            left.values.as_ptr(),
            left_step[0],
            left_step[1],
            right.values.as_ptr(),
            right_step[0],
            right_step[1],
            one,
            beta,
            conjugate,
            conjugate,
            conjugate,
            gemm_common::Parallelism::None,
        );
    }
}
