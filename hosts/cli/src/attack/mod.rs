//! `fl attack`: what a run gives away.

mod generator;
mod gradient;
mod inversion;
mod membership;
mod slopes;
mod substitute;

use crate::{DataDir, Done, Failure, Overrides, not_stopped};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use fl_attack::{Search, Tell};
use fl_core::privacy::Observer;
use fl_core::{BuildContext, ClientId, Role, Stream, Trainer};
use fl_data::Split;
use fl_data::{Assembled, DataSpec};
use fl_engine::{ExecuteOptions, Folder, ProtocolOverride, Signals};
use fl_registry::{Catalogue, Spec};
use fl_sim::Execution;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Subcommand)]
pub enum AttackCommand {
    /// Tell from the models that a run kept who was among those they learnt from: by their loss,
    /// and beside shadow runs.
    #[command(after_help = "Example:\n  fl attack membership runs/hello-1 --shadows 16")]
    Membership(membership::MembershipArgs),
    /// Find, from parameters that a client sends, the examples that it trained on: by search
    /// (gradient inversion), and read off a dense first layer.
    #[command(after_help = "Example:\n  fl attack gradient hello.yaml --client 3")]
    Gradient(gradient::GradientArgs),
    /// Find, from the models that a run kept, what they take each class to look like (model
    /// inversion), and how like private examples that is.
    #[command(after_help = "Example:\n  fl attack inversion runs/hello-1 --picture found.png")]
    Inversion(inversion::InversionArgs),
    /// Find, from the slopes with which clients of `generate-and-distill` answer, what their
    /// teachers take each class to look like: for a server that asks about inputs of its own, and
    /// for one that follows the protocol.
    #[command(after_help = "Example:\n  fl attack slopes specs/quick/fedgen.yaml")]
    Slopes(slopes::SlopesArgs),
    /// Find, from what a client answers about public samples in distillation, what its model takes
    /// each class to look like: a substitute network learns the answers, and is inverted. With
    /// `--ask` the substitute is made without any data, of answers about inputs of the attacker's
    /// own (IDEAL).
    #[command(after_help = "Example:\n  fl attack substitute specs/quick/fedkd.yaml --ask 5000")]
    Substitute(substitute::SubstituteArgs),
    /// Compare what the generator of a run makes with private examples: how near, and how alike as
    /// a whole (Frechet distance), beside test examples.
    #[command(after_help = "Example:\n  fl attack made runs/fedgen-1")]
    Made(generator::GeneratorArgs),
}

/// What all attacks take.
#[derive(Args)]
pub struct Common {
    /// What the attack draws follows from it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataDir,
}

fn weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok();
    let weight = weight.filter(|w: &f64| w.is_finite() && *w >= 0.0);
    weight.ok_or_else(|| "must be a number, at least 0".into())
}

pub fn attack(command: &AttackCommand, catalogue: &Catalogue, line: &[String]) -> Done {
    match command {
        AttackCommand::Membership(args) => membership::membership(args, catalogue, line),
        AttackCommand::Gradient(args) => gradient::gradient(args, catalogue, line),
        AttackCommand::Inversion(args) => inversion::inversion(args, catalogue, line),
        AttackCommand::Slopes(args) => slopes::slopes(args, catalogue, line),
        AttackCommand::Substitute(args) => substitute::substitute(args, catalogue, line),
        AttackCommand::Made(args) => generator::made(args, catalogue, line),
    }
}

/// Can a picture be put there? A search of minutes comes before it.
fn drawable(picture: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = picture else {
        return Ok(());
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) && !path.is_dir() {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "--picture: {} cannot be written: it must be a file in a folder that is there",
            path.display()
        ))),
    }
}

/// The spec in a file, or that of a run in a folder.
fn spec_of(path: &Path, set: &Overrides, catalogue: &Catalogue) -> Result<Spec<DataSpec>, Failure> {
    let spec = match path.is_dir() {
        true => set.read(&path.join("spec.yaml"), catalogue)?,
        false => set.read(path, catalogue)?,
    };
    match spec.data.split() {
        Split::Own => Err(Failure::usage(
            "the clients of this spec own their data, so this machine cannot run them",
        )),
        // an attack's runs are thrown away, and its results follow the data in any case
        _ => Ok(Spec {
            ledger: None,
            ..spec
        }),
    }
}

/// A run that is done, with its data.
pub struct FinishedRun {
    pub spec: Spec<DataSpec>,
    pub data: Assembled,
    pub targets: Vec<Target>,
}

impl FinishedRun {
    fn open(
        dir: &Path,
        data: &DataDir,
        catalogue: &Catalogue,
        line: &[String],
    ) -> Result<Self, Failure> {
        let spec = Overrides::default().read(&dir.join("spec.yaml"), catalogue)?;
        if matches!(spec.data.split(), Split::Own) {
            return Err(Failure::usage(
                "the clients of this run own their data, so this machine does not have the examples",
            ));
        }
        let data_dir = data.path();
        let files = fl_engine::data_files(&spec.data, &data_dir)?;
        // the text as it stands: one of an older version may have old names in it
        let yaml = std::fs::read_to_string(dir.join("spec.yaml"))?;
        fl_engine::manifest(&spec, &yaml, files, line)?.is_of(dir)?;
        Ok(Self {
            targets: Target::all(dir, &spec)?,
            data: fl_engine::data(&spec, &data_dir)?,
            spec,
        })
    }
}

