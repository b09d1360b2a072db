//! Values in a network: in our own buffers, with their gradients on dfdx's tape.
//!
//! dfdx 0.13 keeps a tensor's numbers private: every read of a whole tensor is a copy. Its tape and
//! its gradient store have no such limit. So a [`Value`] holds the numbers itself, with an empty
//! dfdx tensor as the *key* of its gradient in [`dfdx::tensor::Gradients`]. An operation reads and
//! writes slices and puts its derivative on an [`OwnedTape`]; nothing is copied between the two.

use crate::buffer::Buffer;
use crate::examples::{ExampleSlopes, ROWS};
use crate::optim::Descent;
use crate::simd::vectorised;
use anyhow::anyhow;
use dfdx::prelude::{
    Backward, Cpu, Gradients, OwnedTape, PutTape, Rank0, Tape, Tensor, TensorFrom, TensorFromVec,
};
use fl_core::Result;
use std::cell::{OnceCell, RefCell, RefMut};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

/// dfdx needs a device for every tensor; its random numbers are not used.
static DEVICE: LazyLock<Cpu> = LazyLock::new(Cpu::default);

/// Names a gradient by the id of an empty tensor.
#[derive(Clone, Debug)]
pub struct Key(Tensor<(usize,), f32, Cpu>);

impl Key {
    /// Returns a new, unique key.
    pub fn new() -> Self {
        Self(DEVICE.tensor_from_vec(Vec::new(), (0,)))
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

/// A batch of numbers, `rows x product(shape)`, row after row.
#[derive(Clone, Debug)]
pub struct Value {
    /// The numbers.
    pub data: Arc<Buffer>,
    /// Samples in the batch.
    pub rows: usize,
    /// Shape of one sample: `[channels, height, width]` or `[width]`.
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
        back: impl FnOnce(Buffer) -> Buffer + 'static,
    ) -> Self {
        let to = self.key.clone();
        let key = record.note(to.is_some(), move |slope, grads| {
            let back = back(slope);
            to.map_or(Ok(()), |to| grads.give(&to, back))
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
    pub data: Arc<Vec<f32>>,
    /// Key of their gradient, one buffer laid out as `data`; `None` if they are frozen.
    pub key: Option<Key>,
}

/// A backward pass that gives the next weights in place of the gradient of the weights. They are
/// computed where the gradient still is in registers: a pass of their own would take as long as the
/// gradient.
pub struct Descending {
    /// How weights follow their gradient.
    pub how: Descent,
    done: RefCell<Vec<Range<usize>>>,
}

impl Descending {
    /// Records that an operation has given the next weights in these places.
    pub fn finish(&self, range: Range<usize>) {
        self.done.borrow_mut().push(range);
    }

    /// After the pass, turns what operations gave as gradients into next weights.
    pub fn finish_rest(&self, given: &mut [f32], weights: &[f32]) {
        let mut done = self.done.take();
        done.sort_unstable_by_key(|range| range.start);
        let (mut from, end) = (0, given.len());
        for range in done.into_iter().chain(std::iter::once(end..end)) {
            let rest = from..range.start;
            self.how.replace(&mut given[rest.clone()], &weights[rest]);
            from = range.end;
        }
    }
}

/// The gradients during the backward pass.
pub struct Grads<'a> {
    all: &'a mut Gradients<f32, Cpu>,
    examples: Option<&'a RefCell<ExampleSlopes>>,
    descending: Option<&'a Descending>,
}

impl<'a> Grads<'a> {
    fn of(all: &'a mut Gradients<f32, Cpu>) -> Self {
        Self {
            all,
            examples: None,
            descending: None,
        }
    }

    fn slot(&mut self, key: &Key) -> Result<&mut Vec<f32>, dfdx::tensor::CpuError> {
        self.all.get_or_alloc_mut(&key.0).map(|v| &mut **v)
    }

    /// Returns where the gradients of weights go, if the pass keeps those of single examples.
    pub fn examples(&self) -> Option<RefMut<'a, ExampleSlopes>> {
        self.examples.map(RefCell::borrow_mut)
    }

    /// Returns how weights follow their gradient, if an operation may give the next ones.
    pub fn descending(&self) -> Option<&'a Descending> {
        self.descending
    }

    /// Takes the gradient out; empty if nothing downstream depends on it.
    pub fn take(&mut self, key: &Key) -> Result<Buffer, dfdx::tensor::CpuError> {
        self.slot(key).map(|slot| std::mem::take(slot).into())
    }

    /// Adds to a gradient. The first addend is moved in, not added to zeros.
    pub fn give(&mut self, key: &Key, more: Buffer) -> Result<(), dfdx::tensor::CpuError> {
        let slot = self.slot(key)?;
        if slot.is_empty() {
            *slot = more.into_vec();
        } else {
            vectorised(
                #[inline(always)]
                || slot.iter_mut().zip(more.iter()).for_each(|(g, m)| *g += m),
            );
        }
        Ok(())
    }

    /// Returns the gradient of all weights. Each weight is used once in a pass, so an operation
    /// *sets* its part.
    pub fn weights(&mut self, key: &Key) -> Result<&mut [f32], dfdx::tensor::CpuError> {
        self.slot(key).map(Vec::as_mut_slice)
    }
}

/// One pass through a network, recorded or not.
pub struct Record {
    tape: Option<OwnedTape<f32, Cpu>>,
    examples: Option<Rc<RefCell<ExampleSlopes>>>,
    descending: Rc<OnceCell<Descending>>,
}

impl Record {
    /// Makes a record that stores the backward pass.
    pub fn on() -> Self {
        Self {
            tape: Some(OwnedTape::default()),
            examples: None,
            descending: Rc::default(),
        }
    }

