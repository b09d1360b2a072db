//! The joint guarantee of several runs on the same rows.

use crate::entry::Entry;
use crate::record::{AccountantId, Amount};
use fl_core::privacy::{
    Composition, Guarantee, Ledger, Neighbours, Noise, Observer, Protection, Unit,
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
    let splits: BTreeSet<&str> = runs
        .iter()
        .map(|run| &*run.reservation.data.split)
        .collect();
    let one_split = splits.len() < 2;
    let mut parts: Vec<Guarantee> = Vec::new();
    let mut units: BTreeSet<&str> = BTreeSet::new();
    let mut accountants: Vec<&AccountantId> = Vec::new();
    for run in runs {
        match (run.amount(), &run.reservation.accountant) {
            (
                Amount::AtMost {
                    epsilon,
                    delta,
                    unit,
                },
                _,
            ) => {
                let unit = unit.ok_or_else(|| {
                    format!(
                        "which unit the budget of {} protects is known only at its end",
                        run.title()
                    )
                })?;
                units.insert(unit_name(unit));
                parts.push(Guarantee {
                    epsilon: *epsilon,
                    delta: *delta,
                    neighbours: Neighbours::Removed,
                    ..nothing_spent()
                });
            }
            (Amount::Unknown, _) => {
                return Err(format!(
                    "the price of {} is known only at its end; a `budget` of the run, with a delta, bounds it before",
                    run.title()
                ));
            }
            (_, Some(known)) if !accountants.contains(&known) => accountants.push(known),
            _ => {}
        }
    }
    for id in accountants {
        let releases = runs.iter().filter_map(|run| match run.amount() {
            Amount::Releases(of) if run.reservation.accountant.as_ref() == Some(id) => {
                Some((&*run.reservation.data.split, of))
            }
            _ => None,
        });
        let releases: Vec<(&str, &Releases)> = releases.collect();
        let seen = |(_, of): &(&str, &Releases)| {
            !of.clients.is_empty() || (observer != Observer::Server && !of.server.is_empty())
        };
        if releases.iter().any(seen) {
            let priced = make(id).and_then(|a| compose(a, &releases, observer, one_split));
            let priced = priced.map_err(|error| format!("{error:#}"))?;
            units.insert(unit_name(priced.unit));
            parts.push(priced);
        }
    }
    if units.len() > 1 {
        return Err("guarantees for one example and for one party do not add up".into());
    }
    let party = units.contains(unit_name(Unit::Party));
    let mut all = parts.iter().fold(nothing_spent(), |sum, next| Guarantee {
        epsilon: sum.epsilon + next.epsilon,
        delta: sum.delta + next.delta,
        neighbours: sum.neighbours.min(next.neighbours),
        data_dependent: sum.data_dependent || next.data_dependent,
        ..sum
    });
    if party {
        all.unit = Unit::Party;
    }
    let reserved = || runs.iter().map(|run| &run.reservation);
    all.after_split = reserved().any(|run| run.data.dealt);
    all.noise = match reserved().all(|run| run.noise == Noise::System) {
        true => Noise::System,
        false => Noise::Seeded,
    };
    let claims = reserved().flat_map(|run| run.claimed_by.iter().cloned());
    all.claimed_by = claims.collect::<BTreeSet<_>>().into_iter().collect();
    match () {
        () if all.data_dependent => Err(FOLLOWS_DATA.into()),
        () if !all.epsilon.is_finite() => Err("a release has an infinite price".into()),
        () if all.delta >= 1.0 => Err("the deltas add up to 1".into()),
        () if all.unit == Unit::Party && all.after_split && !one_split => {
            Err("the runs deal the rows to parties differently, so no party is the same".into())
        }
        () => Ok(all),
    }
}

/// Says by which rule [`together`] composes these runs.
pub fn rule(runs: &[&Entry]) -> String {
    let mut accountants: Vec<String> = Vec::new();
    let (mut by_budget, mut splits) = (0, BTreeSet::new());
    for run in runs {
        splits.insert(&*run.reservation.data.split);
        match (run.amount(), &run.reservation.accountant) {
            (Amount::Releases(_), Some(id)) => {
                let name = format!("`{id}`");
                if !accountants.contains(&name) {
                    accountants.push(name);
                }
            }
            (Amount::AtMost { .. }, _) => by_budget += 1,
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
    if splits.len() > 1 {
        rule += "; a row counts as the worst client's in each split";
    }
    rule
}

/// A unit, in an order.
fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "example",
        Unit::Party => "party",
    }
}

fn nothing_spent() -> Guarantee {
    Guarantee {
        epsilon: 0.0,
        delta: 0.0,
        unit: Unit::Example,
        neighbours: Neighbours::Replaced,
        after_split: false,
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
    compose(accountant, &[("", releases)], observer, true)
}

/// Lets a new accountant compose these runs, each with its split.
fn compose(
    mut accountant: Box<dyn Accountant>,
    runs: &[(&str, &Releases)],
    observer: Observer,
    one_split: bool,
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
    if one_split {
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
        let splits: BTreeSet<&str> = runs.iter().map(|(split, _)| *split).collect();
        let mut all: Counted = Vec::new();
        for split in splits {
            let same = || {
                runs.iter()
                    .filter(|(of, _)| *of == split)
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
