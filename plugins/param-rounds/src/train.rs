//! A client's side of every round: it trains from the server's parameters, and an attacker answers something else.
use crate::ParamRounds;
use fl_core::message::Votes;
use fl_core::prelude::*;
use fl_core::{Examples, Labels, Mail};
use ndarray::Array2;
use std::sync::Arc;

/// What training has made of the server's parameters.
pub(crate) struct Trained {
    pub params: Params,
    /// Mini-batches.
    pub steps: usize,
}

impl ParamRounds {
    /// Trains from `global` on the client's own examples; `drift` is added to every gradient.
    pub(crate) fn train(
        &self,
        me: &mut Client,
        global: &Params,
        drift: Option<&Params>,
    ) -> Result<Trained> {
        let examples = learnt(me)?;
        self.train_on(me, &examples, global, drift)
    }

    fn train_on(
        &self,
        me: &mut Client,
        examples: &Examples,
        global: &Params,
        drift: Option<&Params>,
    ) -> Result<Trained> {
        me.parametric("model")?.set_params(global)?;
        let maker = self.generate.as_ref().map(|g| g.maker(me)).transpose()?;
        let maker = maker.flatten();
        let make = |classes: &[u32], stream: &Stream| match &maker {
            Some(maker) => maker.make(classes, stream),
            None => bail!("it was shown no generator"),
        };
        let beside = self.generate.as_ref().zip(maker.as_ref());
        let pass = Pass {
            beside: beside.map(|(generate, maker)| generate.beside(maker, &make)),
            fresh: self.fresh,
            pull: (self.mu > 0.0).then_some((self.mu as f32, global)),
            drift,
            ..self.local.pass(me.task().kind.loss())
        };
        let steps = me.fit_examples("model", examples, &pass)?.steps;
        Ok(Trained {
            params: me.parametric("model")?.params(),
            steps,
        })
    }

    /// The gradient of the client's own mean loss at `global`.
    pub(crate) fn gradient(&self, me: &mut Client, global: &Params) -> Result<Params> {
        let examples = learnt(me)?;
        let loss = me.task().kind.loss();
        let model = me.parametric("model")?;
        model.set_params(global)?;
        model.gradient(&examples.samples, examples.target().view(), loss)
    }

    /// What the client answers in place of the parameters that it trained: themselves, unless it is an attacker.
    pub(crate) fn answered(
        &self,
        me: &mut Client,
        global: &Params,
        drift: Option<&Params>,
        trained: Params,
    ) -> Result<Params> {
        if !me.has("attack") {
            return Ok(trained);
        }
        let mut looks = vec![trained];
        if self.looks > 1 {
            looks.clear();
            let examples = learnt(me)?;
            for look in 0..self.looks {
                let stream = me.stream("look").child("half", look as u64);
                let half = examples.len().div_ceil(2);
                let half = examples.pick(&stream.draws().choose(examples.len(), half));
                looks.push(self.train_on(me, &half, global, drift)?.params);
            }
        }
        let honest = looks[0].clone();
        let mail = (0..).zip(looks).map(|(at, look)| Mail::new(at, 1.0, look));
        let forged: Params = me.aggregate_seeing("attack", global, &Inbox::new(mail.collect())?)?;
        me.measure("attack.shift", forged.zip(&honest, |f, h| f - h)?.norm());
        Ok(forged)
    }
}

/// The client's own examples, with the labels that it learns.
fn learnt(me: &mut Client) -> Result<Examples> {
    let own = me.own().clone();
    let (true, Labels::Classes { of, classes }) = (me.has("labels"), &**own.labels()) else {
        ensure!(
            !me.has("labels"),
            "parts.labels changes classes, and these examples have not one class each"
        );
        return Ok(own);
    };
    let ids = own.samples.ids();
    let column = Array2::from_shape_fn((ids.len(), 1), |(row, _)| of[ids[row] as usize]);
    let votes = Votes::new(ids.to_vec(), column, *classes);
    let given: Votes =
        me.aggregate("labels", &Inbox::new(vec![Mail::new(me.id(), 1.0, votes)])?)?;
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
