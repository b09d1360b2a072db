//! Per-FedAvg, first order (Fallah et al. 2020, algorithm 1): a model that one step adapts.
use crate::local::slope;
use crate::rounds::{Family, RoundRule, Rounds, Shared, Start};
use crate::slots::MODEL;
use fl_core::prelude::*;
use fl_core::settings::above;

settings! {
    /// FedAvg of a model that is good after each client has adapted it by a step on its own data. A
    /// step is the gradient at the adapted parameters, without second derivatives (Per-FedAvg,
    /// first order, Fallah et al. 2020). `tune` adapts the last model, for each client. Buffers
    /// stay as they were sent.
    pub struct PerFedAvg {
        /// The learning rate of the step that adapts the model.
        adapt: f64 = 0.01, in above(0.0);
        /// The learning rate of the model that adapts, which `local.rate` scales. Each of its steps
        /// takes two mini-batches of `local`: one to adapt, and one for the gradient after that.
        learn: f64 = 0.01, in above(0.0);
    }
}

impl RoundRule for PerFedAvg {
    type State = ();
    const BY_GRADIENTS: bool = true;
    const OWN_RATES: bool = true;
    const CORRECTS: bool = true;

    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let (pass, batches) = start.steps(client);
        let model = client.parametric(&MODEL)?;
        let mut slope =
            |at: &Params, rows: &[usize]| slope(model, at, &start.examples.pick(rows), pass.loss);
        let mut w = start.global.clone();
        for pair in batches.chunks(2) {
            let mut adapted = w.clone();
            adapted.add_scaled(-self.adapt, &slope(&w, &pair[0])?)?;
            w.add_scaled(
                -self.learn * pass.rate,
                &slope(&adapted, &pair[pair.len() - 1])?,
            )?;
        }
        Ok(w)
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs(Ability::ByGradient).needs(Ability::NoDecay)
    }

    fn conflicts(&self, family: Family<'_>, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let whole = Conflict::at("share", "must be empty: clients adapt the whole model");
        let whole = whole.when(!family.share.is_empty());
        whole.into_iter().collect()
    }
}
plugin!(protocol "per-fedavg" => Shared<PerFedAvg> as Rounds<PerFedAvg>, papers: ["Fallah et al. 2020"]);
