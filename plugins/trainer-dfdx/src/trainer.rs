//! [`Dfdx`]: the trainer, with one network, its numbers and its optimiser.

mod auxiliary;
mod on_card;
mod slopes;

use crate::cuda;
use crate::settings::DfdxSettings;
use anyhow::{Context, ensure};
use fl_core::augment::Augmenter;
use fl_core::loss;
use fl_core::message::Params;
use fl_core::{
    Abilities, AuxiliaryTerm, BuildContext, Differentiable, FeatureTerm, FitOptions, FitReport,
    Head, LossCurve, Parametric, PassStep, Problem, Result, Samples, Stream, Target, Task,
    TaskKind, Trainer,
};
use fl_nets::buffer::{self, Buffer};
use fl_nets::net::{Entry, Mode, Net, Numbers, batch};
use fl_nets::optim::{self, Descent, Move, Optimiser};
use fl_nets::store::{self, Tensors};
use fl_nets::tape::{Key, Record, Value, Weights};
use fl_nets::target;
use ndarray::{Array2, ArrayD, ArrayView2};
use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};

/// A network that learns.
///
/// It shares nothing between threads and starts none: matrix products run on the calling thread. A
/// model therefore gives the same bits everywhere, and a host that trains one client per thread
/// uses all cores.
pub struct Dfdx {
    net: Net,
    task: Task,
    numbers: Numbers,
    optimiser: Optimiser,
    augmenter: Augmenter,
    predict_batch: usize,
    /// Weight of the Dice loss.
    dice: f64,
    /// Memory for the gradient, kept between the steps of a pass.
    gradient: Vec<f32>,
    /// Where it runs.
    device: cuda::Device,
    /// The queue of its card, made on first use.
    queue: OnceLock<cuda::Queue>,
}

impl Dfdx {
    /// Makes a network with initial weights from `make`'s stream.
    ///
    /// # Errors
    /// If a layer does not accept its input, the last layer does not fit the task, `augment` is set
    /// and the inputs are no images, or a card is to compute a layer that it cannot.
    pub fn new(settings: DfdxSettings, make: &BuildContext) -> Result<Self> {
        let net = Net::new(&settings.net, &make.task)?;
        let pixels = matches!(make.task.kind, TaskKind::Pixels { .. });
        ensure!(
            pixels || settings.dice.is_none(),
            "`dice` is for tasks where every pixel has a class, and this has {}; leave it out",
            make.task.kind
        );
        ensure!(
            !make.task.kind.is_dense() || settings.augment.is_empty(),
            "`augment` would change the images but not their masks or target images; leave it out"
        );
        ensure!(
            settings.device == cuda::Device::Cpu || !net.has_memory(),
            "`device`: no card computes `lstm` and `last-over-time` yet; use `device: cpu`"
        );
        let changes = settings.augment;
        let augmenter = Augmenter::new(changes.clone(), &make.task.input)?;
        for change in &changes {
            change.fits(&make.task.input)?;
        }
        Ok(Self {
            augmenter,
            optimiser: Optimiser::new(settings.optimiser, settings.schedule),
            gradient: Vec::new(),
            numbers: Numbers::new(make.stream.child("weights", 0)),
            task: make.task.clone(),
            predict_batch: settings.predict_batch,
            dice: settings.dice.unwrap_or_default(),
            device: settings.device,
            queue: OnceLock::new(),
            net,
        })
    }

    /// Returns the number of trainable parameters.
    pub fn parameters(&self) -> usize {
        self.net.weights()
    }

    #[cfg(test)]
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    fn checked(&self, x: &Samples) -> Result<()> {
        let (wanted, found) = (&self.task.input, x.shape());
        Problem::shape_unless(*wanted == found, || {
            format!("samples of shape {found:?} for a model of inputs {wanted:?}")
        })
    }

    /// Returns the trainable entries of `params`, laid out as the weights.
    fn flat(&self, params: &Params, what: &str) -> Result<Vec<f32>> {
        let mut flat = vec![0.0; self.net.weights()];
        for entry in self.net.entries().iter().filter(|e| e.trainable) {
            let tensor = params
                .0
                .get(&entry.name)
                .with_context(|| Problem::Shape(format!("{what} lacks `{}`", entry.name)))?;
            copy(entry, tensor, &mut flat[entry.range.clone()])
                .with_context(|| what.to_string())?;
        }
        Ok(flat)
    }

