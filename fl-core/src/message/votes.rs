//! Votes, their counts, and whole models.

use super::{Facts, Message, Named, Parcel, View, bits_for, list, pack_bits, unpack_bits};
use crate::{Problem, Result};
use anyhow::ensure;
use ndarray::Array2;
use serde::{Deserialize, Serialize};

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
    /// Voters and classes: what it takes to unpack the wire form.
    shape: [u32; 2],
}

impl Votes {
    /// One row of `labels` per id in `rows`, one column per voter.
    pub fn new(rows: Vec<u32>, labels: Array2<u32>, classes: usize) -> Self {
        let (voters, classes) = (labels.ncols() as u32, classes as u32);
        Self {
            rows,
            labels,
            classes: [classes],
            shape: [voters, classes],
        }
    }

    /// How many voters speak about each sample.
    pub fn voters(&self) -> usize {
        self.labels.ncols()
    }

    /// Only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        self.rows = positions.iter().map(|p| self.rows[*p]).collect();
        self.labels = self.labels.select(ndarray::Axis(0), positions);
    }

    /// How many classes there are to vote for.
    pub fn classes(&self) -> usize {
        self.classes[0] as usize
    }
}

impl Message for Votes {
    const KIND: &'static str = "votes";
    /// Of one voter.
    fn expected(facts: &Facts) -> Option<u64> {
        let bits = bits_for(facts.outputs as u32) as usize;
        Some((facts.rows * bits).div_ceil(8) as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("labels".into(), View::U32(self.labels.view().into_dyn())),
            (".classes".into(), list(&self.classes)),
        ]
    }
    fn wire(&self) -> Named<'_> {
        let bits = bits_for(self.classes[0]);
        // a label beyond the classes, which `check` refuses, must not spill into its neighbour
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
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        let rows = parcel.list("rows")?;
        if !parcel.has("packed") {
            let labels = parcel.u32("labels")?.into_dimensionality()?;
            let classes = parcel.list(".classes")?;
            ensure!(
                classes.len() == 1,
                Problem::Shape("votes without the number of their classes".into())
            );
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
        ensure!(
            self.voters() > 0,
            Problem::Shape("votes of nobody: there is no voter".into())
        );
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
}

pub(super) fn same_rows(ids: usize, rows: usize) -> Result<()> {
    ensure!(
        ids == rows,
        Problem::Shape(format!("{ids} ids for {rows} rows"))
    );
    Ok(())
}

/// How many votes about one sample can change when one unit of data does: what noise on [`Counts`] has to hide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteSensitivity {
    /// When one example of one party changes; `None`: nobody has said.
    pub example: Option<u32>,
    /// When all data of one party change; `None`: nobody has said.
    pub party: Option<u32>,
    /// Was `example` worked out from the data, so that what it guarantees depends on them?
    pub from_data: bool,
}

/// How many votes each class got, for each sample; after [`crate::PrivacyMechanism::perturb`] with noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Ids of the samples.
    pub rows: Vec<u32>,
    /// `rows x classes`.
    pub values: Array2<f64>,
    /// Block; the reach of an example and of a party, plus 1, 0 where nobody has said; whether the reach is from the data.
    about: [u32; 4],
}

impl Counts {
    /// One row of `values` per id in `rows`. Every vote changes alone, and nobody has said how many can.
    pub fn new(rows: Vec<u32>, values: Array2<f64>) -> Self {
        Self {
            rows,
            values,
            about: [1, 0, 0, 0],
        }
    }

    /// The same counts, in which the votes of one sender count together or not at all, `block` at a time.
    pub fn in_blocks(mut self, block: usize) -> Self {
        self.about[0] = block as u32;
        self
    }

    /// How many votes of a sender count only together; 1 if each counts alone.
    pub fn block(&self) -> usize {
        self.about[0] as usize
    }

    /// Says how many votes of a row can change with one unit of data.
    pub fn set_sensitivity(&mut self, sensitivity: VoteSensitivity) {
        let [example, party] =
            [sensitivity.example, sensitivity.party].map(|m| m.map_or(0, |m| m + 1));
        self.about[1..].copy_from_slice(&[example, party, u32::from(sensitivity.from_data)]);
    }

    /// How many votes of a row can change with one unit of data.
    pub fn sensitivity(&self) -> VoteSensitivity {
        let [_, example, party, from_data] = self.about;
        VoteSensitivity {
            example: example.checked_sub(1),
            party: party.checked_sub(1),
            from_data: from_data == 1,
        }
    }

    /// Only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        self.rows = positions.iter().map(|p| self.rows[*p]).collect();
        self.values = self.values.select(ndarray::Axis(0), positions);
    }

    /// The class with the highest count in each row, the lowest such class on ties, as everywhere.
    pub fn winners(&self) -> Vec<u32> {
        crate::metrics::classes(self.values.view())
    }

    /// How far the highest count of each row is above the second; the count itself if there is one class.
    pub fn gaps(&self) -> Vec<f64> {
        let gap = |row: ndarray::ArrayView1<'_, f64>| {
            let (first, second) = row.iter().fold((0.0f64, 0.0f64), |(first, second), x| {
                (first.max(*x), second.max(first.min(*x)))
            });
            first - second
        };
        self.values.rows().into_iter().map(gap).collect()
    }
}

impl Message for Counts {
    const KIND: &'static str = "counts";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(8 * (facts.rows * facts.outputs) as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("values".into(), View::F64(self.values.view().into_dyn())),
            (".about".into(), list(&self.about)),
        ]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
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
}

/// Whole models, each in its trainer's own format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Models(pub Vec<Vec<u8>>);

impl Message for Models {
    const KIND: &'static str = "models";
    fn tensors(&self) -> Named<'_> {
        // six digits, so that the order of the names is that of the models
        let named = self.0.iter().enumerate();
        named
            .map(|(i, model)| (format!("{i:06}").into(), View::U8(model.as_slice().into())))
            .collect()
    }
    fn from_tensors(parcel: Parcel) -> Result<Self> {
        let model = |(name, tensor)| match tensor {
            super::Tensor::U8(bytes) => Ok(bytes),
            _ => anyhow::bail!("model `{name}` is not bytes"),
        };
        parcel
            .rest()
            .into_iter()
            .map(model)
            .collect::<Result<_>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bytes, alike, bytes, check, decode, digest, encode};
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
        let facts = Facts {
            rows: 10,
            outputs: 3,
            params: 0,
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
            "votes of nobody: there is no voter"
        );
        let (one, two) = (array![[0]], array![[0, 1]]);
        let differs = alike(&Votes::new(vec![0], one, 2), &Votes::new(vec![0], two, 2));
        assert!(
            differs
                .unwrap_err()
                .to_string()
                .contains("`labels` is [1, 2] here")
        );
        // a label that was cut to its bits on the wire is refused where it was made
        assert!(check(&Votes::new(vec![0], array![[9]], 3)).is_err());
    }

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
    fn exact_models_keep_their_order_and_cost_their_bytes() {
        let models = Models((0..12).map(|i| vec![i; usize::from(i)]).collect());
        assert_eq!(decode::<Models>(&encode(&models)).unwrap(), models);
        assert_eq!(bytes(&models, None).total(), 66);
        let mut swapped = models.clone();
        swapped.0.swap(3, 4);
        assert_ne!(digest(&models), digest(&swapped));
    }
}
