//! Servers: the run of a protocol.

use super::request::{
    HeldPart, Lent, RemoteSlots, Request, busy, held_model, message_in, say, stating,
};
use super::request_text::RequestText;
use super::selector::{give_positions, pool_of, with_pool};
use crate::ask::{ErrorText, LeadText};
use crate::caller::{Caller, Calls, Means};
use crate::context_json::RoundText;
use crate::data_sets::HandedOut;
use crate::host::{Answer, Answers};
use crate::library::link::ProgramPart;
use crate::library::{Host, Input};
use crate::marshal::{OutgoingMessage, content, plain};
use crate::marshal_data::{apart, bytes_named, numbered, samples_of, with_samples};
use crate::raw::*;
use anyhow::{Context, bail, ensure};
use fl_roles::__private::{
    Down, Exchanges, Form, ModelReader, Releases, Results, ServerCalls, SlotCalls, StepStart,
    StepVerdict, Steps,
};
use fl_roles::message::{
    AnyMessage, Erased, Message, MessageType, NamedTensors, Params, TensorMap, View,
};
use fl_roles::{
    AnyInbox, AnyPool, ClientId, ClientMessage, Cohort, Declaration, ExchangeSpec, Generator,
    Public, Result, Round, Samples, Serial, Server, SharedExecutor, Task, Trainer,
};
use ndarray::ArrayView1;
use serde::{Deserialize, Serialize};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of a step.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StepText {
    Skipped,
    /// The tensor `state` is the protocol's state.
    Restored,
    Attempt {
        round: RoundText,
        undoable: bool,
    },
    Done,
    Undone,
}

/// A server that is elsewhere.
pub(crate) struct RemoteServer {
    slots: RemoteSlots,
    filled: BTreeSet<String>,
    task: Task,
    everyone: Cohort,
    exchanges: Vec<ExchangeSpec>,
    rounds: Option<usize>,
}

/// The protocol's conversion of each answer, for the program.
struct FormBack<'f> {
    form: RefCell<Form<'f, ClientMessage<Erased>>>,
    of: &'static MessageType,
}

impl Answers for FormBack<'_> {
    fn answer(&self, _: u64, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        if operation != FL_FORM {
            return Ok(false);
        }
        let mail = input.mail(0, self.of)?;
        let formed = (self.form.borrow_mut())(mail)?;
        reply.tensors(&content(&*formed.body))?;
        reply.json(&formed)?;
        Ok(true)
    }
}

impl RemoteServer {
    pub fn new(program: &ProgramPart, text: LeadText, declared: Declaration<'_>) -> Self {
        Self {
            slots: RemoteSlots::new(program),
            filled: text.filled,
            task: text.task,
            everyone: text.everyone,
            rounds: declared.rounds,
            exchanges: declared.into_exchanges(),
        }
    }

    fn step(&self, answer: Answer) -> Result<(StepText, Option<Vec<u8>>)> {
        let text = self.slots.json(&answer)?;
        let mut parcel = TensorMap::new(answer.tensors);
        let state = parcel.has("state").then(|| parcel.bytes("state"));
        Ok((text, state.transpose()?))
    }
}

/// Returns the different messages to these clients, and the position of each client's message.
fn different<'d>(
    to: &[ClientId],
    down: Down<'_, 'd>,
) -> (Vec<&'d (dyn AnyMessage + 'static)>, Vec<usize>) {
    let (mut all, mut which) = (
        Vec::<&'d dyn AnyMessage>::new(),
        Vec::with_capacity(to.len()),
    );
    let mut places = BTreeMap::new();
    for id in to {
        let message = down(*id);
        let place = std::ptr::from_ref(message).cast::<()>().addr();
        // messages of no size may share a place, and are alike
        which.push(*places.entry(place).or_insert_with(|| {
            all.push(message);
            all.len() - 1
        }));
    }
    (all, which)
}

