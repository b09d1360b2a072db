//! Trainers of a library as parts of this program.

use super::call::Answer;
use super::deferred_error::DeferredError;
use super::part_handle::PartHandle;
use crate::abi::auxiliary::{LossesBack, head_of};
use crate::abi::context_json::{FitOptionsText, GradientText, SamplesText, StepText, TrainerText};
use crate::abi::marshal::{OutgoingMessage, content, shorter};
use crate::abi::marshal_data::with_target;
use crate::abi::marshal_samples::{number, with_values};
use crate::abi::raw::*;
use crate::message::{Message, NamedTensors, Params, Tensor, TensorMap, View};
use crate::{
    Differentiable, FitOptions, FitReport, Head, Loss, Parametric, Problem, Result, Samples,
    Stream, Target, Task, Trainer,
};
use anyhow::{Context, ensure};
use ndarray::{Array2, ArrayView2};
use serde::Deserialize;
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct FitReportText {
    steps: usize,
    loss: f64,
    #[serde(default)]
    falls: Option<bool>,
}

pub(super) struct LoadedTrainer {
    remote: PartHandle,
    about: TrainerText,
    /// How many scores each sample has.
    outputs: usize,
    late: DeferredError,
}

impl LoadedTrainer {
    pub fn new(remote: PartHandle, task: &Task) -> Result<Self> {
        Ok(Self {
            about: remote.value(FL_DESCRIBE, "", &[])?.unwrap_or_default(),
            remote,
            outputs: task.kind.outputs(),
            late: DeferredError::default(),
        })
    }

    fn scores(&self, operation: u32, name: &str, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.late.check().context(self.remote.who())?;
        let answer = with_values(x, |values| {
            let tensors: NamedTensors<'_> = vec![("values".into(), View::F32(values))];
            let text = serde_json::to_string(&SamplesText { samples: number(x) })?;
            self.remote.ask(operation, &text, &[tensors])
        })?;
        let Some(answer) = answer.filter(|a| operation != FL_FEATURES || !a.tensors.is_empty())
        else {
            return Ok(None);
        };
        // a network may have as many features as it likes
        let columns = (operation == FL_PREDICT).then_some(self.outputs);
        self.table(answer.tensors, name, x.len(), columns).map(Some)
    }

    /// The answer's table of this name, with a row for each sample and `columns` columns.
    fn table(
        &self,
        tensors: Vec<(String, Tensor)>,
        name: &str,
        rows: usize,
        columns: Option<usize>,
    ) -> Result<Array2<f32>> {
        let table = TensorMap::new(tensors)
            .table(name)
            .context(self.remote.who())?;
        let due = (rows, columns.unwrap_or(table.ncols()));
        ensure!(
            table.dim() == due,
            Problem::Shape(format!(
                "{}: `{name}` is {:?} where {due:?} was due",
                self.remote.who(),
                table.dim()
            ))
        );
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
        self.late.check().context(self.remote.who())?;
        with_values(x, |values| {
            with_floats(target, |kind, view| {
                let target = kind.into();
                let text = serde_json::to_string(&GradientText { loss, target, clip })?;
                let tensors: NamedTensors<'_> = vec![
                    ("values".into(), View::F32(values.view())),
                    ("target".into(), shorter(&view)),
                ];
                self.remote.ask(operation, &text, &[tensors])
            })
        })
    }

    /// Reads a gradient that fits the parameters.
    fn checked_gradient(&self, answer: Answer) -> Result<Params> {
        let gradient: Params = self.remote.message(answer)?;
        super::same_shape::like(&self.params(), &gradient).context(self.remote.who())?;
        crate::message::check(&gradient).context(self.remote.who())?;
        Ok(gradient)
    }
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

