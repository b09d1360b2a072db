//! The order in which a client trains on its own examples and on the labels of the others.
use crate::labels::RoundLabels;
use crate::settings::{CoDistill, Order};
use crate::slots::{MODEL, SAMPLING};
use fl_core::prelude::*;
use fl_core::{Length, PassStep, fit_examples};

impl CoDistill {
    /// Returns the options of a client's training on its own examples in this round.
    fn own_pass(&self, client: &Client) -> FitOptions<'static> {
        let loss = client.task().kind.loss();
        self.local.pass(loss, client.round_number())
    }

    /// Returns the options of a client's training on the labels in this round.
    fn lesson_pass(&self, client: &Client, lesson: &RoundLabels) -> FitOptions<'static> {
        let loss = lesson.loss(&self.labels);
        self.distil.pass(loss, client.round_number())
    }

    /// Trains a client on its own examples in one round.
    pub(crate) fn learn_own(&self, client: &mut Client) -> Result<()> {
        let (own, pass) = (client.private(&SAMPLING)?, self.own_pass(client));
        client.fit_examples(&MODEL, &own, &pass).map(|_| ())
    }

    /// Trains a client on the labels, and on its own examples unless it has done so already.
    pub(crate) fn learn(&self, client: &mut Client, lesson: &RoundLabels) -> Result<Nothing> {
        match self.order {
            Order::OwnBeforeLabels => self.distil(client, lesson)?,
            Order::OwnFirst => {
                self.learn_own(client)?;
                self.distil(client, lesson)?;
            }
            Order::PublicFirst => {
                self.distil(client, lesson)?;
                self.learn_own(client)?;
            }
            Order::Turns => self.learn_in_turns(client, lesson)?,
            Order::Together(alpha) => self.learn_together(client, lesson, alpha)?,
        }
        Ok(Nothing)
    }

    fn distil(&self, client: &mut Client, lesson: &RoundLabels) -> Result<()> {
        let ids = Ids(lesson.rows().to_vec());
        if ids.0.is_empty() {
            return Ok(()); // everything was filtered out
        }
        let pass = self.lesson_pass(client, lesson);
        lesson.teach(|target| client.fit_public(&MODEL, &ids, target, &pass).map(|_| ()))
    }

    /// Alternates single mini-batches; spreads the less frequent kind evenly among the other.
    fn learn_in_turns(&self, client: &mut Client, lesson: &RoundLabels) -> Result<()> {
        let ids = Ids(lesson.rows().to_vec());
        let (own, x, home) = (
            client.private(&SAMPLING)?,
            client.public()?.pick(&ids)?,
            client.stream("turns"),
        );
        let local = self.own_pass(client);
        let distil = self.lesson_pass(client, lesson);
        let one = |pass: &FitOptions<'_>| {
            let (length, clip, rate) = (Length::Steps(1), pass.clip, pass.rate);
            FitOptions {
                clip,
                rate,
                ..FitOptions::new(length, pass.batch, pass.loss)
            }
        };
        let steps = [local.steps(own.len()), distil.steps(x.len())];
        let (local, distil) = (one(&local), one(&distil));
        let model = client.model(&MODEL)?;
        let most = steps[0].max(steps[1]);
        let mut taken = 0;
        for turn in 0..most {
            let stream = home.child("turn", turn as u64);
            let due = |n: usize| (turn + 1) * n / most > turn * n / most;
            if due(steps[0]) {
                taken += fit_examples(model, &own, &local, &stream.child("own", 0))?.steps;
            }
            if due(steps[1]) {
                let stream = stream.child("public", 0);
                lesson.teach(|target| model.fit(&x, target, &distil, &stream))?;
            }
        }
        if taken == 0 && steps[0] > 0 {
            client.note_no_step(&MODEL)?;
        }
        Ok(())
    }

    /// Takes steps along `alpha` times the gradient of the own loss plus `1 - alpha` times that of
    /// the loss on the labels.
    fn learn_together(&self, client: &mut Client, lesson: &RoundLabels, alpha: f64) -> Result<()> {
        let ids = Ids(lesson.rows().to_vec());
        let (own, x) = (client.private(&SAMPLING)?, client.public()?.pick(&ids)?);
        let home = client.stream("together");
        let local = self.own_pass(client);
        let distil = self.lesson_pass(client, lesson);
        let steps = distil.steps(x.len().max(1));
        let local = FitOptions::new(Length::Steps(steps), local.batch, local.loss);
        let mut own_batches = local.batches(own.len(), &home.child("own", 0));
        let mut labelled = distil.batches(x.len(), &home.child("public", 0));
        let model = client.parametric(&MODEL)?;
        for step in 0..steps {
            let mut slope = None;
            if let Some(at) = own_batches.next() {
                let own = own.pick(&at);
                let target = own.target();
                let gradient = model.gradient(&own.samples, target.view(), local.loss)?;
                add(&mut slope, alpha, gradient);
            }
            if let Some(at) = labelled.next() {
                let gradient = lesson.teach(|target| {
                    model.gradient(&x.pick(&at), target.pick(&at).view(), distil.loss)
                })?;
                add(&mut slope, 1.0 - alpha, gradient);
            }
            let Some(slope) = slope else {
                return Ok(()); // no examples, and everything was filtered out
            };
            let (at, of, rate) = (step, steps, distil.rate);
            model.descend(&slope, &PassStep { at, of, rate })?;
        }
        Ok(())
    }
}

/// `sum += weight * gradient`
fn add(sum: &mut Option<Params>, weight: f64, mut gradient: Params) {
    for (name, tensor) in &mut gradient.0 {
        *tensor *= weight as f32;
        if let Some(sum) = sum {
            *tensor += &sum.0[name];
        }
    }
    *sum = Some(gradient);
}