impl SlotCalls for RemoteServer {
    fn has(&self, slot: &str) -> bool {
        self.filled.contains(slot)
    }
    fn task(&self) -> &Task {
        &self.task
    }
    fn public(&self) -> Result<Option<Arc<Public>>> {
        self.slots.public().map(Some)
    }
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        self.slots.model(slot)
    }
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        self.slots.generator(slot)
    }
}

impl ServerCalls for RemoteServer {
    fn who(&self, slot: &str) -> Vec<String> {
        let who = self.slots.read(FL_WHO, stating().slot(slot), &[]);
        self.slots.keep(who).unwrap_or_default()
    }
    fn everyone(&self) -> Cohort {
        self.everyone.clone()
    }
    fn with_examples(&self, at_least: usize) -> Cohort {
        let text = stating().at_least(at_least);
        let those = self.slots.read(FL_WITH_EXAMPLES, text, &[]);
        let those = self.slots.keep(those);
        those.unwrap_or_else(|| self.everyone())
    }
    fn executor(&self) -> SharedExecutor {
        Arc::new(Serial)
    }
    fn exchange(&self, label: &str) -> Result<&ExchangeSpec> {
        ExchangeSpec::find(&self.exchanges, label)
    }
    fn aggregated(&mut self, label: &str) -> Result<&'static MessageType> {
        bail!("the program has the aggregator of `{label}`")
    }
    fn reader(&self, slot: &str) -> ModelReader {
        let reader = self.slots.read(FL_READER, stating().slot(slot), &[]);
        let reader: u64 = self.slots.keep(reader).unwrap_or_default();
        let program = self.slots.part(0);
        Box::new(move |client, bytes| {
            let text = stating().part(reader).client(client);
            let held = program.read(FL_READ, text, &[bytes_named("model", bytes)])?;
            held_model(&program, held)
        })
    }
    fn select(
        &mut self,
        slot: &str,
        round: &Round,
        pool: AnyPool<'_>,
    ) -> Result<Option<Vec<usize>>> {
        if !self.has(slot) {
            return Ok(None);
        }
        let name = pool.name();
        with_pool(self.slots.sets(), pool, |samples, tensors| {
            let text = stating()
                .slot(slot)
                .round(round)
                .pool(name)
                .samples(samples);
            let answer = self.slots.request(FL_SELECT, text, &[tensors])?;
            let picked = TensorMap::new(answer.tensors).list("positions")?;
            Ok(Some(picked.into_iter().map(|at| at as usize).collect()))
        })
    }
    fn cohort(
        &mut self,
        round: &Round,
        label: &str,
        model: Option<&(dyn AnyMessage + 'static)>,
    ) -> Result<Cohort> {
        let sent: Vec<_> = model.map(content).into_iter().collect();
        let text = stating().round(round).label(label);
        self.slots.read(FL_COHORT, text, &sent)
    }
    fn declared_rounds(&self) -> Option<usize> {
        self.rounds
    }
}

