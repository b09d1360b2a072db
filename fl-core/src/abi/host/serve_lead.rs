//! The program's answers while a loaded protocol leads.

use super::call::Answers;
use super::serve_parts::{
    Held, HeldPart, InSlot, ask_held, asked, busy, bytes, inbox, number, round_of, say, say_public,
    serve_part, type_of,
};
use crate::abi::ask::{Ask, AskBack, MailText, RoundAsk, StepText};
use crate::abi::data_sets::HandedOut;
use crate::abi::library::link::{ask_back, read};
use crate::abi::library::{Host, Input};
use crate::abi::marshal::{OutgoingMessage, content, plain};
use crate::abi::marshal_data::{numbered, samples_of};
use crate::abi::roles::selector::{give_positions, pool_of};
use crate::message::{AnyMessage, Erased, MessageType, Params, TensorMap, View};
use crate::server::calls::{ServerCalls, StepStart, StepVerdict};
use crate::{ClientId, ClientMessage, ExchangeSpec, Result, Round, Server};
use anyhow::{bail, ensure};
use ndarray::ArrayView1;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The program's side while a protocol leads.
pub(super) struct LeadSide<'s, 'h> {
    server: RefCell<&'s mut Server<'h>>,
    exchanges: &'s [ExchangeSpec],
    held: Held,
    sets: HandedOut,
}

