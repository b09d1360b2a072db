//! The host: data and clients, threads, the run folder, and what a run adds up to.

use crate::clients::Clients;
use crate::folder::RunFolder;
use crate::pool::{Threads, for_clients};
use crate::report;
use crate::setup::{Outcome, Progress, Setup, Spent, Summary, Warn, Watch};
use crate::shelf::Shelf;
use anyhow::{Context, ensure};
use fl_core::privacy::{NoiseSource, Observer};
use fl_core::{
    Answer, Client, ClientId, Entry, Examples, Federation, Host, Metric, Payload, Problem,
    Protocol, Public, Question, Result, Scored, SharedExecutor, Stream, TaskKind, Totals,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checkpoints are at least this far apart, unless the run stops: writing them must not become the work.
const BETWEEN_CHECKPOINTS: Duration = Duration::from_secs(20);

struct Sim<'a> {
    clients: Clients,
    roster: Vec<(ClientId, usize)>,
    protocol: Arc<dyn Protocol>,
    public: Option<Arc<Public>>,
    test: Examples,
    client_tests: Vec<Examples>,
    threads: usize,
    exec: SharedExecutor,
    folder: Option<RunFolder>,
    stop_after: Option<usize>,
    wire: bool,
    progress: Progress<'a>,
    warn: Warn<'a>,
    watch: Option<Watch<'a>>,
    /// What was said through `warn`, and what only the report says.
    notes: Vec<String>,
    entries: Vec<Entry>,
    metrics: Vec<Metric>,
    began: Instant,
    before: f64,
    saved: Instant,
}

impl Sim<'_> {
    /// Shows readers of the results something, if somebody watches.
    fn show(&mut self, what: &str, bytes: impl FnOnce(&Self) -> Result<Vec<u8>>) -> Result<()> {
        if self.watch.is_some() {
            let bytes = bytes(self)?;
            if let Some(watch) = &mut self.watch {
                watch(Observer::Readers, what, &bytes);
            }
        }
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }
}

impl Host for Sim<'_> {
    fn roster(&self) -> &[(ClientId, usize)] {
        &self.roster
    }

    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Question<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()> {
        let (protocol, wire) = (&self.protocol, self.wire);
        let work = |client: &mut Client| {
            let question = question(client.id());
            if wire {
                return elsewhere(protocol.as_ref(), client, question);
            }
            fl_core::answer(protocol.as_ref(), client, question)
        };
        let size = |answer: &Answer| answer.body.size();
        let Some(watch) = &mut self.watch else {
            return for_clients(&self.clients, to, self.threads, &work, &size, each);
        };
        for id in to {
            let question = question(*id);
            watch(
                Observer::Clients,
                question.label,
                &question.payload.encode(),
            );
        }
        let each = &mut |id: ClientId, answer: Result<Answer>| {
            let seen = match &answer {
                Ok(answer) => answer.seen()?,
                Err(error) => format!("{error:#}").into_bytes(),
            };
            watch(Observer::Server, &format!("answer of client {id}"), &seen);
            each(id, answer)
        };
        for_clients(&self.clients, to, self.threads, &work, &size, each)
    }

    fn score_clients(&mut self, slot: &str) -> Result<Vec<Scored>> {
        let (test, own) = (&self.test, &self.client_tests);
        let (ids, mut scores) = (
            self.roster.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            Vec::new(),
        );
        for_clients(
            &self.clients,
            &ids,
            self.threads,
            &|client| {
                let own = own.get(client.id() as usize);
                client.score(slot, own.unwrap_or(test))
            },
            &|_| 0,
            &mut |id, score| {
                scores.push(score.with_context(|| format!("evaluating client {id}"))?);
                Ok(())
            },
        )?;
        Ok(scores)
    }

    fn public(&self) -> Option<&Arc<Public>> {
        self.public.as_ref()
    }

    fn test(&self) -> &Examples {
        &self.test
    }

    fn test_of(&self, client: ClientId) -> &Examples {
        self.client_tests.get(client as usize).unwrap_or(&self.test)
    }

    fn executor(&self) -> SharedExecutor {
        self.exec.clone()
    }

    fn progress(&mut self, step: &str, done: usize, of: usize) {
        (self.progress)(step, done, of);
    }

    fn journal(&mut self, entry: &Entry) -> Result<()> {
        if let Some(folder) = &mut self.folder {
            folder.journal(entry)?;
        }
        self.entries.push(entry.clone());
        Ok(())
    }

    fn metric(&mut self, metric: &Metric) -> Result<()> {
        self.show(&metric.name, |_| Ok(serde_json::to_vec(metric)?))?;
        if let Some(folder) = &mut self.folder {
            folder.metric(metric)?;
        }
        self.metrics.push(metric.clone());
        Ok(())
    }

    fn keep_model(&mut self, name: &str, model: &[u8]) -> Result<()> {
        self.show(name, |_| Ok(model.to_vec()))?;
        self.folder
            .as_ref()
            .map_or(Ok(()), |folder| folder.model(name, model))
    }

    fn keep_clients(&mut self, slot: &str) -> Result<()> {
        if self.folder.is_none() && self.watch.is_none() {
            return Ok(());
        }
        for id in self.clients.ids() {
            let model = self.clients.with(id, |client| client.model(slot)?.save())?;
            self.keep_model(&format!("{slot}-{id}"), &model?)?;
        }
        Ok(())
    }

    fn warn(&mut self, text: &str) {
        if let Some(watch) = &mut self.watch {
            watch(Observer::Readers, "note", text.as_bytes());
        }
        (self.warn)(text);
        self.notes.push(text.into());
    }

    fn checkpoint(
        &mut self,
        done: usize,
        step: &str,
        server: &dyn Fn() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let stop = self.stop_after.is_some_and(|steps| done >= steps);
        if let Some(folder) = self
            .folder
            .as_ref()
            .filter(|_| stop || self.saved.elapsed() >= BETWEEN_CHECKPOINTS)
        {
            let clients = self.clients.checkpoint()?;
            folder.checkpoint(done, step, server()?, clients, self.seconds())?;
            self.clients.tidy()?;
            self.saved = Instant::now();
        }
        ensure!(!stop, Problem::Stopped { after: step.into() });
        Ok(())
    }
}

