//! Packing of whole numbers into as few bits as they need.

use crate::Result;
use anyhow::Context;
use ndarray::Array2;

/// Returns the bits for `choices` different values: `ceil(log2(choices))`, at least 1.
pub(super) fn bits_for(choices: u32) -> u32 {
    u64::from(choices.max(2))
        .next_power_of_two()
        .trailing_zeros()
}

/// Packs numbers below `2^bits`, `bits` each, the first in the lowest bits.
pub(super) fn pack_bits(numbers: impl Iterator<Item = u32>, bits: u32) -> Vec<u8> {
    let (mut out, mut held, mut used) = (Vec::new(), 0u64, 0u32);
    for n in numbers {
        held |= u64::from(n) << used;
        used += bits;
        while used >= 8 {
            out.push(held as u8);
            held >>= 8;
            used -= 8;
        }
    }
    if used > 0 {
        out.push(held as u8);
    }
    out
}

/// Unpacks numbers from [`pack_bits`].
pub(super) fn unpack_bits(packed: &[u8], shape: (usize, usize), bits: u32) -> Result<Array2<u32>> {
    let (rows, columns) = shape;
    let (mut held, mut used, mut next) = (0u64, 0u32, packed.iter());
    let wanted = rows
        .checked_mul(columns)
        .and_then(|n| Some((n, n.checked_mul(bits as usize)?.div_ceil(8))));
    let n = wanted
        .filter(|(_, bytes)| *bytes == packed.len())
        .map(|(n, _)| n);
    let n = n.with_context(|| {
        format!(
            "{} bytes for {rows} x {columns} levels of {bits} bits",
            packed.len()
        )
    })?;
    let mut numbers = Vec::with_capacity(n);
    for _ in 0..n {
        while used < bits {
            held |= u64::from(*next.next().context("the levels end early")?) << used;
            used += 8;
        }
        numbers.push((held & ((1 << bits) - 1)) as u32);
        held >>= bits;
        used -= bits;
    }
    Ok(Array2::from_shape_vec(shape, numbers)?)
}
