//! Clients: whose data and parts a protocol's answer uses.

use super::mechanism::RemoteMechanism;
use super::request::{
    HeldPart, Lent, RemoteSlots, Request, RequestText, busy, held_model, say, stating,
};
use super::selector::RemoteSelector;
use crate::ask::AnswerText;
use crate::caller::{Caller, Calls};
use crate::data_sets::HandedOut;
use crate::host::Answers;
use crate::library::link::ProgramPart;
use crate::library::{Host, Input};
use crate::marshal::{content, plain};
use crate::marshal_data::{ExamplesAsk, bytes_named, examples_of, with_examples};
use crate::raw::*;
use anyhow::{anyhow, bail};
use fl_roles::__private::{ClientCalls, SlotCalls, private};
use fl_roles::message::{AnyMessage, Erased, TensorMap};
use fl_roles::{
    AnyInbox, AnyMechanism, AnySelector, Client, ClientId, Examples, Generator, Inputs, Labels,
    Public, Result, Round, Serial, Stream, Task, Trainer,
};
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A client that is elsewhere.
pub(crate) struct RemoteClient {
    slots: RemoteSlots,
    id: ClientId,
    now: Stream,
    facts: Arc<AnswerText>,
    own: OnceLock<Examples>,
    /// The selectors that are out of their slots.
    selectors: BTreeMap<String, u64>,
    /// The mechanism that releases the steps of the current training.
    mechanism: u64,
}

impl RemoteClient {
    pub fn new(program: &ProgramPart, id: ClientId, now: Stream, facts: &Arc<AnswerText>) -> Self {
        Self {
            slots: RemoteSlots::new(program),
            id,
            now,
            facts: facts.clone(),
            own: OnceLock::new(),
            selectors: BTreeMap::new(),
            mechanism: 0,
        }
    }

    fn done(&self, operation: u32, text: RequestText) {
        self.slots.keep(self.slots.done(operation, text));
    }

    fn fetch(&self, operation: u32) -> Result<Examples> {
        let answer = self.slots.request(operation, stating(), &[])?;
        let ask: ExamplesAsk = self.slots.json(&answer)?;
        let mut parcel = TensorMap::new(answer.tensors);
        examples_of(self.slots.sets(), &ask, &mut parcel)
    }
}