/// Answers as a client in another process would: everything that crosses is in its wire form, and the client is made anew
/// from its saved state.
fn elsewhere(
    protocol: &dyn Protocol,
    client: &mut Client,
    question: Question<'_>,
) -> Result<Answer> {
    let sent = question.payload.encode();
    *client = client.again()?;
    let question = Question::new(
        question.label,
        Payload::Wire(&sent),
        question.stream,
        question.needs,
    );
    fl_core::answer(protocol, client, question)?.over_the_wire()
}

/// Runs a federation to its end, or to where it is to stop.
///
/// # Errors
/// When the run fails; the run folder then keeps its last checkpoint.
pub fn run(mut setup: Setup<'_>) -> Result<Outcome> {
    let began = Instant::now();
    let root = Stream::root(setup.options.seed);
    if let (NoiseSource::System(key), Some(folder)) = (&mut setup.options.noise, &setup.folder) {
        *key = folder.noise_key(key)?;
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
    let clients = Clients::new(owners.into_iter().map(client), setup.client_cache, shelf)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(setup.threads.max(1))
        .build()
        .context("starting threads")?;
    let (mut entries, mut metrics) = (Vec::new(), Vec::new());
    if let (Some(folder), Some(_)) = (&setup.folder, &setup.resumed) {
        (entries, metrics) = folder.lines()?;
    }
    let mut sim = Sim {
        clients,
        roster,
        protocol: setup.protocol.clone(),
        public,
        test: setup.test,
        client_tests: setup.client_tests,
        threads: setup.threads.max(1),
        exec: Arc::new(Threads(pool)),
        folder: setup.folder,
        wire: setup.wire,
        stop_after: setup.stop_after,
        progress: setup.progress,
        warn,
        watch: setup.watch,
        notes: notes.into_iter().collect(),
        entries,
        metrics,
        began,
        before: setup.resumed.as_ref().map_or(0.0, |r| r.seconds),
        saved: began,
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
                let nothing = sim.entries.is_empty() && sim.metrics.is_empty();
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
        let text = report::write(&summary, &sim.entries, &sim.metrics);
        folder.finish(&text, &summary)?;
        sim.clients.discard()?;
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
