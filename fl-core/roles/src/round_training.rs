//! [`RoundTraining`]: a training pass whose learning rate follows the round.

use crate::settings::{Joined, above_to};
use crate::{Ability, Conflict, FitOptions, Loss, Result, SlotSpec, Training};
use std::f64::consts::PI;
use std::ops::Deref;

crate::settings! {
    /// A step of a learning rate.
    pub struct RateStep {
        /// The first round that it counts in.
        from: usize, in 2..=1_000_000;
        /// The rate in this round and all later ones is this times what it would be.
        factor: f64, in above_to(0.0, 1e3);
    }
}

crate::settings! {
    /// Half a cosine over the rounds (`CosineAnnealingLR` of PyTorch, with a step a round).
    pub struct RateCosine {
        /// The round after which the rate is at its end.
        over: usize, in 1..=1_000_000;
        /// The share of the rate at the end.
        to: f64 = 0.0, in 0.0..=1.0;
    }
}

crate::settings! {
    /// The factor of a learning rate in each round, the same for all clients. What is given here is
    /// multiplied: round `r` has `factor ^ (r - 1)`, times the factors of all `steps` so far, times
    /// `to + (1 - to) (1 + cos(pi (r - 1) / over)) / 2`, times `r / warm-up` up to that round.
    #[check(RateByRound::in_order)]
    pub struct RateByRound {
        /// Each round has this share of the rate of the round before.
        factor: f64 = 1.0, in above_to(0.0, 10.0);
        /// Steps, in the order of their rounds.
        steps: Vec<RateStep> = Vec::new();
        /// Half a cosine. Default: none.
        cosine: Option<RateCosine> = None;
        /// The rate rises to its full value over this many rounds, by the same amount in each.
        warm_up: usize = 0, in 0..=1_000_000;
    }
}

crate::settings! {
    /// How the trainer's learning rate changes.
    pub struct Rate {
        /// From round to round.
        by_round: RateByRound;
    }
}

crate::settings! {
    /// One training pass in each round.
    pub struct RoundRate {
        /// How the trainer's learning rate changes from round to round, for all clients alike. A
        /// `schedule` of the trainer's optimiser counts mini-batches instead. Default: it does not
        /// change.
        rate: Option<Rate> = None;
    }
}

/// A training pass in each round: how long it is, and how the learning rate follows the round.
pub type RoundTraining = Joined<Training, RoundRate>;

impl RateByRound {
    fn in_order(&self) -> Result<(), String> {
        if self.steps.is_sorted_by(|a, b| a.from < b.from) {
            Ok(())
        } else {
            Err("`steps` must be in the order of their rounds, with one step a round".into())
        }
    }

    /// Returns the factor of a round, counted from 1.
    pub fn factor(&self, round: usize) -> f64 {
        let before = round.saturating_sub(1) as f64;
        let mut factor = libm::pow(self.factor, before);
        let so_far = self.steps.iter().filter(|step| step.from <= round);
        so_far.for_each(|step| factor *= step.factor);
        if let Some(RateCosine { over, to }) = self.cosine {
            let at = (before / over as f64).min(1.0);
            factor *= to + (1.0 - to) * (1.0 + libm::cos(PI * at)) / 2.0;
        }
        if round < self.warm_up {
            factor *= round as f64 / self.warm_up as f64;
        }
        factor
    }
}

