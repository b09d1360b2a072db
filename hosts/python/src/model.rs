//! A kept model, as Python uses it after a run.

use crate::buffer::Buffer;
use crate::{catalogue, library};
use anyhow::{Context, Result, ensure};
use fl_core::regular_file::{MOST_BINARY, read_regular};
use fl_core::{BuildContext, Inputs, Samples, Stream, Task, Trainer};
use fl_data::{DataSpec, FeatureMap};
use fl_data_kit::{Normalise, Scaling, alike, load_seen};
use fl_engine::NotRun;
use fl_registry::{DataSection, Spec};
use fl_sim::Manifest;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A model of a run that is over, and what is done to its inputs.
#[pyclass(frozen)]
pub struct Model {
    trainer: Mutex<Box<dyn Trainer>>,
    task: Task,
    /// Shape of one row before `features`.
    shape: Vec<usize>,
    /// What was taken from the values of the run's rows.
    scale: Option<Normalise>,
    /// The columns that it has learnt, and how they were read.
    columns: Vec<(String, String)>,
    /// Which side of an image is its channels, if the spec says so.
    channels: Option<String>,
    /// If the spec has `features`: the folder of the run and the data directory, from which they
    /// are made when the first rows come.
    data: Option<(PathBuf, PathBuf)>,
    features: OnceLock<FeatureMap>,
}

/// The spec of a run folder, with these overrides.
fn spec_of(folder: &Path, set: &[String]) -> Result<Spec<DataSpec>, NotRun> {
    let document = fl_engine::parse(&folder.join("spec.yaml"))
        .map_err(|error| NotRun::Usage(format!("{error:#}")))?;
    let catalogue = catalogue().map_err(|error| NotRun::Usage(format!("{error:#}")))?;
    fl_engine::read(&document.set(set), &catalogue)
}

fn made(folder: &Path, name: &str, data_dir: &Path) -> Result<(Model, Option<Py<PyAny>>)> {
    let spec = spec_of(folder, &[])?;
    let task = match spec.data.task() {
        Some(task) => task,
        None => fl_engine::data(&spec, data_dir)?.task,
    };
    let file = folder.join("models").join(name);
    let bytes = read_regular(&file, MOST_BINARY).with_context(|| file.display().to_string())?;
    let make = BuildContext::new(task.clone(), Stream::root(spec.seed));
    let (trainer, part) = library::with_created(|| spec.kept_model(&make, name, &bytes));
    let trainer = trainer?.context("it is of no slot of the spec")?;
    let data = spec.resolved.get("data");
    let of = |key: &str| data.and_then(|data| data.get(key)).filter(|v| !v.is_null());
    let meaning = Manifest::meaning_in(folder)?.context(
        "run.json does not say what the model learnt, as an older fl wrote it: run its spec again",
    )?;
    let scale: Option<(Vec<f32>, Vec<f32>)> = serde_json::from_value(meaning["scale"].clone())?;
    let format = of("set").and_then(|set| set.get("files")?.get("format"));
    let arrays = format.and_then(|format| format.get("npy").or_else(|| format.get("npz")));
    let channels = arrays.and_then(|arrays| arrays.get("channels")?.as_str());
    let own = spec.data.set.task().map(|own| own.input);
    let featured = spec.data.features.is_some();
    let model = Model {
        trainer: Mutex::new(trainer),
        shape: own.unwrap_or_else(|| task.input.clone()),
        task,
        scale: scale.map(|(mean, std)| Normalise { mean, std }),
        columns: serde_json::from_value(meaning["columns"].clone())?,
        channels: channels.map(String::from),
        data: featured.then(|| (folder.into(), data_dir.into())),
        features: OnceLock::new(),
    };
    Ok((model, part))
}

/// Rows that Python gives.
fn rows_of(shape: &[usize], of: Numbers) -> Inputs {
    match (of, shape) {
        (Numbers::Bytes(data), [_, height, width]) => {
            fl_data_kit::format::images([1, *height, *width], data)
        }
        (Numbers::Bytes(data), [_, channels @ (1 | 3 | 4), height, width]) => {
            fl_data_kit::format::images([*channels, *height, *width], data)
        }
        (Numbers::Bytes(data), _) => Inputs::Dense {
            shape: shape[1..].to_vec(),
            data: data.into_iter().map(f32::from).collect(),
        },
        (Numbers::Floats(data), _) => Inputs::Dense {
            shape: shape[1..].to_vec(),
            data,
        },
    }
}

enum Numbers {
    Bytes(Vec<u8>),
    Floats(Vec<f32>),
}

impl Numbers {
    /// The channels of images in front, which are behind.
    fn channels_first(self, pixels: usize, channels: usize) -> Self {
        use fl_data_kit::format::channels_first;
        match self {
            Self::Bytes(data) => Self::Bytes(channels_first(&data, pixels, channels)),
            Self::Floats(data) => Self::Floats(channels_first(&data, pixels, channels)),
        }
    }
}

