//! The execution of a run, from its setup to its outcome.

use crate::client_side::ClientSide;
use crate::client_state_file::ClientStateFile;
use crate::clients::Clients;
use crate::external_clients::{ClientFactory, owners};
use crate::folder::{Checkpoint, CheckpointCost, SavedPosition};
use crate::host::{Sim, not_cut};
use crate::listener::{Listener, Listeners};
use crate::outcome::{Outcome, Summary, Traffic};
use crate::partial_step::PartialStep;
use crate::pool::{executor, workers};
use crate::releases::Releases;
use crate::report;
use crate::run_record::RunRecord;
use crate::saver::Saver;
use crate::setup::{Execution, Setup};
use crate::unpriced::Unpriced;
use anyhow::bail;
use fl_core::privacy::{NoiseSource, Observer, Protections, epsilons};
use fl_core::{
    Checkpoints, ClientId, Examples, Metric, Parts, PrivacyEvent, Problem, Protocol, Result,
    RunEvent, RunOptions, RunReleases, RunState, StepCost, StopWhen, TRAINING_LOSS, TaskKind,
    Totals, first_names,
};
use fl_receipts::{Countersignature, MESSAGES, Recorder, locked};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

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
    keep_noise(&mut setup)?;
    let method = Method::of(&mut setup);
    let resumed = setup.resumed.as_mut();
    let server = resumed.map(|r| std::mem::take(&mut r.saved.server));
    let mut sim = host(setup, &method)?;
    let done = match lead(&mut sim, &method, server.as_deref()) {
        Ok(done) => done,
        Err(error) => {
            undo(sim, server.is_none());
            return Err(error);
        }
    };
    let outcome = outcome(&sim, &method, &done);
    for text in earlier(&sim.record.metrics, outcome.stopped.as_deref()) {
        sim.note(&text);
    }
    if outcome.stopped.is_some() {
        sim.tell(RunEvent::Stops)?;
    } else {
        note_unmeasured(&mut sim, method.stop_when.as_ref());
        let (metrics, task) = (&sim.record.metrics, &method.options.task);
        let columns = task.input.len() == 1;
        let told = diverged(metrics, columns);
        if let Some(text) = told.or_else(|| unlearnt(metrics, task.kind, columns)) {
            sim.note(&text);
        }
        // before the folder is complete: if this fails, the run can resume
        sim.tell(RunEvent::Ends(done.releases()))?;
        countersign(&mut sim)?;
        note_unkept(&mut sim, &method);
    }
    if !done.unaccounted.is_empty() {
        sim.warn(&report::unaccounted(&done.unaccounted));
    }
    if outcome.stopped.is_none() {
        finish(sim, &method, done, &outcome)?;
    }
    Ok(outcome)
}

/// What the server follows, from the spec.
struct Method<'a> {
    name: &'a str,
    protocol_name: &'a str,
    protocol: Arc<dyn Protocol>,
    parts: Arc<Parts>,
    options: RunOptions,
    stop_when: Option<StopWhen>,
    /// Whether the messages of aggregations are kept.
    keeps: bool,
    exposed: Vec<String>,
    twice: Option<String>,
    data_notes: Vec<String>,
}

impl<'a> Method<'a> {
    fn of(setup: &mut Setup<'a>) -> Self {
        Self {
            name: setup.name,
            protocol_name: setup.protocol_name,
            protocol: setup.protocol.clone(),
            parts: Arc::new(setup.parts.in_slots(setup.protocol.slots())),
            options: setup.options.clone(),
            stop_when: setup.stop_when.take(),
            keeps: setup.receipts.keep_messages && setup.folder.is_some(),
            exposed: std::mem::take(&mut setup.exposed),
            twice: setup.twice.take(),
            data_notes: std::mem::take(&mut setup.data_notes),
        }
    }

    fn unpriced(&self) -> Unpriced {
        Unpriced::beside(self.parts.has("accountant"))
    }

    /// Whether results do not tell clients apart ([`Releases::shown`]).
    fn alike(&self) -> bool {
        let exchanges = self.protocol.exchanges();
        let mut cohorts = exchanges.iter().filter_map(|spec| spec.cohort);
        self.protocol.pools_data() || cohorts.any(|slot| self.parts.has(slot))
    }
}

/// What a run came to at the server.
struct Led {
    /// The step after which it stopped.
    stopped: Option<String>,
    digest: String,
    totals: Totals,
    privacy: Option<Protections>,
    unaccounted: Vec<PrivacyEvent>,
    server: Vec<PrivacyEvent>,
    clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
}