impl RoundTraining {
    /// Returns the options of the pass of this round with this loss.
    pub fn pass(&self, loss: Loss, round: usize) -> FitOptions<'static> {
        FitOptions {
            rate: self.rate(round),
            ..self.shared.pass(loss)
        }
    }

    /// Returns the factor of the learning rate in a round, counted from 1.
    pub fn rate(&self, round: usize) -> f64 {
        let rate = self.own.rate.as_ref();
        rate.map_or(1.0, |rate| rate.by_round.factor(round))
    }

    /// Returns the slot of a model that trains in this way.
    pub fn needs(&self, slot: SlotSpec) -> SlotSpec {
        self.rated(self.shared.needs(slot))
    }

    /// As [`RoundTraining::needs`], of a slot that is [`SlotSpec::trained_by`] it.
    pub fn rated(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs_if(self.own.rate.is_some(), Ability::ScaledRate)
    }

    /// Returns what is wrong with the rates of so many rounds; `setting` is where they stand.
    pub fn conflict(&self, setting: &'static str, rounds: usize) -> Option<Conflict> {
        let rates = &self.own.rate.as_ref()?.by_round;
        let late = rates.steps.iter().find(|step| step.from > rounds);
        let (mut still, mut same) = (None, true);
        for round in 1..=rounds {
            let factor = rates.factor(round);
            if factor == 0.0 {
                still.get_or_insert(round);
            }
            same &= factor == 1.0;
        }
        let why = match (late, still) {
            (Some(late), _) => format!(
                "has a step from round {}, and the last is {rounds}: leave that step out",
                late.from
            ),
            (None, Some(still)) => format!(
                "gives round {still} the rate 0, so nothing is learnt in it: raise `to`, `over` or `factor`"
            ),
            (None, None) => format!("changes the rate in none of {rounds} rounds: leave it out"),
        };
        Conflict::at(setting, why).when(late.is_some() || still.is_some() || same)
    }
}

impl From<Training> for RoundTraining {
    fn from(shared: Training) -> Self {
        let own = RoundRate { rate: None };
        Self { shared, own }
    }
}

impl Deref for RoundTraining {
    type Target = Training;

    fn deref(&self) -> &Training {
        &self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::read_yaml;

    /// The factors of the first rounds.
    fn factors(yaml: &str, rounds: usize) -> Vec<f64> {
        let rates: RateByRound = read_yaml(yaml).unwrap();
        (1..=rounds).map(|round| rates.factor(round)).collect()
    }

    fn close(found: &[f64], due: &[f64]) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(
            found.len() == due.len() && found.iter().zip(due).all(near),
            "{found:?} {due:?}"
        );
    }

    #[test]
    fn factors_are_those_of_pytorch_with_a_step_a_round() {
        // torch.optim.lr_scheduler: ExponentialLR, MultiStepLR, CosineAnnealingLR, LinearLR
        close(&factors("{factor: 0.5}", 4), &[1.0, 0.5, 0.25, 0.125]);
        let steps = "{steps: [{from: 2, factor: 0.1}, {from: 4, factor: 0.5}]}";
        close(&factors(steps, 5), &[1.0, 0.1, 0.1, 0.05, 0.05]);
        close(&factors("{cosine: {over: 2}}", 4), &[1.0, 0.5, 0.0, 0.0]);
        close(
            &factors("{cosine: {over: 2, to: 0.2}}", 3),
            &[1.0, 0.6, 0.2],
        );
        close(&factors("{warm-up: 4}", 5), &[0.25, 0.5, 0.75, 1.0, 1.0]);
        close(&factors("{warm-up: 2, factor: 0.5}", 3), &[0.5, 0.5, 0.25]);
    }

    #[test]
    fn rates_that_do_nothing_or_stand_still_are_refused() {
        let conflict = |yaml: &str| {
            let training: RoundTraining = read_yaml(yaml).unwrap();
            training.conflict("local", 3).map(|found| found.text)
        };
        let of = |rate: &str| conflict(&format!("{{epochs: 1, rate: {{by-round: {rate}}}}}"));
        assert_eq!(conflict("{epochs: 1}"), None);
        assert_eq!(of("{factor: 0.9}"), None);
        for (rate, why) in [
            ("{}", "changes the rate in none of 3 rounds"),
            ("{warm-up: 1}", "changes the rate in none of 3 rounds"),
            ("{cosine: {over: 2}}", "gives round 3 the rate 0"),
            (
                "{steps: [{from: 4, factor: 0.1}]}",
                "has a step from round 4, and the last is 3",
            ),
        ] {
            let found = of(rate).unwrap_or_default();
            assert!(found.contains(why), "{rate}: {found}");
        }
        let wrong =
            read_yaml::<RateByRound>("{steps: [{from: 3, factor: 1}, {from: 3, factor: 1}]}");
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.contains("in the order of their rounds"), "{wrong}");
    }
}
