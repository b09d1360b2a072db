//! Functions of a message's tensors: validity, compatibility, digest and size.

use super::{AnyMessage, NamedTensors, View};
use crate::{Problem, Result};
use anyhow::bail;
use ndarray::ArrayViewD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Checks that all numbers are finite, and runs the message's own check.
///
/// # Errors
/// Names the tensor and the position.
pub fn check(message: &dyn AnyMessage) -> Result<()> {
    for (name, view) in &message.content() {
        let bad = match view {
            View::F32(a) => first_not_finite(a, |x| x.is_finite()),
            View::F64(a) => first_not_finite(a, |x| x.is_finite()),
            View::U32(_) | View::U8(_) | View::I64(_) | View::Bits(_) => None,
        };
        if let Some((at, value)) = bad {
            bail!(Problem::NotFinite {
                tensor: name.to_string(),
                at,
                value
            });
        }
    }
    message.check_content()
}

/// Returns the position and the text of the first number that is not finite.
fn first_not_finite<T: Copy + Display>(
    numbers: &ArrayViewD<'_, T>,
    is_finite: impl Fn(T) -> bool,
) -> Option<(usize, String)> {
    // without a branch for each number, which takes a sixth of the time
    let all = |some: &[T]| some.iter().fold(true, |all, x| all & is_finite(*x));
    if let Some(numbers) = numbers.as_slice()
        && numbers.chunks(1024).all(all)
    {
        return None;
    }
    let mut numbers = numbers.iter().enumerate();
    let (at, x) = numbers.find(|(_, x)| !is_finite(**x))?;
    Some((at, x.to_string()))
}

/// Checks that a row-keyed answer holds only requested samples, each at most once. Other messages
/// pass.
///
/// # Errors
/// Names the first row that does not belong.
pub fn check_rows(answer: &dyn AnyMessage, asked: &[u32]) -> Result<()> {
    let tensors = answer.content();
    let Some((_, View::U32(rows))) = tensors.iter().find(|(name, _)| name == "rows") else {
        return Ok(());
    };
    let mut left: BTreeSet<u32> = asked.iter().copied().collect();
    for id in rows {
        Problem::shape_unless(left.remove(id), || {
            format!("it contains sample {id} twice, or unasked")
        })?;
    }
    Ok(())
}

/// Checks that two messages can be combined: the same tensors of the same shapes, or for row-keyed
/// ones the same trailing shapes.
///
/// # Errors
/// Names the difference.
pub fn alike(one: &dyn AnyMessage, other: &dyn AnyMessage) -> Result<()> {
    alike_to(one, other, "the first answer")
}

/// As [`alike`]; `what` describes the first message in the error.
///
/// # Errors
/// As [`alike`].
pub fn alike_to(one: &dyn AnyMessage, other: &dyn AnyMessage, what: &str) -> Result<()> {
    let (a, b) = (one.content(), other.content());
    let keyed = a.iter().any(|(name, _)| name == "rows");
    let names = |t: &NamedTensors<'_>| {
        t.iter()
            .map(|(n, _)| format!("`{n}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    Problem::shape_unless(
        a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| x.0 == y.0),
        || format!("other tensors: {} here, {} in {what}", names(&b), names(&a)),
    )?;
    let from = usize::from(keyed);
    let trailing = |view: &View<'_>| Some(view.table()?.get(from..)?.to_vec());
    for ((name, x), (_, y)) in a.iter().zip(&b) {
        Problem::shape_unless(trailing(x) == trailing(y), || {
            format!(
                "`{name}` is {:?} here, {:?} in {what}",
                y.shape(),
                x.shape()
            )
        })?;
    }
    Ok(())
}

/// Returns the SHA-256 of names, shapes and numbers.
pub fn digest(message: &dyn AnyMessage) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(message.kind().as_bytes());
    for (name, view) in message.content() {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update([view.dtype() as u8]);
        for d in view.shape() {
            hash.update((d as u64).to_le_bytes());
        }
        view.feed(|bytes| hash.update(bytes));
    }
    hash.finalize().into()
}

/// Returns lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        })
}

/// Bytes of a message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// The numbers themselves.
    pub values: u64,
    /// Row ids: 0 if they are the requested ids or simply `0, 1, 2, ...`, a bit mask for a subset
    /// of the requested ids, else 4 bytes each.
    pub keys: u64,
}

impl Bytes {
    /// Returns the sum of both.
    pub fn total(self) -> u64 {
        self.values + self.keys
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.values += other.values;
        self.keys += other.keys;
    }
}

/// Counts the bytes of an answer to a request for the samples `asked` (`None`: not about samples).
pub fn bytes(message: &dyn AnyMessage, asked: Option<&[u32]>) -> Bytes {
    let mut count = Bytes::default();
    for (name, view) in message.sent() {
        match (&*name, &view) {
            ("rows", View::U32(rows)) => {
                count.keys += match asked {
                    Some(asked) if asked.iter().eq(rows.iter()) => 0,
                    None if rows.iter().copied().eq(0..rows.len() as u32) => 0,
                    Some(asked) if rows.len() <= asked.len() => asked.len().div_ceil(8) as u64,
                    _ => 4 * rows.len() as u64,
                }
            }
            (name, view) if !name.starts_with('.') => count.values += view.bytes() as u64,
            _ => {}
        }
    }
    count
}

/// Checks that there is one id for each row.
pub(super) fn same_rows(ids: usize, rows: usize) -> Result<()> {
    Problem::shape_unless(ids == rows, || format!("{ids} ids for {rows} rows"))
}
