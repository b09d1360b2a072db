//! Pooling on a card: kernels/pool.cu, as [`fl_nets::ops`] has it.

use super::driver::{Argument, Queue, int};
use super::tape::{Record, Value};
use fl_core::Result;
use fl_nets::ops::PoolShape;

fn shape_argument(s: &PoolShape) -> Result<Argument<'static>> {
    let [_, height, width] = s.out();
    let all = [s.height, s.width, s.kernel, s.stride, height, width];
    let mut ints = [0; 6];
    for (to, n) in ints.iter_mut().zip(all) {
        *to = int(n)?;
    }
    Ok(ints.into())
}

/// Computes the largest number of each window, as [`fl_nets::ops::max_pool`].
///
/// # Errors
/// If the card fails.
pub fn max_pool(queue: &Queue, record: &mut Record, x: &Value, shape: &PoolShape) -> Result<Value> {
    let n = x.rows * shape.out().iter().product::<usize>();
    let (out, from, len) = (queue.room(n)?, queue.room(n)?, x.data.len());
    int(len)?;
    let size = shape_argument(shape)?;
    let arguments = arguments![n, size, &*x.data, &out, &from];
    queue.each("max_pool", n, &arguments)?;
    let queue = queue.clone();
    Ok(x.then(record, out, shape.out().to_vec(), move |slope| {
        let back = queue.room(len)?;
        let arguments = arguments![len, size, &slope, &from, &back];
        queue.each("max_pool_back", len, &arguments)?;
        Ok(back)
    }))
}

/// Computes the mean of each window, as [`fl_nets::ops::average_pool`].
///
/// # Errors
/// If the card fails.
pub fn average_pool(
    queue: &Queue,
    record: &mut Record,
    x: &Value,
    shape: &PoolShape,
) -> Result<Value> {
    let n = x.rows * shape.out().iter().product::<usize>();
    let (out, len) = (queue.room(n)?, x.data.len());
    let size = shape_argument(shape)?;
    let arguments = arguments![n, size, &*x.data, &out];
    queue.each("average_pool", n, &arguments)?;
    let queue = queue.clone();
    Ok(x.then(record, out, shape.out().to_vec(), move |slope| {
        let back = queue.room(len)?;
        let arguments = arguments![len, size, &slope, &back];
        queue.each("average_pool_back", len, &arguments)?;
        Ok(back)
    }))
}
