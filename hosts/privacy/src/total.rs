//! The joint guarantee of several runs on the same rows.

use crate::entry::{Entry, State};
use crate::record::{AccountantId, Bound};
use crate::rows::DataId;
use fl_core::privacy::{
    Composition, Guarantee, Ledger, Neighbours, Noise, Observer, Protection, Relation, Unit,
};
use fl_core::{Accountant, PrivacyEvent, Result};
use fl_sim::{Counted, Releases, as_event};
use std::collections::{BTreeMap, BTreeSet};

/// Makes accountants.
pub type MakeAccountant<'a> = &'a dyn Fn(&AccountantId) -> Result<Box<dyn Accountant>>;

/// Why a price that follows the data does not count.
const FOLLOWS_DATA: &str = "a price follows the data, and so reveals something about them";

/// Returns what these runs guarantee together against an observer. Releases that one accountant
/// prices are composed by it. The results of different accountants add (basic composition, Dwork
/// and Roth 2014, theorem 3.16).
pub fn together(runs: &[&Entry], observer: Observer, make: MakeAccountant<'_>) -> Protection {
    let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for run in runs {
        for why in run.nothing(observer) {
            seen.entry(why).or_default().push(run.title());
        }
    }
    if !seen.is_empty() {
        let whose = |(why, runs): (&str, Vec<String>)| match &runs[..] {
            [one] => format!("{why} (in {one})"),
            all => format!("{why} (in {} runs)", all.len()),
        };
        return Protection::nothing(seen.into_iter().map(whose).collect());
    }
    match sum(runs, observer, make) {
        Ok(guarantee) => Protection::Holds(guarantee),
        Err(why) => Protection::nothing(vec![why]),
    }
}

fn sum(
    runs: &[&Entry],
    observer: Observer,
    make: MakeAccountant<'_>,
) -> std::result::Result<Guarantee, String> {
    let splits = splits(runs);
    let one_split = splits.len() < 2;
    let mut parts: Vec<Guarantee> = Vec::new();
    let mut units: BTreeSet<Unit> = BTreeSet::new();
    let mut relation = Relation::of_nothing();
    let mut accountants: Vec<&AccountantId> = Vec::new();
    for run in runs {
        match (run.spending().bound(observer), &run.reservation.accountant) {
            (Bound::Budget(own), _) => {
                let (unit, neighbours) = own.protects.ok_or_else(|| {
                    format!(
                        "which unit the budget of {} protects is known only at its end",
                        run.title()
                    )
                })?;
                units.insert(unit);
                relation = relation.and(Relation::of(neighbours));
                parts.push(Guarantee {
                    epsilon: own.epsilon,
                    delta: own.delta,
                    ..nothing_spent()
                });
            }
            (Bound::Unknown, _) => {
                return Err(format!(
                    "the price of {} is known only at its end; a `budget` of the run, with a delta, bounds it before",
                    run.title()
                ));
            }
            (Bound::Releases(_), Some(known)) if !accountants.contains(&known) => {
                accountants.push(known);
            }
            _ => {}
        }
    }
    for id in accountants {
        let releases = runs
            .iter()
            .filter_map(|run| match run.spending().bound(observer) {
                Bound::Releases(of) if run.reservation.accountant.as_ref() == Some(id) => {
                    Some((&run.reservation.data, of))
                }
                _ => None,
            });
        let releases: Vec<(&DataId, &Releases)> = releases.collect();
        let seen = |of: &Releases| {
            let clients = of.clients.iter().flat_map(|group| &group.events);
            let server = of.server.iter().filter(|_| observer != Observer::Server);
            clients
                .chain(server)
                .map(|(_, event)| event.clone())
                .collect()
        };
        let events: Vec<PrivacyEvent> = releases
            .iter()
            .flat_map(|(_, of)| -> Vec<_> { seen(of) })
            .collect();
        if !events.is_empty() {
            let priced = make(id).and_then(|a| compose(a, &releases, observer, &splits));
            let priced = priced.map_err(|error| format!("{error:#}"))?;
            units.insert(priced.unit);
            relation = events.iter().fold(relation, Relation::with);
            parts.push(priced);
        }
    }
    if units.len() > 1 {
        return Err("guarantees for one example and for one party do not add up".into());
    }
    let party = units.contains(&Unit::Party);
    let mut all = parts.iter().fold(nothing_spent(), |sum, next| Guarantee {
        epsilon: sum.epsilon + next.epsilon,
        delta: sum.delta + next.delta,
        data_dependent: sum.data_dependent || next.data_dependent,
        ..sum
    });
    if party {
        all.unit = Unit::Party;
    }
    let pairs = relation.neighbours(all.unit);
    all.neighbours = pairs.ok_or(Neighbours::DO_NOT_ADD_UP)?;
    all.finest_split = party && !one_split;
    let reserved = || runs.iter().map(|run| &run.reservation);
    all.after_split = reserved().any(|run| run.data.dealt);
    all.noise = if reserved().all(|run| run.noise == Noise::System) {
        Noise::System
    } else {
        Noise::Seeded
    };
    let claims = reserved().flat_map(|run| run.claimed_by.iter().cloned());
    all.claimed_by = claims.collect::<BTreeSet<_>>().into_iter().collect();
    match () {
        () if all.data_dependent => Err(FOLLOWS_DATA.into()),
        () if !all.epsilon.is_finite() => Err("a release has an infinite price".into()),
        () if all.delta >= 1.0 => Err("the deltas add up to 1".into()),
        () if all.finest_split && !splits.iter().any(|fine| splits.iter().all(|of| fine.lies_in(of))) => {
            Err("the runs share the rows out to parties differently, and no split has only parties that each lie in one party of every other".into())
        }
        () => Ok(all),
    }
}

