//! The trainer on a card: numbers are copied there at the start of a call and back at its end. Data
//! sets stay there.

use super::{Dfdx, Plan, rows};
use crate::cuda::{
    self, Card, Device, Moments, Position, Queue, Record, Seat, Set, Value, Weights, int,
};
use anyhow::Context;
use fl_core::{Result, Samples};
use fl_nets::buffer::Buffer;
use ndarray::{Array2, ArrayView2, s};
use std::sync::Arc;

/// Numbers of a batch and of a model up to which it shares launches with others: alone it leaves
/// most of a card idle.
const SMALL: usize = 1 << 20;

/// A model that is trained on a card.
pub(super) struct OnCard {
    /// Dropped first: it puts the work that was kept on the card.
    seat: Option<Seat>,
    set: Option<Set>,
    queue: Queue,
    weights: Arc<cuda::Buffer>,
    buffers: cuda::Buffer,
    gradient: Arc<cuda::Buffer>,
    moments: Moments,
    proximal: Option<(f32, cuda::Buffer)>,
    gradient_offset: Option<cuda::Buffer>,
}

impl Dfdx {
    /// Returns the queue of its card; `None` if it runs on the processor.
    pub(super) fn queue(&self) -> Result<Option<&Queue>> {
        let Device::Cuda { index, memory } = self.device else {
            return Ok(None);
        };
        if let Some(queue) = self.queue.get() {
            return Ok(Some(queue));
        }
        let card = Card::open(index)?;
        card.checked()?;
        let queue = Queue::new(card, memory)?;
        Ok(Some(self.queue.get_or_init(|| queue)))
    }

    /// Moves it to the card of this queue.
    pub(crate) fn put_on(&mut self, device: Device, queue: Queue) {
        self.device = device;
        self.queue = queue.into();
    }

    /// Copies the model to its card for a pass; `None` if it runs on the processor.
    pub(super) fn on_card(&self, x: &Samples, plan: &Plan<'_, '_>) -> Result<Option<OnCard>> {
        let pass = plan.pass;
        let Some(queue) = self.queue()? else {
            return Ok(None);
        };
        let set = if self.augmenter.is_empty() {
            self.set(queue, x)?
        } else {
            None
        };
        // losses of other parts may wait for another model, so these models meet nobody
        let own = pass.auxiliary.is_none() && pass.feature_loss.is_none();
        let small = x.width().saturating_mul(pass.batch).max(self.net.weights()) <= SMALL;
        let kind = || format!("{:?} {}", self.net.ops(), pass.batch);
        let (numbers, n) = (self.numbers.of(&self.net), self.net.weights());
        let moment = |values: &[f32]| match values {
            [] => queue.zeros(n),
            _ => queue.upload(values),
        };
        let state = &self.optimiser.state;
        let proximal = plan.proximal.as_ref();
        let proximal =
            proximal.map(|(mu, anchor)| Ok::<_, anyhow::Error>((*mu, queue.upload(anchor)?)));
        let gradient_offset = plan.gradient_offset.as_ref();
        Ok(Some(OnCard {
            weights: Arc::new(queue.upload(&numbers.weights)?),
            buffers: queue.upload(&numbers.buffers)?,
            gradient: Arc::new(queue.room(n)?),
            moments: Moments {
                first: moment(&state.first)?,
                second: moment(&state.second)?,
            },
            proximal: proximal.transpose()?,
            gradient_offset: gradient_offset
                .map(|offset| queue.upload(offset))
                .transpose()?,
            set,
            seat: (own && small).then(|| Seat::take(queue, kind())),
            queue: queue.clone(),
        }))
    }

    /// Copies a model back from its card.
    pub(super) fn take_back(&mut self, mut card: OnCard) -> Result<()> {
        // the others go on without this model
        card.seat = None;
        let all = |buffer: &cuda::Buffer| card.queue.download(buffer, 0, buffer.len());
        self.numbers.set((all(&card.weights)?, all(&card.buffers)?));
        let [first, second] = self.optimiser.moments();
        if first {
            self.optimiser.state.first = all(&card.moments.first)?;
        }
        if second {
            self.optimiser.state.second = all(&card.moments.second)?;
        }
        Ok(())
    }

