//! Flawed trainers: a linear model with momentum, and what can be wrong with it.

use super::Mutant;
use fl_conformance::{check, images, pixels, tasks};
use fl_core::prelude::*;
use fl_core::{Differentiable, FitReport, Head, OwnedTarget, Parametric, Problem, loss, message};
use ndarray::{Array2, ArrayView2, Axis, concatenate};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    Nothing,
    LearnsNothing,
    Process,
    Thread,
    Batch,
    ForgetsMoments,
    KeepsMoments,
    LoadsWrong,
    LoadsHalf,
    SlopeTooLarge,
    GradientTooLarge,
    BufferWithGradient,
    BufferOfNothing,
    ClipsTheSum,
    ClipsToTwice,
    SetsHalf,
    PullsAway,
    IgnoresDrift,
    IgnoresRate,
    NoShapeCheck,
    NoRows,
    HeadTooLarge,
    IgnoresAuxiliary,
    /// It says that it takes a loss on features, and does not look at it.
    ClaimsFeatureLoss,
    IgnoresFeatureLoss,
    Columns,
    /// No flaw: it also remembers.
    Remembers,
    StateWithoutMemory,
    LosesMemory,
    MemoryMovesModel,
    TakesAnyMemory,
}

impl Flaw {
    fn remembers(self) -> bool {
        use Flaw::*;
        matches!(
            self,
            Remembers | StateWithoutMemory | LosesMemory | MemoryMovesModel | TakesAnyMemory
        )
    }
}

/// The last row of each table is the bias.
struct Model {
    flaw: Flaw,
    width: usize,
    weight: Array2<f32>,
    moment: Array2<f32>,
    /// Its weights after the question before, from which it is pushed away.
    previous: Option<Array2<f32>>,
}

static STEPS: AtomicU32 = AtomicU32::new(0);

impl Model {
    fn made(flaw: Flaw, make: &BuildContext) -> Result<Box<dyn Trainer>> {
        let (width, outputs) = (make.task.width(), make.task.kind.outputs());
        let mut draws = make.stream.draws();
        let weight =
            Array2::from_shape_simple_fn((width + 1, outputs), || 0.1 * draws.normal() as f32);
        let moment = Array2::zeros(weight.dim());
        Ok(Box::new(Self {
            flaw,
            width,
            weight,
            moment,
            previous: None,
        }))
    }

    fn inputs(&self, x: &Samples) -> Result<Array2<f32>> {
        let fits = x.width() == self.width || self.flaw == Flaw::NoShapeCheck;
        ensure!(
            fits,
            Problem::Shape(format!(
                "samples of {} values for a model of {}",
                x.width(),
                self.width
            ))
        );
        Ok(concatenate(
            Axis(1),
            &[x.values().view(), Array2::ones((x.len(), 1)).view()],
        )?)
    }

    fn named(&self, table: &Array2<f32>) -> Params {
        let (weight, bias) = table.view().split_at(Axis(0), self.width);
        Params(
            [
                ("bias".into(), bias.to_owned().into_dyn()),
                ("weight".into(), weight.to_owned().into_dyn()),
            ]
            .into(),
        )
    }

    fn table(&self, params: &Params) -> Result<Array2<f32>> {
        message::alike(&self.params(), params)?;
        let (bias, weight) = (&params.0["bias"], &params.0["weight"]);
        let (bias, weight) = (
            bias.view().into_dimensionality()?,
            weight.view().into_dimensionality()?,
        );
        Ok(concatenate(Axis(0), &[weight, bias])?)
    }
}

