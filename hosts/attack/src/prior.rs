//! [`Prior`]: the typical appearance of inputs, learnt from public ones: a generator, and the
//! discriminator that trained it.

use crate::minimise::{Search, SearchResult, Tell, loss_by_input, minimise};
use anyhow::{Context, Result, ensure};
use fl_core::loss::{of_batch, sigmoid};
use fl_core::{
    BuildContext, Differentiable, FitOptions, Length, Loss, Samples, Stream, Target, Task,
    TaskKind, Trainer,
};
use fl_nets::{Adam, Conv, Layer, NetSpec, Network, Rule, Schedule};
use fl_plugin_generators::MakerNet;
use fl_plugin_trainer_dfdx::{Device, Dfdx, DfdxSettings};
use ndarray::{Array2, ArrayView2, Axis, Zip, concatenate, s};

/// Normally distributed numbers per input. GMI: 100.
const NOISE: usize = 100;
/// Largest distance from 0 of each of them in a search, as in GMI's published code. Further out a
/// generator makes inputs unlike those that it was trained to make.
const FAR: f32 = 1.0;
/// Inputs of a step. GMI: 64.
const BATCH: usize = 64;
/// Searches for each class, of which the one with the least loss is used. GMI: 5.
const STARTS: usize = 5;
/// Weight of looking real relative to the class. GMI: 1 relative to 100, for a critic whose slope
/// has one length everywhere. The slope of this discriminator vanishes where it is sure of a fake,
/// and at 0.01 the search leaves the range that the generator has learnt.
const REAL: f64 = 0.1;
/// Inputs made at random, from which [`Prior::unsearched`] takes one for each class.
const RANDOM: usize = 1000;

/// A generator of inputs that resemble public ones.
pub struct Prior {
    maker: Network,
    judge: Dfdx,
    shape: Vec<usize>,
    range: Vec<(f32, f32)>,
}

impl Prior {
    /// Trains a generator and a discriminator on `known` for `steps` steps of each, with the
    /// non-saturating loss of Goodfellow et al. 2014, Adam 0.0002 and beta1 0.5 (Radford, Metz,
    /// Chintala 2016). `range` is that of each number. Calls `tell` at each step, and stops if it
    /// returns false.
    ///
    /// # Errors
    /// If `known` is empty, or no network makes inputs of this shape.
    pub fn learn(
        known: &Samples,
        range: &[(f32, f32)],
        steps: usize,
        stream: &Stream,
        tell: &Tell,
    ) -> Result<Self> {
        ensure!(!known.is_empty(), "a generator needs inputs to learn from");
        let (optimiser, shape) = (adam(2e-4), known.shape());
        let mut prior = Self {
            maker: Network::new(
                &maker(&shape)?,
                (NOISE, &shape),
                (optimiser.clone(), Schedule::Constant),
                &stream.child("maker", 0),
            )?,
            judge: judge(&shape, optimiser, &stream.child("judge", 0))?,
            range: range.to_vec(),
            shape,
        };
        for step in 0..steps {
            let stream = stream.child("step", step as u64);
            prior.step(known, &stream)?;
            if !tell() {
                break;
            }
        }
        Ok(prior)
    }

    fn step(&mut self, known: &Samples, stream: &Stream) -> Result<()> {
        let noise = noise(BATCH, &stream.child("noise", 0));
        let mut draws = stream.child("known", 0).draws();
        let rows: Vec<usize> = (0..BATCH)
            .map(|_| (draws.uniform() * known.len() as f64) as usize)
            .collect();
        let real = known.pick(&rows).values();
        let Self {
            maker,
            judge,
            shape,
            range,
        } = self;
        maker.learn(noise.view(), stream, |made| {
            let made = in_range(made, range);
            let both = concatenate(Axis(0), &[real.view(), made.view()])?;
            let both = Samples::fresh(both, shape.clone())?;
            let labels = Array2::from_shape_fn((2 * BATCH, 1), |(at, _)| i8::from(at < BATCH));
            let pass = FitOptions::new(Length::Steps(1), 2 * BATCH, Loss::CrossEntropy);
            let target = Target::MultiLabel(labels.view());
            judge.fit(&both, target, &pass, &stream.child("judge", 0))?;
            Ok(by_unit(unreal(judge, &made, shape)?.1, range))
        })
    }

    /// Returns inputs made from these numbers.
    fn make(&self, noise: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        Ok(in_range(self.maker.make(noise)?.view(), &self.range))
    }