impl Model {
    /// Rows that Python gives, with their channels in front as the model has learnt them.
    fn rows(&self, shape: &[usize], of: Numbers) -> Inputs {
        let [rows, height, width, channels] = shape[..] else {
            return rows_of(shape, of);
        };
        let plain = self.shape == shape[1..] && self.channels.as_deref() != Some("last");
        let last = self.shape == [channels, height, width] && !plain;
        if last && shape.iter().all(|side| *side > 0) {
            rows_of(
                &[rows, channels, height, width],
                of.channels_first(height * width, channels),
            )
        } else {
            rows_of(shape, of)
        }
    }

    /// Puts rows that are scaled through the features of the run, if it has any.
    fn featured(&self, mut samples: Samples) -> Result<Samples> {
        let Some((folder, data_dir)) = &self.data else {
            return Ok(samples);
        };
        fits(&samples, &self.shape)?;
        let features = match self.features.get() {
            Some(features) => features,
            None => {
                let data = fl_engine::data(&spec_of(folder, &[])?, data_dir);
                let data = data.context("`data.features` are made from the data of the run")?;
                let made = data.features.context("the data have no features")?;
                self.features.get_or_init(|| made)
            }
        };
        features.apply(vec![&mut samples])?;
        Ok(samples)
    }

    fn scores(&self, samples: &Samples) -> Result<(Vec<usize>, Vec<f32>)> {
        fits(samples, &self.task.input)?;
        let mut trainer = self.trainer.lock().unwrap_or_else(PoisonError::into_inner);
        let scores = trainer.predict(samples)?;
        Ok((scores.shape().to_vec(), scores.iter().copied().collect()))
    }
}

/// Checks that rows have this shape.
fn fits(rows: &Samples, due: &[usize]) -> Result<()> {
    let found = rows.shape();
    ensure!(
        found == due,
        "rows of shape {found:?}, and the model takes {due:?}"
    );
    Ok(())
}

fn failed(error: &anyhow::Error) -> PyErr {
    PyValueError::new_err(format!("{error:#}"))
}

#[pymethods]
impl Model {
    /// The model in the file of this name, and the part of Python that it is, if it is one.
    #[staticmethod]
    #[pyo3(signature = (folder, name, data_dir))]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        name: &str,
        data_dir: Option<PathBuf>,
    ) -> PyResult<(Self, Option<Py<PyAny>>)> {
        let data_dir = fl_data_kit::data_dir(data_dir.as_deref());
        py.detach(|| made(&folder, name, &data_dir))
            .map_err(|error| failed(&error))
    }

    /// Its parameters by name; `None`: it has none.
    fn params(&self, py: Python<'_>) -> Option<Vec<(String, Buffer)>> {
        let params = py.detach(|| {
            let mut trainer = self.trainer.lock().unwrap_or_else(PoisonError::into_inner);
            trainer.parametric().map(|model| model.params())
        })?;
        let named = params.0.into_iter().map(|(name, value)| {
            let numbers = value.iter().copied().collect();
            (name, Buffer::owner(value.shape(), numbers))
        });
        Some(named.collect())
    }

    /// Scores of rows, `rows x outputs`, which it scales and puts through features as the run did
    /// its own. `array` is of floats or bytes, in row order.
    fn predict(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let (shape, numbers) = match PyBuffer::<u8>::get(array) {
            Ok(bytes) => (bytes.shape().to_vec(), Numbers::Bytes(bytes.to_vec(py)?)),
            Err(_) => {
                let floats = PyBuffer::<f32>::get(array);
                let floats = floats.map_err(|_| {
                    PyTypeError::new_err("rows must be an array of floats or bytes")
                })?;
                (floats.shape().to_vec(), Numbers::Floats(floats.to_vec(py)?))
            }
        };
        if shape.len() < 2 {
            let text = format!("an array of shape {shape:?}; its first dimension is the rows");
            return Err(PyValueError::new_err(text));
        }
        let scored = py.detach(|| {
            let mut inputs = self.rows(&shape, numbers);
            if let Some(scale) = &self.scale {
                scale.apply(&mut inputs);
            }
            self.scores(&self.featured(Samples::all(Arc::new(inputs)))?)
        });
        let (shape, scores) = scored.map_err(|error| failed(&error))?;
        Ok(Buffer::owner(&shape, scores))
    }

    /// Scores of all test rows of the run's set with other files, which the overrides name, and what
    /// a user should know of these rows.
    fn predict_tests(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        set: Vec<String>,
        data_dir: Option<PathBuf>,
    ) -> PyResult<(Buffer, Vec<String>)> {
        let data_dir = fl_data_kit::data_dir(data_dir.as_deref());
        let scored = py.detach(|| {
            let spec = spec_of(&folder, &set)?;
            let scaling = Scaling::As(self.scale.as_ref());
            let read = load_seen(&spec.data.set, &data_dir, scaling, &mut |_, _| ())?;
            alike(&read.columns, &self.columns).context(
                "the training files, which say how columns are read, are not as they were in the run",
            )?;
            let scores = self.scores(&self.featured(read.test.samples)?)?;
            Ok((scores, read.notes))
        });
        let ((shape, scores), notes) = scored.map_err(|error| failed(&error))?;
        Ok((Buffer::owner(&shape, scores), notes))
    }
}
