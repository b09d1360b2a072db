//! Trainers.

use crate::caller::{Callee, Caller, Calls, Means};
use crate::data_sets::{KnownSets, NoSets};
use crate::host::{Answer, Answers, like};
use crate::library::{Host, Input};
use crate::marshal::{OutgoingMessage, content, shorter};
use crate::marshal_data::{
    SamplesText, samples_of, target_of, with_more, with_samples, with_target,
};
use crate::raw::*;
use anyhow::{Context, ensure};
use fl_roles::message::{Message, NamedTensors, Params, Tensor, TensorMap, View};
use fl_roles::{
    Abilities, AuxiliaryLoss, AuxiliaryTerm, Differentiable, FeatureLoss, FeatureTerm, FitOptions,
    FitReport, Head, Length, Loss, Parametric, PassStep, Problem, Result, Samples, Stream, Target,
    Trainer,
};
use ndarray::{Array1, Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{Debug, Formatter};

/// The text of [`FL_DESCRIBE`]'s answer.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct TrainerText {
    parametric: bool,
    differentiable: bool,
    #[serde(flatten)]
    abilities: Abilities,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    buffers: BTreeSet<String>,
}

impl TrainerText {
    fn of(trainer: &mut dyn Trainer) -> Self {
        let parametric = trainer.parametric();
        let buffers = parametric.as_ref().map(|model| model.buffers());
        Self {
            parametric: parametric.is_some(),
            differentiable: trainer.differentiable().is_some(),
            abilities: trainer.abilities(),
            buffers: buffers.unwrap_or_default(),
        }
    }
}

/// The text of [`FL_TRAIN`].
#[derive(Serialize, Deserialize)]
struct FitText {
    length: Length,
    batch: usize,
    loss: Loss,
    fresh: bool,
    #[serde(
        default = "PassStep::whole",
        skip_serializing_if = "PassStep::is_whole"
    )]
    rate: f64,
    proximal: Option<f64>,
    gradient_offset: bool,
    clip: Option<f64>,
    target: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    auxiliary: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    feature_loss: bool,
    #[serde(flatten)]
    x: SamplesText,
}

/// The text of [`FL_GRADIENT`] and [`FL_CLIPPED_GRADIENTS`].
#[derive(Serialize, Deserialize)]
struct GradientText {
    loss: Loss,
    target: String,
    /// Of single samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
    #[serde(flatten)]
    x: SamplesText,
}

/// As [`with_target`]; findings, which are -1, 0 or 1, and the classes of pixels as floats.
fn with_floats<R>(
    target: Target<'_>,
    f: impl FnOnce(&'static str, View<'_>) -> Result<R>,
) -> Result<R> {
    let (kind, of) = match target {
        Target::MultiLabel(of) => ("multi-label", of.mapv(f32::from)),
        Target::Pixels(of) => ("pixels", of.mapv(f32::from)),
        other => return with_target(&other, f),
    };
    f(kind, View::F32(of.view().into_dyn()))
}

/// A trainer that is elsewhere.
pub(crate) struct RemoteTrainer {
    remote: Box<dyn Caller>,
    about: TrainerText,
    /// How many scores each sample has; `None`: the other side has checked them.
    outputs: Option<usize>,
}

impl RemoteTrainer {
    pub fn new(remote: Box<dyn Caller>, outputs: Option<usize>) -> Result<Self> {
        Ok(Self {
            about: remote.value(FL_DESCRIBE, "", &[])?.unwrap_or_default(),
            remote,
            outputs,
        })
    }

    fn check_rate(&self, rate: f64) -> Result<()> {
        ensure!(
            PassStep::is_whole(&rate) || self.about.abilities.scales_rate,
            self.problem("no pass can scale its learning rate")
        );
        Ok(())
    }

