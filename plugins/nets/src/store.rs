//! Models and states as safetensors files (<https://huggingface.co/docs/safetensors>).

use crate::optim::State;
use anyhow::Context;
use fl_core::{Problem, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::{BTreeMap, HashMap};

/// Tensors by name: shape and numbers.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Names of the optimiser's tensors in a state; no layer has such a name.
const FIRST: &str = "optimiser.first";
const SECOND: &str = "optimiser.second";

/// The counter's name among the notes of a file.
const BATCHES: &str = "batches";

/// Writes tensors, and the number of batches so far; equal ones always give equal bytes.
///
/// # Errors
/// If safetensors cannot write them.
pub fn write(tensors: &Tensors, batches: Option<u64>) -> Result<Vec<u8>> {
    let bytes: Vec<Vec<u8>> = tensors
        .values()
        .map(|(_, v)| v.iter().flat_map(|v| v.to_le_bytes()).collect())
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, (shape, _)), bytes)| {
            Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        });
    let views: Vec<(&String, TensorView<'_>)> = views.collect::<Result<_>>()?;
    // one note at most: several would be in the order of a hash map
    let notes = batches.map(|n| HashMap::from([(BATCHES.to_string(), n.to_string())]));
    Ok(serialize(views, notes)?)
}

/// Reads the output of [`write()`].
///
/// # Errors
/// If `bytes` is no safetensors file, or holds anything but f32.
pub fn read(bytes: &[u8]) -> Result<(Tensors, Option<u64>)> {
    let file = SafeTensors::deserialize(bytes).context("no safetensors file")?;
    let mut all = Tensors::new();
    for (name, view) in file.tensors() {
        Problem::shape_unless(view.dtype() == Dtype::F32, || {
            format!("`{name}` is {:?}, not F32", view.dtype())
        })?;
        let values = view
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect();
        all.insert(name, (view.shape().to_vec(), values));
    }
    let (_, head) = SafeTensors::read_metadata(bytes)?;
    let note = head
        .metadata()
        .as_ref()
        .and_then(|notes| notes.get(BATCHES))
        .map(|n| n.parse());
    Ok((all, note.transpose().context("the number of batches")?))
}

/// Writes a network and its optimiser's state.
///
/// # Errors
/// As [`write()`].
pub fn write_state(mut tensors: Tensors, optimiser: &State) -> Result<Vec<u8>> {
    for (name, values) in [(FIRST, &optimiser.first), (SECOND, &optimiser.second)] {
        tensors.insert(name.into(), (vec![values.len()], values.clone()));
    }
    write(&tensors, Some(optimiser.done))
}

/// Reads the output of [`write_state`] for a network of `weights` weights.
///
/// # Errors
/// If `bytes` is no such state, or that of another network.
pub fn read_state(bytes: &[u8], weights: usize) -> Result<(Tensors, State)> {
    let (mut all, done) = read(bytes)?;
    let mut take = |name: &str| {
        all.remove(name)
            .map(|(_, v)| v)
            .with_context(|| format!("`{name}` is missing: a model, not a state"))
    };
    let (first, second) = (take(FIRST)?, take(SECOND)?);
    let fits = |values: &[f32]| values.is_empty() || values.len() == weights;
    Problem::shape_unless(fits(&first) && fits(&second), || {
        "the state of another model".into()
    })?;
    let done = done.context("the number of batches is missing: a model, not a state")?;
    let optimiser = State {
        done,
        first,
        second,
    };
    Ok((all, optimiser))
}
