//! The program's answers to what a loaded protocol asks of its parts and data, on either side.

use crate::abi::ask::{Ask, RoundAsk};
use crate::abi::data_sets::{HandedOut, KnownSets};
use crate::abi::library::{Host, Input};
use crate::abi::marshal::{content, shorter};
use crate::abi::marshal_data::{bytes_named, examples_of, samples_of, with_public, with_target};
use crate::abi::marshal_samples::with_values;
use crate::abi::operations::is_lent;
use crate::abi::raw::FL_ASK;
use crate::abi::roles::{generator, mechanism, selector, trainer};
use crate::message::{AnyMessage, MessageType, View, message_type};
use crate::server::calls::ModelReader;
use crate::{
    AnyMechanism, AnySelector, Generator, Public, Result, Role, Round, SharedExecutor, Trainer,
};
use anyhow::{Context, anyhow, ensure};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// What is in a slot.
pub(super) enum InSlot<'p> {
    Model(&'p mut dyn Trainer),
    Generator(&'p mut dyn Generator),
}

/// Does an operation with a part that the protocol has a number for. `in_slot` runs a function with
/// what is in a slot of the side that the protocol has.
pub(super) fn serve_part(
    held: &Held,
    sets: &HandedOut,
    (number, operation): (u64, u32),
    input: &Input<'_>,
    reply: &Host<'_>,
    in_slot: impl FnOnce(&HeldPart, &mut dyn FnMut(InSlot<'_>) -> Result<bool>) -> Result<bool>,
) -> Result<bool> {
    held.with(number, |part| {
        let role = match part {
            HeldPart::Model(_) | HeldPart::Trainer(_) => Role::Trainer,
            HeldPart::Generator(_) => Role::Generator,
            HeldPart::Selector(_) => Role::Selector,
            HeldPart::Mechanism(_) => Role::Privacy,
            HeldPart::Reader(_) => return Ok(false),
        };
        if !is_lent(operation, role) {
            return Ok(false);
        }
        match part {
            HeldPart::Trainer(of) => trainer::serve(&mut **of, sets, operation, input, reply),
            HeldPart::Selector(of) => selector::serve(&mut **of, sets, operation, input, reply),
            HeldPart::Mechanism(of) => mechanism::serve(&mut **of, operation, input, reply),
            slot => in_slot(slot, &mut |found| match found {
                InSlot::Model(of) => trainer::serve(of, sets, operation, input, reply),
                InSlot::Generator(of) => generator::serve(of, sets, operation, input, reply),
            }),
        }
    })
}

/// Returns the type of messages of this kind.
pub(super) fn type_of(kind: &str) -> Result<&'static MessageType> {
    message_type(kind).with_context(|| format!("no message is called `{kind}`"))
}

pub(super) fn say(reply: &Host<'_>, message: &dyn AnyMessage) -> Result<()> {
    reply.tensors(&content(message))?;
    reply.json(&message.kind())
}

pub(super) fn bytes(reply: &Host<'_>, name: &'static str, bytes: &[u8]) -> Result<()> {
    reply.tensors(&bytes_named(name, bytes))
}

pub(super) fn number(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

/// Answers the request for the public data.
pub(super) fn say_public(
    sets: &dyn KnownSets,
    public: Option<Arc<Public>>,
    reply: &Host<'_>,
) -> Result<()> {
    with_public(sets, &*Public::required(public)?, |text, tensors| {
        reply.tensors(&tensors)?;
        reply.json(&text)
    })
}

/// Answers the requests that need neither server nor client, which may be in use. Returns whether
/// it was one.
pub(super) fn ask_held(
    sets: &HandedOut,
    held: &Held,
    ask: &Ask,
    input: &Input<'_>,
    reply: &Host<'_>,
) -> Result<bool> {
    match ask {
        Ask::Drop { held: number } => drop(held.take(*number)),
        Ask::Inputs { number } => {
            bytes(reply, "set", &postcard::to_stdvec(&*sets.inputs(*number)?)?)?;
        }
        Ask::Labels { number, at } => {
            let labels = sets.labels_of(*number, *at)?;
            bytes(reply, "set", &postcard::to_stdvec(&*labels)?)?;
        }
        Ask::Values { x } => {
            let x = samples_of(sets, x, &mut input.parcel(0)?)?;
            with_values(&x, |values| {
                reply.tensors(&vec![("values".into(), View::F32(values))])
            })?;
        }
        Ask::Targets { of } => {
            let of = examples_of(sets, of, &mut input.parcel(0)?)?;
            with_target(&of.target().view(), |kind, view| {
                reply.tensors(&vec![("target".into(), shorter(&view))])?;
                reply.json(&kind)
            })?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

pub(super) fn asked(operation: u32, input: &Input<'_>) -> Result<Option<Ask>> {
    match operation {
        FL_ASK => input.json().map(Some),
        _ => Ok(None),
    }
}

/// The error of a request that needs a server or client in use by another request.
pub(super) fn busy() -> anyhow::Error {
    anyhow::anyhow!("the protocol made this call inside another of its calls")
}

/// Returns the round of a request, with the message that it shows.
pub(super) fn round_of(
    ask: RoundAsk,
    exec: SharedExecutor,
    shown: Option<&str>,
    input: &Input<'_>,
) -> Result<Round> {
    let round = ask.round(exec);
    let Some(kind) = shown else { return Ok(round) };
    let last = input.messages().len().checked_sub(1);
    let last = last.context("the round announces a sent message, but the call has none")?;
    Ok(round.showing_any(input.message_of(last, type_of(kind)?)?.into()))
}

/// Returns the inbox of this kind that the protocol sent; `shown`: without the last message.
pub(super) fn inbox(
    kind: &str,
    shown: bool,
    input: &Input<'_>,
) -> Result<Box<dyn crate::AnyInbox>> {
    let of = type_of(kind)?;
    let n = input.messages().len() - usize::from(shown);
    let mail = (0..n).map(|at| input.mail_at(at, of));
    of.inbox(mail.collect::<Result<_>>()?)
}
