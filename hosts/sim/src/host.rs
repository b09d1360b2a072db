//! [`Sim`]: the host in one process, with data, clients, threads and the run folder.

use crate::clients::Clients;
use crate::external_clients::ExternalClients;
use crate::folder::{CheckpointCost, HostState, RunFolder, SavedPosition};
use crate::image_grid::picture;
use crate::partial_step::PartialStep;
use crate::pool::for_clients;
use crate::setup::{Next, OnStep, Progress, SpendingRecord, StepProgress, StepReport, Warn, Watch};
use anyhow::{Context, bail};
use fl_core::privacy::{Epsilons, Observer};
use fl_core::{
    Answer, CheckpointInterval, Checkpoints, ClientId, ClientState, Evaluation, Examples, Host,
    JournalEntry, Metric, Payload, Problem, Protocol, Public, Request, Result, Samples,
    SharedExecutor, StepCost, StepPosition, StopWhen,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(crate) struct Sim<'a> {
    pub clients: Clients,
    /// Clients in other processes, if any; `clients` then get no requests.
    pub elsewhere: Option<Box<dyn ExternalClients + 'a>>,
    pub roster: Vec<(ClientId, usize)>,
    pub protocol: Arc<dyn Protocol>,
    pub public: Option<Arc<Public>>,
    pub test: Examples,
    pub client_tests: Vec<Examples>,
    pub threads: usize,
    pub exec: SharedExecutor,
    pub folder: Option<RunFolder>,
    /// The answers since the last checkpoint, in a run with a folder.
    pub answers: Option<PartialStep>,
    /// Number of complete steps.
    pub done: usize,
    /// Number of requests in the current step.
    pub asked: u64,
    pub checkpoints: Checkpoints,
    pub spending: Option<Box<dyn SpendingRecord + 'a>>,
    /// Whether the run's spending is reserved.
    pub reserved: bool,
    pub stop_after: Option<usize>,
    pub stop: Arc<AtomicBool>,
    /// The step after which the run stops, if another follows.
    pub stopped: Option<String>,
    pub wire: bool,
    /// When to end the rounds early.
    pub stop_when: Option<StopWhen>,
    pub progress: Progress<'a>,
    pub on_step: Option<OnStep<'a>>,
    /// Whether the run has an accountant.
    pub accounts: bool,
    /// Whether `on_step` has ended the rounds.
    pub ending: bool,
    pub warn: Warn<'a>,
    pub watch: Option<Watch<'a>>,
    /// Warnings to the user, and notes for the report only.
    pub notes: Vec<String>,
    pub entries: Vec<JournalEntry>,
    /// Bytes of all exchanges.
    pub crossed: u64,
    pub metrics: Vec<Metric>,
    /// The total cost after the last complete step.
    pub cost: Option<StepCost>,
    pub began: Instant,
    pub before: f64,
    /// When the last checkpoint was written, and after how many steps; `None` if there is none.
    pub saved: Option<(Instant, usize)>,
    /// Its position.
    pub place: SavedPosition,
    pub written: CheckpointCost,
}

/// Returns the last measured score.
fn score(metrics: &[Metric]) -> Option<f64> {
    let mut measured = metrics.iter().rev();
    let score = measured.find(|m| fl_core::metrics::is_score(&m.name));
    score.map(|m| m.value)
}

/// Returns the bytes of an exchange, in both directions.
pub(crate) fn crossed(entry: &JournalEntry) -> u64 {
    let both = entry
        .bytes_up
        .total()
        .saturating_add(entry.bytes_down.total());
    both.saturating_add(entry.bytes_envelope)
}

