//! [`Votes`]: one class for each sample, by one or several voters.

use super::bits::{bits_for, pack_bits, unpack_bits};
use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, ROWS, SampleShape, TensorMap, View,
    checks::same_rows, tensors::list,
};
use crate::{Problem, Result};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// The most counts that votes may claim: a message of a few bytes must not take a gigabyte at the
/// receiver.
const MOST: usize = 1 << 26;

/// One class for each sample, by one or several voters: a party's students, or a single teacher.
///
/// On the wire a vote takes `ceil(log2(classes))` bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Votes {
    /// Ids of the samples.
    pub rows: Vec<u32>,
    /// `rows x voters`.
    pub labels: Array2<u32>,
    classes: [u32; 1],
    /// Voters and classes, which are needed to unpack the wire form.
    shape: [u32; 2],
}

impl Votes {
    /// Makes a message with one row of `labels` per id in `rows`, one column per voter.
    pub fn new(rows: Vec<u32>, labels: Array2<u32>, classes: usize) -> Self {
        let (voters, classes) = (labels.ncols() as u32, classes as u32);
        Self {
            rows,
            labels,
            classes: [classes],
            shape: [voters, classes],
        }
    }

    /// Returns the number of voters per sample.
    pub fn voters(&self) -> usize {
        self.labels.ncols()
    }

    /// Keeps only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        self.rows = positions.iter().map(|p| self.rows[*p]).collect();
        self.labels = self.labels.select(ndarray::Axis(0), positions);
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes[0] as usize
    }
}

impl Message for Votes {
    const KIND: &'static str = "votes";
    const DOC: &'static str = "One class for each sample, by one or several voters; on the wire `ceil(log2(classes))` bits a vote.";
    const COLUMNS: &'static [Column] = &[
        ROWS,
        Column::new(
            "labels",
            Dtype::U32,
            "rows x voters",
            "the class that each voter votes for",
        ),
        Column::new(
            ".classes",
            Dtype::U32,
            "1",
            "how many classes there are to vote for",
        ),
    ];
    /// Returns the size for one voter.
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        let bits = bits_for(facts.outputs as u32) as usize;
        Some((facts.rows * bits).div_ceil(8) as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("labels".into(), View::U32(self.labels.view().into_dyn())),
            (".classes".into(), list(&self.classes)),
        ]
    }
    fn wire(&self) -> NamedTensors<'_> {
        let bits = bits_for(self.classes[0]);
        // a label beyond the classes, which `check` refuses, must not change the next label's bits
        let labels = self
            .labels
            .iter()
            .map(|l| (*l).min(u32::MAX >> (32 - bits)));
        vec![
            ("rows".into(), list(&self.rows)),
            ("packed".into(), View::U8(pack_bits(labels, bits).into())),
            (".shape".into(), list(&self.shape)),
        ]
    }
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        let rows = parcel.list("rows")?;
        if !parcel.has("packed") {
            let labels = parcel.u32("labels")?.into_dimensionality()?;
            let classes = parcel.list(".classes")?;
            Problem::shape_unless(classes.len() == 1, || {
                "votes without the number of their classes".into()
            })?;
            return Ok(Self::new(rows, labels, classes[0] as usize));
        }
        let (packed, shape) = (parcel.bytes("packed")?, parcel.list(".shape")?);
        let &[voters, classes] = &shape[..] else {
            anyhow::bail!(Problem::Shape("packed votes without their shape".into()));
        };
        let shape = (rows.len(), voters as usize);
        let labels = unpack_bits(&packed, shape, bits_for(classes))?;
        Ok(Self::new(rows, labels, classes as usize))
    }
    fn check(&self) -> Result<()> {
        same_rows(self.rows.len(), self.labels.nrows())?;
        Problem::shape_unless(self.voters() > 0, || "votes without a voter".into())?;
        // the receiver makes a table of this many numbers to count these votes
        let counts = self.rows.len().checked_mul(self.classes());
        Problem::shape_unless(counts.is_some_and(|n| n <= MOST), || {
            format!(
                "votes on {} samples among {} classes; at most {MOST} counts (samples x classes) are allowed",
                self.rows.len(),
                self.classes()
            )
        })?;
        let bad = self
            .labels
            .indexed_iter()
            .find(|(_, l)| **l >= self.classes[0]);
        if let Some(((row, _), label)) = bad {
            anyhow::bail!(Problem::Shape(format!(
                "a vote for class {label} in row {row}; there are {} classes, the first is 0",
                self.classes[0]
            )));
        }
        Ok(())
    }
    fn class_count(&self) -> Option<usize> {
        Some(self.classes())
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let rows = outline.rows();
        let (classes, voters) = (outline.classes(), outline.voters());
        let label = || outline.draws.below(classes) as u32;
        let labels = Array2::from_shape_simple_fn((rows.len(), voters), label);
        Some(Self::new(rows, labels, classes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bytes, alike, bytes, check, decode, encode};
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_votes_survive_the_wire_in_as_few_bits_as_they_need() {
        for (classes, size) in [
            (1, 1),
            (2, 1),
            (3, 2),
            (4, 2),
            (10, 3),
            (300, 7),
            (70_000, 13),
        ] {
            let labels = array![[0, classes - 1], [classes / 2, 0], [classes - 1, 0]];
            let votes = Votes::new(vec![0, 1, 2], labels, classes as usize);
            assert_eq!(decode::<Votes>(&encode(&votes)).unwrap(), votes);
            let free = Bytes {
                values: size,
                keys: 0,
            };
            assert_eq!(bytes(&votes, None), free, "{classes} classes");
        }
        let facts = ExchangeShape {
            rows: 10,
            outputs: 3,
            ..ExchangeShape::default()
        };
        assert_eq!(Votes::expected(&facts), Some(3), "10 x 2 bits");
    }

    #[test]
    fn unusable_votes_are_refused() {
        let text = |v: &Votes| check(v).unwrap_err().to_string();
        assert_eq!(
            text(&Votes::new(vec![4, 5], array![[0], [2]], 2)),
            "a vote for class 2 in row 1; there are 2 classes, the first is 0"
        );
        assert_eq!(
            text(&Votes::new(vec![4], array![[0], [1]], 2)),
            "1 ids for 2 rows"
        );
        assert_eq!(
            text(&Votes::new(vec![4], Array2::zeros((1, 0)), 2)),
            "votes without a voter"
        );
        let (one, two) = (array![[0]], array![[0, 1]]);
        let differs = alike(&Votes::new(vec![0], one, 2), &Votes::new(vec![0], two, 2));
        assert!(
            differs
                .unwrap_err()
                .to_string()
                .contains("`labels` is [1, 2] here")
        );
        // `check` at the sender refuses a label that the wire form would truncate
        assert!(check(&Votes::new(vec![0], array![[9]], 3)).is_err());
    }
}
