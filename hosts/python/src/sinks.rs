//! The sinks of a spec, which are in Python.

use fl_engine::TakeEvent;
use pyo3::prelude::*;
use serde_json::Value as Json;

/// Opens the sinks of a run from their settings.
pub fn open(settings: &Json) -> Result<TakeEvent, String> {
    let make = |py: Python<'_>| -> PyResult<Py<PyAny>> {
        let open = py.import("fl.sinks")?.getattr("open_all")?;
        Ok(open.call1((settings.to_string(),))?.unbind())
    };
    let sinks = Python::try_attach(|py| make(py).map_err(|error| error.value(py).to_string()));
    let sinks = sinks.unwrap_or_else(|| Err("Python is shutting down".into()))?;
    Ok(listener(sinks))
}

/// A callable of Python that takes events as texts.
pub fn listener(callable: Py<PyAny>) -> TakeEvent {
    Box::new(move |event| {
        // it says itself what goes wrong, and a run is worth more than its sinks
        let _ = Python::try_attach(|py| callable.call1(py, (event.to_string(),)));
    })
}