impl<'s, 'h> LeadSide<'s, 'h> {
    pub fn new(server: &'s mut Server<'h>, exchanges: &'s [ExchangeSpec]) -> Self {
        Self {
            sets: HandedOut::new(None, server.0.public().ok().flatten()),
            server: RefCell::new(server),
            exchanges,
            held: Held::default(),
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

fn step(reply: &Host<'_>, round: Round, undoable: bool) -> Result<()> {
    let round = RoundAsk::of(&round);
    reply.json(&StepText::Attempt { round, undoable })
}

impl Answers for LeadSide<'_, '_> {
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
                let mut server = self.server.try_borrow_mut().map_err(|_| busy())?;
                let server = &mut *server.0;
                match slot {
                    HeldPart::Model(slot) => serve(InSlot::Model(server.model(slot)?)),
                    HeldPart::Generator(slot) => serve(InSlot::Generator(server.generator(slot)?)),
                    _ => Ok(false),
                }
            });
        }
        let Some(ask) = asked(operation, input)? else {
            return Ok(false);
        };
        // parts that the protocol holds do not need the server, which may be in use
        match &ask {
            Ask::Read { reader, client } => {
                let model = input.parcel(0)?.bytes("model")?;
                let model = held.with(*reader, |part| match part {
                    HeldPart::Reader(read) => read(*client, &model),
                    _ => bail!("the part {reader} reads no models"),
                })?;
                reply.json(&held.keep(HeldPart::Trainer(model))?)?;
                return Ok(true);
            }
            other if ask_held(sets, held, other, input, reply)? => return Ok(true),
            _ => {}
        }
        let mut server = self.server.try_borrow_mut().map_err(|_| busy())?;
        let server = &mut *server.0;
        let bare = |round: RoundAsk, server: &dyn ServerCalls| round.round(server.executor());
        match ask {
            Ask::Who { slot } => reply.json(&server.who(&slot))?,
            Ask::WithExamples { at_least } => {
                reply.json(&server.with_examples(at_least))?;
            }
            Ask::Public => say_public(sets, server.public()?, reply)?,
            Ask::Model { slot } => {
                server.model(&slot)?;
                reply.json(&held.keep(HeldPart::Model(slot))?)?;
            }
            Ask::Generator { slot } => {
                server.generator(&slot)?;
                reply.json(&held.keep(HeldPart::Generator(slot))?)?;
            }
            Ask::Reader { slot } => {
                let reader = server.reader(&slot);
                reply.json(&held.keep(HeldPart::Reader(reader))?)?;
            }
            Ask::Select {
                slot,
                round,
                pool,
                samples,
            } => {
                let round = bare(round, server);
                let picked = pool_of(sets, &pool, &samples, input.parcel(0)?, |pool| {
                    server.select(&slot, &round, pool)
                })?;
                give_positions(reply, picked.unwrap_or_default())?;
            }
            Ask::Cohort { round, label } => {
                let round = bare(round, server);
                let messages = sent(self.exchange(&label)?, input.messages().len(), input)?;
                let model = messages.first().map(|model| &**model);
                reply.json(&server.cohort(&round, &label, model)?)?;
            }
            Ask::Collect {
                round,
                label,
                to,
                which,
            } => {
                let round = bare(round, server);
                let messages = sent(self.exchange(&label)?, input.messages().len(), input)?;
                let each = to_each(&to, &which, &messages)?;
                let mut mail = Vec::with_capacity(to.len());
                server.collect(&round, &label, &to, &|id| each[&id], &mut |one| {
                    let body = content(&*one.body);
                    reply.tensors(&numbered(mail.len(), body))?;
                    mail.push(MailText::of(&one));
                    Ok(())
                })?;
                reply.json(&mail)?;
            }
            Ask::Run {
                round,
                label,
                cohort,
                which,
                shown,
                forms,
            } => {
                let round = round_of(round, server.executor(), shown.as_deref(), input)?;
                let spec = self.exchange(&label)?;
                let n = input.messages().len() - usize::from(shown.is_some());
                let messages = sent(spec, n, input)?;
                let each = to_each(&cohort, &which, &messages)?;
                let into = server.aggregated(&label)?;
                let mut form = |mail: ClientMessage<Erased>| form(reply, mail, into);
                let out = server.run(
                    &round,
                    &label,
                    &cohort,
                    &|id| each[&id],
                    match forms {
                        true => Some(&mut form),
                        false => None,
                    },
                )?;
                say(reply, &*out)?;
            }
            Ask::Aggregate {
                slot,
                round,
                kind,
                shown,
            } => {
                let round = round_of(round, server.executor(), shown.as_deref(), input)?;
                let inbox = inbox(&kind, shown.is_some(), input)?;
                say(reply, &*server.aggregate(&slot, &round, &*inbox)?)?;
            }
            Ask::Release {
                label,
                round,
                kind,
                cohort,
                clip,
            } => {
                let round = bare(round, server);
                let mut message = input.message_of(0, type_of(&kind)?)?;
                server.release(&label, &round, &mut *message, &cohort, clip)?;
                say(reply, &*message)?;
            }
            Ask::Clip { slot, kind, .. } => {
                let mut message = input.message_of(0, type_of(&kind)?)?;
                server.clip(&slot, &mut *message)?;
                say(reply, &*message)?;
            }
            Ask::Affords { slot, kind, cohort } => {
                let message = input.message_of(0, type_of(&kind)?)?;
                server.affords(&slot, &*message, &cohort)?;
            }
            Ask::WantsRange { slot, kind } => {
                reply.json(&server.wants_range(&slot, type_of(&kind)?)?)?;
            }
            Ask::BeginStep { name, number, of } => match server.begin_step(&name, number, of)? {
                StepStart::Skipped => reply.json(&StepText::Skipped)?,
                StepStart::Restored(state) => {
                    bytes(reply, "state", &state)?;
                    reply.json(&StepText::Restored)?;
                }
                StepStart::Attempt { round, undoable } => step(reply, round, undoable)?,
            },
            Ask::JudgeStep { failed } => {
                let outcome = failed.map_or(Ok(()), |failed| Err(failed.error()));
                match server.judge_step(outcome)? {
                    StepVerdict::Done => reply.json(&StepText::Done)?,
                    StepVerdict::Undone => reply.json(&StepText::Undone)?,
                    StepVerdict::Again { round, undoable } => step(reply, round, undoable)?,
                }
            }
            Ask::FinishStep => {
                let state = input.parcel(0)?.bytes("state")?;
                server.finish_step(&|| Ok(state.clone()))?;
            }
            Ask::Evaluate { slot, round } => server.evaluate(&bare(round, server), &slot)?,
            Ask::EvaluateClients { slot, round } => {
                server.evaluate_clients(&bare(round, server), &slot)?;
            }
            Ask::EvaluateForClients { slot, round, whose } => {
                let round = bare(round, server);
                let n = input.messages().len();
                let models = (0..n).map(|at| input.message(at));
                let models = models.collect::<Result<Vec<Params>>>()?;
                let scores = server.evaluate_for_clients(&round, &slot, &models, &whose)?;
                let scores = View::F64(ArrayView1::from(&scores).into_dyn());
                reply.tensors(&vec![("scores".into(), scores)])?;
            }
            Ask::Record { round, name, value } => {
                server.record(&bare(round, server), &name, number(value))?;
            }
            Ask::RecordEach { round, name, each } => {
                let each = each.into_iter().map(number).collect();
                server.record_each(&bare(round, server), &name, each)?;
            }
            Ask::KeepModel { slot, name } => server.keep_model(&slot, &name)?,
            Ask::KeepGenerator { slot } => server.keep_generator(&slot)?,
            Ask::KeepImages { name, samples: of } => {
                server.keep_images(&name, &samples_of(sets, &of, &mut input.parcel(0)?)?)?;
            }
            Ask::KeepClients { slot } => server.keep_clients(&slot)?,
            Ask::Warn { text } => server.warn(&plain(&text)),
            other => bail!("a server cannot be asked for {other:?}"),
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
        ask_back(reply, &AskBack::Form, OutgoingMessage::of(&mail, &tensors))?
    };
    let envelope: MailText = read(&answer)?;
    Ok(envelope.with(into.from_tensors(TensorMap::new(answer.tensors))?))
}
