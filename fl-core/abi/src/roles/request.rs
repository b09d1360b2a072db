//! What a protocol asks the program in the middle of its calls: what its server and its client have
//! in common.

pub(super) use super::request_text::Request;
pub(crate) use super::request_text::{RequestText, stating};

use super::generator::RemoteGenerator;
use super::trainer::RemoteTrainer;
use super::{generator, mechanism, selector, trainer};
use crate::caller::{Caller, Calls, Means};
use crate::data_sets::HandedOut;
use crate::host::Answer;
use crate::library::link::ProgramPart;
use crate::library::{Host, Input};
use crate::marshal::{OutgoingMessage, content, shorter, with_inbox_letters};
use crate::marshal_data::{
    PublicText, bytes_named, examples_of, public_of, samples_of, with_public, with_target,
};
use crate::marshal_samples::with_values;
use crate::operations::is_lent;
use crate::raw::*;
use anyhow::{Context, anyhow, bail, ensure};
use fl_roles::__private::{ModelReader, SlotCalls};
use fl_roles::message::{
    AnyMessage, Erased, MessageType, NamedTensors, TensorMap, View, message_type,
};
use fl_roles::{
    AnyInbox, AnyMechanism, AnySelector, Generator, Public, Result, Role, Round, SharedExecutor,
    Trainer,
};
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

impl Request {
    pub fn read(input: &Input<'_>) -> Result<Self> {
        input.json().map(Self)
    }

    /// The type of its messages.
    pub fn message_type(&self) -> Result<&'static MessageType> {
        let kind = self.kind()?;
        message_type(kind).with_context(|| format!("no message is called `{kind}`"))
    }

    /// Its message.
    pub fn message(&self, input: &Input<'_>) -> Result<Erased> {
        input.message_of(0, self.message_type()?)
    }

    /// Lets `f` change its message, which is the answer.
    pub fn change(
        &self,
        input: &Input<'_>,
        reply: &Host<'_>,
        f: impl FnOnce(&mut dyn AnyMessage) -> Result<()>,
    ) -> Result<()> {
        let mut message = self.message(input)?;
        f(&mut *message)?;
        say(reply, &*message)
    }

    /// Its round, with the message that it shows.
    pub fn round_showing(&self, exec: SharedExecutor, input: &Input<'_>) -> Result<Round> {
        let round = self.round()?.with_stream(exec)?;
        let Some(kind) = self.shown() else {
            return Ok(round);
        };
        let of = message_type(&kind).with_context(|| format!("no message is called `{kind}`"))?;
        let last = input.messages().len().checked_sub(1);
        let last = last.context("the round announces a sent message, but the call has none")?;
        Ok(round.showing_any(input.message_of(last, of)?.into()))
    }

    /// How many messages it has, beside the one that its round shows.
    pub fn messages(&self, input: &Input<'_>) -> usize {
        let shown = usize::from(self.shown().is_some());
        input.messages().len().saturating_sub(shown)
    }

    /// The inbox that it has.
    pub fn inbox(&self, input: &Input<'_>) -> Result<Box<dyn AnyInbox>> {
        let of = self.message_type()?;
        let mail = (0..self.messages(input)).map(|at| input.mail(at, of));
        of.inbox(mail.collect::<Result<_>>()?)
    }
}

