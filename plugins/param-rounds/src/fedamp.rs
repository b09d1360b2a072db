//! FedAMP (Huang et al. 2021, algorithm 1): each client gets a mixture of models like its own.
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared, Start};
use crate::slots::{MODEL, TRAIN};
use fl_core::prelude::*;
use std::collections::BTreeMap;

settings! {
    /// Each client has a model of its own, and the server sends each client a mixture of all
    /// clients' models, in which those near its own count more (FedAMP, Huang et al. 2021). The
    /// common model is the aggregate of a round's answers; it is only measured.
    pub struct FedAmp {
        /// The step of the mixture: another model counts `alpha exp(-d / sigma) / sigma` in it,
        /// where `d` is its squared distance to the client's own; the own model counts the rest.
        /// The measurement `own-share` is the smallest rest of a round; below 0, take less.
        alpha: f64 = 1.0, in above_to(0.0, 1e9);
        /// The squared distance at which a model's share falls to 1 / e of the largest.
        sigma: f64 = 1.0, in above_to(0.0, 1e9);
        /// The weight of the distance to the mixture, times `2 alpha`, in the local loss: it is
        /// `lambda / (2 alpha) |w - mixture|^2`.
        lambda: f64 = 1.0, in 0.0..=1e9;
    }
}

impl RoundRule for FedAmp {
    /// The last model of each client; before its first, the model that all begin with.
    type State = BTreeMap<ClientId, Params>;
    const PERSONAL: bool = true;
    const CORRECTS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        all.exchange(family.trains(self))
            .measures([Measurement::number("own-share")])
    }

    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let pull = (self.lambda / self.alpha) as f32;
        let local = &start.family.settings.local;
        let pass = FitOptions {
            fresh: true,
            proximal: (pull > 0.0).then_some((pull, start.global)),
            ..local.pass(client.task().kind.loss(), client.round_number())
        };
        client.fit_examples(&MODEL, start.examples, &pass)?;
        Ok(client.parametric(&MODEL)?.params())
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, round, model, models) = (run.server, run.round, run.model, run.state);
        for id in server.everyone().iter() {
            models.entry(*id).or_insert_with(|| model.clone());
        }
        let mut mixtures = BTreeMap::new();
        for id in server.cohort(round, &TRAIN)?.iter() {
            mixtures.insert(*id, self.mixture(*id, models)?);
        }
        let least = mixtures.values().map(|(_, own)| *own);
        let least = least.fold(f64::INFINITY, f64::min);
        if least < 0.0 {
            server.warn("a client's own model counts less than 0 in its mixture (`own-share`), which is then no mean of models: take a smaller `alpha`");
        }
        server.record(round, "own-share", least)?;
        let answers = server.collect(round, &TRAIN, |id| &mixtures[&id].0)?;
        for mail in answers.iter() {
            models.insert(mail.from, mail.body.clone());
        }
        *model = server.aggregate(&TRAIN, &round.showing(model.clone()), &answers)?;
        Ok(())
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs_if(self.lambda > 0.0, Ability::GradientTerms)
    }
}
plugin!(protocol "fedamp" => Shared<FedAmp> as Rounds<FedAmp>, papers: ["Huang et al. 2021"]);

impl FedAmp {
    /// Returns the mixture for a client, and the share of its own model in it.
    fn mixture(&self, id: ClientId, models: &BTreeMap<ClientId, Params>) -> Result<(Params, f64)> {
        let own = &models[&id];
        let (mut mixture, mut rest) = (own.clone(), 1.0);
        for (_, other) in models.iter().filter(|(other, _)| **other != id) {
            let way = other.zip(own, |other, own| other - own)?;
            let share = self.alpha / self.sigma * libm::exp(-way.dot(&way)? / self.sigma);
            mixture.add_scaled(share, &way)?;
            rest -= share;
        }
        Ok((mixture, rest))
    }
}