impl Trainer for LoadedTrainer {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        self.late.check().context(self.remote.who())?;
        ensure!(
            pass.auxiliary.is_none() || self.head().is_some(),
            Problem::Lacks(format!(
                "{}: it gives no last layer (FL_HEAD), so it takes no auxiliary loss",
                self.remote.who()
            ))
        );
        ensure!(
            pass.feature_loss.is_none() || self.about.feature_loss,
            Problem::Lacks(format!(
                "{}: it takes no loss on its features",
                self.remote.who()
            ))
        );
        let mut text = FitOptionsText {
            length: pass.length,
            batch: pass.batch,
            loss: pass.loss,
            fresh: pass.fresh,
            proximal: pass.proximal.map(|(mu, _)| f64::from(mu)),
            gradient_offset: pass.gradient_offset.is_some(),
            clip: pass.clip.map(f64::from),
            target: String::new(),
            auxiliary: pass.auxiliary.is_some(),
            feature_loss: pass.feature_loss.is_some(),
            samples: number(x),
        };
        let back = LossesBack::of(pass);
        let anchors = [pass.proximal.map(|(_, p)| p), pass.gradient_offset];
        let answer = with_values(x, |values| {
            with_floats(target, |kind, view| {
                text.target = kind.into();
                let mut all: Vec<NamedTensors<'_>> = vec![vec![
                    ("values".into(), View::F32(values.view())),
                    ("target".into(), shorter(&view)),
                ]];
                all.extend(anchors.iter().flatten().map(|p| p.tensors()));
                let letters: Vec<_> = all.iter().map(OutgoingMessage::new).collect();
                let text = serde_json::to_string(&text)?;
                match &back {
                    Some(back) => {
                        let stream = Some(stream);
                        self.remote.asking(FL_TRAIN, &text, &letters, stream, back)
                    }
                    None => self
                        .remote
                        .must(FL_TRAIN, &text, &letters, Some(stream), None),
                }
            })
        })?;
        let fitted: FitReportText = self.remote.json(&answer)?;
        Ok(FitReport {
            steps: fitted.steps,
            loss: fitted.loss,
            falls: fitted.falls,
        })
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        let scores = self.scores(FL_PREDICT, "scores", x)?;
        scores.with_context(|| format!("{}: it predicts nothing", self.remote.who()))
    }

    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.scores(FL_FEATURES, "features", x)
    }

    fn head(&self) -> Option<Head> {
        let head = || -> Result<Option<Head>> {
            let answer = self.remote.ask(FL_HEAD, "", &[])?;
            let answer = answer.filter(|answer| !answer.tensors.is_empty());
            let head = answer.map(|answer| head_of(&mut TensorMap::new(answer.tensors)));
            let head = head.transpose().context(self.remote.who())?;
            let outputs = head.as_ref().map_or(self.outputs, Head::outputs);
            ensure!(
                outputs == self.outputs,
                Problem::Shape(format!(
                    "{}: its last layer has {outputs} outputs where {} were due",
                    self.remote.who(),
                    self.outputs
                ))
            );
            Ok(head)
        };
        self.late.keep(head()).flatten()
    }

    fn takes_feature_loss(&self) -> bool {
        self.about.feature_loss
    }

    fn save(&self) -> Result<Vec<u8>> {
        let saved = self.remote.save(FL_SAVE)?;
        saved.with_context(|| format!("{}: it cannot be saved", self.remote.who()))
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        let done = self.remote.load(FL_LOAD, model)?;
        done.with_context(|| format!("{}: it cannot be loaded", self.remote.who()))
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
        done.with_context(|| {
            Problem::Lacks(format!(
                "{}: it keeps no memory to restore",
                self.remote.who()
            ))
        })
    }

    fn learns(&self, loss: Loss) -> bool {
        // one temperature of a loss is as good as another
        let same = |known: &Loss| std::mem::discriminant(known) == std::mem::discriminant(&loss);
        let known = self.about.learns.as_ref();
        known.is_none_or(|all| all.iter().any(same))
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

impl Parametric for LoadedTrainer {
    fn params(&self) -> Params {
        let params = || {
            let answer = self.remote.must(FL_PARAMS, "", &[], None, None)?;
            self.remote.message::<Params>(answer)
        };
        self.late.keep(params()).unwrap_or_default()
    }

    fn buffers(&self) -> BTreeSet<String> {
        self.about.buffers.clone()
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let tensors = content(params);
        let letter = [OutgoingMessage::new(&tensors)];
        self.remote.must(FL_SET_PARAMS, "", &letter, None, None)?;
        Ok(())
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        let answer = self.ask_gradient(FL_GRADIENT, x, target, loss, None)?;
        let answer = answer.with_context(|| {
            Problem::Lacks(format!("{}: it gives no gradients", self.remote.who()))
        })?;
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

    fn descend(&mut self, gradient: &Params, at: usize, of: usize) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let text = serde_json::to_string(&StepText { at, of })?;
        let done = self.remote.ask(FL_DESCEND, &text, &[content(gradient)])?;
        done.map(drop).with_context(|| {
            Problem::Lacks(format!("{}: it takes no gradients", self.remote.who()))
        })
    }

    fn step_size(&self) -> Option<f64> {
        let size = self.remote.value(FL_STEP_SIZE, "", &[]);
        self.late.keep(size).flatten().flatten()
    }
}

impl Differentiable for LoadedTrainer {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let answer = with_values(x, |values| {
            let tensors: NamedTensors<'_> = vec![
                ("values".into(), View::F32(values.view())),
                ("slope".into(), View::F32(slope.view().into_dyn())),
            ];
            let letter = [OutgoingMessage::new(&tensors)];
            self.remote.must(FL_VJP, "", &letter, None, None)
        })?;
        self.table(answer.tensors, "slopes", x.len(), Some(x.width()))
    }
}
