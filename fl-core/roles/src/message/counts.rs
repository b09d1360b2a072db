//! [`Counts`]: votes per class, and how many of them one unit of data can change.

use super::{
    Column, Dtype, ExchangeShape, Message, NamedTensors, ROWS, SampleShape, SensitivityNorm,
    TensorMap, View, checks::same_rows, tensors::list,
};
use crate::{Problem, Result};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

/// How many votes about one sample one unit of data can change; noise on [`Counts`] must hide as
/// many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteSensitivity {
    /// By one example of one party; `None`: unknown.
    pub example: Option<u32>,
    /// By all data of one party; `None`: unknown.
    pub party: Option<u32>,
    /// Whether `example` was computed from the data, so that its guarantee depends on them.
    pub from_data: bool,
    /// Whether `example` also holds if the example is added or removed. It does if each example is
    /// counted itself, and not if examples are split among voters: one more may change every vote.
    // `default` serves JSON only: in postcard, as in saved states and replies, it must be there
    #[serde(default)]
    pub also_removed: bool,
}

impl VoteSensitivity {
    /// Returns that of a client's own examples, where one more changes `moved` counts; nothing
    /// bounds how many examples there are.
    pub const fn of_own_examples(moved: u32) -> Self {
        Self {
            example: Some(moved),
            party: None,
            from_data: false,
            also_removed: true,
        }
    }
}

/// Votes for each class, for each sample; after [`crate::PrivacyMechanism::perturb`] with noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Ids of the samples.
    pub rows: Vec<u32>,
    /// `rows x classes`.
    pub values: Array2<f64>,
    /// Block; the reach of an example and of a party plus 1, or 0 if unknown; 1 if the reach is
    /// from the data, plus 2 if it also holds for an added example.
    about: [u32; 4],
}

impl Counts {
    /// Makes a message with one row of `values` per id in `rows`. Every vote changes alone, and the
    /// sensitivity is unknown.
    pub fn new(rows: Vec<u32>, values: Array2<f64>) -> Self {
        Self {
            rows,
            values,
            about: [1, 0, 0, 0],
        }
    }

    /// Returns the same counts, where one sender's votes count `block` at a time, all or none.
    pub fn in_blocks(mut self, block: usize) -> Self {
        self.about[0] = block as u32;
        self
    }

    /// Returns how many votes of a sender count only together; 1 if each counts alone.
    pub fn block(&self) -> usize {
        self.about[0] as usize
    }

    /// Sets how many votes of a row one unit of data can change.
    pub fn set_sensitivity(&mut self, sensitivity: VoteSensitivity) {
        let [example, party] =
            [sensitivity.example, sensitivity.party].map(|m| m.map_or(0, |m| m + 1));
        let flags = u32::from(sensitivity.from_data) + 2 * u32::from(sensitivity.also_removed);
        self.about[1..].copy_from_slice(&[example, party, flags]);
    }

    /// Returns how many votes of a row one unit of data can change.
    pub fn sensitivity(&self) -> VoteSensitivity {
        let [_, example, party, flags] = self.about;
        VoteSensitivity {
            example: example.checked_sub(1),
            party: party.checked_sub(1),
            from_data: flags & 1 != 0,
            also_removed: flags & 2 != 0,
        }
    }

    /// Keeps only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        self.rows = positions.iter().map(|p| self.rows[*p]).collect();
        self.values = self.values.select(ndarray::Axis(0), positions);
    }

    /// Returns the class with the highest count in each row, the lowest such class on ties, as
    /// everywhere in fl.
    pub fn winners(&self) -> Vec<u32> {
        crate::metrics::classes(self.values.view())
    }

    /// Returns the gap from the highest to the second count of each row; the count itself if there
    /// is one class, and 0 if there is none.
    pub fn gaps(&self) -> Vec<f64> {
        let gap = |row: &[f64]| {
            let (first, second) = row.iter().fold((0.0f64, 0.0f64), |(first, second), x| {
                (first.max(*x), second.max(first.min(*x)))
            });
            first - second
        };
        let values = self.values.as_standard_layout();
        match values.as_slice() {
            // views of rows cost more than their numbers
            Some(all) if !all.is_empty() => all.chunks(self.values.ncols()).map(gap).collect(),
            // no rows, or rows without classes
            _ => vec![0.0; self.values.nrows()],
        }
    }
}

