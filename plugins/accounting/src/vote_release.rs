//! The facts of a release of votes that its price needs.
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::{Unit, VoteRelease};

/// Returns how many votes one `unit` can change, and whether that was computed from the data.
pub(crate) fn changed(
    event: &PrivacyEvent,
    votes: &VoteRelease,
    unit: Unit,
) -> Result<(u32, bool)> {
    let (changed, from_data) = votes.votes_of(unit);
    let changed = changed.with_context(|| {
        Problem::Unpriced(format!(
            "{event}: the number of votes that one {unit} can change is not stated"
        ))
    })?;
    Ok((changed, from_data))
}

/// Returns the counts of a release without noise, each for `classes` classes.
pub(crate) fn counts<'v>(
    event: &PrivacyEvent,
    votes: &'v VoteRelease,
) -> Result<Option<&'v [Vec<u32>]>> {
    if let Some(counts) = &votes.counts {
        let whole = counts.len() == votes.queries
            && votes.classes > 0
            && counts.iter().all(|c| c.len() == votes.classes);
        ensure!(
            whole,
            Problem::Unpriced(format!("{event} has counts of other queries or classes"))
        );
    }
    Ok(votes.counts.as_deref())
}
