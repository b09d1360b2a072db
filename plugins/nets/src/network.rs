//! [`Network`]: a network by itself, for parts that define their own training: generators.

use crate::buffer::{self, Buffer};
use crate::net::{Layer, Mode, Net, Numbers, batch};
use crate::optim::{Optimiser, Rule, Schedule};
use crate::store;
use crate::tape::{Key, Record};
use anyhow::ensure;
use fl_core::{PassStep, Problem, Result, Stream};
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;

/// A network that makes inputs, with its numbers and its optimiser. It learns from slopes by its
/// output.
pub struct Network {
    net: Net,
    from: usize,
    to: usize,
    numbers: Numbers,
    optimiser: Optimiser,
    /// Buffer for the gradient, kept between steps.
    gradient: Vec<f32>,
}

impl Network {
    /// Makes a network that makes inputs of shape `to` from rows of `from` numbers, with initial
    /// weights from `stream`.
    ///
    /// # Errors
    /// If a layer does not accept its input, the last layer does not give that shape, or the
    /// schedule has no end.
    pub fn new(
        layers: &[Layer],
        (from, to): (usize, &[usize]),
        (rule, schedule): (Rule, Schedule),
        stream: &Stream,
    ) -> Result<Self> {
        if let Schedule::Cosine(cosine) = &schedule {
            ensure!(
                cosine.steps.is_some(),
                "schedule: cosine: it has no passes, so say after how many `steps` the rate is at its end"
            );
        }
        let net = Net::maker(layers, from, to)?;
        Ok(Self {
            from,
            to: to.iter().product(),
            gradient: Vec::new(),
            numbers: Numbers::new(stream.clone()),
            optimiser: Optimiser::new(rule, schedule),
            net,
        })
    }

    /// Returns the number of trainable parameters.
    pub fn parameters(&self) -> usize {
        self.net.weights()
    }

    /// Returns the output for `x`, `rows x from`. Several rows are normalised by their own
    /// statistics, as in training; one row by the running ones. Changes nothing. Dropout draws from
    /// `stream`.
    ///
    /// # Errors
    /// If `x` has another width, or the output is not finite.
    pub fn run(&self, x: ArrayView2<'_, f32>, stream: &Stream) -> Result<Array2<f32>> {
        let mut buffers = self.numbers.of(&self.net).buffers.clone();
        self.forward(x, &mut Self::mode(x.nrows(), &mut buffers, stream))
    }

    /// Returns the output for `x`, `rows x from`, each row independently by the running statistics;
    /// without dropout.
    ///
    /// # Errors
    /// As [`Network::run`].
    pub fn make(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let buffers = &self.numbers.of(&self.net).buffers;
        self.forward(x, &mut Mode::Evaluate(buffers))
    }

    fn forward(&self, x: ArrayView2<'_, f32>, mode: &mut Mode<'_>) -> Result<Array2<f32>> {
        if x.nrows() == 0 {
            return Ok(Array2::zeros((0, self.to)));
        }
        let _pass = buffer::BufferScope;
        let weights = self.numbers.weights(&self.net, None);
        let input = self.input(x, None)?;
        let made = self
            .net
            .forward(&mut Record::off(), input, &weights, mode)?;
        Ok(Array2::from_shape_vec(
            (made.rows, made.width()),
            made.data.to_vec(),
        )?)
    }