impl Led {
    fn releases(&self) -> RunReleases<'_> {
        RunReleases {
            server: &self.server,
            clients: &self.clients,
            privacy: self.privacy.as_ref(),
        }
    }
}

/// A kept answer must not show more than the results, and a repeated round must not draw noise
/// again.
fn keep_noise(setup: &mut Setup<'_>) -> Result<()> {
    let noise = &mut setup.options.noise;
    if setup.parts.has("accountant") || matches!(noise, NoiseSource::System(_)) {
        setup.checkpoints.keep = false;
    }
    if let (NoiseSource::System(key), Some(folder)) = (noise, &mut setup.folder) {
        *key = folder.noise_key(key, setup.resumed.as_ref())?;
    }
    Ok(())
}

/// Makes the host: clients, files and listeners.
fn host<'a>(mut setup: Setup<'a>, method: &Method<'a>) -> Result<Sim<'a>> {
    let mut execution = setup.execution;
    let others = std::mem::take(&mut execution.listeners);
    let rule = method.stop_when.clone();
    let rule = rule.map(|rule| Box::new(rule) as Box<dyn Listener + 'a>);
    let mut listeners = Listeners {
        guards: setup.guards,
        folder: setup.folder,
        others: rule.into_iter().chain(others).collect(),
    };
    if let Some(folder) = &listeners.folder {
        locked(folder.receipts()).with(setup.receipts);
    }
    let saved = setup.resumed.as_ref().map(|r| &r.saved);
    if let Err(error) = listeners.open_logs() {
        let begins = setup.resumed.is_none();
        if let Some(folder) = listeners.folder.filter(|_| begins) {
            folder.discard();
        }
        return Err(error);
    }
    let unpriced = method.unpriced();
    let record = record(&listeners, saved, unpriced)?;
    let resumed = setup.resumed.as_mut();
    let state_file = match resumed.map(|r| std::mem::take(&mut r.clients)) {
        Some(kept) => kept,
        None => ClientStateFile::new(listeners.folder.as_ref().map(|f| f.path().into())),
    };
    let path = listeners.folder.as_ref().map(|f| f.path().to_path_buf());
    let resumed = setup.resumed.as_ref().map(|r| &r.saved);
    let done = resumed.map_or(0, |r| r.done);
    let answers = path.as_ref().map(|path| PartialStep::open(path, done));
    let accounts = unpriced == Unpriced::Withheld;
    let idle = (0..).zip(&setup.clients).filter(|(_, own)| own.is_empty());
    let idle: Vec<ClientId> = idle.map(|(id, _)| id).collect();
    let owners = if setup.elsewhere.is_some() && setup.clients.is_empty() {
        Vec::new()
    } else {
        owners(setup.clients, method.protocol.pools_data(), accounts)?
    };
    let one_class = one_class(&owners, method.options.task.kind);
    let held_out = setup.own_tests.then_some(&setup.client_tests[..]);
    let maker = ClientFactory {
        held_out: Vec::new(),
        public: setup.public.map(Arc::new),
        parts: method.parts.clone(),
        seed: method.options.seed,
        budgets: method.options.budgets.clone(),
        noise: method.options.noise.clone(),
        retries: method.options.faults.ask_again(),
    }
    .with_held_out(held_out, method.protocol.as_ref());
    let roster = owners.iter().map(|(id, data)| (*id, data.len())).collect();
    let clients = owners.into_iter().map(|(id, data)| maker.client(id, data));
    let mut sim = Sim {
        clients: ClientSide {
            here: Clients::new(clients, execution.memory, state_file)?,
            elsewhere: setup.elsewhere,
            roster,
            protocol: method.protocol.clone(),
            threads: workers(execution.threads),
            wire: execution.wire,
            answers: answers.transpose()?,
            done,
            asked: 0,
            reached: false,
        },
        public: maker.public.clone(),
        test: setup.test,
        client_tests: setup.client_tests,
        own_tests: setup.own_tests,
        exec: executor(execution.threads)?,
        saver: saver(setup.checkpoints, resumed, &record, &execution),
        listeners,
        record,
        ending: None,
    };
    if resumed.is_none() {
        // for the report only
        let one_class = unpriced.tell(|| one_class).flatten();
        let notes = &mut sim.record.notes;
        notes.extend(setup.report_notes.into_iter().chain(one_class));
    }
    // a resumed run reads the folder's spec, which lists files where the user's named a folder:
    // notes on that folder come from the checkpoint
    let first = resumed.map_or(&[][..], |r| &r.data_notes);
    let lost = first
        .iter()
        .filter(|note| !method.data_notes.contains(note));
    let lost: Vec<String> = lost.cloned().collect();
    sim.record.tell_of_data(&lost);
    sim.record.tell_of_data(&method.data_notes);
    let told = lost.iter().map(|note| &**note);
    let told = told.chain(method.keeps.then_some(KEPT));
    let told = told.chain(setup.notes.iter().map(|note| &**note));
    begin(sim, path.as_deref(), resumed, idle, told)
}

fn saver(
    checkpoints: Checkpoints,
    resumed: Option<&Checkpoint>,
    record: &RunRecord,
    execution: &Execution<'_>,
) -> Saver {
    Saver {
        checkpoints,
        saved: resumed.map(|r| (record.began, r.done)),
        place: resumed.map_or(SavedPosition::Within, |r| r.place),
        written: resumed.map_or(CheckpointCost::default(), |r| r.written),
        stop_after: execution.stop_after,
        stop: execution.stop.clone(),
        stopped: None,
    }
}

/// Begins the run, for its listeners and for clients that are elsewhere.
fn begin<'a, 't>(
    mut sim: Sim<'a>,
    folder: Option<&Path>,
    resumed: Option<&Checkpoint>,
    mut idle: Vec<ClientId>,
    notes: impl Iterator<Item = &'t str>,
) -> Result<Sim<'a>> {
    let began = sim.tell(RunEvent::Begins(folder));
    let began = began.and_then(|()| begin_external(&mut sim.clients, resumed));
    if let Err(error) = began {
        undo(sim, resumed.is_none());
        return Err(error);
    }
    if idle.is_empty() {
        let elsewhere = sim.clients.elsewhere.iter();
        idle.extend(elsewhere.flat_map(|elsewhere| elsewhere.idle()));
    }
    if !idle.is_empty() && sim.record.unpriced != Unpriced::Withheld {
        let ids: Vec<String> = idle.iter().map(ClientId::to_string).collect();
        let named = first_names(&ids, TOLD);
        sim.warn(&format!("clients without examples take no part: {named}"));
    }
    notes.for_each(|note| sim.note(note));
    Ok(sim)
}

