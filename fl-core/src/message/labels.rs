//! What is said about public samples and about classes: soft labels, means per class, and who knows what.

use super::votes::same_rows;
use super::{Facts, Message, Named, Parcel, View, list, pack_bits, unpack_bits};
use crate::{Problem, Result};
use anyhow::ensure;
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// The softmax of every row at temperature `tau`, in `f64` and rounded once.
pub fn softmax(scores: ArrayView2<'_, f32>, tau: f64) -> Array2<f32> {
    let mut out = scores.to_owned();
    for mut row in out.rows_mut() {
        let mut wide: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
        crate::loss::softmax(&mut wide, tau);
        row.iter_mut().zip(wide).for_each(|(v, p)| *v = p as f32);
    }
    out
}

/// Class probabilities, one row per sample: a model's, or those of an ensemble. After noise they need not be
/// probabilities any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftLabels {
    /// Ids of the samples.
    pub rows: Vec<u32>,
    /// `rows x classes`.
    pub values: Array2<f32>,
}

impl SoftLabels {
    /// One row of `values` per id in `rows`.
    pub fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self { rows, values }
    }

    /// The softmax of a model's scores.
    pub fn of_scores(rows: Vec<u32>, scores: ArrayView2<'_, f32>) -> Self {
        Self::new(rows, softmax(scores, 1.0))
    }

    /// Only the rows at these positions.
    pub fn retain_rows(&mut self, positions: &[usize]) {
        self.rows = positions.iter().map(|p| self.rows[*p]).collect();
        self.values = self.values.select(Axis(0), positions);
    }

    /// The most probable class of each row, the lowest on ties.
    pub fn labels(&self) -> Vec<u32> {
        crate::metrics::classes(self.values.view())
    }

    /// Makes probabilities of what noise has left: negative numbers become 0, rows are divided by their sum, and a row
    /// without any positive number becomes uniform.
    pub fn project(&mut self) {
        for mut row in self.values.rows_mut() {
            row.mapv_inplace(|v| v.max(0.0));
            let sum: f64 = row.iter().map(|v| f64::from(*v)).sum();
            let even = 1.0 / row.len().max(1) as f32;
            row.mapv_inplace(|v| {
                if sum > 0.0 {
                    (f64::from(v) / sum) as f32
                } else {
                    even
                }
            });
        }
    }
}

impl Message for SoftLabels {
    const KIND: &'static str = "soft-labels";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(4 * (facts.rows * facts.outputs) as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("values".into(), View::F32(self.values.view().into_dyn())),
        ]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        Ok(Self::new(parcel.list("rows")?, parcel.table("values")?))
    }
    fn check(&self) -> Result<()> {
        same_rows(self.rows.len(), self.values.nrows())
    }
}

/// The classes among `labels`, ascending, and the mean of the rows of each. Sums in `f64`, in row order.
///
/// # Errors
/// When there is not one label per row.
pub fn class_means<T: Into<f64> + Copy>(
    outputs: ArrayView2<'_, T>,
    labels: &[u32],
) -> Result<(Vec<u32>, Array2<f64>)> {
    same_rows(labels.len(), outputs.nrows())?;
    let mut rows = labels.to_vec();
    rows.sort_unstable();
    rows.dedup();
    let mut means = Array2::<f64>::zeros((rows.len(), outputs.ncols()));
    let mut counts = vec![0u32; rows.len()];
    for (output, label) in outputs.rows().into_iter().zip(labels) {
        let at = rows.partition_point(|c| c < label);
        counts[at] += 1;
        let mut sum = means.row_mut(at);
        sum.iter_mut()
            .zip(output)
            .for_each(|(s, v)| *s += (*v).into());
    }
    for (mut sum, n) in means.rows_mut().into_iter().zip(counts) {
        sum.mapv_inplace(|s| s / f64::from(n));
    }
    Ok((rows, means))
}

/// The mean output of a model over the examples of each class (federated knowledge distillation, Jeong et al. 2018): one
/// row per class that the sender has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassMeans {
    /// The classes, ascending.
    pub rows: Vec<u32>,
    /// `rows x outputs`.
    pub values: Array2<f32>,
}

impl ClassMeans {
    /// One row of `values` per class in `rows`.
    pub fn new(rows: Vec<u32>, values: Array2<f32>) -> Self {
        Self { rows, values }
    }

    /// The mean of `outputs` over the rows of each class, of those classes that there are.
    ///
    /// # Errors
    /// When there is not one label per row.
    pub fn of(outputs: ArrayView2<'_, f32>, labels: &[u32]) -> Result<Self> {
        let (rows, means) = class_means(outputs, labels)?;
        Ok(Self::new(rows, means.mapv(|m| m as f32)))
    }

    /// The mean of one class; `None` if nobody has it.
    pub fn class(&self, class: u32) -> Option<ArrayView1<'_, f32>> {
        let at = self.rows.binary_search(&class).ok()?;
        Some(self.values.row(at))
    }
}

