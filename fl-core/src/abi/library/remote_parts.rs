//! The parts of the program that a loaded protocol uses.

use super::link::{Link, read};
use crate::abi::ask::{Ask, GeneratorAsk, ModelAsk, PartAsk, PassAsk, RoundAsk};
use crate::abi::auxiliary::{LossesBack, head_of};
use crate::abi::context_json::TrainerText;
use crate::abi::host::{Answer, Answers};
use crate::abi::marshal::{OutgoingMessage, shorter, with_inbox_letters};
use crate::abi::marshal_data::{
    PublicText, SamplesAsk, bytes_named, public_of, samples_of, with_examples, with_more,
    with_samples, with_target,
};
use crate::abi::marshal_samples::send;
use crate::message::{
    AnyMessage, Erased, Message, MessageType, NamedTensors, Params, TensorMap, View, message_type,
};
use crate::privacy::ReleaseNoise;
use crate::sealed::Sealed;
use crate::{
    AnyInbox, AnyMechanism, AnyPool, AnySelector, ClientStatQuery, Cohort, Differentiable,
    Examples, FitOptions, FitReport, Generator, Head, Loss, Parametric, PrivacyEvent, Problem,
    Public, Result, Round, Samples, SamplingScheme, Stream, Target, Trainer,
};
use anyhow::{Context, anyhow};
use ndarray::{Array2, ArrayView2};
use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

/// Returns the tensor `state` of an answer; empty if it has none.
fn state_in(answer: Answer) -> Result<Vec<u8>> {
    let mut parcel = TensorMap::new(answer.tensors);
    match parcel.has("state") {
        true => parcel.bytes("state"),
        false => Ok(Vec::new()),
    }
}

/// The slots and public data of the program, for a protocol's server or client.
pub(super) struct RemoteSlots {
    pub link: Arc<Link>,
    models: BTreeMap<String, RemoteModel>,
    generators: BTreeMap<String, RemoteGenerator>,
    public: OnceLock<Arc<Public>>,
}

impl Deref for RemoteSlots {
    type Target = Link;
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl RemoteSlots {
    pub fn new(link: &Arc<Link>) -> Self {
        Self {
            link: link.clone(),
            models: BTreeMap::new(),
            generators: BTreeMap::new(),
            public: OnceLock::new(),
        }
    }

    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(match self.models.entry(slot.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let of = PartAsk::Slot(slot.into());
                new.insert(RemoteModel::new(&self.link, of)?)
            }
        })
    }

    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(match self.generators.entry(slot.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(RemoteGenerator::new(&self.link, slot)?),
        })
    }

    /// Returns the public data, fetched at most once.
    pub fn public(&self) -> Result<Arc<Public>> {
        if let Some(known) = self.public.get() {
            return Ok(known.clone());
        }
        let answer = self.link.ask(&Ask::Public, &[])?;
        let text: PublicText = read(&answer)?;
        let public = Arc::new(public_of(&*self.link, &text, answer.tensors)?);
        Ok(self.public.get_or_init(|| public).clone())
    }

    /// Combines an inbox by the aggregator in `slot` of the program.
    pub fn aggregate(&self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let shown = round.sent_any();
        let ask = Ask::Aggregate {
            slot: slot.into(),
            round: RoundAsk::of(round),
            kind: inbox.message_type().kind.into(),
            shown: shown.map(|sent| sent.kind().into()),
        };
        message_in(with_inbox_letters(inbox, shown, |letters| {
            self.link.ask_with(&ask, letters, None)
        })?)
    }
}

/// Returns the message in an answer, whose text is its kind.
pub(super) fn message_in(answer: Answer) -> Result<Erased> {
    let kind: String = read(&answer)?;
    let of = message_type(&kind);
    let of =
        of.with_context(|| format!("no message is called `{kind}`; register it with `messages!`"))?;
    of.from_tensors(TensorMap::new(answer.tensors))
}

/// A model of the program.
pub(super) struct RemoteModel {
    link: Arc<Link>,
    pub of: PartAsk,
    about: TrainerText,
}

impl Drop for RemoteModel {
    fn drop(&mut self) {
        if let PartAsk::Held(held) = self.of {
            self.places().remove(&std::ptr::from_ref(self).addr());
            // what is left when the call ends goes with it
            let _ = self.link.ask(&Ask::Drop { held }, &[]);
        }
    }
}

impl RemoteModel {
    pub fn new(link: &Arc<Link>, of: PartAsk) -> Result<Self> {
        let mut model = Self {
            link: link.clone(),
            of,
            about: TrainerText::default(),
        };
        model.about = read(&model.ask(ModelAsk::Describe, &[])?)?;
        Ok(model)
    }