/// What has happened before this process.
fn record(
    listeners: &Listeners<'_>,
    resumed: Option<&Checkpoint>,
    unpriced: Unpriced,
) -> Result<RunRecord> {
    let before = resumed.map_or(0.0, |r| r.seconds);
    let notes = resumed.map_or(Vec::new(), |r| r.notes.clone());
    let mut record = RunRecord::new(before, notes, unpriced);
    if let (Some(folder), Some(_)) = (&listeners.folder, resumed) {
        let (entries, metrics, mut costs) = folder.lines()?;
        entries.into_iter().for_each(|e| record.add_exchange(e));
        (record.metrics, record.cost) = (metrics, costs.pop());
    }
    Ok(record)
}

/// Lets the protocol lead the run to its end or its stop. `state` is the server's, from a
/// checkpoint.
fn lead(sim: &mut Sim<'_>, method: &Method<'_>, state: Option<&[u8]>) -> Result<Led> {
    let receipts = sim.listeners.folder.as_ref();
    let receipts = receipts.map(|folder| folder.receipts().clone());
    let (parts, protocol) = (method.parts.clone(), method.protocol.as_ref());
    let mut run = RunState::new(sim, parts, protocol, &method.options, state)?;
    for what in &method.exposed {
        run.expose(&Observer::ALL, what)?;
    }
    if let Some(twice) = &method.twice {
        run.owned_twice(twice);
    }
    if let Some(log) = receipts {
        let keeps = method.keeps;
        run.record_with(Box::new(Recorder { log, keeps }));
    }
    let stopped = match fl_core::lead(protocol, &mut run) {
        Ok(()) => None,
        Err(error) => match error.downcast_ref() {
            Some(Problem::Stopped { after }) => Some(after.clone()),
            _ => return Err(error),
        },
    };
    if stopped.is_none() {
        not_cut()?;
    }
    let (server, clients) = run.releases();
    let done = Led {
        stopped,
        digest: run.digest(),
        totals: run.totals().clone(),
        privacy: run.protections()?,
        unaccounted: run.unaccounted(),
        server: server.to_vec(),
        clients: clients.clone(),
    };
    if done.stopped.is_none() {
        end_costs(sim, &done)?;
    }
    Ok(done)
}

