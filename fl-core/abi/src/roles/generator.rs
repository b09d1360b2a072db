//! Generators.

use crate::caller::{Callee, Caller, Calls, Means};
use crate::data_sets::{KnownSets, NoSets};
use crate::library::{Host, Input};
use crate::marshal_data::{samples_of, with_more, with_samples};
use crate::marshal_samples::{samples, with_values};
use crate::raw::*;
use fl_roles::message::{TensorMap, View};
use fl_roles::{Generator, Problem, Result, Samples, Stream};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

/// The text of [`FL_SAMPLE`].
#[derive(Serialize, Deserialize)]
struct SampleText {
    samples: usize,
}

/// A generator that is elsewhere.
pub(crate) struct RemoteGenerator {
    pub remote: Box<dyn Caller>,
    /// The shape of its task's inputs; `None`: the other side has checked it.
    pub input: Option<Vec<usize>>,
}

impl Generator for RemoteGenerator {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let text = serde_json::to_string(&SampleText { samples: n })?;
        let means = Means::stream(stream);
        let answer = self.remote.must(FL_SAMPLE, &text, &[], means)?;
        let made = samples(&mut TensorMap::new(answer.tensors));
        let made = self.remote.named(made)?;
        if let Some(input) = &self.input {
            Problem::shape_unless(made.len() == n && made.shape() == *input, || {
                self.remote.says(&format!(
                    "{} samples of shape {:?} where {n} of {input:?} were due",
                    made.len(),
                    made.shape()
                ))
            })?;
        }
        Ok(made)
    }

    fn learn(&mut self, made: &Samples, slope: ArrayView2<'_, f32>) -> Result<()> {
        with_samples(self.remote.sets(), made, |made, tensors| {
            let slope = View::F32(slope.view().into_dyn());
            let letter = [with_more(&tensors, [("slope", slope)])];
            let text = serde_json::to_string(&made)?;
            let done = self.remote.must(FL_LEARN, &text, &letter, Means::default());
            done.map(drop)
        })
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.remote.save(FL_SAVE)?.unwrap_or_default())
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.remote.load_unless_marked(state)
    }
}

impl Callee for Box<dyn Generator> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        serve(&mut **self, &NoSets, operation, input, host)
    }
}

/// Does an operation with a generator that is here; samples may be rows of `sets`.
pub(crate) fn serve(
    generator: &mut dyn Generator,
    sets: &dyn KnownSets,
    operation: u32,
    input: &Input<'_>,
    host: &Host<'_>,
) -> Result<bool> {
    match operation {
        FL_SAMPLE => {
            let SampleText { samples } = input.json()?;
            let made = generator.sample(samples, &host.stream())?;
            with_values(&made, |values| {
                host.tensors(&vec![("values".into(), View::F32(values))])
            })?;
        }
        FL_LEARN => {
            let mut parcel = input.parcel(0)?;
            let slope = parcel.table("slope")?;
            let made = samples_of(sets, &input.json()?, &mut parcel)?;
            generator.learn(&made, slope.view())?;
        }
        FL_SAVE => host.state(&generator.save()?)?,
        FL_LOAD => generator.load(&input.parcel(0)?.bytes("state")?)?,
        _ => return Ok(false),
    }
    Ok(true)
}