    /// Makes a record whose backward pass gives the gradients of weights to `examples`, example by
    /// example.
    pub fn of_examples(examples: &Rc<RefCell<ExampleSlopes>>) -> Self {
        Self {
            examples: Some(examples.clone()),
            ..Self::on()
        }
    }

    /// Returns the number of rows that decides the order of sums.
    pub fn rows(&self, rows: usize) -> usize {
        self.examples.as_ref().map_or(rows, |_| ROWS)
    }

    /// Makes a record that only computes.
    pub fn off() -> Self {
        Self {
            tape: None,
            examples: None,
            descending: Rc::default(),
        }
    }

    /// Stores how the gradient of an operation's output becomes that of its inputs. Returns the
    /// output's key if a gradient is needed: `wanted` tells whether an input or a weight needs one.
    pub fn note<F>(&mut self, wanted: bool, back: F) -> Option<Key>
    where
        F: 'static + FnOnce(Buffer, &mut Grads<'_>) -> Result<(), dfdx::tensor::CpuError>,
    {
        let tape = self.tape.as_mut().filter(|_| wanted)?;
        let key = Key::new();
        let own = key.clone();
        let (examples, descending) = (self.examples.clone(), self.descending.clone());
        tape.add_backward_op(move |all| {
            let mut grads = Grads {
                all,
                examples: examples.as_deref(),
                descending: descending.get(),
            };
            let slope = grads.take(&own)?;
            if slope.is_empty() {
                Ok(())
            } else {
                back(slope, &mut grads)
            }
        });
        Some(key)
    }

    /// Adds `slope` to the gradient of a value, in addition to what its uses contribute.
    pub fn add_slope(&mut self, value: &Value, slope: Vec<f32>) {
        if let (Some(tape), Some(key)) = (&mut self.tape, value.key.clone()) {
            // the last operation of a tape is the first of its backward pass
            tape.add_backward_op(move |all| Grads::of(all).give(&key, slope.into()));
        }
    }

    /// Lets operations give the next weights in place of their gradient; see
    /// [`Descending::finish_rest`].
    pub fn descend(&self, how: Descent) -> Rc<OnceCell<Descending>> {
        let done = RefCell::default();
        self.descending.get_or_init(|| Descending { how, done });
        self.descending.clone()
    }

    /// Runs the tape backwards from `output`, whose gradient is `slope`. Returns the gradient of
    /// `of`: `buffer`, filled, for weights; for a value, of the value's length. Empty if `output`
    /// does not depend on it.
    ///
    /// # Errors
    /// If nothing was recorded.
    pub fn backward(
        self,
        output: &Value,
        slope: Vec<f32>,
        of: &Key,
        buffer: Vec<f32>,
    ) -> Result<Vec<f32>> {
        let nothing = || anyhow!("there is nothing to differentiate");
        let (mut tape, key) = (
            self.tape.ok_or_else(nothing)?,
            output.key.clone().ok_or_else(nothing)?,
        );
        let weights = of.clone();
        tape.add_backward_op(move |all| {
            let mut grads = Grads::of(all);
            *grads.slot(&weights)? = buffer;
            grads.give(&key, slope.into())
        });
        let end: Tensor<Rank0, f32, Cpu> = DEVICE.tensor(0.0);
        let mut gradients = end
            .put_tape(tape)
            .try_backward()
            .map_err(|e| anyhow!("dfdx: {e}"))?;
        Grads::of(&mut gradients)
            .take(of)
            .map(Buffer::into_vec)
            .map_err(|e| anyhow!("dfdx: {e}"))
    }
}
