//! Parts in Python as the program sees them: a library whose parts call `fl._parts.calls`. So every
//! check that a loaded library's answers pass, theirs pass too.

use crate::host::Host;
use crate::marshal::{answered, attached, bridge, explained};
use fl_core::Result;
use fl_core::abi::raw::FL_BYTES;
use fl_core::abi::{self, Callee, Input, OpenCall, PartLibrary};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::RefCell;

/// The part that Python declares at the moment.
pub struct PythonLibrary;

/// What becomes of a part that is made.
enum Created {
    Unwanted,
    Wanted(Option<Py<PyAny>>),
}

thread_local! {
    /// The description that `describe` gives next.
    pub static DESCRIPTION: RefCell<String> = const { RefCell::new(String::new()) };
    /// The part that `create` made last on this thread, if anyone wants it.
    static CREATED: RefCell<Created> = const { RefCell::new(Created::Unwanted) };
}

/// What `make` gives, and the part of Python that it made last.
pub fn with_created<T>(make: impl FnOnce() -> T) -> (T, Option<Py<PyAny>>) {
    CREATED.set(Created::Wanted(None));
    let made = make();
    match CREATED.replace(Created::Unwanted) {
        Created::Wanted(part) => (made, part),
        Created::Unwanted => (made, None),
    }
}

impl PartLibrary for PythonLibrary {
    fn describe() -> Result<String> {
        Ok(DESCRIPTION.take())
    }

    fn create(
        index: u32,
        settings: &str,
        task: &str,
        host: &abi::Host<'_>,
    ) -> Result<Box<dyn Callee>> {
        static CREATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        attached(|py| {
            let make = bridge(py, "create", &CREATE);
            let key = host.stream().key();
            let part = make.and_then(|make| make.call1((index, settings, task, key)));
            let part = part.map_err(|error| explained(py, host, &error))?;
            CREATED.with_borrow_mut(|wanted| {
                if let Created::Wanted(last) = wanted {
                    *last = Some(part.clone().unbind());
                }
            });
            Ok(Box::new(PythonPart::new(part.unbind())) as Box<dyn Callee>)
        })
    }

    /// Answers for the most bytes of a message that Python declared.
    fn call(operation: u32, input: &Input<'_>, host: &abi::Host<'_>) -> Result<bool> {
        static SIZE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if operation != FL_BYTES {
            return Ok(false);
        }
        let text = input.text()?;
        attached(|py| {
            let size = bridge(py, "size_of", &SIZE).and_then(|size| size.call1((text,)));
            let size = size.and_then(|size| size.extract::<Option<String>>());
            let size = size.map_err(|error| explained(py, host, &error))?;
            size.iter().for_each(|size| host.text(size));
            Ok(size.is_some())
        })
    }
}

/// A part that is an object in Python.
pub struct PythonPart(Option<Py<PyAny>>);

impl PythonPart {
    pub fn new(part: Py<PyAny>) -> Self {
        Self(Some(part))
    }
}

impl Drop for PythonPart {
    fn drop(&mut self) {
        // an interpreter that has gone took its objects with it
        Python::try_attach(|_| drop(self.0.take()));
    }
}

impl Callee for PythonPart {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &abi::Host<'_>) -> Result<bool> {
        static CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let text = input.text()?;
        attached(|py| {
            OpenCall::lend(host, input, |now| {
                let call = |messages| {
                    let service = Py::new(py, Host(now.clone()))?;
                    bridge(py, "call", &CALL)?.call1((&self.0, operation, text, messages, service))
                };
                answered(py, input, host, call, |n| {
                    format!(
                        "after `{}` it still uses {n} of the arrays that were lent for the call: keep copies (`array.copy()`)",
                        operation_name(py, operation)
                    )
                })
            })
        })
    }
}

fn operation_name(py: Python<'_>, operation: u32) -> String {
    static NAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let name = bridge(py, "operation_name", &NAME).and_then(|name| name.call1((operation,)));
    name.and_then(|name| name.extract()).unwrap_or_default()
}
