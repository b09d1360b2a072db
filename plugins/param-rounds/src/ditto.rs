//! Ditto (Li et al. 2021, algorithm 1): a personal model beside FedAvg's, pulled towards it.
use crate::local::Extra;
use crate::rounds::{RoundRule, Rounds, Shared, Start};
use crate::slots::MODEL;
use fl_core::prelude::*;

settings! {
    /// FedAvg in which each client also trains a personal model of its own, with
    /// `lambda / 2 * |v - w_server|^2` in its loss (Ditto, Li et al. 2021).
    pub struct Ditto {
        /// The weight of the distance to the server's parameters; 0: clients train alone. The
        /// paper takes 0.05 to 2.
        lambda: f64 = 0.1, in 0.0..=1e6;
        /// The personal model's training in one round; as `local` if it is not given.
        own: Option<Training> = None;
    }
}

impl RoundRule for Ditto {
    type State = ();
    const PERSONAL: bool = true;
    const CORRECTS: bool = true;

    /// Trains the personal model, which is the client's model between rounds, and then the common
    /// one, which it returns.
    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let local = &start.family.settings.local;
        let training = self.own.as_ref().unwrap_or(local);
        let pass = FitOptions {
            fresh: true,
            rate: local.rate(client.round_number()),
            proximal: (self.lambda > 0.0).then_some((self.lambda as f32, start.global)),
            ..training.pass(client.task().kind.loss())
        };
        client.fit_examples(&MODEL, start.examples, &pass)?;
        let own = client.parametric(&MODEL)?.params();
        let trained = start.train(client, Extra::default())?;
        client.parametric(&MODEL)?.set_params(&own)?;
        Ok(trained.params)
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        let own = self.own.iter().fold(slot, |slot, own| own.needs(slot));
        own.needs_if(self.lambda > 0.0, Ability::GradientTerms)
    }
}
plugin!(protocol "ditto" => Shared<Ditto> as Rounds<Ditto>, papers: ["Li et al. 2021"]);
