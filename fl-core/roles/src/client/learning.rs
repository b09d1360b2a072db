//! Training of a client's models.

use crate::client::Client;
use crate::message::{Ids, Logits, Params};
use crate::parameter_groups::of_last_layer;
use crate::{Examples, FitOptions, FitReport, Length, Result, Target, fit_examples, loss};
use std::collections::BTreeSet;

impl Client {
    /// Trains a model on its own examples. Its mean loss is the training loss of the answer
    /// ([`crate::ClientMessage::training_loss`]).
    ///
    /// # Errors
    /// If training fails, see [`crate::Trainer::fit`].
    pub fn fit_own(&mut self, slot: &str, pass: &FitOptions<'_>) -> Result<FitReport> {
        let data = self.own().clone();
        self.fit_examples(slot, &data, pass)
    }

    /// Trains a model on these labelled examples. Its mean loss is the training loss of the answer
    /// ([`crate::ClientMessage::training_loss`]), and the measure `training-loss` of the client
    /// ([`Client::measure`]). If no mini-batch is large enough for a step, the loss is that of the
    /// model as it is, and a note says so.
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
        self.fitted(slot, examples, pass, fitted)
    }

    /// As [`Client::fit_examples`], and the parameters with these names stay as they are. Each
    /// mini-batch is a pass of its own for the trainer, which need not know of them: its slot
    /// should need [`Ability::ByStep`](crate::Ability::ByStep), and `pass.clip` counts the gradients
    /// of all parameters.
    ///
    /// # Errors
    /// As [`Client::fit_examples`], or if the model has no parameters.
    pub fn fit_others(
        &mut self,
        slot: &str,
        examples: &Examples,
        pass: &FitOptions<'_>,
        frozen: &BTreeSet<String>,
    ) -> Result<FitReport> {
        let stream = self.stream(slot);
        let kept = self.parametric(slot)?.params().only(frozen);
        let least = self.model(slot)?.abilities().least_batch;
        let (mut steps, mut losses) = (0, Vec::new());
        for (at, rows) in pass.batches(examples.len(), &stream).enumerate() {
            if rows.len() < least {
                continue;
            }
            let one = FitOptions {
                length: Length::Steps(1),
                batch: rows.len(),
                fresh: pass.fresh && steps == 0,
                ..pass.clone()
            };
            let (batch, stream) = (examples.pick(&rows), stream.child("step", at as u64));
            let fitted = fit_examples(self.model(slot)?, &batch, &one, &stream)?;
            let model = self.parametric(slot)?;
            let mut trained = model.params();
            trained.0.extend(kept.0.clone());
            model.set_params(&trained)?;
            steps += fitted.steps;
            if at >= pass.reported_from(examples.len()) && fitted.steps > 0 {
                losses.push(fitted.loss);
            }
        }
        let fitted = FitReport {
            steps,
            loss: losses.iter().sum::<f64>() / losses.len().max(1) as f64,
            falls: None,
        };
        self.fitted(slot, examples, pass, fitted)
    }

    /// Reports a training on these examples, and how good the model is if it took no step.
    fn fitted(
        &mut self,
        slot: &str,
        examples: &Examples,
        pass: &FitOptions<'_>,
        fitted: FitReport,
    ) -> Result<FitReport> {
        let loss = match (fitted.steps, examples.len()) {
            (0, 0) => None,
            (0, _) => {
                self.note_no_step(slot)?;
                let scores = self.model(slot)?.predict(&examples.samples)?;
                let loss = loss::of_batch(pass.loss, examples.target().view(), scores.view());
                loss.ok().map(|(loss, _)| loss)
            }
            _ => Some(fitted.loss),
        };
        self.calls_mut().fitted(loss);
        if fitted.steps > 0 {
            self.note_unfinished(slot, &fitted, pass);
        }
        Ok(fitted)
    }

    /// Notes that training took no step although there are examples.
    ///
    /// # Errors
    /// If the model cannot be made.
    pub fn note_no_step(&mut self, slot: &str) -> Result<()> {
        let why = match self.model(slot)?.abilities().least_batch {
            0 | 1 => String::new(),
            least => format!(
                ": no mini-batch has the {least} examples that its batch normalisation needs"
            ),
        };
        self.note(format!("parts.{slot} took no training step{why}"));
        Ok(())
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
        let fitted = self.model(slot)?.fit(&x, target, pass, &stream)?;
        match fitted.steps {
            0 if !x.is_empty() => self.note_no_step(slot)?,
            0 => {}
            _ => self.note_unfinished(slot, &fitted, pass),
        }
        Ok(fitted)
    }

    /// Notes a training that ended too early, if its exchange takes place once: one in rounds goes
    /// on in the next.
    fn note_unfinished(&mut self, slot: &str, fitted: &FitReport, pass: &FitOptions<'_>) {
        if self.calls().answers_once()
            && let Some(text) = fitted.unfinished(slot, pass.length)
        {
            self.note(text);
        }
    }

    /// Returns the mean loss of its model in `slot` on its own examples, by
    /// [`TaskKind::loss`](crate::TaskKind::loss).
    ///
    /// # Errors
    /// If the model cannot predict them.
    pub fn own_loss(&mut self, slot: &str) -> Result<f64> {
        let data = self.own().clone();
        let scores = self.model(slot)?.predict(&data.samples)?;
        Ok(loss::of_batch(self.task().kind.loss(), data.target().view(), scores.view())?.0)
    }

    /// Lets `work` see its model in `slot` with these parameters; it has its own again afterwards.
    /// `head.weight` and `head.bias` are those of its last layer: the one called `head`, or the
    /// last of those with numbers.
    ///
    /// # Errors
    /// If the model lacks one of them, or `work` fails.
    pub fn with_params<T>(
        &mut self,
        slot: &str,
        params: &Params,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let model = self.parametric(slot)?;
        let own = model.params();
        let params = of_last_layer(params, model)?;
        model.set_params(&own.with(&params)?)?;
        let done = work(self);
        self.parametric(slot)?.set_params(&own)?;
        done
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