/// A kept model, and which client's it is; the server's is nobody's.
pub struct Target {
    pub name: String,
    slot: String,
    pub client: Option<ClientId>,
}

impl Target {
    /// The models in a run folder.
    fn all(dir: &Path, spec: &Spec<DataSpec>) -> Result<Vec<Self>> {
        let kept = dir.join("models");
        let files = std::fs::read_dir(&kept)
            .with_context(|| format!("{}: the run is not done", kept.display()))?;
        let names = files.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let trainer = |slot: &str| {
            let mut parts = spec.parts.iter();
            parts.any(|part| part.slot == slot && part.decl.role == Role::Trainer)
        };
        let one = |name: String| {
            let of_client = name.rsplit_once('-');
            let of_client =
                of_client.and_then(|(slot, id)| Some((slot.to_string(), id.parse().ok()?)));
            match of_client {
                _ if trainer(&name) => Some((name.clone(), None, name)),
                Some((slot, id)) if trainer(&slot) => Some((slot, Some(id), name)),
                _ => None,
            }
        };
        let mut all: Vec<Self> = names
            .filter_map(one)
            .map(|(slot, client, name)| Self { name, slot, client })
            .collect();
        all.sort_by(|a, b| (&a.slot, a.client).cmp(&(&b.slot, b.client)));
        ensure!(
            !all.is_empty(),
            "{}: no model of a slot of the spec was kept, so there is nothing to attack",
            kept.display()
        );
        Ok(all)
    }

    /// The model as the run in `dir` left it.
    pub fn load(
        &self,
        dir: &Path,
        spec: &Spec<DataSpec>,
        data: &Assembled,
    ) -> Result<Box<dyn Trainer>> {
        let make = BuildContext {
            task: data.task.clone(),
            stream: Stream::root(spec.seed),
        };
        let path = dir.join("models").join(&self.name);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut model: Box<dyn Trainer> =
            spec.parts
                .build(Role::Trainer, &self.slot, self.client, &make)?;
        model
            .load(&bytes)
            .with_context(|| path.display().to_string())?;
        Ok(model)
    }

    /// Whom it learnt from, by their numbers.
    pub fn owners(&self, data: &Assembled) -> Vec<usize> {
        match self.client {
            Some(id) => vec![id as usize],
            None => (0..data.clients.len()).collect(),
        }
    }
}

/// Runs a spec, with its own protocol or another, in a temporary folder. Shows `watch` what crosses
/// until `watch` gives `false`.
fn watched(
    spec: &Spec<DataSpec>,
    data: &DataDir,
    line: &[String],
    asked: &Signals,
    protocol: Option<ProtocolOverride<'_>>,
    mut watch: impl FnMut(Observer, &str, &[u8]) -> bool,
) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("fl-attack-{}", std::process::id()));
    let _folder = RemovedOnDrop(&folder);
    // not the signals' own: were that set, the first signal would end the program at once
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let execution = Execution {
        stop,
        watch: Some(Box::new(move |observer, what, bytes| {
            if !watch(observer, what, bytes) || asked.stop.load(Ordering::Relaxed) {
                stopping.store(true, Ordering::Relaxed);
            }
        })),
        ..Execution::default()
    };
    let options = ExecuteOptions {
        protocol,
        ..ExecuteOptions::new(data.path(), line.to_vec(), execution)
    };
    let data = fl_engine::data(spec, &options.data_dir)?;
    fl_engine::execute(spec, data, Folder::New(folder.clone()), options)?;
    not_stopped(asked)
}

/// A search of so many steps and so much smoothness, which a signal ends.
fn searching<T, E: Into<Failure>>(
    (steps, smooth): (u32, f64),
    asked: &Signals,
    search: impl FnOnce(&Search, Tell) -> Result<T, E>,
) -> Result<T, Failure> {
    let how = Search {
        steps: steps as usize,
        rate: 0.1,
        smooth,
    };
    let bar = crate::log::bar(indicatif::ProgressBar::new(u64::from(steps)));
    let (counting, signals) = (bar.clone(), asked.clone());
    let tell = move || {
        counting.inc(1);
        signals.exit_code().is_none()
    };
    let found = search(&how, Box::new(tell));
    bar.finish_and_clear();
    not_stopped(asked)?;
    found.map_err(Into::into)
}

/// A folder that goes with this.
pub struct RemovedOnDrop<'a>(pub &'a Path);

impl Drop for RemovedOnDrop<'_> {
    fn drop(&mut self) {
        // what is left of it is in the folder for what may go
        let _ = std::fs::remove_dir_all(self.0);
    }
}
