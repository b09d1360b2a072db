//! Parts in Python as the program sees them: one table, as a loaded library has it, whose functions
//! call `fl._parts.calls`. So every check that a library's answers pass, theirs pass too.
#![allow(unsafe_code, reason = "a C interface")]

use crate::buffer::Buffer;
use crate::host::Host;
use crate::marshal::{bridge, deliver, explained, give, guarded, received, take_back, text};
use fl_core::abi::raw::*;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::RefCell;
use std::ffi::c_void;

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