impl Exchanges for RemoteServer {
    fn collect(
        &mut self,
        round: &Round,
        label: &str,
        to: &[ClientId],
        down: Down<'_, '_>,
        each: Form<'_, ()>,
    ) -> Result<()> {
        let of = self.exchange(label)?.answer;
        let (messages, which) = different(to, down);
        let sent: Vec<_> = messages.iter().map(|m| content(*m)).collect();
        let text = stating().round(round).label(label).to(to).which(which);
        let answer = self.slots.request(FL_COLLECT, text, &sent)?;
        let mail: Vec<ClientMessage<()>> = self.slots.json(&answer)?;
        let bodies = apart(answer.tensors, mail.len())?;
        for (mail, body) in mail.into_iter().zip(bodies) {
            let client = format!("client {}", mail.from);
            each(mail.try_map(|()| of.from_tensors(body).context(client))?)?;
        }
        Ok(())
    }
    fn run(
        &mut self,
        round: &Round,
        label: &str,
        cohort: &Cohort,
        down: Down<'_, '_>,
        form: Option<Form<'_, ClientMessage<Erased>>>,
    ) -> Result<Erased> {
        let of = self.exchange(label)?.answer;
        let (mut messages, which) = different(cohort, down);
        messages.extend(round.sent_any());
        let tensors: Vec<_> = messages.iter().map(|m| content(*m)).collect();
        let letters: Vec<_> = tensors.iter().map(OutgoingMessage::new).collect();
        let stated = stating().round(round).label(label).which(which);
        let stated = stated.cohort(cohort.clone()).forms(form.is_some());
        let text = stated.shown(round.sent_any().map(|sent| sent.kind().into()));
        let back = form.map(|form| FormBack {
            form: RefCell::new(form),
            of,
        });
        let means = Means {
            answers: back.as_ref().map(|back| back as &dyn Answers),
            ..Means::default()
        };
        message_in(self.slots.call_with(FL_RUN, text, &letters, means)?)
    }
    fn aggregate(&mut self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        self.slots.aggregate(slot, round, inbox)
    }
}