    /// Makes a model that the protocol holds by the number `held`.
    pub fn held(link: &Arc<Link>, held: u64) -> Result<Box<dyn Trainer>> {
        let model = Box::new(Self::new(link, PartAsk::Held(held))?);
        let place = std::ptr::from_ref(&*model).addr();
        model.places().insert(place, held);
        Ok(model)
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        let models = self.link.models.lock();
        models.unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, what: ModelAsk, messages: &[NamedTensors<'_>]) -> Result<Answer> {
        let of = self.of.clone();
        self.link.ask(&Ask::Model { of, what }, messages)
    }

    /// Sends a request about samples.
    fn of_samples(
        &self,
        x: &Samples,
        what: impl FnOnce(SamplesAsk) -> ModelAsk,
    ) -> Result<TensorMap> {
        with_samples(&*self.link, x, |x, tensors| {
            let answer = self.ask(what(x), &[tensors])?;
            Ok(TensorMap::new(answer.tensors))
        })
    }

    fn state(&self, what: ModelAsk) -> Result<Vec<u8>> {
        state_in(self.ask(what, &[])?)
    }

    fn take_back(&self, what: ModelAsk, state: &[u8]) -> Result<()> {
        self.ask(what, &[bytes_named("state", state)]).map(drop)
    }
}

impl Trainer for RemoteModel {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        let ask = PassAsk {
            length: pass.length,
            batch: pass.batch,
            loss: pass.loss,
            fresh: pass.fresh,
            proximal: pass.proximal.map(|(mu, _)| mu),
            offset: pass.gradient_offset.is_some(),
            clip: pass.clip,
            auxiliary: pass.auxiliary.is_some(),
            feature_loss: pass.feature_loss.is_some(),
        };
        let anchors = [pass.proximal.map(|(_, p)| p), pass.gradient_offset];
        let back = LossesBack::of(pass);
        let back = back.as_ref().map(|back| back as &dyn Answers);
        let answer = with_samples(&*self.link, x, |x, tensors| {
            with_target(&target, |kind, view| {
                let mut all = vec![with_more(&tensors, [("target", shorter(&view))])];
                all.extend(anchors.iter().flatten().map(|p| p.tensors()));
                let letters: Vec<_> = all.iter().map(OutgoingMessage::new).collect();
                let what = ModelAsk::Fit {
                    x,
                    target: kind.into(),
                    pass: ask,
                    key: stream.key(),
                };
                let of = self.of.clone();
                self.link.ask_with(&Ask::Model { of, what }, &letters, back)
            })
        })?;
        let (steps, mut parcel): (usize, _) = (read(&answer)?, TensorMap::new(answer.tensors));
        let loss = parcel.f64("loss")?.first().copied();
        Ok(FitReport {
            steps,
            loss: loss.context("no loss")?,
            falls: None,
        })
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        self.of_samples(x, |x| ModelAsk::Predict { x })?
            .table("scores")
    }

    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        let mut parcel = self.of_samples(x, |x| ModelAsk::Features { x })?;
        let there = parcel.has("features");
        there.then(|| parcel.table("features")).transpose()
    }

    fn head(&self) -> Option<Head> {
        let head = || -> Result<Option<Head>> {
            let mut parcel = TensorMap::new(self.ask(ModelAsk::Head, &[])?.tensors);
            if !parcel.has("weight") {
                return Ok(None);
            }
            head_of(&mut parcel).map(Some)
        };
        self.link.keep(head()).flatten()
    }

    fn takes_feature_loss(&self) -> bool {
        self.about.feature_loss
    }

    fn save(&self) -> Result<Vec<u8>> {
        self.state(ModelAsk::Save)
    }
    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.take_back(ModelAsk::Load, model)
    }
    fn save_state(&self) -> Result<Vec<u8>> {
        self.state(ModelAsk::SaveState)
    }
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        self.take_back(ModelAsk::LoadState, state)
    }
    fn save_memory(&self) -> Result<Vec<u8>> {
        self.state(ModelAsk::SaveMemory)
    }
    fn load_memory(&mut self, memory: &[u8]) -> Result<()> {
        self.take_back(ModelAsk::LoadMemory, memory)
    }

    fn learns(&self, loss: Loss) -> bool {
        let learns = self.ask(ModelAsk::Learns { loss }, &[]);
        self.link
            .keep(learns.and_then(|answer| read(&answer)))
            .unwrap_or(true)
    }

    fn vocabulary(&self) -> Option<usize> {
        self.about.vocabulary
    }

    fn least_batch(&self) -> usize {
        self.about.least_batch
    }

    fn schedule_length(&self) -> Option<usize> {
        self.about.schedule_length
    }

    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        self.about.parametric.then_some(self as &mut dyn Parametric)
    }

    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        let able = self.about.differentiable;
        able.then_some(self as &mut dyn Differentiable)
    }
}