impl Trainer for Model {
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        self.inputs(x)?;
        ensure!(
            x.len() == target.len(),
            Problem::Shape(format!("{} targets for {} samples", target.len(), x.len()))
        );
        ensure!(
            pass.auxiliary.is_none()
                || matches!(self.flaw, Flaw::HeadTooLarge | Flaw::IgnoresAuxiliary),
            Problem::Lacks("it shows no last layer".into())
        );
        ensure!(
            pass.feature_loss.is_none()
                || matches!(
                    self.flaw,
                    Flaw::ClaimsFeatureLoss | Flaw::IgnoresFeatureLoss
                ),
            Problem::Lacks("its features are its inputs".into())
        );
        if pass.fresh && self.flaw != Flaw::KeepsMoments {
            self.moment.fill(0.0);
        }
        let (mut steps, mut sum) = (0, 0.0);
        for at in pass.batches(x.len(), stream) {
            let inputs = self.inputs(&x.pick(&at))?;
            let mut target = target.pick(&at);
            if let (OwnedTarget::Pixels(of), Flaw::Columns) = (&mut target, self.flaw) {
                let side = self.width.isqrt();
                *of = Array2::from_shape_fn(of.dim(), |(i, j)| of[[i, j % side * side + j / side]]);
            }
            let (value, slope) =
                loss::of_batch(pass.loss, target.view(), inputs.dot(&self.weight).view())?;
            let mut gradient = inputs.t().dot(&slope);
            if let Some((mu, anchor)) = pass.proximal {
                let mu = if self.flaw == Flaw::PullsAway {
                    -mu
                } else {
                    mu
                };
                gradient.scaled_add(mu, &(&self.weight - &self.table(anchor)?));
            }
            if let Some(gradient_offset) = pass.gradient_offset {
                let size = if self.flaw == Flaw::IgnoresDrift {
                    0.0
                } else {
                    1.0
                };
                gradient.scaled_add(size, &self.table(gradient_offset)?);
            }
            if let Some(previous) = &self.previous {
                gradient.scaled_add(-0.05, &(&self.weight - previous));
            }
            self.moment = 0.5 * &self.moment + &gradient;
            let rate = match self.flaw {
                Flaw::LearnsNothing => 0.0,
                Flaw::Process => 0.05 + 1e-6 * STEPS.fetch_add(1, Ordering::Relaxed) as f32,
                Flaw::Thread if std::thread::current().name().is_none() => 0.06,
                _ => 0.05,
            };
            let scale = match self.flaw {
                Flaw::IgnoresRate => 1.0,
                _ => pass.rate as f32,
            };
            self.weight.scaled_add(-rate * scale, &self.moment);
            steps += 1;
            sum += value;
        }
        if self.flaw.remembers() && steps > 0 {
            self.previous = Some(self.weight.clone());
        }
        Ok(FitReport {
            steps,
            loss: sum / steps.max(1) as f64,
            falls: None,
        })
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        ensure!(
            self.flaw != Flaw::NoRows || !x.is_empty(),
            "nothing to predict"
        );
        let scores = self.inputs(x)?.dot(&self.weight);
        match scores.mean_axis(Axis(0)) {
            Some(mean) if self.flaw == Flaw::Batch => Ok(scores - mean),
            _ => Ok(scores),
        }
    }

    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        Ok(Some(x.values()))
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            feature_loss: self.flaw == Flaw::ClaimsFeatureLoss,
            scales_rate: true,
            gradient_terms: true,
            ..Abilities::default()
        }
    }

    fn head(&self) -> Option<Head> {
        let (weight, bias) = self.weight.view().split_at(Axis(0), self.width);
        let by = match self.flaw {
            Flaw::HeadTooLarge => 1.1,
            Flaw::IgnoresAuxiliary => 1.0,
            _ => return None,
        };
        Some(Head {
            weight: weight.t().mapv(|w| by * f64::from(w)),
            bias: bias.row(0).mapv(f64::from),
        })
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(message::encode(&self.params()))
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        let decoded = message::decode(model);
        if self.flaw == Flaw::LoadsHalf {
            self.weight.fill(0.0);
        }
        self.set_params(&decoded?)?;
        if self.flaw == Flaw::LoadsWrong {
            self.weight += 1e-3;
        }
        Ok(())
    }

    fn save_state(&self) -> Result<Vec<u8>> {
        if self.flaw == Flaw::ForgetsMoments {
            return self.save();
        }
        let mut all = self.params();
        all.0
            .insert("moment".into(), self.moment.clone().into_dyn());
        if let Some(previous) = &self.previous {
            let previous = previous.clone().into_dyn();
            all.0.insert("previous".into(), previous);
        }
        Ok(message::encode(&all))
    }

    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        if self.flaw == Flaw::ForgetsMoments {
            return self.load(state);
        }
        let mut all: Params = message::decode(state)?;
        let moment = all
            .0
            .remove("moment")
            .context("a model, not a state")?
            .into_dimensionality()?;
        ensure!(
            moment.dim() == self.weight.dim(),
            "the state of another model"
        );
        let previous = all.0.remove("previous");
        let previous = previous.map(|p| p.into_dimensionality()).transpose()?;
        self.set_params(&all)?;
        self.moment = moment;
        if self.flaw != Flaw::StateWithoutMemory {
            self.previous = previous;
        }
        Ok(())
    }

    fn save_memory(&self) -> Result<Vec<u8>> {
        let previous = self.previous.as_ref();
        Ok(previous.map_or_else(Vec::new, |p| message::encode(&self.named(p))))
    }

    fn load_memory(&mut self, memory: &[u8]) -> Result<()> {
        let previous = match (message::decode(memory), self.flaw) {
            (Err(_), Flaw::TakesAnyMemory) => return Ok(()),
            (previous, _) => self.table(&previous?)?,
        };
        match self.flaw {
            Flaw::LosesMemory => {}
            Flaw::MemoryMovesModel => {
                self.weight.clone_from(&previous);
                self.previous = Some(previous);
            }
            _ => self.previous = Some(previous),
        }
        Ok(())
    }

    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        Some(self)
    }

    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        Some(self)
    }
}

