//! The client's side of every round: training from the server's parameters, and attackers' answers.
use crate::personal::Trains;
use crate::rounds::{Family, RoundRule};
use crate::slots::{AGGREGATOR, ATTACK, COHORT, LABELS, MODEL, PRIVACY, TRAIN};
use fl_core::message::Votes;
use fl_core::prelude::*;
use fl_core::{AuxiliaryLoss, Examples, FeatureLoss, Labels, Length};
use fl_plugin_dp_sgd as dp_sgd;
use ndarray::Array2;
use std::sync::Arc;

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

impl<'p> Family<'p> {
    /// Declares FedAvg's exchange, with the training of `rule`. A mechanism releases the change by
    /// training, or each of its steps.
    pub fn trains<R: RoundRule>(self, rule: &'p R) -> Declared<'p, Params, Params> {
        let settings = self.settings;
        let trained = TRAIN.answered_by(move |client, global| {
            if client.has(&dp_sgd::SLOT) {
                client.parametric(&MODEL)?.set_params(global)?;
                let rate = settings.local.rate(client.round_number());
                let sampling = settings.sampling.as_ref();
                dp_sgd::train(client, &MODEL, sampling, (&settings.local, rate))?;
                return Ok(client.parametric(&MODEL)?.params());
            }
            let examples = learnt(client)?;
            rule.train(self, client, &examples, global)
        });
        let trained = trained.to(&COHORT).each_round().into(&AGGREGATOR);
        let trained = trained.shares(self.share);
        let hidden = match dp_sgd::lots(settings.sampling.as_ref(), &settings.local) {
            Some(lots) => trained.releases_steps(&dp_sgd::SLOT, lots),
            None if self.by_gradients => trained.releases_difference(&PRIVACY),
            None => trained.trains().releases_difference(&PRIVACY),
        };
        hidden.forged_by(&ATTACK, move |client, global, honest| {
            self.forged(client, global, honest, |client, half| {
                rule.train(self, client, half, global)
            })
        })
    }

    /// Trains on these examples from `global`, and from its own parameters where it shares none.
    pub(crate) fn train(
        self,
        client: &mut Client,
        examples: &Examples,
        global: &Params,
        extra: Extra<'_>,
    ) -> Result<Trained> {
        let start = self.install(client.parametric(&MODEL)?, global)?;
        let zeros = || start.zeros_like();
        let offset = extra.offset.filter(|_| !self.share.is_empty());
        let offset = offset.map(|shared| zeros().with(shared)).transpose()?;
        let training = extra.training.unwrap_or(&self.settings.local);
        let mut pass = FitOptions {
            auxiliary: extra.auxiliary,
            feature_loss: extra.features,
            fresh: self.settings.fresh,
            rate: self.settings.local.rate(client.round_number()),
            proximal: (self.mu > 0.0).then_some((self.mu as f32, &*start)),
            gradient_offset: offset.as_ref().or(extra.offset),
            ..training.pass(client.task().kind.loss())
        };
        let drawn = self.settings.drawn_epochs(&client.stream("epochs"));
        if let Some(epochs) = drawn.filter(|_| extra.training.is_none()) {
            pass.length = Length::Epochs(epochs);
        }
        let fitted = match self.frozen(client.parametric(&MODEL)?, extra.trains)? {
            None => client.fit_examples(&MODEL, examples, &pass),
            Some(frozen) => client.fit_others(&MODEL, examples, &pass, &frozen),
        };
        let steps = fitted?.steps;
        Ok(Trained {
            params: self.shared(client.parametric(&MODEL)?)?,
            steps,
        })
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

/// Applies `f` to every two numbers, in 64 bits.
pub(crate) fn zip(a: &Params, b: &Params, f: impl Fn(f64, f64) -> f64) -> Result<Params> {
    a.zip(b, |a, b| f(a.into(), b.into()) as f32)
}

/// Returns the client's own examples, with the labels that it learns.
pub(crate) fn learnt(client: &mut Client) -> Result<Examples> {
    let own = client.own().clone();
    let (true, Labels::Classes { of, classes }) = (client.has(&LABELS), &**own.labels()) else {
        ensure!(
            !client.has(&LABELS),
            "parts.labels changes classes, and these examples do not have one class each"
        );
        return Ok(own);
    };
    let ids = own.samples.ids();
    let column = Array2::from_shape_fn((ids.len(), 1), |(row, _)| of[ids[row] as usize]);
    let votes = Votes::new(ids.to_vec(), column, *classes);
    let inbox = Inbox::new(vec![ClientMessage::new(client.id(), 1.0, votes)])?;
    let given = client.attack(&LABELS, None, &inbox)?;
    ensure!(
        given.rows == ids && given.voters() == 1 && given.classes() == *classes,
        "parts.labels: gave other examples, classes or voters than it got"
    );
    let mut labels = of.clone();
    for (id, class) in ids.iter().zip(&given.labels) {
        labels[*id as usize] = *class;
    }
    let labels = Labels::Classes {
        of: labels,
        classes: *classes,
    };
    let all = Examples::all(own.samples.inputs().clone(), Arc::new(labels))?;
    Ok(all.pick(&ids.iter().map(|id| *id as usize).collect::<Vec<_>>()))
}
