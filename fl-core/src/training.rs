//! Training as settings and protocols speak of it.

use crate::message::{self, Logits};
use crate::{
    Examples, FitOptions, FitReport, Length, Loss, Parametric, Problem, Result, Stream, Trainer,
    metrics,
};
use anyhow::Context;

crate::settings! {
    /// One stretch of training: so many epochs or so many steps.
    #[check(Training::one_length)]
    pub struct Training {
        /// Times that every example is seen. Give this or `steps`.
        epochs: Option<usize> = None, in 1..=100_000;
        /// Mini-batches. Give this or `epochs`.
        steps: Option<usize> = None, in 1..=100_000_000;
        /// Examples per mini-batch.
        batch: usize = 32, in 1..=1_000_000;
        /// Clips the gradient of a mini-batch to this Euclidean norm.
        clip: Option<f64> = None, in crate::settings::above(0.0);
    }
}

impl Training {
    /// So many epochs.
    pub fn epochs(epochs: usize, batch: usize) -> Self {
        Self {
            epochs: Some(epochs),
            steps: None,
            batch,
            clip: None,
        }
    }

    /// So many mini-batches.
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

    /// As a pass with this loss.
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

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// [`metrics::score`]
    pub score: f64,
    /// Digest of all predictions: two models may have the same score, hardly the same predictions.
    pub digest: [u8; 32],
    /// [`metrics::confusion`]
    pub confusion: Vec<Vec<u32>>,
    /// What [`metrics::further`] measures, by name; without what is not defined here.
    pub further: Vec<(String, f64)>,
}

impl Evaluation {
    /// Evaluates a model.
    ///
    /// # Errors
    /// When the model cannot predict these examples.
    pub fn of(model: &mut dyn Trainer, test: &Examples) -> Result<Self> {
        let predicted = Logits::new(test.samples.ids().to_vec(), model.predict(&test.samples)?);
        Ok(Self {
            score: metrics::score(predicted.values.view(), test)?,
            digest: message::digest(&predicted),
            confusion: metrics::confusion(predicted.values.view(), test),
            further: metrics::further(predicted.values.view(), test)?,
        })
    }
}

/// `model` as one with parameters.
///
/// # Errors
/// When it has none; says what would do.
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