impl Parametric for Model {
    fn params(&self) -> Params {
        self.named(&self.weight)
    }

    fn buffers(&self) -> BTreeSet<String> {
        let name = match self.flaw {
            Flaw::BufferWithGradient => Some("bias"),
            Flaw::BufferOfNothing => Some("variance"),
            _ => None,
        };
        name.into_iter().map(String::from).collect()
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        let (inputs, scores) = (self.inputs(x)?, self.predict(x)?);
        let slope = loss::of_batch(loss, target, scores.view())?.1;
        let mut gradient = inputs.t().dot(&slope);
        if self.flaw == Flaw::GradientTooLarge {
            gradient *= 1.1;
        }
        Ok(self.named(&gradient))
    }

    fn clipped_gradients(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        loss: Loss,
        clip: f64,
    ) -> Result<Option<Params>> {
        let of_each = match self.flaw {
            Flaw::ClipsTheSum => f64::INFINITY,
            Flaw::ClipsToTwice => 2.0 * clip,
            _ => clip,
        };
        let mut sum = self.params().zeros_like();
        for at in 0..x.len() {
            let of_one = target.pick(&[at]);
            let one = self.gradient(&x.pick(&[at]), of_one.view(), loss)?;
            sum.add_scaled((of_each / one.norm()).min(1.0), &one)?;
        }
        if self.flaw == Flaw::ClipsTheSum {
            sum.scale((clip / sum.norm()).min(1.0));
        }
        Ok(Some(sum))
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        if let (Flaw::SetsHalf, Some(bias)) = (self.flaw, params.0.get("bias")) {
            let bias = bias.view().into_dimensionality::<ndarray::Ix2>()?;
            ensure!(bias.dim() == (1, self.weight.ncols()), "another bias");
            self.weight.row_mut(self.width).assign(&bias.row(0));
        }
        self.weight = self.table(params)?;
        Ok(())
    }
}

impl Differentiable for Model {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        self.inputs(x)?;
        ensure!(
            slope.dim() == (x.len(), self.weight.ncols()),
            "a slope of {:?}",
            slope.dim()
        );
        let factor = if self.flaw == Flaw::SlopeTooLarge {
            1.1
        } else {
            1.0
        };
        Ok(factor
            * slope.dot(
                &self.params().0["weight"]
                    .view()
                    .into_dimensionality::<ndarray::Ix2>()?
                    .t(),
            ))
    }
}