impl Releases for RemoteServer {
    fn release(
        &mut self,
        label: &str,
        round: &Round,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()> {
        let text = stating().label(label).round(round).clip(clip);
        let text = text.cohort(cohort.clone());
        self.slots.replace(FL_RELEASE, text, message)
    }
    fn clip(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        self.slots.replace(FL_CLIP, stating().slot(slot), message)
    }
    fn affords(&mut self, slot: &str, message: &dyn AnyMessage, cohort: &Cohort) -> Result<()> {
        let text = stating().slot(slot).kind(message.kind());
        let (text, sent) = (text.cohort(cohort.clone()), [content(message)]);
        self.slots.request(FL_AFFORDS, text, &sent).map(drop)
    }
    fn wants_range(&self, slot: &str, of: &'static MessageType) -> Result<bool> {
        let text = stating().slot(slot).kind(of.kind);
        self.slots.read(FL_WANTS_RANGE, text, &[])
    }
}

impl Steps for RemoteServer {
    fn begin_step(&mut self, name: &str, number: usize, of: usize) -> Result<StepStart> {
        let text = stating().name(name).number(number).of(of);
        let answer = self.slots.request(FL_BEGIN_STEP, text, &[])?;
        Ok(match self.step(answer)? {
            (StepText::Attempt { round, undoable }, _) => StepStart::Attempt {
                round: round.with_stream(Arc::new(Serial))?,
                undoable,
            },
            (StepText::Restored, state) => StepStart::Restored(state.context("no state came")?),
            _ => StepStart::Skipped,
        })
    }
    fn judge_step(&mut self, outcome: Result<()>) -> Result<StepVerdict> {
        let failed = outcome.err().map(|error| ErrorText::of(&error));
        let text = stating().failed(failed);
        let answer = self.slots.request(FL_JUDGE_STEP, text, &[])?;
        Ok(match self.step(answer)?.0 {
            StepText::Attempt { round, undoable } => StepVerdict::Again {
                round: round.with_stream(Arc::new(Serial))?,
                undoable,
            },
            StepText::Undone => StepVerdict::Undone,
            _ => StepVerdict::Done,
        })
    }
    fn finish_step(&mut self, state: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        let state = state()?;
        let state = bytes_named("state", &state);
        let done = self.slots.request(FL_FINISH_STEP, stating(), &[state]);
        done.map(drop)
    }
}

/// Names the clients, if not all are meant.
fn of_clients(text: RequestText, of: Option<&[ClientId]>) -> RequestText {
    match of {
        Some(clients) => text.to(clients),
        None => text,
    }
}

impl Results for RemoteServer {
    fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()> {
        self.slots
            .done(FL_EVALUATE, stating().slot(slot).round(round))
    }
    fn evaluate_clients(
        &mut self,
        round: &Round,
        slot: &str,
        shared: Option<&Params>,
        of: Option<&[ClientId]>,
    ) -> Result<()> {
        let text = of_clients(stating().slot(slot).round(round), of);
        let sent: Vec<NamedTensors<'_>> = shared.into_iter().map(Message::tensors).collect();
        let done = self.slots.request(FL_EVALUATE_CLIENTS, text, &sent);
        done.map(drop)
    }
    fn evaluate_for_clients(
        &mut self,
        round: &Round,
        slot: &str,
        models: &[Params],
        whose: &[usize],
    ) -> Result<Vec<f64>> {
        let text = stating().slot(slot).round(round).whose(whose);
        let sent: Vec<NamedTensors<'_>> = models.iter().map(Message::tensors).collect();
        let answer = self.slots.request(FL_EVALUATE_FOR_CLIENTS, text, &sent)?;
        let mut parcel = TensorMap::new(answer.tensors);
        Ok(parcel.f64("scores")?.iter().copied().collect())
    }
    fn record(&mut self, round: &Round, name: &str, value: f64) -> Result<()> {
        let text = stating().round(round).name(name).value(Some(value));
        self.slots.done(FL_RECORD, text)
    }
    fn record_each(&mut self, round: &Round, name: &str, each: Vec<f64>) -> Result<()> {
        let each: Vec<_> = each.into_iter().map(Some).collect();
        let text = stating().round(round).name(name).each(each);
        self.slots.done(FL_RECORD_EACH, text)
    }
    fn keep_model(&mut self, slot: &str, name: &str) -> Result<()> {
        self.slots
            .done(FL_KEEP_MODEL, stating().slot(slot).name(name))
    }
    fn keep_generator(&mut self, slot: &str) -> Result<()> {
        self.slots.done(FL_KEEP_GENERATOR, stating().slot(slot))
    }
    fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()> {
        with_samples(self.slots.sets(), images, |samples, tensors| {
            let text = stating().name(name).samples(samples);
            self.slots
                .request(FL_KEEP_IMAGES, text, &[tensors])
                .map(drop)
        })
    }
    fn keep_clients(&mut self, slot: &str, of: Option<&[ClientId]>) -> Result<()> {
        self.slots
            .done(FL_KEEP_CLIENTS, of_clients(stating().slot(slot), of))
    }
    fn warn(&mut self, text: &str) {
        let done = self.slots.done(FL_WARN, stating().text(text));
        self.slots.keep(done);
    }
}

/// A server that is here, while a protocol leads.
pub(crate) struct LocalServer<'s, 'h> {
    server: RefCell<&'s mut Server<'h>>,
    exchanges: &'s [ExchangeSpec],
    lent: Lent,
}

impl<'s, 'h> LocalServer<'s, 'h> {
    pub fn new(server: &'s mut Server<'h>, exchanges: &'s [ExchangeSpec]) -> Self {
        Self {
            lent: Lent::new(HandedOut::new(
                Vec::new(),
                server.calls().public().ok().flatten(),
            )),
            server: RefCell::new(server),
            exchanges,
        }
    }

    fn exchange(&self, label: &str) -> Result<&'s ExchangeSpec> {
        ExchangeSpec::find(self.exchanges, label)
    }
}

/// Returns the messages that an exchange sends.
fn sent(spec: &ExchangeSpec, n: usize, input: &Input<'_>) -> Result<Vec<Erased>> {
    (0..n)
        .map(|at| input.message_of(at, spec.request))
        .collect()
}

/// Returns the message to each client.
fn to_each<'m>(
    to: &[ClientId],
    which: &[usize],
    messages: &'m [Erased],
) -> Result<BTreeMap<ClientId, &'m (dyn AnyMessage + 'static)>> {
    ensure!(
        to.len() == which.len() && which.iter().all(|at| *at < messages.len()),
        "the protocol sends {} messages to {} of {} clients",
        messages.len(),
        which.len(),
        to.len()
    );
    let all = to.iter().zip(which);
    Ok(all.map(|(id, at)| (*id, &*messages[*at])).collect())
}