impl Parametric for RemoteModel {
    fn params(&self) -> Params {
        let params = self.ask(ModelAsk::Params, &[]);
        let params = params.and_then(|a| Params::from_tensors(TensorMap::new(a.tensors)));
        self.link.keep(params).unwrap_or_default()
    }

    fn buffers(&self) -> BTreeSet<String> {
        self.about.buffers.clone()
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        self.ask(ModelAsk::SetParams, &[params.tensors()]).map(drop)
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        with_samples(&*self.link, x, |x, tensors| {
            with_target(&target, |kind, view| {
                let tensors = with_more(&tensors, [("target", shorter(&view))]);
                let target = kind.into();
                let what = ModelAsk::Gradient { x, target, loss };
                let answer = self.ask(what, &[tensors])?;
                Params::from_tensors(TensorMap::new(answer.tensors))
            })
        })
    }

    fn clipped_gradients(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        loss: Loss,
        clip: f64,
    ) -> Result<Option<Params>> {
        with_samples(&*self.link, x, |x, tensors| {
            with_target(&target, |kind, view| {
                let tensors = with_more(&tensors, [("target", shorter(&view))]);
                let target = kind.into();
                let what = ModelAsk::ClippedGradients {
                    x,
                    target,
                    loss,
                    clip,
                };
                let answer = self.ask(what, &[tensors])?;
                if answer.tensors.is_empty() {
                    return Ok(None);
                }
                Params::from_tensors(TensorMap::new(answer.tensors)).map(Some)
            })
        })
    }

    fn descend(&mut self, gradient: &Params, at: usize, of: usize) -> Result<()> {
        let what = ModelAsk::Descend { at, of };
        self.ask(what, &[gradient.tensors()]).map(drop)
    }

    fn step_size(&self) -> Option<f64> {
        let size = self.ask(ModelAsk::StepSize, &[]);
        self.link
            .keep(size.and_then(|answer| read(&answer)))
            .flatten()
    }
}

impl Differentiable for RemoteModel {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        with_samples(&*self.link, x, |x, tensors| {
            let slope = View::F32(slope.view().into_dyn());
            let tensors = with_more(&tensors, [("slope", slope)]);
            let answer = self.ask(ModelAsk::Vjp { x }, &[tensors])?;
            TensorMap::new(answer.tensors).table("slopes")
        })
    }
}

/// The generator in a slot of the program.
pub(super) struct RemoteGenerator {
    link: Arc<Link>,
    slot: String,
}

impl RemoteGenerator {
    pub fn new(link: &Arc<Link>, slot: &str) -> Result<Self> {
        let (link, slot) = (link.clone(), slot.to_string());
        let generator = Self { link, slot };
        generator.ask(GeneratorAsk::Make, &[])?;
        Ok(generator)
    }

    fn ask(&self, what: GeneratorAsk, messages: &[NamedTensors<'_>]) -> Result<Answer> {
        let slot = self.slot.clone();
        self.link.ask(&Ask::Generator { slot, what }, messages)
    }
}

impl Generator for RemoteGenerator {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let key = stream.key();
        let answer = self.ask(GeneratorAsk::Sample { n, key }, &[])?;
        let ask: SamplesAsk = read(&answer)?;
        let mut parcel = TensorMap::new(answer.tensors);
        samples_of(&*self.link, &ask, &mut parcel)
    }

    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        with_samples(&*self.link, made, |made, tensors| {
            let slope = View::F32(slope.view().into_dyn());
            let tensors = with_more(&tensors, [("slope", slope)]);
            self.ask(GeneratorAsk::Learn { made }, &[tensors]).map(drop)
        })
    }

    fn save(&self) -> Result<Vec<u8>> {
        state_in(self.ask(GeneratorAsk::Save, &[])?)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let state = bytes_named("state", state);
        self.ask(GeneratorAsk::Load, &[state]).map(drop)
    }
}

/// A selector of the program that is out of its slot.
pub(super) struct RemoteSelector {
    pub link: Arc<Link>,
    pub held: u64,
    pub pool: &'static str,
}

