//! [`Training`] and [`Evaluation`]: a training pass as settings describe it, and a model's scores.

use crate::message::{self, Logits};
use crate::{
    Ability, Examples, FitOptions, FitReport, Length, Loss, Parametric, Problem, Result, SlotSpec,
    Stream, Trainer, metrics,
};
use anyhow::Context;
use serde::{Deserialize, Serialize};

crate::settings! {
    /// One training pass: a number of epochs or of steps.
    #[check(Training::one_length)]
    pub struct Training {
        /// Number of epochs. Give this or `steps`.
        epochs: Option<usize> = None, in 1..=100_000;
        /// Number of mini-batches. Give this or `epochs`.
        steps: Option<usize> = None, in 1..=100_000_000;
        /// Examples per mini-batch.
        batch: usize = 32, in 1..=1_000_000;
        /// Clips the gradient of a mini-batch to this Euclidean norm.
        clip: Option<f64> = None, in crate::settings::above(0.0);
    }
}

impl Training {
    /// Returns a pass of `epochs` epochs.
    pub fn epochs(epochs: usize, batch: usize) -> Self {
        Self {
            epochs: Some(epochs),
            steps: None,
            batch,
            clip: None,
        }
    }

    /// Returns a pass of `steps` mini-batches.
    pub fn steps(steps: usize, batch: usize) -> Self {
        Self {
            steps: Some(steps),
            epochs: None,
            ..Self::epochs(1, batch)
        }
    }

    fn one_length(&self) -> Result<(), String> {
        match (self.epochs, self.steps) {
            (Some(_), Some(_)) => Err("give `epochs` or `steps`, not both".into()),
            (None, None) => Err("must give `epochs` or `steps`".into()),
            _ => Ok(()),
        }
    }

    /// Returns the slot of a model that trains in this way once, or once a round, on a client's
    /// examples or public samples.
    pub fn needs(&self, slot: SlotSpec) -> SlotSpec {
        let pass = self.pass(Loss::CrossEntropy);
        let mut slot = self.clips(slot);
        slot.trainings.push((pass.length, pass.batch));
        slot
    }

    /// As [`Training::needs`], of a training on other samples.
    pub fn clips(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs_if(self.clip.is_some(), Ability::GradientTerms)
    }

    /// Returns the options of a pass with this loss.
    pub fn pass(&self, loss: Loss) -> FitOptions<'static> {
        let length = match (self.steps, self.epochs) {
            (Some(steps), _) => Length::Steps(steps),
            (None, epochs) => Length::Epochs(epochs.unwrap_or(1)),
        };
        FitOptions {
            clip: self.clip.map(|c| c as f32),
            ..FitOptions::new(length, self.batch, loss)
        }
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of test rows.
    pub rows: usize,
    /// [`metrics::score`]
    pub score: Option<f64>,
    /// Digest of all predictions. Two models may share a score, but hardly the predictions.
    pub digest: [u8; 32],
    /// [`metrics::confusion`]
    pub confusion: Vec<Vec<u32>>,
    /// The measures of [`metrics::further`], by name; without those that are undefined here.
    pub further: Vec<(String, f64)>,
}

impl Evaluation {
    /// Evaluates a model.
    ///
    /// # Errors
    /// If the model cannot predict these examples.
    pub fn of(model: &mut dyn Trainer, test: &Examples) -> Result<Self> {
        let predicted = Logits::new(test.samples.ids().to_vec(), model.predict(&test.samples)?);
        Ok(Self {
            rows: test.len(),
            score: metrics::score(predicted.values.view(), test)?,
            digest: message::digest(&predicted),
            confusion: metrics::confusion(predicted.values.view(), test),
            further: metrics::further(predicted.values.view(), test)?,
        })
    }

    /// Checks one that comes from elsewhere: its matrix is square, and counts no more examples than
    /// there are.
    ///
    /// # Errors
    /// `Problem::Shape` with what it holds.
    pub(crate) fn check(&self) -> Result<()> {
        let (rows, classes) = (self.rows, self.confusion.len());
        let square = self.confusion.iter().all(|row| row.len() == classes);
        let counts = self.confusion.iter().flatten();
        let counted: u64 = counts.map(|count| u64::from(*count)).sum();
        let text = || {
            format!(
                "an evaluation of {rows} rows, {counted} of them in a matrix of {classes} classes that must be square"
            )
        };
        let sound = square && counted <= rows as u64 && u32::try_from(rows).is_ok();
        Problem::shape_unless(sound, text)
    }
}

/// Returns `model` as one with parameters.
///
/// # Errors
/// If it has none; the error names models that have.
pub fn parametric<'m>(model: &'m mut dyn Trainer, slot: &str) -> Result<&'m mut dyn Parametric> {
    model.parametric().with_context(|| {
        Problem::Lacks(format!("parts.{slot}: this trainer has no parameters to average; use a neural trainer, or a protocol that sends votes or models"))
    })
}

/// Trains on labelled examples.
///
/// # Errors
/// See [`Trainer::fit`].
pub fn fit_examples(
    model: &mut dyn Trainer,
    examples: &Examples,
    pass: &FitOptions<'_>,
    stream: &Stream,
) -> Result<FitReport> {
    model.fit(&examples.samples, examples.target().view(), pass, stream)
}