/// Says by which rule [`together`] composes these runs, and what that leaves open ([`caveat`]).
/// `failed` of the runs are known to have failed.
pub fn rule(runs: &[&Entry], failed: usize, observer: Observer) -> String {
    let mut accountants: Vec<String> = Vec::new();
    let mut by_budget = 0;
    for run in runs {
        match (run.spending().bound(observer), &run.reservation.accountant) {
            (Bound::Releases(_), Some(id)) => {
                let name = format!("`{id}`");
                if !accountants.contains(&name) {
                    accountants.push(name);
                }
            }
            (Bound::Budget(_), _) => by_budget += 1,
            _ => {}
        }
    }
    let mut rule = match &accountants[..] {
        [] => String::new(),
        [one] => format!("{one} composes all releases"),
        several => format!(
            "each of {} composes its releases, and their epsilons and deltas add",
            several.join(", ")
        ),
    };
    if by_budget > 0 {
        let begin = if rule.is_empty() { "" } else { "; " };
        let s = if by_budget == 1 { "" } else { "s" };
        rule += &format!("{begin}epsilon and delta of {by_budget} run{s} as a whole add");
    }
    if splits(runs).len() > 1 {
        rule += "; a row counts as the worst client's in each split";
    }
    if let Some(caveat) = caveat(runs, failed) {
        rule += &format!("; {caveat}");
    }
    rule
}

/// Says what the guarantee does not cover because some of these runs are not done, or returns
/// `None` if all are. `failed` of the runs are known to have failed.
pub fn caveat(runs: &[&Entry], failed: usize) -> Option<String> {
    let open = |run: &&&Entry| !matches!(run.state, State::Settled(_));
    let open = runs.iter().filter(open).count().saturating_sub(failed);
    let failed = match failed {
        0 => None,
        1 => Some("one run failed, and nothing covers that a row may be why".into()),
        n => Some(format!(
            "{n} runs failed, and nothing covers that a row may be why"
        )),
    };
    let open = match open {
        0 => None,
        1 => Some(
            "one run is not done, and if it failed or was stopped because of rows, nothing covers \
             that"
                .into(),
        ),
        n => Some(format!(
            "{n} runs are not done, and if one failed or was stopped because of rows, nothing \
             covers that"
        )),
    };
    let both: Vec<String> = failed.into_iter().chain(open).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// The splits of these runs, each once.
fn splits<'a>(runs: &[&'a Entry]) -> Vec<&'a DataId> {
    let mut all: Vec<&DataId> = Vec::new();
    for run in runs {
        let data = &run.reservation.data;
        if !all.iter().any(|known| known.same_split(data)) {
            all.push(data);
        }
    }
    all
}

fn nothing_spent() -> Guarantee {
    Guarantee {
        epsilon: 0.0,
        delta: 0.0,
        unit: Unit::Example,
        neighbours: Neighbours::Replaced,
        after_split: false,
        finest_split: false,
        data_dependent: false,
        noise: Noise::System,
        claimed_by: Vec::new(),
    }
}

/// Returns what an observer of these releases of one run is guaranteed by a new accountant.
///
/// # Errors
/// If the accountant has no price for one of them.
pub fn price(
    accountant: Box<dyn Accountant>,
    releases: &Releases,
    observer: Observer,
) -> Result<Guarantee> {
    compose(accountant, &[(&DataId::default(), releases)], observer, &[])
}

/// Lets a new accountant compose these runs, each with its split.
fn compose(
    mut accountant: Box<dyn Accountant>,
    runs: &[(&DataId, &Releases)],
    observer: Observer,
    splits: &[&DataId],
) -> Result<Guarantee> {
    if observer != Observer::Server {
        for event in runs.iter().flat_map(|(_, run)| &run.server) {
            let (times, event) = event;
            accountant.charge(&as_event(&(*times, event.seen_by(observer))))?;
        }
    }
    let events = |of: &[(u64, PrivacyEvent)]| of.iter().map(as_event).collect::<Vec<_>>();
    let mut merge = |client, events: Vec<PrivacyEvent>| {
        let ledger = Ledger {
            client: Some(client),
            events,
        };
        accountant.merge(&[ledger], Composition::Parallel)
    };
    if splits.len() < 2 {
        // the same clients have the same rows in all of these runs
        let mut known: BTreeSet<String> = BTreeSet::new();
        for client in Releases::representatives(runs.iter().map(|(_, run)| *run)) {
            let of = runs.iter().map(|(_, run)| run.of_client(client));
            let all: Vec<PrivacyEvent> = of.flat_map(events).collect();
            if !all.is_empty() && known.insert(format!("{all:?}")) {
                merge(client, all)?;
            }
        }
    } else {
        // a row may be any client's in each split
        let mut all: Counted = Vec::new();
        for split in splits {
            let same = || {
                runs.iter()
                    .filter(|(of, _)| of.same_split(split))
                    .map(|(_, run)| *run)
            };
            let mut any = Releases::default();
            for client in Releases::representatives(same()) {
                let of = same().flat_map(|run| run.of_client(client).to_vec());
                let mut sum: Counted = Vec::new();
                for (times, event) in of {
                    match sum.iter_mut().find(|(_, known)| *known == event) {
                        Some((n, _)) => *n += times,
                        None => sum.push((times, event)),
                    }
                }
                any.clients.push(crate::ClientReleases {
                    clients: vec![(client, client)],
                    events: sum,
                });
            }
            all.extend(any.of_any_client());
        }
        if !all.is_empty() {
            merge(0, events(&all))?;
        }
    }
    accountant.guarantee(None)
}
