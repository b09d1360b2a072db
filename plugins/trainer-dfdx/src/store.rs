//! Models and states as safetensors files (<https://huggingface.co/docs/safetensors>).

use anyhow::{Context, ensure};
use fl_core::{Problem, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::{BTreeMap, HashMap};

/// Tensors by name: shape and numbers.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The counter's name among the notes of a file.
const BATCHES: &str = "batches";

/// Writes tensors, and how many batches made them; the same ones always give the same bytes.
///
/// # Errors
/// When safetensors cannot write them.
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
    // one note at most: several would be written in the order of a hash map
    let notes = batches.map(|n| HashMap::from([(BATCHES.to_string(), n.to_string())]));
    Ok(serialize(views, notes)?)
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// When `bytes` is no safetensors file, or holds anything but f32.
pub fn read(bytes: &[u8]) -> Result<(Tensors, Option<u64>)> {
    let file = SafeTensors::deserialize(bytes).context("no safetensors file")?;
    let mut all = Tensors::new();
    for (name, view) in file.tensors() {
        ensure!(
            view.dtype() == Dtype::F32,
            Problem::Shape(format!("`{name}` is {:?}, not F32", view.dtype()))
        );
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
