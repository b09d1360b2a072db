//! Two-dimensional convolution on a card: kernels/conv.cu, as [`crate::ops::conv2d`].

use super::driver::{Argument, Buffer, Position, Queue, int};
use super::pointwise::relu_back;
use super::sums::channel_sums;
use super::tape::{Record, Value, Weights};
use crate::ops::{ConvShape, conv_grid, conv_group};
use fl_core::Result;
use std::ops::Range;
use std::sync::Arc;

fn shape_argument(s: &ConvShape) -> Result<Argument<'static>> {
    let (height, width) = (s.out_height(), s.out_width());
    let all = [
        s.channels, s.height, s.width, s.out, s.kernel, s.stride, s.pad, height, width,
    ];
    let mut ints = [0; 9];
    for (to, n) in ints.iter_mut().zip(all) {
        *to = int(n)?;
    }
    Ok(ints.into())
}

/// Computes `relu?(conv(x, weight) + bias)`.
///
/// # Errors
/// If the card fails, or a size is too large for it.
pub fn conv2d(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    shape: &ConvShape,
    (weight, bias): (Range<usize>, Option<Range<usize>>),
    relu: bool,
) -> Result<Value> {
    let (s, rows) = (*shape, x.rows);
    let size_out = s.out * s.out_height() * s.out_width();
    let out = queue.room(rows * size_out)?;
    let biased = bias.is_some();
    let start = bias.as_ref().map_or(weight.start, |b| b.start);
    // one thread computes four channels
    let plane = s.out_height() * s.out_width();
    int(rows * size_out)?;
    queue.each(
        "conv_forward",
        rows * s.out.div_ceil(4) * plane,
        &[
            shape_argument(&s)?,
            int(rows)?.into(),
            relu.into(),
            biased.into(),
            (&*x.data).into(),
            Position(&weights.data, weight.start).into(),
            Position(&weights.data, start).into(),
            (&out).into(),
        ],
    )?;
    let data = Arc::new(out);
    let wanted = x.key.is_some() || weights.gradient.is_some();
    let (x, weights, out, queue) = (x.clone(), weights.clone(), data.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        if relu {
            relu_back(&queue, &slope, &out)?;
        }
        if let Some(gradient) = &weights.gradient {
            let group = conv_group(&s, rows);
            let groups = rows.div_ceil(group);
            let lanes = queue.room(groups * weight.len() * 8)?;
            int(lanes.len())?;
            queue.each(
                "conv_back_weight_lanes",
                groups * s.out.div_ceil(4) * s.taps() * 8,
                &[
                    shape_argument(&s)?,
                    int(rows)?.into(),
                    int(conv_grid(&s).ld)?.into(),
                    int(group)?.into(),
                    (&*x.data).into(),
                    (&slope).into(),
                    (&lanes).into(),
                ],
            )?;
            queue.each(
                "conv_back_weight",
                weight.len(),
                &[
                    int(weight.len())?.into(),
                    int(groups)?.into(),
                    (&lanes).into(),
                    Position(gradient, weight.start).into(),
                ],
            )?;
            if let Some(bias) = &bias {
                let to = Position(gradient, bias.start);
                channel_sums(&queue, &slope, rows, s.out, size_out / s.out, to)?;
            }
        }
        let Some(key) = x.key else { return Ok(()) };
        let back = queue.room(x.data.len())?;
        int(x.data.len())?;
        queue.each(
            "conv_back_input",
            rows * s.channels.div_ceil(4) * s.height * s.width,
            &[
                shape_argument(&s)?,
                int(rows)?.into(),
                (&slope).into(),
                Position(&weights.data, weight.start).into(),
                (&back).into(),
            ],
        )?;
        grads.give(key, back)
    });
    Ok(Value {
        data,
        rows,
        shape: vec![s.out, s.out_height(), s.out_width()],
        key,
    })
}