    /// Returns the derivative by `x` of `sum(slope * made)`, where `made` is the result of
    /// [`Network::make`].
    ///
    /// # Errors
    /// As [`Network::run`], or if `slope` does not have the shape of the output.
    pub fn vjp(&self, x: ArrayView2<'_, f32>, slope: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        let text = || {
            format!(
                "a slope of {:?} for {} rows of {}",
                slope.dim(),
                x.nrows(),
                self.to
            )
        };
        Problem::shape_unless(slope.dim() == (x.nrows(), self.to), text)?;
        if x.nrows() == 0 {
            return Ok(Array2::zeros(x.dim()));
        }
        let _pass = buffer::BufferScope;
        let (key, mut record) = (Key::new(), Record::on());
        let mut mode = Mode::Evaluate(&self.numbers.of(&self.net).buffers);
        let input = self.input(x, Some(key.clone()))?;
        let weights = self.numbers.weights(&self.net, None);
        let made = self.net.forward(&mut record, input, &weights, &mut mode)?;
        let slope = slope.iter().copied().collect();
        let by = record.backward(&made, slope, &key, Vec::new())?;
        Ok(Array2::from_shape_vec(x.dim(), by)?)
    }

    /// Takes one step against the slope by the output for `x`: `slope` gets the output and returns
    /// a number for each of its numbers. Updates running statistics.
    ///
    /// # Errors
    /// As [`Network::run`], those of `slope`, or if its result has another shape. Nothing has
    /// changed then.
    pub fn learn(
        &mut self,
        x: ArrayView2<'_, f32>,
        stream: &Stream,
        slope: impl FnOnce(ArrayView2<'_, f32>) -> Result<Array2<f32>>,
    ) -> Result<()> {
        if x.nrows() == 0 {
            return slope(Array2::zeros((0, self.to)).view()).map(|_| ());
        }
        let _pass = buffer::BufferScope;
        let key = Key::new();
        let weights = self.numbers.weights(&self.net, Some(key.clone()));
        let buffers = &self.numbers.of(&self.net).buffers;
        let (mut buffers, mut record) = (buffers.clone(), Record::on());
        let mut mode = Self::mode(x.nrows(), &mut buffers, stream);
        let made = self
            .net
            .forward(&mut record, self.input(x, None)?, &weights, &mut mode)?;
        let view = ArrayView2::from_shape((made.rows, made.width()), &made.data)?;
        let slope = slope(view)?;
        let text = || format!("a slope of {:?} for {:?} numbers", slope.dim(), view.dim());
        ensure!(slope.dim() == view.dim(), Problem::Shape(text()));
        let slope = slope.as_standard_layout().iter().copied().collect();
        self.gradient.resize(self.net.weights(), 0.0);
        let room = std::mem::take(&mut self.gradient);
        self.gradient = record.backward(&made, slope, &key, room)?;
        // the tape, which held the weights, is dropped, so they are updated in place
        drop((weights, made));
        let numbers = self.numbers.of_mut(&self.net);
        numbers.buffers = buffers;
        let weights: &mut Vec<f32> = Arc::make_mut(&mut numbers.weights);
        self.optimiser
            .step(weights, &self.gradient, &PassStep::new(0, 1));
        Ok(())
    }

    /// Returns the mode; one row has no statistics of its own.
    fn mode<'a>(rows: usize, buffers: &'a mut [f32], stream: &'a Stream) -> Mode<'a> {
        match rows {
            1 => Mode::Evaluate(buffers),
            _ => Mode::Train(buffers, stream),
        }
    }

    /// Returns an input as a value; `key` names its gradient.
    fn input(&self, x: ArrayView2<'_, f32>, key: Option<Key>) -> Result<crate::tape::Value> {
        let text = || format!("rows of {} numbers, and it takes {}", x.ncols(), self.from);
        Problem::shape_unless(x.ncols() == self.from, text)?;
        let numbers = Buffer::collect(x.as_standard_layout().iter().copied());
        batch(numbers, &[self.from], key)
    }

    /// Returns weights, running statistics and the optimiser's state.
    ///
    /// # Errors
    /// If they cannot be serialised.
    pub fn save_state(&self) -> Result<Vec<u8>> {
        let numbers = self.numbers.of(&self.net);
        let tensors = self.net.tensors(&numbers.weights, &numbers.buffers);
        store::write_state(tensors, &self.optimiser.state)
    }

    /// Restores a state from [`Network::save_state`].
    ///
    /// # Errors
    /// If `state` is not a state of this network.
    pub fn load_state(&mut self, state: &[u8]) -> Result<()> {
        let (tensors, optimiser) = store::read_state(state, self.net.weights())?;
        self.numbers.set(self.net.arrange(tensors)?);
        self.optimiser.state = optimiser;
        Ok(())
    }
}