/// Records what was disclosed after the last step, such as the clients' models.
fn end_costs(sim: &mut Sim<'_>, done: &Led) -> Result<()> {
    let end = StepCost {
        step: "end".into(),
        round: 0,
        bytes_up: done.totals.up,
        bytes_down: done.totals.down,
        privacy: done.privacy.as_ref().map(epsilons),
        protections: done.privacy.clone(),
    };
    let of = |c: &StepCost| (c.bytes_up, c.bytes_down, c.privacy.clone());
    if sim.record.cost.as_ref().map(of) == Some(of(&end)) {
        Ok(())
    } else {
        sim.tell(RunEvent::Cost(&end))
    }
}

fn outcome(sim: &Sim<'_>, method: &Method<'_>, done: &Led) -> Outcome {
    let mut metrics = BTreeMap::new();
    for m in &sim.record.metrics {
        metrics.insert(m.name.clone(), m.value);
        if let Some(std) = m.std {
            metrics.insert(format!("{}.std", m.name), std);
        }
    }
    let mut privacy = done.privacy.clone();
    if let (Some(all), Some(after)) = (&mut privacy, &done.stopped) {
        for holds in all.values_mut() {
            *holds = holds.clone().of_stopped(after);
        }
    }
    let folder = sim.listeners.folder.as_ref();
    Outcome {
        name: method.name.into(),
        seed: method.options.seed,
        protocol: method.protocol_name.into(),
        rounds: done.totals.steps,
        metrics,
        bytes: Traffic {
            up: done.totals.up,
            down: done.totals.down,
        },
        privacy,
        digest: done.digest.clone(),
        seconds: Some(sim.record.seconds()),
        out: folder.map(|f| f.path().display().to_string()),
        stopped: done.stopped.clone(),
    }
}

/// Notes that `stop-when` names a measure that no round has.
fn note_unmeasured(sim: &mut Sim<'_>, rule: Option<&StopWhen>) {
    let Some(rule) = rule else { return };
    let rounds = sim.record.metrics.iter().filter(|m| m.round > 0);
    let names: BTreeSet<&str> = rounds.map(|m| &*m.name).collect();
    if names.contains(&*rule.metric) {
        return;
    }
    let measured = if names.is_empty() {
        "nothing was measured in rounds".into()
    } else {
        format!("rounds measured {}", Vec::from_iter(names).join(", "))
    };
    let metric = &rule.metric;
    let text = format!("`stop-when` had no effect: no round measured `{metric}`; {measured}");
    sim.note(&text);
}

/// Says which measures are of earlier models: those that the last rounds did not measure, scores of
/// steps outside of rounds that rounds followed, and scores before the round that a run stopped
/// after.
fn earlier(metrics: &[Metric], stopped: Option<&str>) -> Vec<String> {
    let reached = |of: &[Metric]| of.iter().map(|m| m.round).max().unwrap_or(0);
    let all = reached(metrics);
    let last: BTreeMap<&str, usize> = (metrics.iter().enumerate())
        .map(|(at, m)| (&*m.name, at))
        .collect();
    // a step outside of rounds may leave the model as it is
    let later = |step: &str| stopped.is_some_and(|to| to.starts_with("round ") && to != step);
    let mut of_step: BTreeMap<(usize, &str), Vec<String>> = BTreeMap::new();
    for (name, at) in last {
        let Metric { round, step, .. } = &metrics[at];
        let score = fl_core::metrics::is_score(name);
        let before = match *round {
            // a step outside of rounds is where its measurements are
            0 => score && reached(&metrics[..at]) < all,
            round => round < all || (score && later(step)),
        };
        if before {
            let names = of_step.entry((*round, &**step)).or_default();
            names.push(format!("`{name}`"));
        }
    }
    let went = match stopped {
        Some(after) => format!("stopped after {after}"),
        None => format!("went on to round {all}"),
    };
    let said = of_step.into_iter().map(|((_, step), names)| {
        let names = names.join(", ");
        format!("{names}: last measured in {step}, and the run {went}")
    });
    said.collect()
}

/// The least training loss that no model comes near that learns, on scaled labels.
const LARGE: f64 = 10.0;

/// What may help a model whose losses are large.
fn remedy(columns: bool) -> &'static str {
    if columns {
        "a smaller learning rate may help, and for columns of numbers a `range`"
    } else {
        "a smaller learning rate may help"
    }
}

