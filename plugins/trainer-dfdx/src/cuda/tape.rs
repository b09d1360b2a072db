//! Values in a network on a card, their gradients, and the backward pass.
//!
//! As [`fl_nets::tape`], with buffers on the card; gradients are added in the same order.

use super::driver::{Buffer, Queue};
use fl_core::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names a gradient.
pub type Key = usize;

/// A batch of numbers, `rows x product(shape)`, row after row.
#[derive(Clone, Debug)]
pub struct Value {
    /// The numbers.
    pub data: Arc<Buffer>,
    /// Samples in the batch.
    pub rows: usize,
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// Key of its gradient; `None` if no gradient is needed.
    pub key: Option<Key>,
}

impl Value {
    /// Returns the numbers in one sample.
    pub fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the result of an operation on this value alone; `back` turns the slope by the
    /// result into that by this value.
    pub fn then(
        &self,
        record: &mut Record,
        data: impl Into<Arc<Buffer>>,
        shape: Vec<usize>,
        back: impl FnOnce(Buffer) -> Result<Buffer> + 'static,
    ) -> Self {
        let to = self.key;
        let key = record.note(to.is_some(), move |slope, grads| {
            let back = back(slope)?;
            to.map_or(Ok(()), |to| grads.give(to, back))
        });
        Self {
            data: data.into(),
            rows: self.rows,
            shape,
            key,
        }
    }
}

/// All weights of a network in one buffer.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The numbers.
    pub data: Arc<Buffer>,
    /// Their gradient, laid out as `data`; `None` if they are frozen. Each weight is used once in a
    /// pass, so an operation sets its part.
    pub gradient: Option<Arc<Buffer>>,
}

/// The gradients during the backward pass.
pub struct Grads<'a> {
    queue: &'a Queue,
    all: BTreeMap<Key, Buffer>,
}

impl Grads<'_> {
    /// Adds to a gradient. The first addend is moved in, not added to zeros.
    ///
    /// # Errors
    /// If the card fails.
    pub fn give(&mut self, key: Key, more: Buffer) -> Result<()> {
        match self.all.get(&key) {
            Some(sum) => {
                let n = more.len();
                let arguments = arguments![n, &more, sum];
                self.queue.each("accumulate", n, &arguments)
            }
            None => {
                self.all.insert(key, more);
                Ok(())
            }
        }
    }
}

type Back = Box<dyn FnOnce(Buffer, &mut Grads<'_>) -> Result<()>>;

/// One pass through a network, recorded or not.
pub struct Record {
    steps: Option<Vec<(Key, Back)>>,
    /// Addends to gradients of values.
    slopes: Vec<(Key, Buffer)>,
    next: Key,
}

impl Record {
    /// Makes a record that stores the backward pass if `on`, or only computes.
    pub fn new(on: bool) -> Self {
        Self {
            steps: on.then(Vec::new),
            slopes: Vec::new(),
            next: 0,
        }
    }

    /// Returns a new, unique key.
    pub fn key(&mut self) -> Key {
        self.next += 1;
        self.next
    }

    /// Stores how the gradient of an operation's output becomes that of its inputs. Returns the
    /// output's key if a gradient is needed: `wanted` tells whether an input or a weight has one.
    pub fn note<F>(&mut self, wanted: bool, back: F) -> Option<Key>
    where
        F: 'static + FnOnce(Buffer, &mut Grads<'_>) -> Result<()>,
    {
        let key = self.key();
        let steps = self.steps.as_mut().filter(|_| wanted)?;
        steps.push((key, Box::new(back)));
        Some(key)
    }

    /// Adds `slope` to the gradient of a value, in addition to what its uses contribute.
    pub fn add_slope(&mut self, value: &Value, slope: Buffer) {
        self.slopes.extend(value.key.map(|key| (key, slope)));
    }

    /// Runs the tape backwards from `output`, whose gradient is `slope`. Returns the gradient of
    /// the value `of`, if `output` depends on it; the gradients of weights are stored in
    /// [`Weights`].
    ///
    /// # Errors
    /// If an operation fails.
    pub fn backward(
        self,
        queue: &Queue,
        output: &Value,
        slope: Buffer,
        of: Option<Key>,
    ) -> Result<Option<Buffer>> {
        let all = BTreeMap::new();
        let mut grads = Grads { queue, all };
        if let Some(key) = output.key {
            grads.give(key, slope)?;
        }
        for (key, slope) in self.slopes {
            grads.give(key, slope)?;
        }
        for (key, back) in self.steps.into_iter().flatten().rev() {
            if let Some(slope) = grads.all.remove(&key) {
                back(slope, &mut grads)?;
            }
        }
        Ok(of.and_then(|key| grads.all.remove(&key)))
    }
}
