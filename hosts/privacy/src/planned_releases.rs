//! [`PlannedReleases`]: all that a run may release, where that can be known before.

use crate::planned_exchange::PlannedExchange;
use fl_core::message::{Counts, Erased, MessageType, SampleShape, VoteSensitivity};
use fl_core::privacy::{DataDependence, Guarantee, MinibatchSampling, Neighbours, Observer, Unit};
use fl_core::{
    Accountant, AnyMechanism, BuildContext, COUNTS, ClientId, Cohort, Draws, Fault, Faults, Parts,
    PrivacyEvent, Role, TaskKind,
};
use fl_sim::{ClientReleases, Counted, Releases};
use std::collections::BTreeSet;

/// All that a run may release; `None` where only the run can tell.
#[derive(Default)]
pub(crate) struct PlannedReleases {
    pub server: Option<Counted>,
    pub clients: Option<Vec<ClientReleases>>,
    /// Whether clients release something.
    pub by_clients: bool,
    /// Whether the server does.
    pub by_server: bool,
    /// The unit and the pairs of data sets that all releases protect, if they are known and the
    /// same.
    pub protects: Option<(Unit, Neighbours)>,
}

impl PlannedReleases {
    /// Returns the releases that an observer sees.
    pub fn seen_by(&self, observer: Observer) -> Option<Releases> {
        let server = match observer {
            Observer::Server => Counted::new(),
            _ => self.server.clone()?,
        };
        Some(Releases {
            server,
            clients: self.clients.clone()?,
        })
    }

    /// Adds releases of earlier runs: each counts as one of every client.
    pub fn inherit(&mut self, earlier: &[PrivacyEvent]) {
        let Some(clients) = self.clients.as_mut().filter(|_| !earlier.is_empty()) else {
            return;
        };
        let own = Releases {
            clients: std::mem::take(clients),
            ..Releases::default()
        };
        let mut events = own.of_any_client();
        events.extend(fl_sim::counted(earlier));
        clients.push(ClientReleases {
            clients: vec![(0, ClientId::MAX)],
            events,
        });
    }

    /// Returns the guarantee for them.
    pub fn price(&self, accountant: Box<dyn Accountant>, observer: Observer) -> Option<Guarantee> {
        crate::price(accountant, &self.seen_by(observer)?, observer).ok()
    }
}

