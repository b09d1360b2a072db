//! Messages of FedIOD. No message holds a model or a private input.
use fl_core::Problem;
use fl_core::message::{ExchangeShape, Message};
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
}

impl Answers {
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
    fl_core::tensor_fields!(scores, odds, real);
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
