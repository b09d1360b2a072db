//! [`RemoteServer`]: the server of a loaded protocol.

use super::call_context::{Host, Input};
use super::link::{Link, asked_back, read};
use super::remote_parts::{RemoteSlots, held_model, message_in};
use crate::abi::ask::{Ask, AskBack, ErrorText, LeadText, MailText, RoundAsk, StepText};
use crate::abi::host::{Answer, Answers};
use crate::abi::marshal::{OutgoingMessage, content};
use crate::abi::marshal_data::{apart, bytes_named, with_samples};
use crate::abi::roles::selector::with_pool;
use crate::message::{AnyMessage, Erased, Message, MessageType, NamedTensors, Params, TensorMap};
use crate::server::calls::{
    Down, Exchanges, Form, ModelReader, Releases, Results, ServerCalls, StepStart, StepVerdict,
    Steps,
};
use crate::{
    AnyInbox, AnyPool, ClientId, ClientMessage, Cohort, Declaration, ExchangeSpec, Generator,
    Public, Result, Round, Samples, Serial, SharedExecutor, Task, Trainer,
};
use anyhow::{Context, bail};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The run in the program, for a loaded protocol.
pub(super) struct RemoteServer {
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
        let AskBack::Form = asked_back(operation, input)? else {
            return Ok(false);
        };
        let mail = input.mail(self.of)?;
        let formed = (self.form.borrow_mut())(mail)?;
        reply.tensors(&content(&*formed.body))?;
        reply.json(&MailText::of(&formed))?;
        Ok(true)
    }
}

impl RemoteServer {
    pub fn new(link: &Arc<Link>, text: LeadText, declared: Declaration<'_>) -> Self {
        Self {
            slots: RemoteSlots::new(link),
            filled: text.filled,
            task: text.task,
            everyone: text.everyone,
            rounds: declared.rounds,
            exchanges: declared.into_exchanges(),
        }
    }

    fn exchange(&self, label: &str) -> Result<&ExchangeSpec> {
        ExchangeSpec::find(&self.exchanges, label)
    }

    fn done(&self, ask: &Ask) -> Result<()> {
        self.slots.ask(ask, &[]).map(drop)
    }

