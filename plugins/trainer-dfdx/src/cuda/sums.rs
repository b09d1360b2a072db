//! Sums over a batch on a card: kernels/sums.cu, as `channel_sums` in [`crate::ops`].

use super::driver::{Buffer, Position, Queue, int};
use fl_core::Result;

/// The terms to sum over each plane.
#[derive(Clone, Copy)]
pub enum Term<'a> {
    /// The values.
    Values,
    /// Their squared distances to the mean of their channel.
    Spread(&'a Buffer),
    /// The values times the distance of these other values to the mean of their channel.
    Tilt(&'a Buffer, &'a Buffer),
    /// The squares of the values.
    Squares,
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
        Term::Values => (0, values, values),
        Term::Spread(means) => (1, values, means),
        Term::Tilt(others, means) => (2, others, means),
        Term::Squares => (3, values, values),
    };
    queue.each(
        "plane_sums",
        planes,
        &[
            int(planes)?.into(),
            int(channels)?.into(),
            int(run)?.into(),
            int(n)?.into(),
            what.into(),
            values.into(),
            others.into(),
            means.into(),
            (&sums).into(),
        ],
    )?;
    Ok(sums)
}

/// Computes the sums of columns of `rows x columns` numbers.
///
/// # Errors
/// If the card fails.
pub fn column_sums(
    queue: &Queue,
    values: &Buffer,
    rows: usize,
    columns: usize,
    to: Position<'_>,
) -> Result<()> {
    let sizes = [int(rows)?.into(), int(columns)?.into()];
    let arguments = [sizes[0], sizes[1], values.into(), to.into()];
    queue.each("column_sums", columns, &arguments)
}

/// Computes the sums over a batch of each of `channels` channels of `run` numbers.
///
/// # Errors
/// If the card fails.
pub fn channel_sums(
    queue: &Queue,
    values: &Buffer,
    rows: usize,
    channels: usize,
    run: usize,
    to: Position<'_>,
) -> Result<()> {
    if run == 1 {
        return column_sums(queue, values, rows, channels, to);
    }
    let sums = plane_sums(queue, values, (channels, run), Term::Values)?;
    column_sums(queue, &sums, rows, channels, to)
}
