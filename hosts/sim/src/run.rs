//! The execution of a run, from its setup to its outcome.

use crate::client_state_file::ClientStateFile;
use crate::clients::Clients;
use crate::external_clients::{ClientFactory, owners};
use crate::folder::{CheckpointCost, ResumePoint, RunFolder, SavedPosition};
use crate::host::{Sim, crossed};
use crate::outcome::{Outcome, Summary, Traffic};
use crate::partial_step::PartialStep;
use crate::pool::{executor, workers};
use crate::receipts::{Countersignature, MESSAGES, Recorder, locked};
use crate::releases::Releases;
use crate::report;
use crate::setup::Setup;
use anyhow::bail;
use fl_core::privacy::{NoiseSource, Observer, epsilons};
use fl_core::{ClientId, Examples, Host, Problem, Result, RunState, StepCost, TaskKind, Totals};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The most clients that a note names.
const TOLD: usize = 50;

/// What a user is told whose run keeps messages.
const KEPT: &str = "`keep: messages`: the folder `messages` of the run has all that the server saw \
    of its aggregations; who can read it is an observer such as the server, and not only a reader of \
    the results";

/// Runs a federation to its end or its stop.
///
/// # Errors
/// If the run fails; the run folder then keeps its last checkpoint.
pub fn run(mut setup: Setup<'_>) -> Result<Outcome> {
    let began = Instant::now();
    // a kept answer must not show more than the results, and a repeated round must not draw noise
    // again
    if setup.parts.has("accountant") || matches!(setup.options.noise, NoiseSource::System(_)) {
        setup.checkpoints.keep = false;
    }
    if let (NoiseSource::System(key), Some(folder)) = (&mut setup.options.noise, &mut setup.folder)
    {
        *key = folder.noise_key(key, setup.resumed.as_ref())?;
    }
    let keeps = setup.receipts.keep_messages;
    let receipts = setup
        .folder
        .as_ref()
        .map(|folder| folder.receipts().clone());
    if let Some(receipts) = &receipts {
        locked(receipts).with(setup.receipts);
    }
    let public = setup.public.map(Arc::new);
    let parts = Arc::new(setup.parts.in_slots(setup.protocol.slots()));
    let execution = setup.execution;
    let mut warn = execution.warn;
    // with an accountant, clients without examples take part, and no one learns who they are
    let accounts = parts.has("accountant");
    let idle = setup.clients.iter().enumerate();
    let idle = idle.filter(|(_, data)| data.is_empty() && !accounts);
    let idle: Vec<String> = idle.map(|(id, _)| id.to_string()).collect();
    if !idle.is_empty() {
        let told = told(&idle);
        warn(&format!("clients without examples take no part: {told}"));
    }
    let owners = match setup.elsewhere.is_some() && setup.clients.is_empty() {
        true => Vec::new(),
        false => owners(setup.clients, setup.protocol.pools_data(), accounts)?,
    };
    let roster: Vec<(ClientId, usize)> =
        owners.iter().map(|(id, data)| (*id, data.len())).collect();
    let notes = one_class(&owners, setup.options.task.kind).filter(|_| !accounts);
    let maker = ClientFactory {
        public: public.clone(),
        parts: parts.clone(),
        seed: setup.options.seed,
        budget: setup.options.budget.clone(),
        noise: setup.options.noise.clone(),
        retries: setup.options.faults.ask_again(),
    };
    let client = |(id, data)| maker.client(id, data);
    let shelf = setup
        .resumed
        .as_mut()
        .map(|r| std::mem::take(&mut r.clients));
    let shelf = shelf
        .unwrap_or_else(|| ClientStateFile::new(setup.folder.as_ref().map(|f| f.path().into())));
    let clients = Clients::new(owners.into_iter().map(client), execution.memory, shelf)?;
    let (mut entries, mut metrics, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    if let (Some(folder), Some(_)) = (&setup.folder, &setup.resumed) {
        (entries, metrics, costs) = folder.lines()?;
    }
    let resumed = setup.resumed.as_ref();
    let at = |r: &ResumePoint| (r.notes.clone(), r.written, r.place);
    let (said, written, place) = resumed.map_or_else(
        || {
            (
                notes.into_iter().collect(),
                CheckpointCost::default(),
                SavedPosition::Within,
            )
        },
        at,
    );
    let done = resumed.map_or(0, |r| r.done);
    let answers = |folder: &RunFolder| PartialStep::open(folder.path(), done);
    let mut sim = Sim {
        answers: setup.folder.as_ref().map(answers).transpose()?,
        done,
        asked: 0,
        clients,
        elsewhere: setup.elsewhere,
        roster,
        protocol: setup.protocol.clone(),
        public,
        test: setup.test,
        client_tests: setup.client_tests,
        threads: workers(execution.threads),
        exec: executor(execution.threads)?,
        folder: setup.folder,
        wire: execution.wire,
        checkpoints: setup.checkpoints,
        spending: setup.spending,
        reserved: false,
        stop_after: execution.stop_after,
        stop: execution.stop,
        stopped: None,
        stop_when: setup.stop_when,
        progress: execution.progress,
        on_step: execution.on_step,
        accounts,
        ending: false,
        warn,
        watch: execution.watch,
        notes: said,
        crossed: entries.iter().map(crossed).fold(0, u64::saturating_add),
        entries,
        metrics,
        cost: costs.pop(),
        began,
        before: setup.resumed.as_ref().map_or(0.0, |r| r.seconds),
        saved: resumed.map(|r| (began, r.done)),
        place,
        written,
    };
    if let Err(error) = begin_external(&mut sim, resumed) {
        undo(sim, resumed.is_none());
        return Err(error);
    }
    if keeps && receipts.is_some() {
        sim.warn(KEPT);
    }
    let state = setup.resumed.as_ref().map(|r| &r.server[..]);
    let resumed = state.is_some();
    let protocol = setup.protocol.as_ref();
    let fed = RunState::new(&mut sim, parts.clone(), protocol, &setup.options, state);
    let fed = fed.and_then(|mut fed| {
        let mut shown = setup.exposed.iter();
        shown.try_for_each(|what| fed.expose(&Observer::ALL, what))?;
        if let Some(twice) = &setup.twice {
            fed.owned_twice(twice);
        }
        Ok(fed)
    });
    let mut fed = match fed {
        Ok(fed) => fed,
        Err(error) => {
            undo(sim, !resumed);
            return Err(error);
        }
    };
    if let Some(log) = receipts {
        fed.record_with(Box::new(Recorder { log, keeps }));
    }
    let led = fl_core::lead(setup.protocol.as_ref(), &mut fed);
    let stopped = match led {
        Ok(()) => None,
        Err(error) => match error.downcast_ref::<Problem>() {
            Some(Problem::Stopped { after }) => Some(after.clone()),
            _ => {
                undo(sim, !resumed);
                return Err(error);
            }
        },
    };
    let exchanges = setup.protocol.exchanges();
    let mut cohorts = exchanges.iter().filter_map(|spec| spec.cohort);
    let alike = setup.protocol.pools_data() || cohorts.any(|slot| parts.has(slot));
    let (digest, totals) = (fed.digest(), fed.totals().clone());
    let mut privacy = fed.protections()?;
    let unaccounted = fed.unaccounted();
    let (server, clients) = fed.releases();
    let (server, clients) = (server.to_vec(), clients.clone());
    let Totals { up, down, steps } = totals;
    if stopped.is_none() {
        // disclosures after the last step, such as the clients' models
        let end = StepCost {
            step: "end".into(),
            round: 0,
            bytes_up: up,
            bytes_down: down,
            privacy: privacy.as_ref().map(epsilons),
            protections: privacy.clone(),
        };
        let last = sim.cost.as_ref();
        let of = |c: &StepCost| (c.bytes_up, c.bytes_down, c.privacy.clone());
        if last.map(of) != Some(of(&end)) {
            sim.cost(&end)?;
        }
    }
    let mut last = BTreeMap::new();
    for m in &sim.metrics {
        last.insert(m.name.clone(), m.value);
        if let Some(std) = m.std {
            last.insert(format!("{}.std", m.name), std);
        }
    }
    if let (Some(all), Some(after)) = (&mut privacy, &stopped) {
        for holds in all.values_mut() {
            *holds = holds.clone().of_stopped(after);
        }
    }
    let outcome = Outcome {
        name: setup.name.into(),
        seed: setup.options.seed,
        protocol: setup.protocol_name.into(),
        rounds: steps,
        metrics: last,
        bytes: Traffic { up, down },
        privacy,
        digest,
        seconds: sim.seconds(),
        out: sim.folder.as_ref().map(|f| f.path().display().to_string()),
        stopped,
    };
    if let Some(rule) = sim.stop_when.as_ref().filter(|_| outcome.stopped.is_none()) {
        let mut rounds = sim.metrics.iter().filter(|m| m.round > 0);
        if !rounds.clone().any(|m| m.name == rule.metric) {
            let names: BTreeSet<&str> = rounds.by_ref().map(|m| &*m.name).collect();
            let measured = match names.is_empty() {
                true => "nothing was measured in rounds".into(),
                false => format!("rounds measured {}", Vec::from_iter(names).join(", ")),
            };
            let text = format!(
                "`stop-when` had no effect: no round measured `{}`; {measured}",
                rule.metric
            );
            sim.warn(&text);
        }
    }
    // before the folder is complete: if this fails, the run can resume
    match &mut sim.spending {
        Some(spending) if outcome.stopped.is_none() => {
            spending.settle(&server, &clients, outcome.privacy.as_ref())?;
        }
        Some(spending) if sim.reserved => spending.stop()?,
        _ => {}
    }
    if outcome.stopped.is_none() {
        countersign(&mut sim)?;
        if let Some(folder) = sim.folder.as_ref().filter(|_| keeps)
            && !folder.path().join(MESSAGES).exists()
        {
            let text = format!(
                "`keep: messages` kept nothing: protocol `{}` combines answers itself, and `fl verify` cannot repeat that",
                setup.protocol_name
            );
            sim.warn(&text);
        }
    }
    if !unaccounted.is_empty() {
        (sim.warn)(&report::unaccounted(&unaccounted));
    }
    if let Some(folder) = sim.folder.take().filter(|_| outcome.stopped.is_none()) {
        let held = sim.clients.each(|client| client.own().class_counts());
        let keep = sim.checkpoints.keep && sim.place == SavedPosition::BeforeLast;
        let summary = Summary {
            outcome: outcome.clone(),
            keeps: keep,
            held: if accounts { BTreeMap::new() } else { held },
            notes: sim.notes,
            releases: (outcome.privacy.as_ref())
                .and_then(|privacy| Releases::shown(alike, &server, &clients, privacy)),
            unaccounted: (!unaccounted.is_empty()).then(|| report::unaccounted(&unaccounted)),
        };
        let pictures = folder.pictures();
        let (entries, metrics) = (&sim.entries, &sim.metrics);
        let report = report::write(&summary, entries, metrics, &pictures, &sim.written);
        let lock = folder.finish(&report, &summary)?;
        if !keep {
            sim.clients.discard()?;
        }
        sim.elsewhere.map_or(Ok(()), |mut e| e.end(keep))?;
        lock.remove();
    }
    Ok(outcome)
}

/// Finds clients in other processes, if there are any.
fn begin_external(sim: &mut Sim<'_>, resumed: Option<&ResumePoint>) -> Result<()> {
    let known = resumed.map(|r| &r.elsewhere[..]);
    match (&mut sim.elsewhere, known) {
        (None, Some([_, ..])) => bail!(
            "this run began with clients in processes of their own; resume it with `--processes`"
        ),
        (Some(_), Some([])) => {
            bail!(
                "this run began with clients in the program's own process; resume it without `--processes`"
            )
        }
        (None, _) => {}
        (Some(elsewhere), state) => sim.roster = elsewhere.begin(&sim.roster, state)?,
    }
    Ok(())
}

/// Lets clients whose data are their own countersign the receipts of a run that ends. One that does
/// not is named in a note.
fn countersign(sim: &mut Sim<'_>) -> Result<()> {
    let Some(log) = sim.folder.as_ref().map(|folder| folder.receipts().clone()) else {
        return Ok(());
    };
    let Some(mut elsewhere) = sim.elsewhere.take() else {
        return Ok(());
    };
    let (hash, answers) = locked(&log).answers()?;
    let mut refused = Vec::new();
    let asked = elsewhere.countersign(&hash, &answers, &mut |client, signed| {
        match signed {
            Ok((key, signature)) => locked(&log).countersigned(Countersignature {
                client,
                key,
                signature,
            })?,
            Err(error) => refused.push((client, error)),
        }
        Ok(())
    });
    sim.elsewhere = Some(elsewhere);
    for (client, error) in refused {
        sim.warn(&format!(
            "client {client} does not countersign the receipts: {error:#}"
        ));
    }
    asked
}

/// Removes a new run (`begins`) that failed before its first result.
fn undo(mut sim: Sim<'_>, begins: bool) {
    let unsaid = sim.answers.as_ref().is_none_or(PartialStep::is_empty);
    let nothing = sim.entries.is_empty() && sim.metrics.is_empty() && unsaid;
    if let Some(folder) = sim.folder.take().filter(|_| nothing && begins) {
        // a file that cannot be removed stays; the run's own error matters more
        let _ = sim.clients.discard();
        let _ = sim.elsewhere.map(|mut e| e.end(false));
        folder.discard();
    }
}

/// Returns the clients that hold examples of one class only, for the report.
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
            told(&ids)
        )
    })
}

/// Names the first of these clients, and counts the others.
fn told(ids: &[String]) -> String {
    let (told, rest) = ids.split_at(ids.len().min(TOLD));
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", told.join(", "))
}