impl ProgramPart {
    /// Sends a request to the program, with messages of these tensors.
    pub fn request(
        &self,
        operation: u32,
        text: RequestText,
        messages: &[NamedTensors<'_>],
    ) -> Result<Answer> {
        let text = serde_json::to_string(&text)?;
        self.must(operation, &text, messages, Means::default())
    }

    /// As [`ProgramPart::request`], with envelopes.
    pub fn call_with(
        &self,
        operation: u32,
        text: RequestText,
        letters: &[OutgoingMessage<'_, '_>],
        means: Means<'_>,
    ) -> Result<Answer> {
        let text = serde_json::to_string(&text)?;
        self.due(
            operation,
            Caller::call(self, operation, &text, letters, means)?,
        )
    }

    /// Sends a request that gives nothing.
    pub fn done(&self, operation: u32, text: RequestText) -> Result<()> {
        self.request(operation, text, &[]).map(drop)
    }

    /// Sends a request, and reads the text of its answer.
    pub fn read<T: DeserializeOwned>(
        &self,
        operation: u32,
        text: RequestText,
        messages: &[NamedTensors<'_>],
    ) -> Result<T> {
        self.json(&self.request(operation, text, messages)?)
    }

    /// Sends a request, and returns the bytes of this name in its answer; `None` if there are none.
    pub fn bytes(&self, operation: u32, text: RequestText, name: &str) -> Result<Option<Vec<u8>>> {
        let mut parcel = TensorMap::new(self.request(operation, text, &[])?.tensors);
        parcel.has(name).then(|| parcel.bytes(name)).transpose()
    }

    /// Replaces a message by the program's answer.
    pub fn replace(
        &self,
        operation: u32,
        text: RequestText,
        message: &mut dyn AnyMessage,
    ) -> Result<()> {
        let text = text.kind(message.kind());
        let answer = self.request(operation, text, &[content(message)])?;
        message.become_other(self.message_of(answer, message.message_type())?)
    }
}

/// The slots and public data of the program, for a protocol's server or client.
pub(super) struct RemoteSlots {
    program: ProgramPart,
    models: BTreeMap<String, RemoteTrainer>,
    generators: BTreeMap<String, RemoteGenerator>,
    public: OnceLock<Arc<Public>>,
}

impl Deref for RemoteSlots {
    type Target = ProgramPart;
    fn deref(&self) -> &ProgramPart {
        &self.program
    }
}

impl RemoteSlots {
    pub fn new(program: &ProgramPart) -> Self {
        Self {
            program: program.part(0),
            models: BTreeMap::new(),
            generators: BTreeMap::new(),
            public: OnceLock::new(),
        }
    }

    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(match self.models.entry(slot.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let number = self.program.read(FL_MODEL, stating().slot(slot), &[])?;
                let part = self.program.part(number);
                new.insert(RemoteTrainer::new(Box::new(part), None)?)
            }
        })
    }

    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(match self.generators.entry(slot.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let text = stating().slot(slot);
                let number = self.program.read(FL_GENERATOR, text, &[])?;
                let (remote, input) = (Box::new(self.program.part(number)), None);
                new.insert(RemoteGenerator { remote, input })
            }
        })
    }

    /// Returns the public data, fetched at most once.
    pub fn public(&self) -> Result<Arc<Public>> {
        if let Some(known) = self.public.get() {
            return Ok(known.clone());
        }
        let answer = self.request(FL_PUBLIC, stating(), &[])?;
        let text: PublicText = self.json(&answer)?;
        let public = Arc::new(public_of(self.sets(), &text, answer.tensors)?);
        Ok(self.public.get_or_init(|| public).clone())
    }

    /// Combines an inbox by the aggregator in `slot` of the program.
    pub fn aggregate(&self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let shown = round.sent_any();
        let stated = stating().slot(slot).round(round);
        let text = stated
            .kind(inbox.message_type().kind)
            .shown(shown.map(|sent| sent.kind().into()));
        message_in(with_inbox_letters(inbox, shown, |letters| {
            self.call_with(FL_AGGREGATE, text, letters, Means::default())
        })?)
    }
}

/// Returns the message in an answer, whose text is its kind.
pub(super) fn message_in(answer: Answer) -> Result<Erased> {
    let kind: String = answer.json()?;
    let of = message_type(&kind);
    let of =
        of.with_context(|| format!("no message is called `{kind}`; register it with `messages!`"))?;
    of.from_tensors(TensorMap::new(answer.tensors))
}

