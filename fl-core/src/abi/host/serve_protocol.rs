//! The program's answers to the requests of a loaded protocol.

use crate::abi::ask::{
    AboutModel, Ask, AskBack, CohortAsk, GeneratorAsk, MailText, ModelAsk, PartAsk, RoundAsk,
    StepText,
};
use crate::abi::auxiliary::{RemoteLoss, head_tensors};
use crate::abi::data_sets::{HandedOut, KnownSets, NoSets};
use crate::abi::host::Answers;
use crate::abi::library::link::{ask_other, read};
use crate::abi::library::{Host, Input};
use crate::abi::marshal::{OutgoingMessage, content, plain, shorter};
use crate::abi::marshal_data::{
    SamplesAsk, examples_of, numbered, samples_of, target_of, with_examples, with_public,
    with_samples, with_target,
};
use crate::abi::marshal_samples::{receive, with_values};
use crate::abi::raw::{FL_ASK, FL_BACK};
use crate::client::calls::ClientCalls;
use crate::message::{
    AnyMessage, Erased, Message, MessageType, Params, TensorMap, View, message_type,
};
use crate::server::calls::{ModelReader, ServerCalls, StepStart, StepVerdict};
use crate::{
    AnyMechanism, AnyPool, AnySelector, AuxiliaryLoss, Client, ClientId, ClientMessage, Cohort,
    ExchangeSpec, FeatureLoss, FitOptions, Generator, Result, Round, Serial, Server,
    SharedExecutor, Stream, Trainer, parametric,
};
use anyhow::{Context, bail, ensure};
use ndarray::{Array1, ArrayView1};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most parts that a protocol may hold at once.
const HELD: usize = 100_000;

/// The parts of the program that a protocol holds, by number.
struct Held<T> {
    next: Cell<u64>,
    all: RefCell<BTreeMap<u64, T>>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self {
            next: Cell::new(1),
            all: RefCell::default(),
        }
    }
}

impl<T> Held<T> {
    fn keep(&self, part: T) -> Result<u64> {
        let mut all = self.all.borrow_mut();
        ensure!(all.len() < HELD, "a protocol holds more than {HELD} parts");
        let number = self.next.get();
        self.next.set(number + 1);
        all.insert(number, part);
        Ok(number)
    }

    fn take(&self, number: u64) -> Result<T> {
        let part = self.all.borrow_mut().remove(&number);
        part.with_context(|| format!("the protocol holds no such part ({number}), or is using it"))
    }

    /// Runs `f` with a part; meanwhile the protocol may use other parts.
    fn with<R>(&self, number: u64, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let mut part = self.take(number)?;
        let out = f(&mut part);
        self.all.borrow_mut().insert(number, part);
        out
    }
}

/// Returns the type of messages of this kind.
fn type_of(kind: &str) -> Result<&'static MessageType> {
    message_type(kind).with_context(|| format!("no message is called `{kind}`"))
}

fn say(reply: &Host<'_>, message: &dyn AnyMessage) -> Result<()> {
    reply.tensors(&content(message))?;
    reply.json(&message.kind())
}

fn bytes(reply: &Host<'_>, name: &'static str, bytes: &[u8]) -> Result<()> {
    reply.tensors(&vec![(name.into(), View::U8(bytes.into()))])
}