    /// Asks about samples, which go with `more`.
    fn of_samples(
        &self,
        operation: u32,
        x: &Samples,
        more: Option<(&str, View<'_>)>,
    ) -> Result<Option<Answer>> {
        with_samples(self.remote.sets(), x, |x, tensors| {
            let more = more.as_ref().map(|(name, view)| (*name, shorter(view)));
            let letter = [with_more(&tensors, more)];
            let text = serde_json::to_string(&x)?;
            self.remote.ask(operation, &text, &letter, Means::default())
        })
    }

    /// The answer's table of this name, with a row for each sample and `columns` columns.
    fn table(
        &self,
        tensors: Vec<(String, Tensor)>,
        name: &str,
        rows: usize,
        columns: Option<usize>,
    ) -> Result<Array2<f32>> {
        let table = self.remote.named(TensorMap::new(tensors).table(name))?;
        let due = (rows, columns.unwrap_or(table.ncols()));
        Problem::shape_unless(table.dim() == due, || {
            self.remote.says(&format!(
                "`{name}` is {:?} where {due:?} was due",
                table.dim()
            ))
        })?;
        Ok(table)
    }

    /// Asks for a gradient, or for the sum of the clipped ones of single samples.
    fn ask_gradient(
        &self,
        operation: u32,
        x: &Samples,
        target: Target<'_>,
        loss: Loss,
        clip: Option<f64>,
    ) -> Result<Option<Answer>> {
        self.remote.check()?;
        with_samples(self.remote.sets(), x, |x, tensors| {
            with_floats(target, |kind, view| {
                let text = serde_json::to_string(&GradientText {
                    loss,
                    target: kind.into(),
                    clip,
                    x,
                })?;
                let letter = [with_more(&tensors, [("target", shorter(&view))])];
                self.remote.ask(operation, &text, &letter, Means::default())
            })
        })
    }

    /// Reads a gradient, which must fit the parameters.
    fn checked_gradient(&self, answer: Answer) -> Result<Params> {
        let gradient: Params = self.remote.message(answer)?;
        if self.remote.who().is_some() {
            self.remote.named(like(&self.params(), &gradient))?;
            self.remote.named(fl_roles::message::check(&gradient))?;
        }
        Ok(gradient)
    }

    fn problem(&self, what: &str) -> Problem {
        Problem::Lacks(self.remote.says(what))
    }
}

impl Trainer for RemoteTrainer {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        self.remote.check()?;
        ensure!(
            pass.auxiliary.is_none() || self.head().is_some(),
            self.problem("it gives no last layer (FL_HEAD), so it takes no auxiliary loss")
        );
        ensure!(
            pass.feature_loss.is_none() || self.about.abilities.feature_loss,
            self.problem("it takes no loss on its features")
        );
        let terms = pass.proximal.is_some() || pass.gradient_offset.is_some();
        ensure!(
            !(terms || pass.clip.is_some()) || self.about.abilities.gradient_terms,
            self.problem("its gradients take no proximal term, no offset and no clipping")
        );
        self.check_rate(pass.rate)?;
        let back = LossesBack::of(pass);
        let means = Means {
            answers: back.as_ref().map(|back| back as &dyn Answers),
            ..Means::stream(stream)
        };
        let anchors = [pass.proximal.map(|(_, p)| p), pass.gradient_offset];
        let answer = with_samples(self.remote.sets(), x, |x, tensors| {
            with_floats(target, |kind, view| {
                let text = serde_json::to_string(&FitText {
                    length: pass.length,
                    batch: pass.batch,
                    loss: pass.loss,
                    fresh: pass.fresh,
                    rate: pass.rate,
                    proximal: pass.proximal.map(|(mu, _)| f64::from(mu)),
                    gradient_offset: pass.gradient_offset.is_some(),
                    clip: pass.clip.map(f64::from),
                    target: kind.into(),
                    auxiliary: pass.auxiliary.is_some(),
                    feature_loss: pass.feature_loss.is_some(),
                    x,
                })?;
                let mut all = vec![with_more(&tensors, [("target", shorter(&view))])];
                all.extend(anchors.iter().flatten().map(|p| p.tensors()));
                self.remote.must(FL_TRAIN, &text, &all, means)
            })
        })?;
        self.remote.json(&answer)
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        self.remote.check()?;
        let answer = self.of_samples(FL_PREDICT, x, None)?;
        let answer = answer.with_context(|| self.remote.says("it predicts nothing"))?;
        self.table(answer.tensors, "scores", x.len(), self.outputs)
    }

    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.remote.check()?;
        let answer = self.of_samples(FL_FEATURES, x, None)?;
        // a network may have as many features as it likes
        let answer = answer.filter(|answer| !answer.tensors.is_empty());
        answer
            .map(|answer| self.table(answer.tensors, "features", x.len(), None))
            .transpose()
    }

    fn head(&self) -> Option<Head> {
        let head = || -> Result<Option<Head>> {
            let answer = self.remote.ask(FL_HEAD, "", &[], Means::default())?;
            let answer = answer.filter(|answer| !answer.tensors.is_empty());
            let head = answer.map(|answer| head_of(&mut TensorMap::new(answer.tensors)));
            let head = self.remote.named(head.transpose())?;
            if let (Some(head), Some(due)) = (&head, self.outputs) {
                let outputs = head.outputs();
                Problem::shape_unless(outputs == due, || {
                    self.remote.says(&format!(
                        "its last layer has {outputs} outputs where {due} were due"
                    ))
                })?;
            }
            Ok(head)
        };
        self.remote.keep(head()).flatten()
    }

    fn abilities(&self) -> Abilities {
        self.about.abilities.clone()
    }

    fn save(&self) -> Result<Vec<u8>> {
        let saved = self.remote.save(FL_SAVE)?;
        saved.with_context(|| self.remote.says("it cannot be saved"))
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        let done = self.remote.load(FL_LOAD, model)?;
        done.with_context(|| self.remote.says("it cannot be loaded"))
    }

    fn save_state(&self) -> Result<Vec<u8>> {
        match self.remote.save(FL_SAVE_STATE)? {
            Some(state) => Ok(state),
            None => self.save(),
        }
    }

    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        match self.remote.load(FL_LOAD_STATE, state)? {
            Some(()) => Ok(()),
            None => self.load(state),
        }
    }

    fn save_memory(&self) -> Result<Vec<u8>> {
        Ok(self.remote.save(FL_SAVE_MEMORY)?.unwrap_or_default())
    }

    fn load_memory(&mut self, memory: &[u8]) -> Result<()> {
        let done = self.remote.load(FL_LOAD_MEMORY, memory)?;
        done.with_context(|| self.problem("it keeps no memory to restore"))
    }

    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        self.about.parametric.then_some(self as &mut dyn Parametric)
    }

    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        let able = self.about.differentiable;
        able.then_some(self as &mut dyn Differentiable)
    }
}

