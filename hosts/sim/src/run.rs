//! A run, from what it needs to what it adds up to.

use crate::answers::Answers;
use crate::clients::Clients;
use crate::folder::{At, Resumed, RunFolder, Written};
use crate::host::{Sim, crossed};
use crate::pool::executor;
use crate::report;
use crate::setup::{Outcome, Setup, Spent, Summary};
use crate::shelf::Shelf;
use anyhow::{Context, ensure};
use fl_core::privacy::{NoiseSource, Observer};
use fl_core::{Client, ClientId, Examples, Federation, Problem, Result, Stream, TaskKind, Totals};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Runs a federation to its end, or to where it is to stop.
///
/// # Errors
/// When the run fails; the run folder then keeps its last checkpoint.
pub fn run(mut setup: Setup<'_>) -> Result<Outcome> {
    let began = Instant::now();
    let root = Stream::root(setup.options.seed);
    // what is kept must not show more than the results, and a round done again must not draw noise anew
    if setup.parts.has("accountant") || matches!(setup.options.noise, NoiseSource::System(_)) {
        setup.checkpoints.keep = false;
    }
    if let (NoiseSource::System(key), Some(folder)) = (&mut setup.options.noise, &mut setup.folder)
    {
        *key = folder.noise_key(key, setup.resumed.as_ref())?;
    }
    let public = setup.public.map(Arc::new);
    let parts = Arc::new(setup.parts.in_slots(setup.protocol.slots()));
    let mut owners: Vec<(ClientId, Examples)> = setup
        .clients
        .into_iter()
        .enumerate()
        .map(|(k, data)| (k as ClientId, data))
        .collect();
    let mut warn = setup.warn;
    let idle: Vec<String> = owners
        .iter()
        .filter(|(_, data)| data.is_empty())
        .map(|(id, _)| id.to_string())
        .collect();
    if !idle.is_empty() {
        warn(&format!(
            "clients without examples take no part: {}",
            idle.join(", ")
        ));
    }
    owners.retain(|(_, data)| !data.is_empty());
    if setup.protocol.pools_data() {
        let mut all = owners.into_iter().map(|(_, data)| data);
        let first = all.next().context("no client has any examples")?;
        owners = vec![(0, all.try_fold(first, |sum, data| sum.join(&data))?)];
    }
    ensure!(!owners.is_empty(), "no client has any examples");
    let roster = owners.iter().map(|(id, data)| (*id, data.len())).collect();
    // what each client holds is nobody's business where somebody accounts
    let accounts = parts.has("accountant");
    let notes = one_class(&owners, setup.options.task.kind).filter(|_| !accounts);
    let client = |(id, data): (ClientId, Examples)| {
        let home = root.child("client", u64::from(id));
        Client::new(id, data, public.clone(), parts.clone(), home)
            .with_budget(setup.options.budget.clone())
            .with_noise(setup.options.noise.clone())
    };
    let shelf = setup
        .resumed
        .as_mut()
        .map(|r| std::mem::take(&mut r.clients));
    let shelf = shelf.unwrap_or_else(|| Shelf::new(setup.folder.as_ref().map(|f| f.path().into())));
    let clients = Clients::new(owners.into_iter().map(client), setup.memory, shelf)?;
    let (mut entries, mut metrics) = (Vec::new(), Vec::new());
    if let (Some(folder), Some(_)) = (&setup.folder, &setup.resumed) {
        (entries, metrics) = folder.lines()?;
    }
    let resumed = setup.resumed.as_ref();
    let at = |r: &Resumed| (r.notes.clone(), r.written, r.place);
    let (said, written, place) = resumed.map_or_else(
        || (notes.into_iter().collect(), Written::default(), At::Within),
        at,
    );
    let done = resumed.map_or(0, |r| r.done);
    let answers = |folder: &RunFolder| Answers::open(folder.path(), done);
    let mut sim = Sim {
        answers: setup.folder.as_ref().map(answers).transpose()?,
        done,
        asked: 0,
        clients,
        roster,
        protocol: setup.protocol.clone(),
        public,
        test: setup.test,
        client_tests: setup.client_tests,
        threads: setup.threads.max(1),
        exec: executor(setup.threads)?,
        folder: setup.folder,
        wire: setup.wire,
        checkpoints: setup.checkpoints,
        stop_after: setup.stop_after,
        stop: setup.stop,
        stopped: None,
        progress: setup.progress,
        warn,
        watch: setup.watch,
        notes: said,
        crossed: entries.iter().map(crossed).fold(0, u64::saturating_add),
        entries,
        metrics,
        began,
        before: setup.resumed.as_ref().map_or(0.0, |r| r.seconds),
        saved: resumed.map(|r| (began, r.done)),
        place,
        written,
    };
    let state = setup.resumed.as_ref().map(|r| &r.server[..]);
    let resumed = state.is_some();
    let protocol = setup.protocol.as_ref();
    let mut fed = Federation::new(&mut sim, parts.clone(), protocol, &setup.options, state)?;
    for what in &setup.exposed {
        fed.expose(&Observer::ALL, what)?;
    }
    let led = setup.protocol.lead(&mut fed);
    let stopped = match led {
        Ok(()) => None,
        Err(error) => match error.downcast_ref::<Problem>() {
            Some(Problem::Stopped { after }) => Some(after.clone()),
            _ => {
                let unsaid = sim.answers.as_ref().is_none_or(Answers::is_empty);
                let nothing = sim.entries.is_empty() && sim.metrics.is_empty() && unsaid;
                if let Some(folder) = sim.folder.take().filter(|_| nothing && !resumed) {
                    // what cannot be removed stays; the run's own error is what matters
                    let _ = sim.clients.discard();
                    folder.discard();
                }
                return Err(error);
            }
        },
    };
    let (digest, totals, privacy) = (fed.digest(), fed.totals().clone(), fed.protections()?);
    let unaccounted = fed.unaccounted();
    let Totals { up, down, steps } = totals;
    let mut last = BTreeMap::new();
    for m in &sim.metrics {
        last.insert(m.name.clone(), m.value);
        if let Some(std) = m.std {
            last.insert(format!("{}.std", m.name), std);
        }
    }
    let outcome = Outcome {
        name: setup.name.into(),
        seed: setup.options.seed,
        protocol: setup.protocol_name.into(),
        rounds: steps,
        metrics: last,
        bytes: Spent { up, down },
        privacy,
        digest,
        seconds: sim.seconds(),
        out: sim.folder.as_ref().map(|f| f.path().display().to_string()),
        stopped,
    };
    if !unaccounted.is_empty() {
        (sim.warn)(&report::unaccounted(&unaccounted));
    }
    if let Some(folder) = sim.folder.take().filter(|_| outcome.stopped.is_none()) {
        let held = sim.clients.each(|client| client.own().class_counts());
        let summary = Summary {
            outcome: outcome.clone(),
            held: if accounts { BTreeMap::new() } else { held },
            notes: sim.notes,
            unaccounted: (!unaccounted.is_empty()).then(|| report::unaccounted(&unaccounted)),
        };
        let report = report::write(&summary, &sim.entries, &sim.metrics, &sim.written);
        let keep = sim.checkpoints.keep && sim.place == At::BeforeLast;
        folder.finish(&report, &summary, keep)?;
        if !keep {
            sim.clients.discard()?;
        }
    }
    Ok(outcome)
}

/// Who holds examples of one class only, for the report.
fn one_class(owners: &[(ClientId, Examples)], kind: TaskKind) -> Option<String> {
    let TaskKind::Classes(_) = kind else {
        return None;
    };
    let held = |data: &Examples| data.class_counts().into_iter().filter(|n| *n > 0).count();
    let of_one = owners.iter().filter(|(_, data)| held(data) == 1);
    let ids: Vec<String> = of_one.map(|(id, _)| id.to_string()).collect();
    (!ids.is_empty()).then(|| {
        format!(
            "{} of {} clients hold examples of one class only: {}",
            ids.len(),
            owners.len(),
            ids.join(", ")
        )
    })
}
