//! Changes of equal length (FedNova, Wang et al. 2020).
use crate::scaffold::zip;
use crate::{ParamRounds, State};
use fl_core::prelude::*;

settings! {
    /// Every client's change is divided by how far its steps could lead.
    pub struct Nova {
        /// The momentum of the clients' optimiser (`sgd` with this `momentum`), which lengthens its way; 0 for plain gradient descent.
        momentum: f64 = 0.0, in 0.0..1.0;
    }
}

message! {
    /// A client's change, divided by the length of its way, and that length (FedNova).
    pub struct Normalised: "normalised-change" { change: Params, length: Scalar }
}

/// FedNova's question.
pub(crate) const TRAIN: Ask<Params, Normalised> =
    Ask::new("change by local training, for a way of length 1");

/// How far `steps` steps lead, in steps of plain gradient descent: the sum of the weights with which the gradients enter the
/// change. `pull` is FedProx's `mu`, times the learning rate. Momentum and pull together have no such closed form.
pub fn length(steps: usize, momentum: f64, pull: f64) -> f64 {
    let n = steps as f64;
    match (momentum > 0.0, pull > 0.0) {
        (true, _) => {
            (n - momentum * (1.0 - momentum.powf(n)) / (1.0 - momentum)) / (1.0 - momentum)
        }
        (false, true) => (1.0 - (1.0 - pull).powf(n)) / pull,
        (false, false) => n,
    }
}

/// One number of the server's model: as far as all went in the mean, into the combined direction.
pub fn next_model(x: f64, combined: f64, mean_length: f64) -> f64 {
    x + mean_length * (combined - x)
}

impl Nova {
    /// The server's side of a round.
    pub(crate) fn round(
        &self,
        fed: &mut Federation<'_>,
        round: &Round,
        cohort: &[ClientId],
        state: &mut State,
    ) -> Result<()> {
        let x = &mut state.model;
        let (sent, mut lengths, mut weights) = (&*x, 0.0, 0.0);
        let combined: Params = fed.gather_mail(
            "aggregator",
            round,
            &TRAIN,
            cohort,
            |_| sent,
            |mail| {
                let weight = mail.weight;
                mail.try_map(|answer: Normalised| {
                    lengths += weight * f64::from(answer.length.value());
                    weights += weight;
                    zip(sent, &answer.change, |x, change| x + change)
                })
            },
        )?;
        let mean = lengths / weights;
        fed.record(round, "nova.length", mean)?;
        *x = zip(x, &combined, |x, combined| next_model(x, combined, mean))?;
        Ok(())
    }

    /// A client's side of a round.
    pub(crate) fn answer(
        &self,
        method: &ParamRounds,
        me: &mut Client,
        global: &Params,
    ) -> Result<Normalised> {
        let plain = me.parametric("model")?.step_size().is_some();
        ensure!(
            plain == (self.momentum == 0.0),
            "parts.model: its steps {}; `nova.momentum` must be that of its optimiser",
            match plain {
                true => "are plain gradient descent, and `correction: nova` is set for momentum",
                false =>
                    "are not all one learning rate times the gradient (momentum, Adam or a rate that changes), and `correction: nova` is set for plain gradient descent",
            }
        );
        let trained = method.train(me, global, None)?;
        let pull = match method.mu > 0.0 {
            true => {
                let lr = me.parametric("model")?.step_size();
                method.mu * lr.context("parts.model: FedNova with `mu` needs the learning rate, and this trainer has none; use plain gradient descent")?
            }
            false => 0.0,
        };
        let length = length(trained.steps, self.momentum, pull);
        let answered = method.answered(me, global, None, trained.params)?;
        Ok(Normalised {
            change: zip(&answered, global, |y, x| match length > 0.0 {
                true => (y - x) / length,
                false => 0.0,
            })?,
            length: Scalar::new(length as f32),
        })
    }
}
