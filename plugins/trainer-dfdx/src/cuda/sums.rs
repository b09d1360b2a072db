//! Sums over a batch on a card: kernels/sums.cu, as `channel_sums` in [`fl_nets::ops`].

use super::driver::{Argument, Buffer, Position, Queue, int};
use fl_core::Result;

/// Planes that one block sums (kernels/strands.cuh).
const PLANES: usize = 16;

/// The terms to sum over each plane.
#[derive(Clone, Copy)]
pub enum Term<'a> {
    /// The values.
    Values,
    /// Their squared distances to the mean of their channel.
    Spread(&'a Buffer),
    /// The squares of the values.
    Squares,
    /// The values where this output of a relu is above 0; the others become 0 in place.
    Masked(&'a Buffer),
}

/// Computes the sums of planes of `run` numbers; the last may be shorter.
///
/// # Errors
/// If the card fails.
pub fn plane_sums(
    queue: &Queue,
    values: &Buffer,
    (channels, run): (usize, usize),
    term: Term<'_>,
) -> Result<Buffer> {
    let n = values.len();
    let planes = n.div_ceil(run);
    let sums = queue.room(planes)?;
    let (what, others, means) = match term {
        Term::Values => (0_i32, values, values),
        Term::Spread(means) => (1, values, means),
        Term::Squares => (2, values, values),
        Term::Masked(out) => (3, out, values),
    };
    queue.planes(
        "plane_sums",
        planes,
        &arguments![planes, channels, run, n, what, values, others, means, &sums],
    )?;
    Ok(sums)
}

impl Queue {
    /// Runs a kernel with sixteen threads for each of `planes` planes.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    pub fn planes(&self, kernel: &str, planes: usize, arguments: &[Argument<'_>]) -> Result<()> {
        match planes {
            0 => Ok(()),
            _ => self.launch(kernel, [int(planes.div_ceil(PLANES))? as u32, 1], arguments),
        }
    }
}

/// Computes the sums of columns of `rows x columns` numbers. With `relu`, the output of one, only of
/// the values where it is above 0; the others become 0 in place.
///
/// # Errors
/// If the card fails.
pub fn column_sums(
    queue: &Queue,
    values: &Buffer,
    [rows, columns]: [usize; 2],
    relu: Option<&Buffer>,
    to: Position<'_>,
) -> Result<()> {
    let arguments = arguments![
        rows,
        columns,
        relu.is_some(),
        relu.unwrap_or(values),
        values,
        to
    ];
    queue.each("column_sums", columns, &arguments)
}
