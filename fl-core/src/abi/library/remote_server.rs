//! A run in the program, as a protocol in a library sees it.

use super::call_context::{Host, Input};
use super::link::{Link, asked_back, read};
use super::remote_parts::{RemoteGenerator, RemoteModel, changed, positions, with_pool};
use crate::abi::ask::{
    Ask, AskBack, CohortAsk, ErrorText, LeadText, MailText, PartAsk, PublicText, RoundAsk, Side,
    StepText, apart, public_of, with_bytes, with_samples,
};
use crate::abi::host::{Answer, Answers};
use crate::abi::marshal::{OutgoingMessage, content, with_inbox_letters};
use crate::message::{
    AnyMessage, Erased, Message, MessageType, NamedTensors, Params, TensorMap, message_type,
};
use crate::server::calls::{Down, Form, ModelReader, ServerCalls, StepStart, StepVerdict};
use crate::{
    AnyInbox, AnyPool, ClientId, ClientMessage, Cohort, ExchangeSpec, Generator, Public, Result,
    Round, Samples, Serial, SharedExecutor, Task, Trainer,
};
use anyhow::{Context, bail};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A run in the program.
pub(super) struct RemoteServer<'l> {
    link: &'l Arc<Link>,
    task: Task,
    filled: BTreeSet<String>,
    everyone: Cohort,
    exchanges: Vec<ExchangeSpec>,
    models: BTreeMap<String, RemoteModel>,
    generators: BTreeMap<String, RemoteGenerator>,
    public: OnceCell<Arc<Public>>,
}

/// The type of messages of this kind.
pub(super) fn type_of(kind: &str) -> Result<&'static MessageType> {
    message_type(kind)
        .with_context(|| format!("no message is called `{kind}`; register it with `messages!`"))
}

/// A message in an answer, whose text is its kind.
pub(super) fn message_in(answer: Answer) -> Result<Erased> {
    let kind: String = read(&answer)?;
    type_of(&kind)?.from_tensors(TensorMap::new(answer.tensors))
}

/// The public data, which cross once.
pub(super) fn public(link: &Link) -> Result<Arc<Public>> {
    let answer = link.ask(&Ask::Public, &[])?;
    let text: PublicText = read(&answer)?;
    public_of(&text, answer.tensors, link).map(Arc::new)
}

/// Another form of each answer.
struct FormBack<'f> {
    form: RefCell<Form<'f, ClientMessage<Erased>>>,
    of: &'static MessageType,
}

impl Answers for FormBack<'_> {
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let AskBack::Form = asked_back(operation, input)? else {
            return Ok(false);
        };
        let mail = input.mail(self.of)?;
        let formed = (self.form.borrow_mut())(mail)?;
        reply.tensors(&content(&*formed.body))?;
        reply.json(&MailText {
            from: formed.from,
            weight: formed.weight,
            class_counts: formed.class_counts,
            training_loss: formed.training_loss,
        })?;
        Ok(true)
    }
}

impl<'l> RemoteServer<'l> {
    pub fn new(link: &'l Arc<Link>, text: LeadText, exchanges: Vec<ExchangeSpec>) -> Self {
        Self {
            link,
            task: text.task,
            filled: text.filled.into_iter().collect(),
            everyone: text.everyone.into(),
            exchanges,
            models: BTreeMap::new(),
            generators: BTreeMap::new(),
            public: OnceCell::new(),
        }
    }

    fn exchange(&self, label: &str) -> Result<&ExchangeSpec> {
        let found = self.exchanges.iter().find(|spec| spec.label == label);
        found.with_context(|| format!("the protocol declares no exchange `{label}`"))
    }

    fn done(&self, ask: &Ask) -> Result<()> {
        self.link.ask(ask, &[]).map(drop)
    }

    /// A message that becomes what the program makes of it.
    fn change(&self, ask: &Ask, message: &mut dyn AnyMessage) -> Result<()> {
        let answer = {
            let tensors = content(message);
            self.link.ask(ask, &[OutgoingMessage::new(&tensors)])?
        };
        changed(message, answer)
    }

