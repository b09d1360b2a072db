//! What a budget allows to be released, the same at the server and at a client.

use crate::message::Message;
use crate::{Accountant, Budget, PrivacyEvent, PrivacyMechanism, Problem, Result};
use anyhow::bail;

/// The price of releasing `message`, after it has been cut to the queries that the budget pays for; and what there is
/// to say about it.
///
/// # Errors
/// [`Problem::Budget`] when the budget does not pay for any of it.
pub(crate) fn afford<M: Message>(
    mechanism: &dyn PrivacyMechanism<On = M>,
    message: &mut M,
    n: usize,
    accountant: Option<&dyn Accountant>,
    budget: Option<&Budget>,
    released: usize,
) -> Result<(PrivacyEvent, Option<String>)> {
    let whole = mechanism.price(message, n)?;
    let (Some(accountant), Some(budget)) = (accountant, budget) else {
        return Ok((whole, None));
    };
    let after = accountant.guarantee(Some(&whole))?;
    if let Some(delta) = budget.delta.filter(|delta| after.delta > *delta) {
        bail!(Problem::Budget(format!(
            "budget.delta is {delta:e}, but the accountant guarantees at {:e}: set the accountant's `delta`",
            after.delta
        )));
    }
    if after.epsilon <= budget.epsilon {
        return Ok((whole, None));
    }
    let first = |k: usize| {
        let mut few = message.clone();
        mechanism.truncate(&mut few, k);
        let event = mechanism.price(&few, n)?;
        let epsilon = accountant.guarantee(Some(&event))?.epsilon;
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
        match first(middle)?.2 <= budget.epsilon {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    let note = if after.data_dependent {
        " (this refusal depends on the data and so tells something about them)"
    } else {
        ""
    };
    let limit = format!(
        "of a budget of {} (at delta {:e})",
        budget.epsilon, after.delta
    );
    if fits == 0 {
        let (what, epsilon) = match queries {
            0 | 1 => ("it", after.epsilon),
            _ => ("its first query", first(1)?.2),
        };
        bail!(Problem::Budget(format!(
            "the release was refused before anything was spent: {what} would bring epsilon to {epsilon:.4} {limit}; {released} releases so far, epsilon {so_far:.4}{note}"
        )));
    }
    let (few, event, _) = first(fits)?;
    let next = first(too_many)?.2;
    *message = few;
    Ok((
        event,
        Some(format!(
            "{fits} of {queries} queries were released; one more would bring epsilon to {next:.4} {limit}{note}"
        )),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;
    use crate::message::Counts;
    use crate::privacy::{Composition, Guarantee, Ledger, Noise, Unit};
    use ndarray::Array2;

    /// A row costs 1.
    struct Rows;

    impl PrivacyMechanism for Rows {
        type On = Counts;
        fn clip(&self, _: &mut Counts) -> Result<()> {
            Ok(())
        }
        fn price(&self, counts: &Counts, _: usize) -> Result<PrivacyEvent> {
            let sensitivity = counts.rows.len() as f64;
            Ok(PrivacyEvent::Laplace {
                sensitivity,
                scale: 1.0,
                unit: Unit::Party,
            })
        }
        fn perturb(&mut self, _: &mut Counts, _: usize, _: &Stream) -> Result<()> {
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
                data_dependent: true,
                noise: Noise::Seeded,
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
            delta: None,
        };
        let (event, note) = afford(&Rows, &mut counts, 1, Some(&Adds(2.0)), Some(&budget), 3)?;
        let released = counts.rows.len();
        assert_eq!(
            event,
            Rows.price(&counts, 1).unwrap(),
            "what is left is what is paid for"
        );
        Ok((released, note))
    }

    #[test]
    fn exact_as_many_queries_as_the_budget_pays_for() {
        assert_eq!(cut(10, 12.0).unwrap(), (10, None));
        for fits in 1..10usize {
            let (released, note) = cut(10, 2.5 + fits as f64).unwrap();
            assert_eq!(released, fits);
            assert!(note.unwrap().starts_with(&format!(
                "{fits} of 10 queries were released; one more would bring epsilon to {}.0000 of a budget of {}.5 (at delta 0e0) (this refusal depends",
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
