//! A network's parameters, and the slopes of its scores by them and by its inputs.

use super::{Dfdx, rows};
use fl_core::message::Params;
use fl_core::{
    Differentiable, Loss, Parametric, PassStep, Problem, Result, Samples, Target, Trainer, loss,
};
use fl_nets::buffer;
use fl_nets::examples::{self, ExampleSlopes};
use fl_nets::net::{Entry, Mode, batch};
use fl_nets::tape::{Key, Record};
use fl_nets::target;
use ndarray::{Array2, ArrayD, ArrayView2, IxDyn, s};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

impl Parametric for Dfdx {
    fn params(&self) -> Params {
        let array = |(shape, values): (Vec<usize>, Vec<f32>)| {
            ArrayD::from_shape_vec(IxDyn(&shape), values)
                .expect("a tensor has as many numbers as its shape")
        };
        Params(
            self.tensors()
                .into_iter()
                .map(|(name, tensor)| (name, array(tensor)))
                .collect(),
        )
    }

    fn set_params(&mut self, params: &Params) -> Result<()> {
        let mut tensors = BTreeMap::new();
        for (name, a) in &params.0 {
            let values = match a.as_slice() {
                Some(values) => Cow::from(values),
                None => Cow::from_iter(a.iter().copied()),
            };
            tensors.insert(name.clone(), (a.shape().to_vec(), values));
        }
        let (weights, mut buffers) = self.net.arrange(tensors)?;
        self.net.bound_variances(&mut buffers);
        self.numbers.set((weights, buffers));
        Ok(())
    }

    fn buffers(&self) -> BTreeSet<String> {
        let entries = self.net.entries().iter();
        let buffers = entries.filter(|entry| !entry.trainable);
        buffers.map(|entry| entry.name.clone()).collect()
    }

    fn gradient(&mut self, x: &Samples, target: Target<'_>, loss: Loss) -> Result<Params> {
        target::check(loss, self.task.kind, &target, x.len())?;
        let scores = self.predict(x)?;
        let (_, slope) = loss::of_task(self.task.kind, self.dice, loss, target, scores.view())?;
        let mut sum = vec![0.0f64; self.net.weights()];
        self.backwards(x, slope.view(), Of::Weights, |some| {
            sum.iter_mut()
                .zip(some)
                .for_each(|(s, g)| *s += f64::from(g));
        })?;
        self.gradient_of(&sum)
    }

    /// Computes on the processor, wherever the network runs.
    fn clipped_gradients(
        &mut self,
        x: &Samples,
        target: Target<'_>,
        loss: Loss,
        clip: f64,
    ) -> Result<Option<Params>> {
        self.checked(x)?;
        target::check(loss, self.task.kind, &target, x.len())?;
        let mut sums = vec![0.0; self.net.weights()];
        let _pass = buffer::BufferScope;
        let at_once = examples::at_once(self.net.summed_weights(), self.predict_batch);
        let all: Vec<usize> = (0..x.len()).collect();
        for some in all.chunks(at_once) {
            let slopes = Rc::new(RefCell::new(ExampleSlopes::new(some.len())));
            let (key, mut record) = (Key::new(), Record::of_examples(&slopes));
            let weights = self.numbers.weights(&self.net, Some(key.clone()));
            let scores = self.net.forward(
                &mut record,
                batch(rows(x, some), &self.task.input, None)?,
                &weights,
                &mut Mode::Evaluate(&self.numbers.of(&self.net).buffers),
            )?;
            // the loss of each example by itself: a mean over several would depend on their number
            let table = ArrayView2::from_shape((scores.rows, scores.width()), &scores.data)?;
            let mut slope = Vec::with_capacity(table.len());
            for (row, at) in some.iter().enumerate() {
                let (of_one, scores) = (target.pick(&[*at]), table.slice(s![row..=row, ..]));
                let (_, by_scores) =
                    loss::of_task(self.task.kind, self.dice, loss, of_one.view(), scores)?;
                slope.extend(by_scores);
            }
            record.backward(&scores, slope, &key, Vec::new())?;
            let slopes = slopes.borrow();
            slopes.add_to(&slopes.factors(clip), &mut sums);
        }
        self.gradient_of(&sums).map(Some)
    }

    fn descend(&mut self, gradient: &Params, step: &PassStep) -> Result<()> {
        let gradient = self.flat(gradient, "the gradient")?;
        let numbers = self.numbers.of_mut(&self.net);
        let weights: &mut Vec<f32> = Arc::make_mut(&mut numbers.weights);
        self.optimiser.step(weights, &gradient, step);
        Ok(())
    }

    fn step_size(&self) -> Option<f64> {
        self.optimiser.is_plain().then(|| self.optimiser.rate())
    }
}

impl Differentiable for Dfdx {
    fn vjp(&mut self, x: &Samples, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let mut out = Vec::with_capacity(x.len() * x.width());
        self.backwards(x, slope, Of::Inputs, |some| out.extend(some))?;
        Ok(Array2::from_shape_vec((x.len(), x.width()), out)?)
    }
}

/// The variables to differentiate scores by.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Inputs,
    Weights,
}

impl Dfdx {
    /// Returns a gradient, laid out as the weights, by name; 0 for buffers.
    fn gradient_of(&self, sums: &[f64]) -> Result<Params> {
        let entry = |e: &Entry| {
            let values = if e.trainable {
                sums[e.range.clone()].iter().map(|g| *g as f32).collect()
            } else {
                vec![0.0; e.range.len()]
            };
            let tensor = ArrayD::from_shape_vec(IxDyn(&e.shape), values)?;
            Ok((e.name.clone(), tensor))
        };
        let all: Result<_> = self.net.entries().iter().map(entry).collect();
        all.map(Params)
    }

    /// Passes the derivative of `sum(slope * scores)` to `take`, some samples at a time, with
    /// running statistics.
    fn backwards(
        &self,
        x: &Samples,
        slope: ArrayView2<'_, f32>,
        of: Of,
        mut take: impl FnMut(Vec<f32>),
    ) -> Result<()> {
        self.checked(x)?;
        let wanted = (x.len(), self.task.kind.outputs());
        let text = || format!("a slope of {:?} for scores of {wanted:?}", slope.dim());
        Problem::shape_unless(slope.dim() == wanted, text)?;
        if let Some(queue) = self.queue()? {
            return self.backwards_on_card(queue, x, slope, of == Of::Weights, take);
        }
        let _pass = buffer::BufferScope;
        for first in (0..x.len()).step_by(self.predict_batch) {
            let some: Vec<usize> = (first..x.len().min(first + self.predict_batch)).collect();
            let (key, mut record) = (Key::new(), Record::on());
            let only = |one: Of| (of == one).then(|| key.clone());
            let inputs = batch(rows(x, &some), &self.task.input, only(Of::Inputs))?;
            let weights = self.numbers.weights(&self.net, only(Of::Weights));
            let scores = self.net.forward(
                &mut record,
                inputs,
                &weights,
                &mut Mode::Evaluate(&self.numbers.of(&self.net).buffers),
            )?;
            let slope = slope
                .slice(s![first..first + some.len(), ..])
                .iter()
                .copied()
                .collect();
            let room = match of {
                Of::Inputs => Vec::new(),
                Of::Weights => vec![0.0; self.net.weights()],
            };
            take(record.backward(&scores, slope, &key, room)?);
        }
        Ok(())
    }
}
