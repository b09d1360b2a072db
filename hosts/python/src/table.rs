//! Parts in Python as the program sees them: one table, as a loaded library has it, whose functions
//! call `fl._bridge`. So every check that a library's answers pass, theirs pass too.
#![allow(unsafe_code, reason = "a C interface")]

use crate::buffer::Buffer;
use crate::host::{Host, text};
use fl_core::abi::raw::*;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub static TABLE: FlLibrary = FlLibrary {
    describe: Some(describe),
    create: Some(create),
    call: Some(call),
    drop: Some(drop_part),
    free: Some(free),
    ..FlLibrary::OF_THIS_VERSION
};

thread_local! {
    /// The description that `describe` gives next.
    pub static DESCRIPTION: RefCell<String> = const { RefCell::new(String::new()) };
    /// Where the part goes that `create` makes next on this thread, if anyone wants it.
    static CREATED: RefCell<Option<Vec<Py<PyAny>>>> = const { RefCell::new(None) };
}

/// What `make` gives, and the part of Python that it made last.
pub fn with_created<T>(make: impl FnOnce() -> T) -> (T, Option<Py<PyAny>>) {
    CREATED.set(Some(Vec::new()));
    let made = make();
    (made, CREATED.take().and_then(|mut parts| parts.pop()))
}

/// A function of `fl._bridge`.
fn bridge<'py>(
    py: Python<'py>,
    name: &'static str,
    cell: &'static PyOnceLock<Py<PyAny>>,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let found = cell.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("fl._bridge")?.getattr(name)?.unbind())
    })?;
    Ok(found.bind(py))
}

/// What the host is told of an exception: a code, a text, and for a protocol the program's own
/// error as JSON. Nothing of the exception's frames is left afterwards, for they hold what was
/// lent.
type ExceptionText = (i32, String, Option<String>);

fn explained(py: Python<'_>, error: &PyErr) -> ExceptionText {
    static EXPLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let explain = bridge(py, "explain", &EXPLAIN);
    let told = explain.and_then(|explain| explain.call1((error.value(py), error.traceback(py))));
    told.and_then(|told| told.extract::<ExceptionText>())
        .unwrap_or_else(|_| (FL_ERROR, error.to_string(), None))
}