impl Sim<'_> {
    /// Shows readers of the results something, if the run is watched.
    fn show(&mut self, what: &str, bytes: impl FnOnce(&Self) -> Result<Vec<u8>>) -> Result<()> {
        if self.watch.is_some() {
            let bytes = bytes(self)?;
            if let Some(watch) = &mut self.watch {
                watch(Observer::Readers, what, &bytes);
            }
        }
        Ok(())
    }

    /// Returns whether a checkpoint is due after `done` steps.
    fn due(&self, done: usize, place: StepPosition) -> bool {
        let due = match (self.saved, &self.checkpoints.every) {
            (None, _) => true,
            (Some((at, _)), CheckpointInterval::Seconds(s)) => at.elapsed().as_secs_f64() >= *s,
            (Some((_, then)), CheckpointInterval::Rounds(n)) => done >= then.saturating_add(*n),
        };
        match place {
            // little follows the last round, and a run could not be extended from a checkpoint
            // after it
            StepPosition::Last
                if self.checkpoints.keep && self.place == SavedPosition::BeforeLast =>
            {
                false
            }
            StepPosition::BeforeLast => due || self.checkpoints.keep,
            _ => due,
        }
    }

    /// Reserves the run's spending, once in a process.
    fn reserve(&mut self) -> Result<()> {
        if let Some(spending) = self.spending.as_mut().filter(|_| !self.reserved) {
            spending.reserve()?;
            self.reserved = true;
        }
        Ok(())
    }

    /// Records epsilon before a file of the run shows it.
    fn reached(&mut self, epsilons: Option<&Epsilons>) -> Result<()> {
        match (&mut self.spending, epsilons) {
            (Some(spending), Some(epsilons)) => spending.reached(epsilons),
            _ => Ok(()),
        }
    }

    /// Lets the clients answer, in any process.
    fn serve<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()> {
        if let Some(elsewhere) = &mut self.elsewhere {
            return elsewhere.ask(to, question, each);
        }
        let (protocol, wire) = (&self.protocol, self.wire);
        let (answers, done, asked) = (self.answers.as_ref(), self.done, self.asked);
        self.asked += 1;
        let since = self.saved.map_or(self.began, |(at, _)| at);
        // a shorter step costs no more than a checkpoint would save
        let long = match self.checkpoints.every {
            CheckpointInterval::Seconds(s) => Some(s),
            CheckpointInterval::Rounds(_) => None,
        };
        let work = |client: &mut ClientState| {
            let key = (done, asked, client.id());
            if let Some(answers) = answers
                && let Some(answer) = answers.get(key, client)?
            {
                return Ok(answer);
            }
            let question = question(client.id());
            let answer = match wire {
                true => over_the_wire(protocol.as_ref(), client, question),
                false => fl_core::answer(protocol.as_ref(), client, question),
            }?;
            let long = long.is_some_and(|s| since.elapsed().as_secs_f64() >= s);
            if let Some(answers) = answers.filter(|_| long) {
                answers.put(key, &answer, client);
            }
            Ok(answer)
        };
        let size = |answer: &Answer| answer.body.size();
        let each = &mut |id: ClientId, answer: Result<Answer>| {
            answers.map_or(Ok(()), PartialStep::sound)?;
            each(id, answer)
        };
        for_clients(&self.clients, to, self.threads, &work, &size, each)
    }

    pub fn seconds(&self) -> f64 {
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
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()> {
        self.reserve()?;
        let Some(mut watch) = self.watch.take() else {
            return self.serve(to, question, each);
        };
        for id in to {
            let question = question(*id);
            watch(
                Observer::Clients,
                question.label,
                &question.payload.encode(),
            );
        }
        let served = self.serve(to, question, &mut |id, answer| {
            let seen = match &answer {
                Ok(answer) => answer.seen()?,
                Err(error) => format!("{error:#}").into_bytes(),
            };
            watch(Observer::Server, &format!("answer of client {id}"), &seen);
            each(id, answer)
        });
        self.watch = Some(watch);
        served
    }

    fn score_clients(
        &mut self,
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        let (test, own) = (&self.test, &self.client_tests);
        let ids: Vec<ClientId> = self.roster.iter().map(|(id, _)| *id).collect();
        if let Some(elsewhere) = &mut self.elsewhere {
            return elsewhere.score(&ids, slot, each);
        }
        for_clients(
            &self.clients,
            &ids,
            self.threads,
            &|client| {
                let own = own.get(client.id() as usize);
                client.score(slot, own.unwrap_or(test))
            },
            &|_| 0,
            each,
        )
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

    fn progress(&mut self, step: &str, number: usize, of: usize) -> Result<()> {
        if let Some(after) = self.stopped.take() {
            return Err(Problem::Stopped { after }.into());
        }
        let accuracy = score(&self.metrics);
        (self.progress)(StepProgress {
            step,
            number,
            of,
            accuracy,
            bytes: self.crossed,
        });
        Ok(())
    }

    fn journal(&mut self, entry: &JournalEntry) -> Result<()> {
        self.reached(entry.privacy.as_ref())?;
        if let Some(folder) = &mut self.folder {
            folder.journal(entry)?;
        }
        self.crossed = self.crossed.saturating_add(crossed(entry));
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

    fn cost(&mut self, cost: &StepCost) -> Result<()> {
        self.reached(cost.privacy.as_ref())?;
        if let Some(folder) = &mut self.folder {
            folder.cost(cost)?;
        }
        self.cost = Some(cost.clone());
        Ok(())
    }

    fn may_end_rounds(&self) -> bool {
        self.stop_when.is_some() || self.on_step.is_some()
    }

    fn ends_rounds(&mut self, number: usize, of: usize) -> Result<bool> {
        let seconds = self.seconds();
        if let (Some(on_step), Some(cost)) = (&mut self.on_step, &self.cost) {
            let of_step = self.metrics.iter().rev();
            let metrics = of_step.take_while(|m| m.step == cost.step).count();
            let next = on_step(StepReport {
                number,
                of,
                metrics: &self.metrics[self.metrics.len() - metrics..],
                accuracy: score(&self.metrics),
                cost,
                seconds,
            });
            // the epsilon at a moment that results choose is no guarantee
            if next == Next::EndRounds && self.accounts {
                bail!(
                    "the rounds of a run with an accountant cannot be ended by what was measured: \
                     the epsilon of a number of rounds that follows from results is no guarantee; \
                     give it fewer rounds, or a `budget`"
                );
            }
            self.ending |= next == Next::EndRounds;
        }
        if !(1..of).contains(&number) {
            return Ok(false);
        }
        let rule = self.stop_when.as_ref();
        let why = match rule.and_then(|rule| rule.reason(&self.metrics)) {
            None if self.ending => "`on_step` ended the rounds".into(),
            None => return Ok(false),
            Some(why) => why,
        };
        self.warn(&format!("round {number} of {of} is the last: {why}"));
        Ok(true)
    }

    fn keep_model(&mut self, name: &str, model: &[u8]) -> Result<()> {
        self.show(name, |_| Ok(model.to_vec()))?;
        self.folder
            .as_ref()
            .map_or(Ok(()), |folder| folder.model(name, model))
    }

    fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        folder.picture(name, &picture(images, None)?)
    }

    fn keep_clients(
        &mut self,
        slot: &str,
        lost: &mut dyn FnMut(ClientId, anyhow::Error) -> Result<()>,
    ) -> Result<()> {
        if self.folder.is_none() && self.watch.is_none() {
            return Ok(());
        }
        if let Some(mut elsewhere) = self.elsewhere.take() {
            let ids: Vec<ClientId> = self.roster.iter().map(|(id, _)| *id).collect();
            let kept = elsewhere.models(&ids, slot, &mut |id, model| match model {
                Ok(model) => self.keep_model(&format!("{slot}-{id}"), &model),
                Err(error) => lost(id, error),
            });
            self.elsewhere = Some(elsewhere);
            return kept;
        }
        for id in self.clients.ids() {
            let model = self.clients.with(id, |client| client.model(slot)?.save())?;
            match model {
                Ok(model) => self.keep_model(&format!("{slot}-{id}"), &model)?,
                Err(error) => lost(id, error)?,
            }
        }
        Ok(())
    }

    fn warn(&mut self, text: &str) {
        if let Some(watch) = &mut self.watch {
            watch(Observer::Readers, "note", text.as_bytes());
        }
        (self.warn)(text);
        // notes at the start of a run repeat when it resumes
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.into());
        }
    }

    fn checkpoint(
        &mut self,
        done: usize,
        step: &str,
        place: StepPosition,
        server: &dyn Fn() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let stop =
            self.stop_after.is_some_and(|steps| done >= steps) || self.stop.load(Ordering::Relaxed);
        // after the last round there is nothing to resume
        let stop = stop && place != StepPosition::Last;
        let due = stop || self.due(done, place);
        (self.done, self.asked) = (done, 0);
        // not a note: a run's notes do not depend on the machine
        if let Some(held) = self.clients.passed() {
            (self.warn)(&held);
        }
        if let Some(folder) = self.folder.as_ref().filter(|_| due) {
            let began = Instant::now();
            let (clients, bytes) = self.clients.checkpoint()?;
            let elsewhere = self.elsewhere.as_ref();
            let saved = HostState {
                done,
                step,
                place,
                server: server()?,
                clients,
                elsewhere: elsewhere.map_or(Ok(Vec::new()), |e| e.save())?,
                seconds: self.seconds(),
                notes: &self.notes,
                written: self.written,
            };
            let state = folder.checkpoint(saved).context("writing a checkpoint")?;
            self.clients.tidy()?;
            if let Some(elsewhere) = &mut self.elsewhere {
                elsewhere.saved();
            }
            self.answers.as_ref().map_or(Ok(()), PartialStep::forget)?;
            self.written = CheckpointCost {
                times: self.written.times + 1,
                seconds: self.written.seconds + began.elapsed().as_secs_f64(),
                bytes: state + bytes,
            };
            (self.saved, self.place) = (Some((Instant::now(), done)), place.into());
        }
        // a run that ends with this step ends without a stop
        self.stopped = stop.then(|| step.into());
        Ok(())
    }
}

/// Answers as a client in another process would: every message takes its wire form, and the client
/// is rebuilt from its saved state.
fn over_the_wire(
    protocol: &dyn Protocol,
    client: &mut ClientState,
    question: Request<'_>,
) -> Result<Answer> {
    let sent = question.payload.encode();
    *client = client.rebuild()?;
    let question = Request::new(
        question.label,
        Payload::Wire(&sent),
        question.stream,
        question.needs,
    );
    fl_core::answer(protocol, client, question)?.over_the_wire()
}