impl Parametric for RemoteTrainer {
    fn params(&self) -> Params {
        let answer = self.remote.must(FL_PARAMS, "", &[], Means::default());
        let params = answer.and_then(|answer| self.remote.message::<Params>(answer));
        self.remote.keep(params).unwrap_or_default()
    }

    fn buffers(&self) -> BTreeSet<String> {
        self.about.buffers.clone()
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        self.remote.check()?;
        let letter = [content(params)];
        let done = self
            .remote
            .must(FL_SET_PARAMS, "", &letter, Means::default());
        done.map(drop)
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        let answer = self.ask_gradient(FL_GRADIENT, x, target, loss, None)?;
        let answer = answer.with_context(|| self.problem("it gives no gradients"))?;
        self.checked_gradient(answer)
    }

    fn clipped_gradients(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        loss: Loss,
        clip: f64,
    ) -> Result<Option<Params>> {
        let answer = self.ask_gradient(FL_CLIPPED_GRADIENTS, x, target, loss, Some(clip))?;
        let answer = answer.filter(|answer| !answer.tensors.is_empty());
        answer
            .map(|answer| self.checked_gradient(answer))
            .transpose()
    }

    fn descend(&mut self, gradient: &Params, step: &PassStep) -> Result<()> {
        self.remote.check()?;
        self.check_rate(step.rate)?;
        let text = serde_json::to_string(step)?;
        let letter = [content(gradient)];
        let done = self
            .remote
            .ask(FL_DESCEND, &text, &letter, Means::default())?;
        done.map(drop)
            .with_context(|| self.problem("it takes no gradients"))
    }

