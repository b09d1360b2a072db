//! Parts of the program, as a protocol in a library sees them.

use super::call_context::{Host, Input};
use super::link::{Link, asked_back, read};
use crate::abi::ask::{
    AboutModel, Ask, AskBack, ModelAsk, PartAsk, PassAsk, RoundAsk, SamplesAsk, Side, samples_of,
    target_of, with_bytes, with_examples, with_more, with_samples, with_target,
};
use crate::abi::host::{Answer, Answers};
use crate::abi::marshal::{OutgoingMessage, content, shorter};
use crate::abi::marshal_samples::send;
use crate::message::{AnyMessage, Message, MessageType, NamedTensors, Params, TensorMap, View};
use crate::privacy::ReleaseNoise;
use crate::{
    AnyMechanism, AnyPool, AnySelector, AuxiliaryLoss, ClientStatQuery, Cohort, Differentiable,
    Examples, FitOptions, FitReport, Generator, Head, Loss, Parametric, PrivacyEvent, Problem,
    Result, Round, Samples, SamplingScheme, Stream, Target, Trainer,
};
use anyhow::{Context, anyhow};
use ndarray::{Array1, Array2, ArrayView2};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A model of the program.
pub(super) struct RemoteModel {
    link: Arc<Link>,
    pub of: PartAsk,
    about: AboutModel,
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
            about: AboutModel::default(),
        };
        model.about = read(&model.ask(ModelAsk::Describe, &[])?)?;
        Ok(model)
    }

    /// A model that was given: `held` is its number.
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

    fn ask(&self, what: ModelAsk, letters: &[OutgoingMessage<'_, '_>]) -> Result<Answer> {
        let of = self.of.clone();
        self.link.ask(&Ask::Model { of, what }, letters)
    }

    /// Asks about samples.
    fn of_samples(
        &self,
        x: &Samples,
        what: impl FnOnce(SamplesAsk) -> ModelAsk,
    ) -> Result<TensorMap> {
        with_samples(Side::Library, x, |x, tensors| {
            let answer = self.ask(what(x), &[OutgoingMessage::new(&tensors)])?;
            Ok(TensorMap::new(answer.tensors))
        })
    }

    fn state(&self, what: ModelAsk) -> Result<Vec<u8>> {
        let mut parcel = TensorMap::new(self.ask(what, &[])?.tensors);
        match parcel.has("state") {
            true => parcel.bytes("state"),
            false => Ok(Vec::new()),
        }
    }

    fn take_back(&self, what: ModelAsk, state: &[u8]) -> Result<()> {
        with_bytes("state", state, |letter| self.ask(what, letter)).map(drop)
    }
}

/// An auxiliary loss that the program asks for.
struct AuxiliaryBack<'a>(&'a dyn AuxiliaryLoss);

impl Answers for AuxiliaryBack<'_> {
    fn answer(&self, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let AskBack::Auxiliary { target, key } = asked_back(operation, input)? else {
            return Ok(false);
        };
        let mut parcel = input.parcel(0)?;
        let head = Head {
            weight: parcel.f64("weight")?.into_dimensionality()?,
            bias: parcel.f64("bias")?.into_dimensionality()?,
        };
        let target = target_of(&target, &mut parcel)?;
        let scores = parcel.table("scores")?;
        let stream = Stream::from_key(key);
        let term = self
            .0
            .of_batch(&head, target.view(), scores.view(), &stream)?;
        let loss = Array1::from_elem(1, term.loss);
        reply.tensors(&vec![
            ("loss".into(), View::F64(loss.view().into_dyn())),
            (
                "by-scores".into(),
                View::F32(term.by_scores.view().into_dyn()),
            ),
            (
                "weight".into(),
                View::F64(term.by_head.weight.view().into_dyn()),
            ),
            (
                "bias".into(),
                View::F64(term.by_head.bias.view().into_dyn()),
            ),
        ])?;
        Ok(true)
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
        };
        let anchors = [pass.proximal.map(|(_, p)| p), pass.gradient_offset];
        let back = pass.auxiliary.map(AuxiliaryBack);
        let back = back.as_ref().map(|back| back as &dyn Answers);
        let answer = with_samples(Side::Library, x, |x, tensors| {
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
            Ok(Some(Head {
                weight: parcel.f64("weight")?.into_dimensionality()?,
                bias: parcel.f64("bias")?.into_dimensionality()?,
            }))
        };
        self.link.keep(head()).flatten()
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

    fn set_params(&mut self, params: &Params) -> Result<()> {
        let tensors = params.tensors();
        self.ask(ModelAsk::SetParams, &[OutgoingMessage::new(&tensors)])
            .map(drop)
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        with_samples(Side::Library, x, |x, tensors| {
            with_target(&target, |kind, view| {
                let tensors = with_more(&tensors, [("target", shorter(&view))]);
                let target = kind.into();
                let what = ModelAsk::Gradient { x, target, loss };
                let answer = self.ask(what, &[OutgoingMessage::new(&tensors)])?;
                Params::from_tensors(TensorMap::new(answer.tensors))
            })
        })
    }

    fn descend(&mut self, gradient: &Params, at: usize, of: usize) -> Result<()> {
        let tensors = gradient.tensors();
        let what = ModelAsk::Descend { at, of };
        self.ask(what, &[OutgoingMessage::new(&tensors)]).map(drop)
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
        with_samples(Side::Library, x, |x, tensors| {
            let slope = View::F32(slope.view().into_dyn());
            let tensors = with_more(&tensors, [("slope", slope)]);
            let answer = self.ask(ModelAsk::Vjp { x }, &[OutgoingMessage::new(&tensors)])?;
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
        let slot = slot.to_string();
        link.ask(&Ask::Generator { slot: slot.clone() }, &[])?;
        let link = link.clone();
        Ok(Self { link, slot })
    }
}

impl Generator for RemoteGenerator {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let (slot, key) = (self.slot.clone(), stream.key());
        let answer = self.link.ask(&Ask::Sample { slot, n, key }, &[])?;
        let ask: SamplesAsk = read(&answer)?;
        let mut parcel = TensorMap::new(answer.tensors);
        let fetched = |n| crate::abi::ask::fetched_inputs(&*self.link, n);
        samples_of(&ask, &mut parcel, fetched)
    }

    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        with_samples(Side::Library, made, |made, tensors| {
            let slope = View::F32(slope.view().into_dyn());
            let tensors = with_more(&tensors, [("slope", slope)]);
            let slot = self.slot.clone();
            let letter = [OutgoingMessage::new(&tensors)];
            self.link.ask(&Ask::Learn { slot, made }, &letter).map(drop)
        })
    }

    fn save(&self) -> Result<Vec<u8>> {
        let slot = self.slot.clone();
        let state = self
            .link
            .bytes(&Ask::SaveGenerator { slot }, &[], "state")?;
        Ok(state.unwrap_or_default())
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let slot = self.slot.clone();
        with_bytes("state", state, |letter| {
            self.link
                .ask(&Ask::LoadGenerator { slot }, letter)
                .map(drop)
        })
    }
}

