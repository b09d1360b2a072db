//! [`Mask`]: a subset of the public samples, one bit for each.

use super::bits::{pack_bits, unpack_bits};
use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, SampleShape, TensorMap, View,
    tensors::list,
};
use crate::{Problem, Result};
use serde::{Deserialize, Serialize};

/// A subset of the public samples, one bit for each: those that a client can answer for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    bits: Vec<u8>,
    length: [u32; 1],
}

impl Mask {
    /// Makes a mask of the samples at these positions of `length`.
    pub fn new(positions: &[usize], length: usize) -> Self {
        let mut chosen = vec![0; length];
        positions.iter().for_each(|p| chosen[*p] = 1);
        Self {
            bits: pack_bits(chosen.into_iter(), 1),
            length: [length as u32],
        }
    }

    /// Returns whether this sample is in the subset.
    pub fn has(&self, position: usize) -> bool {
        position < self.len() && self.bits[position / 8] >> (position % 8) & 1 == 1
    }

    /// Returns the number of public samples that it covers.
    #[expect(clippy::len_without_is_empty, reason = "it is no collection")]
    pub fn len(&self) -> usize {
        self.length[0] as usize
    }

    /// Returns the positions in the subset, ascending.
    pub fn positions(&self) -> Vec<usize> {
        (0..self.len()).filter(|p| self.has(*p)).collect()
    }
}

impl Message for Mask {
    const KIND: &'static str = "mask";
    const DOC: &'static str =
        "Some of the public samples, a bit for each: those that a client can label.";
    const COLUMNS: &'static [Column] = &[
        Column::new(
            "bits",
            Dtype::U8,
            "rows / 8",
            "the samples, the first in the lowest bit of the first byte",
        ),
        Column::new(".length", Dtype::U32, "1", "how many samples there are"),
    ];
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(facts.rows.div_ceil(8) as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![
            ("bits".into(), View::U8(self.bits.as_slice().into())),
            (".length".into(), list(&self.length)),
        ]
    }
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        let (bits, length) = (parcel.bytes("bits")?, parcel.list(".length")?);
        let length = length
            .try_into()
            .map_err(|_| Problem::Shape("`.length` is one number".into()))?;
        Ok(Self { bits, length })
    }
    fn check(&self) -> Result<()> {
        unpack_bits(&self.bits, (self.len(), 1), 1).map(|_| ())
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let rows = outline.rows();
        let length = rows.last().map_or(0, |last| *last as usize + 1);
        let chosen: Vec<usize> = rows.iter().map(|r| *r as usize).collect();
        Some(Self::new(&chosen, length))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bytes, bytes, check};
    use super::*;

    #[test]
    fn a_mask_costs_a_bit_a_sample_and_its_length_nothing() {
        let mask = Mask::new(&[1, 5], 12);
        assert_eq!(bytes(&mask, None), Bytes { values: 2, keys: 0 });
        let lying = Mask {
            length: [1000],
            ..mask
        };
        assert!(check(&lying).is_err());
    }
}
