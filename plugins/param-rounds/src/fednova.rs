//! FedNova: normalised changes (Wang et al. 2020).
use crate::learnt::learnt;
use crate::local::Extra;
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared};
use crate::slots::{AGGREGATOR, COHORT, MODEL};
use fl_core::prelude::*;

settings! {
    /// FedAvg in which every client's change is divided by the effective number of its steps, so
    /// that more steps count no more (FedNova, Wang et al. 2020).
    pub struct FedNova {
        /// The momentum of the clients' optimiser (`sgd` with this `momentum`), which increases the
        /// effective number of steps; 0 for plain gradient descent.
        momentum: f64 = 0.0, in 0.0..1.0;
        /// The weight of FedProx's term, `mu / 2 * |w - w_server|^2`, in the local loss. It makes
        /// the effective number of steps smaller.
        mu: f64 = 0.0, in 0.0..=1e6;
    }
}

message! {
    /// A client's change divided by its effective number of steps, with the model's buffers as they
    /// are, and that number (FedNova).
    pub struct Normalised: "normalised-change" { change: Params, length: Scalar }
}

/// FedNova's exchange.
const TRAIN: Exchange<Params, Normalised> =
    Exchange::new("change by local training, for a way of length 1");

/// Returns the effective number of `steps` steps, in steps of plain gradient descent: the sum of
/// the absolute weights of the gradients in the change. `proximal` is FedProx's `mu` times the
/// learning rate; above 1 the weights `(1 - proximal)^j` change their sign from step to step.
/// Momentum and a proximal term together have no such closed form.
pub fn length(steps: usize, momentum: f64, proximal: f64) -> f64 {
    let n = steps as f64;
    match (momentum > 0.0, proximal > 0.0) {
        (true, _) => {
            (n - momentum * (1.0 - libm::pow(momentum, n)) / (1.0 - momentum)) / (1.0 - momentum)
        }
        (false, true) if proximal <= 1.0 => (1.0 - libm::pow(1.0 - proximal, n)) / proximal,
        (false, true) if proximal == 2.0 => n,
        (false, true) => (1.0 - libm::pow(proximal - 1.0, n)) / (2.0 - proximal),
        (false, false) => n,
    }
}

/// Returns one number of the server's model: the mean effective number of steps, in the combined
/// direction.
pub fn next_model(x: f64, combined: f64, mean_length: f64) -> f64 {
    x + mean_length * (combined - x)
}

impl RoundRule for FedNova {
    type State = ();
    const CORRECTS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let train = TRAIN.answered_by(move |client, global| self.train(family, client, global));
        let train = train.to(&COHORT).shares(family.share).each_round();
        all.exchange(train.trains().into(&AGGREGATOR))
            .measures([Measurement::number("nova.length")])
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, round, x) = (run.server, run.round, run.model);
        let buffers = server.parametric(&MODEL)?.buffers();
        let (sent, mut lengths, mut weights) = (&*x, 0.0, 0.0);
        let form = |mail: ClientMessage<Normalised>| {
            let weight = mail.weight;
            mail.try_map(|answer| {
                lengths += weight * f64::from(answer.length.value());
                weights += weight;
                sent.step(&answer.change, &buffers, |x, change| x + change)
            })
        };
        let combined: Params = server.run_with(round, &TRAIN, |_| sent, form)?;
        let mean = lengths / weights;
        server.record(round, "nova.length", mean)?;
        *x = x.step(&combined, &buffers, |x, combined| {
            next_model(x, combined, mean)
        })?;
        Ok(())
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs(if self.momentum > 0.0 {
            Ability::Momentum(self.momentum)
        } else {
            Ability::EqualSteps
        })
    }

    fn mu(&self) -> f64 {
        self.mu
    }

    fn conflicts(&self, family: Family<'_>, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let both = Conflict::at(
            "mu",
            "and momentum together give a way of unknown length: set one of them to 0",
        );
        let both = both.when(self.mu > 0.0 && self.momentum > 0.0);
        let moved = Conflict::at(
            "fresh",
            "must be true: the effective number of steps is that of an optimiser which begins without momentum",
        );
        let moved = moved.when(self.momentum > 0.0 && !family.settings.fresh);
        both.into_iter().chain(moved).collect()
    }
}
plugin!(protocol "fednova" => Shared<FedNova> as Rounds<FedNova>, papers: ["Wang et al. 2020"]);

impl FedNova {
    /// Answers at a client in a round.
    fn train(
        &self,
        family: Family<'_>,
        client: &mut Client,
        global: &Params,
    ) -> Result<Normalised> {
        let train = |client: &mut Client, examples: &_| {
            let start = family.start(examples, global);
            start.train(client, Extra::default())
        };
        let examples = learnt(client)?;
        let trained = train(client, &examples)?;
        let proximal = if self.mu > 0.0 {
            let lr = client.parametric(&MODEL)?.step_size();
            let rate = family.settings.local.rate(client.round_number());
            rate * self.mu * lr.context("parts.model: FedNova with `mu` needs the learning rate, and this trainer has none; use plain gradient descent")?
        } else {
            0.0
        };
        let length = length(trained.steps, self.momentum, proximal);
        let honest = trained.params;
        let sent = family.forged(client, global, honest, |client, half| {
            Ok(train(client, half)?.params)
        })?;
        let buffers = client.parametric(&MODEL)?.buffers();
        Ok(Normalised {
            change: global.step(&sent, &buffers, |x, y| {
                if length > 0.0 { (y - x) / length } else { 0.0 }
            })?,
            length: Scalar::new(length as f32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_the_length_is_the_sum_of_absolute_weights() {
        for proximal in [0.1, 1.0, 1.5, 2.0, 2.5] {
            for steps in [0, 1, 4, 5] {
                let weight = |j: i32| (1.0f64 - proximal).abs().powi(j);
                let due: f64 = (0..steps).map(weight).sum();
                let found = length(steps as usize, 0.0, proximal);
                assert!((found - due).abs() < 1e-9, "{proximal}, {steps}: {found}");
            }
        }
    }
}
