//! Messages of FedIOD. No message holds a model or a private input.
use fl_core::Problem;
use fl_core::message::{ExchangeShape, Message, NamedTensors, TensorField, TensorMap};
use fl_core::prelude::*;
use ndarray::{Array1, Array2, Axis, concatenate};

/// A number for each number of inputs: the server sends made inputs, and clients the slope of a
/// loss by them.
#[derive(Clone, Debug, PartialEq)]
pub struct InputValues {
    /// `batch x width`.
    pub values: Array2<f32>,
}

messages! {
    InputValues, Answers, SlopeRequest, ClassCounts, LabelMaps, ImagesOfMaps
}

impl Message for InputValues {
    const KIND: &'static str = "input-values";
    const DOC: &'static str =
        "A number for each number of some inputs that were made: the inputs, or slopes by them.";
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * (facts.rows * facts.inputs) as u64)
    }
    fl_core::tensor_fields!(values);
}

/// A client's answers about made inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// Its teacher's scores, `batch x classes`.
    pub scores: Array2<f32>,
    /// Its discriminator's log-odds of "generated"; empty without one.
    pub odds: Array1<f32>,
    /// The mean probability of "generated" that its discriminator gives real inputs; one number, or
    /// none.
    pub real: Array1<f32>,
    /// As [`Answers::joined`], if a quantiser put them on a grid.
    packed: Option<Logits>,
}

impl Answers {
    /// Makes answers whose numbers are sent as floats.
    pub fn new(scores: Array2<f32>, odds: Array1<f32>, real: Array1<f32>) -> Self {
        Self {
            scores,
            odds,
            real,
            packed: None,
        }
    }

    /// Returns scores and log-odds as one table, with the log-odds as its last column.
    pub(crate) fn joined(&self) -> Result<Logits> {
        let (scores, odds) = (self.scores.view(), self.odds.view().insert_axis(Axis(1)));
        let rows = (0..scores.nrows() as u32).collect();
        let all = if self.odds.is_empty() {
            scores.to_owned()
        } else {
            concatenate(Axis(1), &[scores, odds])?
        };
        Ok(Logits::new(rows, all))
    }

    /// Replaces the scores and log-odds by those of [`Answers::joined`].
    pub(crate) fn parted(mut self, joined: Logits) -> Self {
        self.packed = joined.grid().is_some().then(|| joined.clone());
        self.scores = joined.values;
        if !self.odds.is_empty() {
            let last = self.scores.ncols() - 1;
            self.odds = self.scores.column(last).to_owned();
            self.scores.remove_index(Axis(1), last);
        }
        self
    }
}

impl Message for Answers {
    const KIND: &'static str = "answers-on-made-inputs";
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        // an upper bound: without a discriminator the last two are missing
        Some(4 * (facts.rows * (facts.outputs + 1) + 1) as u64)
    }
    fn tensors(&self) -> NamedTensors<'_> {
        vec![
            ("scores".into(), self.scores.tensor()),
            ("odds".into(), self.odds.tensor()),
            ("real".into(), self.real.tensor()),
        ]
    }
    fn wire(&self) -> NamedTensors<'_> {
        match &self.packed {
            Some(joined) => {
                let mut all = joined.wire();
                all.push(("real".into(), self.real.tensor()));
                all
            }
            None => self.tensors(),
        }
    }
    fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
        let real: Array1<f32> = TensorField::take(&mut parcel, "real")?;
        if parcel.has("levels") {
            let joined = Logits::from_tensors(parcel)?;
            Problem::shape_unless(joined.values.ncols() > real.len(), || {
                "scores of no class".into()
            })?;
            // as many log-odds as there are means, of which there is one or none
            let empty = Self::new(Array2::zeros((0, 0)), real.clone(), real);
            return Ok(empty.parted(joined));
        }
        let scores = TensorField::take(&mut parcel, "scores")?;
        let odds = TensorField::take(&mut parcel, "odds")?;
        Ok(Self::new(scores, odds, real))
    }
    fn check(&self) -> Result<()> {
        let (n, odds, real) = (self.scores.nrows(), self.odds.len(), self.real.len());
        let right = (odds, real) == (0, 0) || (odds, real) == (n, 1);
        let text = || {
            format!(
                "scores of {n} inputs with {odds} odds and {real} means: all or none must have them"
            )
        };
        Problem::shape_unless(right, text)?;
        let share = self.real.iter().all(|p| (0.0..=1.0).contains(p));
        Problem::shape_unless(share, || "a mean probability that is none".into())
    }
    fn class_count(&self) -> Option<usize> {
        Some(self.scores.ncols())
    }
}