    /// Returns for each of these classes the random input with the model's highest score for it. It
    /// is the baseline of a search.
    ///
    /// # Errors
    /// If the model cannot predict such inputs.
    pub fn unsearched(
        &self,
        model: &mut dyn Trainer,
        classes: &[u32],
        stream: &Stream,
    ) -> Result<Array2<f32>> {
        let made = self.make(noise(RANDOM, &stream.child("random", 0)).view())?;
        let scores = model.predict(&Samples::fresh(made.clone(), self.shape.clone())?)?;
        let first = |class: u32| {
            let of = |row: usize| {
                let row = scores.row(row);
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row[class as usize] - most
            };
            // the first that the model assigns to the class; otherwise the nearest to it
            let first = (0..RANDOM).find(|row| of(*row) == 0.0);
            let nearest = || (0..RANDOM).max_by(|a, b| of(*a).total_cmp(&of(*b)));
            first.or_else(nearest).unwrap_or(0)
        };
        let rows: Vec<usize> = classes.iter().map(|class| first(*class)).collect();
        Ok(made.select(Axis(0), &rows))
    }

    /// Returns for each of these classes the input from the generator's range with the model's
    /// highest confidence (GMI; Zhang, Jia, Pei, Wang, Li, Song 2020; here by Adam, and with a
    /// plain discriminator). `distance` is the remaining mean cross-entropy.
    ///
    /// # Errors
    /// If the model gives no slopes by its input.
    pub fn search(
        &mut self,
        model: &mut dyn Trainer,
        classes: &[u32],
        how: &Search,
        stream: &Stream,
        tell: &Tell,
    ) -> Result<SearchResult> {
        let every: Vec<u32> = classes.iter().flat_map(|c| [*c; STARTS]).collect();
        let begin = (every.len(), &[NOISE][..], &[(-FAR, FAR); NOISE][..]);
        let found = minimise(begin, how, stream, tell, &mut |noise| {
            let x = self.make(noise.view())?;
            let samples = Samples::fresh(x.clone(), self.shape.clone())?;
            let (loss, mut slope) = loss_by_input(model, &samples, &every)?;
            let (far_from_real, unreal) = unreal(&mut self.judge, &x, &self.shape)?;
            Zip::from(&mut slope)
                .and(&unreal)
                .for_each(|s, u| *s += (REAL * f64::from(*u)) as f32);
            let slope = self
                .maker
                .vjp(noise.view(), by_unit(slope, &self.range).view())?;
            Ok((loss + REAL * far_from_real, slope.mapv(f64::from)))
        })?;
        let x = self.make(found.inputs.view())?;
        let scores = model.predict(&Samples::fresh(x.clone(), self.shape.clone())?)?;
        let mut best = Array2::zeros((classes.len(), x.ncols()));
        let mut sum = 0.0;
        for (at, class) in classes.iter().enumerate() {
            let rows: Vec<usize> = (at * STARTS..(at + 1) * STARTS).collect();
            let loss = |row: usize| {
                let scores = scores.slice(s![row..row + 1, ..]);
                of_batch(Loss::CrossEntropy, Target::Classes(&[*class]), scores)
            };
            let losses: Result<Vec<f64>> = rows.iter().map(|row| Ok(loss(*row)?.0)).collect();
            let least = losses?
                .into_iter()
                .zip(rows)
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let (loss, row) = least.context("each class has been looked for")?;
            best.row_mut(at).assign(&x.row(row));
            sum += loss;
        }
        Ok(SearchResult {
            inputs: best,
            distance: sum / classes.len() as f64,
        })
    }
}

/// Returns the mean of `-ln` of the probability of "real", and its slope by these inputs.
fn unreal(judge: &mut Dfdx, x: &Array2<f32>, shape: &[usize]) -> Result<(f64, Array2<f32>)> {
    let x = Samples::fresh(x.clone(), shape.to_vec())?;
    let scores = judge.predict(&x)?.mapv(f64::from);
    let n = x.len() as f64;
    let each = scores.mapv(|s| (-s).max(0.0) + libm::log1p(libm::exp(-s.abs())));
    let slope = scores.mapv(|s| ((sigmoid(s) - 1.0) / n) as f32);
    Ok((each.sum() / n, judge.vjp(&x, slope.view())?))
}

/// Scales numbers from -1..1 to the range of each.
pub(crate) fn in_range(made: ArrayView2<'_, f32>, range: &[(f32, f32)]) -> Array2<f32> {
    let mut made = made.to_owned();
    for mut row in made.rows_mut() {
        let each = row.iter_mut().zip(range);
        each.for_each(|(x, (low, high))| *x = low + (high - low) * (*x + 1.0) / 2.0);
    }
    made
}