    /// Takes one step on a card, and returns the loss of the batch at the plan's positions.
    pub(super) fn step_on_card(
        &mut self,
        card: &mut OnCard,
        x: &Samples,
        plan: &Plan<'_, '_>,
        at: usize,
    ) -> Result<f64> {
        if let Some(seat) = &card.seat {
            seat.begin_step()?;
        }
        let (pass, stream) = (plan.pass, plan.stream.child("step", at as u64));
        let (queue, ranges) = (&card.queue, self.net.head());
        let part = |range: &std::ops::Range<usize>| {
            queue.download(&card.weights, range.start, range.len())
        };
        let head = match (pass.auxiliary, &ranges) {
            (Some(_), Some([weight, bias])) => Some(self.head_of(&part(weight)?, &part(bias)?)?),
            (Some(_), None) => Some(self.last_layer()?),
            (None, _) => None,
        };
        let weights = Weights {
            data: card.weights.clone(),
            gradient: Some(card.gradient.clone()),
        };
        let mut record = Record::new(true);
        let read = || self.inputs(x, plan, at);
        let (batch, inputs) =
            self.batch(queue, (card.set.as_ref(), x), &plan.positions, read, None)?;
        let [features, scores] = cuda::ForwardPass {
            queue,
            record: &mut record,
            weights: &weights,
            buffers: &card.buffers,
            train: Some(&stream),
            inputs: &inputs,
        }
        .features_and_scores(&self.net, batch)?;
        let values = |of: &Value| queue.download(&of.data, 0, of.data.len());
        let there = values(&scores)?;
        // copied only for a loss that looks at them
        let of_features = pass.feature_loss.map(|_| values(&features)).transpose()?;
        let (rows, width) = match &of_features {
            Some(_) => (features.rows, features.width()),
            None => (0, 0),
        };
        let of_features = of_features.unwrap_or_default();
        let views = [
            ArrayView2::from_shape((rows, width), &of_features)?,
            ArrayView2::from_shape((scores.rows, scores.width()), &there)?,
        ];
        let scored = plan.score(head, views, &stream)?;
        if let Some(by_features) = scored.by_features {
            record.add_slope(&features, queue.upload(&by_features)?);
        }
        record.backward(queue, &scores, queue.upload(&scored.slope)?, None)?;
        if let (Some(added), Some([weight, bias])) = (&scored.added, ranges) {
            let by = &added.by_head;
            let weights: Vec<f32> = by.weight.iter().map(|v| *v as f32).collect();
            let biases: Vec<f32> = by.bias.iter().map(|v| *v as f32).collect();
            for (more, to) in [(weights, weight.start), (biases, bias.start)] {
                let (n, more) = (more.len(), queue.upload(&more)?);
                let to = Position(&card.gradient, to).into();
                queue.each("accumulate", n, &[int(n)?.into(), (&more).into(), to])?;
            }
        }
        if let Some(most) = pass.clip {
            cuda::clip(queue, &card.gradient, most)?;
        }
        if let Some((mu, anchor)) = &card.proximal {
            cuda::proximal(queue, &card.gradient, &card.weights, anchor, *mu)?;
        }
        if let Some(gradient_offset) = &card.gradient_offset {
            cuda::gradient_offset(queue, &card.gradient, gradient_offset)?;
        }
        let how = self.optimiser.advance(&plan.step(at));
        cuda::step(queue, how, &card.gradient, &card.weights, &card.moments)?;
        Ok(scored.loss)
    }

    /// Returns the data set of these samples on a card; `None` if it is not there, or its rows are
    /// words, which the host reads too.
    fn set(&self, queue: &Queue, x: &Samples) -> Result<Option<Set>> {
        if self.net.takes_words() {
            Ok(None)
        } else {
            Set::of(queue, x.inputs())
        }
    }