fn number(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

/// Runs `f` with a pool that the protocol sent.
fn with_pool<R>(
    sets: &dyn KnownSets,
    name: &str,
    ask: Option<&SamplesAsk>,
    mut parcel: TensorMap,
    f: impl FnOnce(AnyPool<'_>) -> Result<R>,
) -> Result<R> {
    match ask {
        Some(ask) => f(AnyPool::Samples(&samples_of(sets, ask, &mut parcel)?)),
        None => receive(name, parcel, f),
    }
}

fn positions(reply: &Host<'_>, all: Vec<usize>) -> Result<()> {
    let all: Vec<u32> = all.into_iter().map(|at| at as u32).collect();
    let all = View::U32(ArrayView1::from(&all).into_dyn());
    reply.tensors(&vec![("positions".into(), all)])
}

/// Answers a request to a model.
fn ask_model(
    sets: &dyn KnownSets,
    model: &mut dyn Trainer,
    what: ModelAsk,
    input: &Input<'_>,
    reply: &Host<'_>,
) -> Result<()> {
    let able = |model| parametric(model, "the model");
    let table = |name: &'static str, of: ndarray::Array2<f32>| {
        reply.tensors(&vec![(name.into(), View::F32(of.view().into_dyn()))])
    };
    let state = || input.parcel(0)?.bytes("state");
    let samples = |x: &SamplesAsk, parcel: &mut TensorMap| samples_of(sets, x, parcel);
    match what {
        ModelAsk::Describe => reply.json(&AboutModel {
            parametric: model.parametric().is_some(),
            differentiable: model.differentiable().is_some(),
            feature_loss: model.takes_feature_loss(),
        }),
        ModelAsk::Fit {
            x,
            target,
            pass,
            key,
        } => {
            let mut parcel = input.parcel(0)?;
            let (x, target) = (samples(&x, &mut parcel)?, target_of(&target, &mut parcel)?);
            let mut at = 0;
            let mut next = |there: bool| -> Result<Option<Params>> {
                at += usize::from(there);
                there.then(|| input.message(at)).transpose()
            };
            let proximal = next(pass.proximal.is_some())?;
            let offset = next(pass.offset)?;
            let loss = RemoteLoss(reply);
            let options = FitOptions {
                length: pass.length,
                batch: pass.batch,
                loss: pass.loss,
                fresh: pass.fresh,
                proximal: pass.proximal.zip(proximal.as_ref()),
                gradient_offset: offset.as_ref(),
                clip: pass.clip,
                auxiliary: pass.auxiliary.then_some(&loss as &dyn AuxiliaryLoss),
                feature_loss: pass.feature_loss.then_some(&loss as &dyn FeatureLoss),
            };
            let fitted = model.fit(&x, target.view(), &options, &Stream::from_key(key))?;
            let loss = Array1::from_elem(1, fitted.loss);
            reply.tensors(&vec![("loss".into(), View::F64(loss.view().into_dyn()))])?;
            reply.json(&fitted.steps)
        }
        ModelAsk::Predict { x } => table(
            "scores",
            model.predict(&samples(&x, &mut input.parcel(0)?)?)?,
        ),
        ModelAsk::Features { x } => match model.features(&samples(&x, &mut input.parcel(0)?)?)? {
            Some(features) => table("features", features),
            None => Ok(()),
        },
        ModelAsk::Head => match model.head() {
            Some(head) => reply.tensors(&head_tensors(&head)),
            None => Ok(()),
        },
        ModelAsk::Save => bytes(reply, "state", &model.save()?),
        ModelAsk::Load => model.load(&state()?),
        ModelAsk::SaveState => bytes(reply, "state", &model.save_state()?),
        ModelAsk::LoadState => model.load_state(&state()?),
        ModelAsk::SaveMemory => bytes(reply, "state", &model.save_memory()?),
        ModelAsk::LoadMemory => model.load_memory(&state()?),
        ModelAsk::Learns { loss } => reply.json(&model.learns(loss)),
        ModelAsk::Params => reply.tensors(&able(model)?.params().tensors()),
        ModelAsk::SetParams => able(model)?.set_params(&input.message(0)?),
        ModelAsk::Gradient { x, target, loss } => {
            let mut parcel = input.parcel(0)?;
            let (x, target) = (samples(&x, &mut parcel)?, target_of(&target, &mut parcel)?);
            let gradient = able(model)?.gradient(&x, target.view(), loss)?;
            reply.tensors(&gradient.tensors())
        }
        ModelAsk::Descend { at, of } => able(model)?.descend(&input.message(0)?, at, of),
        ModelAsk::StepSize => reply.json(&able(model)?.step_size()),
        ModelAsk::Vjp { x } => {
            let mut parcel = input.parcel(0)?;
            let (x, slope) = (samples(&x, &mut parcel)?, parcel.table("slope")?);
            let able = model.differentiable();
            let able = able.context("it cannot be differentiated by its input")?;
            table("slopes", able.vjp(&x, slope.view())?)
        }
    }
}

/// Answers a request to a generator.
fn ask_generator(
    sets: &dyn KnownSets,
    generator: &mut dyn Generator,
    what: GeneratorAsk,
    input: &Input<'_>,
    reply: &Host<'_>,
) -> Result<()> {
    match what {
        GeneratorAsk::Make => Ok(()),
        GeneratorAsk::Sample { n, key } => {
            let made = generator.sample(n, &Stream::from_key(key))?;
            with_samples(&NoSets, &made, |ask, tensors| {
                reply.tensors(&tensors)?;
                reply.json(&ask)
            })
        }
        GeneratorAsk::Learn { made } => {
            let mut parcel = input.parcel(0)?;
            let made = samples_of(sets, &made, &mut parcel)?;
            generator.learn(&made, parcel.table("slope")?.view())
        }
        GeneratorAsk::Save => bytes(reply, "state", &generator.save()?),
        GeneratorAsk::Load => generator.load(&input.parcel(0)?.bytes("state")?),
    }
}

/// Answers the requests that need neither server nor client, which may be in use: for models that
/// the protocol holds, and for data sets. Returns whether it was one.
fn ask_held(
    sets: &HandedOut,
    models: &Held<Box<dyn Trainer>>,
    ask: &Ask,
    input: &Input<'_>,
    reply: &Host<'_>,
) -> Result<bool> {
    match ask {
        Ask::Model {
            of: PartAsk::Held(held),
            what,
        } => models.with(*held, |model| {
            ask_model(sets, model.as_mut(), what.clone(), input, reply)
        })?,
        Ask::Drop { held } => drop(models.take(*held)),
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

fn asked(operation: u32, input: &Input<'_>) -> Result<Option<Ask>> {
    match operation {
        FL_ASK => input.json().map(Some),
        _ => Ok(None),
    }
}

/// The error of a request that needs a server or client in use by another request.
fn busy() -> anyhow::Error {
    anyhow::anyhow!("the protocol made this call inside another of its calls")
}

/// The program's side while a protocol leads.
pub(super) struct LeadSide<'s, 'h> {
    server: RefCell<&'s mut Server<'h>>,
    exchanges: &'s [ExchangeSpec],
    models: Held<Box<dyn Trainer>>,
    readers: Held<ModelReader>,
    sets: HandedOut,
}

impl<'s, 'h> LeadSide<'s, 'h> {
    pub fn new(server: &'s mut Server<'h>, exchanges: &'s [ExchangeSpec]) -> Self {
        Self {
            sets: HandedOut::new(None, server.0.public().ok()),
            server: RefCell::new(server),
            exchanges,
            models: Held::default(),
            readers: Held::default(),
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

/// Returns the round of a request, with the message that it shows.
fn round_of(
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

impl Answers for LeadSide<'_, '_> {
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let Some(ask) = asked(operation, input)? else {
            return Ok(false);
        };
        let sets = &self.sets;
        // parts that the protocol holds do not need the server, which may be in use
        match &ask {
            Ask::Read { reader, client } => {
                let model = input.parcel(0)?.bytes("model")?;
                let read = |read: &mut ModelReader| read(*client, &model);
                let model = self.readers.with(*reader, read)?;
                reply.json(&self.models.keep(model)?)?;
                return Ok(true);
            }
            other if ask_held(sets, &self.models, other, input, reply)? => return Ok(true),
            _ => {}
        }
        let mut server = self.server.try_borrow_mut().map_err(|_| busy())?;
        let server = &mut *server.0;
        let bare = |round: RoundAsk, server: &dyn ServerCalls| round.round(server.executor());
        match ask {
            Ask::Who { slot } => reply.json(&server.who(&slot))?,
            Ask::WithExamples { at_least } => {
                reply.json(&CohortAsk::from(&server.with_examples(at_least)))?;
            }
            Ask::Public => with_public(sets, &*server.public()?, |text, tensors| {
                reply.tensors(&tensors)?;
                reply.json(&text)
            })?,
            Ask::Model {
                of: PartAsk::Slot(slot),
                what,
            } => ask_model(sets, server.model(&slot)?, what, input, reply)?,
            Ask::Generator { slot, what } => {
                ask_generator(sets, server.generator(&slot)?, what, input, reply)?;
            }
            Ask::Reader { slot } => reply.json(&self.readers.keep(server.reader(&slot))?)?,
            Ask::Select {
                slot,
                round,
                pool,
                samples,
            } => {
                let round = bare(round, server);
                let picked = with_pool(sets, &pool, samples.as_ref(), input.parcel(0)?, |pool| {
                    server.select(&slot, &round, pool)
                })?;
                positions(reply, picked.unwrap_or_default())?;
            }
            Ask::Cohort { slot, round, loss } => {
                let round = bare(round, server);
                let sent = loss.map(|label| -> Result<_> {
                    let spec = self.exchange(&label)?;
                    Ok((label, input.message_of(0, spec.request)?))
                });
                let sent = sent.transpose()?;
                let loss = sent.as_ref().map(|(label, model)| (&**label, &**model));
                let cohort = server.cohort(&slot, &round, loss)?;
                reply.json(&CohortAsk::from(&cohort))?;
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
                let cohort = Cohort::from(cohort);
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
                slot,
                round,
                kind,
                cohort,
                clip,
            } => {
                let round = bare(round, server);
                let mut message = input.message_of(0, type_of(&kind)?)?;
                server.release(&slot, &round, &mut *message, &cohort.into(), clip)?;
                say(reply, &*message)?;
            }
            Ask::Clip { slot, kind, .. } => {
                let mut message = input.message_of(0, type_of(&kind)?)?;
                server.clip(&slot, &mut *message)?;
                say(reply, &*message)?;
            }
            Ask::Affords { slot, kind, cohort } => {
                let message = input.message_of(0, type_of(&kind)?)?;
                server.affords(&slot, &*message, &cohort.into())?;
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

/// Returns the inbox of this kind that the protocol sent; `shown`: without the last message.
fn inbox(kind: &str, shown: bool, input: &Input<'_>) -> Result<Box<dyn crate::AnyInbox>> {
    let of = type_of(kind)?;
    let n = input.messages().len() - usize::from(shown);
    let mail = (0..n).map(|at| input.mail_at(at, of));
    of.inbox(mail.collect::<Result<_>>()?)
}

/// Returns the protocol's conversion of an answer.
fn form(
    reply: &Host<'_>,
    mail: ClientMessage<Erased>,
    into: &'static MessageType,
) -> Result<ClientMessage<Erased>> {
    let answer = {
        let tensors = content(&*mail.body);
        let letter = OutgoingMessage {
            from: mail.from,
            weight: mail.weight,
            class_counts: mail.class_counts.as_deref(),
            training_loss: mail.training_loss,
            tensors: &tensors,
        };
        let text = serde_json::to_string(&AskBack::Form)?;
        ask_other(reply.0, FL_BACK, &text, &[letter], None)?
    };
    let envelope: MailText = read(&answer)?;
    Ok(envelope.with(into.from_tensors(TensorMap::new(answer.tensors))?))
}

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
            sets: HandedOut::new(Some(client.own()), client.calls().public().ok()),
            client: RefCell::new(client),
            models: Held::default(),
            selectors: Held::default(),
            mechanisms: Held::default(),
        }
    }
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
            Ask::Own => with_examples(sets, client.own(), |ask, tensors| {
                reply.tensors(&tensors)?;
                reply.json(&ask)
            })?,
            Ask::Public => with_public(sets, &*client.public()?, |text, tensors| {
                reply.tensors(&tensors)?;
                reply.json(&text)
            })?,
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