    /// Applies `f` to all samples, some at a time, with running statistics.
    fn evaluate(
        &self,
        x: &Samples,
        width: usize,
        f: impl Fn(Value, &Weights, &mut Mode<'_>) -> Result<Value>,
    ) -> Result<Array2<f32>> {
        let weights = self.numbers.weights(&self.net, None);
        let buffers = &self.numbers.of(&self.net).buffers;
        let _pass = buffer::BufferScope;
        let mut out = Vec::with_capacity(x.len() * width);
        let all: Vec<usize> = (0..x.len()).collect();
        for some in all.chunks(self.predict_batch) {
            let inputs = batch(rows(x, some), &self.task.input, None)?;
            out.extend_from_slice(&f(inputs, &weights, &mut Mode::Evaluate(buffers))?.data);
        }
        Ok(Array2::from_shape_vec((x.len(), width), out)?)
    }

    /// Takes one step, and returns the loss of the batch at `positions`.
    fn step(&mut self, x: &Samples, plan: &Plan<'_, '_>, at: usize) -> Result<f64> {
        let pass = plan.pass;
        let head = pass.auxiliary.map(|_| self.last_layer()).transpose()?;
        let inputs = self.inputs(x, plan, at);
        let key = Key::new();
        let weights = self.numbers.weights(&self.net, Some(key.clone()));
        let numbers = self.numbers.of_mut(&self.net);
        let stream = plan.stream.child("step", at as u64);
        let mut record = Record::on();
        let inputs = batch(inputs, &self.task.input, None)?;
        let [features, scores] = self.net.features_and_scores(
            &mut record,
            inputs,
            &weights,
            &mut Mode::Train(&mut numbers.buffers, &stream),
        )?;
        let views = [table(&features)?, table(&scores)?];
        let scored = plan.score(head, views, &stream)?;
        if let Some(by_features) = scored.by_features {
            record.add_slope(&features, by_features);
        }
        if self.gradient.len() != self.net.weights() {
            self.gradient = Buffer::any(self.net.weights()).into_vec();
        }
        let how = self.optimiser.advance(&plan.step(at));
        let changed = scored.added.is_some() || pass.clip.is_some();
        let changed = changed || plan.proximal.is_some() || plan.gradient_offset.is_some();
        let descending = match how {
            Move::Plain { rate, decay } if !changed => {
                Some(record.descend(Descent { rate, decay }))
            }
            _ => None,
        };
        let gradient = record.backward(
            &scores,
            scored.slope,
            &key,
            std::mem::take(&mut self.gradient),
        )?;
        // the tape, which held the weights, is dropped, so their memory can be written
        drop((weights, features, scores));
        self.gradient = gradient;
        if let Some(descending) = descending.as_deref().and_then(OnceCell::get) {
            descending.finish_rest(&mut self.gradient, &numbers.weights);
            let weights: &mut Vec<f32> = Arc::make_mut(&mut numbers.weights);
            std::mem::swap(weights, &mut self.gradient);
            return Ok(scored.loss);
        }
        if let Some(added) = &scored.added {
            auxiliary::add(&self.net, &added.by_head, &mut self.gradient);
        }
        if let Some(most) = pass.clip {
            optim::clip(&mut self.gradient, most);
        }
        if let Some((mu, anchor)) = &plan.proximal {
            optim::proximal(&mut self.gradient, &numbers.weights, anchor, *mu);
        }
        if let Some(gradient_offset) = &plan.gradient_offset {
            optim::gradient_offset(&mut self.gradient, gradient_offset);
        }
        let weights: &mut Vec<f32> = Arc::make_mut(&mut numbers.weights);
        how.apply(weights, &self.gradient, &mut self.optimiser.state);
        Ok(scored.loss)
    }

    /// Returns the batch of a step, changed by `augment`.
    fn inputs(&self, x: &Samples, plan: &Plan<'_, '_>, at: usize) -> Buffer {
        let mut inputs = rows(x, &plan.positions);
        if !self.augmenter.is_empty() {
            let mut draws = plan.stream.child("augment", at as u64).draws();
            self.augmenter.apply(&mut inputs, &plan.black, &mut draws);
        }
        inputs
    }

    fn tensors(&self) -> Tensors {
        let numbers = self.numbers.of(&self.net);
        self.net.tensors(&numbers.weights, &numbers.buffers)
    }

    fn set_tensors(&mut self, tensors: Tensors) -> Result<()> {
        self.numbers.set(self.net.arrange(tensors)?);
        Ok(())
    }
}

/// Returns the numbers of some samples.
fn rows(x: &Samples, some: &[usize]) -> Buffer {
    let mut inputs = Buffer::any(some.len() * x.width());
    x.write(some, &mut inputs);
    inputs
}

/// A batch of values as a table.
fn table(of: &Value) -> Result<ArrayView2<'_, f32>> {
    Ok(ArrayView2::from_shape((of.rows, of.width()), &of.data)?)
}