/// Runs `f` with the text and tensors of a pool.
pub(super) fn with_pool<R>(
    link: &Arc<Link>,
    pool: AnyPool<'_>,
    f: impl FnOnce(Option<SamplesAsk>, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    match pool {
        AnyPool::Samples(x) => with_samples(&**link, x, |x, tensors| f(Some(x), tensors)),
        other => send(other, |tensors| {
            let again = tensors
                .iter()
                .map(|(name, view)| (name.as_ref().into(), shorter(view)));
            f(None, again.collect())
        }),
    }
}

/// Returns the positions in an answer.
pub(super) fn positions(answer: Answer) -> Result<Vec<usize>> {
    let all = TensorMap::new(answer.tensors).list("positions")?;
    Ok(all.into_iter().map(|at| at as usize).collect())
}

impl Sealed for RemoteSelector {}

impl AnySelector for RemoteSelector {
    fn pool(&self) -> &'static str {
        self.pool
    }
    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        with_examples(&*self.link, own, |own, tensors| {
            let ask = Ask::SelectorFit {
                selector: self.held,
                own,
                key: stream.key(),
            };
            self.link.ask(&ask, &[tensors]).map(drop)
        })
    }
    fn needs_scores(&self) -> bool {
        let ask = Ask::SelectorNeedsScores {
            selector: self.held,
        };
        self.link.keep(self.link.json(&ask, &[])).unwrap_or(false)
    }
    fn poll(&mut self, _: &Round, _: AnyPool<'_>) -> Result<Option<ClientStatQuery>> {
        Ok(None)
    }
    fn select(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Vec<usize>> {
        let name = pool.name();
        with_pool(&self.link, pool, |samples, tensors| {
            let ask = Ask::SelectorSelect {
                selector: self.held,
                round: RoundAsk::of(round),
                pool: name.into(),
                samples,
            };
            positions(self.link.ask(&ask, &[tensors])?)
        })
    }
    fn draw(&self) -> SamplingScheme {
        SamplingScheme::Unknown
    }
    fn rank(&mut self, pool: AnyPool<'_>) -> Result<Option<Vec<f64>>> {
        let name = pool.name();
        with_pool(&self.link, pool, |samples, tensors| {
            let ask = Ask::SelectorRank {
                selector: self.held,
                pool: name.into(),
                samples,
            };
            let answer = self.link.ask(&ask, &[tensors])?;
            let mut parcel = TensorMap::new(answer.tensors);
            if !parcel.has("ranks") {
                return Ok(None);
            }
            Ok(Some(parcel.f64("ranks")?.iter().copied().collect()))
        })
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn load(&mut self, _: &[u8]) -> Result<()> {
        Err(anyhow!("the program keeps the state of its selectors"))
    }
    fn typed(self: Box<Self>) -> std::result::Result<Box<dyn Any>, Box<dyn AnySelector>> {
        Err(self)
    }
}

/// A mechanism of the program that is out of its slot, during a training whose steps it releases.
pub(super) struct RemoteMechanism {
    pub link: Arc<Link>,
    pub held: u64,
    pub on: &'static MessageType,
}

fn only_clips() -> anyhow::Error {
    let why = "a protocol in a library may only let a mechanism clip between two steps";
    Problem::Lacks(why.into()).into()
}

impl Sealed for RemoteMechanism {}

impl AnyMechanism for RemoteMechanism {
    fn on(&self) -> &'static MessageType {
        self.on
    }
    fn clip(&self, message: &mut dyn AnyMessage) -> Result<()> {
        let ask = Ask::ClipHeld {
            mechanism: self.held,
            kind: message.kind().into(),
        };
        self.link.change(&ask, message)
    }
    fn norm_bound(&self) -> Option<f64> {
        let ask = Ask::NormBoundHeld {
            mechanism: self.held,
        };
        let bound = self.link.ask(&ask, &[]);
        self.link
            .keep(bound.and_then(|answer| read(&answer)))
            .flatten()
    }
    fn range(&self, _: &dyn AnyMessage) -> Option<f32> {
        None
    }
    fn agree(&mut self, _: f32) {}
    fn price(&self, _: &dyn AnyMessage, _: &Cohort) -> Result<PrivacyEvent> {
        Err(only_clips())
    }
    fn perturb(&mut self, _: &mut dyn AnyMessage, _: &Cohort, _: &ReleaseNoise) -> Result<()> {
        Err(only_clips())
    }
    fn queries(&self, _: &dyn AnyMessage) -> usize {
        1
    }
    fn truncate(&self, _: &mut dyn AnyMessage, _: usize) {}
    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        price
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn load(&mut self, _: &[u8]) -> Result<()> {
        Err(only_clips())
    }
    fn typed(self: Box<Self>) -> std::result::Result<Box<dyn Any>, Box<dyn AnyMechanism>> {
        Err(self)
    }
}
