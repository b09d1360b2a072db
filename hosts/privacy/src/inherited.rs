//! What a run released whose made inputs, or whose model's features, another run uses.

use crate::record::Reservation;
use crate::rows::{DataId, RowKey, user_key};
use crate::spending::rows;
use anyhow::{Context, bail};
use fl_core::PrivacyEvent;
use fl_core::privacy::{Noise, Observer, Protection, Unit};
use fl_data::{Assembled, DataSpec};
use fl_registry::Spec;
use fl_report::Run;
use fl_sim::{Releases, as_event};

/// Adds to `data` what the runs released that made rows or features of it. `pooled` says whether
/// the run pools the rows of all clients. Readers of such a run may have these rows, or the model
/// of the features, and every observer of this run sees results of them.
///
/// # Errors
/// If such a run is not done, or the spec has a budget, which counts the releases of one run only.
pub fn inherit(spec: &Spec<DataSpec>, data: &mut Assembled, pooled: bool) -> anyhow::Result<()> {
    if !spec.parts.has("accountant") {
        return Ok(());
    }
    for folder in spec.data.made_by() {
        let run = folder.display();
        if spec.budget.is_some() {
            bail!(
                "budget: it counts the releases of this run only, and {run} released what its made inputs or its model show; leave `budget` out"
            );
        }
        let own = rows(spec, &RowKey::of_user()?, data, pooled);
        match made_releases(&Run::open_brief(folder)?, &own, spec.noise)? {
            Ok(releases) => {
                let of_clients = releases.of_any_client();
                let all = releases.server.iter().chain(&of_clients);
                let shown = |event: &PrivacyEvent| event.seen_by(Observer::Readers);
                data.inherited
                    .extend(all.map(as_event).map(|event| shown(&event)));
            }
            Err(why) => data.inferred.push(format!(
                "the samples or the model of the run in {run} come from clients' rows, {why}"
            )),
        }
    }
    Ok(())
}

/// Returns what readers of the results of `made` saw, or why no guarantee of a run on the rows
/// `own` covers it; `noise` is the source of that run's noise.
///
/// # Errors
/// If `made` is not done.
pub fn made_releases(
    made: &Run,
    own: &DataId,
    noise: Noise,
) -> anyhow::Result<Result<Releases, String>> {
    let own_parties = || {
        let then = Reservation::of_book(made.book()?, &user_key())?;
        Some(own.lies_in(&then.data))
    };
    let not_done = || format!("{}: the run is not done", made.path.display());
    let summary = made.summary.as_ref().with_context(not_done)?;
    let holds = match summary.outcome.protection(Observer::Readers) {
        Some(Protection::Holds(holds)) => holds,
        Some(Protection::Nothing { nothing, .. }) => {
            let why = nothing.join("; ");
            return Ok(Err(format!("without a guarantee against readers: {why}")));
        }
        None => return Ok(Err("without an accountant".into())),
    };
    let why = if holds.noise == Noise::Seeded && noise != Noise::Seeded {
        "with noise from its seed"
    } else if !holds.claimed_by.is_empty() {
        "and its guarantee rests on claims of loaded parts"
    } else if holds.after_split && !own.dealt {
        "and its guarantee is one for rows after a split"
    } else if holds.unit == Unit::Party && own_parties() != Some(true) {
        "and its guarantee is one for other parties than those of this run"
    } else {
        let releases = summary.releases.clone().map(serde_json::from_value);
        return Ok(match releases {
            Some(Ok(releases)) => Ok(releases),
            _ => Err("and its folder does not list the releases".into()),
        });
    };
    Ok(Err(why.into()))
}
