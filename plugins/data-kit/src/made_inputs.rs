//! Inputs that the generator of a run made, in the folder of that run.

use crate::dataset::Part;
use anyhow::{Context, Result, ensure};
use fl_core::regular_file::{MOST_BINARY, read_regular};
use fl_core::{Inputs, Labels};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const INPUTS: &str = "inputs";
const LABELS: &str = "labels";
const CLASSES: &str = "classes";

/// Returns the file of a run folder with the inputs that the run's generator made.
pub fn made_path(run: &Path) -> PathBuf {
    run.join("made.safetensors")
}

/// Returns the content of that file: `inputs`, row after row of this shape, not normalised, and for
/// each row its class, below `classes`.
///
/// # Errors
/// If the numbers do not fit the shape.
pub fn made_file(
    shape: &[usize],
    inputs: &[f32],
    labels: &[u32],
    classes: usize,
) -> Result<Vec<u8>> {
    let little = |v: &f32| v.to_le_bytes();
    let inputs: Vec<u8> = inputs.iter().flat_map(little).collect();
    let whole = [&[labels.len()], shape].concat();
    let of: Vec<u8> = labels.iter().flat_map(|l| l.to_le_bytes()).collect();
    let tensors = [
        (INPUTS, TensorView::new(Dtype::F32, whole, &inputs)?),
        (
            LABELS,
            TensorView::new(Dtype::U32, vec![labels.len()], &of)?,
        ),
    ];
    let about = HashMap::from([(CLASSES.to_string(), classes.to_string())]);
    Ok(serialize(tensors, Some(about))?)
}

/// Reads what [`made_file`] wrote.
///
/// # Errors
/// If the file cannot be read, or is damaged.
pub fn made_inputs(run: &Path) -> Result<Part> {
    let path = made_path(run);
    let bytes = read_regular(&path, MOST_BINARY);
    let bytes = bytes.with_context(|| format!("reading {}", path.display()))?;
    parse(&bytes).with_context(|| {
        let run = run.display();
        format!(
            "{} is damaged; `fl export {run} --made N` writes it again",
            path.display()
        )
    })
}

fn parse(bytes: &[u8]) -> Result<Part> {
    let (_, about) = SafeTensors::read_metadata(bytes)?;
    let classes = about.metadata().as_ref().and_then(|m| m.get(CLASSES));
    let classes: usize = classes
        .context("the number of classes is missing")?
        .parse()?;
    let file = SafeTensors::deserialize(bytes)?;
    let (inputs, labels) = (file.tensor(INPUTS)?, file.tensor(LABELS)?);
    let types = (inputs.dtype(), labels.dtype());
    ensure!(
        types == (Dtype::F32, Dtype::U32),
        "its tensors have types {types:?}"
    );
    let words = |of: &[u8]| -> Vec<[u8; 4]> { of.as_chunks().0.to_vec() };
    let data: Vec<f32> = words(inputs.data())
        .into_iter()
        .map(f32::from_le_bytes)
        .collect();
    let of: Vec<u32> = words(labels.data())
        .into_iter()
        .map(u32::from_le_bytes)
        .collect();
    let rows = (inputs.shape().first(), labels.shape());
    ensure!(
        rows == (Some(&of.len()), &[of.len()]) && !of.is_empty(),
        "it has {rows:?} inputs and labels"
    );
    ensure!(
        data.iter().all(|v| v.is_finite()),
        "an input is not a finite number"
    );
    ensure!(
        of.iter().all(|l| (*l as usize) < classes),
        "a label is not below {classes}"
    );
    let shape = inputs.shape()[1..].to_vec();
    Ok((
        Inputs::Dense { shape, data },
        Labels::Classes { of, classes },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_every_cut_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = made_file(&[1, 2], &[0.5, -1.0, 0.0, 2.5], &[1, 0], 3).unwrap();
        std::fs::write(made_path(dir.path()), &file).unwrap();
        let (inputs, labels) = made_inputs(dir.path()).unwrap();
        let Inputs::Dense { shape, data } = inputs else {
            panic!("the inputs are not dense");
        };
        assert_eq!(
            (&shape[..], &data[..]),
            (&[1, 2][..], &[0.5, -1.0, 0.0, 2.5][..])
        );
        assert!(matches!(labels, Labels::Classes { of, classes: 3 } if of == [1, 0]));
        for end in 0..file.len() {
            assert!(parse(&file[..end]).is_err(), "{end} bytes");
        }
        let nan = made_file(&[1], &[f32::NAN], &[0], 2).unwrap();
        assert!(parse(&nan).is_err());
        let foreign = made_file(&[1], &[0.0], &[2], 2).unwrap();
        assert!(parse(&foreign).is_err());
        let none = made_file(&[1], &[], &[], 2).unwrap();
        assert!(parse(&none).is_err());
    }
}
