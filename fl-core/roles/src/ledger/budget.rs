//! Checks of a release against the budget, the same at the server and at a client.

use crate::ledger::exposure::FOLLOWS_DATA;
use crate::message::AnyMessage;
use crate::privacy::{Observer, ReleaseNoise, UpperBound, short};
use crate::{
    Accountant, AnyMechanism, Budget, Cohort, PrivacyEvent, Problem, Result, SamplingScheme,
};
use anyhow::bail;

/// The units of a cohort.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CohortOrigin {
    /// The clients of a round.
    Clients,
    /// A client's examples.
    Examples,
}

/// A release within the budget.
pub(crate) struct PaidRelease {
    /// Its cost.
    pub event: PrivacyEvent,
    /// A note for the user.
    pub note: Option<String>,
}

/// Checks that units were drawn as a price assumes. A lot of a client's examples is secret; the
/// number of clients in a round is public.
fn believe(event: PrivacyEvent, cohort: &Cohort, drawn: CohortOrigin) -> Result<PrivacyEvent> {
    let (n, of) = (cohort.len(), cohort.of);
    let claimed = match &event {
        PrivacyEvent::SubsampledGaussian { rate, .. } => {
            format!(
                "every unit taking part independently with probability {rate} (Poisson sampling), and on their number staying secret"
            )
        }
        PrivacyEvent::PublicSizeGaussian { rate, of, .. } => {
            format!("each of {of} units taking part with probability {rate} by itself")
        }
        PrivacyEvent::FixedSizeGaussian { k, of, .. } => {
            format!("{k} of {of} units taking part, a number that was fixed before")
        }
        _ => return Ok(event),
    };
    let drawn = match (cohort.draw, &event) {
        // the rate is stored twice, so it may differ in its last bits
        (SamplingScheme::Poisson { rate }, PrivacyEvent::SubsampledGaussian { rate: said, .. })
            if rate <= said * (1.0 + 1e-12) && drawn == CohortOrigin::Examples =>
        {
            return Ok(event);
        }
        (
            SamplingScheme::Poisson { rate },
            PrivacyEvent::PublicSizeGaussian {
                rate: said,
                of: all,
                ..
            },
        ) if rate <= said * (1.0 + 1e-12) && of == *all && drawn == CohortOrigin::Clients => {
            return Ok(event);
        }
        (SamplingScheme::FixedSize, PrivacyEvent::FixedSizeGaussian { k, of: all, .. })
            if n <= *k && of >= *all =>
        {
            return Ok(event);
        }
        (SamplingScheme::Poisson { rate }, _) if drawn == CohortOrigin::Clients => format!(
            "each of {of} clients took part with probability {rate}, and every observer sees how many did"
        ),
        (SamplingScheme::Poisson { rate }, _) => {
            format!("each of {of} took part with probability {rate}")
        }
        (SamplingScheme::Everyone, _) => format!("all {of} took part"),
        (SamplingScheme::FixedSize, _) => {
            format!("{n} of {of} took part, a number that was fixed before")
        }
        (SamplingScheme::Unknown, _) => format!("how the {n} of {of} were drawn is unknown"),
    };
    bail!(Problem::Unpriced(format!(
        "the mechanism's price counts on {claimed}, but {drawn}"
    )))
}

/// Returns the cost of a release through the mechanism in `slot`. The price assumes noise, so a
/// release without noise has no price.
pub(crate) fn cost(slot: &str, price: PrivacyEvent, noise: &ReleaseNoise) -> PrivacyEvent {
    match price {
        PrivacyEvent::Unaccounted { .. } => price,
        price if noise.is_drawn() => price,
        price => PrivacyEvent::Undrawn {
            why: format!("parts.{slot} claims {price}, and drew no noise"),
        },
    }
}

/// A budget, and what prices the releases that its observer sees.
pub(crate) type Limit<'a> = (&'a Budget, &'a dyn Accountant, Observer);

