//! Training of a client's models.

use crate::client::Client;
use crate::message::{Ids, Logits};
use crate::{Examples, FitOptions, FitReport, Problem, Result, Target, fit_examples, loss};

impl Client {
    /// Trains a model on its own examples. Its mean loss is the training loss of the answer
    /// ([`crate::ClientMessage::training_loss`]).
    ///
    /// # Errors
    /// If training fails, see [`crate::Trainer::fit`].
    pub fn fit_own(&mut self, slot: &str, pass: &FitOptions<'_>) -> Result<FitReport> {
        let data = self.data.clone();
        self.fit_examples(slot, &data, pass)
    }

    /// Trains a model on these labelled examples. Its mean loss is the training loss of the answer
    /// ([`crate::ClientMessage::training_loss`]).
    ///
    /// # Errors
    /// As [`Client::fit_own`].
    pub fn fit_examples(
        &mut self,
        slot: &str,
        examples: &Examples,
        pass: &FitOptions<'_>,
    ) -> Result<FitReport> {
        let stream = self.stream(slot);
        let fitted = fit_examples(self.model(slot)?, examples, pass, &stream)?;
        self.training_loss = (fitted.steps > 0).then_some(fitted.loss);
        Ok(fitted)
    }

    /// Returns the mean loss of the training that made the answer.
    pub(crate) fn trained_with_loss(&self) -> Result<f64> {
        self.training_loss.ok_or_else(|| {
            let why = "the aggregator needs a training loss, and the client took no training step \
                       for this answer";
            Problem::Lacks(why.into()).into()
        })
    }

    /// Trains a model on these scores or labels of public samples.
    ///
    /// # Errors
    /// As [`Client::fit_own`].
    pub fn fit_public(
        &mut self,
        slot: &str,
        ids: &Ids,
        target: Target<'_>,
        pass: &FitOptions<'_>,
    ) -> Result<FitReport> {
        let (x, stream) = (
            self.public()?.pick(ids)?,
            self.stream(slot).child("public", 0),
        );
        self.model(slot)?.fit(&x, target, pass, &stream)
    }

    /// Returns the mean loss of its model in `slot` on its own examples, by
    /// [`TaskKind::loss`](crate::TaskKind::loss).
    ///
    /// # Errors
    /// If the model cannot predict them.
    pub fn own_loss(&mut self, slot: &str) -> Result<f64> {
        let data = self.data.clone();
        let scores = self.model(slot)?.predict(&data.samples)?;
        Ok(loss::of_batch(self.task().kind.loss(), data.target().view(), scores.view())?.0)
    }

    /// Returns a model's scores of these public samples.
    ///
    /// # Errors
    /// If there are no such samples.
    pub fn logits(&mut self, slot: &str, ids: &Ids) -> Result<Logits> {
        let x = self.public()?.pick(ids)?;
        Ok(Logits::new(ids.0.clone(), self.model(slot)?.predict(&x)?))
    }
}