/// A selector of the program, while it is taken out of its slot.
pub(super) struct RemoteSelector {
    pub link: Arc<Link>,
    pub held: u64,
    pub pool: &'static str,
}

/// Runs `f` with a pool as it crosses.
pub(super) fn with_pool<R>(
    pool: AnyPool<'_>,
    f: impl FnOnce(Option<SamplesAsk>, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    match pool {
        AnyPool::Samples(x) => with_samples(Side::Library, x, |x, tensors| f(Some(x), tensors)),
        other => send(other, |tensors| {
            let again = tensors
                .iter()
                .map(|(name, view)| (name.as_ref().into(), shorter(view)));
            f(None, again.collect())
        }),
    }
}

/// Positions in an answer.
pub(super) fn positions(answer: Answer) -> Result<Vec<usize>> {
    let all = TensorMap::new(answer.tensors).list("positions")?;
    Ok(all.into_iter().map(|at| at as usize).collect())
}

impl AnySelector for RemoteSelector {
    fn pool(&self) -> &'static str {
        self.pool
    }
    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        with_examples(Side::Library, own, |own, tensors| {
            let ask = Ask::SelectorFit {
                selector: self.held,
                own,
                key: stream.key(),
            };
            self.link
                .ask(&ask, &[OutgoingMessage::new(&tensors)])
                .map(drop)
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
        with_pool(pool, |samples, tensors| {
            let ask = Ask::SelectorSelect {
                selector: self.held,
                round: RoundAsk::of(round),
                pool: name.into(),
                samples,
            };
            positions(self.link.ask(&ask, &[OutgoingMessage::new(&tensors)])?)
        })
    }
    fn draw(&self) -> SamplingScheme {
        SamplingScheme::Unknown
    }
    fn rank(&mut self, pool: AnyPool<'_>) -> Result<Option<Vec<f64>>> {
        let name = pool.name();
        with_pool(pool, |samples, tensors| {
            let ask = Ask::SelectorRank {
                selector: self.held,
                pool: name.into(),
                samples,
            };
            let answer = self.link.ask(&ask, &[OutgoingMessage::new(&tensors)])?;
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

/// A mechanism of the program, while the steps of a training go through it.
pub(super) struct RemoteMechanism {
    pub link: Arc<Link>,
    pub held: u64,
    pub on: &'static MessageType,
}

fn only_clips() -> anyhow::Error {
    let why = "a protocol in a library may only let a mechanism clip between two steps";
    Problem::Lacks(why.into()).into()
}

/// Becomes what the program made of it.
pub(super) fn changed(message: &mut dyn AnyMessage, answer: Answer) -> Result<()> {
    let of = message.message_type();
    message.become_other(of.from_tensors(TensorMap::new(answer.tensors))?)
}

impl AnyMechanism for RemoteMechanism {
    fn on(&self) -> &'static MessageType {
        self.on
    }
    fn clip(&self, message: &mut dyn AnyMessage) -> Result<()> {
        let ask = Ask::ClipHeld {
            mechanism: self.held,
            kind: message.kind().into(),
        };
        let answer = {
            let tensors = content(message);
            self.link.ask(&ask, &[OutgoingMessage::new(&tensors)])?
        };
        changed(message, answer)
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