/// Says that a model of classes has a far larger loss at the end than one that guesses.
fn unlearnt(metrics: &[Metric], kind: TaskKind, columns: bool) -> Option<String> {
    let TaskKind::Classes(classes) = kind else {
        return None;
    };
    let guess = libm::log(classes as f64);
    let mut losses = metrics.iter().filter(|m| m.name == TRAINING_LOSS);
    let first = losses.next()?;
    let last = losses.next_back().unwrap_or(first);
    // a loss that falls is on another scale
    let large = last.value > LARGE * guess.max(1.0) && first.value <= 2.0 * last.value;
    large.then(|| {
        format!(
            "training learnt nothing: the training loss is {:.2e} in {}, and a guess among {classes} classes has {guess:.2}; {}",
            last.value, last.step, remedy(columns)
        )
    })
}

/// Says that training diverged, if the last training loss is large, and far above the least one.
/// `columns`: the inputs are columns of numbers.
fn diverged(metrics: &[Metric], columns: bool) -> Option<String> {
    const TIMES: f64 = 100.0;
    let mut losses = metrics.iter().filter(|m| m.name == TRAINING_LOSS);
    let least = losses.clone().min_by(|a, b| a.value.total_cmp(&b.value))?;
    let last = losses.next_back()?;
    (last.value > LARGE && last.value >= TIMES * least.value).then(|| {
        format!(
            "training diverged: the training loss was {:.2e} in {} and is {:.2e} in {}; {}",
            least.value,
            least.step,
            last.value,
            last.step,
            remedy(columns)
        )
    })
}

/// Notes that `keep: messages` has kept nothing.
fn note_unkept(sim: &mut Sim<'_>, method: &Method<'_>) {
    let folder = sim.listeners.folder.as_ref().filter(|_| method.keeps);
    if folder.is_some_and(|folder| !folder.path().join(MESSAGES).exists()) {
        let text = format!(
            "`keep: messages` kept nothing: protocol `{}` combines answers itself, and `fl verify` cannot repeat that",
            method.protocol_name
        );
        sim.note(&text);
    }
}

/// Completes the folder of a run that is done.
fn finish(sim: Sim<'_>, method: &Method<'_>, done: Led, outcome: &Outcome) -> Result<()> {
    let Some(folder) = sim.listeners.folder else {
        return Ok(());
    };
    let unpriced = sim.record.unpriced;
    let held = || sim.clients.here.each(|client| client.own().class_counts());
    let unaccounted =
        (!done.unaccounted.is_empty()).then(|| report::unaccounted(&done.unaccounted));
    let shown = |privacy| Releases::shown(method.alike(), &done.server, &done.clients, privacy);
    let summary = Summary {
        outcome: outcome.for_readers(),
        keeps: sim.saver.checkpoints.keep && sim.saver.place == SavedPosition::BeforeLast,
        held: unpriced.tell(held).unwrap_or_default(),
        data_notes: sim.record.data_notes,
        notes: sim.record.notes,
        releases: outcome.privacy.as_ref().and_then(shown),
        unaccounted,
    };
    let report = report::write(
        &summary,
        &sim.record.entries,
        &sim.record.metrics,
        &folder.pictures(),
        &sim.saver.written,
    );
    let lock = folder.finish(&report, &summary)?;
    if !summary.keeps {
        sim.clients.here.discard()?;
    }
    let elsewhere = sim.clients.elsewhere;
    elsewhere.map_or(Ok(()), |mut e| e.end(summary.keeps))?;
    lock.remove();
    Ok(())
}

/// Finds clients in other processes, if there are any.
fn begin_external(clients: &mut ClientSide<'_>, resumed: Option<&Checkpoint>) -> Result<()> {
    let known = resumed.map(|r| &r.elsewhere[..]);
    match (&mut clients.elsewhere, known) {
        (None, Some([_, ..])) => bail!(
            "this run began with clients in processes of their own; resume it with `--processes`"
        ),
        (Some(_), Some([])) => {
            bail!(
                "this run began with clients in the program's own process; resume it without `--processes`"
            )
        }
        (None, _) => {}
        (Some(elsewhere), state) => clients.roster = elsewhere.begin(&clients.roster, state)?,
    }
    Ok(())
}

/// Lets clients whose data are their own countersign the receipts of a run that ends. One that does
/// not is named in a note.
fn countersign(sim: &mut Sim<'_>) -> Result<()> {
    let folder = sim.listeners.folder.as_ref();
    let (Some(folder), Some(elsewhere)) = (folder, &mut sim.clients.elsewhere) else {
        return Ok(());
    };
    let log = folder.receipts().clone();
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
    for (client, error) in refused {
        sim.note(&format!(
            "client {client} does not countersign the receipts: {error:#}"
        ));
    }
    asked
}