impl Message for ClassMeans {
    const KIND: &'static str = "class-means";
    fn expected(facts: &Facts) -> Option<u64> {
        // a bit mask or 4 bytes for each class that is there, and its row
        Some((4 + 4 + 4 * facts.outputs as u64) * facts.outputs as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![
            ("rows".into(), list(&self.rows)),
            ("values".into(), View::F32(self.values.view().into_dyn())),
        ]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        Ok(Self::new(parcel.list("rows")?, parcel.table("values")?))
    }
    fn check(&self) -> Result<()> {
        same_rows(self.rows.len(), self.values.nrows())?;
        ensure!(
            self.rows.is_sorted_by(|a, b| a < b),
            Problem::Shape("classes must be ascending and different".into())
        );
        Ok(())
    }
}

/// Some of the public samples, a bit for each: those that a client knows something about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    bits: Vec<u8>,
    length: [u32; 1],
}

impl Mask {
    /// The samples at these positions of `length`.
    pub fn new(positions: &[usize], length: usize) -> Self {
        let mut chosen = vec![0; length];
        positions.iter().for_each(|p| chosen[*p] = 1);
        Self {
            bits: pack_bits(chosen.into_iter(), 1),
            length: [length as u32],
        }
    }

    /// Is this sample among them?
    pub fn has(&self, position: usize) -> bool {
        position < self.len() && self.bits[position / 8] >> (position % 8) & 1 == 1
    }

    /// How many samples it speaks about.
    #[expect(clippy::len_without_is_empty, reason = "it is no collection")]
    pub fn len(&self) -> usize {
        self.length[0] as usize
    }

    /// The positions, ascending.
    pub fn positions(&self) -> Vec<usize> {
        (0..self.len()).filter(|p| self.has(*p)).collect()
    }
}

impl Message for Mask {
    const KIND: &'static str = "mask";
    fn expected(facts: &Facts) -> Option<u64> {
        Some(facts.rows.div_ceil(8) as u64)
    }
    fn tensors(&self) -> Named<'_> {
        vec![
            ("bits".into(), View::U8(self.bits.as_slice().into())),
            (".length".into(), list(&self.length)),
        ]
    }
    fn from_tensors(mut parcel: Parcel) -> Result<Self> {
        let (bits, length) = (parcel.bytes("bits")?, parcel.list(".length")?);
        let length = length
            .try_into()
            .map_err(|_| Problem::Shape("`.length` is one number".into()))?;
        Ok(Self { bits, length })
    }
    fn check(&self) -> Result<()> {
        unpack_bits(&self.bits, (self.len(), 1), 1).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bytes, bytes, check, decode, encode};
    use super::*;
    use ndarray::array;

    #[test]
    fn exact_what_is_encoded_decodes_to_the_same() {
        let soft = SoftLabels::new(vec![3, 9], array![[0.25, 0.75], [1.0, 0.0]]);
        assert_eq!(decode::<SoftLabels>(&encode(&soft)).unwrap(), soft);
        let means = ClassMeans::new(vec![0, 2], array![[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]);
        assert_eq!(decode::<ClassMeans>(&encode(&means)).unwrap(), means);
        for n in [0, 1, 7, 8, 9, 100] {
            let mask = Mask::new(&(0..n).step_by(3).collect::<Vec<_>>(), n);
            assert_eq!(decode::<Mask>(&encode(&mask)).unwrap(), mask);
            assert!(check(&mask).is_ok());
            assert_eq!(mask.positions(), (0..n).step_by(3).collect::<Vec<_>>());
        }
    }

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

    #[test]
    fn exact_class_means_are_of_the_classes_that_there_are() {
        let outputs = array![[2.0f32, 0.1, -1.0], [1.0, 0.3, -0.4], [-0.5, 1.5, 0.2]];
        let mine = ClassMeans::of(outputs.view(), &[0, 0, 2]).unwrap();
        assert_eq!(mine.rows, [0, 2]);
        assert_eq!(mine.class(0).unwrap()[0], 1.5);
        assert!(mine.class(1).is_none());
    }

    #[test]
    fn exact_noise_leaves_probabilities_after_projection() {
        let mut noisy = SoftLabels::new(vec![0, 1], array![[-1.0, 1.5, 0.5], [-1.0, -2.0, 0.0]]);
        noisy.project();
        assert_eq!(noisy.values.row(0).to_vec(), [0.0, 0.75, 0.25]);
        assert_eq!(noisy.values.row(1).to_vec(), [1.0 / 3.0; 3]);
    }

    #[test]
    fn close_softmax_of_large_scores() {
        let soft = softmax(array![[1000.0f32, 1000.0], [-1000.0, 0.0]].view(), 1.0);
        assert_eq!(soft, array![[0.5, 0.5], [0.0, 1.0]]);
    }
}