/// The slopes of the server's loss by one client's answers.
#[derive(Clone, Debug, PartialEq)]
pub struct SlopeRequest {
    /// By its scores, `batch x classes`.
    pub scores: Array2<f32>,
    /// By its log-odds; empty without a discriminator.
    pub odds: Array1<f32>,
    /// Its share of all examples; one number if its discriminator learns by Eq. 2, else none.
    pub share: Array1<f32>,
}

impl Message for SlopeRequest {
    const KIND: &'static str = "slopes-by-answers";
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * (facts.rows * (facts.outputs + 1) + 1) as u64)
    }
    fl_core::tensor_fields!(scores, odds, share);
}

/// A client's numbers of examples: per class, or in total; empty if the server uses neither.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCounts {
    /// One number per class, or one in total, or none.
    pub counts: Array1<u32>,
}

impl Message for ClassCounts {
    const KIND: &'static str = "class-counts";
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * facts.classes as u64)
    }
    fl_core::tensor_fields!(counts);
}

/// The class of every pixel of images: the labels of a client's examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMaps {
    /// One after the other, each row by row.
    pub classes: Vec<u8>,
}

impl Message for LabelMaps {
    const KIND: &'static str = "label-maps";
    fl_core::tensor_fields!(classes);
}

/// Images made from label maps.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagesOfMaps {
    /// `batch x width`.
    pub values: Array2<f32>,
    /// The position of the client's example; [`ImagesOfMaps::ANOTHERS`] for the map of another
    /// client.
    pub of: Array1<u32>,
}

impl ImagesOfMaps {
    /// Marks the map of another client.
    pub const ANOTHERS: u32 = u32::MAX;
}

impl Message for ImagesOfMaps {
    const KIND: &'static str = "made-of-label-maps";
    fn expected(facts: &ExchangeShape) -> Option<u64> {
        Some(4 * (facts.rows * (facts.inputs + 1)) as u64)
    }
    fl_core::tensor_fields!(values, of);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::message::{Grid, bytes, decode, encode};
    use ndarray::array;

    #[test]
    fn exact_quantised_answers_count_the_bits_of_their_levels() {
        let grid = Grid {
            levels: 8,
            lowest: -2.0,
            step: 0.5,
        };
        let scores = array![[0.5, 1.0, -2.0], [1.5, 0.0, -0.5]];
        for odds in [array![1.0, -1.5], array![]] {
            let real = odds.iter().take(1).map(|_| 0.25).collect();
            let answers = Answers::new(scores.clone(), odds, real);
            let plain = bytes(&answers, None).values;
            assert_eq!(
                plain,
                4 * (6 + answers.odds.len() + answers.real.len()) as u64
            );
            let mut joined = answers.joined().unwrap();
            joined.pack(grid);
            let (bits, real) = (3 * joined.values.len(), 4 * answers.real.len());
            let sent = answers.clone().parted(joined);
            // and the step of the grid
            let due = (bits.div_ceil(8) + 4 + real) as u64;
            assert_eq!(bytes(&sent, None).values, due);
            let there = decode::<Answers>(&encode(&sent)).unwrap();
            assert_eq!(there, sent);
            assert_eq!((there.scores, there.odds), (answers.scores, answers.odds));
        }
    }
}