    fn step_size(&self) -> Option<f64> {
        let size = self.remote.value(FL_STEP_SIZE, "", &[]);
        self.remote.keep(size).flatten().flatten()
    }
}

impl Differentiable for RemoteTrainer {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let slope = View::F32(slope.view().into_dyn());
        let answer = self.of_samples(FL_VJP, x, Some(("slope", slope)))?;
        let answer = self.remote.due(FL_VJP, answer)?;
        self.table(answer.tensors, "slopes", x.len(), Some(x.width()))
    }
}

impl Callee for Box<dyn Trainer> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        serve(&mut **self, &NoSets, operation, input, host)
    }
}

/// Does an operation with a trainer that is here; samples may be rows of `sets`.
pub(crate) fn serve(
    trainer: &mut dyn Trainer,
    sets: &dyn KnownSets,
    operation: u32,
    input: &Input<'_>,
    host: &Host<'_>,
) -> Result<bool> {
    let samples = || samples_of(sets, &input.json()?, &mut input.parcel(0)?);
    let state = || input.parcel(0)?.bytes("state");
    let table = |name: &'static str, table: Array2<f32>| {
        host.tensors(&vec![(name.into(), View::F32(table.view().into_dyn()))])
    };
    match operation {
        FL_DESCRIBE => host.json(&TrainerText::of(trainer))?,
        FL_TRAIN => train(trainer, sets, input, host)?,
        FL_PREDICT => table("scores", trainer.predict(&samples()?)?)?,
        FL_FEATURES => {
            if let Some(features) = trainer.features(&samples()?)? {
                table("features", features)?;
            }
        }
        FL_HEAD => {
            if let Some(head) = trainer.head() {
                host.tensors(&head_tensors(&head))?;
            }
        }
        FL_SAVE => host.state(&trainer.save()?)?,
        FL_LOAD => trainer.load(&state()?)?,
        FL_SAVE_STATE => host.state(&trainer.save_state()?)?,
        FL_LOAD_STATE => trainer.load_state(&state()?)?,
        FL_SAVE_MEMORY => host.state(&trainer.save_memory()?)?,
        FL_LOAD_MEMORY => trainer.load_memory(&state()?)?,
        FL_PARAMS => host.tensors(&content(&able(trainer)?.params()))?,
        FL_SET_PARAMS => able(trainer)?.set_params(&input.message(0)?)?,
        FL_GRADIENT | FL_CLIPPED_GRADIENTS => {
            let GradientText {
                loss,
                target,
                clip,
                x,
            } = input.json()?;
            let mut parcel = input.parcel(0)?;
            let x = samples_of(sets, &x, &mut parcel)?;
            let target = target_of(&target, &mut parcel)?;
            let model = able(trainer)?;
            let gradient = match clip {
                Some(clip) => model.clipped_gradients(&x, target.view(), loss, clip)?,
                None => Some(model.gradient(&x, target.view(), loss)?),
            };
            if let Some(gradient) = gradient {
                host.tensors(&content(&gradient))?;
            }
        }
        FL_DESCEND => {
            able(trainer)?.descend(&input.message(0)?, &input.json()?)?;
        }
        FL_STEP_SIZE => host.json(&able(trainer)?.step_size())?,
        FL_VJP => {
            let mut parcel = input.parcel(0)?;
            let slope = parcel.table("slope")?;
            let x = samples_of(sets, &input.json()?, &mut parcel)?;
            let able = trainer.differentiable();
            let able = able.context("it cannot be differentiated by its input")?;
            table("slopes", able.vjp(&x, slope.view())?)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn able(trainer: &mut dyn Trainer) -> Result<&mut dyn Parametric> {
    let able = trainer.parametric();
    able.ok_or_else(|| Problem::Lacks("it has no parameters to average".into()).into())
}

fn train(
    trainer: &mut dyn Trainer,
    sets: &dyn KnownSets,
    input: &Input<'_>,
    host: &Host<'_>,
) -> Result<()> {
    let text: FitText = input.json()?;
    let mut parcel = input.parcel(0)?;
    let x = samples_of(sets, &text.x, &mut parcel)?;
    let target = target_of(&text.target, &mut parcel)?;
    let mut at = 0;
    let mut next = |there: bool| -> Result<Option<Params>> {
        at += usize::from(there);
        there.then(|| input.message(at)).transpose()
    };
    let (proximal, offset) = (next(text.proximal.is_some())?, next(text.gradient_offset)?);
    let loss = RemoteLoss(host);
    let pass = FitOptions {
        length: text.length,
        batch: text.batch,
        loss: text.loss,
        fresh: text.fresh,
        rate: text.rate,
        proximal: text.proximal.map(|mu| mu as f32).zip(proximal.as_ref()),
        gradient_offset: offset.as_ref(),
        clip: text.clip.map(|c| c as f32),
        auxiliary: text.auxiliary.then_some(&loss as &dyn AuxiliaryLoss),
        feature_loss: text.feature_loss.then_some(&loss as &dyn FeatureLoss),
    };
    host.json(&trainer.fit(&x, target.view(), &pass, &host.stream())?)
}

/// The tensors of a last layer.
fn head_tensors(head: &Head) -> NamedTensors<'_> {
    vec![
        ("weight".into(), View::F64(head.weight.view().into_dyn())),
        ("bias".into(), View::F64(head.bias.view().into_dyn())),
    ]
}

/// The last layer of [`head_tensors`].
fn head_of(parcel: &mut TensorMap) -> Result<Head> {
    let head = Head {
        weight: parcel.f64("weight")?.into_dimensionality()?,
        bias: parcel.f64("bias")?.into_dimensionality()?,
    };
    let (outputs, biases) = (head.outputs(), head.bias.len());
    let text = || format!("{biases} biases for {outputs} outputs");
    Problem::shape_unless(outputs == biases, text)?;
    Ok(head)
}

/// An added loss that the other side computes, in the middle of its call.
struct RemoteLoss<'a>(&'a Host<'a>);

impl Debug for RemoteLoss<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemoteLoss")
    }
}

