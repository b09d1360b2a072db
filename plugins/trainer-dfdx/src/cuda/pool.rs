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
    let places = [(&*x.data).into(), (&out).into(), (&from).into()];
    let arguments = [int(n)?.into(), size, places[0], places[1], places[2]];
    queue.each("max_pool", n, &arguments)?;
    let queue = queue.clone();
    Ok(x.then(record, out, shape.out().to_vec(), move |slope| {
        let back = queue.room(len)?;
        let places = [(&slope).into(), (&from).into(), (&back).into()];
        let n = int(len)?.into();
        let arguments = [n, size, places[0], places[1], places[2]];
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
    let arguments = [int(n)?.into(), size, (&*x.data).into(), (&out).into()];
    queue.each("average_pool", n, &arguments)?;
    let queue = queue.clone();
    Ok(x.then(record, out, shape.out().to_vec(), move |slope| {
        let back = queue.room(len)?;
        let n = int(len)?.into();
        let arguments = [n, size, (&slope).into(), (&back).into()];
        queue.each("average_pool_back", len, &arguments)?;
        Ok(back)
    }))
}