/// Returns the price of releasing `message`, or `times` messages like it. Truncates it first to the
/// queries that every budget pays for, with a note.
///
/// # Errors
/// [`Problem::Budget`] if a budget does not pay for any of it.
pub(crate) fn ensure_budget(
    mechanism: &dyn AnyMechanism,
    message: &mut dyn AnyMessage,
    (cohort, drawn): (&Cohort, CohortOrigin),
    times: usize,
    limits: &[Limit<'_>],
    released: usize,
) -> Result<PaidRelease> {
    let price = |message: &dyn AnyMessage| {
        let event = believe(mechanism.price(message, cohort)?, cohort, drawn)?;
        let all = |event| PrivacyEvent::Repeated { times, event };
        Ok::<_, anyhow::Error>(match times {
            1 => event,
            _ => all(Box::new(event)),
        })
    };
    let mut paid = PaidRelease {
        event: price(message)?,
        note: None,
    };
    for limit in limits {
        let within = within(mechanism, message, &price, *limit, released)?;
        // another limit may leave fewer queries still
        paid.note = within.note.or(paid.note);
        paid.event = within.event;
    }
    Ok(paid)
}

/// As [`ensure_budget`], for one of the limits.
fn within(
    mechanism: &dyn AnyMechanism,
    message: &mut dyn AnyMessage,
    price: &dyn Fn(&dyn AnyMessage) -> Result<PrivacyEvent>,
    (budget, accountant, observer): Limit<'_>,
    released: usize,
) -> Result<PaidRelease> {
    let whole = |event| Ok(PaidRelease { event, note: None });
    let event = price(message)?;
    let with = |event: &PrivacyEvent| accountant.guarantee(Some(&event.seen_by(observer)));
    let after = with(&event)?;
    if after.data_dependent {
        bail!(Problem::Unpriced(format!(
            "no budget can be kept for {event}: {FOLLOWS_DATA}, and so would a refusal"
        )));
    }
    if let Some(delta) = budget.delta.filter(|delta| after.delta > *delta) {
        bail!(Problem::Budget(format!(
            "budget.delta is {delta:e}, but the accountant guarantees at {:e}: set the accountant's `delta`",
            after.delta
        )));
    }
    if budget.allows(after.epsilon) {
        return whole(event);
    }
    let first = |k: usize| {
        let mut few = message.copy();
        mechanism.truncate(&mut *few, k);
        let event = price(&*few)?;
        let epsilon = with(&event)?.epsilon;
        Ok::<_, anyhow::Error>((few, event, epsilon))
    };
    // every query costs something, so epsilon only grows: `fits` queries do fit, `too_many` do not
    let (queries, so_far) = (
        mechanism.queries(message),
        accountant.guarantee(None)?.epsilon,
    );
    let (mut fits, mut too_many) = (0, queries);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if budget.allows(first(middle)?.2) {
            fits = middle
        } else {
            too_many = middle
        }
    }
    let limit = format!(
        "of a budget of {} (at delta {})",
        budget.epsilon,
        short(after.delta)
    );
    if fits == 0 {
        let (what, epsilon) = match queries {
            0 | 1 => ("it", after.epsilon),
            _ => ("its first query", first(1)?.2),
        };
        bail!(Problem::Budget(format!(
            "the release was refused before anything was spent: {what} would bring epsilon to {} {limit}; {released} releases so far, epsilon {}",
            UpperBound(epsilon),
            UpperBound(so_far)
        )));
    }
    let (few, event, _) = first(fits)?;
    let next = first(too_many)?.2;
    message.become_other(few)?;
    let note = format!(
        "{fits} of {queries} queries were released; one more would bring epsilon to {} {limit}",
        UpperBound(next)
    );
    Ok(PaidRelease {
        event,
        note: Some(note),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrivacyMechanism;
    use crate::message::Counts;
    use crate::privacy::{Composition, Guarantee, Ledger, Noise, ReleaseNoise, Unit};
    use ndarray::Array2;

    /// Costs 1 for each row.
    struct Rows;

    impl PrivacyMechanism for Rows {
        type On = Counts;
        fn clip(&self, _: &mut Counts) -> Result<()> {
            Ok(())
        }
        fn price(&self, counts: &Counts, _: &Cohort) -> Result<PrivacyEvent> {
            let sensitivity = counts.rows.len() as f64;
            Ok(PrivacyEvent::Laplace {
                sensitivity,
                scale: 1.0,
                unit: Unit::Party,
            })
        }
        fn perturb(&mut self, _: &mut Counts, _: &Cohort, _: &ReleaseNoise) -> Result<()> {
            Ok(())
        }
        fn queries(&self, counts: &Counts) -> usize {
            counts.rows.len()
        }
        fn truncate(&self, counts: &mut Counts, n: usize) {
            counts.retain_rows(&(0..n).collect::<Vec<_>>());
        }
    }

    struct Adds(f64);

    impl Accountant for Adds {
        fn charge(&mut self, _: &PrivacyEvent) -> Result<()> {
            Ok(())
        }
        fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
            let next = match next {
                Some(PrivacyEvent::Laplace { sensitivity, .. }) => *sensitivity,
                _ => 0.0,
            };
            Ok(Guarantee {
                epsilon: self.0 + next,
                delta: 0.0,
                unit: Unit::Party,
                neighbours: crate::privacy::Neighbours::Replaced,
                data_dependent: false,
                noise: Noise::Seeded,
                after_split: false,
                finest_split: false,
                claimed_by: Vec::new(),
            })
        }
        fn merge(&mut self, _: &[Ledger], _: Composition) -> Result<()> {
            Ok(())
        }
    }

    fn cut(queries: u32, budget: f64) -> Result<(usize, Option<String>)> {
        let rows = (0..queries).collect();
        let mut counts = Counts::new(rows, Array2::zeros((queries as usize, 2)));
        let budget = Budget {
            epsilon: budget,
            against: crate::privacy::Observer::Readers,
            delta: None,
        };
        let one = Cohort::everyone(vec![0]);
        let ensure_budget = ensure_budget(
            &*<dyn AnyMechanism>::of(Rows),
            &mut counts,
            (&one, CohortOrigin::Clients),
            1,
            &[(&budget, &Adds(2.0), Observer::Readers)],
            3,
        )?;
        let released = counts.rows.len();
        assert_eq!(
            ensure_budget.event,
            Rows.price(&counts, &one).unwrap(),
            "what is left is what is paid for"
        );
        Ok((released, ensure_budget.note))
    }

    #[test]
    fn exact_as_many_queries_as_the_budget_pays_for() {
        assert_eq!(cut(10, 12.0).unwrap(), (10, None));
        for fits in 1..10usize {
            let (released, note) = cut(10, 2.5 + fits as f64).unwrap();
            assert_eq!(released, fits);
            assert!(note.unwrap().starts_with(&format!(
                "{fits} of 10 queries were released; one more would bring epsilon to {}.0000 of a budget of {}.5 (at delta 0)",
                fits + 3,
                fits + 2
            )));
        }
        for queries in [1, 10] {
            let refused = cut(queries, 2.5).unwrap_err();
            assert!(matches!(refused.downcast_ref(), Some(Problem::Budget(_))));
            let what = if queries == 1 {
                "it"
            } else {
                "its first query"
            };
            assert!(refused.to_string().starts_with(&format!(
                "the release was refused before anything was spent: {what} would bring epsilon to 3.0000 of a budget of 2.5"
            )));
        }
    }
}
