//! Fully connected layers.

use super::matrix::matrix;
use super::product::{descended, product, product_as};
use super::{channel_sums, relu_back};
use crate::buffer::Buffer;
use crate::simd::{at_least, vectorised};
use crate::tape::{Record, Value, Weights};
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
    let mut data = match &bias {
        Some(bias) => {
            let mut data = Buffer::any(rows * outputs);
            let bias = &weights.data[bias.clone()];
            data.chunks_exact_mut(outputs)
                .for_each(|row| row.copy_from_slice(bias));
            data
        }
        None => Buffer::filled(rows * outputs, 0.0),
    };
    let w = matrix(&weights.data[weight.clone()], inputs);
    let all = matrix(&x.data, inputs);
    let as_rows = record.rows(rows);
    product_as(
        as_rows,
        [rows, inputs, outputs],
        &all,
        &w.transposed(),
        &mut data,
        true,
    );
    if relu {
        vectorised(
            #[inline(always)]
            || data.iter_mut().for_each(|v| *v = at_least(*v, 0.0)),
        );
    }
    let data = Arc::new(data);

    let (wanted, out) = (x.key.is_some() || weights.key.is_some(), data.clone());
    let (x, weights) = (x.clone(), weights.clone());
    let key = record.note(wanted, move |mut slope, grads| {
        if relu {
            relu_back(&mut slope, &out);
        }
        let g = matrix(&slope, outputs);
        if let Some(key) = &x.key {
            let mut back = Buffer::any(rows * inputs);
            let w = matrix(&weights.data[weight.clone()], inputs);
            let size = [rows, outputs, inputs];
            product_as(as_rows, size, &g, &w, &mut back, false);
            grads.give(key, back)?;
        }
        let Some(key) = &weights.key else {
            return Ok(());
        };
        if let Some(mut examples) = grads.examples() {
            examples.add_outer(slope, x.data.clone(), weight, bias);
            return Ok(());
        }
        let descending = grads.descending();
        let all = grads.weights(key)?;
        let (size, gt, x) = (
            [outputs, rows, inputs],
            g.transposed(),
            matrix(&x.data, inputs),
        );
        let to = &mut all[weight.clone()];
        match descending {
            None => product(size, &gt, &x, to, false),
            Some(descending) => {
                let before = &weights.data[weight.clone()];
                descended(size, [&gt, &x], to, descending.how, before);
                descending.finish(weight);
            }
        }
        if let Some(bias) = bias {
            channel_sums(&slope, outputs, 1, &mut all[bias]);
        }
        Ok(())
    });
    Value {
        data,
        rows,
        shape: vec![outputs],
        key,
    }
}
