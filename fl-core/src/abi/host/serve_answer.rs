//! The program's answers while a client of a loaded protocol answers.

use super::call::Answers;
use super::serve_parts::{
    Held, ask_generator, ask_held, ask_model, asked, busy, bytes, inbox, number, positions,
    round_of, say, say_public, type_of, with_pool,
};
use crate::abi::ask::{Ask, PartAsk};
use crate::abi::data_sets::HandedOut;
use crate::abi::library::{Host, Input};
use crate::abi::marshal::plain;
use crate::abi::marshal_data::{examples_of, with_examples};
use crate::client::calls::{ClientCalls, private};
use crate::message::View;
use crate::{AnyMechanism, AnySelector, Client, Examples, Result, Serial, Stream, Trainer};
use anyhow::bail;
use ndarray::ArrayView1;
use std::cell::RefCell;
use std::sync::Arc;

/// The program's side while a client of a protocol answers.
pub(super) struct AnswerSide<'c> {
    client: RefCell<&'c mut Client>,
    models: Held<Box<dyn Trainer>>,
    selectors: Held<Box<dyn AnySelector>>,
    mechanisms: Held<Box<dyn AnyMechanism>>,
    sets: HandedOut,
}

impl<'c> AnswerSide<'c> {
    pub fn new(client: &'c mut Client) -> Self {
        Self {
            sets: HandedOut::new(Some(client.own()), client.calls().public().ok().flatten()),
            client: RefCell::new(client),
            models: Held::default(),
            selectors: Held::default(),
            mechanisms: Held::default(),
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
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let Some(ask) = asked(operation, input)? else {
            return Ok(false);
        };
        let sets = &self.sets;
        match &ask {
            Ask::ClipHeld { mechanism, kind } => {
                let mut message = input.message_of(0, type_of(kind)?)?;
                self.mechanisms
                    .with(*mechanism, |part| part.clip(&mut *message))?;
                say(reply, &*message)?;
                return Ok(true);
            }
            Ask::NormBoundHeld { mechanism } => {
                let bound = self
                    .mechanisms
                    .with(*mechanism, |part| Ok(part.norm_bound()))?;
                reply.json(&bound)?;
                return Ok(true);
            }
            Ask::SelectorFit { selector, own, key } => {
                let own = examples_of(sets, own, &mut input.parcel(0)?)?;
                let stream = Stream::from_key(*key);
                self.selectors
                    .with(*selector, |part| part.fit(&own, &stream))?;
                return Ok(true);
            }
            Ask::SelectorNeedsScores { selector } => {
                let needs = self.selectors.with(*selector, |s| Ok(s.needs_scores()))?;
                reply.json(&needs)?;
                return Ok(true);
            }
            Ask::SelectorSelect {
                selector,
                round,
                pool,
                samples,
            } => {
                let round = round.clone().round(Arc::new(Serial));
                let picked = with_pool(sets, pool, samples.as_ref(), input.parcel(0)?, |pool| {
                    self.selectors.with(*selector, |s| s.select(&round, pool))
                })?;
                positions(reply, picked)?;
                return Ok(true);
            }
            Ask::SelectorRank {
                selector,
                pool,
                samples,
            } => {
                let ranks = with_pool(sets, pool, samples.as_ref(), input.parcel(0)?, |pool| {
                    self.selectors.with(*selector, |s| s.rank(pool))
                })?;
                if let Some(ranks) = ranks {
                    let ranks = View::F64(ArrayView1::from(&ranks).into_dyn());
                    reply.tensors(&vec![("ranks".into(), ranks)])?;
                }
                return Ok(true);
            }
            other if ask_held(sets, &self.models, other, input, reply)? => return Ok(true),
            _ => {}
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
            Ask::Model {
                of: PartAsk::Slot(slot),
                what,
            } => ask_model(sets, client.model(&slot)?, what, input, reply)?,
            Ask::Generator { slot, what } => {
                ask_generator(sets, client.generator(&slot)?, what, input, reply)?;
            }
            Ask::NewModel { slot, index } => {
                reply.json(&self.models.keep(client.new_model(&slot, index)?)?)?;
            }
            Ask::SetModel { slot, model } => client.set_model(&slot, self.models.take(model)?),
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
                reply.json(&(self.selectors.keep(selector)?, pool))?;
            }
            Ask::PutSelector { slot, selector } => {
                client.put_selector(&slot, self.selectors.take(selector)?);
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
                reply.json(&(self.mechanisms.keep(mechanism)?, steps))?;
            }
            Ask::DrawLot { at } => reply.json(&client.draw_lot(at)?)?,
            Ask::ReleaseStep {
                at,
                mechanism,
                kind,
            } => {
                let mut seen = input.message_of(0, type_of(&kind)?)?;
                self.mechanisms.with(mechanism, |mechanism| {
                    client.release_step(at, &mut *seen, mechanism.as_mut())
                })?;
                say(reply, &*seen)?;
            }
            Ask::EndSteps { slot, mechanism } => {
                client.end_steps(&slot, self.mechanisms.take(mechanism)?);
            }
            other => bail!("a client cannot be asked for {other:?}"),
        }
        Ok(true)
    }
}
