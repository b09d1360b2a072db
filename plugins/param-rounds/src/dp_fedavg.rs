//! DP-FedAvg (McMahan et al. 2018, algorithm 1): every client clips its update, and the server adds
//! noise to their sum.
use crate::adaptive_clip::AdaptiveClip;
use crate::local::{Extra, learnt};
use crate::rounds::{AGGREGATOR, COHORT, Family, PRIVACY, RoundRule, Rounds, Shared};
use fl_core::prelude::*;
use fl_plugin_dp_sgd::Sum;

/// The mechanism that clips at the clients and adds noise at the server.
pub(crate) const SERVER_PRIVACY: MechanismSlot<Params> = MechanismSlot::new(
    "server-privacy",
    "Clips every client's update at the client, and adds noise to their sum at the server (DP-FedAvg).",
);

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

/// Returns the average number of clients in a round; the actual number may reveal who takes part.
pub(crate) fn expected(cohort: &Cohort) -> f64 {
    match cohort.draw {
        SamplingScheme::Poisson { rate } => rate * cohort.of as f64,
        _ => cohort.len() as f64,
    }
}

/// Declares a client's clipped answer to `exchange`, whose sum the server releases.
pub(crate) fn summed<'p, D: Message, U: Message>(
    exchange: &Exchange<D, U>,
    rounds: usize,
    answer: impl Fn(&mut Client, &D) -> Result<U> + Send + Sync + 'p,
) -> Declared<'p, D, U> {
    let exchange = exchange.answered_by(answer).to(&COHORT).times(rounds);
    exchange
        .if_filled(&SERVER_PRIVACY)
        .releases_at_server(&SERVER_PRIVACY)
}

/// Returns the released sum of the cohort's answers, each converted by `form` and clipped again. An
/// empty draw gets noise and has a price too, which hide that it was empty.
pub(crate) fn sum<D: Message, U: Message>(
    server: &mut Server<'_>,
    round: &Round,
    cohort: &Cohort,
    exchange: &Exchange<D, U>,
    sent: &D,
    like: Params,
    form: impl Fn(U) -> Params,
) -> Result<Params> {
    let mut sum = Sum::like(&like);
    server.affords(&SERVER_PRIVACY, like, cohort)?;
    if !cohort.is_empty() {
        for mail in server.collect(round, exchange, cohort, |_| sent)?.iter() {
            sum.add(&server.clipped(&SERVER_PRIVACY, form(mail.body.clone()))?)?;
        }
    }
    let mut sum = sum.total();
    server.release_sum(&SERVER_PRIVACY, round, &mut sum, cohort)?;
    Ok(sum)
}

impl RoundRule for DpFedAvg {
    /// The bound of the next round's updates, if it adapts, from the first round on.
    type State = Option<f64>;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let all = all.slot(SERVER_PRIVACY.spec().required());
        exchanges(self.adaptive.as_ref(), family, all)
    }

    fn round(
        &self,
        family: Family<'_>,
        server: &mut Server<'_>,
        round: &Round,
        cohort: &Cohort,
        model: &mut Params,
        bound: &mut Option<f64>,
    ) -> Result<()> {
        self.empty_round(family, server, round, cohort, model, bound)
    }

    fn empty_round(
        &self,
        _: Family<'_>,
        server: &mut Server<'_>,
        round: &Round,
        cohort: &Cohort,
        model: &mut Params,
        bound: &mut Option<f64>,
    ) -> Result<()> {
        let sum = match &self.adaptive {
            Some(adaptive) => adaptive.sum(server, round, cohort, model, bound)?,
            None => {
                let (like, form) = (model.zeros_like(), |update| update);
                sum(server, round, cohort, &UPDATE, &*model, like, form)?
            }
        };
        let mut next = model.clone();
        next.add_scaled(1.0 / expected(cohort), &sum)?;
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
        let all = [only_sum().when(has("attack")), twice.when(has(&PRIVACY))];
        all.into_iter().flatten().collect()
    }
}
plugin!(protocol "dp-fedavg" => Shared<DpFedAvg> as Rounds<DpFedAvg>, papers: ["McMahan et al. 2018"]);

/// Returns the conflict of an answer that bypasses the sum.
pub(crate) fn only_sum() -> Conflict {
    Conflict::between(
        "`server-privacy` protects the sum of the clients' updates and nothing else: leave out `correction`, `fuse` and `parts.attack`",
    )
}

/// Adds the exchange whose sum the server releases.
pub(crate) fn exchanges<'p>(
    adaptive: Option<&'p AdaptiveClip>,
    family: Family<'p>,
    all: Declaration<'p>,
) -> Declaration<'p> {
    match adaptive {
        Some(adaptive) => all.exchange(adaptive.declared(family)),
        None => all.exchange(summed(
            &UPDATE,
            family.settings.rounds,
            move |me, global| {
                let mut update = update(family, me, global)?;
                me.clip(&SERVER_PRIVACY, &mut update, None)?;
                Ok(update)
            },
        )),
    }
}

/// Returns a client's change by training.
pub(crate) fn update(family: Family<'_>, me: &mut Client, global: &Params) -> Result<Params> {
    let examples = learnt(me)?;
    let trained = family.train(me, &examples, global, Extra::default())?;
    trained.params.zip(global, |w, g| w - g)
}
