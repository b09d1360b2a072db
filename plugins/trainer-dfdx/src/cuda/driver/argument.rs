//! What a kernel is given.

use super::buffer::Buffer;
use anyhow::{Result, ensure};
use std::marker::PhantomData;

/// An argument of a kernel: a number, a struct of numbers, or a position in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    pub(super) bytes: usize,
    pub(super) storage: [u64; 5],
    /// The buffer lives until the launch.
    buffer: PhantomData<&'a Buffer>,
}

impl Argument<'_> {
    /// Makes a struct of numbers of 32 bits, at most ten.
    fn words(words: impl IntoIterator<Item = u32>) -> Self {
        let mut argument = Self {
            bytes: 0,
            storage: [0; 5],
            buffer: PhantomData,
        };
        for (at, word) in words.into_iter().enumerate() {
            argument.storage[at / 2] |= u64::from(word) << (at % 2 * 32);
            argument.bytes += 4;
        }
        argument
    }
}

impl From<i32> for Argument<'_> {
    fn from(v: i32) -> Self {
        Self::words([v as u32])
    }
}

/// A size.
impl TryFrom<usize> for Argument<'_> {
    type Error = anyhow::Error;

    fn try_from(n: usize) -> Result<Self> {
        int(n).map(Self::from)
    }
}

impl From<bool> for Argument<'_> {
    fn from(v: bool) -> Self {
        Self::words([u32::from(v)])
    }
}

impl From<f32> for Argument<'_> {
    fn from(v: f32) -> Self {
        Self::words([v.to_bits()])
    }
}

impl<const N: usize> From<[i32; N]> for Argument<'_> {
    fn from(v: [i32; N]) -> Self {
        Self::words(v.map(|v| v as u32))
    }
}

impl<const N: usize> From<[f32; N]> for Argument<'_> {
    fn from(v: [f32; N]) -> Self {
        Self::words(v.map(f32::to_bits))
    }
}

impl<'a> From<&'a Buffer> for Argument<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Position(buffer, 0).into()
    }
}

/// A position in a buffer: number `.1`, which may be its end.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a>(pub &'a Buffer, pub usize);

impl<'a> From<Position<'a>> for Argument<'a> {
    fn from(Position(buffer, at): Position<'a>) -> Self {
        assert!(at <= buffer.len(), "a place behind the end of a buffer");
        Self {
            bytes: 8,
            storage: [buffer.address + 4 * at as u64, 0, 0, 0, 0],
            buffer: PhantomData,
        }
    }
}

/// The most numbers of one buffer: kernels count in 32 bits, up to a whole block beyond the last.
const MOST: usize = i32::MAX as usize - 1024;

/// Converts a size to the kernels' type.
///
/// # Errors
/// If it is too large.
pub fn int(n: usize) -> Result<i32> {
    ensure!(
        n <= MOST,
        "device: cuda: {n} numbers in one operation, and {MOST} is the most; use smaller batches"
    );
    Ok(n as i32)
}
