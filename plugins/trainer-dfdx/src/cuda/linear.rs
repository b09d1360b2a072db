//! Fully connected layers on a card: kernels/linear.cu, as [`fl_nets::ops::linear`].

use super::driver::{Buffer, Position, Queue, int};
use super::pointwise::relu_back;
use super::sums::column_sums;
use super::tape::{Record, Value, Weights};
use fl_core::Result;
use fl_nets::ops::{Order, Strided, order};
use std::ops::Range;
use std::sync::Arc;

/// A matrix on a card.
pub type Matrix<'a> = Strided<Position<'a>>;

/// Returns an order in the form of the kernels.
pub fn order_words(order: Order) -> Result<[i32; 2]> {
    Ok(match order {
        Order::Blocks(block) => [0, int(block)?],
        Order::Lanes(block) => [1, int(block)?],
        Order::Outer => [2, 0],
        Order::Column => [3, 0],
        Order::Row => [4, 0],
    })
}

/// Products of several `a` with one `b`, where each `a` has its own number of rows.
pub struct Texts<'a> {
    /// Number of products.
    pub items: usize,
    /// Step from one `a` to the next.
    pub a_ld: usize,
    /// Rows of each.
    pub counts: &'a Buffer,
    /// The order of each, two words.
    pub orders: &'a Buffer,
    /// Whether rows beyond the counted ones are set to 0.
    pub zeros: bool,
}

/// Computes `out = relu?(bias? + a b)`, for `a` of `m x k` and `b` of `k x n`.
///
/// # Errors
/// If the card fails, or a size is too large for it.
pub fn product(
    queue: &Queue,
    [m, k, n]: [usize; 3],
    [a, b]: [Matrix<'_>; 2],
    bias: Option<Position<'_>>,
    relu: bool,
    out: Position<'_>,
    texts: Option<&Texts<'_>>,
) -> Result<()> {
    if m * n == 0 {
        return Ok(());
    }
    let steps = |m: &Matrix<'_>| Ok::<_, anyhow::Error>([int(m.by_row)?, int(m.by_column)?]);
    let (sa, sb) = (steps(&a)?, steps(&b)?);
    let (biased, bias) = (bias.is_some(), bias.unwrap_or(a.values));
    let how = match texts {
        Some(_) => Order::Outer,
        None => order([m, k, n], a.steps(), b.steps()),
    };
    if let (Order::Blocks(block), None) = (how, texts) {
        let arguments = arguments![
            m, k, n, block, sa, sb, relu, biased, a.values, b.values, bias, out
        ];
        int(m * n)?;
        // small products get small blocks, so that a card has enough of them
        let (kernel, side) = if m.min(n) >= 64 {
            ("product_wide", 64)
        } else {
            ("product_blocks", 16)
        };
        let grid = [n, m].map(|size| (size as u32).div_ceil(side));
        if grid[1] <= 65535 {
            return queue.launch(kernel, grid, &arguments);
        }
    }
    let items = texts.map_or(1, |t| t.items);
    let shared = match texts {
        Some(t) => [int(t.items)?, int(t.a_ld)?, 1, i32::from(t.zeros)],
        None => [1, 0, 0, 0],
    };
    let lists = texts.map_or([a.values, a.values], |t| {
        [Position(t.counts, 0), Position(t.orders, 0)]
    });
    let arguments = arguments![
        m,
        k,
        n,
        order_words(how)?,
        sa,
        sb,
        relu,
        biased,
        shared,
        lists[0],
        lists[1],
        a.values,
        b.values,
        bias,
        out
    ];
    queue.each("product_each", items * m * n, &arguments)
}

/// Computes `relu?(x weight^T + bias)`.
///
/// # Errors
/// As [`product`].
pub fn linear(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    weights: &Weights,
    [weight, bias]: [Range<usize>; 2],
    relu: bool,
) -> Result<Value> {
    let (rows, inputs) = (x.rows, x.width());
    let outputs = bias.len();
    let out = queue.room(rows * outputs)?;
    let w = Matrix::new(Position(&weights.data, weight.start), inputs);
    let all = Matrix::new(Position(&x.data, 0), inputs);
    let start = Some(Position(&weights.data, bias.start));
    let size = [rows, inputs, outputs];
    let place = Position(&out, 0);
    product(queue, size, [all, w.transposed()], start, relu, place, None)?;
    let data = Arc::new(out);
    let wanted = x.key.is_some() || weights.gradient.is_some();
    let (x, weights, out, queue) = (x.clone(), weights.clone(), data.clone(), queue.clone());
    let key = record.note(wanted, move |slope: Buffer, grads| {
        let g = Matrix::new(Position(&slope, 0), outputs);
        let relu = relu.then_some(&*out);
        if let Some(gradient) = &weights.gradient {
            let to = Position(gradient, bias.start);
            column_sums(&queue, &slope, [rows, outputs], relu, to)?;
            let (both, to) = (
                [g.transposed(), Matrix::new(Position(&x.data, 0), inputs)],
                Position(gradient, weight.start),
            );
            product(&queue, [outputs, rows, inputs], both, None, false, to, None)?;
        } else if let Some(out) = relu {
            relu_back(&queue, &slope, out)?;
        }
        let Some(key) = x.key else { return Ok(()) };
        let back = queue.room(rows * inputs)?;
        let both = [
            g,
            Matrix::new(Position(&weights.data, weight.start), inputs),
        ];
        let (size, to) = ([rows, outputs, inputs], Position(&back, 0));
        product(&queue, size, both, None, false, to, None)?;
        grads.give(key, back)
    });
    Ok(Value {
        data,
        rows,
        shape: vec![outputs],
        key,
    })
}
