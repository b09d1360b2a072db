//! Measures in Python, beside those of the program.

use anyhow::anyhow;
use fl_core::metrics::NamedMeasures;
use fl_core::{Examples, TaskKind};
use fl_registry::SessionMetric;
use ndarray::ArrayView2;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Has Python declared a measure?
static ANY: AtomicBool = AtomicBool::new(false);

/// Python has declared a measure.
#[pyfunction]
pub fn metric_declared() {
    ANY.store(true, Ordering::Relaxed);
}

/// The numbers of an array, as Python reads them with `numpy.frombuffer`.
fn bytes<T: Copy, const N: usize>(of: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
    of.iter().flat_map(|value| to(*value)).collect()
}

/// The truth of examples: its kind, its width, and its bytes.
fn truth(examples: &Examples) -> Option<(&'static str, usize, Vec<u8>)> {
    if let Some(of) = examples.classes() {
        return Some(("classes", 0, bytes(&of, u32::to_le_bytes)));
    }
    if let Some(of) = examples.multi_label() {
        let all: Vec<i8> = of.iter().copied().collect();
        return Some(("multi-label", of.ncols(), bytes(&all, i8::to_le_bytes)));
    }
    if let Some(masks) = examples.masks() {
        let all: Vec<u8> = masks.of().iter().copied().collect();
        return Some(("masks", masks.of().ncols(), all));
    }
    if let Some(numbers) = examples.numbers() {
        let all: Vec<f32> = numbers.of().iter().copied().collect();
        return Some((
            "numbers",
            numbers.of().ncols(),
            bytes(&all, f32::to_le_bytes),
        ));
    }
    let images = examples.images()?;
    let all: Vec<f32> = images.values().iter().copied().collect();
    let width = images.values().ncols();
    Some(("images", width, bytes(&all, f32::to_le_bytes)))
}

fn of_session(scores: ArrayView2<'_, f32>, examples: &Examples) -> anyhow::Result<NamedMeasures> {
    if !ANY.load(Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let Some((kind, width, labels)) = truth(examples) else {
        return Ok(Vec::new());
    };
    let all: Vec<f32> = scores.iter().copied().collect();
    let all = bytes(&all, f32::to_le_bytes);
    let measure = |py: Python<'_>| -> PyResult<NamedMeasures> {
        let measured = py.import("fl._parts.metric")?.getattr("measured")?;
        let scores = (PyBytes::new(py, &all), scores.ncols());
        let labels = (kind, width, PyBytes::new(py, &labels));
        measured.call1((scores, labels))?.extract()
    };
    let measured =
        Python::try_attach(|py| measure(py).map_err(|error| anyhow!("{}", error.value(py))));
    measured.unwrap_or_else(|| Err(anyhow!("Python is shutting down")))
}

fn names(kind: TaskKind) -> Vec<String> {
    if !ANY.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let kind = match kind {
        TaskKind::Classes(_) => "classes",
        TaskKind::MultiLabel(_) => "multi-label",
        TaskKind::Pixels { .. } => "masks",
        TaskKind::Image { .. } => "images",
        TaskKind::Numbers { .. } => "numbers",
    };
    let ask = |py: Python<'_>| -> PyResult<Vec<String>> {
        let named = py.import("fl._parts.metric")?.getattr("names")?;
        named.call1((kind,))?.extract()
    };
    let named = Python::try_attach(|py| ask(py).unwrap_or_default());
    named.unwrap_or_default()
}
fl_core::measures!(of_session, names);

/// The measures of this session, each with the hash of its source.
pub fn fingerprints() -> Result<Vec<SessionMetric>, String> {
    let ask = |py: Python<'_>| -> PyResult<Vec<SessionMetric>> {
        let found = py
            .import("fl._parts.fingerprints")?
            .getattr("fingerprints")?;
        found.call0()?.extract()
    };
    let found = Python::try_attach(|py| ask(py).map_err(|error| error.to_string()));
    found.unwrap_or_else(|| Ok(Vec::new()))
}
