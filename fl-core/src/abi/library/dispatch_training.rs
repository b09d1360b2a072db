//! Generators and trainers behind `call`.

use super::call_context::{Host, Input};
use super::object::Object;
use crate::abi::auxiliary::{RemoteLoss, head_tensors};
use crate::abi::context_json::{FitOptionsText, GradientText, StepText, TrainerText};
use crate::abi::marshal::content;
use crate::abi::marshal_data::target_of;
use crate::abi::marshal_samples::samples;
use crate::abi::raw::*;
use crate::message::{Params, TensorMap, View};
use crate::{AuxiliaryLoss, FeatureLoss, FitOptions, Generator, Loss, Problem, Result, Trainer};
use anyhow::Context;
use ndarray::Ix2;
use serde::Deserialize;
use serde_json::json;

pub(super) struct OfGenerator(pub Box<dyn Generator>);

#[derive(Deserialize)]
struct TargetRequest {
    samples: usize,
}

/// `values`, as they cross.
fn give(host: &Host<'_>, x: &crate::Samples) -> Result<()> {
    let shape: Vec<usize> = std::iter::once(x.len()).chain(x.shape()).collect();
    let values = x.values();
    let values = values.view().into_shape_with_order(shape)?;
    host.tensors(&vec![("values".into(), View::F32(values))])
}

impl Object for OfGenerator {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_SAMPLE => {
                let TargetRequest { samples } = input.json()?;
                give(host, &self.0.sample(samples, &host.stream())?)?;
            }
            FL_LEARN => {
                let mut parcel = input.parcel(0)?;
                let slope = parcel.table("slope")?;
                self.0.learn(&samples(&mut parcel)?, slope.view())?;
            }
            FL_SAVE => host.state(&self.0.save()?)?,
            FL_LOAD => self.0.load(&input.parcel(0)?.bytes("state")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

pub(super) struct OfTrainer(pub Box<dyn Trainer>);

impl OfTrainer {
    fn train(&mut self, input: &Input<'_>, host: &Host<'_>) -> Result<()> {
        let text: FitOptionsText = input.json()?;
        let mut parcel = input.parcel(0)?;
        let x = samples(&mut parcel)?;
        let mut at = 1;
        let mut next = |there: bool| -> Result<Option<Params>> {
            let params = there.then(|| input.message(at)).transpose();
            at += usize::from(there);
            params
        };
        let (proximal, gradient_offset) =
            (next(text.proximal.is_some())?, next(text.gradient_offset)?);
        let loss = RemoteLoss(host);
        let pass = FitOptions {
            length: text.length,
            batch: text.batch,
            loss: text.loss,
            fresh: text.fresh,
            proximal: text.proximal.map(|mu| mu as f32).zip(proximal.as_ref()),
            gradient_offset: gradient_offset.as_ref(),
            clip: text.clip.map(|c| c as f32),
            auxiliary: text.auxiliary.then_some(&loss as &dyn AuxiliaryLoss),
            feature_loss: text.feature_loss.then_some(&loss as &dyn FeatureLoss),
        };
        let stream = host.stream();
        let target = target_of(&text.target, &mut parcel)?;
        let fitted = self.0.fit(&x, target.view(), &pass, &stream)?;
        host.json(&json!({ "steps": fitted.steps, "loss": fitted.loss, "falls": fitted.falls }))
    }

    fn gradient(&mut self, input: &Input<'_>, host: &Host<'_>) -> Result<()> {
        let GradientText { loss, target, clip } = input.json()?;
        let mut parcel = input.parcel(0)?;
        let (x, target) = (samples(&mut parcel)?, target_of(&target, &mut parcel)?);
        let model = self.parametric()?;
        let gradient = match clip {
            Some(clip) => model.clipped_gradients(&x, target.view(), loss, clip)?,
            None => Some(model.gradient(&x, target.view(), loss)?),
        };
        gradient.map_or(Ok(()), |gradient| host.tensors(&content(&gradient)))
    }

    fn parametric(&mut self) -> Result<&mut dyn crate::Parametric> {
        let able = self.0.parametric();
        able.ok_or_else(|| Problem::Lacks("it has no parameters to average".into()).into())
    }
}

impl Object for OfTrainer {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        let x = || samples(&mut input.parcel(0)?);
        let table = |name: &'static str, table: ndarray::Array2<f32>| {
            host.tensors(&vec![(name.into(), View::F32(table.view().into_dyn()))])
        };
        match operation {
            FL_DESCRIBE => {
                let losses = Loss::KINDS.into_iter().filter(|loss| self.0.learns(*loss));
                let learns = Some(losses.collect());
                host.json(&TrainerText {
                    learns,
                    ..TrainerText::of(&mut *self.0)
                })?;
            }
            FL_TRAIN => self.train(input, host)?,
            FL_PREDICT => table("scores", self.0.predict(&x()?)?)?,
            FL_FEATURES => {
                if let Some(features) = self.0.features(&x()?)? {
                    table("features", features)?;
                }
            }
            FL_SAVE => host.state(&self.0.save()?)?,
            FL_LOAD => self.0.load(&input.parcel(0)?.bytes("state")?)?,
            FL_SAVE_STATE => host.state(&self.0.save_state()?)?,
            FL_LOAD_STATE => self.0.load_state(&input.parcel(0)?.bytes("state")?)?,
            FL_SAVE_MEMORY => host.state(&self.0.save_memory()?)?,
            FL_LOAD_MEMORY => self.0.load_memory(&input.parcel(0)?.bytes("state")?)?,
            FL_PARAMS => host.tensors(&content(&self.parametric()?.params()))?,
            FL_SET_PARAMS => {
                let params: Params = input.message(0)?;
                self.parametric()?.set_params(&params)?;
            }
            FL_GRADIENT | FL_CLIPPED_GRADIENTS => self.gradient(input, host)?,
            FL_DESCEND => {
                let StepText { at, of } = input.json()?;
                let gradient: Params = input.message(0)?;
                self.parametric()?.descend(&gradient, at, of)?;
            }
            FL_HEAD => {
                if let Some(head) = self.0.head() {
                    host.tensors(&head_tensors(&head))?;
                }
            }
            FL_STEP_SIZE => host.json(&self.parametric()?.step_size())?,
            FL_VJP => {
                let mut parcel: TensorMap = input.parcel(0)?;
                let slope = parcel.f32("slope")?.into_dimensionality::<Ix2>()?;
                let x = samples(&mut parcel)?;
                let able = self.0.differentiable();
                let able = able.context("it cannot be differentiated by its input")?;
                table("slopes", able.vjp(&x, slope.view())?)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