/// The text of a request for a loss.
#[derive(Serialize, Deserialize)]
struct LossText<'a> {
    target: Cow<'a, str>,
    key: [u8; 32],
}

impl RemoteLoss<'_> {
    fn ask(
        &self,
        operation: u32,
        target: &str,
        stream: &Stream,
        tensors: &NamedTensors<'_>,
    ) -> Result<TensorMap> {
        let (target, key) = (target.into(), stream.key());
        let text = serde_json::to_string(&LossText { target, key })?;
        let answer = (self.0).ask_back(operation, &text, OutgoingMessage::new(tensors))?;
        Ok(TensorMap::new(answer.tensors))
    }
}

impl AuxiliaryLoss for RemoteLoss<'_> {
    fn of_batch(
        &self,
        head: &Head,
        target: Target<'_>,
        scores: ArrayView2<'_, f32>,
        stream: &Stream,
    ) -> Result<AuxiliaryTerm> {
        with_target(&target, |kind, view| {
            let mut tensors = head_tensors(head);
            tensors.push(("scores".into(), View::F32(scores.view().into_dyn())));
            tensors.push(("target".into(), shorter(&view)));
            let mut parcel = self.ask(FL_AUXILIARY_LOSS, kind, stream, &tensors)?;
            let term = AuxiliaryTerm {
                loss: parcel.f64("loss")?.first().copied().context("no loss")?,
                by_scores: parcel.table("by-scores")?,
                by_head: head_of(&mut parcel)?,
            };
            let same = term.by_scores.dim() == scores.dim()
                && term.by_head.weight.dim() == head.weight.dim()
                && term.by_head.bias.dim() == head.bias.dim();
            let text = "an auxiliary loss gave slopes of other shapes";
            Problem::shape_unless(same, || text.into())?;
            Ok(term)
        })
    }
}

