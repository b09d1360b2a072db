//! What a part may ask of the program during a call.
#![allow(unsafe_code, reason = "a C interface")]

use crate::ask::{Answer, Asked, SentMessage, ask};
use crate::buffer::Buffer;
use crate::marshal::text;
use fl_core::Executor;
use fl_core::abi::raw::*;
use fl_core::abi::{OPERATIONS, Operation};
use ndarray::{ArrayView, IxDyn, ShapeBuilder};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread::ThreadId;

/// The program, for one call.
#[pyclass(frozen)]
pub struct Host {
    host: AtomicPtr<FlHost>,
    input: AtomicPtr<FlInput>,
    thread: ThreadId,
}

impl Host {
    pub fn new(host: &FlHost, input: &FlInput) -> Self {
        Self {
            host: AtomicPtr::new(std::ptr::from_ref(host).cast_mut()),
            input: AtomicPtr::new(std::ptr::from_ref(input).cast_mut()),
            thread: std::thread::current().id(),
        }
    }

    /// The call is over.
    pub fn end(&self) {
        self.host.store(std::ptr::null_mut(), Ordering::Release);
        self.input.store(std::ptr::null_mut(), Ordering::Release);
    }

    fn host(&self) -> PyResult<&FlHost> {
        // SAFETY: it is null, or lives as long as the call, which ends on this thread.
        let host = unsafe { self.host.load(Ordering::Acquire).as_ref() };
        host.ok_or_else(|| PyRuntimeError::new_err("the call that this belongs to has ended"))
    }

    fn in_call(&self) -> PyResult<()> {
        match self.thread == std::thread::current().id() {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "a part speaks to the program only on the thread of its call",
            )),
        }
    }

    fn input(&self) -> PyResult<&FlInput> {
        // SAFETY: as above.
        let input = unsafe { self.input.load(Ordering::Acquire).as_ref() };
        input.ok_or_else(|| PyRuntimeError::new_err("the call that this belongs to has ended"))
    }
}

/// The numbers of a writable float64 array, and how many there are.
fn place(values: &Bound<'_, PyAny>) -> PyResult<(PyBuffer<f64>, *mut f64, usize)> {
    let wrong = || PyValueError::new_err("noise is added to a writable float64 array in row order");
    let buffer = PyBuffer::<f64>::get(values).map_err(|_| wrong())?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(wrong());
    }
    let (data, n) = (buffer.buf_ptr().cast(), buffer.item_count());
    Ok((buffer, data, n))
}

type AddNoise = unsafe extern "C" fn(*mut c_void, *mut f64, usize, f64);

/// Lets `add` change the numbers of an array.
fn change(
    host: &FlHost,
    values: &Bound<'_, PyAny>,
    add: Option<AddNoise>,
    width: f64,
) -> PyResult<()> {
    let (_buffer, data, n) = place(values)?;
    if let Some(add) = add {
        // SAFETY: the array's own numbers, which this thread alone uses while it holds the
        // interpreter.
        unsafe { add(host.context, data, n, width) }
    }
    Ok(())
}

#[pymethods]
impl Host {
    /// The key of the call's random stream.
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.host()?.key))
    }

    /// What a part of the program, or the program itself (0), answers to a protocol: an error, a
    /// text, and arrays by name.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a call is made of: only `fl._protocol.requests` writes one"
    )]
    fn ask<'py>(
        &self,
        py: Python<'py>,
        part: u64,
        operation: &str,
        key: [u8; 32],
        json: &str,
        messages: Vec<SentMessage<'py>>,
        back: Option<Py<PyAny>>,
    ) -> PyResult<Answer<'py>> {
        self.in_call()?;
        let named = |of: &&Operation| of.name.eq_ignore_ascii_case(operation);
        let known = OPERATIONS.iter().find(named);
        let known = known.ok_or_else(|| {
            PyValueError::new_err(format!("no operation is called `{operation}`"))
        })?;
        let of = Asked {
            part,
            operation: known.number,
            key,
        };
        ask(py, self.host()?, of, json, &messages, back)
    }

    /// A line for people; level 1 is an error, 3 information.
    fn log(&self, level: u32, line: &str) -> PyResult<()> {
        let host = self.host()?;
        if let Some(log) = host.log {
            // SAFETY: the text lives through the call.
            unsafe { log(host.context, level, FlText::of(line)) }
        }
        Ok(())
    }

    /// Adds Laplace noise of this scale to a float64 array.
    fn laplace(&self, values: &Bound<'_, PyAny>, scale: f64) -> PyResult<()> {
        let host = self.host()?;
        change(host, values, host.add_laplace, scale)
    }

    /// Adds normal noise of this standard deviation to a float64 array.
    fn gaussian(&self, values: &Bound<'_, PyAny>, sigma: f64) -> PyResult<()> {
        let host = self.host()?;
        change(host, values, host.add_gaussian, sigma)
    }

    /// Fills a float64 array with uniform numbers in `[0, 1)`: for mechanisms that choose between
    /// labels.
    fn uniform(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let host = self.host()?;
        let (_buffer, data, n) = place(values)?;
        if let Some(fill) = host.fill_uniform {
            // SAFETY: as in `change`.
            unsafe { fill(host.context, data, n) }
        }
        Ok(())
    }

    /// The weighted mean of the messages by name: in double precision, in client order, on the
    /// program's threads, with the bits of the aggregator `mean`.
    fn mean<'py>(&self, py: Python<'py>, weights: Vec<f64>) -> PyResult<Bound<'py, PyDict>> {
        let (host, input) = (self.host()?, self.input()?);
        // SAFETY: the host lends them for the call.
        let messages = unsafe { std::slice::from_raw_parts(input.messages, input.count) };
        if weights.len() != messages.len() || messages.is_empty() {
            let text = format!("{} weights for {} messages", weights.len(), messages.len());
            return Err(PyValueError::new_err(text));
        }
        let exec = Threads(host);
        let out = PyDict::new(py);
        for at in 0..messages[0].count {
            // SAFETY: messages are alike: each has so many tensors.
            let tensor = |m: &FlMessage| unsafe { &*m.tensors.add(at) };
            let first = tensor(&messages[0]);
            if first.dtype != FL_F32 {
                return Err(PyValueError::new_err("only float32 tensors have a mean"));
            }
            // SAFETY: the host's, for the call.
            let (name, shape) = unsafe { (text(first.name), shape(first)) };
            let sent: Vec<Cow<'_, [f32]>> = messages.iter().map(|m| numbers(tensor(m))).collect();
            let sent: Vec<&[f32]> = sent.iter().map(|s| &**s).collect();
            let mean = fl_core::weighted_mean(&sent, &weights, &exec);
            out.set_item(name, Buffer::owner(shape, mean))?;
        }
        Ok(out)
    }
}