impl SlotCalls for RemoteClient {
    fn has(&self, slot: &str) -> bool {
        self.facts.filled.contains(slot)
    }
    fn task(&self) -> &Task {
        &self.facts.task
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

impl ClientCalls for RemoteClient {
    fn id(&self) -> ClientId {
        self.id
    }
    fn own(&self) -> &Examples {
        self.own.get_or_init(|| {
            let own = self.slots.keep(self.fetch(FL_OWN));
            // the error that is kept ends the answer
            let nothing = || {
                let (shape, data) = (self.facts.task.input.clone(), Vec::new());
                let (of, classes) = (Vec::new(), self.facts.task.kind.classes());
                let labels = Labels::Classes { of, classes };
                Examples::all(Arc::new(Inputs::Dense { shape, data }), Arc::new(labels))
            };
            own.unwrap_or_else(|| nothing().expect("no labels for no rows"))
        })
    }
    fn held_out(&self) -> Result<Examples> {
        self.fetch(FL_HELD_OUT)
    }
    fn now(&self) -> &Stream {
        &self.now
    }
    fn round_number(&self) -> usize {
        self.facts.round
    }
    fn draw_private(&mut self, slot: &str) -> Result<()> {
        self.slots.done(FL_DRAW_PRIVATE, stating().slot(slot))
    }
    fn note(&mut self, text: String) {
        self.done(FL_NOTE, stating().text(text));
    }
    fn measure(&mut self, name: &str, value: f64) {
        self.done(FL_MEASURE, stating().name(name).value(Some(value)));
    }
    fn new_model(&self, slot: &str, index: u64) -> Result<Box<dyn Trainer>> {
        let text = stating().slot(slot).index(index);
        let held = self.slots.read(FL_NEW_MODEL, text, &[])?;
        held_model(&self.slots, held)
    }
    fn set_model(&mut self, slot: &str, model: Box<dyn Trainer>) {
        match self.slots.number_of(&*model) {
            Some(model) => self.done(FL_SET_MODEL, stating().slot(slot).part(model)),
            None => {
                let why = anyhow!("`set_model` was given another model than `new_model` gave");
                self.slots.keep::<()>(Err(why));
            }
        }
    }
    fn fitted(&mut self, loss: Option<f64>) {
        self.done(FL_FITTED, stating().value(loss));
    }
    fn aggregate(&mut self, slot: &str, round: Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        self.slots.aggregate(slot, &round, inbox)
    }
    fn take_selector(&mut self, slot: &str) -> Result<Box<dyn AnySelector>> {
        let text = stating().slot(slot);
        let (held, pool): (u64, String) = self.slots.read(FL_TAKE_SELECTOR, text, &[])?;
        self.selectors.insert(slot.into(), held);
        let selector = Box::new(self.slots.part(held));
        Ok(Box::new(RemoteSelector::new(selector, &pool)?))
    }
    fn put_selector(&mut self, slot: &str, _: Box<dyn AnySelector>) {
        let selector = self.selectors.remove(slot).unwrap_or_default();
        self.done(FL_PUT_SELECTOR, stating().slot(slot).part(selector));
    }
    fn stash(&mut self, name: &str, bytes: Vec<u8>) {
        let kept = bytes_named("kept", &bytes);
        let kept = self.slots.request(FL_STASH, stating().name(name), &[kept]);
        self.slots.keep(kept);
    }
    fn stashed(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.slots.bytes(FL_STASHED, stating().name(name), "kept")
    }
    fn unstash(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        self.slots.bytes(FL_UNSTASH, stating().name(name), "kept")
    }
    fn cache(&mut self, name: &str, message: &dyn AnyMessage) {
        let text = stating().name(name).kind(message.kind());
        let kept = self.slots.request(FL_CACHE, text, &[content(message)]);
        self.slots.keep(kept);
    }
    fn cached(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        self.slots.bytes(FL_CACHED, stating().name(name), "kept")
    }
    fn range(&mut self, slot: &str, message: &dyn AnyMessage) -> Result<Option<f32>> {
        let text = stating().slot(slot).kind(message.kind());
        self.slots.read(FL_RANGE, text, &[content(message)])
    }
    fn clip(
        &mut self,
        slot: &str,
        message: &mut dyn AnyMessage,
        agreed: Option<f32>,
    ) -> Result<()> {
        let text = stating().slot(slot).agreed(agreed.map(f64::from));
        self.slots.replace(FL_CLIP, text, message)
    }
    fn release(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        self.slots
            .replace(FL_RELEASE, stating().slot(slot), message)
    }
    fn begin_steps(
        &mut self,
        slot: &str,
        like: &mut dyn AnyMessage,
    ) -> Result<(Box<dyn AnyMechanism>, usize)> {
        let text = stating().slot(slot).kind(like.kind());
        let sent = [content(like)];
        let (held, steps): (u64, usize) = self.slots.read(FL_BEGIN_STEPS, text, &sent)?;
        self.mechanism = held;
        let mechanism = RemoteMechanism {
            remote: Box::new(self.slots.part(held)),
            on: like.message_type(),
        };
        Ok((Box::new(mechanism), steps))
    }
    fn draw_lot(&mut self, at: usize) -> Result<Vec<usize>> {
        self.slots.read(FL_DRAW_LOT, stating().at(at), &[])
    }
    fn release_step(
        &mut self,
        at: usize,
        seen: &mut dyn AnyMessage,
        _: &mut dyn AnyMechanism,
    ) -> Result<()> {
        let text = stating().at(at).part(self.mechanism);
        self.slots.replace(FL_RELEASE_STEP, text, seen)
    }
    fn end_steps(&mut self, slot: &str, _: Box<dyn AnyMechanism>) {
        self.done(FL_END_STEPS, stating().slot(slot).part(self.mechanism));
    }
}

/// A client that is here, while it answers.
pub(crate) struct LocalClient<'c> {
    client: RefCell<&'c mut Client>,
    lent: Lent,
}

impl<'c> LocalClient<'c> {
    /// A client that answers an exchange which uses held-out rows or not.
    pub fn new(client: &'c mut Client, uses_held_out: bool) -> Self {
        let public = client.calls().public().ok().flatten();
        let held_out = uses_held_out.then(|| client.held_out());
        let own = [client.own().clone()].into_iter();
        let own = own.chain(held_out.and_then(Result::ok));
        Self {
            lent: Lent::new(HandedOut::new(own.collect(), public)),
            client: RefCell::new(client),
        }
    }

