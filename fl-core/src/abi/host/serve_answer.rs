//! The program's answers while a client of a loaded protocol answers.

use super::call::Answers;
use super::serve_parts::{
    Held, HeldPart, InSlot, ask_held, asked, busy, bytes, inbox, number, round_of, say, say_public,
    serve_part, type_of,
};
use crate::abi::ask::Ask;
use crate::abi::data_sets::HandedOut;
use crate::abi::library::{Host, Input};
use crate::abi::marshal::plain;
use crate::abi::marshal_data::with_examples;
use crate::client::calls::{ClientCalls, private};
use crate::{Client, Examples, Result, Serial};
use anyhow::bail;
use std::cell::RefCell;
use std::sync::Arc;

/// The program's side while a client of a protocol answers.
pub(super) struct AnswerSide<'c> {
    client: RefCell<&'c mut Client>,
    held: Held,
    sets: HandedOut,
}

impl<'c> AnswerSide<'c> {
    pub fn new(client: &'c mut Client) -> Self {
        Self {
            sets: HandedOut::new(Some(client.own()), client.calls().public().ok().flatten()),
            client: RefCell::new(client),
            held: Held::default(),
        }
    }
}

fn say_examples(sets: &HandedOut, of: &Examples, reply: &Host<'_>) -> Result<()> {
    with_examples(sets, of, |ask, tensors| {
        reply.tensors(&tensors)?;
        reply.json(&ask)
    })
}

impl Answers for AnswerSide<'_> {
    fn answer(
        &self,
        part: u64,
        operation: u32,
        input: &Input<'_>,
        reply: &Host<'_>,
    ) -> Result<bool> {
        let (sets, held) = (&self.sets, &self.held);
        if part != 0 {
            let asked = (part, operation);
            return serve_part(held, sets, asked, input, reply, |slot, serve| {
                let mut client = self.client.try_borrow_mut().map_err(|_| busy())?;
                let client: &mut dyn ClientCalls = client.calls_mut();
                match slot {
                    HeldPart::Model(slot) => serve(InSlot::Model(client.model(slot)?)),
                    HeldPart::Generator(slot) => serve(InSlot::Generator(client.generator(slot)?)),
                    _ => Ok(false),
                }
            });
        }
        let Some(ask) = asked(operation, input)? else {
            return Ok(false);
        };
        if ask_held(sets, held, &ask, input, reply)? {
            return Ok(true);
        }
        let mut client = self.client.try_borrow_mut().map_err(|_| busy())?;
        let client: &mut dyn ClientCalls = client.calls_mut();
        let kept = |kept: Option<Vec<u8>>| match kept {
            Some(kept) => bytes(reply, "kept", &kept),
            None => Ok(()),
        };
        match ask {
            Ask::Own => say_examples(sets, client.own(), reply)?,
            Ask::Private { slot } => say_examples(sets, &private(client, &slot)?, reply)?,
            Ask::Public => say_public(sets, client.public()?, reply)?,
            Ask::DrawPrivate { slot } => client.draw_private(&slot)?,
            Ask::Note { text } => client.note(plain(&text)),
            Ask::Measure { name, value } => client.measure(&name, number(value)),
            Ask::Model { slot } => {
                client.model(&slot)?;
                reply.json(&held.keep(HeldPart::Model(slot))?)?;
            }
            Ask::Generator { slot } => {
                client.generator(&slot)?;
                reply.json(&held.keep(HeldPart::Generator(slot))?)?;
            }
            Ask::NewModel { slot, index } => {
                let model = client.new_model(&slot, index)?;
                reply.json(&held.keep(HeldPart::Trainer(model))?)?;
            }
            Ask::SetModel { slot, model } => client.set_model(&slot, held.trainer(model)?),
            Ask::Fitted { loss } => client.fitted(loss),
            Ask::Aggregate {
                slot,
                round,
                kind,
                shown,
            } => {
                let round = round_of(round, Arc::new(Serial), shown.as_deref(), input)?;
                let inbox = inbox(&kind, shown.is_some(), input)?;
                say(reply, &*client.aggregate(&slot, round, &*inbox)?)?;
            }
            Ask::TakeSelector { slot } => {
                let selector = client.take_selector(&slot)?;
                let pool = selector.pool();
                reply.json(&(held.keep(HeldPart::Selector(selector))?, pool))?;
            }
            Ask::PutSelector { slot, selector } => {
                client.put_selector(&slot, held.selector(selector)?);
            }
            Ask::Stash { name } => {
                client.stash(&name, input.parcel(0)?.bytes("kept")?);
            }
            Ask::Stashed { name } => kept(client.stashed(&name)?)?,
            Ask::Unstash { name } => kept(client.unstash(&name)?)?,
            Ask::Cache { name, kind } => {
                client.cache(&name, &*input.message_of(0, type_of(&kind)?)?);
            }
            Ask::Cached { name } => kept(client.cached(&name)?)?,
            Ask::Range { slot, kind } => {
                let message = input.message_of(0, type_of(&kind)?)?;
                reply.json(&client.range(&slot, &*message)?)?;
            }
            Ask::Clip { slot, kind, agreed } => {
                let mut message = input.message_of(0, type_of(&kind)?)?;
                client.clip(&slot, &mut *message, agreed.map(|a| a as f32))?;
                say(reply, &*message)?;
            }
            Ask::ReleaseHere { slot, kind } => {
                let mut message = input.message_of(0, type_of(&kind)?)?;
                client.release(&slot, &mut *message)?;
                say(reply, &*message)?;
            }
            Ask::BeginSteps { slot, kind } => {
                let mut like = input.message_of(0, type_of(&kind)?)?;
                let (mechanism, steps) = client.begin_steps(&slot, &mut *like)?;
                let number = held.keep(HeldPart::Mechanism(mechanism))?;
                reply.json(&(number, steps))?;
            }
            Ask::DrawLot { at } => reply.json(&client.draw_lot(at)?)?,
            Ask::ReleaseStep {
                at,
                mechanism,
                kind,
            } => {
                let mut seen = input.message_of(0, type_of(&kind)?)?;
                held.with(mechanism, |part| match part {
                    HeldPart::Mechanism(of) => client.release_step(at, &mut *seen, &mut **of),
                    _ => bail!("the part {mechanism} is no mechanism"),
                })?;
                say(reply, &*seen)?;
            }
            Ask::EndSteps { slot, mechanism } => {
                client.end_steps(&slot, held.mechanism(mechanism)?);
            }
            other => bail!("a client cannot be asked for {other:?}"),
        }
        Ok(true)
    }
}