impl FeatureLoss for RemoteLoss<'_> {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        rows: &[usize],
        stream: &Stream,
    ) -> Result<FeatureTerm> {
        let rows: Array1<u32> = rows.iter().map(|row| *row as u32).collect();
        with_target(&target, |kind, view| {
            let features = View::F32(features.view().into_dyn());
            let tensors = vec![
                ("features".into(), features),
                ("target".into(), shorter(&view)),
                ("rows".into(), View::U32(rows.view().into_dyn())),
            ];
            let mut parcel = self.ask(FL_FEATURE_LOSS, kind, stream, &tensors)?;
            Ok(FeatureTerm {
                loss: parcel.f64("loss")?.first().copied().context("no loss")?,
                by_features: parcel.table("by-features")?,
            })
        })
    }
}

/// The added losses of this side, for the other.
struct LossesBack<'a> {
    auxiliary: Option<&'a dyn AuxiliaryLoss>,
    features: Option<&'a dyn FeatureLoss>,
}

impl<'a> LossesBack<'a> {
    /// The losses of a pass; `None` if it has none.
    fn of(pass: &FitOptions<'a>) -> Option<Self> {
        let (auxiliary, features) = (pass.auxiliary, pass.feature_loss);
        let back = Self {
            auxiliary,
            features,
        };
        (auxiliary.is_some() || features.is_some()).then_some(back)
    }
}

impl Answers for LossesBack<'_> {
    fn answer(&self, _: u64, operation: u32, input: &Input<'_>, reply: &Host<'_>) -> Result<bool> {
        let asked = || -> Result<_> {
            let LossText { target, key } = input.json()?;
            let mut parcel = input.parcel(0)?;
            let target = target_of(&target, &mut parcel)?;
            Ok((target, Stream::from_key(key), parcel))
        };
        match (operation, self.auxiliary, self.features) {
            (FL_AUXILIARY_LOSS, Some(of), _) => {
                let (target, stream, mut parcel) = asked()?;
                let (head, scores) = (head_of(&mut parcel)?, parcel.table("scores")?);
                let term = of.of_batch(&head, target.view(), scores.view(), &stream)?;
                let loss = Array1::from_elem(1, term.loss);
                let by_scores = View::F32(term.by_scores.view().into_dyn());
                let mut tensors = head_tensors(&term.by_head);
                tensors.push(("loss".into(), View::F64(loss.view().into_dyn())));
                tensors.push(("by-scores".into(), by_scores));
                reply.tensors(&tensors)?;
            }
            (FL_FEATURE_LOSS, _, Some(of)) => {
                let (target, stream, mut parcel) = asked()?;
                let (features, rows) = (parcel.table("features")?, parcel.list("rows")?);
                let rows: Vec<usize> = rows.iter().map(|row| *row as usize).collect();
                let (view, target) = (features.view(), target.view());
                let term = FeatureTerm::of(of, view, target, &rows, &stream)?;
                let loss = Array1::from_elem(1, term.loss);
                let by_features = View::F32(term.by_features.view().into_dyn());
                reply.tensors(&vec![
                    ("loss".into(), View::F64(loss.view().into_dyn())),
                    ("by-features".into(), by_features),
                ])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
