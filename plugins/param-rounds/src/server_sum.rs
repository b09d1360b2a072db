//! A sum of clipped updates that the server releases.
use crate::learnt::learnt;
use crate::local::Extra;
use crate::rounds::Family;
use crate::slots::{AGGREGATOR, COHORT};
use fl_core::prelude::*;
use fl_plugin_dp_sgd::Sum;

/// The mechanism that clips at the clients and adds noise at the server.
pub(crate) const SERVER_PRIVACY: MechanismSlot<Params> = MechanismSlot::new(
    "server-privacy",
    "Clips every client's update at the client, and adds noise to their sum at the server (DP-FedAvg).",
);

/// Returns the average number of clients in a round; the actual number may reveal who takes part.
pub(crate) fn expected(cohort: &Cohort) -> f64 {
    match cohort.draw {
        SamplingScheme::Poisson { rate } => rate * cohort.of as f64,
        _ => cohort.len() as f64,
    }
}

/// Declares a client's clipped change as its answer to `exchange`, whose sum the server releases.
pub(crate) fn summed<'p, D: Message, U: Message>(
    exchange: &Exchange<D, U>,
    answer: impl Fn(&mut Client, &D) -> Result<U> + Send + Sync + 'p,
) -> Declared<'p, D, U> {
    let exchange = exchange.answered_by(answer).to(&COHORT).each_round();
    exchange
        .answers_change()
        .releases_at_server(&SERVER_PRIVACY)
        .sums_into(&AGGREGATOR)
}

/// Returns the released sum of the cohort's answers, each converted by `form` and clipped again, and
/// the average number of clients in a round. An empty draw gets noise and has a price too, which
/// hide that it was empty.
pub(crate) fn sum<D: Message, U: Message>(
    server: &mut Server<'_>,
    round: &Round,
    exchange: &Exchange<D, U>,
    sent: &D,
    like: Params,
    form: impl Fn(U) -> Params,
) -> Result<(Params, f64)> {
    let mut sum = Sum::like(&like);
    let cohort = server.cohort(round, exchange)?;
    server.affords(&SERVER_PRIVACY, like, &cohort)?;
    if !cohort.is_empty() {
        for mail in server.collect(round, exchange, |_| sent)?.iter() {
            sum.add(&server.clipped(&SERVER_PRIVACY, form(mail.body.clone()))?)?;
        }
    }
    let mut sum = sum.total();
    server.release_sum(exchange, round, &mut sum, &cohort)?;
    Ok((sum, expected(&cohort)))
}

/// Returns a client's change by training. Without examples it is zero, whatever the trainer would
/// do: the price of a drawn cohort compares a client with its data and one that changes nothing.
pub(crate) fn update(family: Family<'_>, client: &mut Client, global: &Params) -> Result<Params> {
    let examples = &learnt(client)?;
    if examples.is_empty() {
        return Ok(global.zeros_like());
    }
    let start = family.start(examples, global);
    let trained = start.train(client, Extra::default())?;
    trained.params.zip(global, |w, g| w - g)
}