    /// Returns a batch of samples on a card, and its numbers on the host, if they are read there;
    /// `key` names its gradient.
    fn batch(
        &self,
        queue: &Queue,
        (set, x): (Option<&Set>, &Samples),
        positions: &[usize],
        read: impl FnOnce() -> Buffer,
        key: Option<usize>,
    ) -> Result<(Value, Buffer)> {
        let (data, inputs) = if let Some(set) = set {
            let ids = positions.iter().map(|p| int(x.ids()[*p] as usize));
            (
                set.pick(&ids.collect::<Result<Vec<i32>>>()?)?,
                Buffer::default(),
            )
        } else {
            let inputs = read();
            (queue.upload(&inputs)?, inputs)
        };
        let value = Value {
            data: Arc::new(data),
            rows: positions.len(),
            shape: self.task.input.clone(),
            key,
        };
        Ok((value, inputs))
    }

    fn frozen_on_card(&self, queue: &Queue) -> Result<(Weights, cuda::Buffer)> {
        let numbers = self.numbers.of(&self.net);
        let weights = Weights {
            data: Arc::new(queue.upload(&numbers.weights)?),
            gradient: None,
        };
        Ok((weights, queue.upload(&numbers.buffers)?))
    }

    /// Returns scores or features of all samples, some at a time, with running statistics.
    pub(super) fn evaluate_on_card(
        &self,
        queue: &Queue,
        x: &Samples,
        features: bool,
    ) -> Result<Array2<f32>> {
        let set = self.set(queue, x)?;
        let (weights, buffers) = self.frozen_on_card(queue)?;
        let width = if features {
            self.net.features_width()
        } else {
            self.task.kind.outputs()
        };
        let mut out = Vec::with_capacity(x.len() * width);
        let all: Vec<usize> = (0..x.len()).collect();
        for some in all.chunks(self.predict_batch) {
            let (batch, inputs) =
                self.batch(queue, (set.as_ref(), x), some, || rows(x, some), None)?;
            let mut record = Record::new(false);
            let mut pass = cuda::ForwardPass {
                queue,
                record: &mut record,
                weights: &weights,
                buffers: &buffers,
                train: None,
                inputs: &inputs,
            };
            let made = if features {
                pass.features(&self.net, batch)?
            } else {
                pass.scores(&self.net, batch)?
            };
            out.extend(queue.download(&made.data, 0, made.data.len())?);
        }
        Ok(Array2::from_shape_vec((x.len(), width), out)?)
    }

    /// As `backwards`: by the weights, or by the inputs.
    pub(super) fn backwards_on_card(
        &self,
        queue: &Queue,
        x: &Samples,
        slope: ArrayView2<'_, f32>,
        by_weights: bool,
        mut take: impl FnMut(Vec<f32>),
    ) -> Result<()> {
        let set = self.set(queue, x)?;
        let (mut weights, buffers) = self.frozen_on_card(queue)?;
        if by_weights {
            weights.gradient = Some(Arc::new(queue.zeros(self.net.weights())?));
        }
        for first in (0..x.len()).step_by(self.predict_batch) {
            let some: Vec<usize> = (first..x.len().min(first + self.predict_batch)).collect();
            let mut record = Record::new(true);
            let key = (!by_weights).then(|| record.key());
            let (batch, inputs) =
                self.batch(queue, (set.as_ref(), x), &some, || rows(x, &some), key)?;
            let scores = cuda::ForwardPass {
                queue,
                record: &mut record,
                weights: &weights,
                buffers: &buffers,
                train: None,
                inputs: &inputs,
            }
            .scores(&self.net, batch)?;
            let slope = slope.slice(s![first..first + some.len(), ..]);
            let slope: Vec<f32> = slope.iter().copied().collect();
            let by_input = record.backward(queue, &scores, queue.upload(&slope)?, key)?;
            let found = match &weights.gradient {
                Some(gradient) => gradient,
                None => &Arc::new(by_input.context("scores do not depend on the inputs")?),
            };
            take(queue.download(found, 0, found.len())?);
        }
        Ok(())
    }
}
