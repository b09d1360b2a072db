//! Two-dimensional convolution on a card: kernels/conv.cu, as [`fl_nets::ops::conv2d`].

use super::driver::{Argument, Buffer, Position, Queue, int};
use super::pointwise::relu_back;
use super::sums::{Term, plane_sums};
use super::tape::{Record, Value, Weights};
use fl_core::Result;
use fl_nets::ops::{ConvShape, conv_grid, conv_group};
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

/// Channels and places of a block of the kernels for large batches, and the weights that it keeps
/// of each channel (kernels/conv.cu).
const WIDE: [usize; 3] = [8, 512, 512];

/// The fewest blocks that occupy a card.
const BLOCKS: usize = 128;

/// Runs a kernel that makes `channels` channels of `places` places, or its form for large batches.
/// Small ones get more blocks: a thread for four channels of one place.
fn channels_of_places(
    queue: &Queue,
    kernel: [&str; 2],
    channels: usize,
    places: usize,
    area: usize,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let [some, at_once, weights] = WIDE;
    let grid = [places.div_ceil(at_once), channels.div_ceil(some)];
    let wide = grid[0] * grid[1] >= BLOCKS && area <= weights && grid[1] <= 65535;
    if wide {
        queue.launch(
            kernel[1],
            [int(grid[0])? as u32, int(grid[1])? as u32],
            arguments,
        )
    } else {
        queue.each(kernel[0], places * channels.div_ceil(4), arguments)
    }
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
    let (plane, area) = (s.out_height() * s.out_width(), s.kernel * s.kernel);
    int(rows * size_out)?;
    channels_of_places(
        queue,
        ["conv_forward", "conv_forward_wide"],
        s.out,
        rows * plane,
        area,
        &arguments![
            shape_argument(&s)?,
            rows,
            relu,
            biased,
            &*x.data,
            Position(&weights.data, weight.start),
            Position(&weights.data, start),
            &out
        ],
    )?;
    let data = Arc::new(out);
    let wanted = x.key.is_some() || weights.gradient.is_some();
    let (x, weights, out, queue) = (x.clone(), weights.clone(), data.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        let relu = relu.then_some(&*out);
        if let Some(out) = relu.filter(|_| weights.gradient.is_none() || bias.is_none()) {
            relu_back(&queue, &slope, out)?;
        }
        if let Some(gradient) = &weights.gradient {
            let term = relu.map_or(Term::Values, Term::Masked);
            let sums = match &bias {
                Some(_) => plane_sums(&queue, &slope, (s.out, plane), term)?,
                None => queue.room(0)?,
            };
            let biases = bias.as_ref().map_or(0..0, Clone::clone);
            let group = conv_group(&s, rows);
            let groups = rows.div_ceil(group);
            let lanes = queue.room(groups * weight.len() * 8)?;
            int(lanes.len())?;
            queue.each(
                "conv_back_weight_lanes",
                groups * s.out.div_ceil(4) * s.taps() * 8,
                &arguments![
                    shape_argument(&s)?,
                    rows,
                    conv_grid(&s).ld,
                    group,
                    &*x.data,
                    &slope,
                    &lanes
                ],
            )?;
            queue.each(
                "conv_back_weight",
                weight.len() + biases.len(),
                &arguments![
                    weight.len(),
                    groups,
                    biases.len(),
                    rows,
                    &lanes,
                    &sums,
                    Position(gradient, weight.start),
                    Position(gradient, biases.start)
                ],
            )?;
        }
        let Some(key) = x.key else { return Ok(()) };
        let back = queue.room(x.data.len())?;
        int(x.data.len())?;
        channels_of_places(
            &queue,
            ["conv_back_input", "conv_back_input_wide"],
            s.channels,
            rows * s.height * s.width,
            area,
            &arguments![
                shape_argument(&s)?,
                rows,
                &slope,
                Position(&weights.data, weight.start),
                &back
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
