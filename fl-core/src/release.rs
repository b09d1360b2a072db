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
    if after.epsilon <= budget.epsilon {
        return Ok((whole, None));
    }
    let first = |k: usize| {
        let mut few = message.clone();
        mechanism.keep_first(&mut few, k);
        let event = mechanism.price(&few, n)?;
        let epsilon = accountant.guarantee(Some(&event))?.epsilon;
        Ok::<_, anyhow::Error>((few, event, epsilon))
    };
    // every query costs something, so epsilon only grows: `fits` queries do fit, `too_many` do not
    let (queries, so_far) = (mechanism.queries(message), accountant.guarantee(None)?.epsilon);
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
    let limit = format!("of a budget of {} (at delta {:e})", budget.epsilon, after.delta);
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