pub fn all() -> Vec<Mutant> {
    use Flaw::*;
    let flaws = [
        ("without a flaw", None, Flaw::Nothing),
        (
            "a learning rate of 0",
            Some("learns an easy problem"),
            LearnsNothing,
        ),
        (
            "a counter of the process",
            Some("same calls, same bits"),
            Process,
        ),
        (
            "the thread's name counts",
            Some("same bits on another thread"),
            Thread,
        ),
        (
            "centred over the batch",
            Some("predicts each sample by itself"),
            Batch,
        ),
        (
            "moments are in no state",
            Some("training goes on after a stop"),
            ForgetsMoments,
        ),
        (
            "`fresh` is not looked at",
            Some("`fresh` forgets the optimiser"),
            KeepsMoments,
        ),
        (
            "loads something else",
            Some("a saved model predicts the same"),
            LoadsWrong,
        ),
        (
            "forgets before it can load",
            Some("an error changes nothing"),
            LoadsHalf,
        ),
        (
            "a slope a tenth too large",
            Some("vjp is the slope of its predictions"),
            SlopeTooLarge,
        ),
        (
            "a gradient a tenth too large",
            Some("gradient is the slope of its mean loss"),
            GradientTooLarge,
        ),
        (
            "a buffer that a gradient moves",
            Some("buffers are parameters without a gradient"),
            BufferWithGradient,
        ),
        (
            "a buffer that is no parameter",
            Some("buffers are parameters without a gradient"),
            BufferOfNothing,
        ),
        (
            "clips the sum of all gradients, and not each",
            Some("clipped gradients are those of single samples"),
            ClipsTheSum,
        ),
        (
            "clips to twice the bound",
            Some("clipped gradients are those of single samples"),
            ClipsToTwice,
        ),
        (
            "takes the bias before it looks at the weight",
            Some("set_params takes all or nothing"),
            SetsHalf,
        ),
        (
            "pulls the other way",
            Some("`proximal` pulls towards the anchor"),
            PullsAway,
        ),
        (
            "`gradient_offset` is not looked at",
            Some("`gradient_offset` is added to the gradient"),
            IgnoresDrift,
        ),
        (
            "the rate of a pass is not looked at",
            Some("the rate of a pass scales its step"),
            IgnoresRate,
        ),
        (
            "shows a head that is a tenth too large",
            Some("its head makes its scores of its features"),
            HeadTooLarge,
        ),
        (
            "an auxiliary loss is not looked at",
            Some("an auxiliary loss teaches its head"),
            IgnoresAuxiliary,
        ),
        (
            "takes a loss on features, and does not look at it",
            Some("a loss on features teaches its features"),
            ClaimsFeatureLoss,
        ),
        (
            "takes no loss on features, and does not say so",
            Some("it refuses an added loss that it does not take"),
            IgnoresFeatureLoss,
        ),
        (
            "takes the pixels of a mask column by column",
            Some("learns an easy problem"),
            Columns,
        ),
        (
            "shapes are not looked at",
            Some("unsuitable input is an error"),
            NoShapeCheck,
        ),
        (
            "no rows, no scores",
            Some("no samples are no problem"),
            NoRows,
        ),
        ("remembers, without a flaw", None, Remembers),
        (
            "its memory is in no state",
            Some("a client's memory outlasts its model"),
            StateWithoutMemory,
        ),
        (
            "takes its memory back, and loses it",
            Some("a client's memory outlasts its model"),
            LosesMemory,
        ),
        (
            "takes back its memory as its model",
            Some("a client's memory outlasts its model"),
            MemoryMovesModel,
        ),
        (
            "takes anything for its memory",
            Some("unsuitable input is an error"),
            TakesAnyMemory,
        ),
    ];
    let all: Vec<_> = tasks().into_iter().chain([pixels(), images()]).collect();
    flaws
        .map(|(name, wanted, flaw)| {
            (
                name,
                wanted,
                check::trainer(&all, &|make| Model::made(flaw, make)),
            )
        })
        .into()
}