    fn say_examples(&self, of: &Examples, reply: &Host<'_>) -> Result<()> {
        with_examples(&self.lent.sets, of, |ask, tensors| {
            reply.tensors(&tensors)?;
            reply.json(&ask)
        })
    }
}

impl Answers for LocalClient<'_> {
    fn answer(
        &self,
        part: u64,
        operation: u32,
        input: &Input<'_>,
        reply: &Host<'_>,
    ) -> Result<bool> {
        let lent = &self.lent;
        let client = || self.client.try_borrow_mut().map_err(|_| busy());
        let slots = || Ok(RefMut::map(client()?, |client| client.calls_mut() as _));
        if let Some(done) = lent.serve((part, operation), input, reply, slots)? {
            return Ok(done);
        }
        let mut client = client()?;
        let client: &mut dyn ClientCalls = client.calls_mut();
        let request = Request::read(input)?;
        let kept = |kept: Option<Vec<u8>>| match kept {
            Some(kept) => reply.tensors(&bytes_named("kept", &kept)),
            None => Ok(()),
        };
        match operation {
            FL_OWN => self.say_examples(client.own(), reply)?,
            FL_HELD_OUT => self.say_examples(&client.held_out()?, reply)?,
            FL_PRIVATE => self.say_examples(&private(client, request.slot()?)?, reply)?,
            FL_DRAW_PRIVATE => client.draw_private(request.slot()?)?,
            FL_NOTE => client.note(plain(request.text()?)),
            FL_MEASURE => client.measure(request.name()?, request.value().unwrap_or(f64::NAN)),
            FL_NEW_MODEL => {
                let model = client.new_model(request.slot()?, *request.index()?)?;
                reply.json(&lent.held.keep(HeldPart::Trainer(model))?)?;
            }
            FL_SET_MODEL => {
                client.set_model(request.slot()?, lent.held.trainer(*request.part()?)?);
            }
            FL_FITTED => client.fitted(request.value()),
            FL_AGGREGATE => {
                let round = request.round_showing(Arc::new(Serial), input)?;
                let inbox = request.inbox(input)?;
                say(reply, &*client.aggregate(request.slot()?, round, &*inbox)?)?;
            }
            FL_TAKE_SELECTOR => {
                let selector = client.take_selector(request.slot()?)?;
                let pool = selector.pool();
                reply.json(&(lent.held.keep(HeldPart::Selector(selector))?, pool))?;
            }
            FL_PUT_SELECTOR => {
                client.put_selector(request.slot()?, lent.held.selector(*request.part()?)?);
            }
            FL_STASH => client.stash(request.name()?, input.parcel(0)?.bytes("kept")?),
            FL_STASHED => kept(client.stashed(request.name()?)?)?,
            FL_UNSTASH => kept(client.unstash(request.name()?)?)?,
            FL_CACHE => client.cache(request.name()?, &*request.message(input)?),
            FL_CACHED => kept(client.cached(request.name()?)?)?,
            FL_RANGE => {
                let message = request.message(input)?;
                reply.json(&client.range(request.slot()?, &*message)?)?;
            }
            FL_CLIP => {
                let (slot, agreed) = (request.slot()?, request.agreed().map(|a| a as f32));
                request.change(input, reply, |message| client.clip(slot, message, agreed))?;
            }
            FL_RELEASE => {
                let slot = request.slot()?;
                request.change(input, reply, |message| client.release(slot, message))?;
            }
            FL_BEGIN_STEPS => {
                let mut like = request.message(input)?;
                let (mechanism, steps) = client.begin_steps(request.slot()?, &mut *like)?;
                let number = lent.held.keep(HeldPart::Mechanism(mechanism))?;
                reply.json(&(number, steps))?;
            }
            FL_DRAW_LOT => reply.json(&client.draw_lot(*request.at()?)?)?,
            FL_RELEASE_STEP => {
                let (at, number) = (*request.at()?, *request.part()?);
                request.change(input, reply, |seen| {
                    lent.held.with(number, |part| match part {
                        HeldPart::Mechanism(of) => client.release_step(at, seen, &mut **of),
                        _ => bail!("the part {number} is no mechanism"),
                    })
                })?;
            }
            FL_END_STEPS => {
                client.end_steps(request.slot()?, lent.held.mechanism(*request.part()?)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
