//! DP-FedAvg (McMahan et al. 2018, algorithm 1): every client clips its update, and the server adds
//! noise to their sum.
use crate::adaptive_clip::AdaptiveClip;
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared};
use crate::server_sum::{SERVER_PRIVACY, sum, summed, update};
use crate::slots::{AGGREGATOR, PRIVACY};
use fl_core::prelude::*;

const UPDATE: Exchange<Params, Params> = Exchange::new("clipped update");

settings! {
    /// FedAvg in which clients clip their updates and the server adds noise to their sum
    /// (DP-FedAvg, McMahan et al. 2018).
    pub struct DpFedAvg {
        /// The bound of updates follows a quantile of their norms, and the mechanism's own `clip`
        /// must be 1.
        adaptive: Option<AdaptiveClip> = None;
    }
}

impl RoundRule for DpFedAvg {
    /// The bound of the next round's updates, if it adapts, from the first round on.
    type State = Option<f64>;
    const EMPTY_ROUNDS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let all = all.slot(SERVER_PRIVACY.spec().required());
        if let Some(adaptive) = &self.adaptive {
            let all = all.exchange(adaptive.declared(family).shares(family.share));
            return all.measures([Measurement::number("clip")]);
        }
        let update = summed(&UPDATE, move |client, global| {
            let mut update = update(family, client, global)?;
            client.clip(&SERVER_PRIVACY, &mut update, None)?;
            Ok(update)
        });
        all.exchange(update.shares(family.share))
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, round, model) = (run.server, run.round, run.model);
        let (sum, expected) = match &self.adaptive {
            Some(adaptive) => adaptive.sum(server, round, model, run.state)?,
            None => {
                let (like, form) = (model.zeros_like(), |update| update);
                sum(server, round, &UPDATE, &*model, like, form)?
            }
        };
        let mut next = model.clone();
        next.add_scaled(1.0 / expected, &sum)?;
        // the aggregator's result is post-processing
        let (shown, one) = (
            round.showing(model.clone()),
            ClientMessage::new(0, 1.0, next),
        );
        *model = server.aggregate(&AGGREGATOR, &shown, &Inbox::new(vec![one])?)?;
        Ok(())
    }

    fn conflicts(&self, _: Family<'_>, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let twice = Conflict::between(
            "noise is added to each update at its client (`parts.privacy`) or to their sum at the server (`parts.server-privacy`): leave one out",
        );
        let only_sum = Conflict::between(
            "`server-privacy` protects the sum of the clients' updates and nothing else: leave out `parts.attack`",
        );
        let all = [only_sum.when(has("attack")), twice.when(has(&PRIVACY))];
        all.into_iter().flatten().collect()
    }
}
plugin!(protocol "dp-fedavg" => Shared<DpFedAvg> as Rounds<DpFedAvg>, papers: ["McMahan et al. 2018"]);
