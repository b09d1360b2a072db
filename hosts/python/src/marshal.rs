//! What crosses between the program and `fl._parts.calls`: messages and answers, exceptions as codes and
//! texts.
#![allow(unsafe_code, reason = "a C interface")]

use crate::buffer::Buffer;
use fl_core::abi::raw::*;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// # Safety
/// The text is one of the host's, and lives as long as the call.
pub unsafe fn text<'a>(text: FlText) -> &'a str {
    // SAFETY: as the caller says.
    unsafe { text.read("a text") }.unwrap_or_default()
}

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

/// What the host is told of an exception: a code, a text, and for a protocol the program's own
/// error as JSON. Nothing of the exception's frames is left afterwards, for they hold what was
/// lent.
pub type ExceptionText = (i32, String, Option<String>);

pub fn explained(py: Python<'_>, error: &PyErr) -> ExceptionText {
    static EXPLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let explain = bridge(py, "explain", &EXPLAIN);
    let told = explain.and_then(|explain| explain.call1((error.value(py), error.traceback(py))));
    told.and_then(|told| told.extract::<ExceptionText>())
        .unwrap_or_else(|_| (FL_ERROR, error.to_string(), None))
}

/// Runs `f`; what goes wrong is told to the host.
pub fn guarded(
    host: *const FlHost,
    f: impl FnOnce(Python<'_>, &FlHost) -> Result<i32, ExceptionText>,
) -> i32 {
    // SAFETY: the host lends this for the call.
    let host = unsafe { &*host };
    let fail = |text: &str| {
        if let Some(fail) = host.fail {
            // SAFETY: the texts live through the call.
            unsafe { fail(host.context, FlText::of(""), FlText::of(text)) }
        }
    };
    let run = || Python::try_attach(|py| f(py, host));
    let (code, why, json) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Some(Ok(code))) => return code,
        Ok(Some(Err(told))) => told,
        Ok(None) => (FL_ERROR, "Python is shutting down".into(), None),
        Err(_) => (FL_PANIC, "a panic".into(), None),
    };
    fail(&why);
    if let (Some(json), Some(give)) = (&json, host.text) {
        // SAFETY: the text lives through the call.
        unsafe { give(host.context, FlText::of(json)) }
    }
    code
}

pub fn give(host: &FlHost, part: Bound<'_, PyAny>) {
    let part = Box::into_raw(Box::new(part.unbind()));
    if let Some(give) = host.part {
        // SAFETY: the host takes the part, and drops it once.
        unsafe { give(host.context, part.cast()) }
    }
}

/// Hands an answer to the host: `None`, or a text, arrays, and a new part.
pub fn deliver(py: Python<'_>, host: &FlHost, answer: &Bound<'_, PyAny>) -> PyResult<i32> {
    if answer.is_none() {
        return Ok(FL_UNKNOWN);
    }
    let (json, tensors, new): (Option<String>, Bound<'_, PyDict>, Bound<'_, PyAny>) =
        answer.extract()?;
    if let (Some(json), Some(give)) = (&json, host.text) {
        // SAFETY: the text lives through the call.
        unsafe { give(host.context, FlText::of(json)) }
    }
    for (name, array) in tensors {
        send(py, host, name.extract()?, &array)?;
    }
    if !new.is_none() {
        give(host, new);
    }
    Ok(FL_OK)
}

/// What the Python side gets: `[(from, weight, class_counts, {name: buffer}, training_loss)]`.
pub fn received<'py>(
    py: Python<'py>,
    input: &FlInput,
    lent: &mut Vec<Py<Buffer>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for at in 0..input.count {
        // SAFETY: the host lends `input.count` messages, and `at` is below that.
        let message = unsafe { &*input.messages.add(at) };
        let tensors = PyDict::new(py);
        for at in 0..message.count {
            // SAFETY: a message has `message.count` tensors, and `at` is below that. The caller
            // takes the lent buffers back before the call ends.
            let (name, view) = unsafe {
                let tensor = &*message.tensors.add(at);
                (text(tensor.name), Py::new(py, Buffer::lent(tensor))?)
            };
            tensors.set_item(name, &view)?;
            lent.push(view);
        }
        let counts = (!message.class_counts.is_null()).then(|| {
            // SAFETY: there are as many as the message says.
            unsafe { std::slice::from_raw_parts(message.class_counts, message.classes as usize) }
                .to_vec()
        });
        let loss = Some(message.training_loss).filter(|loss| !loss.is_nan());
        list.append((message.from, message.weight, counts, tensors, loss))?;
    }
    Ok(list)
}

/// Ends what was lent; says how many of it are in use all the same. Their memory then stays as it
/// is for ever.
pub fn take_back(py: Python<'_>, lent: &[Py<Buffer>]) -> usize {
    lent.iter().for_each(|l| l.get().end());
    let used = || lent.iter().filter(|l| l.get().used());
    if used().next().is_none() {
        return 0;
    }
    // arrays may hang in a cycle
    let _ = py.import("gc").and_then(|gc| gc.call_method0("collect"));
    used().map(|l| l.get().keep()).count()
}

/// Writes an array into the host's memory.
fn send(py: Python<'_>, host: &FlHost, name: &str, array: &Bound<'_, PyAny>) -> PyResult<()> {
    fn copy<T: Element>(
        py: Python<'_>,
        host: &FlHost,
        name: &str,
        array: &Bound<'_, PyAny>,
        single: bool,
        dtype: u32,
    ) -> PyResult<bool> {
        let Ok(buffer) = PyBuffer::<T>::get(array) else {
            return Ok(false);
        };
        let Some(tensor) = host.tensor else {
            return Ok(false);
        };
        let shape = if single { &[] } else { buffer.shape() };
        // SAFETY: name and shape live through the call.
        let place = unsafe {
            tensor(
                host.context,
                FlText::of(name),
                dtype,
                shape.len() as u32,
                shape.as_ptr(),
            )
        };
        if !place.is_null() {
            // SAFETY: the host has made room for as many numbers as the shape says.
            let place =
                unsafe { std::slice::from_raw_parts_mut(place.cast::<T>(), buffer.item_count()) };
            buffer.copy_to_slice(py, place)?;
        }
        Ok(true)
    }
    // a single number has no shape, which pyo3 takes for a mistake
    let single = array.getattr("ndim")?.extract::<usize>()? == 0;
    let list = single.then(|| array.call_method1("reshape", (1,)));
    let array = &list.transpose()?.unwrap_or_else(|| array.clone());
    let done = copy::<f32>(py, host, name, array, single, FL_F32)?
        || copy::<f64>(py, host, name, array, single, FL_F64)?
        || copy::<u32>(py, host, name, array, single, FL_U32)?
        || copy::<i64>(py, host, name, array, single, FL_I64)?
        || copy::<u8>(py, host, name, array, single, FL_U8)?;
    match done {
        true => Ok(()),
        false => Err(PyTypeError::new_err(format!(
            "`{name}` must be an array of float32, float64, uint32, int64 or uint8"
        ))),
    }
}
