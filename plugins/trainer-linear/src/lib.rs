#![doc = include_str!("../README.md")]

use fl_core::message::Params;
use fl_core::portable::product;
use fl_core::prelude::*;
use fl_core::{
    Differentiable, FitReport, LossCurve, Parametric, PassStep, Problem, TaskKind, loss,
};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::collections::BTreeMap;

settings! {
    /// Linear scores of the input, trained by plain stochastic gradient descent; starts at 0.
    pub struct Linear {
        /// Learning rate.
        lr: f64 = 0.1, in above(0.0);
        /// Weight decay: adds `l2 * w` to the gradient.
        l2: f64 = 0.0, in 0.0..;
    }
}

/// The model of [`Linear`].
pub struct LinearModel {
    settings: Linear,
    task: Task,
    /// `width x outputs`.
    weight: Array2<f32>,
    bias: Array1<f32>,
}

impl LinearModel {
    // ANCHOR: new
    fn new(settings: Linear, make: &BuildContext) -> Result<Self> {
        let (width, outputs) = (make.task.width(), make.task.kind.outputs());
        if let TaskKind::Pixels { .. } = make.task.kind {
            let why = "a linear model learns classes or labels of a whole input, not of its pixels; use dfdx with a net such as `unet`";
            return Err(Problem::Lacks(why.into()).into());
        }
        Ok(Self {
            settings,
            task: make.task.clone(),
            weight: Array2::zeros((width, outputs)),
            bias: Array1::zeros(outputs),
        })
    }
    // ANCHOR_END: new

    fn check(&self, x: &Samples) -> Result<()> {
        Problem::shape_unless(x.width() == self.task.width(), || {
            format!(
                "samples of {} values for a model of {}",
                x.width(),
                self.task.width()
            )
        })
    }

    /// Returns the mean loss over these samples, and its slopes by weight and bias.
    fn slopes(
        &self,
        x: &Samples,
        target: Target<'_>,
        loss: Loss,
    ) -> Result<(f64, Array2<f32>, Array1<f32>)> {
        let x = x.values();
        let scores = product(x.view(), self.weight.view()) + &self.bias;
        let (value, slope) = loss::of_batch(loss, target, scores.view())?;
        Ok((value, product(x.t(), slope.view()), slope.sum_axis(Axis(0))))
    }

    fn step(&mut self, x: &Samples, target: Target<'_>, pass: &FitOptions<'_>) -> Result<f64> {
        let (value, mut weight, mut bias) = self.slopes(x, target, pass.loss)?;
        weight.scaled_add(self.settings.l2 as f32, &self.weight);
        if let Some((mu, anchor)) = pass.proximal {
            self.add(anchor, mu, -mu, &mut weight, &mut bias)
                .context("the anchor of `proximal`")?;
        }
        if let Some(gradient_offset) = pass.gradient_offset {
            self.add(gradient_offset, 0.0, 1.0, &mut weight, &mut bias)
                .context("`gradient_offset`")?;
        }
        if let Some(clip) = pass.clip {
            let norm = (weight.iter().chain(&bias).map(|g| g * g).sum::<f32>()).sqrt();
            if norm > clip {
                weight *= clip / norm;
                bias *= clip / norm;
            }
        }
        let rate = (self.settings.lr * pass.rate) as f32;
        self.weight.scaled_add(-rate, &weight);
        self.bias.scaled_add(-rate, &bias);
        Ok(value)
    }

    /// `gradient += own * parameters + other * factor`
    fn add(
        &self,
        other: &Params,
        own: f32,
        factor: f32,
        weight: &mut Array2<f32>,
        bias: &mut Array1<f32>,
    ) -> Result<()> {
        let (w, b) = self.parts_of(other)?;
        weight.zip_mut_with(&w, |g, o| *g += factor * o);
        weight.scaled_add(own, &self.weight);
        bias.zip_mut_with(&b, |g, o| *g += factor * o);
        bias.scaled_add(own, &self.bias);
        Ok(())
    }

    fn parts_of(&self, params: &Params) -> Result<(Array2<f32>, Array1<f32>)> {
        fl_core::message::alike_to(&self.params(), params, "the model")?;
        Ok((
            params.0["weight"].clone().into_dimensionality()?,
            params.0["bias"].clone().into_dimensionality()?,
        ))
    }
}

impl Trainer for LinearModel {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        self.check(x)?;
        Problem::shape_unless(x.len() == target.len(), || {
            format!("{} targets for {} samples", target.len(), x.len())
        })?;
        ensure!(
            pass.auxiliary.is_none() && pass.feature_loss.is_none(),
            Problem::Lacks("a linear model takes no added loss; use a neural trainer".into())
        );
        let reported_from = pass.reported_from(x.len());
        let (mut steps, mut sum, mut curve) = (0, 0.0, LossCurve::default());
        for at in pass.batches(x.len(), stream) {
            let value = self.step(&x.pick(&at), target.pick(&at).view(), pass)?;
            ensure!(
                value.is_finite(),
                Problem::Diverged(format!(
                    "the loss is {value} at step {steps}; a smaller learning rate may help, or inputs on a smaller scale (`range` of a column)"
                ))
            );
            if steps >= reported_from {
                sum += value;
            }
            steps += 1;
            curve.add(value);
        }
        let reported = steps.saturating_sub(reported_from);
        Ok(FitReport {
            steps,
            loss: sum / reported.max(1) as f64,
            falls: curve.falls(),
        })
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        self.check(x)?;
        Ok(product(x.values().view(), self.weight.view()) + &self.bias)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            scales_rate: true,
            gradient_terms: true,
            learns: self.task.kind.losses(),
            decays_weights: self.settings.l2 > 0.0,
            ..Abilities::default()
        }
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(fl_core::message::encode(&self.params()))
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.set_params(&fl_core::message::decode(model)?)
    }

    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        Some(self)
    }

    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        Some(self)
    }
}

