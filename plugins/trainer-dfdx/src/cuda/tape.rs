//! What flows through a network on a card: values, their gradients, and how to go back.
//!
//! As [`crate::tape`], with buffers on the card; gradients meet in the same order.

use super::driver::{Buffer, Queue, int};
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
    /// Where its gradient goes; `None`: none is wanted.
    pub key: Option<Key>,
}

impl Value {
    /// Numbers in one sample.
    pub fn width(&self) -> usize {
        self.shape.iter().product()
    }
}

/// All weights of a network in one buffer.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The numbers.
    pub data: Arc<Buffer>,
    /// Where their gradient goes, laid out as `data`; `None`: they are frozen. Each weight is used
    /// once in a pass, so an operation sets its part.
    pub gradient: Option<Arc<Buffer>>,
}

/// The gradients while the tape runs backwards.
pub struct Grads<'a> {
    queue: &'a Queue,
    all: BTreeMap<Key, Buffer>,
}

impl Grads<'_> {
    /// Adds to a gradient. The first that comes is moved in, not added to zeros.
    ///
    /// # Errors
    /// When the card fails.
    pub fn give(&mut self, key: Key, more: Buffer) -> Result<()> {
        match self.all.get(&key) {
            Some(sum) => {
                let n = more.len();
                let arguments = [int(n)?.into(), (&more).into(), sum.into()];
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
    next: Key,
}

impl Record {
    /// Records what is needed to go back, or only computes.
    pub fn new(on: bool) -> Self {
        Self {
            steps: on.then(Vec::new),
            next: 0,
        }
    }

    /// A key that no other value has.
    pub fn key(&mut self) -> Key {
        self.next += 1;
        self.next
    }

    /// Notes how the gradient of an operation's output becomes that of what it read. Returns the
    /// output's key, if a gradient will be wanted: `wanted` says whether an input or a weight has
    /// one.
    pub fn note<F>(&mut self, wanted: bool, back: F) -> Option<Key>
    where
        F: 'static + FnOnce(Buffer, &mut Grads<'_>) -> Result<()>,
    {
        let key = self.key();
        let steps = self.steps.as_mut().filter(|_| wanted)?;
        steps.push((key, Box::new(back)));
        Some(key)
    }

    /// Runs the tape backwards from `output`, whose gradient is `slope`. Returns the gradient of
    /// the value `of`, if `output` depends on it; gradients of weights are where [`Weights`] says.
    ///
    /// # Errors
    /// When an operation fails.
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
        for (key, back) in self.steps.into_iter().flatten().rev() {
            if let Some(slope) = grads.all.remove(&key) {
                back(slope, &mut grads)?;
            }
        }
        Ok(of.and_then(|key| grads.all.remove(&key)))
    }
}
