//! Features of a model that another run kept.

use anyhow::{Context, Error, Result, bail, ensure};
use fl_core::regular_file::{MOST_BINARY, read_regular, read_text};
use fl_core::settings::{Reader, Setting, Value, ValueType};
use fl_core::{BuildContext, PartDecl, Role, Samples, Stages, Stream, Task, Trainer};
use fl_registry::{Catalogue, Document, slot_of_kept};
use ndarray::Array2;
use sha2::{Digest, Sha256};
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

fl_core::settings! {
    /// The features of a trained model.
    pub struct KeptModel {
        /// The model that another run kept, `RUN/models/NAME`, relative to the spec. This spec's
        /// `plugins` name the library or module of its part, if the program does not have it.
        file: ModelFile;
        /// Whether that model was trained without private data. Otherwise what its run released
        /// counts in the guarantees of this one.
        is_public: bool = false;
    }
}

impl KeptModel {
    /// The folder of the run that kept it.
    pub fn run(&self) -> Option<&Path> {
        Path::new(&self.file.path).parent()?.parent()
    }

    /// The model, once a check has loaded it.
    ///
    /// # Errors
    /// If no check did.
    pub(crate) fn frozen(&self) -> Result<&FrozenModel> {
        let unread = || format!("{}: the check of a spec loads it", self.file.path);
        self.file.frozen.as_ref().with_context(unread)
    }

    /// The part that the model is; `None` before a check has loaded it.
    pub fn part(&self) -> Option<&'static PartDecl> {
        Some(self.file.frozen.as_ref()?.part)
    }

    /// The files that decide the features, and what their run released.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let run = self.run().unwrap_or(Path::new(""));
        let releases = (!self.is_public).then(|| run.join("outcome.json"));
        let all = [PathBuf::from(&self.file.path), run.join("spec.yaml")];
        all.into_iter().chain(releases)
    }

    /// Loads the model, by the parts of `catalogue`; its path is relative to `folder`.
    ///
    /// # Errors
    /// If it is no kept model, its part is not there, or has no features.
    pub(crate) fn load(&mut self, folder: &Path, catalogue: &Catalogue) -> Result<()> {
        let path = folder.join(&self.file.path);
        let path = std::path::absolute(&path).unwrap_or(path);
        self.file.path = path.to_string_lossy().into_owned();
        let frozen = FrozenModel::load(&path, self.run(), catalogue);
        self.file.frozen = Some(frozen.with_context(|| self.file.path.clone())?);
        Ok(())
    }
}

/// The path of a kept model, and the model once it is loaded.
#[derive(Clone, Debug)]
pub struct ModelFile {
    path: String,
    frozen: Option<FrozenModel>,
}

impl PartialEq for ModelFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Setting for ModelFile {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let path = String::read(value, reader)?;
        Some(Self { path, frozen: None })
    }

    fn write(&self) -> Value {
        self.path.write()
    }

    fn value_type() -> ValueType {
        String::value_type()
    }
}

/// A model that nothing trains any more.
#[derive(Clone)]
pub struct FrozenModel {
    part: &'static PartDecl,
    trainer: Arc<Mutex<Box<dyn Trainer>>>,
    /// The shape of its inputs.
    pub(crate) input: Vec<usize>,
    /// Number of features.
    pub(crate) width: usize,
    /// Of its file.
    pub(crate) sha256: String,
}

impl Debug for FrozenModel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part.name, self.sha256)
    }
}

impl FrozenModel {
    fn load(path: &Path, run: Option<&Path>, catalogue: &Catalogue) -> Result<Self> {
        let bytes = read_regular(path, MOST_BINARY)
            .context("cannot be read: name a model that a run kept, RUN/models/NAME")?;
        let run = run.context("no model in the folder of a run, RUN/models/NAME")?;
        let read = |name: &str| {
            read_text(&run.join(name)).with_context(|| {
                format!("it must stay in the folder of its run, which has no {name}")
            })
        };
        let spec = Document::values_of("spec.yaml", read("spec.yaml")?.as_bytes())?;
        let about: serde_json::Value = serde_json::from_str(&read("run.json")?)?;
        let task = about.pointer("/meaning/task").cloned();
        let task = task.context(
            "run.json does not say what the model learnt, as an older fl wrote it: run its spec again",
        )?;
        let task: Task = serde_json::from_value(task).context("run.json")?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = |slot: &str| match Stages::owner(slot) {
            Some((stage, slot)) => {
                let stage = spec.get("stages")?.get(stage - 1)?;
                stage.get("parts")?.get(slot)?.as_mapping()
            }
            None => spec.get("parts")?.get(slot)?.as_mapping(),
        };
        let slot = slot_of_kept(&name, |slot| part(slot).is_some());
        let Some(mut settings) = slot.and_then(|(slot, _)| part(&slot)).cloned() else {
            bail!(
                "`parts` in spec.yaml has no part `{name}` that is the same for all clients; name another model of the run"
            );
        };
        let used = settings.shift_remove("use").unwrap_or_default();
        // a processor gives the same bits at every node
        settings.shift_remove("device");
        let used = used.as_str().unwrap_or_default();
        let part = catalogue.find(Role::Trainer, used).map_err(Error::msg)?;
        let seed = spec.get("seed").and_then(Value::as_u64).unwrap_or(0);
        let input = task.input.clone();
        let width = task.width();
        let context = BuildContext::new(task, Stream::root(seed));
        let mut trainer: Box<dyn Trainer> = part.make(&settings.into(), &context)?;
        trainer.load(&bytes).context("it does not fit its part")?;
        let one = Samples::fresh(Array2::zeros((1, width)), input.clone())?;
        let none = || {
            format!("trainer `{used}` has no layer of features before its scores; name a network")
        };
        let width = trainer.features(&one)?.with_context(none)?.ncols();
        Ok(Self {
            part,
            trainer: Arc::new(Mutex::new(trainer)),
            input,
            width,
            sha256: fl_core::hex(&Sha256::digest(&bytes)),
        })
    }

    /// The features of these rows, `rows x features`.
    pub(crate) fn of(&self, rows: &Samples) -> Result<Array2<f32>> {
        let mut trainer = self.trainer.lock().unwrap_or_else(PoisonError::into_inner);
        let found = trainer.features(rows)?.context("it has no features")?;
        let due = (rows.len(), self.width);
        ensure!(
            found.dim() == due && found.iter().all(|v| v.is_finite()),
            "trainer `{}` gave features of shape {:?}, where finite numbers of shape {due:?} are due",
            self.part.name,
            found.dim()
        );
        Ok(found)
    }
}
