//! A finished run, and the models that it kept.

use crate::{NotRun, prepare};
use anyhow::{Context, Result, ensure};
use fl_core::regular_file::{MOST_BINARY, read_regular, read_text};
use fl_core::{ClientId, Generator, Role, Stream, Trainer};
use fl_data::{Assembled, DataSpec, Split};
use fl_registry::{Catalogue, Spec};
use ndarray::{Array2, Axis, concatenate};
use std::path::Path;

/// A run that is done, with its data.
pub struct FinishedRun {
    /// Its spec.
    pub spec: Spec<DataSpec>,
    /// Its data.
    pub data: Assembled,
    /// The labels of the exchanges for which a client learns from its own examples; none if the
    /// protocol learns from those of all clients at once.
    pub trains: Vec<String>,
    /// The models that it kept.
    pub targets: Vec<Target>,
}

impl FinishedRun {
    /// Opens the run in the folder `dir`.
    ///
    /// # Errors
    /// If it is not done, has kept no model, or is of other data than those of `data_dir`.
    pub fn open(
        dir: &Path,
        data_dir: &Path,
        catalogue: &Catalogue,
        line: &[String],
    ) -> Result<Self> {
        let spec = prepare::read(&prepare::parse(&dir.join("spec.yaml"))?, catalogue)?;
        if matches!(spec.data.split(), Split::Own) {
            return Err(NotRun::usage(
                "the clients of this run own their data, so this machine does not have the examples",
            ));
        }
        let files = prepare::input_files(&spec, data_dir)?;
        // the text as it stands: one of an older version may have old names in it
        let yaml = read_text(&dir.join("spec.yaml"))?;
        prepare::manifest(&spec, &yaml, files, line)?.is_of(dir)?;
        let (data, protocol) = prepare::data_and_protocol(&spec, data_dir)?;
        let targets = Target::all(dir, &spec, protocol.pools_data())?;
        Ok(Self {
            trains: prepare::training_exchanges(protocol.as_ref()),
            targets,
            data,
            spec,
        })
    }
}

/// A kept model, and its client; the server's has none.
pub struct Target {
    /// Its name: that of its slot, and of its client.
    pub name: String,
    slot: String,
    /// Its client.
    pub client: Option<ClientId>,
    /// Whether it learnt from the examples of all clients, whosever it is.
    pools: bool,
}

impl Target {
    /// The models in a run folder.
    fn all(dir: &Path, spec: &Spec<DataSpec>, pools: bool) -> Result<Vec<Self>> {
        let kept = dir.join("models");
        let files = std::fs::read_dir(&kept)
            .with_context(|| format!("{}: the run is not done", kept.display()))?;
        let names = files.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let one = |name: String| {
            let (slot, client) = spec.kept_slot(&name)?;
            Some(Self {
                name,
                slot,
                client,
                pools,
            })
        };
        let mut all: Vec<Self> = names.filter_map(one).collect();
        all.sort_by(|a, b| (&a.slot, a.client).cmp(&(&b.slot, b.client)));
        ensure!(
            !all.is_empty(),
            "{}: no model of a slot of the spec was kept, so there is nothing to attack; a protocol that keeps the clients' models has `protocol.keep-clients: true`",
            kept.display()
        );
        Ok(all)
    }

    /// The model as the run in `dir` left it.
    ///
    /// # Errors
    /// If its file cannot be read, or is of another model.
    pub fn load(
        &self,
        dir: &Path,
        spec: &Spec<DataSpec>,
        data: &Assembled,
    ) -> Result<Box<dyn Trainer>> {
        let make = spec.part_context(&data.task);
        let path = dir.join("models").join(&self.name);
        let bytes = read_regular(&path, MOST_BINARY);
        let bytes = bytes.with_context(|| format!("reading {}", path.display()))?;
        let model = spec.kept_model(&make, &self.name, &bytes);
        let model = model.with_context(|| path.display().to_string())?;
        model.with_context(|| format!("{}: it is of no slot of the spec", path.display()))
    }

    /// Whom it learnt from, by their numbers.
    pub fn owners(&self, data: &Assembled) -> Vec<usize> {
        match self.client {
            Some(id) if !self.pools => vec![id as usize],
            _ => (0..data.clients.len()).collect(),
        }
    }
}

/// The number of inputs that a generator makes, or a model predicts, in one call.
pub const BATCH: usize = 100;

/// Returns the generator of inputs that a run has kept.
///
/// # Errors
/// If the spec has none, or its file cannot be read.
pub fn kept_generator(
    dir: &Path,
    spec: &Spec<DataSpec>,
    data: &Assembled,
) -> Result<Box<dyn Generator>> {
    let mut parts = spec.parts.iter();
    let filled = parts.find(|part| part.decl.role == Role::Generator);
    let slot = &filled
        .ok_or_else(|| {
            NotRun::usage("this run's spec has no generator that makes inputs from noise (generators of features, and of images from label maps, do not count)")
        })?
        .slot;
    let make = spec.part_context(&data.task);
    let path = dir.join("models").join(slot);
    let state = read_regular(&path, MOST_BINARY).map_err(|error| {
        let path = path.display();
        NotRun::usage(format!("{path}: {error}: the run has kept no generator"))
    })?;
    let mut generator: Box<dyn Generator> = spec.parts.build(Role::Generator, slot, None, &make)?;
    let loaded = generator.load(&state);
    loaded.with_context(|| path.display().to_string())?;
    Ok(generator)
}

/// Makes `n` inputs, one row each.
///
/// # Errors
/// If the generator fails.
pub fn samples(generator: &mut dyn Generator, n: usize, stream: &Stream) -> Result<Array2<f32>> {
    let mut all = Vec::new();
    for (at, from) in (0..n).step_by(BATCH).enumerate() {
        let batch = BATCH.min(n - from);
        all.push(
            generator
                .sample(batch, &stream.child("batch", at as u64))?
                .values(),
        );
    }
    let all: Vec<_> = all.iter().map(|rows| rows.view()).collect();
    Ok(concatenate(Axis(0), &all)?)
}
