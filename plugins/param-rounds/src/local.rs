//! The client's side of every round: training from the server's parameters, and attackers' answers.
use crate::family::Family;
use crate::learnt::learnt;
use crate::personal::Trains;
use crate::slots::{ATTACK, MODEL};
use fl_core::prelude::*;
use fl_core::{AuxiliaryLoss, Examples, FeatureLoss, Length, Parametric};

/// The result of training from the server's parameters.
pub(crate) struct Trained {
    pub params: Params,
    /// Mini-batches.
    pub steps: usize,
}

/// A method's additions to the local loss.
#[derive(Default)]
pub(crate) struct Extra<'a> {
    /// Added to every gradient.
    pub offset: Option<&'a Params>,
    /// Added to the loss of every mini-batch.
    pub auxiliary: Option<&'a dyn AuxiliaryLoss>,
    /// Added to the loss of every mini-batch, on its features.
    pub features: Option<&'a dyn FeatureLoss>,
    /// The parameters that it changes.
    pub trains: Trains,
    /// In place of the family's `local`.
    pub training: Option<&'a Training>,
}

/// What a client's training in a round starts with.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The family's settings.
    pub family: Family<'a>,
    /// The examples to learn.
    pub examples: &'a Examples,
    /// The server's parameters.
    pub global: &'a Params,
}

impl Start<'_> {
    /// Returns the pass of a method that takes its own steps, and the examples of each by position.
    pub(crate) fn steps(&self, client: &Client) -> (FitOptions<'static>, Vec<Vec<usize>>) {
        let (local, loss) = (&self.family.settings.local, client.task().kind.loss());
        let pass = local.pass(loss, client.round_number());
        let batches = pass.batches(self.examples.len(), &client.stream(&MODEL));
        let batches = batches.collect();
        (pass, batches)
    }

    /// Trains from `global`, and from its own parameters where it shares none.
    pub(crate) fn train(self, client: &mut Client, extra: Extra<'_>) -> Result<Trained> {
        let (family, settings) = (self.family, self.family.settings);
        let whole = family.install(client.parametric(&MODEL)?, self.global)?;
        let zeros = || whole.zeros_like();
        let offset = extra.offset.filter(|_| !family.share.is_empty());
        let offset = offset.map(|shared| zeros().with(shared)).transpose()?;
        let training = extra.training.unwrap_or(&settings.local);
        let mut pass = FitOptions {
            auxiliary: extra.auxiliary,
            feature_loss: extra.features,
            fresh: settings.fresh,
            rate: settings.local.rate(client.round_number()),
            proximal: (family.mu > 0.0).then_some((family.mu as f32, &*whole)),
            gradient_offset: offset.as_ref().or(extra.offset),
            ..training.pass(client.task().kind.loss())
        };
        let drawn = settings.drawn_epochs(&client.stream("epochs"));
        if let Some(epochs) = drawn.filter(|_| extra.training.is_none()) {
            pass.length = Length::Epochs(epochs);
        }
        let fitted = match family.frozen(client.parametric(&MODEL)?, extra.trains)? {
            None => client.fit_examples(&MODEL, self.examples, &pass),
            Some(frozen) => client.fit_others(&MODEL, self.examples, &pass, &frozen),
        };
        let steps = fitted?.steps;
        Ok(Trained {
            params: family.shared(client.parametric(&MODEL)?)?,
            steps,
        })
    }
}

impl<'p> Family<'p> {
    /// Returns the start of a training.
    pub(crate) fn start<'a>(self, examples: &'a Examples, global: &'a Params) -> Start<'a>
    where
        'p: 'a,
    {
        Start {
            family: self,
            examples,
            global,
        }
    }

    /// Returns the gradient of the client's own mean loss at `global` by what it shares.
    pub(crate) fn gradient(self, client: &mut Client, global: &Params) -> Result<Params> {
        let examples = learnt(client)?;
        let loss = client.task().kind.loss();
        let model = client.parametric(&MODEL)?;
        self.install(model, global)?;
        let whole = model.gradient(&examples.samples, examples.target().view(), loss)?;
        self.part_of(model, whole)
    }

    /// Returns an attacker's answer in place of the `honest` parameters, which any other client
    /// sends. `train` trains on part of its examples.
    pub(crate) fn forged(
        self,
        client: &mut Client,
        global: &Params,
        honest: Params,
        train: impl Fn(&mut Client, &Examples) -> Result<Params>,
    ) -> Result<Params> {
        if !client.has(&ATTACK) {
            return Ok(honest);
        }
        let mut seen = vec![honest];
        if self.settings.attacker_trainings > 1 {
            seen.clear();
            let examples = learnt(client)?;
            for look in 0..self.settings.attacker_trainings {
                let stream = client.stream("look").child("half", look as u64);
                let half = examples.len().div_ceil(2);
                let half = examples.pick(&stream.draws().choose(examples.len(), half));
                seen.push(train(client, &half)?);
            }
        }
        let honest = seen[0].clone();
        let mail = (0..)
            .zip(seen)
            .map(|(at, seen)| ClientMessage::new(at, 1.0, seen));
        let forged = client.attack(&ATTACK, Some(global), &Inbox::new(mail.collect())?)?;
        client.measure("attack.shift", forged.zip(&honest, |f, h| f - h)?.norm());
        Ok(forged)
    }
}

/// Returns the gradient of the mean loss over these examples.
pub(crate) fn slope(
    model: &mut dyn Parametric,
    at: &Params,
    of: &Examples,
    loss: Loss,
) -> Result<Params> {
    model.set_params(at)?;
    model.gradient(&of.samples, of.target().view(), loss)
}

/// Applies `f` to every two numbers, in 64 bits.
pub(crate) fn zip(a: &Params, b: &Params, f: impl Fn(f64, f64) -> f64) -> Result<Params> {
    a.zip(b, |a, b| f(a.into(), b.into()) as f32)
}