fn named(weight: &Array2<f32>, bias: &Array1<f32>) -> Params {
    Params(BTreeMap::from([
        ("bias".into(), bias.clone().into_dyn()),
        ("weight".into(), weight.clone().into_dyn()),
    ]))
}

impl Parametric for LinearModel {
    fn params(&self) -> Params {
        named(&self.weight, &self.bias)
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        self.check(x)?;
        let (_, weight, bias) = self.slopes(x, target, loss)?;
        Ok(named(&weight, &bias))
    }

    fn descend(&mut self, gradient: &Params, step: &PassStep) -> Result<()> {
        let (mut weight, bias) = self.parts_of(gradient)?;
        let rate = (self.settings.lr * step.rate) as f32;
        weight.scaled_add(self.settings.l2 as f32, &self.weight);
        self.weight.scaled_add(-rate, &weight);
        self.bias.scaled_add(-rate, &bias);
        Ok(())
    }

    fn step_size(&self) -> Option<f64> {
        Some(self.settings.lr)
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        (self.weight, self.bias) = self.parts_of(params)?;
        Ok(())
    }
}

impl Differentiable for LinearModel {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        self.check(x)?;
        Problem::shape_unless(slope.dim() == (x.len(), self.bias.len()), || {
            format!(
                "a slope of {:?} for {} samples x {} outputs",
                slope.dim(),
                x.len(),
                self.bias.len()
            )
        })?;
        Ok(product(slope, self.weight.t()))
    }
}
plugin!(trainer "linear" => Linear as LinearModel);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_trainer() {
        fl_conformance::trainer(|make| LinearModel::new(Linear { lr: 0.1, l2: 0.0 }, make));
        fl_conformance::trainer(|make| LinearModel::new(Linear { lr: 0.01, l2: 0.1 }, make));
        fl_conformance::trainer_for(&[fl_conformance::numbers()], |make| {
            LinearModel::new(Linear { lr: 0.05, l2: 0.0 }, make)
        });
    }

    #[test]
    fn the_loss_of_a_pass_is_that_of_its_last_epoch() {
        let task = Task {
            input: vec![2],
            kind: TaskKind::Classes(2),
        };
        let stream = Stream::root(0);
        let make = BuildContext { task, stream };
        let x = ndarray::array![[1.0, 2.0], [0.0, -1.0]];
        let x = Samples::fresh(x, vec![2]).unwrap();
        let loss_of = |passes: &[fl_core::Length]| {
            let mut model = LinearModel::new(Linear { lr: 0.1, l2: 0.0 }, &make).unwrap();
            let fit = |length: &fl_core::Length| {
                let pass = FitOptions::new(*length, 2, Loss::CrossEntropy);
                let fitted = model.fit(&x, Target::Classes(&[0, 1]), &pass, &make.stream);
                fitted.unwrap().loss
            };
            passes.iter().map(fit).last().unwrap()
        };
        let alone = [fl_core::Length::Epochs(1); 3];
        assert!((loss_of(&[fl_core::Length::Epochs(3)]) - loss_of(&alone)).abs() < 1e-6);
        assert_eq!(loss_of(&[fl_core::Length::Epochs(0)]), 0.0);
    }

    #[test]
    fn parameters_that_are_not_the_models_are_named_by_their_use() {
        let task = Task {
            input: vec![2],
            kind: TaskKind::Classes(2),
        };
        let stream = Stream::root(0);
        let make = BuildContext { task, stream };
        let mut model = LinearModel::new(Linear { lr: 0.1, l2: 0.0 }, &make).unwrap();
        let x = Samples::fresh(ndarray::array![[1.0, 2.0]], vec![2]).unwrap();
        let other = Params([("w".into(), ndarray::arr1(&[0.0]).into_dyn())].into());
        let fit = || FitOptions::new(fl_core::Length::Steps(1), 1, Loss::CrossEntropy);
        for (pass, says) in [
            (
                FitOptions {
                    gradient_offset: Some(&other),
                    ..fit()
                },
                "`gradient_offset`: other tensors: `w` here, `bias`, `weight` in the model",
            ),
            (
                FitOptions {
                    proximal: Some((0.1, &other)),
                    ..fit()
                },
                "the anchor of `proximal`: other tensors: `w` here, `bias`, `weight` in the model",
            ),
        ] {
            let error = model.fit(&x, Target::Classes(&[0]), &pass, &make.stream);
            assert_eq!(format!("{:#}", error.unwrap_err()), says);
        }
    }
}