/// The loss of a batch's scores.
struct ScoredBatch {
    /// Without what a method adds.
    loss: f64,
    /// The slope by each score.
    slope: Vec<f32>,
    /// The addend of an auxiliary loss.
    added: Option<AuxiliaryTerm>,
    /// The slope of a loss on features by each of them.
    by_features: Option<Vec<f32>>,
}

/// The constants of a pass, and the next batch.
struct Plan<'a, 't> {
    pass: &'a FitOptions<'a>,
    target: &'a Target<'t>,
    /// What is predicted, and the weight of the Dice loss.
    judged: (TaskKind, f64),
    of: usize,
    positions: Vec<usize>,
    black: Vec<f32>,
    stream: Stream,
    proximal: Option<(f32, Vec<f32>)>,
    gradient_offset: Option<Vec<f32>>,
}

impl Plan<'_, '_> {
    fn step(&self, at: usize) -> PassStep {
        PassStep {
            at,
            of: self.of,
            rate: self.pass.rate,
        }
    }

    /// Computes the loss of the batch's scores; `head` is the last layer, if the pass has an
    /// auxiliary loss.
    fn score(
        &self,
        head: Option<Head>,
        [features, scores]: [ArrayView2<'_, f32>; 2],
        stream: &Stream,
    ) -> Result<ScoredBatch> {
        let (pass, rows, (kind, dice)) = (self.pass, &*self.positions, self.judged);
        let target = self.target.pick(rows);
        let target = target.view();
        let (loss, mut slope) = loss::of_task(kind, dice, pass.loss, target, scores)?;
        let mut whole = loss;
        let added = pass.auxiliary.zip(head).map(|(auxiliary, head)| {
            let stream = stream.child("beside", 0);
            let added = auxiliary.of_batch(&head, target, scores, &stream)?;
            let dims = |by: &Head| (by.weight.dim(), by.bias.dim());
            let fits = added.by_scores.dim() == scores.dim() && dims(&added.by_head) == dims(&head);
            Problem::shape_unless(fits, || {
                "an auxiliary loss gave slopes of other shapes than the scores and the last layer have"
                    .into()
            })?;
            anyhow::Ok(added)
        });
        let added = added.transpose()?;
        if let Some(added) = &added {
            whole += added.loss;
            slope += &added.by_scores;
        }
        let of_features = pass.feature_loss.map(|of| {
            let stream = stream.child("feature-loss", 0);
            FeatureTerm::of(of, features, target, rows, &stream)
        });
        let of_features = of_features.transpose()?;
        whole += of_features.as_ref().map_or(0.0, |term| term.loss);
        ensure!(
            whole.is_finite(),
            Problem::Diverged(format!(
                "the loss is {whole}: training diverged; a smaller learning rate, or clipping, may help"
            ))
        );
        Ok(ScoredBatch {
            loss,
            slope: slope.iter().copied().collect(),
            added,
            by_features: of_features.map(|term| term.by_features.iter().copied().collect()),
        })
    }
}

fn copy(entry: &Entry, tensor: &ArrayD<f32>, to: &mut [f32]) -> Result<()> {
    let text = || {
        format!(
            "`{}` is {:?}, the model has {:?}",
            entry.name,
            tensor.shape(),
            entry.shape
        )
    };
    Problem::shape_unless(tensor.shape() == entry.shape, text)?;
    match tensor.as_slice() {
        Some(values) => to.copy_from_slice(values),
        None => to.iter_mut().zip(tensor).for_each(|(t, v)| *t = *v),
    }
    Ok(())
}

impl Trainer for Dfdx {
    /// With batch normalisation, leaves out a last batch of one sample, whose statistics are
    /// useless, and every batch of one sample if it has one number per channel, which has no
    /// variance. Clipping comes first, then the proximal term and the
    /// gradient offset, then the optimiser with its weight decay.
    fn fit(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        stream: &Stream,
    ) -> Result<FitReport> {
        self.checked(x)?;
        target::check(pass.loss, self.task.kind, &target, x.len())?;
        ensure!(pass.batch > 0, "a batch must have at least 1 sample");
        if pass.fresh {
            self.optimiser.state = optim::State::default();
        }
        let mut plan = Plan {
            pass,
            target: &target,
            judged: (self.task.kind, self.dice),
            of: pass.steps(x.len()),
            positions: Vec::new(),
            black: Augmenter::black(x.inputs()),
            stream: stream.clone(),
            proximal: pass
                .proximal
                .map(|(mu, anchor)| Ok::<_, anyhow::Error>((mu, self.flat(anchor, "the anchor")?)))
                .transpose()?,
            gradient_offset: pass
                .gradient_offset
                .map(|d| self.flat(d, "the gradient offset"))
                .transpose()?,
        };
        let _pass = buffer::BufferScope;
        let last = self.net.normalises() && pass.batch > 1 && x.len() > 1;
        let least = self.abilities().least_batch.max(1 + usize::from(last));
        let reported_from = pass.reported_from(x.len());
        let (mut steps, mut sum, mut count) = (0, 0.0, 0usize);
        let mut curve = LossCurve::default();
        let mut card = self.on_card(x, &plan)?;
        for (at, positions) in pass.batches(x.len(), stream).enumerate() {
            if positions.len() < least {
                continue;
            }
            plan.positions = positions;
            let loss = match &mut card {
                Some(card) => self.step_on_card(card, x, &plan, at),
                None => self.step(x, &plan, at),
            };
            let loss = loss.with_context(|| format!("step {at}"))?;
            steps += 1;
            curve.add(loss);
            if at >= reported_from {
                sum += loss;
                count += 1;
            }
        }
        if let Some(card) = card {
            self.take_back(card)?;
        }
        // for the next model of this thread
        drop(Buffer::from(std::mem::take(&mut self.gradient)));
        Ok(FitReport {
            steps,
            loss: sum / count.max(1) as f64,
            falls: curve.falls(),
        })
    }

    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        self.checked(x)?;
        if let Some(queue) = self.queue()? {
            return self.evaluate_on_card(queue, x, false);
        }
        self.evaluate(x, self.task.kind.outputs(), |x, w, mode| {
            self.net.forward(&mut Record::off(), x, w, mode)
        })
    }

    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        self.checked(x)?;
        if let Some(queue) = self.queue()? {
            return self.evaluate_on_card(queue, x, true).map(Some);
        }
        self.evaluate(x, self.net.features_width(), |x, w, mode| {
            self.net.features(x, w, mode)
        })
        .map(Some)
    }

    fn head(&self) -> Option<Head> {
        self.last_layer().ok()
    }

    fn abilities(&self) -> Abilities {
        let beside = [
            ("augment", !self.augmenter.is_empty()),
            ("dropout", self.net.has_dropout()),
            ("batch normalisation", self.net.normalises_batches()),
        ];
        let beside = beside.into_iter().filter(|(_, does)| *does);
        Abilities {
            feature_loss: self.net.trains_features(),
            scales_rate: true,
            gradient_terms: true,
            learns: self.task.kind.losses(),
            // 0 is no word, and the words are counted from 1
            vocabulary: self.net.vocabulary().map(|words| words + 1),
            least_batch: 1 + usize::from(!self.net.trains_alone()),
            schedule_length: self.optimiser.schedule.length(),
            schedule_end: self.optimiser.schedule.end(),
            schedules_pass: self.optimiser.schedule.follows_pass(),
            schedules_epoch: false,
            step_momentum: self.optimiser.momentum(),
            beside_gradient: beside.map(|(what, _)| what.into()).collect(),
            decays_weights: self.optimiser.decays(),
            starts_again: false,
        }
    }

    fn save(&self) -> Result<Vec<u8>> {
        store::write(&self.tensors(), None)
    }

    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.set_tensors(store::read(model)?.0)
    }

    fn save_state(&self) -> Result<Vec<u8>> {
        store::write_state(self.tensors(), &self.optimiser.state)
    }

    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        let (tensors, optimiser) = store::read_state(state, self.net.weights())?;
        self.set_tensors(tensors)?;
        self.optimiser.state = optimiser;
        Ok(())
    }

    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        Some(self)
    }

    /// Returns `None` for a network that takes words, whose numbers have no slope.
    fn differentiable(&mut self) -> Option<&mut dyn Differentiable> {
        (!self.net.takes_words()).then_some(self)
    }
}