/// Runs `f`; what goes wrong is told to the host.
fn guarded(
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

unsafe extern "C" fn describe(_: *const FlHost, json: *mut FlText) -> i32 {
    // freed in `free`
    let text: &'static str = DESCRIPTION.take().leak();
    // SAFETY: the host lends the place for the call.
    unsafe { *json = FlText::of(text) };
    FL_OK
}

unsafe extern "C" fn free(json: FlText) {
    let bytes = std::ptr::slice_from_raw_parts_mut(json.data.cast_mut(), json.length);
    // SAFETY: `describe` leaked exactly this.
    drop(unsafe { Box::from_raw(bytes) });
}

unsafe extern "C" fn create(
    index: u32,
    settings: FlText,
    task: FlText,
    host: *const FlHost,
) -> i32 {
    static CREATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    guarded(host, |py, host| {
        // SAFETY: both are the host's, for the call.
        let (settings, task) = unsafe { (text(settings), text(task)) };
        let make = || {
            let part = bridge(py, "create", &CREATE)?.call1((index, settings, task, host.key))?;
            CREATED.with_borrow_mut(|wanted| {
                if let Some(parts) = wanted {
                    parts.push(part.clone().unbind());
                }
            });
            give(host, part);
            Ok(FL_OK)
        };
        make().map_err(|error: PyErr| explained(py, &error))
    })
}

fn give(host: &FlHost, part: Bound<'_, PyAny>) {
    let part = Box::into_raw(Box::new(part.unbind()));
    if let Some(give) = host.part {
        // SAFETY: the host takes the part, and drops it once.
        unsafe { give(host.context, part.cast()) }
    }
}

unsafe extern "C" fn drop_part(part: *mut c_void) {
    // SAFETY: `give` made it.
    let part = unsafe { Box::from_raw(part.cast::<Py<PyAny>>()) };
    // an interpreter that has gone took its objects with it
    let mut part = Some(part);
    Python::try_attach(|_| drop(part.take()));
    std::mem::forget(part);
}

unsafe extern "C" fn call(
    part: *mut c_void,
    operation: u32,
    input: *const FlInput,
    host: *const FlHost,
) -> i32 {
    // SAFETY: a part that `give` made, or none for an operation of the library itself.
    let Some(part) = (unsafe { part.cast::<Py<PyAny>>().as_ref() }) else {
        return match operation {
            // SAFETY: the host lends it for the call.
            FL_BYTES => size(unsafe { &*input }, host),
            _ => FL_UNKNOWN,
        };
    };
    guarded(host, |py, host| {
        // SAFETY: the host lends it for the call.
        let input = unsafe { &*input };
        let mut lent = Vec::new();
        let service = Py::new(py, Host::new(host, input));
        let done = service.and_then(|service| {
            let done = asked(py, part, operation, input, host, &service, &mut lent);
            service.get().end();
            done
        });
        // first the exception's frames go, and then nothing of what was lent may be in use
        let done = done.map_err(|error| explained(py, &error));
        match take_back(py, &lent) {
            0 => done,
            n => done.and(Err((
                FL_ERROR,
                format!(
                    "after `{}` it still uses {n} of the arrays that were lent for the call: keep copies (`array.copy()`)",
                    operation_name(py, operation)
                ),
                None,
            ))),
        }
    })
}

/// Answers for the most bytes of a message that Python declared.
fn size(input: &FlInput, host: *const FlHost) -> i32 {
    static SIZE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    guarded(host, |py, host| {
        let told = || -> PyResult<i32> {
            // SAFETY: the text is the host's, for the call.
            let text = unsafe { text(input.text) };
            let told: Option<String> = bridge(py, "size_of", &SIZE)?.call1((text,))?.extract()?;
            let (Some(told), Some(give)) = (told, host.text) else {
                return Ok(FL_UNKNOWN);
            };
            // SAFETY: the text lives through the call.
            unsafe { give(host.context, FlText::of(&told)) }
            Ok(FL_OK)
        };
        told().map_err(|error| explained(py, &error))
    })
}

/// # Safety
/// The text is one of the host's, and lives as long as the call.
pub unsafe fn copied_text(of: FlText) -> String {
    // SAFETY: as the caller says.
    unsafe { text(of) }.to_string()
}

/// Lets `back` answer what the program asks in the middle of a request: it gets the text and the
/// messages, and gives what `fl._bridge.call` gives.
///
/// # Safety
/// `input` and `host` live through the call.
pub unsafe fn answer_back(back: &Py<PyAny>, input: *const FlInput, host: *const FlHost) -> i32 {
    guarded(host, |py, host| {
        // SAFETY: as the caller says.
        let input = unsafe { &*input };
        let mut lent = Vec::new();
        let done = received(py, input, &mut lent).and_then(|messages| {
            // SAFETY: the program's, for the call.
            let text = unsafe { text(input.text) };
            deliver(py, host, &back.bind(py).call1((text, messages))?)
        });
        let done = done.map_err(|error| explained(py, &error));
        let kept = "it still uses arrays that were lent for a call: keep copies (`array.copy()`)";
        match take_back(py, &lent) {
            0 => done,
            _ => done.and(Err((FL_ERROR, kept.into(), None))),
        }
    })
}

fn operation_name(py: Python<'_>, operation: u32) -> String {
    static NAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let name = bridge(py, "operation_name", &NAME).and_then(|name| name.call1((operation,)));
    name.and_then(|name| name.extract()).unwrap_or_default()
}

fn asked(
    py: Python<'_>,
    part: &Py<PyAny>,
    operation: u32,
    input: &FlInput,
    host: &FlHost,
    service: &Py<Host>,
    lent: &mut Vec<Py<Buffer>>,
) -> PyResult<i32> {
    static CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let messages = received(py, input, lent)?;
    // SAFETY: the host's, for the call.
    let text = unsafe { text(input.text) };
    let answer = bridge(py, "call", &CALL)?.call1((part, operation, text, messages, service))?;
    deliver(py, host, &answer)
}

/// Hands an answer to the host: `None`, or a text, arrays, and a new part.
fn deliver(py: Python<'_>, host: &FlHost, answer: &Bound<'_, PyAny>) -> PyResult<i32> {
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
fn received<'py>(
    py: Python<'py>,
    input: &FlInput,
    lent: &mut Vec<Py<Buffer>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for at in 0..input.count {
        // SAFETY: the host lends so many messages.
        let message = unsafe { &*input.messages.add(at) };
        let tensors = PyDict::new(py);
        for at in 0..message.count {
            // SAFETY: a message has so many tensors; what is lent is taken back before the call
            // ends.
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
fn take_back(py: Python<'_>, lent: &[Py<Buffer>]) -> usize {
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