/// Converts a slope by inputs to a slope by the network's outputs, from -1 to 1.
pub(crate) fn by_unit(mut slope: Array2<f32>, range: &[(f32, f32)]) -> Array2<f32> {
    for mut row in slope.rows_mut() {
        let each = row.iter_mut().zip(range);
        each.for_each(|(x, (low, high))| *x *= (high - low) / 2.0);
    }
    slope
}

pub(crate) fn noise(n: usize, stream: &Stream) -> Array2<f32> {
    let mut draws = stream.draws();
    Array2::from_shape_simple_fn((n, NOISE), || draws.normal() as f32)
}

/// Adam as of Radford, Metz, Chintala 2016, except the rate.
pub(crate) fn adam(lr: f64) -> Rule {
    Rule::Adam(Adam {
        lr,
        beta1: 0.5,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
    })
}

/// Returns layers whose output lies between -1 and 1.
pub(crate) fn maker(shape: &[usize]) -> Result<Vec<Layer>> {
    match shape {
        [_, _, _] => {
            let mut layers = MakerNet::UpsamplingSmall.layers(shape)?;
            // public inputs have a range, and their mean and spread need not be standardised
            layers.retain(|layer| *layer != Layer::Standardise);
            Ok(layers)
        }
        _ => Ok([MakerNet::Mlp.layers(shape)?, vec![Layer::Tanh]].concat()),
    }
}

fn judge(shape: &[usize], optimiser: Rule, stream: &Stream) -> Result<Dfdx> {
    let leaky = Layer::LeakyRelu(0.2);
    let halved = |out| {
        Layer::Conv(Conv {
            out,
            kernel: 4,
            stride: 2,
            pad: 1,
            bias: true,
        })
    };
    let layers = match shape {
        [_, _, _] => vec![halved(32), leaky.clone(), halved(64), leaky, Layer::Outputs],
        _ => vec![Layer::Linear(256), leaky, Layer::Outputs],
    };
    let settings = DfdxSettings {
        net: NetSpec::Layers(layers),
        optimiser,
        schedule: Schedule::Constant,
        augment: Vec::new(),
        dice: None,
        predict_batch: 256,
        device: Device::Cpu,
    };
    let task = Task::new(shape.to_vec(), TaskKind::MultiLabel(1));
    Dfdx::new(settings, &BuildContext::new(task, stream.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a network that has learnt that points on the right have class 1.
    fn right_or_left(points: &Samples) -> Dfdx {
        let settings = fl_core::settings::read_yaml("{net: [outputs]}").unwrap();
        let task = Task {
            input: vec![2],
            kind: TaskKind::Classes(2),
        };
        let make = BuildContext {
            task,
            stream: Stream::root(1),
        };
        let mut model = Dfdx::new(settings, &make).unwrap();
        let right: Vec<u32> = (points.values().column(0).iter())
            .map(|x| u32::from(*x > 0.0))
            .collect();
        let pass = FitOptions::new(Length::Steps(2000), 50, Loss::CrossEntropy);
        let target = Target::Classes(&right);
        model.fit(points, target, &pass, &Stream::root(2)).unwrap();
        model
    }

    /// Two clouds of points, right and left.
    #[test]
    fn what_is_found_looks_like_what_is_known() {
        let stream = Stream::root(3);
        let mut draws = stream.child("points", 0).draws();
        let points = Array2::from_shape_fn((200, 2), |(row, column)| {
            let side = if row % 2 == 0 { 1.0 } else { -1.0 };
            let middle = [side, 0.5][column];
            middle + 0.1 * draws.normal() as f32
        });
        let known = Samples::fresh(points, vec![2]).unwrap();
        let range = [(-4.0, 4.0); 2];
        let mut prior =
            Prior::learn(&known, &range, 1500, &stream, &(Box::new(|| true) as Tell)).unwrap();
        let mut model = right_or_left(&known);
        let how = Search {
            steps: 200,
            rate: 0.1,
            smooth: 0.0,
        };
        let tell: Tell = Box::new(|| true);
        let found = prior
            .search(&mut model, &[0, 1], &how, &stream, &tell)
            .unwrap();
        let free = crate::inversion(&mut model, &[0, 1], &[2], &range, &how, &stream, &tell);
        let off = |found: &Array2<f32>, class: usize| {
            let middle = [[-1.0, 0.5], [1.0, 0.5]][class];
            let each = found.row(class).to_vec();
            libm::hypotf(each[0] - middle[0], each[1] - middle[1])
        };
        for class in 0..2 {
            assert!(off(&found.inputs, class) < 0.6, "{}", found.inputs);
            assert!(off(&free.as_ref().unwrap().inputs, class) > 2.0);
        }
    }
}