/// Removes a new run (`begins`) that failed before its first result. One with an accountant that
/// has asked a client stays: its failure may tell of the client's rows, so pages count it.
fn undo(sim: Sim<'_>, begins: bool) {
    let clients = sim.clients;
    if sim.record.unpriced == Unpriced::Withheld && clients.reached {
        return;
    }
    let unsaid = clients.answers.as_ref().is_none_or(PartialStep::is_empty);
    let nothing = sim.record.entries.is_empty() && sim.record.metrics.is_empty() && unsaid;
    if let Some(folder) = sim.listeners.folder.filter(|_| nothing && begins) {
        // a file that cannot be removed stays; the run's own error matters more
        let _ = clients.here.discard();
        let _ = clients.elsewhere.map(|mut e| e.end(false));
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
            first_names(&ids, TOLD)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_earlier_models_are_told() {
        let of = |(step, round, name): &(&str, usize, &str)| {
            let text = serde_json::json!({
                "step": step, "round": round, "name": name, "value": 0.5, "std": null
            });
            serde_json::from_value(text).unwrap()
        };
        let told = |all: &[(&str, usize, &str)], stopped| {
            earlier(&all.iter().map(of).collect::<Vec<Metric>>(), stopped)
        };
        let (one, two) = (("round 1", 1, "accuracy"), ("round 2", 2, "accuracy"));
        let tuned = ("fine-tuning", 0, "clients.accuracy");
        assert!(told(&[one, two, tuned], None).is_empty());
        let due =
            "`clients.accuracy`: last measured in fine-tuning, and the run went on to round 2";
        assert_eq!(told(&[one, tuned, two], None), [due]);
        // a share of rows is not of a model
        assert!(told(&[("before", 0, "selected.share"), one], None).is_empty());
        let both = [one, ("round 1", 1, "own.accuracy"), two];
        let due = "`own.accuracy`: last measured in round 1, and the run went on to round 2";
        assert_eq!(told(&both, None), [due]);
        let due = "`accuracy`: last measured in round 2, and the run stopped after round 3";
        assert_eq!(told(&[one, two], Some("round 3")), [due]);
        for step in ["round 2", "fine-tuning"] {
            assert!(told(&[one, two], Some(step)).is_empty());
        }
    }

    #[test]
    fn training_that_diverged_is_told() {
        let told = |losses: &[f64]| {
            let metric = |(at, value): (usize, &f64)| {
                let round = at + 1;
                serde_json::from_value(serde_json::json!({
                    "step": format!("round {round}"),
                    "round": round,
                    "name": TRAINING_LOSS,
                    "value": value,
                    "std": null,
                }))
                .unwrap()
            };
            let metrics: Vec<Metric> = losses.iter().enumerate().map(metric).collect();
            [true, false].map(|columns| diverged(&metrics, columns))
        };
        let [said, images] = told(&[0.8, 40.0, 7.5e27]).map(Option::unwrap);
        assert!(said.ends_with("help, and for columns of numbers a `range`"));
        assert!(images.ends_with("a smaller learning rate may help"));
        let due = "the training loss was 8.00e-1 in round 1 and is 7.50e27 in round 3; a smaller";
        assert!(said.contains(due), "{said}");
        // what is learnt by heart may be forgotten, and a first round may be bad
        for fine in [&[1e-6, 0.3][..], &[2.3, 9.0], &[7.5e9, 3e9], &[1e9], &[]] {
            assert_eq!(told(fine), [None, None], "{fine:?}");
        }
        let metric = |value: f64| {
            let text = serde_json::json!({
                "step": "round 2", "round": 2, "name": TRAINING_LOSS, "value": value, "std": null,
            });
            serde_json::from_value::<Metric>(text).unwrap()
        };
        let told = |value, classes| unlearnt(&[metric(value)], TaskKind::Classes(classes), true);
        let due = "the training loss is 6.00e8 in round 2, and a guess among 2 classes has 0.69";
        assert!(told(6e8, 2).unwrap().contains(due));
        assert!(told(9.9, 2).is_none() && told(22.0, 10).is_none());
        assert_eq!(
            unlearnt(&[metric(6e8)], TaskKind::MultiLabel(2), true),
            None
        );
        let falls = [metric(90.0), metric(40.0)];
        assert_eq!(unlearnt(&falls, TaskKind::Classes(2), true), None);
    }
}