    fn step(&self, answer: Answer) -> Result<(StepText, Option<Vec<u8>>)> {
        let text = read(&answer)?;
        let mut parcel = TensorMap::new(answer.tensors);
        let state = parcel.has("state").then(|| parcel.bytes("state"));
        Ok((text, state.transpose()?))
    }
}

/// The different messages to these clients, and which each gets.
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

impl ServerCalls for RemoteServer<'_> {
    fn has(&self, slot: &str) -> bool {
        self.filled.contains(slot)
    }
    fn who(&self, slot: &str) -> Vec<String> {
        let slot = slot.to_string();
        let who = self.link.json(&Ask::Who { slot }, &[]);
        self.link.keep(who).unwrap_or_default()
    }
    fn task(&self) -> &Task {
        &self.task
    }
    fn everyone(&self) -> Cohort {
        self.everyone.clone()
    }
    fn with_examples(&self, at_least: usize) -> Cohort {
        let those = self.link.json(&Ask::WithExamples { at_least }, &[]);
        let those: Option<CohortAsk> = self.link.keep(those);
        those.map_or_else(|| self.everyone(), Into::into)
    }
    fn executor(&self) -> SharedExecutor {
        Arc::new(Serial)
    }
    fn aggregated(&mut self, label: &str) -> Result<&'static MessageType> {
        bail!("the program knows what `{label}` is combined by")
    }
    fn public(&self) -> Result<Arc<Public>> {
        if let Some(known) = self.public.get() {
            return Ok(known.clone());
        }
        let public = public(self.link)?;
        Ok(self.public.get_or_init(|| public).clone())
    }
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        if !self.models.contains_key(slot) {
            let model = RemoteModel::new(self.link, PartAsk::Slot(slot.into()))?;
            self.models.insert(slot.into(), model);
        }
        let model = self.models.get_mut(slot).context("it was just made")?;
        Ok(model)
    }
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        if !self.generators.contains_key(slot) {
            let generator = RemoteGenerator::new(self.link, slot)?;
            self.generators.insert(slot.into(), generator);
        }
        let generator = self.generators.get_mut(slot);
        Ok(generator.context("it was just made")?)
    }
    fn reader(&self, slot: &str) -> ModelReader {
        let slot = slot.to_string();
        let reader: Result<u64> = self.link.json(&Ask::Reader { slot }, &[]);
        let reader = self.link.keep(reader).unwrap_or_default();
        let link = self.link.clone();
        Box::new(move |client, bytes| {
            let ask = Ask::Read { reader, client };
            let held = with_bytes("model", bytes, |letter| link.json(&ask, letter))?;
            RemoteModel::held(&link, held)
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
        with_pool(pool, |samples, tensors| {
            let ask = Ask::Select {
                slot: slot.into(),
                round: RoundAsk::of(round),
                pool: name.into(),
                samples,
            };
            positions(self.link.ask(&ask, &[OutgoingMessage::new(&tensors)])?).map(Some)
        })
    }
    fn cohort(
        &mut self,
        slot: &str,
        round: &Round,
        loss: Option<(&str, &(dyn AnyMessage + 'static))>,
    ) -> Result<Cohort> {
        let tensors = loss.map(|(_, model)| content(model));
        let letters: Vec<_> = tensors.iter().map(OutgoingMessage::new).collect();
        let ask = Ask::Cohort {
            slot: slot.into(),
            round: RoundAsk::of(round),
            loss: loss.map(|(label, _)| label.into()),
        };
        let cohort: CohortAsk = self.link.json(&ask, &letters)?;
        Ok(cohort.into())
    }
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
        let tensors: Vec<_> = messages.iter().map(|m| content(*m)).collect();
        let letters: Vec<_> = tensors.iter().map(OutgoingMessage::new).collect();
        let ask = Ask::Collect {
            round: RoundAsk::of(round),
            label: label.into(),
            to: to.to_vec(),
            which,
        };
        let answer = self.link.ask(&ask, &letters)?;
        let mail: Vec<MailText> = read(&answer)?;
        let bodies = apart(answer.tensors, mail.len())?;
        for (mail, body) in mail.into_iter().zip(bodies) {
            let body = of.from_tensors(body);
            each(ClientMessage {
                body: body.with_context(|| format!("client {}", mail.from))?,
                from: mail.from,
                weight: mail.weight,
                class_counts: mail.class_counts,
                training_loss: mail.training_loss,
            })?;
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
            cohort: cohort.into(),
            which,
            shown: round.sent_any().map(|sent| sent.kind().into()),
            forms: form.is_some(),
        };
        let back = form.map(|form| FormBack {
            form: RefCell::new(form),
            of,
        });
        let back = back.as_ref().map(|back| back as &dyn Answers);
        message_in(self.link.ask_with(&ask, &letters, back)?)
    }
    fn aggregate(&mut self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let shown = round.sent_any();
        let ask = Ask::Aggregate {
            slot: slot.into(),
            round: RoundAsk::of(round),
            kind: inbox.message_type().kind.into(),
            shown: shown.map(|sent| sent.kind().into()),
        };
        let answer = with_inbox_letters(inbox, shown, |letters| self.link.ask(&ask, letters))?;
        message_in(answer)
    }
    fn release(
        &mut self,
        slot: &str,
        round: &Round,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        clip: bool,
    ) -> Result<()> {
        let ask = Ask::Release {
            slot: slot.into(),
            round: RoundAsk::of(round),
            kind: message.kind().into(),
            cohort: cohort.into(),
            clip,
        };
        self.change(&ask, message)
    }
    fn clip(&mut self, slot: &str, message: &mut dyn AnyMessage) -> Result<()> {
        let ask = Ask::Clip {
            slot: slot.into(),
            kind: message.kind().into(),
            agreed: None,
        };
        self.change(&ask, message)
    }
    fn affords(&mut self, slot: &str, message: &dyn AnyMessage, cohort: &Cohort) -> Result<()> {
        let ask = Ask::Affords {
            slot: slot.into(),
            kind: message.kind().into(),
            cohort: cohort.into(),
        };
        let tensors = content(message);
        let letter = [OutgoingMessage::new(&tensors)];
        self.link.ask(&ask, &letter).map(drop)
    }
    fn wants_range(&self, slot: &str, of: &'static MessageType) -> Result<bool> {
        let (slot, kind) = (slot.into(), of.kind.into());
        self.link.json(&Ask::WantsRange { slot, kind }, &[])
    }
    fn begin_step(&mut self, name: &str, number: usize, of: usize) -> Result<StepStart> {
        let name = name.to_string();
        let answer = self.link.ask(&Ask::BeginStep { name, number, of }, &[])?;
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
        let answer = self.link.ask(&Ask::JudgeStep { failed }, &[])?;
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
        with_bytes("state", &state()?, |letter| {
            self.link.ask(&Ask::FinishStep, letter).map(drop)
        })
    }
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
        let tensors: Vec<NamedTensors<'_>> = models.iter().map(Message::tensors).collect();
        let letters: Vec<_> = tensors.iter().map(OutgoingMessage::new).collect();
        let mut parcel = TensorMap::new(self.link.ask(&ask, &letters)?.tensors);
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
        with_samples(Side::Library, images, |samples, tensors| {
            let name = name.into();
            let letter = [OutgoingMessage::new(&tensors)];
            self.link
                .ask(&Ask::KeepImages { name, samples }, &letter)
                .map(drop)
        })
    }
    fn keep_clients(&mut self, slot: &str) -> Result<()> {
        self.done(&Ask::KeepClients { slot: slot.into() })
    }
    fn warn(&mut self, text: &str) {
        let done = self.done(&Ask::Warn { text: text.into() });
        self.link.keep(done);
    }
}