    fn step(&self, answer: Answer) -> Result<(StepText, Option<Vec<u8>>)> {
        let text = read(&answer)?;
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

impl ServerCalls for RemoteServer {
    fn has(&self, slot: &str) -> bool {
        self.filled.contains(slot)
    }
    fn who(&self, slot: &str) -> Vec<String> {
        let slot = slot.to_string();
        let who = self.slots.json(&Ask::Who { slot }, &[]);
        self.slots.keep(who).unwrap_or_default()
    }
    fn task(&self) -> &Task {
        &self.task
    }
    fn everyone(&self) -> Cohort {
        self.everyone.clone()
    }
    fn with_examples(&self, at_least: usize) -> Cohort {
        let those = self.slots.json(&Ask::WithExamples { at_least }, &[]);
        let those = self.slots.keep(those);
        those.unwrap_or_else(|| self.everyone())
    }
    fn executor(&self) -> SharedExecutor {
        Arc::new(Serial)
    }
    fn aggregated(&mut self, label: &str) -> Result<&'static MessageType> {
        bail!("the program has the aggregator of `{label}`")
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
    fn reader(&self, slot: &str) -> ModelReader {
        let slot = slot.to_string();
        let reader: Result<u64> = self.slots.json(&Ask::Reader { slot }, &[]);
        let reader = self.slots.keep(reader).unwrap_or_default();
        let link = self.slots.link.clone();
        Box::new(move |client, bytes| {
            let ask = Ask::Read { reader, client };
            let held = link.json(&ask, &[bytes_named("model", bytes)])?;
            held_model(&link, held)
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
        with_pool(&*self.slots.link, pool, |samples, tensors| {
            let ask = Ask::Select {
                slot: slot.into(),
                round: RoundAsk::of(round),
                pool: name.into(),
                samples,
            };
            let answer = self.slots.ask(&ask, &[tensors])?;
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
        let ask = Ask::Cohort {
            round: RoundAsk::of(round),
            label: label.into(),
        };
        self.slots.json(&ask, &sent)
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
        let ask = Ask::Collect {
            round: RoundAsk::of(round),
            label: label.into(),
            to: to.to_vec(),
            which,
        };
        let answer = self.slots.ask(&ask, &sent)?;
        let mail: Vec<MailText> = read(&answer)?;
        let bodies = apart(answer.tensors, mail.len())?;
        for (mail, body) in mail.into_iter().zip(bodies) {
            let body = of.from_tensors(body);
            let body = body.with_context(|| format!("client {}", mail.from))?;
            each(mail.with(body))?;
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
        let ask = Ask::Run {
            round: RoundAsk::of(round),
            label: label.into(),
            cohort: cohort.clone(),
            which,
            shown: round.sent_any().map(|sent| sent.kind().into()),
            forms: form.is_some(),
        };
        let back = form.map(|form| FormBack {
            form: RefCell::new(form),
            of,
        });
        let back = back.as_ref().map(|back| back as &dyn Answers);
        message_in(self.slots.ask_with(&ask, &letters, back)?)
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
        let ask = Ask::Release {
            label: label.into(),
            round: RoundAsk::of(round),
            kind: message.kind().into(),
            cohort: cohort.clone(),
            clip,
        };
        self.slots.change(&ask, message)
    }
    fn clip(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        let ask = Ask::Clip {
            slot: slot.into(),
            kind: message.kind().into(),
            agreed: None,
        };
        self.slots.change(&ask, message)
    }
    fn affords(&mut self, slot: &str, message: &dyn AnyMessage, cohort: &Cohort) -> Result<()> {
        let ask = Ask::Affords {
            slot: slot.into(),
            kind: message.kind().into(),
            cohort: cohort.clone(),
        };
        self.slots.ask(&ask, &[content(message)]).map(drop)
    }
    fn wants_range(&self, slot: &str, of: &'static MessageType) -> Result<bool> {
        let (slot, kind) = (slot.into(), of.kind.into());
        self.slots.json(&Ask::WantsRange { slot, kind }, &[])
    }
}

impl Steps for RemoteServer {
    fn begin_step(&mut self, name: &str, number: usize, of: usize) -> Result<StepStart> {
        let name = name.to_string();
        let answer = self.slots.ask(&Ask::BeginStep { name, number, of }, &[])?;
        Ok(match self.step(answer)? {
            (StepText::Attempt { round, undoable }, _) => StepStart::Attempt {
                round: round.round(Arc::new(Serial)),
                undoable,
            },
            (StepText::Restored, state) => StepStart::Restored(state.context("no state came")?),
            _ => StepStart::Skipped,
        })
    }
    fn judge_step(&mut self, outcome: Result<()>) -> Result<StepVerdict> {
        let failed = outcome.err().map(|error| ErrorText::of(&error));
        let answer = self.slots.ask(&Ask::JudgeStep { failed }, &[])?;
        Ok(match self.step(answer)?.0 {
            StepText::Attempt { round, undoable } => StepVerdict::Again {
                round: round.round(Arc::new(Serial)),
                undoable,
            },
            StepText::Undone => StepVerdict::Undone,
            _ => StepVerdict::Done,
        })
    }
    fn finish_step(&mut self, state: &dyn Fn() -> Result<Vec<u8>>) -> Result<()> {
        let state = state()?;
        let state = bytes_named("state", &state);
        self.slots.ask(&Ask::FinishStep, &[state]).map(drop)
    }
}

impl Results for RemoteServer {
    fn evaluate(&mut self, round: &Round, slot: &str) -> Result<()> {
        let (slot, round) = (slot.into(), RoundAsk::of(round));
        self.done(&Ask::Evaluate { slot, round })
    }
    fn evaluate_clients(&mut self, round: &Round, slot: &str) -> Result<()> {
        let (slot, round) = (slot.into(), RoundAsk::of(round));
        self.done(&Ask::EvaluateClients { slot, round })
    }
    fn evaluate_for_clients(
        &mut self,
        round: &Round,
        slot: &str,
        models: &[Params],
        whose: &[usize],
    ) -> Result<Vec<f64>> {
        let ask = Ask::EvaluateForClients {
            slot: slot.into(),
            round: RoundAsk::of(round),
            whose: whose.to_vec(),
        };
        let sent: Vec<NamedTensors<'_>> = models.iter().map(Message::tensors).collect();
        let mut parcel = TensorMap::new(self.slots.ask(&ask, &sent)?.tensors);
        Ok(parcel.f64("scores")?.iter().copied().collect())
    }
    fn record(&mut self, round: &Round, name: &str, value: f64) -> Result<()> {
        self.done(&Ask::Record {
            round: RoundAsk::of(round),
            name: name.into(),
            value: value.is_finite().then_some(value),
        })
    }
    fn record_each(&mut self, round: &Round, name: &str, each: Vec<f64>) -> Result<()> {
        let finite = |value: f64| value.is_finite().then_some(value);
        self.done(&Ask::RecordEach {
            round: RoundAsk::of(round),
            name: name.into(),
            each: each.into_iter().map(finite).collect(),
        })
    }
    fn keep_model(&mut self, slot: &str, name: &str) -> Result<()> {
        let (slot, name) = (slot.into(), name.into());
        self.done(&Ask::KeepModel { slot, name })
    }
    fn keep_generator(&mut self, slot: &str) -> Result<()> {
        self.done(&Ask::KeepGenerator { slot: slot.into() })
    }
    fn keep_images(&mut self, name: &str, images: &Samples) -> Result<()> {
        with_samples(&*self.slots.link, images, |samples, tensors| {
            let name = name.into();
            let ask = Ask::KeepImages { name, samples };
            self.slots.ask(&ask, &[tensors]).map(drop)
        })
    }
    fn keep_clients(&mut self, slot: &str) -> Result<()> {
        self.done(&Ask::KeepClients { slot: slot.into() })
    }
    fn warn(&mut self, text: &str) {
        let done = self.done(&Ask::Warn { text: text.into() });
        self.slots.keep(done);
    }
}
