//! Generators of a library as parts of this program.

use super::deferred_error::load;
use super::part_handle::PartHandle;
use crate::abi::marshal::OutgoingMessage;
use crate::abi::marshal_samples::{samples, with_values};
use crate::abi::raw::*;
use crate::message::{NamedTensors, TensorMap, View};
use crate::{Generator, Problem, Result, Samples, Stream, Task};
use anyhow::{Context, ensure};
use ndarray::ArrayView2;
use serde_json::json;

pub(super) struct LoadedGenerator {
    remote: PartHandle,
    /// The shape of its task's inputs.
    input: Vec<usize>,
}

impl LoadedGenerator {
    pub fn new(remote: PartHandle, task: &Task) -> Self {
        Self {
            remote,
            input: task.input.clone(),
        }
    }
}

impl Generator for LoadedGenerator {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let text = json!({ "samples": n }).to_string();
        let answer = self
            .remote
            .must(FL_SAMPLE, &text, &[], Some(stream), None)?;
        let made = samples(&mut TensorMap::new(answer.tensors)).context(self.remote.who())?;
        ensure!(
            made.len() == n && made.shape() == self.input,
            Problem::Shape(format!(
                "{}: {} samples of shape {:?} where {n} of {:?} were due",
                self.remote.who(),
                made.len(),
                made.shape(),
                self.input
            ))
        );
        Ok(made)
    }

    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        with_values(made, |values| {
            let tensors: NamedTensors<'_> = vec![
                ("values".into(), View::F32(values.view())),
                ("slope".into(), View::F32(slope.view().into_dyn())),
            ];
            self.remote
                .must(FL_LEARN, "", &[OutgoingMessage::new(&tensors)], None, None)
        })?;
        Ok(())
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.remote.save(FL_SAVE)?.unwrap_or_default())
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }
}
