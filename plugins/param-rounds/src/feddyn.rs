//! FedDyn (Acar et al. 2021, algorithm 1): a regulariser that follows each client's gradient.
use crate::local::{Extra, zip};
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared, Start};
use crate::slots::{MODEL, TRAIN};
use fl_core::prelude::*;
use std::collections::BTreeSet;

settings! {
    /// FedAvg whose local loss also has `alpha / 2 |w - w_server|^2 - <g_k, w>`, where `g_k`
    /// approaches the gradient of the client's own loss (FedDyn, Acar et al. 2021). The server
    /// keeps the mean of all `g_k` and corrects its model by it.
    pub struct FedDyn {
        /// The weight of the distance to the server's parameters. The paper takes 0.001 to 0.1.
        alpha: f64 = 0.01, in above_to(0.0, 1e6);
    }
}

/// Returns the change from `sent` to `found`; 0 for buffers, which no gradient moves.
fn way(sent: &Params, found: &Params, buffers: &BTreeSet<String>) -> Result<Params> {
    let mut way = zip(found, sent, |found, sent| found - sent)?;
    way.named_mut(buffers).for_each(|tensor| tensor.fill(0.0));
    Ok(way)
}

impl RoundRule for FedDyn {
    /// The server's gradient estimate, from the first round on.
    type State = Option<Params>;
    const CORRECTS: bool = true;

    /// Trains with the client's gradient estimate as an offset, and moves the estimate.
    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let own: Option<Params> = client.stashed("gradient")?;
        let mut gradient = own.unwrap_or_else(|| start.global.zeros_like());
        let mut offset = gradient.clone();
        offset.scale(-1.0);
        let extra = Extra {
            offset: Some(&offset),
            ..Extra::default()
        };
        let trained = start.train(client, extra)?.params;
        let buffers = client.parametric(&MODEL)?.buffers();
        gradient.add_scaled(-self.alpha, &way(start.global, &trained, &buffers)?)?;
        client.stash("gradient", &gradient);
        Ok(trained)
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, model) = (run.server, run.model);
        let mut answered = 0;
        let count = |mail: ClientMessage<Params>| {
            answered += 1;
            Ok(mail)
        };
        let mean: Params = server.run_with(run.round, &TRAIN, |_| &*model, count)?;
        let share = answered as f64 / server.everyone().len() as f64;
        let buffers = server.parametric(&MODEL)?.buffers();
        let way = way(&*model, &mean, &buffers)?;
        let gradient = run.state.get_or_insert_with(|| model.zeros_like());
        gradient.add_scaled(-self.alpha * share, &way)?;
        *model = mean;
        model.add_scaled(-1.0 / self.alpha, gradient)?;
        Ok(())
    }

    fn mu(&self) -> f64 {
        self.alpha
    }

    fn conflicts(&self, family: Family<'_>, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        family.one_training().into_iter().collect()
    }
}
plugin!(protocol "feddyn" => Shared<FedDyn> as Rounds<FedDyn>, papers: ["Acar et al. 2021"]);
