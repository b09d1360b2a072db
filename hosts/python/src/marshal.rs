//! What crosses between the program and `fl._parts.calls`: messages, answers and exceptions.

use crate::buffer::Buffer;
use crate::library::PythonPart;
use anyhow::anyhow;
use fl_core::Problem;
use fl_core::abi::raw::{FL_DIVERGED, FL_LACKS, FL_SHAPE, FL_UNPRICED};
use fl_core::abi::{Host, Input};
use fl_core::message::View;
use ndarray::{ArrayView, ArrayViewD, IxDyn, ShapeBuilder};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use std::borrow::Cow;
use std::ptr::NonNull;

/// A function of `fl._parts.calls`.
pub fn bridge<'py>(
    py: Python<'py>,
    name: &'static str,
    cell: &'static PyOnceLock<Py<PyAny>>,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let found = cell.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("fl._parts.calls")?.getattr(name)?.unbind())
    })?;
    Ok(found.bind(py))
}

/// Runs `f` with the interpreter.
pub fn attached<T>(f: impl FnOnce(Python<'_>) -> fl_core::Result<T>) -> fl_core::Result<T> {
    Python::try_attach(f).unwrap_or_else(|| Err(anyhow!("Python is shutting down")))
}

/// An exception as an error; a protocol's is also given to the program as JSON. Nothing of the
/// exception's frames is left afterwards, for they hold what was lent.
pub fn explained(py: Python<'_>, host: &Host<'_>, error: &PyErr) -> anyhow::Error {
    static EXPLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let explain = bridge(py, "explain", &EXPLAIN);
    let told = explain.and_then(|explain| explain.call1((error.value(py), error.traceback(py))));
    let told = told.and_then(|told| told.extract::<(i32, String, Option<String>)>());
    let Ok((code, text, json)) = told else {
        return anyhow!("{error}");
    };
    if let Some(json) = json {
        host.text(&json);
    }
    match code {
        FL_UNPRICED => Problem::Unpriced(text).into(),
        FL_SHAPE => Problem::Shape(text).into(),
        FL_LACKS => Problem::Lacks(text).into(),
        FL_DIVERGED => Problem::Diverged(text).into(),
        _ => anyhow!(text),
    }
}

/// What the program says, as an exception.
pub fn failed(error: &anyhow::Error) -> PyErr {
    PyRuntimeError::new_err(format!("{error:#}"))
}

/// Hands an answer to the host: `None`, or a text, arrays, and a new part.
fn deliver(host: &Host<'_>, answer: &Bound<'_, PyAny>) -> PyResult<bool> {
    if answer.is_none() {
        return Ok(false);
    }
    let (json, tensors, new): (Option<String>, Bound<'_, PyDict>, Option<Py<PyAny>>) =
        answer.extract()?;
    if let Some(json) = json {
        host.text(&json);
    }
    for (name, array) in tensors {
        let array = Array::of(name.extract()?, &array)?;
        let sent = host.tensors(&vec![array.named()]);
        sent.map_err(|error| failed(&error))?;
    }
    if let Some(new) = new {
        let given = host.part(Box::new(PythonPart::new(new)));
        given.map_err(|error| failed(&error))?;
    }
    Ok(true)
}

/// Buffers that are lent for a call. They end with it; memory that is still used then is kept.
#[derive(Default)]
struct LentBuffers(Vec<Py<Buffer>>);

impl LentBuffers {
    fn used(&self) -> usize {
        self.0.iter().filter(|lent| lent.get().used()).count()
    }

    /// Ends the buffers, and says how many are in use all the same.
    fn end(&self, py: Python<'_>) -> usize {
        self.0.iter().for_each(|lent| lent.get().end());
        if self.used() > 0 {
            // arrays may hang in a cycle
            let _ = py.import("gc").and_then(|gc| gc.call_method0("collect"));
        }
        self.used()
    }
}

impl Drop for LentBuffers {
    fn drop(&mut self) {
        for lent in self.0.iter().map(Py::get) {
            lent.end();
            if lent.used() {
                lent.keep();
            }
        }
    }
}

/// Answers an operation by `f`, which gets the messages as Python takes them:
/// `[(from, weight, class_counts, {name: buffer}, training_loss)]`. `used` is what to say of arrays
/// that are still used afterwards, given their number.
pub fn answered<'py>(
    py: Python<'py>,
    input: &Input<'_>,
    host: &Host<'_>,
    f: impl FnOnce(Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>>,
    used: impl FnOnce(usize) -> String,
) -> fl_core::Result<bool> {
    let messages = input.incoming()?;
    let mut lent = LentBuffers::default();
    let done = || {
        let list = PyList::empty(py);
        for message in &messages {
            let tensors = PyDict::new(py);
            for (name, view) in &message.tensors {
                let buffer = Py::new(py, Buffer::lent(view))?;
                tensors.set_item(&**name, &buffer)?;
                lent.0.push(buffer);
            }
            let counts = message.class_counts.map(<[u32]>::to_vec);
            let (from, weight, loss) = (message.from, message.weight, message.training_loss);
            list.append((from, weight, counts, tensors, loss))?;
        }
        deliver(host, &f(list)?)
    };
    // first the exception's frames go, and then nothing of what was lent may be in use
    let done = done();
    let done = done.map_err(|error| explained(py, host, &error));
    match lent.end(py) {
        0 => done,
        n => done.and_then(|_| Err(anyhow!(used(n)))),
    }
}

/// Numbers where Python has them: they stay there while this lives.
enum Numbers {
    F32(PyBuffer<f32>),
    F64(PyBuffer<f64>),
    U32(PyBuffer<u32>),
    I64(PyBuffer<i64>),
    U8(PyBuffer<u8>),
}

/// An array of Python, by name.
pub struct Array {
    name: String,
    numbers: Numbers,
    /// It has no dimensions, which pyo3 takes for a mistake.
    single: bool,
}

impl Array {
    pub fn of(name: String, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        fn get<T: Element>(
            array: &Bound<'_, PyAny>,
            numbers: fn(PyBuffer<T>) -> Numbers,
        ) -> Option<Numbers> {
            let plain = |buffer: &PyBuffer<T>| {
                let size = size_of::<T>() as isize;
                let mut steps = buffer.strides().iter();
                steps.all(|step| *step >= 0 && step % size == 0)
            };
            let buffer = PyBuffer::get(array).ok()?;
            if plain(&buffer) {
                return Some(numbers(buffer));
            }
            let copy = PyBuffer::get(&array.call_method0("copy").ok()?).ok()?;
            plain(&copy).then(|| numbers(copy))
        }
        let dimensions: usize = array.getattr("ndim")?.extract()?;
        let single = dimensions == 0;
        let list = single.then(|| array.call_method1("reshape", (1,)));
        let array = &list.transpose()?.unwrap_or_else(|| array.clone());
        let numbers = get(array, Numbers::F32)
            .or_else(|| get(array, Numbers::F64))
            .or_else(|| get(array, Numbers::U32))
            .or_else(|| get(array, Numbers::I64))
            .or_else(|| get(array, Numbers::U8));
        match numbers {
            Some(Numbers::U8(_)) if dimensions != 1 => Err(PyTypeError::new_err(format!(
                "`{name}`: bytes have 1 dimension, not {dimensions}"
            ))),
            Some(numbers) => Ok(Self {
                name,
                numbers,
                single,
            }),
            None => Err(PyTypeError::new_err(format!(
                "`{name}` must be an array of float32, float64, uint32, int64 or uint8"
            ))),
        }
    }

    /// As a message has it.
    pub fn named(&self) -> (Cow<'_, str>, View<'_>) {
        let view = match &self.numbers {
            Numbers::F32(buffer) => View::F32(self.view(buffer)),
            Numbers::F64(buffer) => View::F64(self.view(buffer)),
            Numbers::U32(buffer) => View::U32(self.view(buffer)),
            Numbers::I64(buffer) => View::I64(self.view(buffer)),
            Numbers::U8(buffer) => {
                let bytes = self.view(buffer);
                let copied = || bytes.iter().copied().collect();
                View::U8(bytes.to_slice().map_or_else(copied, Cow::Borrowed))
            }
        };
        (self.name.as_str().into(), view)
    }

    fn view<'a, T: Element>(&self, buffer: &'a PyBuffer<T>) -> ArrayViewD<'a, T> {
        let size = size_of::<T>();
        let (shape, strides) = if self.single {
            (&[][..], &[][..])
        } else {
            (buffer.shape(), buffer.strides())
        };
        let steps: Vec<usize> = strides.iter().map(|s| s.unsigned_abs() / size).collect();
        let shape = IxDyn(shape).strides(IxDyn(&steps));
        let data = match buffer.item_count() {
            0 => NonNull::dangling().as_ptr(),
            _ => buffer.buf_ptr().cast::<T>(),
        };
        #[allow(unsafe_code, reason = "numbers stay where Python has them")]
        // SAFETY: Python says that so many numbers of this type lie there, none of them before the
        // first, and holds them as long as the buffer lives.
        unsafe {
            ArrayView::from_shape_ptr(shape, data)
        }
    }
}