fn step(reply: &Host<'_>, round: &Round, undoable: bool) -> Result<()> {
    let round = RoundText::from(round);
    reply.json(&StepText::Attempt { round, undoable })
}

impl Answers for LocalServer<'_, '_> {
    fn answer(
        &self,
        part: u64,
        operation: u32,
        input: &Input<'_>,
        reply: &Host<'_>,
    ) -> Result<bool> {
        let lent = &self.lent;
        let server = || self.server.try_borrow_mut().map_err(|_| busy());
        let slots = || Ok(RefMut::map(server()?, |server| server.calls() as _));
        if let Some(done) = lent.serve((part, operation), input, reply, slots)? {
            return Ok(done);
        }
        let mut server = server()?;
        let server = server.calls();
        let request = Request::read(input)?;
        let round = |server: &dyn ServerCalls| -> Result<Round> {
            request.round()?.with_stream(server.executor())
        };
        match operation {
            FL_WHO => reply.json(&server.who(request.slot()?))?,
            FL_WITH_EXAMPLES => reply.json(&server.with_examples(*request.at_least()?))?,
            FL_READER => {
                let reader = server.reader(request.slot()?);
                reply.json(&lent.held.keep(HeldPart::Reader(reader))?)?;
            }
            FL_SELECT => {
                let (slot, round) = (request.slot()?, round(server)?);
                let (pool, samples) = (request.pool()?, request.samples()?);
                let picked = pool_of(&lent.sets, pool, samples, input.parcel(0)?, |pool| {
                    server.select(slot, &round, pool)
                })?;
                give_positions(reply, picked.unwrap_or_default())?;
            }
            FL_COHORT => {
                let (round, label) = (round(server)?, request.label()?);
                let messages = sent(self.exchange(label)?, input.messages().len(), input)?;
                let model = messages.first().map(|model| &**model);
                reply.json(&server.cohort(&round, label, model)?)?;
            }
            FL_COLLECT => {
                let (round, label, to) = (round(server)?, request.label()?, request.to()?);
                let messages = sent(self.exchange(label)?, input.messages().len(), input)?;
                let each = to_each(to, request.which()?, &messages)?;
                let mut mail = Vec::with_capacity(to.len());
                server.collect(&round, label, to, &|id| each[&id], &mut |one| {
                    let body = content(&*one.body);
                    reply.tensors(&numbered(mail.len(), body))?;
                    mail.push(one.try_map(|_| Ok(()))?);
                    Ok(())
                })?;
                reply.json(&mail)?;
            }
            FL_RUN => {
                let round = request.round_showing(server.executor(), input)?;
                let (label, cohort) = (request.label()?, request.cohort()?);
                let messages = sent(self.exchange(label)?, request.messages(input), input)?;
                let each = to_each(cohort, request.which()?, &messages)?;
                let into = server.aggregated(label)?;
                let mut form = |mail: ClientMessage<Erased>| form(reply, mail, into);
                let form: Option<Form<'_, _>> = match request.forms()? {
                    true => Some(&mut form),
                    false => None,
                };
                say(
                    reply,
                    &*server.run(&round, label, cohort, &|id| each[&id], form)?,
                )?;
            }
            FL_AGGREGATE => {
                let round = request.round_showing(server.executor(), input)?;
                let inbox = request.inbox(input)?;
                say(reply, &*server.aggregate(request.slot()?, &round, &*inbox)?)?;
            }
            FL_RELEASE => {
                let (label, round) = (request.label()?, round(server)?);
                let (cohort, clip) = (request.cohort()?, *request.clip()?);
                request.change(input, reply, |message| {
                    server.release(label, &round, message, cohort, clip)
                })?;
            }
            FL_CLIP => {
                let slot = request.slot()?;
                request.change(input, reply, |message| server.clip(slot, message))?;
            }
            FL_AFFORDS => {
                let message = request.message(input)?;
                server.affords(request.slot()?, &*message, request.cohort()?)?;
            }
            FL_WANTS_RANGE => {
                let of = request.message_type()?;
                reply.json(&server.wants_range(request.slot()?, of)?)?;
            }
            FL_BEGIN_STEP => {
                let (name, number) = (request.name()?, *request.number()?);
                match server.begin_step(name, number, *request.of()?)? {
                    StepStart::Skipped => reply.json(&StepText::Skipped)?,
                    StepStart::Restored(state) => {
                        reply.tensors(&bytes_named("state", &state))?;
                        reply.json(&StepText::Restored)?;
                    }
                    StepStart::Attempt { round, undoable } => step(reply, &round, undoable)?,
                }
            }
            FL_JUDGE_STEP => {
                let failed = request.failed();
                let outcome = failed.map_or(Ok(()), |failed| Err(failed.error()));
                match server.judge_step(outcome)? {
                    StepVerdict::Done => reply.json(&StepText::Done)?,
                    StepVerdict::Undone => reply.json(&StepText::Undone)?,
                    StepVerdict::Again { round, undoable } => step(reply, &round, undoable)?,
                }
            }
            FL_FINISH_STEP => {
                let state = input.parcel(0)?.bytes("state")?;
                server.finish_step(&|| Ok(state.clone()))?;
            }
            FL_EVALUATE => server.evaluate(&round(server)?, request.slot()?)?,
            FL_EVALUATE_CLIENTS => {
                let shared = input.messages().first().map(|_| input.message(0));
                let shared: Option<Params> = shared.transpose()?;
                let (round, of) = (round(server)?, request.to().ok().map(Vec::as_slice));
                server.evaluate_clients(&round, request.slot()?, shared.as_ref(), of)?;
            }
            FL_EVALUATE_FOR_CLIENTS => {
                let (round, slot) = (round(server)?, request.slot()?);
                let models = (0..input.messages().len()).map(|at| input.message(at));
                let models = models.collect::<Result<Vec<Params>>>()?;
                let scores =
                    server.evaluate_for_clients(&round, slot, &models, request.whose()?)?;
                let scores = View::F64(ArrayView1::from(&scores).into_dyn());
                reply.tensors(&vec![("scores".into(), scores)])?;
            }
            FL_RECORD => {
                let value = request.value().unwrap_or(f64::NAN);
                server.record(&round(server)?, request.name()?, value)?;
            }
            FL_RECORD_EACH => {
                let each = request
                    .each()?
                    .iter()
                    .map(|value| value.unwrap_or(f64::NAN));
                server.record_each(&round(server)?, request.name()?, each.collect())?;
            }
            FL_KEEP_MODEL => server.keep_model(request.slot()?, request.name()?)?,
            FL_KEEP_GENERATOR => server.keep_generator(request.slot()?)?,
            FL_KEEP_IMAGES => {
                let images = samples_of(&lent.sets, request.samples()?, &mut input.parcel(0)?)?;
                server.keep_images(request.name()?, &images)?;
            }
            FL_KEEP_CLIENTS => {
                server.keep_clients(request.slot()?, request.to().ok().map(Vec::as_slice))?;
            }
            FL_WARN => server.warn(&plain(request.text()?)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns the protocol's conversion of an answer.
fn form(
    reply: &Host<'_>,
    mail: ClientMessage<Erased>,
    into: &'static MessageType,
) -> Result<ClientMessage<Erased>> {
    let answer = {
        let tensors = content(&*mail.body);
        reply.ask_back(FL_FORM, "", OutgoingMessage::of(&mail, &tensors))?
    };
    let envelope: ClientMessage<()> = answer.json()?;
    envelope.try_map(|()| into.from_tensors(TensorMap::new(answer.tensors)))
}