impl Message for Counts {
    const KIND: &'static str = "counts";
    const DOC: &'static str =
        "How many votes each class got, for each sample, with or without noise.";
    const COLUMNS: &'static [Column] = &[
        ROWS,
        Column::new(
            "values",
            Dtype::F64,
            "rows x classes",
            "votes for each class",
        ),
        Column::new(
            ".about",
            Dtype::U32,
            "4",
            "number of a sender's votes that count together; number of votes that an example, and \
             a party, can change, plus 1 (0: not stated); 1 if it comes from the data, plus 2 if \
             it also holds for an added example. May be left out",
        ),
    ];
    const REACH: SensitivityNorm = SensitivityNorm::Stated;
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(8 * (facts.rows * facts.outputs) as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("values".into(), View::F64(self.values.view().into_dyn())),
            (".about".into(), list(&self.about)),
        ]
    }
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        let mut counts = Self::new(
            parcel.list("rows")?,
            parcel.f64("values")?.into_dimensionality()?,
        );
        if parcel.has(".about") {
            let about = parcel.list(".about")?;
            let about = about.try_into();
            counts.about = about.map_err(|_| Problem::Shape("`.about` has four numbers".into()))?;
        }
        Ok(counts)
    }
    fn check(&self) -> Result<()> {
        same_rows(self.rows.len(), self.values.nrows())
    }
    fn class_count(&self) -> Option<usize> {
        Some(self.values.ncols())
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        let rows = outline.rows();
        let shape = (rows.len(), outline.classes());
        let values = Array2::from_shape_simple_fn(shape, || outline.draws.below(30) as f64);
        let mut counts = Self::new(rows, values);
        counts.set_sensitivity(VoteSensitivity {
            example: Some(1),
            party: Some(1),
            ..VoteSensitivity::of_own_examples(1)
        });
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_counts_say_winners_gaps_and_reach() {
        let mut counts = Counts::new(
            vec![3, 4, 5, 6],
            array![
                [2.0, 2.0, 1.0],
                [0.0, 1.0, 4.0],
                [0.0, 0.0, 0.0],
                [-3.0, -1.0, -2.0]
            ],
        );
        assert_eq!(counts.winners(), [0, 2, 0, 1], "the lowest class on ties");
        assert_eq!(counts.gaps()[..3], [0.0, 3.0, 0.0]);
        assert_eq!(
            (counts.block(), counts.sensitivity()),
            (1, VoteSensitivity::default())
        );
        let sensitivity = VoteSensitivity {
            example: Some(0),
            party: Some(2),
            from_data: true,
            also_removed: true,
        };
        counts.set_sensitivity(sensitivity);
        let counts = counts.in_blocks(2);
        let there = decode::<Counts>(&encode(&counts)).unwrap();
        assert_eq!((there.sensitivity(), there.block()), (sensitivity, 2));
        assert_eq!(there, counts);
        let mut few = counts.clone();
        few.retain_rows(&[1, 3]);
        assert_eq!((few.rows, few.values.nrows()), (vec![4, 6], 2));
    }

    #[test]
    fn rows_without_classes_have_gaps_as_rows_with_one() {
        let gaps = |classes| Counts::new(vec![3, 4], Array2::ones((2, classes))).gaps();
        assert_eq!((gaps(0), gaps(1)), (vec![0.0; 2], vec![1.0; 2]));
        let none = Counts::new(vec![], Array2::zeros((0, 3)));
        assert_eq!(none.gaps(), [0.0; 0]);
    }
}
