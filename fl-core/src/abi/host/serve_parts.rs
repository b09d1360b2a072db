//! The program's answers to what a loaded protocol asks of its parts and data, on either side.

use crate::abi::ask::{Ask, GeneratorAsk, ModelAsk, PartAsk, RoundAsk};
use crate::abi::auxiliary::{RemoteLoss, head_tensors};
use crate::abi::context_json::TrainerText;
use crate::abi::data_sets::{HandedOut, KnownSets, NoSets};
use crate::abi::library::{Host, Input};
use crate::abi::marshal::{content, shorter};
use crate::abi::marshal_data::{
    SamplesAsk, examples_of, samples_of, target_of, with_public, with_samples, with_target,
};
use crate::abi::marshal_samples::{receive, with_values};
use crate::abi::raw::FL_ASK;
use crate::message::{AnyMessage, Message, MessageType, Params, TensorMap, View, message_type};
use crate::{
    AnyPool, AuxiliaryLoss, FeatureLoss, FitOptions, Generator, Public, Result, Round,
    SharedExecutor, Stream, Trainer, parametric,
};
use anyhow::{Context, ensure};
use ndarray::{Array1, ArrayView1};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most parts that a protocol may hold at once.
const HELD: usize = 100_000;

/// The parts of the program that a protocol holds, by number.
pub(super) struct Held<T> {
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
    pub fn keep(&self, part: T) -> Result<u64> {
        let mut all = self.all.borrow_mut();
        ensure!(all.len() < HELD, "a protocol holds more than {HELD} parts");
        let number = self.next.get();
        self.next.set(number + 1);
        all.insert(number, part);
        Ok(number)
    }

    pub fn take(&self, number: u64) -> Result<T> {
        let part = self.all.borrow_mut().remove(&number);
        part.with_context(|| format!("the protocol holds no such part ({number}), or is using it"))
    }

    /// Runs `f` with a part; meanwhile the protocol may use other parts.
    pub fn with<R>(&self, number: u64, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let mut part = self.take(number)?;
        let out = f(&mut part);
        self.all.borrow_mut().insert(number, part);
        out
    }
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
    reply.tensors(&vec![(name.into(), View::U8(bytes.into()))])
}

pub(super) fn number(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

/// Runs `f` with a pool that the protocol sent.
pub(super) fn with_pool<R>(
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

pub(super) fn positions(reply: &Host<'_>, all: Vec<usize>) -> Result<()> {
    let all: Vec<u32> = all.into_iter().map(|at| at as u32).collect();
    let all = View::U32(ArrayView1::from(&all).into_dyn());
    reply.tensors(&vec![("positions".into(), all)])
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

/// Answers a request to a model.
pub(super) fn ask_model(
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
        ModelAsk::Describe => reply.json(&TrainerText::of(model)),
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
        ModelAsk::ClippedGradients {
            x,
            target,
            loss,
            clip,
        } => {
            let mut parcel = input.parcel(0)?;
            let (x, target) = (samples(&x, &mut parcel)?, target_of(&target, &mut parcel)?);
            match able(model)?.clipped_gradients(&x, target.view(), loss, clip)? {
                Some(sum) => reply.tensors(&sum.tensors()),
                None => Ok(()),
            }
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
pub(super) fn ask_generator(
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
pub(super) fn ask_held(
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