/// Makes a model that the protocol holds by this number.
pub(super) fn held_model(program: &ProgramPart, number: u64) -> Result<Box<dyn Trainer>> {
    let model = RemoteTrainer::new(Box::new(program.held(number)), None)?;
    let model = Box::new(model);
    program.hold(&*model, number);
    Ok(model)
}

/// The most parts that a protocol may hold at once.
const HELD: usize = 100_000;

/// A part of the program that a protocol has a number for.
pub(super) enum HeldPart {
    /// The model in a slot.
    Model(String),
    /// The generator in a slot.
    Generator(String),
    /// A model in no slot.
    Trainer(Box<dyn Trainer>),
    /// A selector out of its slot.
    Selector(Box<dyn AnySelector>),
    /// A mechanism out of its slot.
    Mechanism(Box<dyn AnyMechanism>),
    /// What reads models that clients send.
    Reader(ModelReader),
}

/// The parts of the program that a protocol has numbers for, from 1.
#[derive(Default)]
pub(super) struct Held {
    last: Cell<u64>,
    all: RefCell<BTreeMap<u64, HeldPart>>,
}

impl Held {
    /// Keeps a part, and says its number.
    pub fn keep(&self, part: HeldPart) -> Result<u64> {
        let mut all = self.all.borrow_mut();
        ensure!(all.len() < HELD, "a protocol holds more than {HELD} parts");
        let number = self.last.get() + 1;
        self.last.set(number);
        all.insert(number, part);
        Ok(number)
    }

    fn take(&self, number: u64) -> Result<HeldPart> {
        let part = self.all.borrow_mut().remove(&number);
        part.with_context(|| format!("the protocol holds no such part ({number}), or is using it"))
    }

    /// Takes a part out that `of` accepts; another one stays.
    fn take_as<T>(
        &self,
        number: u64,
        what: &str,
        of: impl FnOnce(HeldPart) -> Result<T, HeldPart>,
    ) -> Result<T> {
        of(self.take(number)?).map_err(|other| {
            self.all.borrow_mut().insert(number, other);
            anyhow!("the part {number} is no {what}")
        })
    }

    pub fn trainer(&self, number: u64) -> Result<Box<dyn Trainer>> {
        self.take_as(number, "model out of a slot", |part| match part {
            HeldPart::Trainer(part) => Ok(part),
            other => Err(other),
        })
    }

    pub fn selector(&self, number: u64) -> Result<Box<dyn AnySelector>> {
        self.take_as(number, "selector", |part| match part {
            HeldPart::Selector(part) => Ok(part),
            other => Err(other),
        })
    }

    pub fn mechanism(&self, number: u64) -> Result<Box<dyn AnyMechanism>> {
        self.take_as(number, "mechanism", |part| match part {
            HeldPart::Mechanism(part) => Ok(part),
            other => Err(other),
        })
    }

    /// Runs `f` with a part; meanwhile the protocol may use other parts.
    pub fn with<R>(&self, number: u64, f: impl FnOnce(&mut HeldPart) -> Result<R>) -> Result<R> {
        let mut part = self.take(number)?;
        let out = f(&mut part);
        self.all.borrow_mut().insert(number, part);
        out
    }
}

/// What the program lends to a protocol during a call: parts, by number, and data.
pub(super) struct Lent {
    pub held: Held,
    pub sets: HandedOut,
}

impl Lent {
    pub fn new(sets: HandedOut) -> Self {
        Self {
            held: Held::default(),
            sets,
        }
    }

