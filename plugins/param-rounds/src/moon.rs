//! MOON (Li et al. 2021, algorithm 1): features near the server's, and away from the client's last.
use crate::contrast::Contrast;
use crate::local::Extra;
use crate::rounds::{Family, RoundRule, Rounds, Shared, Start};
use crate::slots::MODEL;
use fl_core::prelude::*;
use fl_core::{Examples, FeatureLoss};
use ndarray::Array2;

settings! {
    /// FedAvg whose clients also contrast features, the inputs of the last layer: those of an
    /// example come closer to those that the server's model makes of it, and move away from those
    /// of the client's own model of the last round in which it took part (MOON, Li et al. 2021).
    pub struct Moon {
        /// The weight of the contrast in the local loss. The paper takes 0.1 to 10.
        mu: f64 = 1.0, in above_to(0.0, 1e6);
        /// The temperature of the similarities. The paper takes 0.5.
        temperature: f64 = 0.5, in above_to(0.0, 1e6);
    }
}

impl RoundRule for Moon {
    type State = ();
    const CORRECTS: bool = true;

    /// Trains with the contrast to the client's last model, if it has one, and keeps the new one.
    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let last: Option<Params> = client.stashed("last model")?;
        let contrast = match last {
            None => None,
            Some(last) => {
                start
                    .family
                    .install(client.parametric(&MODEL)?, start.global)?;
                let near = features(client.model(&MODEL)?, start.examples)?;
                client.parametric(&MODEL)?.set_params(&last)?;
                let far = features(client.model(&MODEL)?, start.examples)?;
                let (mu, tau) = (self.mu, self.temperature);
                Some(Contrast { near, far, mu, tau })
            }
        };
        let extra = Extra {
            features: contrast.as_ref().map(|loss| loss as &dyn FeatureLoss),
            ..Extra::default()
        };
        let trained = start.train(client, extra)?;
        let own = client.parametric(&MODEL)?.params();
        client.stash("last model", &own);
        Ok(trained.params)
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs(Ability::FeatureLoss)
    }

    fn conflicts(&self, family: Family<'_>, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let frozen = Conflict::at("freeze-rest", "must be false: the contrast trains features");
        let frozen = frozen.when(family.settings.freeze_rest);
        family.one_training().into_iter().chain(frozen).collect()
    }
}
plugin!(protocol "moon" => Shared<Moon> as Rounds<Moon>, papers: ["Li et al. 2021"]);

fn features(model: &mut dyn Trainer, of: &Examples) -> Result<Array2<f64>> {
    let features = model.features(&of.samples)?;
    let features = features.context("parts.model: it has no features to contrast; use `dfdx`")?;
    Ok(features.mapv(f64::from))
}