/// Returns all that a run with these exchanges may release.
pub(crate) fn planned(
    parts: &Parts,
    rows: &[PlannedExchange],
    everyone: usize,
    faults: &Faults,
    context: &BuildContext,
) -> PlannedReleases {
    let filled = |slots: &[&'static str]| slots.iter().any(|slot| parts.releases(slot));
    let at = |side: fn(&DataDependence) -> [&[&'static str]; 2]| {
        let flows = rows.iter().map(|row| &row.asked.flow);
        flows.flat_map(side).any(filled)
    };
    let by_clients = at(|flow| [&flow.releases, &flow.through]) || parts.releases(&COUNTS);
    PlannedReleases {
        protects: protects(parts, rows, context),
        by_clients,
        by_server: at(|flow| [&flow.at_server, &[]]),
        server: at_server(parts, rows, everyone, faults, context),
        clients: at_clients(parts, rows, everyone, faults, context),
    }
}

/// Returns the epsilon of the cheapest single release of these exchanges: of one sample, once.
/// `None` where only the run can tell.
pub(crate) fn least_epsilon(
    parts: &Parts,
    rows: &[PlannedExchange],
    everyone: usize,
    context: &BuildContext,
    observer: Observer,
) -> Option<f64> {
    let once = |row: &PlannedExchange| {
        let mut row = row.clone();
        (row.rows, row.asked.times) = (row.rows.min(1), row.asked.times.min(1));
        row
    };
    let rows: Vec<PlannedExchange> = rows.iter().map(once).collect();
    let faults: Faults = fl_core::settings::defaults();
    let all = planned(parts, &rows, everyone, &faults, context).seen_by(observer)?;
    let server = all.server.into_iter().map(|event| Releases {
        server: vec![event],
        ..Releases::default()
    });
    let clients = all.clients.into_iter().flat_map(|group| {
        let ClientReleases { clients, events } = group;
        events.into_iter().map(move |event| Releases {
            clients: vec![ClientReleases {
                clients: clients.clone(),
                events: vec![event],
            }],
            ..Releases::default()
        })
    });
    let epsilon = |release: Releases| {
        let accountant = parts.build(Role::Accountant, "accountant", None, context);
        let priced = crate::price(accountant.ok()?, &release, observer);
        Some(priced.ok()?.epsilon)
    };
    let all: Option<Vec<f64>> = server.chain(clients).map(epsilon).collect();
    all?.into_iter().min_by(f64::total_cmp)
}

/// Returns what every mechanism of these exchanges protects, as the accountant says.
fn protects(
    parts: &Parts,
    rows: &[PlannedExchange],
    context: &BuildContext,
) -> Option<(Unit, Neighbours)> {
    let accountant: Box<dyn Accountant> = parts
        .build(Role::Accountant, "accountant", None, context)
        .ok()?;
    let mut protects = None;
    for row in rows {
        for slot in row.releases.iter().filter(|slot| parts.releases(slot)) {
            let of_slot = parts.iter().filter(|filled| filled.slot == *slot);
            for filled in of_slot {
                let ranges = filled.clients.iter().flatten();
                let owner = ranges.map(|range| *range.start()).next();
                let extent = if *slot == COUNTS.name() {
                    Extent::OF_COUNTS
                } else {
                    Extent::of(row)
                };
                let cohort = Cohort::all(row.clients);
                let event = one_event(parts, slot, owner, extent, &cohort, (context, 0))?;
                let next = accountant.guarantee(Some(&event)).ok()?;
                let next = (next.unit, next.neighbours);
                if *protects.get_or_insert(next) != next {
                    return None;
                }
            }
        }
    }
    protects
}

/// How many times a step, and a request in it, may be done.
fn attempts(faults: &Faults) -> (u64, u64) {
    let step = 1 + faults.if_too_few.repeats() as u64;
    let retries = faults.policies().map(|(_, policy)| match policy {
        Fault::Retry(times) => 1 + *times as u64,
        _ => 1,
    });
    (step, step * retries.into_iter().max().unwrap_or(1))
}

fn at_server(
    parts: &Parts,
    rows: &[PlannedExchange],
    everyone: usize,
    faults: &Faults,
    context: &BuildContext,
) -> Option<Counted> {
    let mut all = Counted::new();
    for row in rows {
        let flow = &row.asked.flow;
        // how often a private sample is drawn is the protocol's business
        if flow.through.iter().any(|slot| parts.releases(slot)) {
            return None;
        }
        for slot in flow.at_server.iter().filter(|slot| parts.releases(slot)) {
            let cohort = Cohort {
                of: everyone,
                draw: row.draw,
                ..Cohort::all(row.clients)
            };
            let event = price(parts, slot, None, Extent::of(row), &cohort, context)?;
            let times = (row.asked.times as u64).saturating_mul(attempts(faults).0);
            all.push((times, event));
        }
    }
    Some(all)
}

fn at_clients(
    parts: &Parts,
    rows: &[PlannedExchange],
    everyone: usize,
    faults: &Faults,
    context: &BuildContext,
) -> Option<Vec<ClientReleases>> {
    let told = |row: &PlannedExchange| parts.sends_class_counts(&row.asked, context);
    let counts = parts.releases(&COUNTS) && rows.iter().any(told);
    // what one example with several labels moves is not known of made-up counts
    if counts && !matches!(context.task.kind, TaskKind::Classes(_)) {
        return None;
    }
    // all clients from one end of a range in the spec to the next have the same mechanisms
    let ranges = parts
        .iter()
        .filter(|filled| filled.decl.role == Role::Privacy);
    let ranges = ranges
        .filter_map(|filled| filled.clients.as_ref())
        .flatten();
    let ends = ranges.flat_map(|range| [Some(*range.start()), range.end().checked_add(1)]);
    let last = ClientId::try_from(everyone).ok()?;
    let starts = ends.flatten().chain([0]).filter(|id| *id < last);
    let starts: Vec<ClientId> = starts.collect::<BTreeSet<_>>().into_iter().collect();
    let mut all = Vec::new();
    for (at, client) in starts.iter().enumerate() {
        let mut events = Counted::new();
        let mut add = |slot: &str, extent, times: usize, lots: Option<MinibatchSampling>| {
            if !parts.has_for(slot, *client) {
                return Some(());
            }
            let cohort = lots.map_or_else(|| Cohort::everyone(vec![0]), |lots| lots.cohort());
            let steps = lots.map_or(1, |lots| lots.steps as u64);
            let event = price(parts, slot, Some(*client), extent, &cohort, context)?;
            let times = (times as u64).saturating_mul(attempts(faults).1);
            events.push((times.saturating_mul(steps), event));
            Some(())
        };
        for row in rows {
            let flow = &row.asked.flow;
            if flow.through.iter().any(|slot| parts.releases(slot)) {
                return None;
            }
            for slot in flow.releases.iter().filter(|slot| parts.releases(slot)) {
                if flow.within.contains(slot) && parts.has_for(slot, *client) {
                    return None;
                }
                let lots = flow.steps.filter(|(through, _)| through == slot);
                let lots = lots.map(|(_, lots)| lots);
                add(slot, Extent::of(row), row.asked.times, lots)?;
            }
        }
        if counts {
            add(&COUNTS, Extent::OF_COUNTS, 1, None)?;
        }
        let end = starts.get(at + 1).map_or(last, |next| *next);
        if !events.is_empty() {
            all.push(ClientReleases {
                clients: vec![(*client, end - 1)],
                events,
            });
        }
    }
    Some(all)
}

/// The extent of a release, as far as it is known before the run.
#[derive(Clone, Copy)]
struct Extent {
    /// Number of samples that it is about.
    rows: Option<usize>,
    /// Number of voters that speak in it.
    voters: usize,
    /// Number of votes that one unit of data can change.
    votes: Option<VoteSensitivity>,
}

impl Extent {
    /// A client's own numbers of examples: one example is in one of them.
    const OF_COUNTS: Self = Self {
        rows: Some(1),
        voters: 1,
        votes: Some(VoteSensitivity::of_own_examples(1)),
    };

    /// Returns that of an exchange. How many votes count together is known once they are counted.
    fn of(row: &PlannedExchange) -> Self {
        Self {
            rows: (row.asked.rows > 0).then_some(row.rows),
            voters: row.asked.voices,
            votes: None,
        }
    }
}

/// What a release through the mechanism in `slot` costs, if its price does not depend on the
/// numbers.
fn price(
    parts: &Parts,
    slot: &str,
    owner: Option<ClientId>,
    extent: Extent,
    cohort: &Cohort,
    context: &BuildContext,
) -> Option<PrivacyEvent> {
    let one = |seed| one_event(parts, slot, owner, extent, cohort, (context, seed));
    let (event, again) = (one(0)?, one(1)?);
    let of_numbers = matches!(
        event,
        PrivacyEvent::Votes(_) | PrivacyEvent::Unaccounted { .. } | PrivacyEvent::Sampled { .. }
    );
    (event == again && !of_numbers).then_some(event)
}

/// What a release of a made-up message costs.
fn one_event(
    parts: &Parts,
    slot: &str,
    owner: Option<ClientId>,
    extent: Extent,
    cohort: &Cohort,
    (context, seed): (&BuildContext, u64),
) -> Option<PrivacyEvent> {
    let mut part: Box<dyn AnyMechanism> = parts.build(Role::Privacy, slot, owner, context).ok()?;
    let mut message = made_up(part.on(), extent, context, seed)?;
    if let Some(range) = part.range(&*message) {
        part.agree(range);
    }
    part.clip(&mut *message).ok()?;
    part.price(&*message, cohort).ok()
}

/// A message as large as those of the run, with other numbers and, where the run decides, other
/// shapes and votes that one unit changes for each seed.
fn made_up(
    of: &'static MessageType,
    extent: Extent,
    context: &BuildContext,
    seed: u64,
) -> Option<Erased> {
    let other = u32::try_from(1 + seed).ok()?;
    let mut draws = context.stream.child("made up", seed).draws();
    let number = |draws: &mut Draws| draws.normal() as f32;
    let rows = extent.rows.map_or(Ok(other), u32::try_from).ok()?;
    let ids: Vec<u32> = (0..rows).collect();
    let classes = context.task.kind.outputs();
    let mut outline = SampleShape::new(1, &number, &mut draws).fixed(&ids, classes, extent.voters);
    let mut message = of.sample(&mut outline)?;
    if let Ok(counts) = message.get_mut::<Counts>() {
        counts.set_sensitivity(extent.votes.unwrap_or(VoteSensitivity {
            example: Some(other),
            party: Some(other),
            ..VoteSensitivity::default()
        }));
    }
    Some(message)
}