/// # Safety
/// The tensor is the host's, and lives as long as the call.
unsafe fn shape<'a>(tensor: &FlTensor) -> &'a [usize] {
    match tensor.dimensions {
        0 => &[],
        // SAFETY: there are so many.
        n => unsafe { std::slice::from_raw_parts(tensor.shape, n as usize) },
    }
}

/// Its numbers in row order: where they are, if they are.
fn numbers<'a>(tensor: &FlTensor) -> Cow<'a, [f32]> {
    // SAFETY: the host's, for the call.
    let shape = unsafe { shape(tensor) };
    if shape.contains(&0) {
        return Cow::Borrowed(&[]);
    }
    let strides: Vec<isize> = (0..shape.len())
        // SAFETY: there is one for each dimension.
        .map(|at| unsafe { *tensor.strides.add(at) })
        .collect();
    let mut due = 1;
    let rows = shape.iter().zip(&strides).rev().all(|(n, s)| {
        let fits = *n == 1 || *s == due;
        due *= *n as isize;
        fits
    });
    let data = tensor.data.cast::<f32>();
    if rows {
        // SAFETY: so many numbers, without a gap.
        return Cow::Borrowed(unsafe { std::slice::from_raw_parts(data, due as usize) });
    }
    if strides.iter().all(|s| *s >= 0) {
        let steps: Vec<usize> = strides.iter().map(|s| s.unsigned_abs()).collect();
        // SAFETY: as the tensor says.
        let view = unsafe { ArrayView::from_shape_ptr(IxDyn(shape).strides(IxDyn(&steps)), data) };
        return Cow::Owned(view.iter().copied().collect());
    }
    let n: usize = shape.iter().product();
    let at = |mut i: usize| {
        let axes = shape.iter().zip(&strides).rev();
        let step = axes.map(|(n, s)| {
            let step = (i % n) as isize * s;
            i /= n;
            step
        });
        let step: isize = step.sum();
        // SAFETY: one of the tensor's numbers.
        unsafe { *data.offset(step) }
    };
    Cow::Owned((0..n).map(at).collect())
}

/// The program's threads.
struct Threads<'a>(&'a FlHost);

// SAFETY: the interface lets any thread call `parallel_for`.
unsafe impl Sync for Threads<'_> {}
// SAFETY: as above.
unsafe impl Send for Threads<'_> {}

impl Executor for Threads<'_> {
    fn chunks(&self, out: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        type Work<'w> = &'w (dyn Fn(usize, &mut [f32]) + Sync);
        unsafe extern "C" fn one(argument: *mut c_void, i: usize, chunk: *mut f32, length: usize) {
            // SAFETY: the argument is the `work` below, and the chunk is this call's alone.
            let (work, chunk) = unsafe {
                (
                    *argument.cast::<Work<'_>>(),
                    std::slice::from_raw_parts_mut(chunk, length),
                )
            };
            work(i, chunk);
        }
        let mut argument: Work<'_> = work;
        let argument = (&raw mut argument).cast::<c_void>();
        match self.0.parallel_for {
            // SAFETY: everything lives until it returns; sums neither panic nor unwind.
            Some(run) => unsafe {
                run(
                    self.0.context,
                    out.as_mut_ptr(),
                    out.len(),
                    size,
                    Some(one),
                    argument,
                );
            },
            None => fl_core::Serial.chunks(out, size, work),
        }
    }
}
