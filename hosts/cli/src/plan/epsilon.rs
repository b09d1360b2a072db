//! The epsilon that a run will have reached in its end, where that can be known before.

use super::rows::{Row, owners};
use fl_core::message::{Erased, MessageType, SampleShape};
use fl_core::privacy::{
    Composition, Guarantee, Ledger, MinibatchSampling, Noise, Observer, UnpricedDisclosures,
};
use fl_core::{
    Accountant, AnyMechanism, BuildContext, COUNTS, ClientId, Cohort, Draws, Parts, PrivacyEvent,
    Role, TaskKind,
};

/// The most charges that are added up for a plan.
const MOST: usize = 1_000_000;

/// What each observer that is promised something will be promised at worst; `None` where only the
/// run can say.
pub fn reach(
    parts: &Parts,
    rows: &[Row],
    everyone: usize,
    exposed: &UnpricedDisclosures,
    context: &BuildContext,
    (noise, after_split): (Noise, bool),
) -> Vec<(Observer, Option<Guarantee>)> {
    let cohorts: Vec<&str> = rows.iter().filter_map(|row| row.asked.cohort).collect();
    let claimed_by = parts.claimed_by(&cohorts);
    let promised = Observer::ALL.into_iter();
    let promised = promised.filter(|observer| exposed.to(*observer).is_empty());
    promised
        .map(|observer| {
            let reached = against(observer, parts, rows, everyone, context);
            let told = |g| Guarantee {
                noise,
                after_split,
                claimed_by: claimed_by.clone(),
                ..g
            };
            (observer, reached.map(told))
        })
        .collect()
}

fn against(
    observer: Observer,
    parts: &Parts,
    rows: &[Row],
    everyone: usize,
    context: &BuildContext,
) -> Option<Guarantee> {
    let mut accountant: Box<dyn Accountant> = parts
        .build(Role::Accountant, "accountant", None, context)
        .ok()?;
    for row in rows {
        let flow = &row.asked.flow;
        // how often a private sample is drawn is the protocol's business
        if flow.through.iter().any(|slot| parts.releases(slot)) {
            return None;
        }
        let times = row.asked.times;
        for slot in flow.releases.iter().filter(|slot| parts.releases(slot)) {
            let events = (about(row), times.min(MOST));
            let lots = flow.steps.filter(|(through, _)| through == slot);
            let lots = lots.map(|(_, lots)| lots);
            at_clients(&mut *accountant, parts, slot, events, lots, context)?;
        }
        let at_server = flow.at_server.iter().filter(|slot| parts.releases(slot));
        for slot in at_server.filter(|_| observer != Observer::Server) {
            let cohort = Cohort {
                of: everyone,
                draw: row.draw,
                ..Cohort::all(row.clients)
            };
            let event = price(parts, slot, None, about(row), &cohort, context)?;
            (0..times.min(MOST))
                .try_for_each(|_| accountant.charge(&event))
                .ok()?;
        }
    }
    let counts = |row: &Row| parts.sends_class_counts(&row.asked, context);
    if parts.releases(&COUNTS) && rows.iter().any(counts) {
        // what one example with several labels moves is not known of made-up counts
        let TaskKind::Classes(_) = context.task.kind else {
            return None;
        };
        at_clients(
            &mut *accountant,
            parts,
            COUNTS.name(),
            ((1, 1), 1),
            None,
            context,
        )?;
    }
    accountant.guarantee(None).ok()
}

/// Charges `times` releases of clients through the mechanisms in `slot`. They may have
/// mechanisms of their own: each kind of client is one client here, and the worst counts.
fn at_clients(
    accountant: &mut dyn Accountant,
    parts: &Parts,
    slot: &str,
    (about, times): ((usize, usize), usize),
    lots: Option<MinibatchSampling>,
    context: &BuildContext,
) -> Option<()> {
    let alone = lots.map_or_else(|| Cohort::everyone(vec![0]), |lots| lots.cohort());
    let steps = lots.map_or(1, |lots| lots.steps);
    for (client, owner) in owners(parts, slot).into_iter().enumerate() {
        let mut event = price(parts, slot, owner, about, &alone, context)?;
        if steps > 1 {
            let one = Box::new(event);
            event = PrivacyEvent::Repeated {
                times: steps,
                event: one,
            };
        }
        let (client, events) = (Some(client as ClientId), vec![event; times]);
        let ledger = [Ledger { client, events }];
        accountant.merge(&ledger, Composition::Parallel).ok()?;
    }
    Some(())
}

/// How many samples an answer is about, and how many voters speak in it.
fn about(row: &Row) -> (usize, usize) {
    (row.rows, row.asked.voices)
}

/// What a release through the mechanism in `slot` costs, if its price does not depend on the
/// numbers.
fn price(
    parts: &Parts,
    slot: &str,
    owner: Option<ClientId>,
    about: (usize, usize),
    cohort: &Cohort,
    context: &BuildContext,
) -> Option<PrivacyEvent> {
    let one = |seed: u64| {
        let mut part: Box<dyn AnyMechanism> =
            parts.build(Role::Privacy, slot, owner, context).ok()?;
        let mut message = made_up(part.on(), about, context, seed)?;
        if let Some(range) = part.range(&*message) {
            part.agree(range);
        }
        part.clip(&mut *message).ok()?;
        part.price(&*message, cohort).ok()
    };
    let (event, again) = (one(0)?, one(1)?);
    let of_numbers = matches!(
        event,
        PrivacyEvent::Votes(_) | PrivacyEvent::Unaccounted { .. } | PrivacyEvent::Sampled { .. }
    );
    (event == again && !of_numbers).then_some(event)
}

/// A message as large as those of the run, with other numbers and, where the run decides, other
/// shapes for each seed.
fn made_up(
    of: &'static MessageType,
    (rows, voters): (usize, usize),
    context: &BuildContext,
    seed: u64,
) -> Option<Erased> {
    let mut draws = context.stream.child("made up", seed).draws();
    let number = |draws: &mut Draws| draws.normal() as f32;
    let ids: Vec<u32> = (0..u32::try_from(rows).ok()?).collect();
    let classes = context.task.kind.outputs();
    of.sample(&mut SampleShape::new(1, &number, &mut draws).fixed(&ids, classes, voters))
}