    /// Does an operation with a part that the protocol has a number for.
    fn serve_part<'b, 's: 'b>(
        &self,
        (number, operation): (u64, u32),
        input: &Input<'_>,
        reply: &Host<'_>,
        slots: impl FnOnce() -> Result<RefMut<'b, dyn SlotCalls + 's>>,
    ) -> Result<bool> {
        let sets = &self.sets;
        self.held.with(number, |part| {
            let lent = |role| is_lent(operation, role);
            match part {
                HeldPart::Trainer(of) if lent(Role::Trainer) => {
                    trainer::serve(&mut **of, sets, operation, input, reply)
                }
                HeldPart::Selector(of) if lent(Role::Selector) => {
                    selector::serve(&mut **of, sets, operation, input, reply)
                }
                HeldPart::Mechanism(of) if lent(Role::Privacy) => {
                    mechanism::serve(&mut **of, operation, input, reply)
                }
                HeldPart::Model(slot) if lent(Role::Trainer) => {
                    trainer::serve(slots()?.model(slot)?, sets, operation, input, reply)
                }
                HeldPart::Generator(slot) if lent(Role::Generator) => {
                    generator::serve(slots()?.generator(slot)?, sets, operation, input, reply)
                }
                _ => Ok(false),
            }
        })
    }

    /// Does an operation with a part, or one of those that a server and a client have alike;
    /// `None`: it is none of them. It takes `slots`, which may be in use, only if it needs them.
    pub fn serve<'b, 's: 'b>(
        &self,
        (part, operation): (u64, u32),
        input: &Input<'_>,
        reply: &Host<'_>,
        slots: impl FnOnce() -> Result<RefMut<'b, dyn SlotCalls + 's>>,
    ) -> Result<Option<bool>> {
        if part != 0 {
            let done = self.serve_part((part, operation), input, reply, slots);
            return done.map(Some);
        }
        let (sets, request) = (&self.sets, || Request::read(input));
        match operation {
            FL_PUBLIC => {
                request()?;
                let public = Public::required(slots()?.public()?)?;
                with_public(sets, &public, |text, tensors| {
                    reply.tensors(&tensors)?;
                    reply.json(&text)
                })?;
            }
            FL_MODEL => {
                let slot = request()?.slot()?.clone();
                slots()?.model(&slot)?;
                reply.json(&self.held.keep(HeldPart::Model(slot))?)?;
            }
            FL_GENERATOR => {
                let slot = request()?.slot()?.clone();
                slots()?.generator(&slot)?;
                reply.json(&self.held.keep(HeldPart::Generator(slot))?)?;
            }
            FL_DROP => drop(self.held.take(*request()?.part()?)),
            FL_INPUTS => {
                let inputs = sets.inputs(*request()?.set()?)?;
                reply.tensors(&bytes_named("set", &postcard::to_stdvec(&*inputs)?))?;
            }
            FL_LABELS => {
                let request = request()?;
                let labels = sets.labels_of(*request.set()?, *request.at()?)?;
                reply.tensors(&bytes_named("set", &postcard::to_stdvec(&*labels)?))?;
            }
            FL_VALUES => {
                let x = samples_of(sets, &input.json()?, &mut input.parcel(0)?)?;
                with_values(&x, |values| {
                    reply.tensors(&vec![("values".into(), View::F32(values))])
                })?;
            }
            FL_TARGETS => {
                let of = examples_of(sets, &input.json()?, &mut input.parcel(0)?)?;
                with_target(&of.target().view(), |kind, view| {
                    reply.tensors(&vec![("target".into(), shorter(&view))])?;
                    reply.json(&kind)
                })?;
            }
            FL_READ => {
                let (request, model) = (request()?, input.parcel(0)?.bytes("model")?);
                let (reader, client) = (*request.part()?, *request.client()?);
                let model = self.held.with(reader, |part| match part {
                    HeldPart::Reader(read) => read(client, &model),
                    _ => bail!("the part {reader} reads no models"),
                })?;
                reply.json(&self.held.keep(HeldPart::Trainer(model))?)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(true))
    }
}

pub(super) fn say(reply: &Host<'_>, message: &dyn AnyMessage) -> Result<()> {
    reply.tensors(&content(message))?;
    reply.json(&message.kind())
}

/// The error of a request that needs a server or client in use by another request.
pub(super) fn busy() -> anyhow::Error {
    anyhow!("the protocol made this call inside another of its calls")
}
