//! DP-FedAvg: every client clips its update, and the server hides their sum.

use crate::{ParamRounds, State};
use fl_core::prelude::*;
use fl_plugin_dp_sgd::Sum;

pub(crate) const UPDATE: Ask<Params, Params> = Ask::new("clipped update");

/// The slot of the mechanism that clips at the clients and hides at the server.
pub(crate) const SLOT: &str = "server-privacy";

/// A round of DP-FedAvg (McMahan et al. 2018, algorithm 1): the sum of clipped updates with noise, over the number of clients
/// that are expected in a round. What the aggregator makes of it is post-processing.
pub(crate) fn round(
    this: &ParamRounds,
    fed: &mut Federation<'_>,
    round: &Round,
    cohort: &Cohort,
    state: &mut State,
) -> Result<()> {
    let sum = match &this.adaptive {
        Some(adaptive) => adaptive.sum(fed, round, cohort, state),
        None => sum(fed, round, cohort, &state.model),
    };
    let mut next = state.model.clone();
    next.add_scaled(1.0 / expected(cohort), &sum?)?;
    let shown = round.showing(state.model.clone());
    state.model = fed.aggregate(
        "aggregator",
        &shown,
        &Inbox::new(vec![Mail::new(0, 1.0, next)])?,
    )?;
    Ok(())
}

/// How many clients a round has on average; that of this one may tell who takes part.
pub(crate) fn expected(cohort: &Cohort) -> f64 {
    match cohort.draw {
        Draw::Poisson { rate } => rate * cohort.of as f64,
        _ => cohort.len() as f64,
    }
}

/// The sum of the cohort's clipped updates, with noise.
fn sum(fed: &mut Federation<'_>, round: &Round, cohort: &Cohort, model: &Params) -> Result<Params> {
    let mut sum = Sum::like(model);
    fed.affords(SLOT, model.zeros_like(), cohort)?;
    // noise and price are those of a draw of nobody too: that nobody was drawn is what it hides
    if !cohort.is_empty() {
        let updates = fed.ask(round, &UPDATE, cohort, |_| model)?;
        for mail in updates.iter() {
            sum.add(&fed.clipped(SLOT, mail.body.clone())?)?;
        }
    }
    let mut sum = sum.total();
    fed.release_sum(SLOT, round, &mut sum, cohort)?;
    Ok(sum)
}

/// A client's side.
pub(crate) fn answer(this: &ParamRounds, me: &mut Client, global: &Params) -> Result<Params> {
    let trained = this.train(me, global, None)?.params;
    let mut update = trained.zip(global, |w, g| w - g)?;
    me.clip(SLOT, &mut update, None)?;
    Ok(update)
}
